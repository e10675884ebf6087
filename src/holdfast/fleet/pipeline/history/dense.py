"""The owners of many groups' partitions in one dense layout: a cell per generation and partition.

**Rules.** A cell contains one owner, so two owners of a partition cannot be represented: the
member with the smallest id stays, and the partition is reported. A partition id comes from a
stranger and never alone decides how much is allocated: sparse ids are renumbered by sorting.

**Strategy.** Groups are ordered by their number of generations, most first. The cells of all
groups' first generations come first, then those of all second generations, and so on. So one
generation of every group is one slice, and the slices only get shorter (columnar decoding).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I32, I64, NO_OWNER, index_in
from holdfast.fleet.columnar import codes, ints, list_parts, new_runs, numbered
from holdfast.fleet.pipeline.ingest.generations import Generations


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dense:
    """The layout, and its owners.

    Parameters
    ----------
    group_of, first_row, ordinal : int64
        Group of each row; first row of each group; index of a row inside its group.
    tp_group, tp_topic, tp_partition : int64[n_tps]
        Group, topic (index into ``topics``) and partition of each topic-partition.
    n_active, step_start : int64[n_steps]
        Topic-partitions of the groups that have this step, and the cell at which it starts.
    identity : int32[n_member_rows]
        A number for the member's instance id, or else for its member id.
    member_key, member_order : int64[n_member_rows]
        Row and identity as one number; the same identity in the next row has ``width`` more. The
        sort order of these numbers.
    doubles : (row, tp, member row) int64 columns
        Every claim on a cell with more than one claim.
    """

    group_of: I64
    first_row: I64
    ordinal: I64
    tp_group: I64
    tp_topic: I64
    tp_partition: I64
    topics: pa.Array
    n_active: I64
    step_start: I64
    owner: I32
    identity: I32
    member_key: I64
    member_order: I64
    width: int
    doubles: tuple[I64, I64, I64]

    def row(self, tps: I64, ordinals: I64) -> I64:
        """Return the row of the generation ``ordinals`` in the group of each topic-partition."""
        return self.first_row[self.tp_group[tps]] + ordinals

    def member(self, row: I64, identity: I64) -> I64:
        """Return the member row of an identity in a row; -1 for none, or if either is -1."""
        wanted = np.where((row >= 0) & (identity >= 0), row * self.width + identity, -1)
        return index_in(wanted, self.member_key, self.member_order)


def group_codes(gens: Generations) -> tuple[I64, I64]:
    """Return the number of each row's group, ascending from 0, and the first row of each group."""
    begins = new_runs(numbered(gens.head["group"]))
    return np.cumsum(begins) - 1, np.flatnonzero(begins)


def identities(members: pa.Table) -> I32:
    """Number the members, int32: rows with the same instance id are the same member."""
    static = pc.binary_join_element_wise("i", members["group_instance_id"], "")
    dynamic = pc.binary_join_element_wise("m", members["member_id"], "")
    return numbered(pc.coalesce(static, dynamic)).astype(np.int32)


def cells_needed(gens: Generations) -> I64:
    """Return an upper bound of each group's cells, int64[n_groups]: rows x assigned partitions."""
    group_of, first_row = group_codes(gens)
    starts, _ = list_parts(gens.owned["partitions"])
    row = ints(gens.members, "row")[ints(gens.owned, "member")]
    assigned = np.bincount(group_of[row], np.diff(starts), len(first_row))
    return (np.bincount(group_of, minlength=len(first_row)) * assigned).astype(np.int64)


