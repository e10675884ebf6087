"""Moves between successive generations, and partitions without an owner.

**Rules.** Two generations of a group are successive if no record of the group is between them in
the log, whatever their numbers. After a tombstone the group starts again. The first known
generation has no generation before it, so nothing has moved in it. A partition without an owner
*moved through a gap* if its next owner is another member than its last owner; it is *gained* if it
comes back to its last owner or never had one. A static member that returns under a new member id
is the same member. Of two owners of a partition the member with the smallest id stays, and the
partition is reported. A partition id comes from a stranger and never alone decides how much is
allocated: sparse ids are renumbered by sorting.

**Strategy.** Owners are in one dense layout, a cell per generation and partition. Groups are
ordered by their number of generations, most first. The cells of all groups' first generations come
first, then those of all second generations, and so on. So one generation of every group is one
slice, and the slices only get shorter; the last owner of every topic-partition is carried along.
Events are columns, never Python objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds import GroupKind, GroupType
from holdfast.core.machine.policy import policy_of_protocol
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, index_in
from holdfast.fleet.columnar import codes, ints, list_parts, new_runs, numbered, take
from holdfast.fleet.pipeline.ingest.generations import (
    DEAD,
    Generations,
    TaskTopics,
    marked,
)
from holdfast.fleet.tables.columns.schemas import from_columns

MOVED, MOVED_THROUGH_GAP, GAINED, LOST = range(4)
KINDS = ("moved", "moved_through_gap", "gained", "lost")

UNOWNED, EAGER, HANDOVER = range(3)
BASES = ("unowned", "eager", "handover")

RESTART_WINDOW_SECONDS = 300
"""Longest absence of a member that is recognized by client id and host, in seconds."""

EventParts = list[tuple[I32 | I64, ...]]
"""Columns of events, one tuple per generation ordinal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Events:
    """Changes of ownership, and ownership gaps, of some generations, as columns."""

    # ``whole``, ``gens``: the generations, and the same with only what one member alone owns.
    whole: Generations
    gens: Generations
    layout: Dense  # owners of ``gens``
    reads: TaskTopics  # what tasks of ``whole`` read (:meth:`~Generations.reads`)
    # ``row``, ``tp``, ``kind``, ``before``, ``after``, ``from_row``: one entry per change: row of
    # the new generation, topic-partition, index into KINDS, identities, and the last row in which
    # ``before`` owned it (-1 for none).
    row: I64
    tp: I64
    kind: I64
    before: I64
    after: I64
    from_row: I64
    # ``gap_row``, ``gap_tp``, ``gap_basis``, ``gap_last_row``: one entry per partition that has an
    # owner again in ``gap_row``.
    gap_row: I64
    gap_tp: I64
    gap_basis: I64
    gap_last_row: I64
    # ``fresh``, ``dead``, ``stops``, ``converted`` (bool[n_rows]): no earlier row counts; the row
    # is a tombstone; members stop during its rebalance; the broker rewrote the group for another
    # protocol (:func:`conversions`).
    fresh: Mask
    dead: Mask
    stops: Mask
    converted: Mask
    last: I32
    last_ordinal: I64
    now: I32


def row_flags(gens: Generations, layout: Dense) -> tuple[Mask, Mask, Mask]:
    """Return (fresh, dead, stops): no row before; a tombstone; members stop meanwhile."""
    dead = np.array([s == DEAD for s in gens.head["state"].to_pylist()], bool)
    fresh = layout.ordinal == 0
    fresh[1:] |= dead[:-1]
    stops = marked(gens.head, lambda kind, protocol: not works_on(kind, protocol))
    return fresh, dead, stops | _nobody_claims(gens, layout)


def works_on(kind: GroupKind, protocol: str | None) -> bool:
    """Return whether members of such a group keep working through a rebalance."""
    if kind.group_type is not GroupType.CLASSIC:
        return True
    if kind.cooperative is not None:
        return protocol in kind.cooperative
    policy = policy_of_protocol(protocol or "")
    return policy is not None and policy.cooperative


