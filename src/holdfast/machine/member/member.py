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
  (:mod:`holdfast.machine.member.holdings`); the join waits for the hand-over, heartbeats do not.
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
find the coordinator, prepare, join, leave. What the coordinator's answers do stands in
:mod:`holdfast.machine.member.answers`; :mod:`holdfast.machine.states` is the table.

References: KIP-62, KIP-345, KIP-394, KIP-429, KIP-568, KIP-814; Incremental Cooperative
Rebalancing, "Member process".
"""

from __future__ import annotations

from typing import assert_never

from holdfast.errors import LocalProtocolError
from holdfast.machine.actions import (
    Action,
    FindCoordinator,
    Warn,
)
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
    Started,
    SubscriptionChanged,
    SyncAnswered,
    Tick,
)
from holdfast.machine.leader.embedded import RebalanceMode
from holdfast.machine.member.answers import MemberAnswers
from holdfast.machine.member.holdings import topics_of
from holdfast.machine.member.record import (
    COMPLETING,
    HANDING_OVER,
    LEAVING,
    NEVER_MS,
    NO_REQUEST,
    PREPARING,
    STABLE,
    UNJOINED,
    choose_mode,
)
from holdfast.machine.states import ENDED, TRANSITIONS, MemberState
from holdfast.model.partitions import Resource

__all__ = ["NEVER_MS", "NO_REQUEST", "Member", "choose_mode"]

Actions = tuple[Action, ...]

SHUT = ENDED | {HANDING_OVER, LEAVING}  # nothing begins there


class Member(MemberAnswers):
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

    def _on_leave_requested(self, event: LeaveRequested) -> Actions:
        if self.state in ENDED or self.leaving is not None:
            return ()
        self.leaving = event
        self._forget_round()
        if self.state in (PREPARING, COMPLETING, STABLE):
            self.state = UNJOINED
        return ()

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
