"""A group member without input or output: events in, actions out.

**How to drive it** (a runtime over two connections, or the simulation)::

    member = Member([assignor, ...], options)
    act(member.step(now_ms, Started()))
    act(member.step(now_ms, SubscriptionChanged(("orders",))))
    while running:
        wait for an answer, or until member.deadline_ms
        act(member.step(now_ms, event or None))

``step`` moves the clock and then delivers the event; ``receive`` delivers one event alone, and time
moves only by :class:`Tick`. Do the actions of one answer in order. Requests carry a ``request``
number that its answer repeats, duties a ``token``; both kinds may be answered late, twice or never.
``FindCoordinator`` and every ``Send...`` end in an answer or in ``RequestFailed``. JoinGroup and
SyncGroup go over one connection, heartbeats, commits and LeaveGroup over another.

**Rules.**

- A cooperative member goes on processing while it joins. Only what a hand-over or a loss names
  stops.
- stop fetching -> drained -> callback -> commit with the old generation -> rejoin
  (:mod:`holdfast.machine.holdings`); the join waits for the hand-over, heartbeats do not.
- A reset generation means that everything owned is lost before anything else happens
  (KAFKA-12983, KAFKA-9851); ILLEGAL_GENERATION keeps the member id (KAFKA-13419).
- An error for an older generation is ignored (KAFKA-9823). A retriable one resets nothing
  (KAFKA-13214); a missed sync keeps the claims of the old generation (KAFKA-14016).
- The member stops by itself when its coordinator has not acknowledged it for a session timeout,
  counted from when the acknowledged heartbeat was *sent*: before the coordinator can give its
  resources to another (KAFKA-9184).
- A static leader that comes back is told to skip the assignment (KIP-814). If nothing says which
  partition counts it was planned with, it asks for one round: topics may have grown meanwhile.
- The deadline of a scheduled round is local time at receipt. A round's assignment replaces it.
- ``may_commit`` is the ownership guard: the coordinator checks member and generation only.

**Strategy.** One method per event; after each, :meth:`Member._advance` takes whatever step is open:
find the coordinator, prepare, join, leave. :mod:`holdfast.machine.states` is the table.

References: KIP-62, KIP-345, KIP-394, KIP-429, KIP-568, KIP-814; Incremental Cooperative
Rebalancing, "Member process".
"""

from __future__ import annotations

from typing import assert_never

from holdfast.errors import LocalProtocolError, WireError
from holdfast.machine.actions import (
    Action,
    ComputeAssignment,
    Fail,
    FindCoordinator,
    JoinCompleted,
    Warn,
)
from holdfast.machine.codes import COORDINATOR_GONE, MEMBERSHIP_LOST, RETRIABLE, ErrorCode, describe
from holdfast.machine.deferral import handed_out
from holdfast.machine.embedded import Instruction, RebalanceMode
from holdfast.machine.events import (
    AssignmentComputed,
    AssignmentFailed,
    CommitAnswered,
    CommitRefused,
    CoordinatorFound,
    Drained,
    Event,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    LeaveRequested,
    ListenerReturned,
    MetadataChanged,
    Polled,
    RejoinRequested,
    RequestFailed,
    Resource,
    Started,
    SubscriptionChanged,
    SyncAnswered,
    Tick,
)
from holdfast.machine.holdings import ordered, topics_of
from holdfast.machine.member_record import NEVER_MS, NO_REQUEST, MemberRecord, choose_mode
from holdfast.machine.states import ENDED, TRANSITIONS, MemberState

__all__ = ["NEVER_MS", "NO_REQUEST", "Member", "choose_mode"]

Actions = tuple[Action, ...]

UNJOINED = MemberState.UNJOINED
HANDING_OVER = MemberState.HANDING_OVER
PREPARING = MemberState.PREPARING_REBALANCE
COMPLETING = MemberState.COMPLETING_REBALANCE
STABLE = MemberState.STABLE
LEAVING = MemberState.LEAVING
SHUT = ENDED | {HANDING_OVER, LEAVING}  # nothing begins there


