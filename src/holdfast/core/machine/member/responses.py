"""The coordinator's responses to a member: rebalances, refusals, and the loss of membership.

**Rules.** The rules are those of :mod:`holdfast.core.machine.member.member`, which receives events.
A response changes nothing unless its number is the one that the record awaits. The caller carries
out the returned actions in order.

**Strategy.** One function for each response, on the member's record, and the steps that events of
the application and of time take as well. Each leaves a whole state behind.

References: KIP-345, KIP-394, KIP-429, KIP-814; Incremental Cooperative Rebalancing, "Member
process".
"""

from __future__ import annotations

from holdfast.core.machine.actions import (
    Action,
    Actions,
    ComputeAssignment,
    JoinCompleted,
    Warn,
)
from holdfast.core.machine.codes import (
    COORDINATOR_GONE,
    EXPECTED,
    FATAL,
    MEMBER_OVER,
    MEMBERSHIP_LOST,
    ErrorCode,
    describe,
)
from holdfast.core.machine.events import (
    AssignmentComputed,
    AssignmentFailed,
    CommitAnswered,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    SyncAnswered,
)
from holdfast.core.machine.leader.assignor_protocol import RebalanceProtocol, ReceivedAssignment
from holdfast.core.machine.leader.subscriptions import handed_out, with_names
from holdfast.core.machine.member.holdings import Limit, ordered, topics_of
from holdfast.core.machine.member.member_data import (
    NO_REQUEST,
    MemberData,
    RecordSize,
    backoff_ms,
    die,
    doubled_ms,
    fail,
    is_reported,
    lose,
    new_request,
    send_sync,
    want,
)
from holdfast.core.machine.states import ENDED, MemberState
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.container import names_more
from holdfast.errors import WireError

MOST_TOPICS, MOST_MORE = 100, 600
"""Topics and partitions that a leader may name beyond three times those that its member knows."""

MOST_UNKNOWN = 100_000
"""Upper bound of the partitions of a subscribed topic that the member does not know yet."""

PLAN_RETRIES = 3  # failures in a row to plan after which the leader asks for a rebalance by itself

PASSING_FAILURES = 4  # failures in a row to reach the coordinator without a warning

_TOO_LARGE = (
    "Most likely the group's record is larger than the brokers allow: message.max.bytes, or "
    "max.message.bytes of __consumer_offsets"
)

UNJOINED, STABLE = MemberState.UNJOINED, MemberState.STABLE
PREPARING, COMPLETING = MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE


def on_coordinator(member: MemberData, request: int) -> Actions:
    """Handle the response to FindCoordinator."""
    if request == member.find_request:
        member.find_request = NO_REQUEST
        member.coordinator_known = True
        member.retries = 0
    return ()


def on_join(member: MemberData, event: JoinAnswered) -> Actions:
    """Handle the response to JoinGroup: a generation begins, and its leader computes."""
    if event.request != member.join_request:
        return ()
    member.join_request = NO_REQUEST
    if member.state is not PREPARING:
        return _on_late_join(member, event)
    if event.error == ErrorCode.MEMBER_ID_REQUIRED:
        member.member_id, member.state = event.member_id, UNJOINED
        return want(member, f"need to re-join with the given member-id: {event.member_id}")
    if event.error != ErrorCode.NONE:
        return _rebalance_failed(member, "JoinGroup", event.error)
    return _begin_generation(member, event)


def _begin_generation(member: MemberData, event: JoinAnswered) -> Actions:
    """Begin the second half of a rebalance: a follower syncs at once, a leader computes first."""
    unbroken = member.claim_generation == member.generation == event.generation - 1
    member.member_id, member.generation = event.member_id, event.generation
    member.protocol_name = event.protocol_name
    member.is_leader = event.leader_id == event.member_id
    member.contact_ms = member.now_ms
    member.heartbeat_due_ms = member.now_ms + member.options.heartbeat_interval_ms
    member.state = COMPLETING
    if not member.is_leader:
        return (send_sync(member, ()),)
    if event.skip_assignment:
        return _skip_assignment(member)
    member.plan_token = new_request(member)
    member.planned_with = member.partitions
    member.record = RecordSize.of(event.members)
    return (
        ComputeAssignment(
            token=member.plan_token,
            generation=event.generation,
            protocol_name=event.protocol_name,
            members=event.members,
            partitions=member.partitions,
            member_id=member.member_id,
            waited_ms=member.now_ms - member.join_sent_ms,
            unbroken=unbroken,
        ),
    )


