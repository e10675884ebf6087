"""What the members of a group's last generation were given, by role.

**Rules.** A role is ``active`` (its one owner), ``standby`` or ``warmup`` (a copy of a task), or
``shared`` (one of many that read a partition of a share group). An assignment without a role is
active.

References: KIP-932; KIP-1071.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from holdfast.fleet.report.columns.timeline import Settlements
from holdfast.fleet.tables.columns.values import ArrowTable, codes, ints, times_ms


def count_roles(assignments: ArrowTable, generations: Settlements) -> Mapping[str, int]:
    """Partitions or tasks that the members of the last generation have, by role.

    Parameters
    ----------
    assignments : Table
        Rows of one group as they are stored.
    """
    rows = of_the_last(assignments, generations)
    size = np.asarray(pc.fill_null(pc.list_value_length(rows["partitions"]), 0), dtype=np.int64)
    role, names = codes(rows, "role")
    active = int(size[role < 0].sum())
    found = {name: int(size[role == code].sum()) for code, name in enumerate(names)}
    return found | ({"active": active + found.get("active", 0)} if active else {})


def of_the_last(assignments: ArrowTable, generations: Settlements) -> ArrowTable:
    """Rows of the last generation; none where there is none."""
    index = generations.index_of(
        ints(assignments, "generation"), times_ms(assignments, "timestamp")
    )
    last = len(generations.number) - 1
    return assignments.filter((index == last) & (last >= 0))