def dense(gens: Generations) -> Dense:
    """Lay out the generations.

    Cost: O(assigned + cells) time; a sort of the nested rows, and of the assigned partitions only
    where their numbers are sparse. Cells: sum over groups of generations x topic-partitions.
    """
    group_of, first_row = group_codes(gens)
    n_groups = len(first_row)
    rows_per_group = np.bincount(group_of, minlength=n_groups)
    rank = np.empty(n_groups, np.int64)
    rank[np.argsort(-rows_per_group, kind="stable")] = np.arange(n_groups)
    topic, topics = codes(gens.owned, "topic")
    owned_member = ints(gens.owned, "member")
    owned_row = ints(gens.members, "row")[owned_member]
    starts, values = list_parts(gens.owned["partitions"])
    counts, partition = np.diff(starts), values.astype(np.int64)
    base = min(int(partition.min(initial=0)), 0)
    partition -= base
    key = rank[group_of[owned_row]] * np.int64(max(len(topics), 1)) + topic
    tp_key, tp_partition, flat_tp = _topic_partitions(key, counts, partition)
    by_rank = np.argsort(rank)
    tp_group = by_rank[tp_key // max(len(topics), 1)] if n_groups else tp_key
    n_steps = int(rows_per_group.max(initial=0))
    active = np.bincount(rows_per_group[tp_group], minlength=n_steps + 1)
    n_active = (len(tp_group) - np.cumsum(active)[:n_steps]).astype(np.int64)
    step_start = np.cumsum(n_active) - n_active
    ordinal = np.arange(len(group_of)) - first_row[group_of] if n_groups else group_of
    flat_row = np.repeat(owned_row, counts)
    cell = step_start[ordinal[flat_row]] + flat_tp
    identity = identities(gens.members)
    width = int(identity.max(initial=0)) + 1
    member_key = ints(gens.members, "row") * width + identity
    flat_member = np.repeat(owned_member, counts)
    owner = np.full(int(n_active.sum()), NO_OWNER, np.int32)
    owner[cell] = identity[flat_member]
    doubles = _settle_doubles(gens, owner, cell, identity, (flat_row, flat_tp, flat_member))
    return Dense(
        group_of=group_of,
        first_row=first_row,
        ordinal=ordinal,
        tp_group=tp_group,
        tp_topic=tp_key % max(len(topics), 1),
        tp_partition=tp_partition + base,
        topics=pa.array(topics, pa.string()),
        n_active=n_active,
        step_start=step_start,
        owner=owner,
        identity=identity,
        member_key=member_key,
        member_order=np.argsort(member_key, kind="stable"),
        width=width,
        doubles=doubles,
    )


def _topic_partitions(key: I64, counts: I64, partition: I64) -> tuple[I64, I64, I64]:
    """Return dense topic-partitions: key and partition of each, and the one of each assigned."""
    keys, topic_of = np.unique(key, return_inverse=True)
    flat_topic = np.repeat(topic_of, counts)
    size = np.zeros(len(keys), np.int64)
    if len(partition):
        held = counts > 0
        first = (np.cumsum(counts) - counts)[held]
        np.maximum.at(size, topic_of[held], np.maximum.reduceat(partition, first) + 1)
    if int(size.sum()) <= 4 * len(partition) + 4096:
        start = np.cumsum(size) - size
        inside = np.arange(int(size.sum())) - np.repeat(start, size)
        return np.repeat(keys, size), inside, start[flat_topic] + partition
    seen, flat_tp = np.unique(flat_topic << 32 | partition, return_inverse=True)
    return keys[seen >> 32], seen & 0xFFFFFFFF, flat_tp.astype(np.int64)


def _settle_doubles(
    gens: Generations, owner: I32, cell: I64, identity: I32, flat: tuple[I64, I64, I64]
) -> tuple[I64, I64, I64]:
    """Leave the smallest member id in a cell that was written twice; return all its owners."""
    if int(np.count_nonzero(owner != NO_OWNER)) == len(cell):
        none = np.zeros(0, np.int64)
        return none, none, none
    times = np.bincount(cell, minlength=len(owner))
    twice = np.flatnonzero(times[cell] > 1)
    rank = pc.rank(gens.members["member_id"], tiebreaker="dense").to_numpy()
    row, tp, member = (column[twice] for column in flat)
    order = np.lexsort((rank[member], tp, row))
    row, tp, member, where = row[order], tp[order], member[order], cell[twice][order]
    first = new_runs(where)
    owner[where[first]] = identity[member[first]]
    return row, tp, member
