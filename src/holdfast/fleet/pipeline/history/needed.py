"""Needed moves of members with different subscriptions, by an assignor that proves its result.

**Rules.** The number has the meaning of :func:`holdfast.core.model.measure.needed_moves`,
which counts groups whose members all subscribe to the same topics: of the partitions that have an
owner now and had one before, the number that cannot stay if the loads are to be as even as
possible. A number is reported only if its certificate was verified.

**Strategy.** A generation becomes a :class:`~holdfast.core.model.group.Group` in which each member
claims what it owned before, and ``sticky`` computes how many claims can be kept. Partition ids do
not matter to ``sticky``, so the partitions that have an owner are renumbered from 0 in each topic.
A generation in which nothing moved is not solved: no move of it was avoidable.

References: KIP-54.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from holdfast.core.assignors.registry import assign
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, starts
from holdfast.core.model.group import Group
from holdfast.core.model.reported import ReportedClaims, Subscriptions
from holdfast.core.model.topics import Topics
from holdfast.fleet.columnar import gather, ints, list_parts, row_starts
from holdfast.fleet.pipeline.history.movements import LOST, MOVED, MOVED_THROUGH_GAP, Events


def needed_of_unequal(events: Events, unequal: Mask) -> tuple[I64, Mask]:
    """Return the least moves of rows with different subscriptions, and which are proven.

    Other rows have 0 and false.
    """
    n_rows = events.gens.n_rows
    needed, proven = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.bool_)
    moving = np.unique(events.row[(events.kind == MOVED) | (events.kind == MOVED_THROUGH_GAP)])
    rows = moving[unequal[moving]]
    if not len(rows):
        return needed, proven
    work = _RowGroups(events)
    for row in rows.tolist():
        found = work.solve(row)
        if found is not None:
            needed[row], proven[row] = found, True
    return needed, proven


class _RowGroups:
    """One row after the other as a group."""

    def __init__(self, events: Events):
        gens, layout = events.gens, events.layout
        self.member_start = row_starts(ints(gens.members, "row"), gens.n_rows)
        self.owned_start = row_starts(ints(gens.owned, "member"), gens.members.num_rows)
        self.owned_topic = pc.index_in(gens.owned["topic"], layout.topics).to_numpy()
        self.part_start, self.parts = list_parts(gens.owned["partitions"])
        subscribed = gens.members["subscribed_topics"].combine_chunks()
        self.subscribed_start = starts(pc.fill_null(pc.list_value_length(subscribed), 0).to_numpy())
        topics = pc.fill_null(pc.index_in(subscribed.flatten(), layout.topics), -1)
        self.subscribed = topics.to_numpy().astype(np.int64)
        order = np.flatnonzero(events.kind != LOST)
        order = order[np.argsort(events.row[order], kind="stable")]
        self.event_start = row_starts(events.row[order], gens.n_rows)
        self.event_key = _key(
            layout.tp_topic[events.tp[order]], layout.tp_partition[events.tp[order]]
        )
        before = layout.member(events.row[order], events.before[order])
        came = (events.kind[order] == MOVED) | (events.kind[order] == MOVED_THROUGH_GAP)
        self.event_before = np.where(came, before, NO_OWNER)  # gained: it had no owner
        self.event_moved = came

    def solve(self, row: int) -> int | None:
        """Return the needed moves of a row; None if they are not proven."""
        members = np.arange(self.member_start[row], self.member_start[row + 1])
        at, member = gather(self.owned_start, members)
        position, which = gather(self.part_start, at)
        if not len(position):
            return None
        topic, partition = self.owned_topic[at][which], self.parts[position]
        # Of two owners the first counts, as everywhere; the stable order keeps it first.
        key, first = np.unique(_key(topic, partition), return_index=True)
        claim_member, had_owner = member[which][first], np.ones(len(key), np.bool_)
        span = slice(self.event_start[row], self.event_start[row + 1])
        where = np.searchsorted(key, self.event_key[span])
        before = self.event_before[span]
        claim_member[where] = np.where(before >= 0, before - members[0], NO_OWNER)
        had_owner[where] = self.event_moved[span]
        result = assign(self._group(members, key >> 32, claim_member), "sticky")
        if result.quality.needed_moves is None:
            return None
        return int(np.count_nonzero(had_owner)) - result.quality.kept

    def _group(self, members: I64, topic: I64, claim_member: I64) -> Group:
        """Return the row as a group; ``topic`` is sorted, one entry per partition."""
        there, counts = np.unique(topic, return_counts=True)
        names = [f"{number:09d}" for number in range(len(there))]
        topics = Topics.from_counts(dict(zip(names, counts.tolist(), strict=True)))
        return Group.build(
            topics=topics,
            member_ids=tuple(f"{number:09d}" for number in range(len(members))),
            subscriptions=Subscriptions.from_rows(
                self._subscribed_in(m, there) for m in members.tolist()
            ),
            claims=ReportedClaims.from_owner(topics, claim_member.astype(np.int32)),
            generation=np.zeros(len(members), np.int32),
        )

    def _subscribed_in(self, member: int, there: I64) -> tuple[int, ...]:
        """Return topics of the row that a member subscribes to, as indices into ``there``."""
        subscribed = np.unique(
            self.subscribed[self.subscribed_start[member] : self.subscribed_start[member + 1]]
        )
        found: list[int] = np.flatnonzero(np.isin(there, subscribed)).tolist()
        return tuple(found)


def _key(topic: I32 | I64, partition: I32 | I64) -> I64:
    return np.asarray(topic, np.int64) << 32 | np.asarray(partition, np.int64)
