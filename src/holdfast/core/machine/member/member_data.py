"""The settings and the state of a member: plain records, and values derived from them.

**Rules.**

- :class:`MemberData` holds facts. :mod:`holdfast.core.machine.member.member` and
  :mod:`holdfast.core.machine.member.answers` decide what happens next.
- The first three fields are settings and stay as they are. ``holdings`` is a record like this one.
  Every other field holds an immutable value, so that a tuple of the values is a copy of the state.
- ``now_ms`` and every field that ends in ``_ms`` are times of one monotonic clock.

References: KIP-62, KIP-345, KIP-429; Incremental Cooperative Rebalancing, "Member process".
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.machine.events import LeaveRequested
from holdfast.core.machine.leader.assignor_protocol import Assignor, RebalanceProtocol
from holdfast.core.machine.member.holdings import Holdings, ordered
from holdfast.core.machine.shared_values import Identity
from holdfast.core.machine.states import ENDED, MemberState
from holdfast.core.model.constants import INT32_MAX
from holdfast.core.model.partitions import Resource
from holdfast.errors import ConfigError

NO_REQUEST = -(2**31)
"""Value instead of a request number or a token: no answer is awaited."""

NEVER_MS = 2**62
"""Value instead of a time: not before the next event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSize:
    """The size of a group's record as its leader knows it."""

    # Bytes of all members' messages; names and addresses of the members come on top.
    subscription_bytes: int = 0
    assignment_bytes: int = 0
    largest_bytes: int = 0  # size of the largest message
    largest: str = ""  # its kind and its member's id


@dataclass(slots=True, kw_only=True)
class MemberData:
    """The state of a member."""

    assignors: tuple[Assignor, ...]  # in order of preference
    options: MemberOptions
    rebalance_protocol: RebalanceProtocol  # whether the member revokes everything before it joins
    holdings: Holdings  # owned resources, callbacks and revocation

    now_ms: int
    deadline_ms: int = NEVER_MS  # when the member needs the next ``Tick``

    state: MemberState = MemberState.UNJOINED
    member_id: str = ""  # "": the coordinator has not assigned one
    generation: int = -1  # of the last JoinGroup answer; heartbeats and commits carry it
    claim_generation: int = -1  # of the assignment that ``holdings.owned`` comes from
    protocol_name: str = ""
    is_leader: bool = False

    # What the application wants
    started: bool = False
    stalled: bool = False  # it has not polled for max.poll.interval.ms
    leaves_stalled: bool = False  # for that reason, once the last revocation has ended
    polled_ms: int
    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()  # counts of the topics known now
    leaving: LeaveRequested | None = None
    departure_announced: bool = False  # in the subscription of a last round

    # The coordinator
    coordinator_known: bool = False
    contact_ms: int  # it has acknowledged a request that was sent then
    retries: int = 0  # in a row, of a round or of finding it
    retry_at_ms: int

    # The next round
    rejoin_reason: str | None = None  # None: no round is wanted
    rejoin_at_ms: int | None = None  # when a round is wanted without another event
    rounds_announced: int = 0  # in a row: each assignment said that another round follows
    nonce: int = 0  # differs from one join to the next

    # The last assignment
    previous: tuple[Resource, ...] = ()  # all that was owned after it
    already_revoked: tuple[Resource, ...] = ()  # what it revoked
    leader_state: bytes | None = None  # from the leader, for the next leader
    state_received_ms: int  # when it was received

    # The round that runs
    joined_topics: tuple[str, ...] = ()  # the subscription that was sent
    planned_with: tuple[tuple[str, int], ...] | None = None  # counts; None: it has not led
    plan_failures: int = 0  # in a row
    record: RecordSize | None = None  # of the group, in a round that the member leads
    failing_since_ms: int | None = None  # rounds are refused with codes that are not expected

    # Requests whose answers are awaited, or NO_REQUEST
    next_request: int = 0
    find_request: int = NO_REQUEST
    join_request: int = NO_REQUEST
    join_sent_ms: int
    sync_request: int = NO_REQUEST
    leave_request: int = NO_REQUEST
    plan_token: int = NO_REQUEST
    heartbeat_request: int = NO_REQUEST
    heartbeat_sent_ms: int
    heartbeat_generation: int = -1  # the generation it was sent with
    heartbeat_due_ms: int

    # Readings

    @property
    def owned(self) -> tuple[Resource, ...]:
        """Resources that the next join claims, sorted, with those of a revocation in progress."""
        return ordered(self.holdings.owned)

    @property
    def identity(self) -> Identity:
        """Member id and generation for a commit that the application sends itself."""
        return Identity(
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.options.instance_id,
        )

    @property
    def session_ends_ms(self) -> int:
        """Time when the coordinator may remove the member without a further heartbeat."""
        if self.generation < 0 or self.state is MemberState.LEAVING:
            return NEVER_MS
        return self.contact_ms + self.options.session_timeout_ms

    @property
    def poll_ends_ms(self) -> int:
        """Time when the member leaves unless the application polls."""
        interval_ms = self.options.max_poll_interval_ms
        ends = self.stalled or self.leaves_stalled or self.leaving is not None
        if interval_ms == 0 or ends or self.member_id == "":
            return NEVER_MS
        return self.polled_ms + interval_ms

    @property
    def sends_heartbeats(self) -> bool:
        """Whether the member is in a generation and knows its coordinator."""
        return (
            self.generation >= 0
            and self.coordinator_known
            and self.state is not MemberState.LEAVING
        )

    def next_deadline_ms(self) -> int:
        """Return the time of the member's next step; NEVER_MS for none."""
        if self.state in ENDED:
            return NEVER_MS
        soonest = self.session_ends_ms
        if self.holdings.revoking:
            soonest = min(soonest, self.holdings.deadline_ms)
        if self.options.max_poll_interval_ms:
            soonest = min(soonest, self.poll_ends_ms)
        idle = self.heartbeat_request == NO_REQUEST
        if idle and self.heartbeat_due_ms < soonest and self.sends_heartbeats:
            soonest = self.heartbeat_due_ms
        if self.rejoin_at_ms is not None and self.state is MemberState.STABLE:
            soonest = min(soonest, self.rejoin_at_ms)
        waits = self.state is MemberState.UNJOINED or not self.coordinator_known
        if waits and self.now_ms < self.retry_at_ms < soonest:
            soonest = self.retry_at_ms
        return soonest


