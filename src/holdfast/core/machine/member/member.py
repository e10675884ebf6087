"""A group member without input or output: events in, actions out.

**How to drive it** (a runtime over two connections, or the simulation)::

    member = Member([assignor, ...], options)
    act(member.step(now_ms, Started()))
    act(member.step(now_ms, SubscriptionChanged(("orders",))))
    while running:
        wait for an answer, or until member.deadline_ms
        act(member.step(now_ms, event or None))

``step`` moves the clock and then delivers the event; ``receive`` delivers one event alone, and time
moves only by :class:`Tick`. Carry out the actions of one event in order. Requests carry a
``request`` number that the answer repeats, other actions a ``token``; both kinds may be answered
late, twice or never. ``FindCoordinator`` and every ``Send...`` end in an answer or in
``RequestFailed``. JoinGroup and SyncGroup go over one connection, heartbeats, commits and
LeaveGroup over another.

**Rules.**

- A cooperative member keeps processing while it joins. Only resources of a revocation or of a loss
  stop.
- A revocation is: stop fetching, drained, callback, commit with the old generation, join
  (:mod:`holdfast.core.machine.member.holdings`). The join waits for the revocation; heartbeats do
  not.
- When the generation is reset, everything that is owned is lost before anything else happens
  (KAFKA-12983, KAFKA-9851). ILLEGAL_GENERATION keeps the member id (KAFKA-13419).
- An error for an older generation is ignored, a fence of an older member id of this process as well
  (KAFKA-9823). A retriable error resets nothing (KAFKA-13214). A sync that failed keeps the claims
  of the old generation (KAFKA-14016).
- The member drops everything a session timeout after it *sent* the last acknowledged heartbeat
  (KAFKA-9184).
- A static leader that comes back skips the assignment (KIP-814). If it does not learn with which
  partition counts the assignments were planned, it asks for one rebalance: topics may have grown.
- A member that leaves before it has an id awaits the id, and leaves with it (KIP-394).
- A scheduled rebalance is due one delay after its assignment arrived, and the next one replaces it.
- The application compares ``terms`` before it commits: the coordinator checks the generation, not
  the term in which records were handed out, and they may be committed in that term only.

**Strategy.** One function for each event changes a plain record (``member_data``); those for the
coordinator's responses are in ``responses``. After each event ``_advance`` takes the steps that are
open: find the coordinator, revoke, join, leave. ``states`` has the table.

References: KIP-62, KIP-345, KIP-394, KIP-429, KIP-568, KIP-814; Incremental Cooperative
Rebalancing, "Member process".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from holdfast.core.machine.actions import Actions, FindCoordinator, Warn
from holdfast.core.machine.events import (
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
from holdfast.core.machine.leader.assignor_protocol import (
    Assignor,
    RebalanceProtocol,
    choose_rebalance_protocol,
)
from holdfast.core.machine.member import responses
from holdfast.core.machine.member.holdings import (
    Holdings,
    Limit,
    names,
    topics_of,
)
from holdfast.core.machine.member.member_data import (
    NEVER_MS,
    NO_REQUEST,
    MemberData,
    MemberOptions,
    die,
    forget_rebalance,
    lose,
    new_request,
    send_heartbeat,
    send_join,
    send_leave,
    want,
)
from holdfast.core.machine.member.responses import revoke, watch_metadata
from holdfast.core.machine.shared_values import Identity
from holdfast.core.machine.states import ENDED, TRANSITIONS, MemberState
from holdfast.core.model.partitions import Resource
from holdfast.errors import LocalProtocolError

UNJOINED, STABLE = MemberState.UNJOINED, MemberState.STABLE
PREPARING, COMPLETING = MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE
REVOKING, LEAVING = MemberState.REVOKING, MemberState.LEAVING

SHUT = ENDED | {REVOKING, LEAVING}
"""States in which the member begins nothing."""


class Member:
    """One member of one group: receives events, returns actions.

    Parameters
    ----------
    assignors : sequence of Assignor
        In order of preference.
    options : MemberOptions
        Times, identity, rules for commits.
    now_ms : int
        Time of a monotonic clock.
    nonce : int
        First number of the count of joins.
    """

    __slots__ = ("data",)

    def __init__(
        self,
        assignors: Sequence[Assignor],
        options: MemberOptions | None = None,
        *,
        now_ms: int = 0,
        nonce: int = 0,
    ):
        options = options or MemberOptions()
        self.data = MemberData(
            assignors=tuple(assignors),
            options=options,
            rebalance_protocol=choose_rebalance_protocol(assignors),
            holdings=Holdings(
                auto_commit=options.auto_commit,
                commit_retries=options.commit_retries,
                retry_backoff_ms=options.retry_backoff_ms,
                last_commit_ms=options.last_commit_ms,
            ),
            now_ms=now_ms,
            polled_ms=now_ms,
            contact_ms=now_ms,
            retry_at_ms=now_ms,
            nonce=nonce,
            state_received_ms=now_ms,
            join_sent_ms=now_ms,
            heartbeat_sent_ms=now_ms,
            heartbeat_due_ms=now_ms,
        )

    # Readings

    @property
    def state(self) -> MemberState:
        """State of the member."""
        return self.data.state

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave, or an empty string."""
        return self.data.member_id

    @property
    def generation(self) -> int:
        """The generation of the last JoinGroup response, -1 for none."""
        return self.data.generation

    @property
    def holdings(self) -> Holdings:
        """The owned resources, the callbacks and the revocation."""
        return self.data.holdings

    @property
    def owned(self) -> tuple[Resource, ...]:
        """Resources that the next join claims, sorted, with those of a revocation in progress."""
        return self.data.owned

    @property
    def identity(self) -> Identity:
        """Member id and generation for a commit that the application sends itself."""
        return self.data.identity

    @property
    def is_leader(self) -> bool:
        """Whether the member led the last completed rebalance."""
        return self.data.is_leader

    @property
    def terms(self) -> Mapping[Resource, int]:
        """Number of the current term of each owned resource; never changed in place."""
        return self.data.holdings.terms

    @property
    def deadline_ms(self) -> int | None:
        """Latest time for the next ``step``; None: not before the next event."""
        deadline_ms = self.data.deadline_ms
        return None if deadline_ms == NEVER_MS else deadline_ms

    # Events

    def step(self, now_ms: int, event: Event | None = None) -> Actions:
        """Move the clock to ``now_ms``, then deliver the event."""
        data = self.data
        actions: Actions = ()
        if now_ms >= data.deadline_ms:
            actions = self.receive(Tick(now_ms))
        elif now_ms > data.now_ms:
            data.now_ms = now_ms
        return actions if event is None else actions + self.receive(event)

    def receive(self, event: Event) -> Actions:
        """Receive one event.

        Returns
        -------
        tuple of Action
            To be carried out in order.

        Raises
        ------
        LocalProtocolError
            If the table forbids the event in this state; then nothing has changed.
        """
        data, name = self.data, type(event).__name__
        allowed = TRANSITIONS[data.state].get(name)
        if allowed is None:
            raise LocalProtocolError(f"{name} is not allowed in state {data.state}")
        if isinstance(event, Tick):
            if event.now_ms < data.now_ms:
                return ()
            data.now_ms = event.now_ms
            if event.now_ms < data.deadline_ms:
                return ()
        actions = _dispatch(data, event)
        if not _rests(data):
            actions = (*actions, *_advance(data))
        assert data.state in allowed, (name, sorted(allowed), data.state)
        data.deadline_ms = data.next_deadline_ms()
        return actions


