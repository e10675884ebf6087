"""The demo's view of the offsets topic, through the pipeline.

**Rules.** No number is computed here: rows of the pipeline's tables are selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cluster.cluster import LiveCluster
from holdfast.fleet.pipeline.batches.history import run as run_history
from holdfast.fleet.pipeline.ingest.selection import Selection
from holdfast.fleet.tables.reading import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRow:
    """One rebalance, as the ``rebalances`` table has it; names are its column names."""

    generation: int
    cause: str
    n_members: int
    n_moved: int
    n_kept: int
    n_gained: int
    n_lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """What the offsets topic says about one group.

    Parameters
    ----------
    generations : tuple of RebalanceRow
        By generation.
    commits : int
        Rows of ``offset_commits`` of the group.
    pause_lower_seconds, pause_upper_seconds : float
        Partition-seconds without an owner over all rebalances, at least and at most.
    bad_records : int
        Records that did not parse.
    """

    generations: tuple[RebalanceRow, ...]
    commits: int
    pause_lower_seconds: float
    pause_upper_seconds: float
    bad_records: int


def write_tables(spark: Any, bootstrap: str, folder: Path, groups: Sequence[str]) -> None:
    """Run the pipeline on a live cluster, for these groups; tables and a dump go to ``folder``."""
    run_history(
        spark, LiveCluster(bootstrap=bootstrap), folder, selection=Selection(groups=tuple(groups))
    )


def read_witnessed(folder: Path, group: str) -> Witnessed:
    """Read what the tables say about ``group``."""
    tables = Tables(folder)
    rows = tables.table("rebalances", groups=[group]).to_pylist()
    return Witnessed(
        generations=tuple(
            RebalanceRow(
                generation=row["generation"],
                cause=row["cause"],
                n_members=row["n_members"],
                n_moved=row["n_moved"] + row["n_moved_through_gap"],
                n_kept=row["n_kept"],
                n_gained=row["n_gained"],
                n_lost=row["n_lost"],
            )
            for row in rows
        ),
        commits=tables.table("offset_commits", groups=[group]).num_rows,
        pause_lower_seconds=sum(row["pause_lower_seconds"] for row in rows),
        pause_upper_seconds=sum(row["pause_upper_seconds"] for row in rows),
        bad_records=tables.rows("bad_records"),
    )
