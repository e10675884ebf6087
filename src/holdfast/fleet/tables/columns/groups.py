"""Rows by group: a table cut into groups, and batches joined into tables of whole groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.tables.columns.values import codes

WHOLE_GROUPS_ROWS: Final = 500_000
"""Rows that :func:`whole_groups` waits for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupedTable:
    """A table and where each group stands in it.

    Parameters
    ----------
    rows : Table
        Sorted by group; within a group, rows keep the order that they had.
    bounds : mapping of str to (int, int)
        First row of each group and the row behind its last one; groups are sorted.
    """

    rows: pa.Table
    bounds: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, rows: pa.Table) -> GroupedTable:
        """Cut a table that has a column ``group``; rows without a group are left out."""
        rank, names = codes(rows, "group")
        order = np.argsort(rank, kind="stable")
        edges = np.searchsorted(rank[order], np.arange(len(names) + 1)).tolist()
        in_order = bool((rank[1:] >= rank[:-1]).all())
        bounds = {name: (edges[i], edges[i + 1]) for i, name in enumerate(names)}
        return cls(rows=rows if in_order else rows.take(pa.array(order)), bounds=bounds)

    def of_group(self, group: str) -> pa.Table:
        """Rows of one group; none where there is no such group."""
        low, high = self.bounds.get(group, (0, 0))
        return self.rows.slice(low, high - low)


def whole_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches that are sorted by ``group``, joined into tables that hold whole groups.

    Yields
    ------
    Table of schema
        Of about WHOLE_GROUPS_ROWS rows, or more where one group has more.
    """
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]).cast(schema))
        if sum(part.num_rows for part in waiting) >= WHOLE_GROUPS_ROWS:
            rows = pa.concat_tables(waiting)
            # The next batch may go on with the last group, so that group waits.
            is_last = pc.equal(rows["group"], rows["group"][rows.num_rows - 1])
            yield rows.filter(pc.invert(is_last))
            waiting = [rows.filter(is_last)]
    if waiting:
        yield pa.concat_tables(waiting)
