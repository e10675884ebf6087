"""The work of a member that leads: it plans assignments, and logs what they leave out.

**Rules.** A topic that cannot be described is left out of the rebalance, without other effects. A
leader that cannot look up topics or plan at all lets every member keep what it claims. If a lag
source is slow, fails, or returns lags that do not fit, the leader plans by counts (the fall-back of
KAFKA-5337): no rebalance waits for lags longer than ``holdfast.lag.timeout.ms``. Only a leader
requests lags, once a rebalance.

References: KIP-429, "Consumer leader"; KIP-726; KIP-881; KAFKA-5337; Incremental Cooperative
Rebalancing, "Leader process", Designs II and III; Kafka's ConsumerCoordinator,
``onLeaderElected``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.cluster.lookup import FoundTopics
from holdfast.core.assignors.registry import ASSIGNORS, find
from holdfast.core.machine import actions, events
from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.codes import ErrorCode, describe
from holdfast.core.machine.events import AssignmentComputed, JoinedMember
from holdfast.core.machine.leader.assignor_protocol import Assignor, LeaderRound
from holdfast.core.machine.leader.designs import (
    CooperativeAssignor,
    DesignAssignor,
    EagerAssignor,
    compute,
    read_round,
    stay,
)
from holdfast.core.machine.leader.subscriptions import subscribers_of
from holdfast.errors import HoldfastError
from holdfast.members.config.own_assignors import TimedFunction
from holdfast.members.config.settings import Settings
from holdfast.members.metrics import DelayedPartitions
from holdfast.members.runtime.member_status import NAME, Log, MemberLog

if TYPE_CHECKING:
    from holdfast.core.machine.leader.subscriptions import SubscribedMember, VersionedCounts


Lags = Mapping[str, Sequence[int]]
LagSource = Callable[[Mapping[str, int]], Lags]
"""Takes partition counts; returns lags in messages, one a partition. A leader calls it."""

Racks = Mapping[str, Sequence[Sequence[str]]]

LAG_TIMEOUT_MS = 2_000
_SHOWN, _SOON_S = 5, 1.0
MAX_REPORTED = 10
_MOST_NAMES = 3
_LONGEST = 249  # characters of a topic's name that Kafka allows

_REASONS: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "this leader may not describe it (TOPIC_AUTHORIZATION_FAILED); grant DESCRIBE on the topic "
        "to the principal of every member, since each of them may lead"
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist (UNKNOWN_TOPIC_OR_PARTITION)",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "no topic can have this name (INVALID_TOPIC_EXCEPTION)",
}


class LeaderPlanner:
    """Plans the assignments of a group for the member that leads it.

    Parameters
    ----------
    count_partitions : callable
        Takes topics; returns their current partition counts, and the reason for each missing topic.
    find_racks : callable, optional
        Takes topics; returns the racks with a replica of each of their partitions. Called when a
        member has a rack.
    version : callable, optional
        Returns the version of a worker's own resources.
    """

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        count_partitions: Callable[[frozenset[str]], FoundTopics],
        *,
        lag_source: LagSource | None = None,
        find_racks: Callable[[frozenset[str]], Racks] | None = None,
        version: Callable[[], int | None] | None = None,
        log: MemberLog | None = None,
    ):
        self.log = self._log = log or MemberLog(settings)
        self._assignors = assignors
        self._count = count_partitions
        self._lags = timed_lag_source(lag_source, settings["holdfast.lag.timeout.ms"], self._log)
        self._find_racks = find_racks
        self._version = version
        self.newest_version: int | None = None  # reported in the last rebalance
        self._warnings = LeaderWarnings(settings, self._log)
        self._wants_lags = any(map(uses_lags, assignors))
        self.delays = PlannedDelays(self._log)

    def compute(self, request: actions.ComputeAssignment) -> events.AssignmentComputed:
        """Plan a rebalance; topics of other members are looked up."""
        counts = dict(request.partitions)
        try:
            self._look_up(request, counts)
            fresh = _with_existing(request, counts)
            existing = dict(fresh.partitions)
            lags = self._lags(existing) if self._wants_lags else None
            leader_round = read_round(self._assignors, fresh)
            if leader_round.said:  # under a stock assignor no member sends its location
                self._warnings.log_shared_locations(leader_round.said)
            if self._version is not None:
                newer = self._newer_version(leader_round, self._version())
                leader_round = replace(leader_round, newer=newer)
            racks = self._racks(existing) if leader_round.has_racks else None
            done = compute(
                self._assignors, fresh, lags=lags, racks=racks, leader_round=leader_round
            )
        except (HoldfastError, TimeoutError) as error:
            done = stay(self._assignors, _with_existing(request, counts), error)
        except Exception as error:  # our bug; the group continues
            self._log.exception("the leader's plan failed")
            done = stay(self._assignors, _with_existing(request, counts), error)
        done = replace(done, partitions=tuple(sorted(counts.items())))
        self.delays.record(request, done)
        return done

    def _look_up(self, request: actions.ComputeAssignment, counts: dict[str, int]) -> None:
        """Replace ``counts`` by those of the rebalance's topics; 0 for a missing topic."""
        from holdfast.core.machine.leader.leader_round import named_in_round

        known = {topic: count for topic, count in counts.items() if count}
        topics = frozenset(named_in_round(request))
        counts.clear()
        counts |= {topic: known.get(topic, 0) for topic in topics}
        refused: Mapping[str, int] = {}
        if not topics <= known.keys():
            found = self._count(topics)
            counts |= {topic: n for topic, n in found.counts.items() if topic in topics}
            refused = {t: code for t, code in found.refused.items() if not counts.get(t, 1)}
        self._warnings.log_left_out(refused, request.members, request.member_id)

    def _newer_version(self, leader_round: LeaderRound, own: int | None) -> VersionedCounts | None:
        """Return the group's newest version if newer than this leader's; log it once."""
        from holdfast.core.machine.leader.subscriptions import newest_reported

        newest = newest_reported(leader_round.subscribed_members())
        before, self.newest_version = self.newest_version, newest.version if newest else None
        if newest is None or newest.version <= (-1 if own is None else own):
            return None
        if newest.version != before:
            self._log.warning(
                "this leader has %s of the resources, and another worker version %d: new ones run "
                "on the workers that report that version, and removed ones stay where they are, "
                "until this worker gets that version or leaves",
                "no version" if own is None else f"version {own}",
                newest.version,
            )
        return newest

    def _racks(self, counts: Mapping[str, int]) -> Racks | None:
        if self._find_racks is None:
            return None
        try:
            return _fitting(self._find_racks(frozenset(counts)), counts)
        except (HoldfastError, TimeoutError) as error:
            self._log.warning("racks are not known (%s): this round is planned without", error)
            return None


