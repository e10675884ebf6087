"""From a configuration to a member machine, and the work of a member that leads.

**Rules.** ``holdfast.policy`` names the design; ``partition.assignment.strategy`` names assignors
of the registry. Under ``simple`` (Design I inside the standard protocol) and ``eager`` every name
is offered to the group, in order, so KIP-726's two bounces can be configured; under ``deferred``
and ``incremental`` the one name is what computes targets. A leader whose lag source is slow or
broken plans by counts (KAFKA-5337's fall-back): no round waits for lags longer than
``holdfast.lag.timeout.ms``.

References
----------
KIP-429; KIP-726; KAFKA-5337; Incremental Cooperative Rebalancing, "Leader process".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from holdfast.adapters.settings import Settings
from holdfast.assign.registry import find
from holdfast.errors import ConfigError, WireError
from holdfast.machine import actions, events
from holdfast.machine.designs import Assignor, CooperativeSticky, Designed, Plain, compute
from holdfast.machine.member import Member
from holdfast.machine.options import MemberOptions
from holdfast.machine.policy import Policy, When
from holdfast.wire.consumer_protocol import decode_subscription
from holdfast.wire.incremental import Design

log = logging.getLogger("holdfast.member")

Lags = Mapping[str, Sequence[int]]
LagSource = Callable[[Mapping[str, int]], Lags]
"""Takes partition counts, returns messages behind, one a partition; called by a leader."""

NEEDS_LAGS = frozenset({"lag", "lag-sticky"})
_DEFAULT_STRATEGY = ("cooperative-sticky",)


def policy_of(settings: Settings) -> Policy:
    """Return the settings of a design."""
    names: tuple[str, ...] = settings["partition.assignment.strategy"]
    incremental = settings["holdfast.policy"] == "incremental"
    return Policy(
        design=Design.INCREMENTAL if incremental else Design.DEFERRED,
        delay_ms=settings["scheduled.rebalance.max.delay.ms"],
        first_member=When(settings["holdfast.first.member"]),
        clean_leave=When(settings["holdfast.clean.leave"]),
        batch=settings["holdfast.incremental.batch"],
        interval_ms=settings["holdfast.incremental.interval.ms"],
        assignor=names[0],
        options=settings["holdfast.assignor.options"],
    )


def assignors_of(settings: Settings) -> tuple[Assignor, ...]:
    """Return what a member offers to its group, in order of preference.

    Raises
    ------
    ConfigError
        For a name that is not in the registry, or names that do not go with the policy.
    """
    policy: str = settings["holdfast.policy"]
    names: tuple[str, ...] = settings["partition.assignment.strategy"]
    for name in names:
        find(name)
    if policy in ("deferred", "incremental"):
        if len(names) > 1:
            raise ConfigError(
                f"partition.assignment.strategy: holdfast.policy={policy} takes one assignor, "
                f"found {', '.join(names)}"
            )
        return (Designed(policy_of(settings)),)
    if policy == "eager" and names == _DEFAULT_STRATEGY:
        names = ("range",)
    options = settings["holdfast.assignor.options"]
    offered = tuple(_offer(name, options) for name in names)
    if policy == "eager" and any(isinstance(a, CooperativeSticky) for a in offered):
        raise ConfigError(
            "partition.assignment.strategy: cooperative-sticky needs holdfast.policy=simple"
        )
    return offered


def _offer(name: str, options: Mapping[str, object]) -> Assignor:
    if name == "cooperative-sticky":
        return CooperativeSticky(options=dict(options))
    return Plain(name, dict(options))


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
        Times, identity, commit rules.
    assignors : sequence of Assignor
        What it offers, in order of preference.
    protocol_type : str
        The group's; all members must agree.
    polls : bool
        Whether the application polls, so that ``max.poll.interval.ms`` can tell that it stopped.
    """
    poll_ms: int = settings["max.poll.interval.ms"]
    options = MemberOptions(
        protocol_type=protocol_type,
        instance_id=settings["group.instance.id"],
        rack=settings["client.rack"] or None,
        session_timeout_ms=settings["session.timeout.ms"],
        heartbeat_interval_ms=settings["heartbeat.interval.ms"],
        rebalance_timeout_ms=poll_ms,
        max_poll_interval_ms=poll_ms if polls else 0,
        drain_timeout_ms=max(1, min(settings["holdfast.drain.timeout.ms"], poll_ms)),
        request_timeout_ms=settings["request.timeout.ms"],
        retry_backoff_ms=max(1, settings["retry.backoff.ms"]),
        retry_backoff_max_ms=max(1, settings["retry.backoff.max.ms"]),
        auto_commit=polls and settings["enable.auto.commit"],
        announce_leave=settings["holdfast.policy"] in ("deferred", "incremental"),
    )
    return Member(assignors, options)


class Leadership:
    """What a member does when it leads.

    Parameters
    ----------
    settings : Settings
        The lag source and its time-out.
    assignors : sequence of Assignor
        The member's own.
    count_partitions : callable
        Partition counts of these topics, as of now.
    """

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        count_partitions: Callable[[frozenset[str]], Mapping[str, int]],
    ):
        self._assignors = assignors
        self._count = count_partitions
        self._source: LagSource | None = settings["holdfast.lag.source"]
        self._timeout_s: float = settings["holdfast.lag.timeout.ms"] / 1000
        self._strategies = {*settings["partition.assignment.strategy"]}
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="holdfast-lags")

    def compute(self, request: actions.ComputeAssignment) -> events.AssignmentComputed:
        """Plan a round; other members' topics are looked up, not guessed."""
        known = dict(request.partitions)
        wanted = subscribed_topics(request.members)
        if not wanted <= known.keys():
            known = {**known, **self._count(wanted)}
        fresh = actions.ComputeAssignment(
            token=request.token,
            generation=request.generation,
            protocol_name=request.protocol_name,
            members=request.members,
            partitions=tuple(sorted((t, n) for t, n in known.items() if t in wanted)),
            member_id=request.member_id,
            waited_ms=request.waited_ms,
        )
        return compute(self._assignors, fresh, lags=self._lags(dict(fresh.partitions)))

    def _lags(self, partitions: Mapping[str, int]) -> Lags | None:
        if not NEEDS_LAGS & self._strategies:
            return None
        zero = {topic: [0] * count for topic, count in partitions.items()}
        if self._source is None:
            log.warning("no holdfast.lag.source: this round is planned by counts")
            return zero
        future = self._asking.submit(self._source, partitions)
        try:
            found = future.result(self._timeout_s)
        except Exception as error:  # whatever the source does, the round goes on
            future.cancel()
            reason = str(error) or type(error).__name__
            log.warning("lags are not known (%s): this round is planned by counts", reason)
            return zero
        return {**zero, **{topic: found[topic] for topic in zero if topic in found}}

    def close(self) -> None:
        """Ask for no more lags."""
        self._asking.shutdown(wait=False, cancel_futures=True)


def subscribed_topics(members: Sequence[events.JoinedMember]) -> frozenset[str]:
    """Return every topic that some member subscribes to; unreadable subscriptions name none."""
    topics: set[str] = set()
    for metadata in {member.metadata for member in members}:
        try:
            topics.update(decode_subscription(metadata).topics)
        except WireError:
            continue
    return frozenset(topics)
