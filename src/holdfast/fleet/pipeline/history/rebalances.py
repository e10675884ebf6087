"""One row per rebalance: which members came and went, the probable cause, and the cost.

**Rules.** A cause is inferred from two successive generations and from nothing else, so it has a
confidence (:mod:`holdfast.fleet.pipeline.history.broker_log` replaces it by a stated cause). A
generation that is written again under its own number (a static member was replaced, or the group
was converted to another protocol) is no rebalance, unless members went: a group that goes back from
KIP-848 to classic loses the member that left in that very record. The numbers are those of
:mod:`holdfast.core.model.measure_history`.

**Strategy.** Members that came and members that went are set differences on (row, identity)
numbers. A member that came counts as restarted if a member with the same client id and host went
at most ``RESTART_WINDOW_SECONDS`` before. Each member that went is matched once, the newest first.

===========================  ==========================================================  ===========
cause                        when                                                        confidence
===========================  ==========================================================  ===========
first_seen                   nothing is known before it                                  1.0
restart                      every member that came had gone a short while before        0.98
join                         members came, none went                                     0.97
leave                        members went, none came; each had announced that it stops    0.96
leave_or_timeout             members went, none came; their last signs may tell which,   0.97
                             :mod:`holdfast.fleet.pipeline.history.signs`
join_and_leave               both, and they do not match                                 0.75
protocol_change              same members; the group was converted to another protocol   0.9
announced_leave              same members; one of them announces that it stops (Designs  0.9
                             I to III), and gives up what it has
scheduled_rebalance          same members; a planned time has come: a delay of Connect   0.83
                             or of Designs II and III, or a probing one of Streams
cooperative_follow_up        same members; withheld partitions are handed out            0.97
configuration_change         same workers; Connect's leader has read newer configs       0.9
subscription_change          same members, other subscriptions                           0.9
partition_count_change       same members, same topics, other partitions                 0.8
leader_change                same members, another leader                                0.6
spurious                     nothing is different                                        0.97
===========================  ==========================================================  ===========
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64, Mask
from holdfast.core.model.measure_history import balance_scores, kept_share, needed_moves
from holdfast.fleet.pipeline.history.broker_log import INFERRED
from holdfast.fleet.pipeline.history.dense import Dense
from holdfast.fleet.pipeline.history.departures import members_that_went
from holdfast.fleet.pipeline.history.movements import (
    GAINED,
    LOST,
    MOVED,
    MOVED_THROUGH_GAP,
    RESTART_WINDOW_SECONDS,
    Events,
    MemberLookup,
    take,
)
from holdfast.fleet.pipeline.history.needed import needed_of_unequal
from holdfast.fleet.pipeline.history.readers import reader_numbers
from holdfast.fleet.pipeline.history.signs import TOLD, UNTOLD
from holdfast.fleet.pipeline.ingest.generations import Generations, list_parts, marked, new_runs
from holdfast.fleet.tables.columns.schemas import arrow_schema, from_columns
from holdfast.fleet.tables.columns.values import ints, numbered

CAUSES: Final = (
    ("first_seen", 1.0),
    ("restart", 0.98),
    ("join_and_leave", 0.75),
    ("join", 0.97),
    ("leave", TOLD["leave"]),
    (UNTOLD, 0.97),
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turnover:
    """Members that came and went with each row, int64[n_rows] each."""

    joined: I64
    left: I64
    restarted: I64
    announced: I64
    """Members that say for the first time that they stop."""
    left_as_announced: I64
    """Of ``left``, those that had said so."""


def turnover(gens: Generations, layout: Dense, events: Events) -> Turnover:
    """Count members that came, that went, and that came back."""
    n = gens.n_rows
    row = ints(gens.members, "row")
    key, width = layout.member_key, layout.width
    came = np.flatnonzero(~events.fresh[row] & ~np.isin(key - width, key))
    went = members_that_went(gens, layout, events)
    stops = np.asarray(gens.members["leaving"].is_valid())
    new = stops & ~events.fresh[row] & np.isin(key - width, key[~stops])

    def per_row(of: I64) -> I64:
        return np.bincount(of, minlength=n + 1)[:n].astype(np.int64)

    return Turnover(
        joined=per_row(row[came]),
        left=per_row(row[went] + 1),
        restarted=_restarts(gens, layout, came, went),
        announced=per_row(row[new]),
        left_as_announced=per_row(row[went[stops[went]]] + 1),
    )


def _restarts(gens: Generations, layout: Dense, came: I64, went: I64) -> I64:
    """Count, per row, the members that came and had gone a short while before."""
    row = ints(gens.members, "row")
    group = layout.group_of[row]
    client = pc.binary_join_element_wise(
        pc.fill_null(gens.members["client_id"], ""),
        pc.fill_null(gens.members["client_host"], ""),
        "\0",
    )
    who = numbered(client)
    time = ints(gens.head, "timestamp")
    restarted = np.zeros(gens.n_rows, np.int64)
    gone: dict[tuple[int, int], list[int]] = {}
    # A member that went is gone from the next row on, and may be back in that very row.
    moves = [(int(row[m]) + 1, 0, int(group[m]), int(who[m])) for m in went]
    moves += [(int(row[m]), 1, int(group[m]), int(who[m])) for m in came]
    for at, is_back, of_group, client_code in sorted(moves):
        waiting = gone.setdefault((of_group, client_code), [])
        if not is_back:
            waiting.append(int(time[at]))
        elif waiting and time[at] - waiting.pop() <= RESTART_WINDOW_SECONDS * 1_000_000:
            restarted[at] += 1
    return restarted


def _asked_codes(gens: Generations) -> I64:
    """Number the member rows: rows with the same subscription have the same number."""
    lists = pc.fill_null(gens.members["subscribed_topics"], pa.scalar([], pa.list_(pa.string())))
    return numbered(pc.binary_join(lists, "\0"))


def _subscriptions(gens: Generations) -> I64:
    """Number the rows: rows with the same set of subscriptions have the same number."""
    # A commutative mix of the distinct subscriptions: their order and number say nothing.
    pair = np.unique(ints(gens.members, "row") << 32 | _asked_codes(gens))
    mixed = ((pair & 0xFFFFFFFF).astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    total = np.zeros(gens.n_rows, np.uint64)
    np.add.at(total, pair >> 32, mixed)
    return total.view(np.int64)


def _planned(gens: Generations) -> Mask:
    """Rows whose time the row before planned."""
    at_ms = ints(gens.head, "timestamp") // 1000
    delay = ints(gens.head, "delay_ms")
    found = np.zeros(gens.n_rows, np.bool_)
    found[1:] = (delay[:-1] >= 0) & (np.diff(at_ms) >= delay[:-1] - PLAN_TOLERANCE_MS)
    return found


def _reconfigured(gens: Generations) -> Mask:
    """Rows of Connect whose leader had read more of the configurations than before."""
    offset = ints(gens.head, "config_offset")
    found = np.zeros(gens.n_rows, np.bool_)
    found[1:] = (offset[:-1] >= 0) & (offset[1:] > offset[:-1])
    return found


def _causes(gens: Generations, changes: Turnover, numbers: RebalanceNumbers) -> I64:
    """Index into CAUSES of each row."""
    asked = _subscriptions(gens)
    joined, left = changes.joined > 0, changes.left > 0
    withheld = np.concatenate([[False], (numbers.lost > 0)[:-1] & ~_shares(gens)[:-1]])
    withheld = withheld[: gens.n_rows]
    other_partitions = (numbers.gained > 0) | (numbers.lost > 0)
    tests = {
        "first_seen": numbers.fresh,
        "restart": joined & (changes.restarted == changes.joined),
        "join_and_leave": joined & left,
        "join": joined,
        "leave": left & (changes.left_as_announced == changes.left),
        UNTOLD: left,
        "protocol_change": numbers.converted,
        "announced_leave": changes.announced > 0,
        "scheduled_rebalance": _planned(gens),
        "configuration_change": _reconfigured(gens),
        "cooperative_follow_up": numbers.cooperative & withheld & (numbers.gave > 0),
        "subscription_change": np.diff(asked, prepend=asked[:1]) != 0,
        "partition_count_change": other_partitions,
        "leader_change": numbers.leader_changed,
    }
    cause = np.full(gens.n_rows, len(CAUSES) - 1, np.int64)
    for index, (name, _) in reversed(list(enumerate(CAUSES))):
        if name in tests:
            cause[tests[name]] = index
    return cause


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RebalanceNumbers:
    """What a rebalance did, one entry per row.

    ``converted``: the first rebalance after the group was written anew for another protocol.
    """

    fresh: Mask
    cooperative: Mask
    leader_changed: Mask
    owned: I64
    kept: I64
    moved: I64
    through_gap: I64
    gained: I64
    lost: I64
    needed: I64
    proven: Mask
    balance: I64
    converted: Mask

    @property
    def gave(self) -> I64:
        """Partitions that a member got and that had no owner before."""
        return self.gained + self.through_gap


def numbers(gens: Generations, layout: Dense, events: Events) -> RebalanceNumbers:
    """Count what each row did."""
    n = gens.n_rows
    fresh = events.fresh
    moved, through_gap, gained, lost = (
        np.bincount(events.row[events.kind == kind], minlength=n) * ~fresh
        for kind in (MOVED, MOVED_THROUGH_GAP, GAINED, LOST)
    )
    row = ints(gens.members, "row")
    load = _loads(gens, layout)
    owned = np.bincount(row, load, n).astype(np.int64)
    kept = np.where(fresh, 0, owned - moved - through_gap - gained)
    leader = numbered(pc.fill_null(gens.head["leader"], ""))
    before = _loads_before(gens, layout, events, load)
    same = _same_topics(gens)
    needed = needed_moves(load, before, row, kept + moved + through_gap)
    unequal, proven = needed_of_unequal(gens, layout, events, ~same & ~fresh)
    return RebalanceNumbers(
        fresh=fresh,
        cooperative=~events.stops | events.converted,
        leader_changed=~fresh & (np.diff(leader, prepend=leader[:1]) != 0),
        owned=owned,
        kept=kept,
        moved=moved,
        through_gap=through_gap,
        gained=gained,
        lost=lost,
        needed=np.where(same, needed, unequal),
        proven=(same & ~fresh) | proven,
        balance=balance_scores(load, row, n),
        converted=np.concatenate([[False], events.converted[:-1]])[:n],
    )


def _loads(gens: Generations, layout: Dense) -> I64:
    """Partitions of each member row; of two owners only the first counts."""
    starts, _ = list_parts(gens.owned["partitions"])
    held = np.bincount(ints(gens.owned, "member"), np.diff(starts), gens.members.num_rows)
    row, tp, member = layout.doubles
    if len(row):
        held -= np.bincount(member[~new_runs(row, tp)], minlength=gens.members.num_rows)
    return held.astype(np.int64)


def _loads_before(gens: Generations, layout: Dense, events: Events, load: I64) -> I64:
    """How many of the partitions owned now each member row owned last."""
    lookup = MemberLookup.of(layout)
    before = load.copy()
    arrived = events.kind != LOST
    to = lookup.find(events.row[arrived], events.after[arrived])
    np.subtract.at(before, to[to >= 0], 1)
    passed = (events.kind == MOVED) | (events.kind == MOVED_THROUGH_GAP)
    source = lookup.find(events.row[passed], events.before[passed])
    np.add.at(before, source[source >= 0], 1)
    return before


def _same_topics(gens: Generations) -> Mask:
    """Rows whose members all subscribe to the same topics."""
    row = ints(gens.members, "row")
    pair = np.unique(row << 32 | _asked_codes(gens))
    return np.bincount(pair >> 32, minlength=gens.n_rows) <= 1


def _shares(gens: Generations) -> Mask:
    """Rows of share groups."""
    return marked(gens.head, lambda kind, _: kind.is_shared)


def _with_readers(did: RebalanceNumbers, whole: Generations) -> RebalanceNumbers:
    """The numbers, with those of share groups in their rows."""
    shares = _shares(whole)
    if not shares.any():
        return did
    found = reader_numbers(whole, did.fresh)
    return replace(did, **{n: np.where(shares, own, getattr(did, n)) for n, own in found.items()})


def _of_partitions(gens: Generations) -> Mask:
    """Rows of groups that divide partitions, each as good as another: plain consumers."""
    return marked(gens.head, lambda kind, _: kind.takes_assignors)


def rebalance_table(
    gens: Generations, layout: Dense, events: Events, whole: Generations | None = None
) -> pa.Table:
    """The table ``rebalances`` of the rows that are not context; pauses are filled in later.

    Parameters
    ----------
    whole : Generations, optional
        The same with what members share, where ``gens`` has only what a member alone owns.
    """
    n = gens.n_rows
    generation = ints(gens.head, "generation")
    before = np.concatenate([[-1], generation[:-1]])[:n]
    changes = turnover(gens, layout, events)
    went = events.converted & (changes.left > 0)
    again = ~events.fresh & (generation == before) & ~went
    keep = np.flatnonzero(~gens.head["context"].to_numpy() & ~events.dead & ~again)
    did = _with_readers(numbers(gens, layout, events), whole or gens)
    cause = _causes(gens, changes, did)[keep]
    missed = np.where(did.fresh, 0, np.maximum(generation - before - 1, 0))
    share = kept_share(did.kept, did.moved + did.through_gap)[keep]
    avoidable = np.maximum(did.moved + did.through_gap - did.needed, 0)
    unproven = ~(did.proven & _of_partitions(gens))[keep]
    # Where nothing moved, nothing was avoidable, proof or not.
    unknown = unproven & (did.fresh | (did.moved + did.through_gap > 0))[keep]
    columns: dict[str, Any] = {
        "group": take(gens.head["group"], keep),
        "group_type": take(gens.head["group_type"], keep),
        "generation": generation[keep],
        "previous_generation": pa.array(before[keep], mask=did.fresh[keep]),
        "timestamp": ints(gens.head, "timestamp")[keep],
        "cause": take(pa.array([name for name, _ in CAUSES]), cause),
        "confidence": np.array([confidence for _, confidence in CAUSES])[cause],
        "cause_basis": pa.repeat(INFERRED, len(keep)),
        "stated_reason": pa.nulls(len(keep), pa.string()),
        "n_missed_generations": missed[keep],
        "n_members": np.bincount(ints(gens.members, "row"), minlength=n)[keep],
        "n_joined": changes.joined[keep],
        "n_left": changes.left[keep],
        "n_restarted": changes.restarted[keep],
        "n_partitions": did.owned[keep],
        "n_kept": did.kept[keep],
        "n_moved": did.moved[keep],
        "n_moved_through_gap": did.through_gap[keep],
        "n_gained": did.gained[keep],
        "n_lost": did.lost[keep],
        "n_needed_moves": pa.array(did.needed[keep], mask=unproven),
        "n_avoidable_moves": pa.array(avoidable[keep], mask=unknown),
        "balance_score": did.balance[keep],
        "stickiness": pa.array(share, mask=(did.fresh | _shares(gens))[keep] | np.isnan(share)),
        "pause_lower_seconds": np.zeros(len(keep)),
        "pause_upper_seconds": np.zeros(len(keep)),
        "idle_lower_seconds": np.zeros(len(keep)),
        "idle_upper_seconds": np.zeros(len(keep)),
        "silent_seconds": pa.nulls(len(keep), pa.float64()),
        "leader_changed": did.leader_changed[keep],
        "cooperative": did.cooperative[keep],
        "needed_moves_proven": ~unproven,
    }
    return from_columns("rebalances", columns)


def anomaly_table(gens: Generations, layout: Dense, events: Events) -> pa.Table:
    """The table ``anomalies`` of the rows that are not context."""
    rows: list[dict[str, Any]] = []
    head, ids = gens.head, gens.members["member_id"]
    new = ~head["context"].to_numpy()

    def add(row: int, kind: str, members: list[str], detail: str, tp: int | None = None) -> None:
        place: dict[str, Any] = {"topic": None, "partition": None}
        if tp is not None:
            topic = layout.topics[int(layout.tp_topic[tp])].as_py()
            place = {"topic": topic, "partition": int(layout.tp_partition[tp])}
        named = {name: head[name][row].as_py() for name in ("group", "generation", "timestamp")}
        rows.append({**named, **place, "kind": kind, "member_ids": members, "detail": detail})

    doubles: dict[tuple[int, int], list[str]] = {}
    for row, tp, member in zip(*layout.doubles, strict=True):
        doubles.setdefault((int(row), int(tp)), []).append(ids[int(member)].as_py())
    for (row, tp), owners in doubles.items():
        if new[row]:
            add(
                row,
                "double_owner",
                owners,
                f"{len(owners)} members own it; {owners[0]!r} counts",
                tp,
            )
    member_row = ints(gens.members, "row")
    for member in np.flatnonzero(~gens.members["readable"].to_numpy(zero_copy_only=False)):
        if new[member_row[member]]:
            name = ids[int(member)].as_py()
            add(
                int(member_row[member]),
                "unreadable_assignment",
                [name],
                "its bytes do not parse, or name a partition that cannot be",
            )
    generation = ints(head, "generation")
    backwards = np.flatnonzero(np.diff(generation, prepend=generation[:1]) < 0)
    for row in backwards[~events.fresh[backwards] & new[backwards]]:
        detail = f"generation {generation[row]} after {generation[row - 1]}, with no tombstone"
        add(int(row), "generation_reset", [], detail)
    return pa.Table.from_pylist(rows, schema=arrow_schema("anomalies"))
