"""One row per rebalance: its joined and departed members, the probable cause, and the cost.

**Rules.** A cause is inferred from two successive generations and from nothing else, so it has a
confidence (:mod:`holdfast.fleet.pipeline.history.broker_log` replaces it by a stated cause). A
generation that is written again under its own number (a static member was replaced, or the group
was converted to another protocol) is not a rebalance, unless members departed: a group that
returns from KIP-848 to classic loses the member that left in that very record. The numbers are
those of :mod:`holdfast.core.model.measure`. The needed moves of members with different
subscriptions have the meaning of its :func:`~holdfast.core.model.measure.needed_moves`, and are
reported only if their certificate was verified.

**Strategy.** :mod:`holdfast.fleet.pipeline.history.departures` counts joined and departed members.
Where members have different subscriptions, a generation in which something moved becomes a
:class:`~holdfast.core.model.group.Group`: each member claims what it owned before, and ``sticky``
computes how many claims can be kept (KIP-54). Partition ids do not matter to ``sticky``, so the
partitions that have an owner are renumbered from 0 in each topic.

===========================  ==========================================================  ===========
cause                        when                                                        confidence
===========================  ==========================================================  ===========
first_seen                   no earlier record is known                                  1.0
restart                      every joined member had departed a short while before       0.98
join                         members joined, none departed                               0.97
leave                        members departed, none joined; each had announced it        0.96
leave_or_timeout             members departed, none joined; their last evidence may      0.97
                             resolve it, :mod:`holdfast.fleet.pipeline.history.departures`
join_and_leave               both, and they do not match                                 0.75
protocol_change              same members; the group was converted to another protocol   0.9
announced_leave              same members; one of them announces that it stops (Designs  0.9
                             I to III), and revokes its partitions
scheduled_rebalance          same members; a planned time was reached: a delay of        0.83
                             Connect or of Designs II and III, or a probing rebalance
cooperative_follow_up        same members; pending revocations are assigned              0.97
configuration_change         same workers; Connect's leader has read newer configs       0.9
subscription_change          same members, other subscriptions                           0.9
partition_count_change       same members, same topics, other partitions                 0.8
leader_change                same members, another leader                                0.6
spurious                     nothing differs                                             0.97
===========================  ==========================================================  ===========
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.assignors.registry import assign
from holdfast.core.kinds import FAILED, SHARED
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, starts
from holdfast.core.model.group import Group
from holdfast.core.model.measure import balance_scores, kept_portion, needed_moves
from holdfast.core.model.reported import ReportedClaims, Subscriptions
from holdfast.core.model.topics import Topics
from holdfast.fleet.columnar import gather, ints, list_parts, new_runs, numbered, row_starts, take
from holdfast.fleet.pipeline.history.broker_log import INFERRED
from holdfast.fleet.pipeline.history.departures import (
    RESOLVED,
    UNRESOLVED,
    turnover,
)
from holdfast.fleet.pipeline.history.movements import (
    GAINED,
    LOST,
    MOVED,
    MOVED_THROUGH_GAP,
    Events,
    identities,
)
from holdfast.fleet.pipeline.history.ownership_gaps import GAP_SUMS
from holdfast.fleet.pipeline.ingest.generations import Generations, marked, shared_partitions
from holdfast.fleet.tables.columns.schemas import arrow_schema, from_columns

CAUSES: Final = (
    ("first_seen", 1.0),
    ("restart", 0.98),
    ("join_and_leave", 0.75),
    ("join", 0.97),
    ("leave", RESOLVED["leave"]),
    (UNRESOLVED, 0.97),
    ("protocol_change", 0.9),
    ("announced_leave", 0.9),
    ("scheduled_rebalance", 0.83),
    ("cooperative_follow_up", 0.97),
    ("configuration_change", 0.9),
    ("subscription_change", 0.9),
    ("partition_count_change", 0.8),
    ("leader_change", 0.6),
    ("spurious", 0.97),
)
"""Name and confidence, in the order in which they are tried."""

PLAN_TOLERANCE_MS: Final = 200
"""A member may come so much before the planned time: clocks differ, and records are late."""


def _subscriptions(gens: Generations) -> tuple[I64, Mask]:
    """Return a number of each row's set of subscriptions, and whether all members' are equal."""
    lists = pc.fill_null(gens.members["subscribed_topics"], pa.scalar([], pa.list_(pa.string())))
    subscribed = numbered(pc.binary_join(lists, "\0"))
    # A commutative mix of the distinct subscriptions, independent of their order and number.
    pair = np.unique(ints(gens.members, "row") << 32 | subscribed)
    mixed = ((pair & 0xFFFFFFFF).astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    total = np.zeros(gens.n_rows, np.uint64)
    np.add.at(total, pair >> 32, mixed)
    return total.view(np.int64), np.bincount(pair >> 32, minlength=gens.n_rows) <= 1


def _after(row_before: Mask) -> Mask:
    """Return rows that follow a marked row."""
    found = np.zeros(len(row_before), np.bool_)
    found[1:] = row_before[:-1]
    return found


def _causes(events: Events, did: Mapping[str, Any], subscribed: I64) -> I64:
    """Return the index into CAUSES of each row."""
    head = events.gens.head
    joined, left = did["n_joined"] > 0, did["n_left"] > 0
    shares = marked(head, lambda kind, _: kind.is_shared)
    withheld = _after((did["n_lost"] > 0) & ~shares)
    gave = did["n_gained"] + did["n_moved_through_gap"] > 0
    at_ms, delay = ints(head, "timestamp") // 1000, ints(head, "delay_ms")
    waited_ms = np.diff(at_ms, append=at_ms[-1:])
    config = ints(head, "config_offset")
    tests = {
        "first_seen": events.fresh,
        "restart": joined & (did["n_restarted"] == did["n_joined"]),
        "join_and_leave": joined & left,
        "join": joined,
        "leave": left & (did["left_as_announced"] == did["n_left"]),
        UNRESOLVED: left,
        "protocol_change": _after(events.converted),
        "announced_leave": did["announced"] > 0,
        "scheduled_rebalance": _after((delay >= 0) & (waited_ms >= delay - PLAN_TOLERANCE_MS)),
        "cooperative_follow_up": did["cooperative"] & withheld & gave,
        "configuration_change": _after((config >= 0) & (np.diff(config, append=-1) > 0)),
        "subscription_change": np.diff(subscribed, prepend=subscribed[:1]) != 0,
        "partition_count_change": (did["n_gained"] > 0) | (did["n_lost"] > 0),
        "leader_change": did["leader_changed"],
    }
    *tried, _ = (name for name, _ in CAUSES)
    return np.select([tests[name] for name in tried], range(len(tried)), len(tried))


def numbers(events: Events, same: Mask) -> dict[str, Any]:
    """Count the changes of each row: columns of ``rebalances``, one entry per row.

    ``same`` marks rows whose members all subscribe to the same topics; ``proven`` is true if
    ``n_needed_moves`` is known to be the least.
    """
    gens, n, fresh = events.gens, events.gens.n_rows, events.fresh
    moved, through_gap, gained, lost = (
        np.bincount(events.row[events.kind == kind], minlength=n) * ~fresh
        for kind in (MOVED, MOVED_THROUGH_GAP, GAINED, LOST)
    )
    row, load = ints(gens.members, "row"), _loads(events)
    owned = np.bincount(row, load, n).astype(np.int64)
    kept = np.where(fresh, 0, owned - moved - through_gap - gained)
    before = _loads_before(events, load)
    needed = needed_moves(load, before, row, kept + moved + through_gap)
    unequal, proven = needed_of_unequal(events, ~same & ~fresh)
    leader = numbered(pc.fill_null(gens.head["leader"], ""))
    return {
        "cooperative": ~events.stops | events.converted,
        "leader_changed": ~fresh & (np.diff(leader, prepend=leader[:1]) != 0),
        "n_partitions": owned,
        "n_kept": kept,
        "n_moved": moved,
        "n_moved_through_gap": through_gap,
        "n_gained": gained,
        "n_lost": lost,
        "n_needed_moves": np.where(same, needed, unequal),
        "proven": (same & ~fresh) | proven,
        "balance_score": balance_scores(load, row, n),
    }


def _loads(events: Events) -> I64:
    """Return the partitions of each member row; of two owners only the first counts."""
    gens = events.gens
    starts, _ = list_parts(gens.owned["partitions"])
    held = np.bincount(ints(gens.owned, "member"), np.diff(starts), gens.members.num_rows)
    row, tp, member = events.layout.doubles
    if len(row):
        held -= np.bincount(member[~new_runs(row, tp)], minlength=gens.members.num_rows)
    return held.astype(np.int64)


def _loads_before(events: Events, load: I64) -> I64:
    """Return how many of the presently owned partitions each member row owned last."""
    layout, before = events.layout, load.copy()
    arrived = events.kind != LOST
    to = layout.member(events.row[arrived], events.after[arrived])
    np.subtract.at(before, to[to >= 0], 1)
    passed = (events.kind == MOVED) | (events.kind == MOVED_THROUGH_GAP)
    source = layout.member(events.row[passed], events.before[passed])
    np.add.at(before, source[source >= 0], 1)
    return before


def reader_numbers(events: Events) -> dict[str, I64]:
    """Count the effects of rebalances on share groups, in which many members read one partition.

    No partition moves there, since no member takes one from another: a pair of a member and a
    partition is kept, gained or lost. A partition counts once, however many members read it.

    References: KIP-932.
    """
    gens, n, fresh = events.whole, events.whole.n_rows, events.fresh
    shared = gens.roles == SHARED
    starts, partition = list_parts(gens.owned["partitions"])
    size = np.where(shared, np.diff(starts), 0)
    at = np.repeat(np.arange(len(size)), np.diff(starts))
    at, partition = at[shared[at]], partition[shared[at]]
    member, member_row = ints(gens.owned, "member"), ints(gens.members, "row")
    who, topic = identities(gens.members)[member[at]], numbered(gens.owned["topic"])[at]
    _, pair = np.unique(np.stack([who, topic, partition]), axis=1, return_inverse=True)
    width = int(pair.max(initial=0)) + 1
    key = np.unique(member_row[member[at]] * width + pair.reshape(-1))
    row = key // width
    stays = ~fresh[row] & np.isin(key - width, key, assume_unique=True)
    now, kept = np.bincount(row, minlength=n), np.bincount(row[stays], minlength=n)
    before = np.where(fresh, 0, np.concatenate([[0], now[:-1]])[:n])
    load = np.bincount(member, size, gens.members.num_rows).astype(np.int64)
    return {
        "n_partitions": shared_partitions(gens),
        "n_kept": kept,
        "n_gained": np.where(fresh, 0, now - kept),
        "n_lost": before - kept,
        "balance_score": balance_scores(load, member_row, n),
    }


def rebalance_table(events: Events) -> pa.Table:
    """Return ``rebalances`` of the rows that are not context; gaps are filled in later."""
    gens, n, fresh, head = events.gens, events.gens.n_rows, events.fresh, events.gens.head
    subscribed, same = _subscriptions(gens)
    did = numbers(events, same) | turnover(events)
    shares = marked(head, lambda kind, _: kind.is_shared)
    if shares.any():
        readers = reader_numbers(events)
        did |= {name: np.where(shares, own, did[name]) for name, own in readers.items()}
    generation = ints(head, "generation")
    before = np.concatenate([[-1], generation[:-1]])[:n]
    again = ~fresh & (generation == before) & ~(events.converted & (did["n_left"] > 0))
    keep = np.flatnonzero(~head["context"].to_numpy() & ~events.dead & ~again)
    cause = _causes(events, did, subscribed)[keep]
    moved = did["n_moved"] + did["n_moved_through_gap"]
    portion = kept_portion(did["n_kept"], moved)
    # Plain consumers divide partitions, each as good as another.
    unproven = ~(did["proven"] & marked(head, lambda kind, _: kind.takes_assignors))
    columns: dict[str, Any] = {
        **{name: head[name].take(pa.array(keep)) for name in ("group", "group_type", "timestamp")},
        **{name: values[keep] for name, values in did.items()},
        "generation": generation[keep],
        "previous_generation": pa.array(before[keep], mask=fresh[keep]),
        "cause": take(pa.array([name for name, _ in CAUSES]), cause),
        "confidence": np.array([confidence for _, confidence in CAUSES])[cause],
        "cause_basis": pa.repeat(INFERRED, len(keep)),
        "stated_reason": pa.nulls(len(keep), pa.string()),
        "n_missed_generations": np.where(fresh, 0, np.maximum(generation - before - 1, 0))[keep],
        "n_members": np.bincount(ints(gens.members, "row"), minlength=n)[keep],
        "n_needed_moves": pa.array(did["n_needed_moves"][keep], mask=unproven[keep]),
        # Where nothing moved, nothing was avoidable, proof or not.
        "n_avoidable_moves": pa.array(
            np.maximum(moved - did["n_needed_moves"], 0)[keep],
            mask=(unproven & (fresh | (moved > 0)))[keep],
        ),
        "stickiness": pa.array(portion[keep], mask=(fresh | shares | np.isnan(portion))[keep]),
        **{name: np.zeros(len(keep)) for name in GAP_SUMS},
        "silent_seconds": pa.nulls(len(keep), pa.float64()),
        "unseen_ms": pa.nulls(len(keep), pa.list_(pa.int64())),
        "needed_moves_proven": ~unproven[keep],
    }
    return from_columns("rebalances", columns)


def anomaly_table(events: Events, topic_names: Mapping[str, str]) -> pa.Table:
    """Return ``anomalies`` of the rows that are not context; an unknown topic has its id."""
    rows: list[dict[str, Any]] = []
    gens, layout = events.whole, events.layout
    head, ids = gens.head, gens.members["member_id"]
    new, member_row = ~head["context"].to_numpy(), ints(gens.members, "row")

    def add(row: int, kind: str, members: list[str], detail: str, **location: Any) -> None:
        named = {name: head[name][row].as_py() for name in ("group", "generation", "timestamp")}
        if new[row]:
            rows.append(
                {**named, **location, "kind": kind, "member_ids": members, "detail": detail}
            )

    strangers: dict[tuple[int, str], set[str]] = {}
    known = pa.array(sorted(set(topic_names.values())), pa.string())
    strange = pc.invert(pc.is_in(gens.owned["topic"], known)).to_numpy()
    by_id = marked(head, lambda kind, _: bool(kind.records and kind.topics))
    owner = ints(gens.owned, "member")
    for at in np.flatnonzero(strange & by_id[member_row[owner]]).tolist():
        key = int(member_row[owner[at]]), gens.owned["topic"][at].as_py()
        strangers.setdefault(key, set()).add(ids[int(owner[at])].as_py())
    for (row, topic), members in strangers.items():
        text = "no topic of the cluster has this id: deleted, or not in the dump"
        add(row, "unknown_topic_id", sorted(members), text, topic=topic)
    doubles: dict[tuple[int, int], list[str]] = {}
    for row, tp, member in zip(*(column.tolist() for column in layout.doubles), strict=True):
        doubles.setdefault((row, tp), []).append(ids[member].as_py())
    for (row, tp), owners in doubles.items():
        text = f"{len(owners)} members own it; {owners[0]!r} counts"
        topic = layout.topics[int(layout.tp_topic[tp])].as_py()
        partition = int(layout.tp_partition[tp])
        add(row, "double_owner", owners, text, topic=topic, partition=partition)
    failed = _failed(gens)
    for (row, topic, partition), errors in failed.items():
        text = ", ".join(sorted(set(errors.values())))
        add(row, "failed_resource", sorted(errors), text, topic=topic, partition=partition)
    for row, together in _in_one_location(gens):
        text = f"{len(together)} members with one host name and client.id"
        add(row, "shared_location", sorted(ids[m].as_py() for m in together), text)
    unreadable = np.flatnonzero(~gens.members["readable"].to_numpy(zero_copy_only=False))
    for member in unreadable.tolist():
        text = "its bytes do not parse, or name a partition that cannot be"
        add(int(member_row[member]), "unreadable_assignment", [ids[member].as_py()], text)
    generation = ints(head, "generation")
    backwards = np.flatnonzero(np.diff(generation, prepend=generation[:1]) < 0)
    for row in backwards[~events.fresh[backwards]].tolist():
        detail = f"generation {generation[row]} after {generation[row - 1]}, with no tombstone"
        add(row, "generation_reset", [], detail)
    return pa.Table.from_pylist(rows, schema=arrow_schema("anomalies"))


def _in_one_location(gens: Generations) -> list[tuple[int, list[int]]]:
    """Return members that report one location, for each row and location; no static ones."""
    column = gens.members["location"]
    says = column.is_valid().to_numpy() & ~gens.members["group_instance_id"].is_valid().to_numpy()
    at = np.flatnonzero(says)
    if not len(at):
        return []
    row, location = ints(gens.members, "row")[at], column.fill_null(0).to_numpy()[at]
    order = np.lexsort((location, row))
    same = (np.diff(row[order]) == 0) & (np.diff(location[order]) == 0)
    edges = np.flatnonzero(np.concatenate([[True], ~same, [True]]))
    return [
        (int(row[order[low]]), at[order[low:high]].tolist())
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        if high - low > 1
    ]


def _failed(gens: Generations) -> dict[tuple[int, str, int], dict[str, str]]:
    """Return the error of each worker with a failed resource: by row, kind and number, by id."""
    rows = np.flatnonzero(gens.roles == FAILED)
    picked = gens.owned.take(pa.array(rows)).to_pylist()
    row, ids = ints(gens.members, "row"), gens.members["member_id"]
    found: dict[tuple[int, str, int], dict[str, str]] = {}
    for one in picked:
        at = one["member"]
        for number in one["partitions"]:
            errors = found.setdefault((int(row[at]), one["topic"], number), {})
            errors[ids[at].as_py()] = one["reader"]
    return found


# Needed moves of members with different subscriptions


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
