"""A group's trace as plain data, and the settings to replay it under.

**Rules.** A trace contains values only, and is sent to a worker whole. A *slot* is one member id;
an *identity* is a member that stays the same over restarts.
:mod:`holdfast.fleet.pipeline.replay.trace_builder` turns records into a trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from holdfast.core.assignors.registry import ASSIGNORS, for_protocol
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.policy import DEFAULTS, POLICIES, Policy, find_policy, policy_of_protocol
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.model.constants import INT32_MAX
from holdfast.errors import ConfigError
from holdfast.sim import BASELINES

SESSION_MS: Final = 45_000
"""Where no record has a session: the default of Kafka's clients, and of its brokers (KIP-848)."""
RESTART_MS: Final = 10_000
"""Where no record shows an absence: from the end of a killed process to its next start."""


class EventType(StrEnum):
    """Types of events in a trace."""

    START = "start"
    STOP = "stop"
    CRASH = "crash"
    SUBSCRIBE = "subscribe"
    RESIZE = "resize"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One thing that happens: ``event_type`` to a slot (or to ``topics[0]``: ``count`` partitions).

    ``expired``: a static member starts as soon as the coordinator has removed it. ``returns``: a
    static member stops without leaving the group, to come back.
    """

    at_ms: int
    event_type: EventType
    slot: int = -1
    topics: tuple[str, ...] = ()
    count: int = 0
    expired: bool = False
    returns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """Generations with members, one after the other.

    ``partitions`` are those at the start, ``slots`` the members of the first generation. Events are
    ordered; 0 ms is the record of the first generation. ``generations`` has identities of the
    members of each recorded generation, without the first.
    """

    partitions: dict[str, int]
    slots: tuple[int, ...]
    events: tuple[TraceEvent, ...]
    generations: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTrace:
    """Trace of one group.

    Parameters
    ----------
    protocol : str or None
        The assignor of most generations.
    cooperative : bool
        Whether members keep working through a rebalance.
    static : bool
        Whether every member has an instance id; a slot is then an identity and may start again.
    subscribed : dict of int to tuple of str
        Topics to which each slot subscribes when it starts.
    session_ms, rebalance_ms : int
        Timeouts of the members, -1 if unknown.
    delay_ms : int
        Delay of lost partitions, from the group's own assignments; -1 if unknown.
    client : str
        Client of its members, as far as the records show
        (:func:`holdfast.fleet.pipeline.replay.trace_builder.client_of`).
    n_partitions : int
        Most partitions that had an owner at once.
    moved : int
        Partitions that moved to another identity.
    gap_lower_seconds, gap_upper_seconds : float
        Partition-seconds without an owner, as in ``rebalances``.
    kip848 : bool
        Whether its last generation is that of a KIP-848 group.
    refused : str
        Why the group has no replay; empty if it has one.
    workers : bool
        Whether the members own resources, replayed as partitions, with their kinds as topics.
    imitated_by : str
        The policy that is nearest to that of the group's own leader, if it is none of ours.
    """

    group: str
    protocol: str | None
    cooperative: bool
    static: bool
    identities: tuple[int, ...]
    subscribed: dict[int, tuple[str, ...]]
    session_ms: int
    rebalance_ms: int
    delay_ms: int
    n_partitions: int
    moved: int
    gap_lower_seconds: float
    gap_upper_seconds: float
    sessions: tuple[RecordedSession, ...]
    lags: dict[str, tuple[int, ...]] = field(default_factory=dict)
    note: str = ""
    client: str = ""
    kip848: bool = False
    refused: str = ""
    workers: bool = False
    imitated_by: str = ""

    @property
    def n_events(self) -> int:
        """Number of events in all sessions."""
        return sum(len(session.events) for session in self.sessions)

    @property
    def n_rebalances(self) -> int:
        """Number of recorded rebalances to be replayed."""
        return sum(len(session.generations) for session in self.sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """Settings to replay a trace under.

    Numbers are those of :class:`~holdfast.core.machine.policy.Policy`. ``actual``: they are those
    of the group itself, as far as the records show.
    """

    policy: str
    assignor: str
    delay_ms: int = 0
    batch: int = DEFAULTS.batch
    interval_ms: int = DEFAULTS.interval_ms
    actual: bool = False

    @property
    def defers(self) -> bool:
        """Whether lost partitions are delayed."""
        return self.policy not in BASELINES and find_policy(self.policy).defers

    @property
    def paces(self) -> bool:
        """Whether moves come in batches."""
        return self.policy not in BASELINES and "batch" in find_policy(self.policy).options


def supported_assignors(setting: ReplaySettings) -> tuple[Assignor, ...]:
    """Return the assignors of members under the settings of a policy, or raise a ConfigError."""
    row = find_policy(setting.policy)
    name: str | None = setting.assignor
    if row.design is None:
        name = for_protocol(setting.assignor, cooperative=row.cooperative)
    if name is None:
        raise ConfigError(f"{setting.assignor} has no cooperative form; use holdfast-simple")
    options = Policy(
        delay_ms=setting.delay_ms, batch=setting.batch, interval_ms=setting.interval_ms
    )
    return assignors_for(setting.policy, options, (name,))


def actual_setting(trace: GroupTrace, default_delay_ms: int) -> tuple[ReplaySettings, str]:
    """Return the settings of the group itself, and a note if they are a guess."""
    protocol, note = trace.protocol or "", ""
    if trace.kip848:
        return ReplaySettings(policy="kip848", assignor=protocol or "uniform", actual=True), ""
    if trace.refused:
        name = "simple" if trace.cooperative else "eager"
        return ReplaySettings(policy=name, assignor=protocol, actual=True), ""
    if trace.imitated_by:
        policy = trace.imitated_by
        assignor = find_policy(policy).assignors[0]
        note = f"its leader is replayed as the nearest policy, {policy}"
    else:
        row = policy_of_protocol(protocol)
        if row is None:
            row = POLICIES["simple" if trace.cooperative else "eager"]
            note = f"the assignor {protocol!r} is not known here: replayed as the nearest one"
        policy, assignor = row.name, protocol if protocol in ASSIGNORS else row.assignors[0]
    made = ReplaySettings(policy=policy, assignor=assignor, actual=True)
    if made.defers and trace.delay_ms < 0:
        return replace(made, delay_ms=default_delay_ms), "the delay is a guess"
    return replace(made, delay_ms=min(trace.delay_ms, INT32_MAX) if made.defers else 0), note