def _with_existing(
    request: actions.ComputeAssignment, counts: Mapping[str, int]
) -> actions.ComputeAssignment:
    """Return the request with the counts of the topics that exist, sorted by name."""
    return replace(request, partitions=tuple(sorted((t, n) for t, n in counts.items() if n)))


def _fitting(racks: Racks, counts: Mapping[str, int]) -> Racks:
    """Return racks for exactly the counted partitions: a topic may grow between two requests."""
    return {
        topic: [racks[topic][p] if p < len(racks.get(topic, ())) else () for p in range(count)]
        for topic, count in counts.items()
    }


class PlannedDelays:
    """The delayed rebalances of a leader's plan, for the log and for metrics.

    The log has one line when the wait for a departed member begins, one when it ends, and none in
    between. A new leader logs the waits that it finds as if they had just begun. A failed plan
    changes nothing. Written on one thread, read on any.
    """

    def __init__(self, log: Log):
        self._log = log
        self.n_reassigned = 0  # partitions that others have until their members are back
        # Time of the last plan by the monotonic clock, and its delays by identity.
        self._last: tuple[float, Mapping[str, DelayedPartitions]] = 0.0, {}
        self._members: tuple[JoinedMember, ...] = ()  # for which that plan was made

    def read(self) -> tuple[DelayedPartitions, ...]:
        """Return the current delays."""
        planned_s, delays = self._last
        age_s = time.monotonic() - planned_s
        return tuple(
            replace(delay, seconds_left=max(0.0, delay.seconds_left - age_s))
            for delay in delays.values()
        )

    def record(self, request: ComputeAssignment, done: AssignmentComputed) -> None:
        """Record a plan."""
        if done.failure is not None:
            return
        self.n_reassigned = sum(len(own) for who in done.reassigned for _, own in who.owned or ())
        if request.led is None:  # other members may have led since
            self._last, self._members = (0.0, {}), ()
        if done.waiting or self._last[1]:
            self._compare(request, done)
        self._members = request.members

    def _compare(self, request: ComputeAssignment, done: AssignmentComputed) -> None:
        now_s, (before_s, before) = time.monotonic(), self._last
        keys = [_key(wait.identity, before) for wait in done.waiting]
        names = _names(self._members) if {*keys} - before.keys() else {}
        now: dict[str, DelayedPartitions] = {}
        for key, wait in zip(keys, done.waiting, strict=True):
            name = before[key].departed if key in before else _name(key, names, wait.static)
            own, left_s = dict(wait.owned or ()), wait.delay_ms / 1000
            if (other := now.get(key)) is not None:  # of a kind with a delay of its own
                own, left_s = {**other.partitions, **own}, max(left_s, other.seconds_left)
            now[key] = DelayedPartitions(departed=name, partitions=own, seconds_left=left_s)
        self._last = now_s, now
        for key, delay in now.items():
            if key not in before:
                end = datetime.now(UTC) + timedelta(seconds=delay.seconds_left)
                self._log.info(
                    "waiting for %s until %s UTC (%.0f s): %s",
                    delay.departed,
                    f"{end:%H:%M:%S}",
                    delay.seconds_left,
                    _shown(delay.partitions),
                )
        if ended := before.keys() - now.keys():
            present = _names(request.members)
            for key in sorted(ended):
                left_s = before[key].seconds_left - (now_s - before_s)
                why = _reason_of_end(key, present, left_s)
                self._log.info("the wait for %s is over: %s", before[key].departed, why)


