"""A group's trace as plain data: sessions of members, and the events in them.

**Rules.** A trace contains values only, and is sent to a worker whole. A *slot* is one member id;
an *identity* is a member that stays the same over restarts.
:mod:`holdfast.fleet.pipeline.replay.trace_builder` turns records into a trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

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

    Parameters
    ----------
    partitions : dict of str to int
        Topics at the start.
    slots : tuple of int
        Members of the first generation.
    events : tuple of TraceEvent
        Ordered by time; 0 ms is the record of the first generation.
    generations : tuple of tuple of int
        Identities of the members of each recorded generation, without the first.
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
