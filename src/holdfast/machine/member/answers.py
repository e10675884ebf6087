"""What a coordinator's answers do to a member: rounds, refusals, and what is lost with membership.

**Rules.** Those of :mod:`holdfast.machine.member.member`, where the events come in. An answer with
another number than the one awaited changes nothing. What a method returns is done in order.

**Strategy.** One method per answer; the rest is what several of them do.

References: KIP-345, KIP-394, KIP-429, KIP-814; Incremental Cooperative Rebalancing, "Member
process".
"""

from __future__ import annotations

from holdfast.errors import WireError
from holdfast.machine.actions import (
    Action,
    ComputeAssignment,
    Fail,
    JoinCompleted,
    Warn,
)
from holdfast.machine.codes import COORDINATOR_GONE, MEMBERSHIP_LOST, RETRIABLE, ErrorCode, describe
from holdfast.machine.events import (
    AssignmentComputed,
    AssignmentFailed,
    CommitAnswered,
    HeartbeatAnswered,
    JoinAnswered,
    SyncAnswered,
)
from holdfast.machine.leader.deferral import handed_out
from holdfast.machine.leader.embedded import Instruction, RebalanceMode
from holdfast.machine.member.holdings import ordered, topics_of
from holdfast.machine.member.record import (
    COMPLETING,
    HANDING_OVER,
    LEAVING,
    NO_REQUEST,
    PREPARING,
    STABLE,
    UNJOINED,
    MemberRecord,
)
from holdfast.machine.states import ENDED, MemberState
from holdfast.model.partitions import Resource

Actions = tuple[Action, ...]


class MemberAnswers(MemberRecord):
    """A member as its coordinator's answers change it."""

    __slots__ = ()

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

    # What several of them do

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