def _key(identity: str, before: Iterable[str]) -> str:
    """Return the key of a known delay: plans cut one identity to different lengths."""
    from holdfast.core.machine.leader.subscriptions import alike

    return next((key for key in before if key == identity or alike(key, identity)), identity)


def _reason_of_end(identity: str, present: Mapping[str, str], left_s: float) -> str:
    if identity and any(each.startswith(identity) for each in present):
        return "it is back"
    if left_s < _SOON_S:
        return "its time is up"
    return "others have taken what waited"


def _names(members: Iterable[JoinedMember]) -> dict[str, str]:
    """Return names of members by their identities in the leader state."""
    from holdfast.core.machine.leader.subscriptions import identities_of, subscribed_members

    subscribed = subscribed_members(tuple(members), "", 0)
    return {whole: m.instance_id or m.member_id for m in subscribed for whole in identities_of(m)}


def _name(identity: str, names: Mapping[str, str], static: bool) -> str:
    if not identity:
        return "the first members" if static else "an unknown member"
    from holdfast.core.machine.leader.subscriptions import shown

    known = (name for whole, name in names.items() if whole.startswith(identity))
    return next(known, f"member {shown(identity)}")


def _shown(partitions: Mapping[str, tuple[int, ...]]) -> str:
    every = [f"{topic}-{number}" for topic, own in sorted(partitions.items()) for number in own]
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return f"{', '.join(every[:_SHOWN])}{more}"


