"""What the application's thread does for the member, which waits for the answer.

**Rules.** An exception can come out of any line on the application's thread: a signal's handler may
raise. So an errand is answered at all events. It is back in its place if anything is raised out of
it, and the application's next call, a close at the latest, does it again. The second time it is
answered, whatever is raised. A callback of the application is called once, however often its errand
is begun, and what the callback raises is no interruption: it is what the errand returns.

**Strategy.** An errand leaves its mailbox inside the ``try`` that puts it back. Taken out before,
it would be lost to an exception that comes between the two. What ends a client is done once more
in the same way: :func:`to_the_end`.

References: Python, ``signal``, "Note on Signal Handlers and Exceptions".
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import suppress

from holdfast.members.runtime.mailbox import Mailbox


def _nobody(_: BaseException | None) -> None:
    """An answer for which no thread waits."""


class ApplicationTask:
    """One piece of work, and what takes its answer.

    Parameters
    ----------
    work : callable
        Does it; returns what a callback of the application raised, or None. If it is interrupted,
        it is called again.
    answer : callable, optional
        Takes what ``work`` returned.
    """

    def __init__(
        self,
        work: Callable[..., BaseException | None],
        answer: Callable[[BaseException | None], None] = _nobody,
    ):
        self._work = work
        self.answer = answer
        self.was_interrupted = False

    def run(self, *arguments: object) -> BaseException | None:
        """Do it, answer, and return what a callback raised."""
        error = self._work(*arguments)
        self.answer(error)
        return error


class ApplicationTasks(Mailbox[ApplicationTask]):
    """Errands in the order they came; one thread does them."""

    def do_next(self, timeout: float, *arguments: object) -> BaseException | None:
        """Do the first one, which may do later ones itself; return what a callback raised.

        Raises
        ------
        queue.Empty
            If none came in time.
        BaseException
            What interrupted it.
        """
        task = self.first(timeout)
        try:
            self.items.popleft()
            return task.run(*arguments)
        except BaseException as error:
            if task.was_interrupted:
                task.answer(error)
            elif task not in self.items:
                task.was_interrupted = True
                self.items.appendleft(task)
            raise

    def do_all(self, timeout: float, *arguments: object) -> tuple[int, BaseException | None]:
        """Do all there are, the first within ``timeout``; how many, and the last error."""
        n_done, last = 0, None
        while True:
            try:
                last = self.do_next(0.0 if n_done else timeout, *arguments) or last
            except queue.Empty:
                return n_done, last
            n_done += 1


class Once:
    """A callback of the application that is called once."""

    def __init__(self, callback: Callable[..., object]):
        self._callback = callback
        self.has_begun = False
        self._error: BaseException | None = None

    def __call__(self, *arguments: object) -> BaseException | None:
        """Call it, unless that was done; return what it raised."""
        if not self.has_begun:
            try:
                self.has_begun = True
                self._callback(*arguments)
            except BaseException as error:  # even Ctrl-C in a callback ends it
                self._error = error
        return self._error


def to_the_end(end: Callable[[], None]) -> None:
    """End something; if that is interrupted, once more, and raise the interruption then.

    ``end`` goes on where it was interrupted, and does nothing where everything is done.
    """
    try:
        end()
    except BaseException:
        with suppress(Exception):  # the first error is the one to raise
            end()
        raise