def _dispatch(member: MemberData, event: Event) -> Actions:  # noqa: PLR0911, PLR0912 - one arm per event
    match event:
        case Tick():
            return _on_time(member)
        case HeartbeatAnswered():
            return responses.on_heartbeat(member, event)
        case Started():
            member.started, member.polled_ms = True, member.now_ms
            member.rejoin_reason = "first join"
            return ()
        case SubscriptionChanged(topics):
            member.topics = tuple(sorted(set(topics)))
            return want(member, "subscription changed") if member.started else ()
        case MetadataChanged(partitions):
            member.partitions = tuple(sorted(partitions))
            return watch_metadata(member)
        case Polled():
            member.polled_ms, member.stalled = member.now_ms, False
            return ()
        case RejoinRequested(reason):
            return want(member, reason)
        case LeaveRequested():
            return _on_leave_requested(member, event)
        case CoordinatorFound(request):
            return responses.on_coordinator(member, request)
        case JoinAnswered():
            return responses.on_join(member, event)
        case SyncAnswered():
            return responses.on_sync(member, event)
        case LeaveAnswered():
            return responses.on_left(member, event)
        case RequestFailed(request, reason):
            return responses.on_failed(member, request, reason)
        case AssignmentComputed() | AssignmentFailed():
            return responses.on_plan(member, event)
        case Drained():
            return member.holdings.drained(event)
        case ListenerReturned():
            return member.holdings.listener_returned(event)
        case CommitAnswered():
            return responses.on_revocation_commit(member, event)
        case CommitRefused(generation, error):
            return responses.on_refusal(member, error, generation)
        case _:
            assert_never(event)


def _on_time(member: MemberData) -> Actions:
    if member.now_ms >= member.session_ends_ms:
        text = f"no answer from the coordinator for {member.options.session_timeout_ms} ms"
        return (Warn(text), *lose(member, reset_id=False, reason="session timeout"))
    if member.now_ms >= member.poll_ends_ms:
        return _stall(member)
    actions = member.holdings.tick(member.now_ms)
    if member.rejoin_at_ms is not None and member.now_ms >= member.rejoin_at_ms:
        member.rejoin_at_ms = None
        if member.state is STABLE:
            announced = member.rebalances_announced > 0
            want(member, "another round was announced" if announced else "scheduled rebalance")
    if (
        member.sends_heartbeats
        and member.heartbeat_request == NO_REQUEST
        and member.now_ms >= member.heartbeat_due_ms
    ):
        actions = (*actions, send_heartbeat(member))
    return actions