def conversions(gens: Generations, layout: Dense) -> Mask:
    """Return rows in which the broker rewrote a group for another protocol, under the same number.

    No member joins for it, and none stops; but members that are not converted have left.
    """
    kind, generation = numbered(gens.head["group_type"]), ints(gens.head, "generation")
    found = np.zeros(gens.n_rows, np.bool_)
    found[1:] = (kind[1:] != kind[:-1]) & (generation[1:] == generation[:-1])
    return found & (layout.ordinal > 0)


def _nobody_claims(gens: Generations, layout: Dense) -> Mask:
    """Return rows of kinds with meaningful claims, in which no member claims anything.

    A row counts only if a member owned a partition in the row before.
    """
    tell = marked(gens.head, lambda kind, _: kind.claims_show_stops)
    if not tell.any():
        return tell
    n, row = gens.n_rows, ints(gens.members, "row")
    claimed = np.bincount(row, np.maximum(ints(gens.members, "n_claimed"), 0), n) > 0
    held = np.bincount(ints(gens.owned, "member"), minlength=len(row)) > 0
    key = layout.member_key
    had = np.isin(key, key[held] + layout.width)  # it owned something in the row before
    stopped: Mask = ~claimed & (np.bincount(row[had], minlength=n) > 0)
    return tell & stopped


def compare(whole: Generations) -> Events:
    """Compare every generation with the one before it, context rows too: tables leave them out.

    Cost: O(cells), one pass per generation ordinal.
    """
    gens = whole.exclusive()
    layout = dense(gens)
    fresh, dead, stops = row_flags(gens, layout)
    stops_before = stops.copy()
    stops_before[1:] = stops[:-1] | stops[1:]  # the old protocol decides too
    converted = conversions(gens, layout)
    stops_before &= ~converted
    n = len(layout.tp_group)
    last = np.full(n, NO_OWNER, np.int32)
    last_ordinal = np.full(n, -1, np.int64)
    previous = np.full(n, NO_OWNER, np.int32)
    changes: EventParts = []
    gaps: EventParts = []
    for step, (start, count) in enumerate(zip(layout.step_start, layout.n_active, strict=True)):
        now = layout.owner[start : start + count]
        before, held, since = previous[:count], last[:count], last_ordinal[:count]
        # Topic-partitions whose group starts in this step are compared with themselves.
        special = _special(layout, step, count, fresh | dead)
        if special is not None:
            rows = layout.row(special, np.full(len(special), step))
            restart = special[fresh[rows]]
            before[restart], held[restart], since[restart] = now[restart], NO_OWNER, -1
            gone = special[dead[rows]]
            before[gone], held[gone], since[gone] = NO_OWNER, NO_OWNER, -1
        _step(layout, step, (now, before, held, since), stops_before, (changes, gaps))
        owned = now != NO_OWNER
        np.copyto(held, now, where=owned)
        since[owned] = step
        before[:] = now
    return Events(
        whole=whole,
        gens=gens,
        layout=layout,
        reads=whole.reads(),
        **_columns(("row", "tp", "kind", "before", "after", "from_row"), changes),
        **_columns(("gap_row", "gap_tp", "gap_basis", "gap_last_row"), gaps),
        fresh=fresh | dead,
        dead=dead,
        stops=stops,
        converted=converted,
        last=last,
        last_ordinal=last_ordinal,
        now=previous,
    )


def _special(layout: Dense, step: int, count: int, marked: Mask) -> I64 | None:
    """Return topic-partitions of groups whose row at this step is marked; None for none."""
    rows = layout.first_row + step
    inside = np.append(layout.first_row[1:], len(layout.group_of)) > rows
    hit = np.zeros(len(rows), bool)
    hit[inside] = marked[rows[inside]]
    return np.flatnonzero(hit[layout.tp_group[:count]]) if hit.any() else None


