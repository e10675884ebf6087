"""SIGTERM and SIGINT while a consumer or a worker runs in a ``with`` block.

**Rules.** Only a signal without another handler is handled, and only in the main thread: a program
or a framework with a handler of its own keeps it. The first signal ends a consumer's loop at its
next poll, so the batch in flight is finished and committed; it ends a worker's block at once,
because the work is done in callbacks. A second signal raises at once, at any line of the program.
SIGTERM raises ``SystemExit(143)``, SIGINT ``KeyboardInterrupt`` (130): the block then revokes
everything and leaves. A fork inside the block has the old handlers: otherwise no signal would end
it.

**Strategy.** One handler serves all members of the process; the last one that ends restores the old
handlers.

References: POSIX (128 + the signal's number); Java's shutdown hooks end with the same codes.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any

_OURS: Mapping[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
_watches: list[EndSignals] = []


class EndSignals:
    """The signals that end one ``with`` block.

    Parameters
    ----------
    at_once : bool
        Whether the first signal already raises at the current line.
    """

    def __init__(self, *, at_once: bool = False):
        self.at_once = at_once
        self.caught: signal.Signals | None = None

    def watch(self) -> None:
        """Start watching; does nothing outside of the main thread."""
        if not _is_main():
            return
        _watches.append(self)
        for number in _OURS:
            if _is_free(number):
                signal.signal(number, _catch)

    def end(self) -> None:
        """Stop watching."""
        if self not in _watches:
            return
        _watches.remove(self)
        if not _watches:
            _put_back()

    def raise_caught(self) -> None:
        """Raise the exception of the caught signal, if any."""
        if self.caught is not None:
            raise _exit_of(self.caught)


def _put_back() -> None:
    for number, default in _OURS.items():
        if signal.getsignal(number) is _catch:
            signal.signal(number, default)


def _forget_all() -> None:
    _watches.clear()
    _put_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _is_free(number: signal.Signals) -> bool:
    """Return whether a signal has no other handler and can be handled here, in the main thread."""
    return _is_main() and signal.getsignal(number) is _OURS[number]


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _exit_of(number: signal.Signals) -> BaseException:
    """Return the exception that ends a program as the signal does."""
    return KeyboardInterrupt() if number is signal.SIGINT else SystemExit(128 + number)


def _catch(number: int, frame: FrameType | Any) -> None:
    caught = signal.Signals(number)
    is_second = any(watch.caught for watch in _watches)
    for watch in _watches:
        watch.caught = caught
    if is_second or any(watch.at_once for watch in _watches):
        raise _exit_of(caught)
