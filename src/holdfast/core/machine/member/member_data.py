"""The settings and the state of a member, as plain records, its requests, and how it ends.

**Rules.**

- :class:`MemberData` holds facts. :mod:`holdfast.core.machine.member.member` and
  :mod:`holdfast.core.machine.member.responses` decide what happens next; no function here decides
  whether to send.
- The first three fields are settings and stay as they are. ``holdings`` is a record like this one.
  Every other field holds an immutable value, so that a tuple of the values is a copy of the state.
- ``now_ms`` and every field that ends in ``_ms`` are times of one monotonic clock.
- Names of settings are Kafka's, with the unit at the end. A value out of range is a ``ConfigError``
  that names the range.
- A function that sends gives the request a number, notes in the record that the response is
  awaited, and returns the action.

References: Kafka's consumer configuration; KIP-62, KIP-345, KIP-394, KIP-429, KIP-800; Incremental
Cooperative Rebalancing, "Member process".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.core.machine.actions import (
    Action,
    Actions,
    Fail,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
)
from holdfast.core.machine.codes import (
    ErrorCode,
    describe,
)
from holdfast.core.machine.events import (
    JoinedMember,
    LeaveRequested,
)
from holdfast.core.machine.leader.assignor_protocol import (
    Assignor,
    MemberView,
    RebalanceProtocol,
)
from holdfast.core.machine.member.holdings import Holdings, ordered
from holdfast.core.machine.shared_values import Identity
from holdfast.core.machine.states import ENDED, MemberState
from holdfast.core.model.constants import INT32_MAX
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.container import Leaving
from holdfast.errors import ConfigError

NO_REQUEST = -(2**31)
"""Value instead of a request number or a token: no response is awaited."""

NEVER_MS = 2**62
"""Value instead of a time: not before the next event."""

AGAIN_PAUSE_MS = 50
"""Pause before the first of the rebalances that are announced in a row, in ms."""

_TIMES = (
    *("session_timeout_ms", "heartbeat_interval_ms", "rebalance_timeout_ms", "drain_timeout_ms"),
    *("last_commit_ms", "request_timeout_ms", "retry_backoff_ms", "retry_backoff_max_ms"),
    "again_pause_ms",
)
"""Settings that are at least 1 ms."""

LAST_COMMIT_MS = 5_000
"""Time for the last commit of a member whose application has stopped polling, in ms."""

JOIN_SLACK_MS = 5_000  # a JoinGroup may take the whole rebalance timeout, and its way back


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSize:
    """The size of a group's record as its leader knows it."""

    # Bytes of all members' messages; names and addresses of the members come on top.
    subscription_bytes: int = 0
    assignment_bytes: int = 0
    largest_bytes: int = 0  # size of the largest message
    largest: str = ""  # its kind and its member's id

    @classmethod
    def of(cls, members: Sequence[JoinedMember]) -> RecordSize:
        """Return the size before the leader has planned."""
        largest = max(members, key=lambda m: len(m.metadata), default=None)
        if largest is None:
            return cls()
        return cls(
            subscription_bytes=sum(len(m.metadata) for m in members),
            largest_bytes=len(largest.metadata),
            largest=f"subscription of member {largest.member_id}",
        )

    def with_assignments(self, assignments: Sequence[tuple[str, bytes]]) -> RecordSize:
        """Return the size with what the leader assigns."""
        sizes = [(len(data), member_id) for member_id, data in assignments]
        size, member_id = max(sizes, default=(0, ""))
        total = sum(size for size, _ in sizes)
        if size <= self.largest_bytes:
            return replace(self, assignment_bytes=total)
        return replace(
            self,
            assignment_bytes=total,
            largest_bytes=size,
            largest=f"assignment of member {member_id}",
        )

    def __str__(self) -> str:
        total = self.subscription_bytes + self.assignment_bytes
        return (
            f"This leader sent {self.assignment_bytes:,} bytes of assignments; with "
            f"{self.subscription_bytes:,} bytes of subscriptions the record has {total:,} bytes "
            f"and more. The largest part is the {self.largest}: {self.largest_bytes:,} bytes"
        )


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
    generation: int = -1  # of the last JoinGroup response; heartbeats and commits carry it
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
    departure_announced: bool = False  # in the subscription of a last rebalance

    # The coordinator
    coordinator_known: bool = False
    contact_ms: int  # it has acknowledged a request that was sent then
    retries: int = 0  # in a row, of a rebalance or of finding it
    retry_at_ms: int

    # The next rebalance
    rejoin_reason: str | None = None  # None: no rebalance is wanted
    rejoin_at_ms: int | None = None  # when a rebalance is wanted without another event
    rebalances_announced: int = 0  # in a row: each assignment said that another rebalance follows
    nonce: int = 0  # differs from one join to the next

    # The last assignment
    previous: tuple[Resource, ...] = ()  # all that was owned after it
    already_revoked: tuple[Resource, ...] = ()  # what it revoked
    leader_state: bytes | None = None  # from the leader, for the next leader
    state_received_ms: int  # when it was received

    # The rebalance that runs
    joined_topics: tuple[str, ...] = ()  # the subscription that was sent
    planned_with: tuple[tuple[str, int], ...] | None = None  # counts; None: it has not led
    plan_failures: int = 0  # in a row
    record: RecordSize | None = None  # of the group, in a rebalance that the member leads
    failing_since_ms: int | None = None  # rebalances are refused with codes that are not expected

    # Requests whose responses are awaited, or NO_REQUEST
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of one member; times in ms."""

    protocol_type: str = "consumer"
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    # How long the coordinator waits for this member in a rebalance. It is longer than a revocation
    # may take, with the heartbeat before it that announces the rebalance, and the last commit.
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
    # How soon a member joins an announced rebalance if it revokes nothing; doubled for each further
    # one in a row, up to the heartbeat interval.
    again_pause_ms: int = AGAIN_PAUSE_MS
    # How long rebalances may be refused with a code that is neither expected nor fatal before the
    # member fails with it; 0: it keeps trying.
    error_timeout_ms: int = 0
    commit_retries: int = 5
    auto_commit: bool = True  # whether a revocation commits; else the callback is expected to
    # Protocols under which a member that leaves for good says so in a last rebalance, so that a
    # deferring leader need not wait for it.
    announce_leave: frozenset[str] = frozenset()
    # The member's location, from ``digest_of`` of leader/subscriptions.py; empty for none.
    location: bytes = b""

    def __post_init__(self) -> None:
        for name in _TIMES:
            value = getattr(self, name)
            if not 0 < value <= INT32_MAX:
                raise ConfigError(f"{name}: found {value}, expected 1 to {INT32_MAX}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms: found {self.heartbeat_interval_ms}, expected less than "
                f"session_timeout_ms ({self.session_timeout_ms})"
            )
        if min(self.max_poll_interval_ms, self.commit_retries, self.error_timeout_ms) < 0:
            raise ConfigError(
                "max_poll_interval_ms, error_timeout_ms and retry counts are not negative"
            )


def new_request(member: MemberData) -> int:
    """Return the next request number, or the token of a plan."""
    request = member.next_request
    member.next_request += 1
    return request


def view_of(member: MemberData) -> MemberView:
    """Return the part of the member's state from which assignors write its subscription."""
    leaving = Leaving.STAYS
    if member.leaving is not None:
        leaving = Leaving.RETURNS if member.leaving.returns else Leaving.FOR_GOOD
    return MemberView(
        topics=member.topics,
        owned=() if member.rebalance_protocol is RebalanceProtocol.EAGER else member.owned,
        previous=member.previous,
        generation=member.claim_generation,
        rack=member.options.rack,
        nonce=member.nonce,
        leaving=leaving,
        already_revoked=member.already_revoked,
        leader_state=member.leader_state,
        state_age_ms=member.now_ms - member.state_received_ms,
        location=member.options.location,
    )


