"""State of the updater of served tables: progress of its first read, or its error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdaterState:
    """State of the updater.

    Parameters
    ----------
    doing : str
        Progress of its first read; empty once the tables are up to date.
    trouble : str
        Why the tables are not updated; empty if they are.
    """

    doing: str = ""
    trouble: str = ""
    since_ms: int = 0
