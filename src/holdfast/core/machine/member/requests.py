"""The requests of a member, written from its state.

**Rules.** Each function gives the request a number, notes in the record that the answer is awaited,
and returns the action. No function decides whether to send.

**Strategy.** One function a request; assignors write a subscription from :func:`view_of`.

References: KIP-345, KIP-394, KIP-429, KIP-800.
"""

from __future__ import annotations

from holdfast.core.machine.actions import Action, SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.core.machine.leader.assignor_protocol import MemberView, RebalanceProtocol
from holdfast.core.machine.member.member_data import NO_REQUEST, MemberData
from holdfast.core.machine.states import MemberState
from holdfast.core.wire.layouts.frames import Leaving

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