def send_join(member: MemberData) -> Action:
    """Send JoinGroup, with one subscription per assignor; the member is PREPARING_REBALANCE."""
    assert not member.holdings.revoking
    assert member.join_request == member.sync_request == NO_REQUEST
    member.nonce += 1
    reason, member.rejoin_reason = member.rejoin_reason or "leaving", None
    member.state, member.joined_topics = MemberState.PREPARING_REBALANCE, member.topics
    member.join_request, member.join_sent_ms = new_request(member), member.now_ms
    view = view_of(member)
    return SendJoin(
        request=member.join_request,
        timeout_ms=member.options.rebalance_timeout_ms + JOIN_SLACK_MS,
        member_id=member.member_id,
        instance_id=member.options.instance_id,
        protocol_type=member.options.protocol_type,
        protocols=tuple((a.name, a.subscribe(view)) for a in member.assignors),
        session_timeout_ms=member.options.session_timeout_ms,
        rebalance_timeout_ms=member.options.rebalance_timeout_ms,
        reason=reason,
    )


def send_sync(member: MemberData, assignments: tuple[tuple[str, bytes], ...]) -> Action:
    """Send SyncGroup; only a leader has assignments to send."""
    assert member.join_request == member.sync_request == NO_REQUEST
    member.sync_request = new_request(member)
    return SendSync(
        request=member.sync_request,
        timeout_ms=member.options.rebalance_timeout_ms + JOIN_SLACK_MS,
        generation=member.generation,
        member_id=member.member_id,
        instance_id=member.options.instance_id,
        protocol_type=member.options.protocol_type,
        protocol_name=member.protocol_name,
        assignments=assignments,
    )