def _on_late_join(member: MemberData, event: JoinAnswered) -> Actions:
    """Handle a rebalance that began, or an id that was given, while the member leaves.

    The member leaves with the id, and revokes in the new generation. It claimed all that it owns
    when it joined, so no other member has any of it. Under the generation before, its heartbeats
    and the commit of its revocation would be refused, and its callback would still run when other
    members take over.
    """
    if event.error == ErrorCode.MEMBER_ID_REQUIRED:
        member.member_id = event.member_id
        return ()
    if event.error != ErrorCode.NONE:
        is_new = member.member_id == ""  # then the refusal takes nothing from it
        return () if is_new else on_refusal(member, event.error, member.generation)
    member.member_id, member.generation = event.member_id, event.generation
    member.contact_ms = member.now_ms
    member.holdings.renew(member.identity)
    return ()


def _skip_assignment(member: MemberData) -> Actions:
    """Skip the assignment: a static leader is back, and the group keeps the old one (KIP-814).

    The process that planned the assignments has ended, and this process does not know its partition
    counts. Under a design its assignment holds the counts. Without the counts the leader asks for
    one more rebalance, because partitions added meanwhile would otherwise never get an owner (L1).
    An eager leader asks at once: if it took its assignment first, the rebalance would stop it
    again.
    """
    member.planned_with = ()
    if member.rebalance_protocol is RebalanceProtocol.EAGER:
        member.state = UNJOINED
        return want(member, "the planned partition counts are not known")
    return (send_sync(member, ()),)


def on_plan(member: MemberData, event: AssignmentComputed | AssignmentFailed) -> Actions:
    """Handle the leader's assignments, or the failure to compute them."""
    if event.token != member.plan_token:
        return ()
    member.plan_token = NO_REQUEST
    if isinstance(event, AssignmentFailed):
        # Without a SyncGroup of its leader the group would hang, and with an empty one every member
        # would get bytes that are not an assignment. A join begins a new rebalance, and all claims
        # stay.
        return (Warn(f"could not plan, a new round begins: {event.reason}"), *retry(member))
    if event.partitions is not None:
        member.planned_with = event.partitions
    if member.record is not None:
        member.record = member.record.with_assignments(event.assignments)
    if event.failure is None:
        member.plan_failures = 0
        return (*map(Warn, event.notes), send_sync(member, event.assignments))
    member.plan_failures += 1
    text = f"could not plan, every member keeps its claims: {event.failure}"
    return (Warn(text), send_sync(member, event.assignments))


def on_sync(member: MemberData, event: SyncAnswered) -> Actions:
    """Handle the response to SyncGroup: the member has its assignment."""
    if event.request != member.sync_request:
        return ()
    member.sync_request = NO_REQUEST
    record, member.record = member.record, None
    if event.error != ErrorCode.NONE:
        return _rebalance_failed(member, "SyncGroup", event.error, record)
    assignor = next(a for a in member.assignors if a.name == member.protocol_name)
    topics, partitions = _most_named(member)
    if names_more(event.assignment, topics=topics, partitions=partitions):
        text = f"the leader's assignment names more than {topics:,} topics or {partitions:,} "
        return (Warn(f"{text}partitions: far fewer exist, so it is not taken"), *retry(member))
    try:
        received = assignor.read(event.assignment)
    except WireError as error:
        return (Warn(f"unreadable assignment: {error}"), *retry(member))
    member.retries, member.failing_since_ms = 0, None
    if not topics_of(received.assigned).issubset(member.topics):
        member.state = UNJOINED  # the subscription has changed since the join
        return want(member, "assignment does not match the subscription")
    return _apply(member, received)


def _most_named(member: MemberData) -> tuple[int, int]:
    """Return more topics and partitions than an honest leader can name, as this member knows them.

    The leader may know of more partitions than this member, whose metadata are older.
    """
    known = dict(member.partitions)
    topics = {*member.topics, *member.joined_topics, *topics_of(member.holdings.owned)}
    exist = sum(known.get(topic, MOST_UNKNOWN) for topic in topics)
    return MOST_TOPICS + 3 * len(topics), MOST_MORE + 3 * (exist + len(member.holdings.owned))


