"""What the members of a group's last generation were given, by role.

**Rules.** A role is ``active`` (its one owner), ``standby`` or ``warmup`` (a copy of a task), or
``shared`` (one of many that read a partition of a share group). An assignment without a role is
active.

References: KIP-932; KIP-1071.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from holdfast.core.model.columns import I32, I64
from holdfast.fleet.report.columns.timeline import Settlements, Timeline
from holdfast.fleet.tables.columns.values import ArrowTable, codes, ints, lists, times_ms
from holdfast.fleet.tables.reading import Tables

SHARED = "shared"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readers:
    """Partitions of a share group and who reads them: one row for each of the two together.

    Parameters
    ----------
    topics, members : tuple of str
        Names, sorted.
    topic, member : int32[n]
        Indices into them; rows are sorted by topic, partition and member.
    """

    topics: tuple[str, ...]
    members: tuple[str, ...]
    topic: I32
    partition: I64
    member: I32


def count_roles(assignments: ArrowTable, generations: Settlements) -> Mapping[str, int]:
    """Partitions or tasks that the members of the last generation have, by role.

    Parameters
    ----------
    assignments : Table
        Rows of one group as they are stored.
    """
    rows = _of_the_last(assignments, generations)
    size = np.asarray(pc.fill_null(pc.list_value_length(rows["partitions"]), 0), dtype=np.int64)
    role, names = codes(rows, "role")
    active = int(size[role < 0].sum())
    found = {name: int(size[role == code].sum()) for code, name in enumerate(names)}
    return found | ({"active": active + found.get("active", 0)} if active else {})


def read_readers(tables: Tables, timeline: Timeline) -> Readers:
    """Who reads which partition of a share group in its last generation."""
    rows = _of_the_last(tables.of_group(timeline.group, "assignments"), timeline.generations)
    rows = rows.filter(pc.equal(rows["role"], SHARED))
    topic, topics = codes(rows, "topic")
    member, members = codes(rows, "member_id")
    row, partition = lists(rows, "partitions")
    order = np.lexsort((member[row], partition, topic[row]))
    return Readers(
        topics=topics,
        members=members,
        topic=topic[row][order],
        partition=partition[order],
        member=member[row][order],
    )


def _of_the_last(assignments: ArrowTable, generations: Settlements) -> ArrowTable:
    """Rows of the last generation; none where there is none."""
    index = generations.index_of(
        ints(assignments, "generation"), times_ms(assignments, "timestamp")
    )
    last = len(generations.number) - 1
    return assignments.filter((index == last) & (last >= 0))