def _stall(member: MemberData) -> Actions:
    """Commit what is processed, then leave: the application has stopped polling."""
    member.stalled = True
    limit = Limit(ms=member.options.max_poll_interval_ms, setting=member.options.poll_setting)
    text = f"no poll for {limit}: leaves the group"
    if owned := member.holdings.owned:
        text = f"{text} and loses {names(owned)}: {member.holdings.read_again}"
    if member.generation < 0 or not member.coordinator_known:
        return (Warn(text), *_leave_stalled(member))
    member.leaves_stalled, join = True, member.join_request
    forget_rebalance(member)
    member.join_request = join  # the response still has the generation
    member.state = REVOKING
    return (Warn(text), *member.holdings.end(member.identity, member.now_ms, limit))


def _leave_stalled(member: MemberData) -> Actions:
    """Leave, so that other members take over (KIP-62)."""
    leave: Actions = ()
    is_static = member.options.instance_id is not None
    if not is_static and member.coordinator_known:
        leave = (send_leave(member, "max.poll.interval.ms passed without a poll"),)
        member.leave_request = NO_REQUEST
    return (*leave, *lose(member, reset_id=not is_static, reason="polling again"))


def _on_leave_requested(member: MemberData, event: LeaveRequested) -> Actions:
    if member.state in ENDED or member.leaving is not None:
        return ()
    member.leaving, join = event, member.join_request
    forget_rebalance(member)
    member.join_request = join  # the response still has the generation
    if member.state in (PREPARING, COMPLETING, STABLE):
        member.state = UNJOINED
    return ()


def _rests(member: MemberData) -> bool:
    """Return whether no step is open: the usual case, between two heartbeats."""
    return (
        member.state is STABLE
        and member.rejoin_reason is None
        and member.leaving is None
        and member.coordinator_known
    )


def _advance(member: MemberData) -> Actions:
    """Take every step that is open now."""
    actions: Actions = ()
    if member.state is REVOKING and not member.holdings.revoking:
        member.state = UNJOINED
        if member.leaves_stalled:
            actions = _leave_stalled(member)
    if member.state in SHUT:
        return ()
    actions = (*actions, *_look_for_coordinator(member))
    if member.leaving is not None:
        return (*actions, *_advance_leave(member))
    if not _wants_rebalance(member) or not member.coordinator_known:
        return actions
    stop = _to_revoke_before_join(member)
    if stop is not None:
        return (
            *actions,
            *revoke(member, stop, always_call=member.rebalance_protocol is RebalanceProtocol.EAGER),
        )
    return (*actions, send_join(member))


def _wants_rebalance(member: MemberData) -> bool:
    if not member.started or member.stalled:
        return False
    if member.state is UNJOINED:
        return member.now_ms >= member.retry_at_ms
    return member.state is STABLE and member.rejoin_reason is not None


def _look_for_coordinator(member: MemberData) -> Actions:
    if member.coordinator_known or not member.started:
        return ()
    if member.find_request != NO_REQUEST or member.now_ms < member.retry_at_ms:
        return ()
    member.find_request = new_request(member)
    return (FindCoordinator(member.find_request, member.options.request_timeout_ms),)


def _to_revoke_before_join(member: MemberData) -> frozenset[Resource] | None:
    """Return what KIP-429's onJoinPrepare revokes; None: no revocation, no callback."""
    owned = member.holdings.owned
    if member.rebalance_protocol is RebalanceProtocol.EAGER:
        first = member.state is STABLE
        return owned if owned or first else None
    gone = topics_of(owned).difference(member.topics)
    return frozenset(r for r in owned if r[0] in gone) if gone else None


def _advance_leave(member: MemberData) -> Actions:
    """Take the next step of leaving: revoke all, announce it in a last rebalance, LeaveGroup."""
    if member.state not in (UNJOINED, STABLE):
        return ()
    assert member.leaving is not None
    if member.holdings.owned:
        return revoke(member, member.holdings.owned)
    is_static = member.options.instance_id is not None
    awaits_id = member.join_request != NO_REQUEST and member.member_id == "" and not is_static
    if awaits_id and member.coordinator_known:
        # The coordinator has reserved an id, or is about to, and completes no round before a member
        # with this id has joined or left: others would wait for the length of a session (KIP-394).
        return ()
    member.join_request = NO_REQUEST
    is_kept = is_static and member.leaving.process_ends
    can_leave = member.member_id != "" and member.coordinator_known
    if not can_leave or (is_kept and member.leaving.returns):
        die(member)  # the group notices the end of a session
        return ()
    may_announce = (
        member.rebalance_protocol is RebalanceProtocol.COOPERATIVE
    )  # no eager assignor reads an announcement
    may_announce = may_announce and member.protocol_name in member.options.announce_leave
    announce = may_announce and not member.leaving.returns
    if announce and not member.departure_announced and member.generation >= 0:
        member.departure_announced = True
        return (send_join(member),)
    member.state = LEAVING
    return (send_leave(member, "the consumer is being closed"),)