def _apply(member: MemberData, received: ReceivedAssignment) -> Actions:
    """Take over an assignment: next = (owned - revoked) + assigned."""
    assert member.state is COMPLETING, member.state
    owned = member.holdings.owned
    gained = received.assigned - owned
    revoked = owned - received.assigned if received.absence_revokes else owned & received.revoked
    member.claim_generation = member.generation
    member.already_revoked = ordered(revoked)
    member.leader_state, member.state_received_ms = received.leader_state, member.now_ms
    if member.planned_with == () and member.is_leader:
        member.planned_with = handed_out(received.planned)
    member.state, member.rejoin_reason = STABLE, None
    member.rejoin_at_ms = member.now_ms + received.delay_ms if received.delay_ms else None
    member.previous = ordered((owned - revoked) | gained if revoked or gained else owned)
    done = JoinCompleted(
        generation=member.generation,
        member_id=member.member_id,
        is_leader=member.is_leader,
        protocol_name=member.protocol_name,
        owned=member.previous,
        gained=ordered(gained),
        revoked=ordered(revoked),
        delay_ms=received.delay_ms,
    )
    actions: list[Action] = [done]
    member.rebalances_announced = member.rebalances_announced + 1 if received.again else 0
    if received.again and not revoked:
        # A join at once would begin the next rebalance before slower members have synced. Their
        # syncs would be refused, they would never learn what to revoke, and the rebalances would
        # never end.
        options, n_before = member.options, member.rebalances_announced - 1
        member.rejoin_at_ms = member.now_ms + doubled_ms(
            options.again_pause_ms, n_before, options.heartbeat_interval_ms
        )
    if member.joined_topics != member.topics:
        want(member, "subscription changed")
    if member.is_leader and 0 < member.plan_failures <= PLAN_RETRIES:
        member.rejoin_at_ms = member.now_ms + backoff_ms(member, member.plan_failures)
    watch_metadata(member)
    if revoked:
        want(member, "resources were revoked")
        actions += revoke(member, revoked, of_rebalance=True)
    actions += member.holdings.gain(gained)
    return tuple(actions)


def on_heartbeat(member: MemberData, event: HeartbeatAnswered) -> Actions:
    """Handle a heartbeat's response: the session runs from the time at which it was sent."""
    if event.request != member.heartbeat_request:
        return ()
    member.heartbeat_request = NO_REQUEST
    error = event.error
    if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        # The time of sending, not of the answer: the coordinator's own timeout began later, so it
        # cannot have given the resources to another member before this member drops them
        # (KAFKA-9184).
        member.contact_ms = max(member.contact_ms, member.heartbeat_sent_ms)
    warned: Actions = ()
    if error not in (ErrorCode.NONE, *EXPECTED, *MEMBERSHIP_LOST, *FATAL):
        warned = (Warn(f"a heartbeat was refused, the next one follows: {describe(error)}"),)
    return (*warned, *on_refusal(member, error, member.heartbeat_generation))


def on_refusal(member: MemberData, error: int, generation: int) -> Actions:
    """Handle an error code of a heartbeat or commit that was sent with ``generation``."""
    if error == ErrorCode.NONE or member.state in (*ENDED, MemberState.LEAVING):
        return ()
    if error == ErrorCode.ILLEGAL_GENERATION and member.join_request != NO_REQUEST:
        # At the coordinator the rebalance is complete. Its JoinGroup response is on the way, on the
        # other connection, and the request with the old generation came too late. If the response
        # never comes, the end of the session ends the wait.
        return ()
    if error in COORDINATOR_GONE:
        member.coordinator_known = False
    elif error == ErrorCode.REBALANCE_IN_PROGRESS:
        if member.state is STABLE:
            want(member, "group is rebalancing")
    elif error in MEMBERSHIP_LOST:
        if generation == member.generation and generation >= 0:
            reset_id = error == ErrorCode.UNKNOWN_MEMBER_ID
            return lose(member, reset_id=reset_id, reason=describe(error))
    elif error == ErrorCode.FENCED_INSTANCE_ID and generation != member.generation:
        return ()  # by this process itself, which has joined again since, with a new member id
    elif error in FATAL:
        return fail(member, error)
    return ()


def on_failed(member: MemberData, request: int, reason: str) -> Actions:
    """Handle a request without a response."""
    if request == NO_REQUEST:
        return ()
    if request == member.leave_request:
        return on_left(member, LeaveAnswered(request))
    if request in (member.join_request, member.sync_request):
        member.coordinator_known = False
        member.join_request = member.sync_request = NO_REQUEST
        return retry(member) if member.state in (PREPARING, COMPLETING) else ()
    if request == member.heartbeat_request:
        member.heartbeat_request, member.coordinator_known = NO_REQUEST, False
        member.heartbeat_due_ms = member.now_ms
    if request == member.find_request:
        member.find_request = NO_REQUEST
        pause_ms = backoff_ms(member, member.retries)
        member.retry_at_ms = member.now_ms + pause_ms
        member.retries += 1
        if member.retries >= PASSING_FAILURES and is_reported(member.retries - 1):
            text = f"the coordinator is not found, the next attempt is in {pause_ms} ms: {reason}"
            return (Warn(text),)
    return ()


