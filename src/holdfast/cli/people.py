"""Which columns of a table people see first, and how.

**Rules.** Only for ``--format table``: programs get every column in the order of
:mod:`holdfast.tables.stored`. Nothing is left out, a terminal shows as many as fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.tables.definition import Table

FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "rebalances": (
        "group",
        "generation",
        "timestamp",
        "cause",
        "n_moved",
        "n_avoidable_moves",
        "pause_upper_seconds",
        "n_members",
        "n_restarted",
        "n_joined",
        "n_left",
        "stickiness",
        "balance_score",
        "pause_lower_seconds",
        "n_partitions",
    ),
    "movements": ("group", "generation", "topic", "partition", "kind", "from_member", "to_member"),
    "pauses": ("group", "generation", "topic", "partition", "pause_upper_seconds", "basis"),
    "lag": ("group", "topic", "partition", "lag", "lag_seconds", "client_id", "status"),
    "members": ("group", "generation", "client_id", "client_host", "n_partitions", "n_claimed"),
    "generations": ("group", "generation", "state", "protocol", "n_members", "n_partitions"),
    "assignments": ("group", "generation", "topic", "partition", "member_id"),
    "offset_commits": ("group", "topic", "partition", "offset", "timestamp", "is_tombstone"),
    "bad_records": ("reason", "record_type", "log_partition", "log_offset", "position"),
}
"""What matters most, from the left; the other columns follow in their own order."""


def for_people(
    table: Table, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Rows with short times and the order of columns, for a table on a terminal.

    Parameters
    ----------
    table : Table
        What the rows are of, in its flat view.
    rows : sequence of mapping
        Times as ISO 8601 text.
    """
    first = FIRST.get(table.name, ())
    columns = (*first, *(name for name in table.flat_names if name not in first))
    times = [c.name for c in table.columns if c.dtype == "timestamp"]
    return [{**row, **{t: _short(row[t]) for t in times}} for row in rows], columns


def _short(time: str | None) -> str | None:
    """To the second: ``2026-01-31 12:00:00``."""
    return time and time[:19].replace("T", " ")
