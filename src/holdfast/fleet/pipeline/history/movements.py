"""Moves between successive generations, and partitions without an owner.

**Rules.** Two generations of a group are successive if no record of the group is between them in
the log, whatever their numbers. After a tombstone the group starts again. The first known
generation has no generation before it, so nothing has moved in it. A partition without an owner
*moved through a gap* if its next owner is another member than its last owner; it is *gained* if it
comes back to its last owner or never had one. A static member that returns under a new member id
is the same member.

**Strategy.** Columnar steps over :mod:`holdfast.fleet.pipeline.history.dense`: one slice per
generation ordinal, with the last owner of every topic-partition carried along. Events are columns,
never Python objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.core.kinds import ACTIVE, SOURCE, GroupKind, GroupType
from holdfast.core.machine.policy import policy_of_protocol
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask
from holdfast.fleet.columnar import ints, make_lists, new_runs, numbered, take
from holdfast.fleet.pipeline.history.dense import Dense, dense
from holdfast.fleet.pipeline.ingest.generations import (
    DEAD,
    OWNED_ROWS,
    Generations,
    TaskTopics,
    concat,
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
    """Changes of ownership, and ownership gaps, of some generations, as columns.

    Parameters
    ----------
    whole, gens : Generations
        The generations, and the same with only what one member alone owns.
    layout : Dense
        Owners of ``gens``.
    reads : mapping
        What tasks of ``whole`` read (:meth:`~Generations.reads`).
    row, tp, kind, before, after, from_row : int64
        One entry per change: row of the new generation, topic-partition, index into KINDS,
        identities, and the last row in which ``before`` owned it (-1 for none).
    gap_row, gap_tp, gap_basis, gap_last_row : int64
        One entry per partition that has an owner again in ``gap_row``.
    fresh, dead, stops, converted : bool[n_rows]
        No earlier row counts; the row is a tombstone; members stop during its rebalance; the
        broker rewrote the group for another protocol (:func:`conversions`).
    """

    whole: Generations
    gens: Generations
    layout: Dense
    reads: TaskTopics
    row: I64
    tp: I64
    kind: I64
    before: I64
    after: I64
    from_row: I64
    gap_row: I64
    gap_tp: I64
    gap_basis: I64
    gap_last_row: I64
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


def carry(events: Events, groups: I64) -> Generations:
    """Return the past of some groups that the next generations must be compared with.

    It is marked as context. The last generation is whole. For every partition without an owner
    there is the last generation in which it had one, and the one after it. Of all generations in
    the restart window, and of the one before it, there are the members without their partitions.
    """
    if len(groups) == 0:
        return Generations.empty()
    gens, layout = events.whole, events.layout
    end = np.append(layout.first_row[1:], len(layout.group_of))
    last_row = end[groups] - 1
    is_gap = without_owner(events, groups)
    owned_row = layout.row(is_gap, events.last_ordinal[is_gap])
    recent = _recent_rows(events, groups, last_row)
    rows = np.unique(np.concatenate([last_row, owned_row, owned_row + 1, recent]))
    past = _owning_only(events, is_gap, owned_row)
    final = np.isin(rows, last_row)
    parts = concat([past.take(rows[~final], context=True), gens.take(rows[final], context=True)])
    return parts.sorted()


def _recent_rows(events: Events, groups: I64, last_row: I64) -> I64:
    """Return rows from which a member could count as restarted, and the row before them."""
    layout, time = events.layout, ints(events.gens.head, "timestamp")
    since = np.full(len(layout.first_row), np.iinfo(np.int64).max)
    since[groups] = time[last_row] - RESTART_WINDOW_SECONDS * 1_000_000
    recent = np.flatnonzero(time >= since[layout.group_of])
    before = recent[layout.ordinal[recent] > 0] - 1
    return np.concatenate([recent, before])


def _owning_only(events: Events, is_gap: I64, owned_row: I64) -> Generations:
    """Return the same rows and members, owning only the given partitions."""
    gens, layout = events.whole, events.layout
    member = layout.member(owned_row, events.last[is_gap].astype(np.int64))
    topic, partition = layout.tp_topic[is_gap], layout.tp_partition[is_gap]
    order = np.lexsort((partition, topic, member))
    member, topic, partition = member[order], topic[order], partition[order]
    first = np.flatnonzero(new_runs(member, topic))
    owned = pa.table(
        {
            "member": pa.array(member[first].astype(np.int32)),
            "topic": take(layout.topics, topic[first]),
            "partitions": make_lists(np.append(first, len(partition)), partition.astype(np.int32)),
            "role": pa.array(np.full(len(first), ACTIVE, np.int32)),
            "reader": pa.nulls(len(first), pa.string()),
        }
    )
    sources = gens.owned.filter(pa.array(gens.roles == SOURCE))
    row = ints(gens.members, "row")[ints(sources, "member")]
    sources = sources.filter(pa.array(np.isin(row, owned_row)))
    if sources.num_rows:  # commits of what the tasks read narrow a gap that ends later
        owned = pa.concat_tables([owned.select(OWNED_ROWS.names).cast(OWNED_ROWS), sources])
        owned = owned.take(pa.array(np.argsort(ints(owned, "member"), kind="stable")))
    return Generations(head=gens.head, members=gens.members, owned=owned)
