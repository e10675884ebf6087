"""The member machine of a configuration, and the work of a member that leads.

**Rules.** ``holdfast.policy`` names a policy (:mod:`holdfast.core.machine.policy`), and
``partition.assignment.strategy`` lists assignors and protocols of designs. Every entry of the list
is sent to the group, in order, so each step of KIP-726's two bounces can be configured. Under the
policy of a design only one assignor computes targets. A policy and a list that contradict each
other are refused. A topic that cannot be described is left out of the round, without other effects.
A leader that cannot look up topics or plan at all lets every member keep what it claims. If a lag
source is slow or fails, the leader plans by counts (the fall-back of KAFKA-5337): no round waits
for lags longer than ``holdfast.lag.timeout.ms``.

References: KIP-429; KIP-726; KIP-881; KAFKA-5337; Incremental Cooperative Rebalancing, "Leader
process".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.cluster.lookup import FoundTopics
from holdfast.cluster.settings import OF_WORKERS, Settings
from holdfast.core.assignors.registry import ASSIGNORS, Named, find
from holdfast.core.machine import actions, events
from holdfast.core.machine.leader.assignor_protocol import (
    Assignor,
    LeaderRound,
    choose_rebalance_protocol,
)
from holdfast.core.machine.leader.designs import (
    CooperativeAssignor,
    DesignAssignor,
    EagerAssignor,
    compute,
    named_in_round,
    read_round,
    stay,
)
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.member.options import LAST_COMMIT_MS, MemberOptions
from holdfast.core.machine.policy import (
    DEFAULTS,
    POLICIES,
    KindPolicy,
    Policy,
    PolicyInfo,
    When,
    find_policy,
    worker_policy,
)
from holdfast.core.machine.supported_protocols import (
    AssignorSpec,
    assignors_for,
    check_agreement,
    computes,
    of_group,
    supported_assignors,
)
from holdfast.core.model.designs import Design
from holdfast.core.model.limits import INT32_MAX
from holdfast.errors import ConfigError, HoldfastError
from holdfast.members.config.own_assignors import resolve, resolve_policy, resolve_target
from holdfast.members.runtime.lag_source import LagSource, TimedLagSource
from holdfast.members.runtime.location import SharedLocations, location_of
from holdfast.members.runtime.member_log import MemberLog
from holdfast.members.runtime.missing_topics import MissingTopics
from holdfast.members.runtime.waits import PlannedWaits

if TYPE_CHECKING:
    from holdfast.core.machine.leader.counts import VersionedCounts

_POLL, _DRAIN = "max.poll.interval.ms", "holdfast.drain.timeout.ms"
Racks = Mapping[str, Sequence[Sequence[str]]]


def policy_of(settings: Settings, listed: Sequence[AssignorSpec] = ()) -> Policy:
    """Return the options of a design.

    Parameters
    ----------
    listed : sequence of str or Assignor
        ``partition.assignment.strategy``, resolved; one assignor of the registry, or of the user,
        computes targets, unless ``holdfast.target.assignor`` names another one.
    """
    alone = [a for a in listed if computes(a)]
    target: Named = alone[0] if len(alone) == len(listed) == 1 else DEFAULTS.assignor
    if (named := settings["holdfast.target.assignor"]) is not None:
        target = resolve_target(named)
    kinds: Mapping[str, Mapping[str, Any]] = settings["holdfast.kinds"]
    policy = Policy(
        delay_ms=settings["scheduled.rebalance.max.delay.ms"],
        first_member=When(settings["holdfast.first.member"]),
        first_member_delay_ms=settings["holdfast.first.member.delay.ms"],
        successor_delay_ms=settings["holdfast.successor.delay.ms"],
        batch=settings["holdfast.incremental.batch"],
        group_batch=settings["holdfast.incremental.group.batch"],
        interval_ms=settings["holdfast.incremental.interval.ms"],
        stabilization_ms=settings["holdfast.damped.stabilization.ms"],
        assignor=target,
        options=settings["holdfast.assignor.options"],
        memory_limit_bytes=settings["holdfast.memory.limit.bytes"],
        record_limit_bytes=settings["holdfast.record.limit.bytes"],
        isolate=bool(settings["holdfast.isolate"]),
        weights={kind: own["weight"] for kind, own in kinds.items() if "weight" in own},
        kinds={kind: _kind_policy(kind, own) for kind, own in kinds.items()},
    )
    _check_targets(policy)
    return policy


def policy_named(settings: Settings) -> PolicyInfo:
    """Return the row of ``holdfast.policy``.

    Raises
    ------
    ConfigError
        If a function cannot be imported, or an object is not a policy.
    """
    return resolve_policy(settings["holdfast.policy"])


def design_of(policy: str | PolicyInfo, who: str) -> Design:
    """Return the design that a policy's name means for one kind, or for a worker.

    Raises
    ------
    ConfigError
        If the policy is not a design, such as ``eager``; the text begins with ``who``.
    """
    runs = worker_policy(policy)
    if runs is None or runs.design is None:
        known = ", ".join(info.name for info in POLICIES.values() if info.worker)
        raise ConfigError(f"{who} takes {known}, found {find_policy(policy).name}")
    return runs.design


def _kind_policy(kind: str, own: Mapping[str, Any]) -> KindPolicy:
    name = own.get("holdfast.policy")
    if name is not None:
        row = resolve_policy(name)
        if row.failback or row.damps or row.resolver is not None:
            raise ConfigError(f"holdfast.kinds: {kind}: {row.name} is a policy of a whole group")
    return KindPolicy(
        design=None if name is None else design_of(name, f"holdfast.kinds: {kind}: a kind"),
        delay_ms=own.get("scheduled.rebalance.max.delay.ms"),
    )


def _check_targets(policy: Policy) -> None:
    """Refuse weights and isolation with an assignor that would ignore them."""
    if not (policy.isolate or policy.weights):
        return
    assignor = find(policy.assignor)
    if not isinstance(policy.assignor, str):
        raise ConfigError(
            f"assignor {assignor.name}: it alone decides the assignment, and takes no "
            "holdfast.isolate and no weights"
        )
    if assignor.uses_lags and policy.weights:
        raise ConfigError(f"holdfast.kinds: {assignor.name} balances by lag, and takes no weights")


def listed_in(settings: Settings) -> tuple[AssignorSpec, ...]:
    """Return the entries of ``partition.assignment.strategy``; none if the user wrote none.

    Raises
    ------
    ConfigError
        If an entry is neither an assignor's name nor a factory or an assignor of the user.
    """
    if "partition.assignment.strategy" not in settings.given:
        return ()
    return tuple(resolve(entry) for entry in settings["partition.assignment.strategy"])


def assignors_of(settings: Settings) -> tuple[Assignor, ...]:
    """Return the assignors that a consumer supports, in order of preference.

    Raises
    ------
    ConfigError
        For an unknown name, or for a list that contradicts ``holdfast.policy`` or that has no
        rebalance protocol in common; for a key of workers.
    """
    for key in sorted(settings.given.intersection(OF_WORKERS)):
        raise ConfigError(f"{key}: only a Worker has work to start and to stop")
    listed = listed_in(settings)
    policy = policy_of(settings, listed)
    row = policy_named(settings)
    if not listed or "holdfast.policy" in settings.given:
        made = assignors_for(row, policy, listed)
        check_agreement(row.name, made)
    else:
        made = supported_assignors(listed, policy)
    choose_rebalance_protocol(made)
    for key in ("holdfast.kinds", "holdfast.isolate"):
        if settings[key] and not any(isinstance(a, DesignAssignor) for a in made):
            raise ConfigError(
                f"{key}: only the leader of a design treats topics by themselves: set "
                "holdfast.policy to deferred or incremental"
            )
    check_leave(settings, made)
    return tuple(of_group(a, settings["group.id"]) for a in made)


def check_leave(settings: Settings, offered_: Sequence[Assignor]) -> None:
    """Refuse ``holdfast.clean.leave=deferred`` if the group never waits for a departed member.

    Such a group always behaves as for ``immediate``. For a static member the key says whether it
    stays in its group until its session ends.
    """
    key = "holdfast.clean.leave"
    is_honoured = settings["group.instance.id"] is not None or any(map(_carries_state, offered_))
    if key in settings.given and settings.comes_back and not is_honoured:
        raise ConfigError(
            f"{key}: found deferred, but no member waits for one that left: set holdfast.policy "
            "to deferred, incremental or failback, or give a group.instance.id"
        )


def uses_lags(assignor: Assignor) -> bool:
    """Return whether the targets of an assignor depend on lags (``uses_lags`` of a user's own)."""
    if isinstance(assignor, DesignAssignor):
        return find(assignor.policy.assignor).uses_lags
    own = assignor.own if isinstance(assignor, EagerAssignor | CooperativeAssignor) else None
    if (row := own or ASSIGNORS.get(assignor.name)) is not None:
        return row.uses_lags
    return bool(getattr(assignor, "uses_lags", False))


def make_member(
    settings: Settings,
    assignors: Sequence[Assignor],
    *,
    protocol_type: str = "consumer",
    polls: bool = True,
) -> Member:
    """Return a machine that has not started.

    Parameters
    ----------
    settings : Settings
        Timeouts, identity, commit rules.
    protocol_type : str
        Protocol type of the group; all members must agree.
    polls : bool
        Whether the application polls, so that ``max.poll.interval.ms`` detects that it stopped.
    """
    poll_ms: int = settings["max.poll.interval.ms"]
    beat_ms: int = settings["heartbeat.interval.ms"]
    drain_ms: int | None = settings["holdfast.drain.timeout.ms"]
    is_shorter = drain_ms is not None and drain_ms < poll_ms
    drain = _DRAIN if is_shorter else _POLL
    options = MemberOptions(
        protocol_type=protocol_type,
        instance_id=settings["group.instance.id"],
        rack=settings["client.rack"] or None,
        session_timeout_ms=settings["session.timeout.ms"],
        heartbeat_interval_ms=beat_ms,
        # A round begins up to a heartbeat before the member is notified, and ends for the member
        # with its last commit. A shorter time would expel a member that is in time.
        rebalance_timeout_ms=min(poll_ms + beat_ms + LAST_COMMIT_MS, INT32_MAX),
        max_poll_interval_ms=poll_ms if polls else 0,
        drain_timeout_ms=max(1, settings[drain]),
        drain_setting=settings.word(drain),
        poll_setting=settings.word(_POLL),
        request_timeout_ms=settings["request.timeout.ms"],
        retry_backoff_ms=max(1, settings["retry.backoff.ms"]),
        retry_backoff_max_ms=max(1, settings["retry.backoff.max.ms"]),
        error_timeout_ms=settings["holdfast.error.timeout.ms"],
        auto_commit=polls and settings["enable.auto.commit"],
        announce_leave=frozenset(a.name for a in assignors if _carries_state(a)),
        location=location_of(settings),
    )
    return Member(assignors, options)


def _carries_state(assignor: Assignor) -> bool:
    """Return whether an assignor's leader keeps state, and so waits for departed members."""
    return isinstance(assignor, DesignAssignor) and assignor.policy.carries_state


class Leadership:
    """Plans the rounds of a member that leads.

    Parameters
    ----------
    settings : Settings
        Settings with the time-out of the lag source.
    count_partitions : callable
        Takes topics; returns their current partition counts, and the reason for each missing topic.
    lag_source : callable, optional
        Called if the assignor uses lags.
    find_racks : callable, optional
        Takes topics; returns the racks with a replica of each of their partitions. Called when a
        member has a rack.
    version : callable, optional Returns the version of a worker's own resources.
    log : MemberLog, optional The log of the member.
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
        self._log = log or MemberLog(settings)
        self._assignors = assignors
        self._count = count_partitions
        self._ask = TimedLagSource(lag_source, settings["holdfast.lag.timeout.ms"], log=self._log)
        self._find_racks = find_racks
        self._version = version
        self.newest_version: int | None = None  # reported in the last round
        self._missing = MissingTopics(self._log)
        self._wants_lags = any(map(uses_lags, assignors))
        self.waits = PlannedWaits(self._log)
        self._shared = SharedLocations(settings, self._log)

    def compute(self, request: actions.ComputeAssignment) -> events.AssignmentComputed:
        """Plan a round; topics of other members are looked up."""
        done = self._computed(request)
        self.waits.note(request, done)
        return done

    def _computed(self, request: actions.ComputeAssignment) -> events.AssignmentComputed:
        counts = dict(request.partitions)
        try:
            done = self._planned(request, counts)
        except (HoldfastError, TimeoutError) as error:
            done = stay(self._assignors, _of_existing(request, counts), error)
        except Exception as error:  # our bug; the group continues
            self._log.exception("the leader's plan failed")
            done = stay(self._assignors, _of_existing(request, counts), error)
        return replace(done, partitions=tuple(sorted(counts.items())))

    def _planned(
        self, request: actions.ComputeAssignment, counts: dict[str, int]
    ) -> events.AssignmentComputed:
        """Plan with ``counts``, which get the topics of the round; 0 for a missing topic."""
        known = {topic: count for topic, count in counts.items() if count}
        topics = frozenset(named_in_round(request))
        counts.clear()
        counts |= {topic: known.get(topic, 0) for topic in topics}
        refused: Mapping[str, int] = {}
        if not topics <= known.keys():
            found = self._count(topics)
            counts |= {topic: n for topic, n in found.counts.items() if topic in topics}
            refused = {t: code for t, code in found.refused.items() if not counts.get(t, 1)}
        self._missing.warn(refused, request.members, request.member_id)
        fresh = _of_existing(request, counts)
        existing = dict(fresh.partitions)
        lags = self._ask(existing) if self._wants_lags else None
        leader_round = read_round(self._assignors, fresh)
        self._shared.warn(
            leader_round.said or ()
        )  # under a stock assignor no member sends its location
        if self._version is not None:
            leader_round = replace(leader_round, newer=self._newer(leader_round, self._version()))
        racks = self._racks(existing) if leader_round.has_racks else None
        return compute(self._assignors, fresh, lags=lags, racks=racks, leader_round=leader_round)

    def _newer(self, leader_round: LeaderRound, own: int | None) -> VersionedCounts | None:
        """Return the group's newest version if newer than this leader's; log it once."""
        from holdfast.core.machine.leader.counts import newest_reported

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


def _of_existing(
    request: actions.ComputeAssignment, counts: Mapping[str, int]
) -> actions.ComputeAssignment:
    """Return the request with the counts of the topics that exist, sorted by name."""
    return replace(request, partitions=tuple(sorted((t, n) for t, n in counts.items() if n)))


def _fitting(found: Racks, counts: Mapping[str, int]) -> Racks:
    """Return racks for exactly the counted partitions: a topic may grow between two requests."""
    return {
        topic: [found[topic][p] if p < len(found.get(topic, ())) else () for p in range(count)]
        for topic, count in counts.items()
    }