class Member(MemberRecord):
    """One member of one group: how it takes events. Its parameters are those of its record."""

    __slots__ = ()

    # Events

    def step(self, now_ms: int, event: Event | None = None) -> Actions:
        """Move the clock to ``now_ms``, then deliver the event."""
        actions: Actions = ()
        if now_ms >= self._deadline_ms:
            actions = self.receive(Tick(now_ms))
        elif now_ms > self.now_ms:
            self.now_ms = now_ms
        return actions if event is None else actions + self.receive(event)

    def receive(self, event: Event) -> Actions:
        """Take one event.

        Returns
        -------
        tuple of Action
            To be done in order.

        Raises
        ------
        LocalProtocolError
            If the table forbids the event in this state; then nothing has changed.

        References
        ----------
        Incremental Cooperative Rebalancing, "Member process"; KIP-429.
        """
        name = type(event).__name__
        allowed = TRANSITIONS[self.state].get(name)
        if allowed is None:
            raise LocalProtocolError(f"{name} is not allowed in state {self.state}")
        if isinstance(event, Tick):
            if event.now_ms < self.now_ms:
                return ()
            self.now_ms = event.now_ms
            if event.now_ms < self._deadline_ms:
                return ()
        actions = self._dispatch(event)
        if not self._rests:
            actions = (*actions, *self._advance())
        assert self.state in allowed, (name, sorted(allowed), self.state)
        self._deadline_ms = self._next_deadline_ms()
        return actions

    def _dispatch(self, event: Event) -> Actions:  # noqa: PLR0911, PLR0912 - one arm per event
        match event:
            case Tick():
                return self._on_time()
            case HeartbeatAnswered():
                return self._on_heartbeat(event)
            case Started():
                self._started, self._polled_ms = True, self.now_ms
                self.rejoin_reason = "first join"
                return ()
            case SubscriptionChanged(topics):
                self.topics = tuple(sorted(set(topics)))
                return self._want("subscription changed") if self._started else ()
            case MetadataChanged(partitions):
                self.partitions = tuple(sorted(partitions))
                return self._watch_metadata()
            case Polled():
                self._polled_ms, self._stalled = self.now_ms, False
                return ()
            case RejoinRequested(reason):
                return self._want(reason)
            case LeaveRequested():
                return self._on_leave_requested(event)
            case CoordinatorFound(request):
                return self._on_coordinator(request)
            case JoinAnswered():
                return self._on_join(event)
            case SyncAnswered():
                return self._on_sync(event)
            case LeaveAnswered(request):
                return self._on_left(request)
            case RequestFailed(request):
                return self._on_failed(request)
            case AssignmentComputed() | AssignmentFailed():
                return self._on_plan(event)
            case Drained():
                return self.holdings.drained(event)
            case ListenerReturned():
                return self.holdings.listener_returned(event)
            case CommitAnswered():
                return self._on_hand_over_commit(event)
            case CommitRefused(generation, error):
                return self._on_refusal(error, generation)
            case _:
                assert_never(event)

    def _on_time(self) -> Actions:
        if self.now_ms >= self._session_ends_ms:
            text = f"no answer from the coordinator for {self.options.session_timeout_ms} ms"
            return (Warn(text), *self._lose(reset_id=False, reason="session timeout"))
        if self.now_ms >= self._poll_ends_ms:
            return self._stall()
        actions = self.holdings.tick(self.now_ms)
        if self.rejoin_at_ms is not None and self.now_ms >= self.rejoin_at_ms:
            self.rejoin_at_ms = None
            if self.state is STABLE:
                announced = self._announced_rounds > 0
                self._want("another round was announced" if announced else "scheduled rebalance")
        if self._beats and self._heartbeat == NO_REQUEST and self.now_ms >= self._heartbeat_due_ms:
            actions = (*actions, self._send_heartbeat())
        return actions

    def _stall(self) -> Actions:
        """The application has stopped polling: leave, so that others take over (KIP-62)."""
        leave: Actions = ()
        if self.options.instance_id is None and self.coordinator_known:
            leave = (self._send_leave("max.poll.interval.ms passed without a poll"),)
            self._leave = NO_REQUEST
        self._stalled = True
        text = f"no poll for {self.options.max_poll_interval_ms} ms: left the group"
        reset_id = self.options.instance_id is None
        return (Warn(text), *leave, *self._lose(reset_id=reset_id, reason="polling again"))

    def _want(self, reason: str) -> Actions:
        self.rejoin_reason = self.rejoin_reason or reason
        return ()

    def _watch_metadata(self) -> Actions:
        """Only a leader acts on new partition counts, those it planned with (b.5)."""
        if self.state is not STABLE or not self.is_leader or self._planned_for is None:
            return ()
        if self._relevant(self.partitions) != self._relevant(self._planned_for):
            self._want("partition counts changed")
        return ()

    def _relevant(self, partitions: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        """Counts of the topics planned with or subscribed."""
        names = {name for name, _ in self._planned_for or ()} | set(self.topics)
        return tuple(entry for entry in partitions if entry[0] in names)

    def _on_leave_requested(self, event: LeaveRequested) -> Actions:
        if self.state in ENDED or self.leaving is not None:
            return ()
        self.leaving = event
        self._forget_round()
        if self.state in (PREPARING, COMPLETING, STABLE):
            self.state = UNJOINED
        return ()

    # The coordinator's answers

    def _on_coordinator(self, request: int) -> Actions:
        if request == self._find:
            self._find = NO_REQUEST
            self.coordinator_known = True
            self._retries = 0
        return ()

    def _on_join(self, event: JoinAnswered) -> Actions:
        if event.request != self._join:
            return ()
        self._join = NO_REQUEST
        if event.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.state = event.member_id, UNJOINED
            return ()
        if event.error != ErrorCode.NONE:
            return self._round_failed(event.error)
        self.member_id, self.generation = event.member_id, event.generation
        self.protocol_name = event.protocol_name
        self.is_leader = event.leader_id == event.member_id
        self.contact_ms = self.now_ms
        self._heartbeat_due_ms = self.now_ms + self.options.heartbeat_interval_ms
        self.state = COMPLETING
        if not self.is_leader:
            return (self._send_sync(()),)
        if event.skip_assignment:
            return self._skip_assignment()
        self._plan_token = self._request()
        self._planned_for = self.partitions
        return (
            ComputeAssignment(
                token=self._plan_token,
                generation=event.generation,
                protocol_name=event.protocol_name,
                members=event.members,
                partitions=self.partitions,
                member_id=self.member_id,
                waited_ms=self.now_ms - self._join_sent_ms,
            ),
        )

    def _skip_assignment(self) -> Actions:
        """A static leader is back, and its old assignment stays (KIP-814).

        The process that planned it is gone, and with it the partition counts it planned with. What
        a design's memory does not tell is unknown, and then one round looks at all topics again:
        partitions that were added meanwhile would have no owner for ever (L1).
        """
        self._planned_for = ()
        if self.mode is RebalanceMode.EAGER:  # before it takes up what that round stops at once
            self.state = UNJOINED
            return self._want("what was planned for is not known")
        return (self._send_sync(()),)

    def _on_plan(self, event: AssignmentComputed | AssignmentFailed) -> Actions:
        if event.token != self._plan_token:
            return ()
        self._plan_token = NO_REQUEST
        self._planned_for = self.partitions
        if isinstance(event, AssignmentComputed) and event.failure is None:
            self._plan_failures = 0
            return (self._send_sync(event.assignments),)
        self._plan_failures += 1
        if isinstance(event, AssignmentComputed):
            text = f"could not plan, everybody keeps what it claims: {event.failure}"
            return (Warn(text), self._send_sync(event.assignments))
        # Nothing at all to send: empty messages complete the round, so the group does not hang.
        return (Warn(f"could not plan: {event.reason}"), self._send_sync(()))

    def _on_sync(self, event: SyncAnswered) -> Actions:
        if event.request != self._sync:
            return ()
        self._sync = NO_REQUEST
        if event.error != ErrorCode.NONE:
            return self._round_failed(event.error)
        assignor = next(a for a in self.assignors if a.name == self.protocol_name)
        try:
            instruction = assignor.read(event.assignment)
        except WireError as error:
            return (Warn(f"unreadable assignment: {error}"), *self._retry())
        self._retries = 0
        if not topics_of(instruction.assigned).issubset(self.topics):
            self.state = UNJOINED  # the subscription changed meanwhile: not for us any more
            return self._want("assignment does not match the subscription")
        return self._apply(instruction)

    def _apply(self, instruction: Instruction) -> Actions:
        """Take over an assignment: next = (owned - revoked) + assigned."""
        owned = self.holdings.owned
        gained = instruction.assigned - owned
        if instruction.absence_revokes:
            revoked = owned - instruction.assigned
        else:
            revoked = owned & instruction.revoked
        self.claim_generation = self.generation
        self.given_up = ordered(revoked)
        self.memory, self.memory_ms = instruction.memory, self.now_ms
        if self._planned_for == () and self.is_leader:
            self._planned_for = handed_out(instruction.memory)
        self.state, self.rejoin_reason = STABLE, None
        self.rejoin_at_ms = self.now_ms + instruction.delay_ms if instruction.delay_ms else None
        self.previous = ordered((owned - revoked) | gained if revoked or gained else owned)
        done = JoinCompleted(
            generation=self.generation,
            member_id=self.member_id,
            is_leader=self.is_leader,
            protocol_name=self.protocol_name,
            owned=self.previous,
            gained=ordered(gained),
            revoked=ordered(revoked),
            delay_ms=instruction.delay_ms,
        )
        actions: list[Action] = [done]
        self._announced_rounds = self._announced_rounds + 1 if instruction.again else 0
        if instruction.again and not revoked:
            # Not in this instant: a join would refuse the sync of a slower member, which then never
            # hears what it is to give up, and so on for ever.
            pause_ms = self.options.again_pause_ms << min(self._announced_rounds - 1, 10)
            limit_ms = self.options.heartbeat_interval_ms
            self.rejoin_at_ms = self.now_ms + min(pause_ms, limit_ms)
        if self._joined_topics != self.topics:
            self._want("subscription changed")
        if self.is_leader and 0 < self._plan_failures <= self.options.plan_retries:
            self.rejoin_at_ms = self.now_ms + self._pause_ms(self._plan_failures)
        self._watch_metadata()
        if revoked:
            self._want("resources were revoked")
            actions += self._give_up(revoked, of_round=True)
        actions += self.holdings.gain(gained)
        return tuple(actions)

    def _on_heartbeat(self, event: HeartbeatAnswered) -> Actions:
        if event.request != self._heartbeat:
            return ()
        self._heartbeat = NO_REQUEST
        error = event.error
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.contact_ms = max(self.contact_ms, self._heartbeat_sent_ms)
        return self._on_refusal(error, self._heartbeat_generation)

    def _on_refusal(self, error: int, generation: int) -> Actions:
        """An error code of a heartbeat or commit that was sent with ``generation``."""
        if error == ErrorCode.NONE or self.state in (*ENDED, LEAVING):
            return ()
        if error == ErrorCode.ILLEGAL_GENERATION and self.state is PREPARING:
            # The round is over there and its JoinGroup answer on the way, on the other connection:
            # what was sent with the old generation came too late. The session bounds the wait.
            return ()
        if error in COORDINATOR_GONE:
            self.coordinator_known = False
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is STABLE:
                self._want("group is rebalancing")
        elif error in MEMBERSHIP_LOST:
            if generation == self.generation and generation >= 0:
                reset_id = error == ErrorCode.UNKNOWN_MEMBER_ID
                return self._lose(reset_id=reset_id, reason=describe(error))
        elif error not in RETRIABLE and error > 0:
            return self._fail(error)
        return ()

    def _on_failed(self, request: int) -> Actions:
        if request == NO_REQUEST:
            return ()
        if request == self._leave:
            return self._on_left(request)
        if request in (self._join, self._sync):
            self.coordinator_known = False
            self._join = self._sync = NO_REQUEST
            return self._retry()
        if request == self._heartbeat:
            self._heartbeat, self.coordinator_known = NO_REQUEST, False
            self._heartbeat_due_ms = self.now_ms
        if request == self._find:
            self._find = NO_REQUEST
            self._retry_ms = self.now_ms + self._pause_ms(self._retries)
            self._retries += 1
        return ()

    def _on_left(self, request: int) -> Actions:
        if request != self._leave:
            return ()
        self._leave = NO_REQUEST
        self.state, self.generation, self.member_id = MemberState.DEAD, -1, ""
        return ()

    def _on_hand_over_commit(self, event: CommitAnswered) -> Actions:
        job = self.holdings.hand_over
        if job is None or job.token != event.token:
            return ()
        actions = self.holdings.commit_answered(event, self.now_ms)
        if event.error in MEMBERSHIP_LOST or event.error == ErrorCode.FENCED_INSTANCE_ID:
            return (*actions, *self._on_refusal(event.error, job.identity.generation))
        return actions

    # Losing

    def _round_failed(self, error: int) -> Actions:
        """A JoinGroup or SyncGroup was refused."""
        if error in MEMBERSHIP_LOST:
            reset_id = error == ErrorCode.UNKNOWN_MEMBER_ID
            lost = self._lose(reset_id=reset_id, reason=describe(error))
            return (*lost, *self._retry())
        if error in COORDINATOR_GONE:
            self.coordinator_known = False
        elif error not in RETRIABLE:
            return self._fail(error)
        return self._retry()

    def _retry(self) -> Actions:
        """Join again after a pause; claims and identity stay as they are."""
        self.state = UNJOINED
        self._retry_ms = self.now_ms + self._pause_ms(self._retries)
        self._retries += 1
        return self._want("the last round failed")

    def _pause_ms(self, retries: int) -> int:
        """Exponential back-off, without jitter: chance belongs to the caller."""
        doubled = self.options.retry_backoff_ms << min(retries, 10)
        return min(doubled, self.options.retry_backoff_max_ms)

    def _lose(self, *, reset_id: bool, reason: str) -> Actions:
        """Membership is gone: drop everything, then join with empty claims."""
        self.generation = self.claim_generation = -1
        if reset_id:
            self.member_id = ""
        self.is_leader = False
        self.given_up = self.previous = ()
        self._forget_round()
        self._heartbeat = NO_REQUEST
        self.state = UNJOINED
        self._want(reason)
        return self.holdings.lose()

    def _forget_round(self) -> None:
        self._join = self._sync = self._plan_token = NO_REQUEST
        self.rejoin_at_ms = None

    def _fail(self, error: int) -> Actions:
        actions = self._lose(reset_id=False, reason="")
        fenced = error == ErrorCode.FENCED_INSTANCE_ID
        self.state = MemberState.FENCED if fenced else MemberState.DEAD
        return (*actions, Fail(error, describe(error)))

    # Going on

    @property
    def _rests(self) -> bool:
        """Whether no step is open: the usual case, between two heartbeats."""
        return (
            self.state is STABLE
            and self.rejoin_reason is None
            and self.leaving is None
            and self.coordinator_known
        )

    def _advance(self) -> Actions:
        """Take every step that is open now."""
        if self.state is HANDING_OVER and not self.holdings.handing_over:
            self.state = UNJOINED
        if self.state in SHUT:
            return ()
        actions = self._look_for_coordinator()
        if self.leaving is not None:
            return (*actions, *self._advance_leave())
        if not self._wants_round or not self.coordinator_known:
            return actions
        stop = self._to_give_up_before_join()
        if stop is not None:
            return (*actions, *self._give_up(stop, always_call=self.mode is RebalanceMode.EAGER))
        return (*actions, self._send_join())

    @property
    def _wants_round(self) -> bool:
        if not self._started or self._stalled:
            return False
        if self.state is UNJOINED:
            return self.now_ms >= self._retry_ms
        return self.state is STABLE and self.rejoin_reason is not None

    def _look_for_coordinator(self) -> Actions:
        if self.coordinator_known or not self._started:
            return ()
        if self._find != NO_REQUEST or self.now_ms < self._retry_ms:
            return ()
        self._find = self._request()
        return (FindCoordinator(self._find, self.options.request_timeout_ms),)

    def _to_give_up_before_join(self) -> frozenset[Resource] | None:
        """What KIP-429's onJoinPrepare revokes; None when nothing is to be done."""
        owned = self.holdings.owned
        if self.mode is RebalanceMode.EAGER:
            first = self.state is STABLE
            return owned if owned or first else None
        gone = topics_of(owned).difference(self.topics)
        return frozenset(r for r in owned if r[0] in gone) if gone else None

    def _give_up(
        self, resources: frozenset[Resource], *, of_round: bool = False, always_call: bool = False
    ) -> Actions:
        self.state = HANDING_OVER
        limit_ms = min(self.options.drain_timeout_ms, self.options.rebalance_timeout_ms)
        return self.holdings.give_up(
            resources,
            self.identity,
            self.now_ms + limit_ms,
            of_round=of_round,
            always_call=always_call,
        )

    def _advance_leave(self) -> Actions:
        """Hand everything over, announce if that is wanted, leave."""
        if self.state not in (UNJOINED, STABLE):
            return ()
        assert self.leaving is not None
        if self.holdings.owned:
            return self._give_up(self.holdings.owned)
        static = self.options.instance_id is not None
        if self.member_id == "" or (static and self.leaving.returns):
            self.state, self.generation = MemberState.DEAD, -1
            return ()
        if not self.coordinator_known:  # the session timeout will tell the group
            self.state, self.generation = MemberState.DEAD, -1
            return ()
        announce = self.options.announce_leave and not self.leaving.returns
        if announce and not self._announced and self.generation >= 0:
            self._announced = True
            return (self._send_join(),)
        self.state = LEAVING
        return (self._send_leave("the consumer is being closed"),)
