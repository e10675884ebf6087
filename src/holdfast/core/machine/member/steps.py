"""Steps of a member that several events take, and the requests that it sends.

**Rules.** The rules are those of :mod:`holdfast.core.machine.member.member`. The caller carries out
the returned actions in order.

**Strategy.** Functions on the member's record, each of which leaves a whole state behind.

References: KIP-345, KIP-429; Incremental Cooperative Rebalancing, "Member process".
"""

from __future__ import annotations

from holdfast.core.machine.actions import (
    Action,
    Actions,
    Fail,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Warn,
)
from holdfast.core.machine.codes import EXPECTED, ErrorCode, describe
from holdfast.core.machine.leader.assignor_protocol import MemberView, RebalanceProtocol
from holdfast.core.machine.leader.subscriptions import with_names
from holdfast.core.machine.member.holdings import Limit
from holdfast.core.machine.member.member_data import NO_REQUEST, MemberData
from holdfast.core.machine.states import MemberState
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.container import Leaving


def want(member: MemberData, reason: str) -> Actions:
    """Ask for a round; the first reason stays until the round begins. Returns no actions."""
    member.rejoin_reason = member.rejoin_reason or reason
    return ()


def watch_metadata(member: MemberData) -> Actions:
    """Ask for a round if partition counts differ from the leader's plan. Returns no actions.

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
    of_round: bool = False,
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
        of_round=of_round,
        always_call=always_call,
    )


def retry(member: MemberData) -> Actions:
    """Join again after a pause; claims and identity stay as they are."""
    member.state = MemberState.UNJOINED
    member.retry_at_ms = member.now_ms + backoff_ms(member, member.retries)
    member.retries += 1
    return want(member, "the last round failed")


def refused(member: MemberData, request: str, error: int, cause: str = "") -> Actions:
    """Retry a round that was refused with a temporary code, and warn from time to time.

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

    A member that keeps processing during a round joins without claims. An eager member still
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
    forget_round(member)
    member.heartbeat_request = NO_REQUEST
    member.state = MemberState.UNJOINED
    want(member, reason)
    return member.holdings.lose()


def forget_round(member: MemberData) -> None:
    """Await no answer of the round that runs, and no round that was scheduled."""
    member.join_request = member.sync_request = member.plan_token = NO_REQUEST
    member.rejoin_at_ms = member.record = None


def die(member: MemberData) -> None:
    """End the member, which has left; its id stays for the logs."""
    member.state, member.generation = MemberState.DEAD, -1


def fail(member: MemberData, error: int, text: str = "") -> Actions:
    """End the member, which the coordinator refuses for good.

    ``text`` replaces the usual words for the code.

    References: :data:`holdfast.core.machine.codes.FATAL`.
    """
    actions = lose(member, reset_id=False, reason="")
    fenced = error == ErrorCode.FENCED_INSTANCE_ID
    member.state = MemberState.FENCED if fenced else MemberState.DEAD
    return (*actions, Fail(error, text or describe(error)))


# The requests of a member, written from its state.
#
# Each function gives the request a number, notes in the record that the answer is awaited, and
# returns the action. No function decides whether to send.
#
# One function a request; assignors write a subscription from ``view_of``.
#
# References: KIP-345, KIP-394, KIP-429, KIP-800.


JOIN_SLACK_MS = 5_000  # a JoinGroup may take the whole rebalance timeout, and its way back


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