def on_left(member: MemberData, event: LeaveAnswered) -> Actions:
    """Handle the response to LeaveGroup, or its absence: the member is dead in any case.

    A refusal gets a warning and no second attempt: the process is about to end, and the end of its
    session does the same for the others. Kafka's client does the same.

    References: ``LeaveGroupResponseHandler`` of Kafka's AbstractCoordinator.
    """
    if event.request != member.leave_request:
        return ()
    member.leave_request = NO_REQUEST
    die(member)
    member.member_id = ""
    if event.error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        return ()
    text = "LeaveGroup was refused; the others take over when this session ends"
    return (Warn(f"{text}: {describe(event.error)}"),)


def on_revocation_commit(member: MemberData, event: CommitAnswered) -> Actions:
    """Handle the answer to a revocation's commit; a refusal may mean lost membership."""
    job = member.holdings.revocation
    if job is None or job.token != event.request:
        return ()
    joins = member.join_request != NO_REQUEST
    actions = member.holdings.commit_answered(event, member.now_ms, joins=joins)
    if event.error in MEMBER_OVER:
        return (*actions, *on_refusal(member, event.error, job.sent_generation))
    return actions


def _rebalance_failed(
    member: MemberData, request: str, error: int, record: RecordSize | None = None
) -> Actions:
    """Handle JoinGroup or SyncGroup that was refused with the code ``error``."""
    if error in MEMBERSHIP_LOST:
        reset_id = error == ErrorCode.UNKNOWN_MEMBER_ID
        lost = lose(member, reset_id=reset_id, reason=describe(error))
        return (*lost, *retry(member))
    if error in COORDINATOR_GONE:
        member.coordinator_known = False
    elif error in FATAL:
        return fail(member, error)
    if request != "SyncGroup" or error != ErrorCode.UNKNOWN_SERVER_ERROR:
        return refused(member, request, error)
    # A coordinator that cannot write the group's record because of its size answers SyncGroup so:
    # ``appendGroupMetadataErrorToResponseError`` of Kafka's GroupMetadataManager.
    known = "; the leader's log names the size" if record is None else f". {record}"
    return refused(member, request, error, f"{_TOO_LARGE}{known}")


def watch_metadata(member: MemberData) -> Actions:
    """Ask for a rebalance if partition counts differ from the leader's plan. Returns no actions.

    Only a stable leader does, once it knows counts; followers leave it to the leader.
    """
    if (
        member.state is not MemberState.STABLE
        or not member.is_leader
        or member.planned_with is None
        or not member.partitions
    ):
        return ()
    member.planned_with = with_names(member.planned_with, member.partitions)
    if _relevant(member, member.partitions) != _relevant(member, member.planned_with):
        want(member, "partition counts changed")
    return ()


def _relevant(member: MemberData, partitions: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Return the counts in ``partitions`` of topics that were planned with or are subscribed."""
    names = {name for name, _ in member.planned_with or ()} | set(member.topics)
    return {name: count for name, count in partitions if count and name in names}


def revoke(
    member: MemberData,
    resources: frozenset[Resource],
    *,
    of_rebalance: bool = False,
    always_call: bool = False,
) -> Actions:
    """Begin a revocation; see :meth:`Holdings.revoke`."""
    member.state = MemberState.REVOKING
    limit = Limit(ms=member.options.drain_timeout_ms, setting=member.options.drain_setting)
    return member.holdings.revoke(
        resources,
        member.identity,
        member.now_ms + limit.ms,
        limit=limit,
        of_rebalance=of_rebalance,
        always_call=always_call,
    )


def retry(member: MemberData) -> Actions:
    """Join again after a pause; claims and identity stay as they are."""
    member.state = MemberState.UNJOINED
    member.retry_at_ms = member.now_ms + backoff_ms(member, member.retries)
    member.retries += 1
    return want(member, "the last round failed")


def refused(member: MemberData, request: str, error: int, cause: str = "") -> Actions:
    """Retry a rebalance that was refused with a temporary code, and warn from time to time.

    A code that Kafka expects gets no warning. Any other code gets one at the first, second, fourth,
    eighth refusal and so on. After ``error_timeout_ms`` of refusals the member fails.
    """
    n_before, options = member.retries, member.options
    actions = retry(member)
    if error in EXPECTED:
        return actions
    if member.failing_since_ms is None:
        member.failing_since_ms = member.now_ms
    failing_ms = member.now_ms - member.failing_since_ms
    if 0 < options.error_timeout_ms <= failing_ms:
        text = f"{request} is refused since {failing_ms} ms: {describe(error)}"
        return fail(member, error, f"{text}. {cause}" if cause else text)
    if is_reported(n_before):
        pause_ms = member.retry_at_ms - member.now_ms
        text = f"{request} was refused, the next attempt is in {pause_ms} ms: {describe(error)}"
        return (Warn(f"{text}. {cause}" if cause else text), *actions)
    return actions
