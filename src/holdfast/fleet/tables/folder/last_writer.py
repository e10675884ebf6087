"""Which process wrote to a folder of tables last: for the error of a second writer.

**Rules.** This module decides nothing. Of two writers that began with the same version of the
manifest one commits, and the other is refused (:mod:`holdfast.fleet.tables.folder.manifest`). A
process that begins to write is refused at once if the manifest names a running stream: on this
machine its process lives, or on another one it has committed a short time ago. A reused process id
is another process, since it began at another time. Clocks of two machines are compared here and
nowhere else; if they differ, a second writer is refused at its first commit instead.

**Strategy.** A stream records in each commit when it commits again, and clears that when it ends.
A run that commits once records nothing: before its commit it is invisible, and afterwards it has
ended.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from holdfast.errors import SourceError
from holdfast.fleet.tables.folder.contents import seconds, text_of, whole
from holdfast.fleet.tables.storage.paths import StoragePath

SILENT_SECONDS: Final = 60.0
"""A stream on another machine that is late by so much has died."""
_PROCESSES: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWriter:
    """The process that committed a version of the manifest."""

    host: str
    pid: int
    began: str  # start of the process, as its machine counts; "" if unknown
    at: str  # time of the commit, ISO 8601, UTC, by its own clock
    # Seconds until a stream commits again; None for a process that commits once.
    again_seconds: float | None = None

    def __str__(self) -> str:
        """Return a text for people."""
        return f"process {self.pid} on {self.host} (last commit {self.at})"


def from_json(entry: Mapping[str, Any]) -> LastWriter:
    """Parse the writer that a manifest names; raises KeyError, TypeError or ValueError."""
    again = entry["again_seconds"]
    return LastWriter(
        host=text_of(entry["host"]),
        pid=whole(entry["pid"]),
        began=text_of(entry["began"]),
        at=text_of(entry["at"]),
        again_seconds=None if again is None else seconds(again),
    )


def this_process(again_seconds: float | None = None) -> LastWriter:
    """Return the calling process, as of now."""
    return LastWriter(
        host=socket.gethostname(),
        pid=os.getpid(),
        began=_began(os.getpid()),
        at=datetime.now(UTC).isoformat(),
        again_seconds=again_seconds,
    )


def refuse_second(root: StoragePath, last: LastWriter | None, own: LastWriter) -> None:
    """Refuse to begin while another process keeps writing; the SourceError names it."""
    if last is None or last.again_seconds is None:
        return
    if (last.host, last.pid, last.began) == (own.host, own.pid, own.began):
        return
    is_here = last.host == own.host
    left_seconds = 0.0 if is_here else _left_seconds(last, own)
    if left_seconds or (is_here and _lives(last)):
        after = f"; if it has died, start again in {left_seconds:.0f} s" if left_seconds else ""
        raise SourceError(
            f"{root} is being written by {last}: one process writes a folder of tables at a time; "
            f"wait until that process ends, stop it, or name another folder{after}"
        )


def _left_seconds(last: LastWriter, own: LastWriter) -> float:
    """Return how long a writer of another machine may still be silent; 0 for one that has died."""
    may_be_silent = SILENT_SECONDS + 2 * (last.again_seconds or 0)
    try:
        then, now = datetime.fromisoformat(last.at), datetime.fromisoformat(own.at)
        silent = (now - then).total_seconds()
    except (ValueError, TypeError):  # not a time, or one without a zone
        return 0.0
    return may_be_silent - silent if abs(silent) < may_be_silent else 0.0


def _lives(last: LastWriter) -> bool:
    """Return whether a process of this machine lives."""
    if last.began:
        return _began(last.pid) == last.began
    try:
        os.kill(last.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    return True


def _began(pid: int) -> str:
    """Return when a process began, in ticks; "" if it has ended or the system has no answer."""
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = text.rpartition(")")[2].split()
        return "" if state in "ZX" else fields[18]
    except (OSError, ValueError, IndexError):
        return ""