# The settings of a member.
#
# Names are Kafka's, with the unit at the end. A value out of range is a ``ConfigError`` that names
# the range.
#
# References: Kafka's consumer configuration; KIP-62, KIP-345.


AGAIN_PAUSE_MS = 50
"""Pause before the first of the rounds that are announced in a row, in ms."""

LAST_COMMIT_MS = 5_000
"""Time for the last commit of a member whose application has stopped polling, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of one member; times in ms."""

    protocol_type: str = "consumer"
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    # How long the coordinator waits for this member in a round. It is longer than a revocation may
    # take, with the heartbeat before it that announces the round, and the last commit.
    rebalance_timeout_ms: int = 300_000
    # Longest time between two ``Polled`` before the member leaves; 0 never. Before it leaves, it
    # commits what is processed.
    max_poll_interval_ms: int = 300_000
    drain_timeout_ms: int = 300_000  # how long a revocation waits for the application
    # The user's name of the setting behind ``drain_timeout_ms``; for the log.
    drain_setting: str = "drain_timeout_ms"
    # The user's name of the setting behind ``max_poll_interval_ms``.
    poll_setting: str = "max_poll_interval_ms"
    # How long the commit of a late revocation, or of a member that leaves because the application
    # does not poll, may take.
    last_commit_ms: int = LAST_COMMIT_MS
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    # How soon a member joins an announced round if it revokes nothing; doubled for each further one
    # in a row, up to the heartbeat interval.
    again_pause_ms: int = AGAIN_PAUSE_MS
    # How long rounds may be refused with a code that is neither expected nor fatal before the
    # member fails with it; 0: it keeps trying.
    error_timeout_ms: int = 0
    commit_retries: int = 5
    plan_retries: int = 3
    auto_commit: bool = True  # whether a revocation commits; else the callback is expected to
    # Protocols under which a member that leaves for good says so in a last round, so that a
    # deferring leader need not wait for it.
    announce_leave: frozenset[str] = frozenset()
    # The member's location, from ``digest_of`` of leader/subscriptions.py; empty for none.
    location: bytes = b""

    def __post_init__(self) -> None:
        positive = {
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "drain_timeout_ms": self.drain_timeout_ms,
            "last_commit_ms": self.last_commit_ms,
            "request_timeout_ms": self.request_timeout_ms,
            "retry_backoff_ms": self.retry_backoff_ms,
            "retry_backoff_max_ms": self.retry_backoff_max_ms,
            "again_pause_ms": self.again_pause_ms,
        }
        for name, value in positive.items():
            if not 0 < value <= INT32_MAX:
                raise ConfigError(f"{name}: found {value}, expected 1 to {INT32_MAX}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms: found {self.heartbeat_interval_ms}, expected less than "
                f"session_timeout_ms ({self.session_timeout_ms})"
            )
        counted = (self.commit_retries, self.plan_retries, self.error_timeout_ms)
        if self.max_poll_interval_ms < 0 or min(counted) < 0:
            raise ConfigError(
                "max_poll_interval_ms, error_timeout_ms and retry counts are not negative"
            )
