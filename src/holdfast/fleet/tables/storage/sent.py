"""Cache of files that this process has sent to remote storage, so that it need not read them.

**Rules.** Only files whose name is never reused are cached, so the cache has what the storage has,
or had before its deletion. The cache does not prove that a file exists. Its size is bounded.

**Strategy.** The steps of a batch exchange rows in files, and the next batch begins with files of
the one before. Most of them are small, and each read on remote storage is a request.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from threading import Lock
from typing import Any, Final

FILE_BYTES: Final = 1 << 20
"""A larger file is not cached."""
KEPT_BYTES: Final = 16 << 20
"""Of all files together; the oldest ones go."""

_files: OrderedDict[str, bytes] = OrderedDict()
_lock: Final = Lock()


class Noted(io.RawIOBase):
    """A file that is being sent, and cached once :meth:`done` is called."""

    def __init__(self, stream: Any):
        super().__init__()
        self._stream = stream
        self._sent = io.BytesIO()

    def writable(self) -> bool:
        """Return True: the file is for writing."""
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
    """Return the content sent under a full name; None if it is not cached."""
    with _lock:
        return _files.get(name)


def forget(name: str) -> None:
    """Keep a file no more: it is deleted."""
    with _lock:
        _files.pop(name, None)