def _step(
    layout: Dense,
    step: int,
    owners: tuple[I32, I32, I32, I64],
    stops: Mask,
    out: tuple[EventParts, EventParts],
) -> None:
    """Append one step's changes and gaps to ``out``."""
    changes, gaps = out
    now, before, held, since = owners
    tp = np.flatnonzero(now != before)
    came, went, old = now[tp], before[tp], held[tp]
    kind = np.full(len(tp), MOVED, np.int64)
    kind[came == NO_OWNER] = LOST
    is_gap = went == NO_OWNER
    kind[is_gap] = np.where(
        (old[is_gap] != NO_OWNER) & (old[is_gap] != came[is_gap]), MOVED_THROUGH_GAP, GAINED
    )
    row = layout.row(tp, np.full(len(tp), step))
    from_row = np.where(since[tp] >= 0, layout.row(tp, since[tp]), -1)
    source = np.where(kind == GAINED, NO_OWNER, old)
    changes.append((row, tp, kind, source, came, from_row))
    back = is_gap & (came != NO_OWNER) & (old != NO_OWNER)
    gaps.append((row[back], tp[back], np.full(int(back.sum()), UNOWNED), from_row[back]))
    handed = (kind == MOVED) & ~stops[row]
    gaps.append((row[handed], tp[handed], np.full(int(handed.sum()), HANDOVER), from_row[handed]))
    rows = layout.first_row + step
    rows = rows[rows < np.append(layout.first_row[1:], len(layout.group_of))]
    if step and bool(stops[rows].any()):
        # Under an eager protocol every partition with an owner before and after has a gap.
        tps = np.flatnonzero((now != NO_OWNER) & (before != NO_OWNER))
        stopped = layout.row(tps, np.full(len(tps), step))
        still = stops[stopped]
        tps, stopped = tps[still], stopped[still]
        gaps.append((stopped, tps, np.full(len(tps), EAGER), stopped - 1))


def _columns(names: tuple[str, ...], parts: EventParts) -> dict[str, I64]:
    if not parts:
        return {name: np.zeros(0, np.int64) for name in names}
    joined = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    return dict(zip(names, joined, strict=True))


def movement_table(events: Events) -> pa.Table:
    """Return the table ``movements`` of the rows that are not context."""
    gens, layout = events.gens, events.layout
    new = ~gens.head["context"].to_numpy()
    keep = new[events.row] & ~events.fresh[events.row]
    # In log order, and inside a generation by topic and partition.
    order = np.flatnonzero(keep)
    order = order[np.lexsort((events.tp[order], events.row[order]))]
    row, tp, from_row = events.row[order], events.tp[order], events.from_row[order]
    kind = events.kind[order]
    member_id = gens.members["member_id"]
    generation = ints(gens.head, "generation")
    known = (kind != GAINED) & (from_row >= 0)
    return from_columns(
        "movements",
        {
            "group": take(gens.head["group"], row),
            "generation": generation[row],
            "topic": take(layout.topics, layout.tp_topic[tp]),
            "partition": layout.tp_partition[tp],
            "from_member": take(member_id, layout.member(from_row, events.before[order])),
            "to_member": take(member_id, layout.member(row, events.after[order])),
            "kind": take(pa.array(KINDS), kind),
            "from_generation": pa.array(generation[np.maximum(from_row, 0)], mask=~known),
            "timestamp": take(gens.head["timestamp"], row),
        },
    )


def without_owner(events: Events, groups: I64) -> I64:
    """Return topic-partitions of some groups that had an owner and have none now."""
    tp = np.flatnonzero((events.now == NO_OWNER) & (events.last != NO_OWNER))
    return tp[np.isin(events.layout.tp_group[tp], groups)]


# The owners of many groups in one dense layout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dense:
    """The layout, and its owners."""

    # ``group_of``, ``first_row``, ``ordinal``: group of each row; first row of each group; index of
    # a row inside its group.
    group_of: I64
    first_row: I64
    ordinal: I64
    # ``tp_group``, ``tp_topic``, ``tp_partition`` (int64[n_tps]): group, topic (index into
    # ``topics``) and partition of each topic-partition.
    tp_group: I64
    tp_topic: I64
    tp_partition: I64
    topics: pa.Array
    # ``n_active``, ``step_start`` (int64[n_steps]): topic-partitions of the groups that have this
    # step, and the cell at which it starts.
    n_active: I64
    step_start: I64
    owner: I32
    # int32[n_member_rows]: a number for the member's instance id, or else for its member id.
    identity: I32
    # ``member_key``, ``member_order`` (int64[n_member_rows]): row and identity as one number; the
    # same identity in the next row has ``width`` more. The sort order of these numbers.
    member_key: I64
    member_order: I64
    width: int
    doubles: tuple[I64, I64, I64]  # every claim on a cell with more than one claim

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
