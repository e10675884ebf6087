"""State of the updater of served tables: progress of its first read, or its error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdaterState:
    """State of the updater."""

    doing: str = ""  # progress of its first read; empty once the tables are up to date
    trouble: str = ""  # why the tables are not updated; empty if they are
    since_ms: int = 0
