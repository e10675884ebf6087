"""Standard streams of a command: always open, and output to stdout is never lost.

**Rules.** Output to stdout arrives whole, or the command fails. A stream that the caller closed
reads as empty and discards output.

**Strategy.** A system may accept only a part of a write: of a pipe that another program made
non-blocking (pipes and terminals are shared), at a signal, or if the disk is full. Python's own
stdout silently drops the rest under ``PYTHONUNBUFFERED``, and raises halfway otherwise. This
stream writes the rest, and waits until the reader has read.
"""

from __future__ import annotations

import io
import os
import select
import sys
from pathlib import Path
from typing import Any


class _Whole(io.FileIO):
    """A file whose writes are never partial."""

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            written = super().write(left)
            if written is None:  # full, and it would not wait by itself
                select.select([], [self], [])
            else:
                left = left[written:]
        return size


def open_streams() -> None:
    """Give us streams where the caller closed them, and take names that a stream cannot spell."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _whole(sys.stdout)
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = sys.stdout or _nowhere("w")
    sys.stderr = sys.stderr or _nowhere("w")


def _whole(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    try:
        number = stream.fileno()
    except OSError:  # in memory
        stream.reconfigure(errors="backslashreplace")
        return stream
    return io.TextIOWrapper(
        _Whole(number, "w", closefd=False),  # as Python's own with -u
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _nowhere(mode: str) -> Any:
    return Path(os.devnull).open(mode, encoding="utf-8")
