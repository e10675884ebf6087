"""What a group's own history says of its costs: each with its spread, and what it was read from.

**Rules.** An estimate is a middle and the bounds between which it lies with nine chances in ten. A
cost that the history does not show has no observations (``n`` = 0): then its bounds are what the
history leaves possible, which may be wide. What a client does that no record shows stands in
:data:`CLIENTS` alone.

**Strategy.** :func:`observe` reads each rebalance once: when members that stayed committed for the
last time before it (a *flush*, if it breaks the rhythm of their commits), when a member that left
said goodbye, how long it took until each member committed again. :func:`estimate` turns that into
costs:

===============  ==============================================================================
cost             read from
===============  ==============================================================================
heartbeat        the time from a record to its follow-up round, less the round; else the time from
                 a goodbye to the first flush of a member that stayed, which lies evenly between
                 none and a heartbeat
round            the time from the last flush to the record: a commit's answer, a join, its answer,
                 and a sync
poll             how much later than its rhythm a commit comes: it waits for a poll
apart            how far the flushes of one rebalance lie apart
slow members     members that commit new positions more rarely than the most frequent one
rebuild          how much longer a member was silent after a rebalance for each partition gained
restart          from a goodbye to the next join of the same place
session          nothing in the records of a KIP-848 group, nor is its members' heartbeat there
first fetch      nothing in the records: it is taken to be as quick as the round
broker heartbeat the hand-overs of a KIP-848 group, which take half of it on average
===============  ==============================================================================
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from holdfast.pipeline.history.generations import CONSUMER
from holdfast.pipeline.history.signs import SHORTEST_SESSION_MS
from holdfast.pipeline.replay.commits import CommitTimes
from holdfast.pipeline.replay.rows import GroupRows, RecordedGeneration
from holdfast.sim.world.costs import Costs

NINE_IN_TEN: Final = 1.645
"""Standard deviations on either side of the mean of a normal distribution."""

OFF_RHYTHM: Final = 0.75
"""A commit that follows the one before sooner than this part of the rhythm was made on purpose."""

AT_ONCE: Final = 0.1
"""Half of the members that stayed committed so shortly before the record, as a part of the rhythm:
that is no chance where there are :data:`ENOUGH` of them."""

ENOUGH: Final = 6

QUIET: Final = 1.5
"""Rhythms without a commit of anybody that stayed: all of them were waiting for the round."""

HOPS: Final = 4
"""Messages one way between the last flush of a round and its record."""

MOST_HOP_MS: Final = 150

KAFKA_SESSION_MS: Final = 45_000
"""``session.timeout.ms`` of Kafka's clients."""

GOODBYE: Final = 2 / 3
"""A member that was silent for this part of its session, or more, did not say goodbye: its last
heartbeat came a session before it was removed, and its last commit up to a rhythm earlier."""

