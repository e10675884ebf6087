"""The demo's view of the offsets topic, through the pipeline.

**Rules.** No number is computed here: rows of the pipeline's tables are selected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from holdfast.fleet.tables.reading import Tables

_REBALANCE: Final = ("generation", "cause", "n_members", "n_moved", "n_kept", "n_gained", "n_lost")


def read_witnessed(folder: Path, group: str) -> dict[str, Any]:
    """What the tables say of a group, for JSON: names are those of their columns."""
    tables = Tables(folder)
    rows = tables.table("rebalances", groups=[group]).to_pylist()
    for row in rows:
        row["n_moved"] += row["n_moved_through_gap"]
    return {
        "generations": [{name: row[name] for name in _REBALANCE} for row in rows],
        "pause_lower_seconds": round(sum(row["pause_lower_seconds"] for row in rows), 3),
        "pause_upper_seconds": round(sum(row["pause_upper_seconds"] for row in rows), 3),
        "commits": tables.table("offset_commits", groups=[group]).num_rows,
        "bad_records": tables.rows("bad_records"),
    }