def send_heartbeat(member: MemberData) -> Action:
    """Send Heartbeat; the next one is due an interval later."""
    assert member.heartbeat_request == NO_REQUEST
    member.heartbeat_request, member.heartbeat_sent_ms = new_request(member), member.now_ms
    member.heartbeat_due_ms = member.now_ms + member.options.heartbeat_interval_ms
    member.heartbeat_generation = member.generation
    return SendHeartbeat(
        request=member.heartbeat_request,
        timeout_ms=member.options.request_timeout_ms,
        generation=member.generation,
        member_id=member.member_id,
        instance_id=member.options.instance_id,
    )


def send_leave(member: MemberData, reason: str) -> Action:
    """Send LeaveGroup, with a reason for the broker's log."""
    member.leave_request = new_request(member)
    return SendLeave(
        request=member.leave_request,
        timeout_ms=member.options.request_timeout_ms,
        member_id=member.member_id,
        instance_id=member.options.instance_id,
        reason=reason,
    )


def want(member: MemberData, reason: str) -> Actions:
    """Ask for a rebalance; the first reason stays until it begins. Returns no actions."""
    member.rejoin_reason = member.rejoin_reason or reason
    return ()


def forget_rebalance(member: MemberData) -> None:
    """Await no response of the rebalance that runs, and no rebalance that was scheduled."""
    member.join_request = member.sync_request = member.plan_token = NO_REQUEST
    member.rejoin_at_ms = member.record = None


def die(member: MemberData) -> None:
    """End the member, which has left; its id stays for the logs."""
    member.state, member.generation = MemberState.DEAD, -1


def is_reported(n_before: int) -> bool:
    """Return whether failure ``n_before`` + 1 gets a warning: the first, second, fourth..."""
    return n_before & (n_before + 1) == 0


def backoff_ms(member: MemberData, retries: int) -> int:
    """Return the wait before the next attempt in ms: doubled each time, the same in every run."""
    options = member.options
    return doubled_ms(options.retry_backoff_ms, retries, options.retry_backoff_max_ms)


def doubled_ms(first_ms: int, n_before: int, most_ms: int) -> int:
    """Return a pause in ms that doubles with every pause before it, up to ``most_ms``."""
    return min(first_ms << min(n_before, 10), most_ms)


def lose(member: MemberData, *, reset_id: bool, reason: str) -> Actions:
    """Drop everything that is owned, because membership is lost, then join.

    A member that keeps processing during a rebalance joins without claims. An eager member still
    reports its last assignment at the old generation, as Kafka's ``AbstractStickyAssignor`` does:
    partitions that no other member has had since come back to the member.

    References: KAFKA-12983; KIP-341.
    """
    member.generation = -1
    if member.rebalance_protocol is not RebalanceProtocol.EAGER:
        member.claim_generation, member.previous = -1, ()
    if reset_id:
        member.member_id = ""
    member.is_leader = False
    member.already_revoked = ()
    member.leaves_stalled = False
    forget_rebalance(member)
    member.heartbeat_request = NO_REQUEST
    member.state = MemberState.UNJOINED
    want(member, reason)
    return member.holdings.lose()


def fail(member: MemberData, error: int, text: str = "") -> Actions:
    """End the member, which the coordinator refuses for good.

    ``text`` replaces the usual words for the code.

    References: :data:`holdfast.core.machine.codes.FATAL`.
    """
    actions = lose(member, reset_id=False, reason="")
    fenced = error == ErrorCode.FENCED_INSTANCE_ID
    member.state = MemberState.FENCED if fenced else MemberState.DEAD
    return (*actions, Fail(error, text or describe(error)))