class LeaderWarnings:
    """The warnings of a leader about members that rebalance and topics without an owner.

    A topic that is left out affects only its own subscribers. A topic is logged once, and again
    when the reason or the members change. A topic that does not exist, and that the leader
    subscribes to, is left to the leader's metadata watch, which names the nearest existing topic. A
    plan logs at most :data:`MAX_REPORTED` lines, so that one member with ten thousand names does
    not fill a log. Several members with one location are logged once.
    """

    def __init__(self, settings: Settings, log: Log):
        self._log = log
        self._words = settings.user_name("holdfast.location"), settings.user_name("client.id")
        self._reported: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._has_reported_locations = False

    def log_left_out(
        self, refused: Mapping[str, int], members: Sequence[JoinedMember], leader: str
    ) -> None:
        """Log what has changed about topics that are left out.

        ``refused`` has Kafka's error code of every topic that is left out of this rebalance.
        """
        if not refused:
            self._reported = {}
            return
        subscribers = subscribers_of(members, refused)
        now = {
            topic: (refused[topic], subscribers.get(topic, ()))
            for topic in sorted(refused)
            if subscribers.get(topic)  # named by a message that cannot be read: no member needs it
            and not (
                refused[topic] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                and leader in subscribers.get(topic, ())
            )
        }
        changed = [topic for topic in now if self._reported.get(topic) != now[topic]]
        self._reported = now
        for topic in changed[:MAX_REPORTED]:
            code, member_ids = now[topic]
            self._log.warning(
                "topic %s gets no owner in this round: %s; subscribed by %s",
                _quoted(topic),
                _REASONS.get(code) or describe(code),
                _member_names(member_ids),
            )
        if len(changed) > MAX_REPORTED:
            self._log.warning("and %d more topics get no owner", len(changed) - MAX_REPORTED)

    def log_shared_locations(self, members: Iterable[SubscribedMember]) -> None:
        """Warn if several members have one location."""
        from holdfast.core.machine.leader.subscriptions import shared_locations

        if self._has_reported_locations or not (shared := shared_locations(members)):
            return
        self._has_reported_locations = True
        alike = shared[0]
        more = f" and {len(alike) - _SHOWN} more" if len(alike) > _SHOWN else ""
        self._log.warning(
            "%d members have one host name and one %s: %s%s. After the group has grown, a restart "
            "of one of them looks like the end of a process that was replaced, and its partitions "
            "move. Set %s, different for each process and the same after its restart",
            len(alike),
            self._words[1],
            ", ".join(alike[:_SHOWN]),
            more,
            self._words[0],
        )


def _quoted(name: str) -> str:
    """Return another member's name, quoted and cut to the length limit of topic names."""
    return repr(name) if len(name) <= _LONGEST else f"{name[:_LONGEST]!r}..."


def _member_names(member_ids: tuple[str, ...]) -> str:
    rest = len(member_ids) - _MOST_NAMES
    names = ", ".join(map(_quoted, member_ids[:_MOST_NAMES]))
    return f"{names} and {rest} more members" if rest > 0 else names


def timed_lag_source(
    source: LagSource | None, timeout_ms: int = LAG_TIMEOUT_MS, log: Log | None = None
) -> LagSource:
    """Return a lag source that waits for ``source`` within a time-out, and never raises.

    If there is no source, or none that returns lags that fit, all lags are 0, and the log gets a
    warning. A source that is still busy with an earlier request gets no new one.
    """
    log = log or logging.getLogger(NAME)
    in_time = None if source is None else TimedFunction("lags", source, timeout_ms)

    def lags_of(partitions: Mapping[str, int]) -> Lags:
        reason = "no holdfast.lag.source"
        if in_time is not None:
            try:
                return _checked_lags(in_time(partitions), partitions)
            except Exception as error:  # whatever the source does, the plan continues
                reason = str(error) or type(error).__name__
        log.warning("lags are not known (%s): this round is planned by counts", reason)
        return {topic: [0] * count for topic, count in partitions.items()}

    return lags_of


def _checked_lags(given: Lags, partitions: Mapping[str, int]) -> Lags:
    """Return the lags that a source gave, with 0 for topics that the source does not know."""
    lags: dict[str, Sequence[int]] = {}
    for topic, count in partitions.items():
        of_topic = [int(n) for n in given[topic]] if topic in given else [0] * count
        if len(of_topic) != count or min(of_topic, default=0) < 0:
            raise ValueError(f"{topic}: {count} lags of 0 or more expected, found {of_topic}")
        lags[topic] = of_topic
    return lags


def uses_lags(assignor: Assignor) -> bool:
    """Return whether the targets of an assignor depend on lags (``uses_lags`` of a user's own)."""
    if isinstance(assignor, DesignAssignor):
        return find(assignor.policy.assignor).uses_lags
    own = assignor.own if isinstance(assignor, EagerAssignor | CooperativeAssignor) else None
    if (row := own or ASSIGNORS.get(assignor.name)) is not None:
        return row.uses_lags
    return bool(getattr(assignor, "uses_lags", False))
