"""What the keeper of served tables does: how far its first read is, or why it cannot go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdaterState:
    """How the keeper is.

    Parameters
    ----------
    doing : str
        How far it is with its first read; empty once the tables are up to date.
    trouble : str
        Why the tables are not kept up to date; empty where they are.
    """

    doing: str = ""
    trouble: str = ""
    since_ms: int = 0
