"""Rows by group: a table cut into groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.fleet.tables.columns.values import codes


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
