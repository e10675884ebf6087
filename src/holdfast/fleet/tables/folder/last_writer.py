"""Which process wrote to a folder of tables last: for what a second writer is told.

**Rules.** Nothing is decided here. Of two writers that began with the same version of the manifest
one commits, and the other one is refused (:mod:`holdfast.fleet.tables.folder.manifest`). Whoever
begins to write is refused at once where the manifest names a stream that goes on: on this machine
its process lives, or on another one it has committed a short time ago. A process id that is used
again is another process, since it began at another time. Clocks of two machines are compared here
and nowhere else; if they differ, a second writer is refused at its first commit instead.

**Strategy.** A stream says in each commit how soon it commits again, and takes that back when it
ends. A run that commits once says nothing: it is not seen before its commit, and over afterwards.
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
from holdfast.fleet.tables.folder.documents import seconds, text_of, whole
from holdfast.fleet.tables.storage.paths import StoragePath

SILENT_SECONDS: Final = 60.0
"""A stream on another machine that is late by so much has died."""
_PROCESSES: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWriter:
    """What a version of the manifest says of the process that committed it.

    Parameters
    ----------
    began : str
        When it began, as its machine counts; "" where that is not known.
    at : str
        When it committed, ISO 8601, UTC, by its own clock.
    again_seconds : float, optional
        A stream commits again after about so long; None for a process that does not go on.
    """

    host: str
    pid: int
    began: str
    at: str
    again_seconds: float | None = None

    def __str__(self) -> str:
        """Text for people."""
        return f"process {self.pid} on {self.host} (last commit {self.at})"


def from_json(entry: Mapping[str, Any]) -> LastWriter:
    """The writer that a manifest names; raises KeyError, TypeError or ValueError."""
    again = entry["again_seconds"]
    return LastWriter(
        host=text_of(entry["host"]),
        pid=whole(entry["pid"]),
        began=text_of(entry["began"]),
        at=text_of(entry["at"]),
        again_seconds=None if again is None else seconds(again),
    )


def this_process(again_seconds: float | None = None) -> LastWriter:
    """The process that calls, as of now."""
    return LastWriter(
        host=socket.gethostname(),
        pid=os.getpid(),
        began=_began(os.getpid()),
        at=datetime.now(UTC).isoformat(),
        again_seconds=again_seconds,
    )


def refuse_second(root: StoragePath, last: LastWriter | None, own: LastWriter) -> None:
    """Refuse to begin where another process goes on writing.

    Raises
    ------
    SourceError
        It names that process.
    """
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
    """How long a writer of another machine may still be silent; 0 for one that has died."""
    may_be_silent = SILENT_SECONDS + 2 * (last.again_seconds or 0)
    try:
        then, now = datetime.fromisoformat(last.at), datetime.fromisoformat(own.at)
        silent = (now - then).total_seconds()
    except (ValueError, TypeError):  # not a time, or one without a zone
        return 0.0
    return may_be_silent - silent if abs(silent) < may_be_silent else 0.0


def _lives(last: LastWriter) -> bool:
    """Whether a process of this machine lives."""
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
    """When a process began, in ticks; "" where there is none, or the system does not tell."""
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = text.rpartition(")")[2].split()
        return "" if state in "ZX" else fields[18]
    except (OSError, ValueError, IndexError):
        return ""
