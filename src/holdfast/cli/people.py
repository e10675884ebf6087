"""A table for people: the columns that its definition puts first, and short times.

**Rules.** Only for ``--format table``: programs get every column in the order of
:mod:`holdfast.fleet.tables.columns.stored`. No column is left out here; a terminal shows as many as
fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.fleet.tables.columns.definition import DType, Table


def for_people(
    table: Table, rows: Iterable[Mapping[str, Any]]
) -> tuple[Iterator[dict[str, Any]], tuple[str, ...]]:
    """Rows with short times and the order of columns, for a table on a terminal.

    Parameters
    ----------
    table : Table
        What the rows are of, in its flat view.
    rows : iterable of mapping
        Times as ISO 8601 text.
    """
    columns = (*table.first, *(name for name in table.flat_names if name not in table.first))
    times = [c.name for c in table.columns if c.dtype is DType.TIMESTAMP]
    return ({**row, **{t: _short(row[t]) for t in times}} for row in rows), columns


def _short(time: str | None) -> str | None:
    """To the second: ``2026-01-31 12:00:00``."""
    return time and time[:19].replace("T", " ")
