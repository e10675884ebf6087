"""What a member knows of itself, when it wants to hear of time, and the requests it writes.

**Rules.** Facts only: what happens next is decided in :mod:`holdfast.machine.member.member`.
Every slot but ``assignors``, ``options`` and ``holdings`` holds an immutable value, so a copy of
the slots is a copy of the state.

**Strategy.** One record with its two readings: deadlines, from what is awaited; requests, from what
is owned and known.

References: KIP-62, KIP-345, KIP-429; Incremental Cooperative Rebalancing, "Member process".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.errors import ConfigError
from holdfast.machine.actions import Action, SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.machine.events import LeaveRequested
from holdfast.machine.leader.embedded import Embedded, MemberView, RebalanceMode
from holdfast.machine.member.holdings import Holdings, Identity, ordered
from holdfast.machine.member.options import MemberOptions
from holdfast.machine.states import ENDED, MemberState
from holdfast.model.partitions import Resource
from holdfast.wire.layouts.container import Leaving

NO_REQUEST = -(2**31)
NEVER_MS = 2**62
JOIN_SLACK_MS = 5_000  # a JoinGroup may take the whole rebalance timeout, and its way back

UNJOINED = MemberState.UNJOINED
HANDING_OVER = MemberState.HANDING_OVER
PREPARING = MemberState.PREPARING_REBALANCE
COMPLETING = MemberState.COMPLETING_REBALANCE
STABLE = MemberState.STABLE
LEAVING = MemberState.LEAVING


def choose_mode(assignors: Sequence[Embedded]) -> RebalanceMode:
    """The highest mode that every assignor offered supports.

    Raises
    ------
    ConfigError
        If there is no assignor, or they have no mode in common.

    References
    ----------
    KIP-429, "Consumer": ``[cooperative-sticky, range]`` therefore runs EAGER.
    """
    if not assignors:
        raise ConfigError("partition.assignment.strategy: found none, expected an assignor")
    modes = set(RebalanceMode).intersection(*(a.modes for a in assignors))
    if not modes:
        names = ", ".join(a.name for a in assignors)
        raise ConfigError(f"partition.assignment.strategy: {names} share no rebalance protocol")
    return max(modes)


class MemberRecord:
    """A member's state, what may be read of it, and what is written from it.

    Parameters
    ----------
    assignors : sequence of Embedded
        In order of preference.
    options : MemberOptions
        Times, identity, commit rules.
    now_ms : int
        A monotonic clock's reading.
    """

    __slots__ = (
        "_announced",
        "_announced_rounds",
        "_deadline_ms",
        "_find",
        "_heartbeat",
        "_heartbeat_due_ms",
        "_heartbeat_generation",
        "_heartbeat_sent_ms",
        "_join",
        "_join_sent_ms",
        "_joined_topics",
        "_leave",
        "_next_request",
        "_plan_failures",
        "_plan_token",
        "_planned_for",
        "_polled_ms",
        "_retries",
        "_retry_ms",
        "_stalled",
        "_started",
        "_sync",
        "assignors",
        "claim_generation",
        "contact_ms",
        "coordinator_known",
        "generation",
        "given_up",
        "holdings",
        "is_leader",
        "leaving",
        "member_id",
        "memory",
        "memory_ms",
        "mode",
        "nonce",
        "now_ms",
        "options",
        "partitions",
        "previous",
        "protocol_name",
        "rejoin_at_ms",
        "rejoin_reason",
        "state",
        "topics",
    )

    def __init__(
        self,
        assignors: Sequence[Embedded],
        options: MemberOptions | None = None,
        *,
        now_ms: int = 0,
        nonce: int = 0,
    ):
        self.assignors = tuple(assignors)
        self.options = options = options or MemberOptions()
        self.mode = choose_mode(self.assignors)
        self.holdings = Holdings(
            auto_commit=options.auto_commit,
            commit_retries=options.commit_retries,
            retry_backoff_ms=options.retry_backoff_ms,
        )
        self.now_ms = now_ms
        self.state = MemberState.UNJOINED
        self.member_id = ""
        self.generation = -1  # of the last JoinGroup answer: heartbeats and commits carry it
        self.claim_generation = -1  # of the assignment that ``owned`` comes from
        self.topics: tuple[str, ...] = ()
        self.partitions: tuple[tuple[str, int], ...] = ()
        self.protocol_name = ""
        self.is_leader = False
        self.coordinator_known = False
        self.contact_ms = now_ms
        self.memory: bytes | None = None
        self.memory_ms = now_ms
        self.nonce = nonce
        self.given_up: tuple[Resource, ...] = ()
        self.previous: tuple[Resource, ...] = ()  # what the last assignment was
        self.leaving: LeaveRequested | None = None
        self.rejoin_reason: str | None = None
        self.rejoin_at_ms: int | None = None
        self._started = False
        self._stalled = False
        self._announced = False
        self._announced_rounds = 0  # in a row
        self._polled_ms = now_ms
        self._retry_ms = now_ms
        self._retries = 0
        self._plan_failures = 0
        self._joined_topics: tuple[str, ...] = ()
        self._planned_for: tuple[tuple[str, int], ...] | None = None
        self._next_request = 0
        self._find = self._join = self._sync = self._leave = self._plan_token = NO_REQUEST
        self._join_sent_ms = now_ms
        self._heartbeat = NO_REQUEST
        self._heartbeat_due_ms = now_ms
        self._heartbeat_sent_ms = now_ms
        self._heartbeat_generation = -1
        self._deadline_ms = NEVER_MS

    # What a caller may look at

    @property
    def owned(self) -> tuple[Resource, ...]:
        """What the next join claims, sorted; a hand-over in progress is still in it."""
        return ordered(self.holdings.owned)

    @property
    def identity(self) -> Identity:
        """With what a commit of the application's own is fenced."""
        return Identity(
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.options.instance_id,
        )

    def may_commit(self, resources: Iterable[Resource]) -> bool:
        """Whether every one of these is owned now, in a generation that is valid."""
        return self.generation >= 0 and self.holdings.owned.issuperset(resources)

    @property
    def deadline_ms(self) -> int | None:
        """When the member wants to hear of time next; None: not before the next event."""
        return None if self._deadline_ms == NEVER_MS else self._deadline_ms

    def _next_deadline_ms(self) -> int:
        if self.state in ENDED:
            return NEVER_MS
        soonest = self._session_ends_ms
        if self.holdings.handing_over:
            soonest = min(soonest, self.holdings.deadline_ms)
        if self.options.max_poll_interval_ms:
            soonest = min(soonest, self._poll_ends_ms)
        if self._heartbeat == NO_REQUEST and self._heartbeat_due_ms < soonest and self._beats:
            soonest = self._heartbeat_due_ms
        if self.rejoin_at_ms is not None and self.state is STABLE:
            soonest = min(soonest, self.rejoin_at_ms)
        waits = self.state is UNJOINED or not self.coordinator_known
        if waits and self.now_ms < self._retry_ms < soonest:
            soonest = self._retry_ms
        return soonest

    @property
    def _session_ends_ms(self) -> int:
        if self.generation < 0 or self.state is LEAVING:
            return NEVER_MS
        return self.contact_ms + self.options.session_timeout_ms

    @property
    def _poll_ends_ms(self) -> int:
        interval_ms = self.options.max_poll_interval_ms
        if interval_ms == 0 or self._stalled or self.member_id == "" or self.leaving is not None:
            return NEVER_MS
        return self._polled_ms + interval_ms

    @property
    def _beats(self) -> bool:
        return self.generation >= 0 and self.coordinator_known and self.state is not LEAVING

    # Requests

    def _request(self) -> int:
        request = self._next_request
        self._next_request += 1
        return request

    def _view(self) -> MemberView:
        leaving = Leaving.STAYS
        if self.leaving is not None:
            leaving = Leaving.RETURNS if self.leaving.returns else Leaving.FOR_GOOD
        wait = self.rejoin_at_ms
        return MemberView(
            topics=self.topics,
            owned=() if self.mode is RebalanceMode.EAGER else self.owned,
            previous=self.previous,
            generation=self.claim_generation,
            mode=self.mode,
            rack=self.options.rack,
            nonce=self.nonce,
            leaving=leaving,
            given_up=self.given_up,
            delay_ms=0 if wait is None else max(0, wait - self.now_ms),
            memory=self.memory,
            memory_age_ms=self.now_ms - self.memory_ms,
        )

    def _send_join(self) -> Action:
        self.nonce += 1
        reason, self.rejoin_reason = self.rejoin_reason or "leaving", None
        self.state, self._joined_topics = PREPARING, self.topics
        self._join, self._join_sent_ms = self._request(), self.now_ms
        view = self._view()
        return SendJoin(
            request=self._join,
            timeout_ms=self.options.rebalance_timeout_ms + JOIN_SLACK_MS,
            member_id=self.member_id,
            instance_id=self.options.instance_id,
            protocol_type=self.options.protocol_type,
            protocols=tuple((a.name, a.subscribe(view)) for a in self.assignors),
            session_timeout_ms=self.options.session_timeout_ms,
            rebalance_timeout_ms=self.options.rebalance_timeout_ms,
            reason=reason,
        )

    def _send_sync(self, assignments: tuple[tuple[str, bytes], ...]) -> Action:
        self._sync = self._request()
        return SendSync(
            request=self._sync,
            timeout_ms=self.options.rebalance_timeout_ms + JOIN_SLACK_MS,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.options.instance_id,
            protocol_type=self.options.protocol_type,
            protocol_name=self.protocol_name,
            assignments=assignments,
        )

    def _send_heartbeat(self) -> Action:
        self._heartbeat, self._heartbeat_sent_ms = self._request(), self.now_ms
        self._heartbeat_due_ms = self.now_ms + self.options.heartbeat_interval_ms
        self._heartbeat_generation = self.generation
        return SendHeartbeat(
            request=self._heartbeat,
            timeout_ms=self.options.request_timeout_ms,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.options.instance_id,
        )

    def _send_leave(self, reason: str) -> Action:
        self._leave = self._request()
        return SendLeave(
            request=self._leave,
            timeout_ms=self.options.request_timeout_ms,
            member_id=self.member_id,
            instance_id=self.options.instance_id,
            reason=reason,
        )