APART: Final = "apart_ms"
"""An estimate that is no cost of its own: under an eager policy it stands for the poll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One cost in ms: its bounds, its middle, and from how many observations."""

    low_ms: float
    mid_ms: float
    high_ms: float
    n: int = 0

    def at(self, share: float) -> float:
        """The value at a share of the way from low (0) over the middle (1/2) to high (1)."""
        if share <= 0.5:
            return self.low_ms + 2 * share * (self.mid_ms - self.low_ms)
        return self.mid_ms + (2 * share - 1) * (self.high_ms - self.mid_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTraits:
    """What members of a client do in a cooperative round that no record shows.

    Parameters
    ----------
    stops : tuple of int
        Of 100 joins after a revocation, how many stop what the member keeps until it is assigned:
        least, middle, most.
    waits : tuple of int
        The same of joins of any kind.
    sooner : bool
        They join a follow-up round before their heartbeat.
    in_step : bool
        Their heartbeats begin anew with each round, so all notice the next one at the same time.
    """

    stops: tuple[int, int, int]
    waits: tuple[int, int, int] = (0, 0, 0)
    sooner: bool = False
    in_step: bool = True


CLIENTS: Final[dict[str, ClientTraits]] = {
    "librdkafka": ClientTraits(stops=(8, 16, 28), in_step=False),
    "kafka-python": ClientTraits(stops=(100, 100, 100), waits=(100, 100, 100)),
    "java": ClientTraits(stops=(0, 0, 0)),
    "holdfast": ClientTraits(stops=(0, 0, 0), sooner=True),
    "": ClientTraits(stops=(0, 0, 100), waits=(0, 0, 100)),
}
"""Client -> its traits, seen in the journals of ``bench/whatif.py``; "" is a client not known.

Members of librdkafka stopped what they kept after 6 of 38 revocations (three recorded bounces whose
callbacks cost nothing), so between 8 and 28 of 100 with nine chances in ten (Wilson, 1927).

``poll`` of kafka-python returns nothing while a join is under way (``KafkaConsumer._poll_once``),
so its members stop all that they keep, for a whole session where a member is dead.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRebalance:
    """What commits show of one rebalance; times in ms.

    Parameters
    ----------
    at_ms, before_ms : int
        Its record, and the record before it.
    signs : tuple of int
        Last commits of members that stayed.
    flushes : tuple of int
        Those of them that were made on purpose.
    goodbyes : tuple of int
        Last commits of members that left in order.
    crashes : bool
        A member left without a word, and the others may have waited for its session to end.
    follow_up : bool
        No member asked for this round.
    waits : tuple of (int, int, int)
        Of each member: silence after the record, partitions kept, partitions new to it.
    """

    at_ms: int
    before_ms: int
    signs: tuple[int, ...]
    flushes: tuple[int, ...]
    goodbyes: tuple[int, ...]
    crashes: bool
    follow_up: bool
    waits: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEstimates:
    """The costs of one group.

    Parameters
    ----------
    costs : dict of str to Estimate
        By name of a field of :class:`~holdfast.sim.world.costs.Costs`.
    slow_ids : frozenset of str
        Member ids with slow batches.
    rebuild_blocks : bool
        A member that rebuilds is silent about what it kept as well.
    client : str
        A name of :data:`CLIENTS`: what the members run, "" where no record tells.
    rhythm_ms : float
        Usual time between two commits of a member; 0 if there are none.
    flushes : bool
        Members commit when they give up what they have.
    noticed : dict of int to int
        Time of a record -> when the first member that stayed noticed the rebalance.
    waited : dict of int to (int, int)
        Time of a record -> between which times, where members that stayed only fell silent.
    """

    costs: dict[str, Estimate] = field(default_factory=dict)
    slow_ids: frozenset[str] = frozenset()
    rebuild_blocks: bool = False
    client: str = ""
    rhythm_ms: float = 0.0
    flushes: bool = False
    noticed: dict[int, int] = field(default_factory=dict)
    waited: dict[int, tuple[int, int]] = field(default_factory=dict)


def estimate(rows: GroupRows, commits: CommitTimes, default: Costs) -> GroupEstimates:
    """What a group's history says of its costs.

    Parameters
    ----------
    default : Costs
        What is taken where the history leaves everything possible.
    """
    gaps, slow = _rhythm(rows, commits)
    rhythm_ms = float(np.median(gaps)) if gaps else 0.0
    eager = _eager(rows)
    seen = observe(rows, commits, rhythm_ms, eager=eager, slow=frozenset(slow))
    session_ms = max((m.session_ms or 0 for g in rows.generations for m in g.members), default=0)
    found: dict[str, Estimate] = {}
    round_ms = _round(seen)
    batch_ms = float(np.mean(list(slow.values()))) if slow else 0.0
    session_ms = session_ms or default.session_ms
    heartbeat, follow_up = _heartbeat(seen, round_ms.mid_ms, batch_ms, session_ms, default)
    if rows.generations[-1].group_type == CONSUMER:
        heartbeat, follow_up, found["session_ms"] = _as_classic(default)
    found["heartbeat_ms"] = heartbeat
    client = client_of(rows, commits)
    traits = CLIENTS[client]
    for name, told in (("joining_stops", traits.stops), ("waiting_stops", traits.waits)):
        low, mid, high = told
        found[name] = Estimate(low_ms=low, mid_ms=mid, high_ms=high, n=int(bool(client)))
    if follow_up is not None:
        found["follow_up_ms"] = follow_up
    hop = min(MOST_HOP_MS, round_ms.mid_ms / HOPS)
    share = hop / max(1.0, round_ms.mid_ms)
    found["latency_ms"] = _scaled(round_ms, share)
    found["revoke_ms"] = _scaled(round_ms, max(0.0, 1 - HOPS * share))
    found["first_fetch_ms"] = Estimate(
        low_ms=20 + 0.1 * round_ms.low_ms,
        mid_ms=40 + 0.3 * round_ms.mid_ms,
        high_ms=60 + round_ms.high_ms,
    )
    poll = found["poll_ms"] = _poll(rhythm_ms, gaps, heartbeat)
    found[APART] = _apart(seen, poll, heartbeat, in_step=CLIENTS[client].in_step)
    if slow:
        found["slow_poll_ms"] = _mean(list(slow.values()), len(slow))
    found["rebuild_ms"], blocks = _rebuild(seen, rhythm_ms)
    reconciled = [_lower_ms(p) for p in rows.pauses if p["basis"] == "reconciled"]
    if reconciled:
        half = _mean([float(value) for value in reconciled], len(reconciled))
        found["broker_heartbeat_ms"] = _scaled(half, 2.0)
    return GroupEstimates(
        costs=found,
        slow_ids=frozenset(slow),
        rebuild_blocks=blocks,
        client=client,
        rhythm_ms=rhythm_ms,
        flushes=any(one.flushes for one in seen),
        noticed={s.at_ms: min(s.flushes) for s in seen if s.flushes},
        waited=_waited(seen, rhythm_ms),
    )


def _waited(seen: Sequence[SeenRebalance], rhythm_ms: float) -> dict[int, tuple[int, int]]:
    """When members that wait for a dead one noticed the round: before their next commit was due.

    Brokers refuse commits while members join, and clients make none, so all fall silent at once.
    """
    found = {}
    for one in seen:
        low_ms, high_ms = max(one.signs, default=0), min(one.signs, default=0) + int(rhythm_ms)
        if one.crashes and one.signs and one.at_ms - low_ms > QUIET * rhythm_ms > 0:
            found[one.at_ms] = (low_ms, max(low_ms, high_ms))
    return found


def client_of(rows: GroupRows, commits: CommitTimes) -> str:
    """What the members of a group run, as far as its records tell; "" where they do not.

    librdkafka sends an empty rack where others send none. kafka-python and Java name their clients
    unless they are told otherwise. Of the clients that commit without a leader epoch, only holdfast
    has cooperative assignors.
    """
    last = [m for g in rows.generations[-3:] for m in g.members]
    if not last:
        return ""
    if all(m.rack == "" for m in last):
        return "librdkafka"
    if all(m.client_id.startswith("kafka-python") for m in last):
        return "kafka-python"
    if commits.times and not commits.epochs:
        return "holdfast"
    return "java" if all(m.client_id.startswith("consumer-") for m in last) else ""


def observe(
    rows: GroupRows,
    commits: CommitTimes,
    rhythm_ms: float,
    *,
    eager: bool,
    slow: Collection[str] = (),
) -> list[SeenRebalance]:
    """What commits show of each rebalance of a group; ``slow``: members whose silence is work."""
    found = []
    pairs = [g for g in rows.generations if g.members]
    for index, (before, after) in enumerate(itertools.pairwise(pairs)):
        if before.number == after.number:
            continue
        until_ms = pairs[index + 2].time_ms if index + 2 < len(pairs) else after.time_ms + 60_000
        found.append(_observed(rows, commits, before, after, until_ms=until_ms, slow=slow))
    if not found:
        return []
    broken = [
        _off_rhythm(commits, before, after, rhythm_ms)
        for before, after in itertools.pairwise(pairs)
    ]
    told = [value for values in broken for value in values]
    flushes = bool(told) and np.mean(told) >= 0.4
    if not flushes and _in_step(found, rhythm_ms):
        return found
    if not flushes:
        return [replace(one, flushes=()) for one in found]
    return found if eager else [_on_purpose(one, commits, rhythm_ms, pairs) for one in found]


def _in_step(seen: Sequence[SeenRebalance], rhythm_ms: float) -> bool:
    """Whether members commit when they notice a round, though that does not break their rhythm.

    Heartbeats and commits of one period that begin anew with each round stay in step.
    """
    silent = [s.at_ms - at for s in seen if not s.crashes and not s.follow_up for at in s.flushes]
    return len(silent) >= ENOUGH and float(np.median(silent)) < AT_ONCE * rhythm_ms


def _observed(
    rows: GroupRows,
    commits: CommitTimes,
    before: RecordedGeneration,
    after: RecordedGeneration,
    *,
    until_ms: int,
    slow: Collection[str],
) -> SeenRebalance:
    owned = {m.member_id: own for m, own in zip(before.members, before.owned, strict=True)}
    stay = {m.member_id for m in after.members} & set(owned)
    flushes, goodbyes, waits, crashes = [], [], [], False
    for member in before.members:
        signs = commits.between(owned[member.member_id], before.time_ms, after.time_ms)
        if not signs:
            continue
        if member.member_id in stay:
            flushes.append(signs[-1])
        elif after.time_ms - signs[-1] < GOODBYE * (member.session_ms or 10_000):
            goodbyes.append(signs[-1])
        else:
            crashes = True
    for member, own in zip(after.members, after.owned, strict=True):
        first_ms = commits.first_after(own, after.time_ms, until_ms)
        kept = len(set(own) & set(owned.get(member.member_id, ())))
        if own and first_ms >= 0 and member.member_id not in slow:
            waits.append((first_ms - after.time_ms, kept, len(own) - kept))
    return SeenRebalance(
        at_ms=after.time_ms,
        before_ms=before.time_ms,
        signs=tuple(flushes),
        flushes=tuple(flushes),
        goodbyes=tuple(goodbyes),
        crashes=crashes,
        follow_up=rows.cause_of(after) == "cooperative_follow_up",
        waits=tuple(waits),
    )


def _off_rhythm(
    commits: CommitTimes, before: RecordedGeneration, after: RecordedGeneration, rhythm_ms: float
) -> list[bool]:
    """Whether each member that stayed broke its rhythm with its last commit before a record."""
    stay = {m.member_id for m in after.members}
    found = []
    for member, own in zip(before.members, before.owned, strict=True):
        signs = commits.between(own, before.time_ms, after.time_ms)
        if member.member_id in stay and len(signs) > 1:
            found.append(signs[-1] - signs[-2] < OFF_RHYTHM * rhythm_ms)
    return found


def _on_purpose(
    one: SeenRebalance, commits: CommitTimes, rhythm_ms: float, rows: Sequence[RecordedGeneration]
) -> SeenRebalance:
    """Only flushes that break the rhythm: a cooperative member goes on committing meanwhile."""
    before = next(g for g in rows if g.time_ms == one.before_ms)
    kept = set()
    for own in before.owned:
        signs = commits.between(own, one.before_ms, one.at_ms)
        if len(signs) > 1 and signs[-1] - signs[-2] < OFF_RHYTHM * rhythm_ms:
            kept.add(signs[-1])
    return replace(one, flushes=tuple(f for f in one.flushes if f in kept))


def _eager(rows: GroupRows) -> bool:
    return any(p["basis"] == "eager" for p in rows.pauses)


def _lower_ms(pause: Mapping[str, object]) -> int:
    since, until = pause["unowned_since"], pause["timestamp"]
    return max(0, int(str(until)) - int(str(since))) if since is not None else 0


def _rhythm(rows: GroupRows, commits: CommitTimes) -> tuple[list[int], dict[str, float]]:
    """Each ms between two commits of a member; member ids with slow batches, and how slow."""
    gaps: list[int] = []
    means: dict[str, list[float]] = {}
    pairs = [g for g in rows.generations if g.members]
    for index, row in enumerate(pairs):
        until_ms = pairs[index + 1].time_ms if index + 1 < len(pairs) else row.time_ms + 600_000
        for member, own in zip(row.members, row.owned, strict=True):
            signs = commits.between(own, row.time_ms, until_ms)[:-1]
            gaps += np.diff(signs).tolist()
            moving = commits.between(own[:1], row.time_ms, until_ms, moving=True)[:-1]
            means.setdefault(member.member_id, []).extend(np.diff(moving).tolist())
    usual = {m: float(np.mean(v)) for m, v in means.items() if len(v) >= 3}
    quickest = min(usual.values(), default=0.0)
    slow = {m: mean for m, mean in usual.items() if mean > 1.15 * quickest + 20}
    if len(slow) * 2 > len(usual):
        slow = {}
    return gaps, slow


def _round(seen: Sequence[SeenRebalance]) -> Estimate:
    found = [float(s.at_ms - max(s.flushes)) for s in seen if s.flushes and not s.crashes]
    if found:
        return _mean(found, len(found), least=8.0)
    limits = [one.at_ms - max(one.goodbyes) for one in seen if one.goodbyes]
    most = float(min([*limits, 300]))
    return Estimate(low_ms=min(10.0, most), mid_ms=min(60.0, most / 2), high_ms=most)


def _heartbeat(
    seen: Sequence[SeenRebalance],
    round_ms: float,
    batch_ms: float,
    session_ms: int,
    default: Costs,
) -> tuple[Estimate, Estimate | None]:
    """The heartbeat, and how soon members come to a follow-up round; None if none was seen.

    A goodbye is noticed within a heartbeat, at any time of it. A follow-up round of Kafka's own
    clients takes a heartbeat, for members that gave nothing up hear of it so, unless all gave up.
    ``batch_ms``: a slow member is so much later.
    """
    most = max(100.0, session_ms / 3)
    follow = [max(1.0, s.at_ms - s.before_ms - round_ms) for s in seen if s.follow_up]
    notices = [
        (min(s.flushes) if s.flushes else s.at_ms - round_ms - batch_ms) - max(s.goodbyes)
        for s in seen
        if s.goodbyes
    ]
    follow_up = _mean(follow, len(follow)) if follow else None
    longest = max([50.0, *notices])
    waited = [value for value in follow if value >= 0.7 * longest]
    if waited:
        return _middle(waited, least=30.0), follow_up
    n = len(notices)
    if not n:
        low, mid = min(300.0, most), min(float(default.heartbeat_ms), most)
        return Estimate(low_ms=low, mid_ms=mid, high_ms=most), follow_up
    # the longest of n even draws from (0, heartbeat] tells of it by its Pareto posterior
    low, mid, high = (min(most, longest * share ** (-1 / n)) for share in (0.95, 0.5, 0.05))
    return Estimate(low_ms=low, mid_ms=mid, high_ms=high, n=n), follow_up


def _as_classic(default: Costs) -> tuple[Estimate, None, Estimate]:
    """Heartbeat, follow-up round and session that members of a KIP-848 group would have.

    No record of such a group names them: a session is anything between the least that brokers allow
    and what Kafka's clients have by default, and a heartbeat at most a third of it.
    """
    mid = math.sqrt(SHORTEST_SESSION_MS * KAFKA_SESSION_MS)
    session = Estimate(low_ms=SHORTEST_SESSION_MS, mid_ms=mid, high_ms=KAFKA_SESSION_MS)
    beat = float(default.heartbeat_ms)
    return Estimate(low_ms=beat / 10, mid_ms=beat, high_ms=KAFKA_SESSION_MS / 3), None, session


def _middle(values: Sequence[float], *, least: float) -> Estimate:
    """The median, and how far it may be off."""
    mid = max(least, float(np.median(values)))
    spread = max(0.05 * mid, 1.25 * _deviation(values) / math.sqrt(len(values)))
    spread *= NINE_IN_TEN
    return Estimate(
        low_ms=max(least, mid - spread), mid_ms=mid, high_ms=mid + spread, n=len(values)
    )


def _apart(
    seen: Sequence[SeenRebalance], poll: Estimate, heartbeat: Estimate, *, in_step: bool
) -> Estimate:
    """How far apart members notice a rebalance: a poll, or a heartbeat if these are not in step."""
    spreads = [
        (max(one.flushes) - min(one.flushes)) * (len(one.flushes) + 1) / (len(one.flushes) - 1)
        for one in seen
        if len(one.flushes) > 1
    ]
    if not spreads and in_step:
        return Estimate(low_ms=poll.mid_ms, mid_ms=poll.mid_ms, high_ms=poll.high_ms)
    if not spreads:
        return Estimate(
            low_ms=poll.mid_ms, mid_ms=heartbeat.mid_ms / 4, high_ms=0.7 * heartbeat.mid_ms
        )
    found = _mean(spreads, len(spreads))
    low, mid, high = (
        max(poll.low_ms, min(value, heartbeat.high_ms))
        for value in (found.low_ms, found.mid_ms, found.high_ms)
    )
    return Estimate(low_ms=low, mid_ms=mid, high_ms=high, n=found.n)


def _poll(rhythm_ms: float, gaps: Sequence[int], heartbeat: Estimate) -> Estimate:
    """A commit that is due waits for the next poll: by half of the time between two on average."""
    if len(gaps) < 8:
        most = max(20.0, heartbeat.mid_ms)
        return Estimate(low_ms=10, mid_ms=math.sqrt(20 * most), high_ms=most)
    mid = 2 * (rhythm_ms - float(np.quantile(gaps, 0.1)))
    mid = max(20.0, min(mid, rhythm_ms))
    return Estimate(
        low_ms=10, mid_ms=mid, high_ms=min(2 * mid + 40, max(60.0, rhythm_ms)), n=len(gaps)
    )


def _rebuild(seen: Sequence[SeenRebalance], rhythm_ms: float) -> tuple[Estimate, bool]:
    """How long each partition gained keeps a member silent, and whether it is silent at all.

    A member commits a rhythm after a round, or when it has rebuilt and its next commit is due. So
    those who gained most tell, and only silences clearly above the rhythm.
    """
    rows = [(wait, new) for one in seen for wait, _, new in one.waits if new]
    most = 0.75 * max((new for _, new in rows), default=0)
    told = [(wait, new) for wait, new in rows if new >= most]
    if len(told) < 2:
        return Estimate(low_ms=0, mid_ms=2_000, high_ms=10_000), False
    each = [max(0.0, wait - rhythm_ms / 3) / new for wait, new in told]
    mid, n_new = float(np.median(each)), float(np.median([new for _, new in told]))
    noise = rhythm_ms / 3 / n_new / math.sqrt(len(told))
    if float(np.median([wait for wait, _ in told])) < 1.3 * rhythm_ms + 100:
        most = max(5.0, noise)
        return Estimate(low_ms=0, mid_ms=0, high_ms=most, n=len(told)), False
    spread = NINE_IN_TEN * max(noise, 0.04 * mid)
    low = max(0.0, mid - spread)
    return Estimate(low_ms=low, mid_ms=mid, high_ms=mid + spread, n=len(told)), True


def _mean(values: Sequence[float], n: int, *, least: float = 1.0) -> Estimate:
    """The mean, and how far the mean of as many other values may lie from it."""
    mid = float(np.mean(values))
    spread = _deviation(values) * math.sqrt(2 / n) if n > 1 else mid / 2
    spread = NINE_IN_TEN * max(spread, 0.03 * mid)
    return Estimate(
        low_ms=max(least, mid - spread), mid_ms=max(least, mid), high_ms=mid + spread, n=n
    )


def _scaled(one: Estimate, by: float) -> Estimate:
    return Estimate(
        low_ms=one.low_ms * by, mid_ms=one.mid_ms * by, high_ms=one.high_ms * by, n=one.n
    )


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
