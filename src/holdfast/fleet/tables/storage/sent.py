"""What this process has sent to stores of late: it need not ask for that again.

**Rules.** Only files are kept whose name is never used again, so what is kept is what the store
has, or had before somebody deleted it. Nothing here says that a file is there. What is kept is
bounded.

**Strategy.** The steps of a batch hand rows to each other in files, and the next batch begins with
files of the one before. Most of them are small, and on a store each look at one is a request.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from threading import Lock
from typing import Any, Final

FILE_BYTES: Final = 1 << 20
"""A larger file is not kept."""
KEPT_BYTES: Final = 16 << 20
"""Of all files together; the oldest ones go."""

_files: OrderedDict[str, bytes] = OrderedDict()
_lock: Final = Lock()


class Noted(io.RawIOBase):
    """A file that is being sent, and kept once :meth:`done` is called."""

    def __init__(self, stream: Any):
        super().__init__()
        self._stream = stream
        self._sent = io.BytesIO()

    def writable(self) -> bool:
        """It is for writing."""
        return True

    def write(self, data: Any) -> int:
        """Send bytes."""
        self._stream.write(data)
        if self._sent.tell() <= FILE_BYTES:
            self._sent.write(data)
        return len(data)

    def done(self, name: str) -> None:
        """Keep the file under its whole name."""
        if self._sent.tell() > FILE_BYTES:
            return
        with _lock:
            _files[name] = self._sent.getvalue()
            while sum(map(len, _files.values())) > KEPT_BYTES:
                _files.popitem(last=False)


def sent(name: str) -> bytes | None:
    """What was sent under a whole name; None where that is not kept."""
    with _lock:
        return _files.get(name)


def forget(name: str) -> None:
    """Keep a file no more: it is deleted."""
    with _lock:
        _files.pop(name, None)
