"""Files that somebody else may have put where ours are expected: opened only if they are plain.

**Rules.** A link, a folder, a pipe, a device, a socket and a file with holes are refused in one
sentence, and nobody waits for any of them. What is read whole is read up to the size that the file
had when it was opened.

**Strategy.** A device is not even opened, because some act on that. A pipe that takes the place of
a file in the meantime is opened without waiting for its writer. Pages of a hole cost their writer
nothing, so a size with holes in it bounds nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS: Final = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def open_plain(path: Path) -> int:
    """Open a plain file for reading; returns its descriptor.

    Raises
    ------
    SourceError
        It is something else.
    OSError
        It is not there, or may not be read.
    """
    _refuse_others(path, path.lstat().st_mode)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_plain(path, "a link or a socket") from error
        raise
    try:
        status = os.fstat(fd)
        _refuse_others(path, status.st_mode)
        _refuse_holes(path, fd, status.st_size)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_plain(path: Path, most_bytes: int) -> bytes:
    """What a plain file holds.

    Raises
    ------
    SourceError
        It is no plain file, has more than ``most_bytes``, or changes while it is read.
    OSError
        As :func:`open_plain`.
    """
    with os.fdopen(open_plain(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        refuse_large(str(path), size, most_bytes)
        data = file.read(size + 1)
    if len(data) != size:
        raise SourceError(f"{path} changes while it is read: expected {size} bytes")
    return data


def plain_source(path: Path) -> pa.OSFile:
    """A plain file for Arrow to read; raises as :func:`open_plain`."""
    import pyarrow as pa  # here: every command loads this module, and few read tables

    fd = open_plain(path)
    try:
        return pa.OSFile(f"/dev/fd/{fd}")  # the file that was looked at, whatever has its name now
    finally:
        os.close(fd)


def refuse_large(path: str, size: int, most_bytes: int) -> None:
    """Refuse to read a file whole that is larger than any of ours: a SourceError."""
    if size > most_bytes:
        raise SourceError(f"{path} has {size} bytes, expected at most {most_bytes}")


def _refuse_others(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _not_plain(path, next((kind for is_it, kind in _KINDS if is_it(mode)), "a device"))


def _not_plain(path: Path, kind: str) -> SourceError:
    return SourceError(f"{path} is {kind}, expected a plain file: refused")


def _refuse_holes(path: Path, fd: int, size: int) -> None:
    try:
        first = os.lseek(fd, 0, os.SEEK_HOLE) if size else 0
    except (OSError, AttributeError):  # this file system, or this system, tells of no holes
        return
    os.lseek(fd, 0, os.SEEK_SET)
    if first < size:
        raise SourceError(
            f"{path} has holes (it is a sparse file), so its size says nothing of what it holds: "
            "refused; `cp --sparse=never` writes one without"
        )
