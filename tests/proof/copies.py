"""States of members and groups, copied out and in, and moved in time, for the search.

**Rules.** A copy holds every field but the settings: it is hashable, and equal for equal states.
``tests/machine/test_records.py`` compares the functions here with the fields of the records.

**Strategy.** Every field of a record is an immutable value, so a tuple of the values is a copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

from holdfast.core.machine.coordinator import group_data
from holdfast.core.machine.coordinator.group_data import GroupData
from holdfast.core.machine.member import member_data
from holdfast.core.machine.member.holdings import Holdings
from holdfast.core.machine.member.member_data import MemberData

Saved: TypeAlias = tuple[Any, ...]
"""A copy of a state."""


def saved_member(member: MemberData) -> Saved:
    """A copy of the state, without the settings."""
    return (
        member.now_ms, member.deadline_ms, member.state, member.member_id, member.generation,
        member.claim_generation, member.protocol_name, member.is_leader, member.started,
        member.stalled, member.leaves_stalled, member.polled_ms, member.topics,
        member.partitions, member.leaving,
        member.departure_announced, member.coordinator_known, member.contact_ms, member.retries,
        member.retry_at_ms, member.rejoin_reason, member.rejoin_at_ms, member.rounds_announced,
        member.nonce, member.previous, member.given_up, member.memory, member.memory_ms,
        member.joined_topics, member.planned_with, member.plan_failures, member.record,
        member.failing_since_ms, member.next_request,
        member.find_request, member.join_request, member.join_sent_ms, member.sync_request,
        member.leave_request, member.plan_token, member.heartbeat_request,
        member.heartbeat_sent_ms, member.heartbeat_generation, member.heartbeat_due_ms,
        _saved_holdings(member.holdings),
    )  # fmt: skip


def restore_member(member: MemberData, values: Saved) -> None:
    """Give a member the state that :func:`saved_member` copied from it or from another one."""
    (
        member.now_ms, member.deadline_ms, member.state, member.member_id, member.generation,
        member.claim_generation, member.protocol_name, member.is_leader, member.started,
        member.stalled, member.leaves_stalled, member.polled_ms, member.topics,
        member.partitions, member.leaving,
        member.departure_announced, member.coordinator_known, member.contact_ms, member.retries,
        member.retry_at_ms, member.rejoin_reason, member.rejoin_at_ms, member.rounds_announced,
        member.nonce, member.previous, member.given_up, member.memory, member.memory_ms,
        member.joined_topics, member.planned_with, member.plan_failures, member.record,
        member.failing_since_ms, member.next_request,
        member.find_request, member.join_request, member.join_sent_ms, member.sync_request,
        member.leave_request, member.plan_token, member.heartbeat_request,
        member.heartbeat_sent_ms, member.heartbeat_generation, member.heartbeat_due_ms,
        holdings,
    ) = values  # fmt: skip
    _restore_holdings(member.holdings, holdings)


def shift_member(member: MemberData, by_ms: int) -> None:
    """Let ``by_ms`` pass: every time but ``now_ms`` lies so much earlier afterwards.

    A search can keep its clock at one time this way, so that states that differ only in their time
    are equal. A time that never comes stays.
    """
    member.deadline_ms = _earlier(member.deadline_ms, by_ms)
    member.polled_ms -= by_ms
    member.contact_ms -= by_ms
    member.retry_at_ms = _earlier(member.retry_at_ms, by_ms)
    if member.rejoin_at_ms is not None:
        member.rejoin_at_ms -= by_ms
    if member.failing_since_ms is not None:
        member.failing_since_ms -= by_ms
    member.memory_ms -= by_ms
    member.join_sent_ms -= by_ms
    member.heartbeat_sent_ms -= by_ms
    member.heartbeat_due_ms -= by_ms
    _shift_holdings(member.holdings, by_ms)


def _earlier(at_ms: int, by_ms: int) -> int:
    """A time ``by_ms`` before another one; a time that never comes stays."""
    return at_ms if at_ms >= member_data.NEVER_MS else at_ms - by_ms


def saved_group(group: GroupData) -> Saved:
    """A copy of the state, without the settings and the log."""
    return (
        group.now_ms, group.deadline_ms, group.state, group.generation, group.protocol_type,
        group.protocol, group.leader_id, group.next_id, group.round_ends_ms,
        group.first_round_until_ms, group.grew, tuple(group.members.items()),
        tuple(group.sessions.items()), tuple(group.pending.items()),
    )  # fmt: skip


def restore_group(group: GroupData, values: Saved) -> None:
    """Give a group the state that :func:`saved_group` copied from it or from another one."""
    (
        group.now_ms, group.deadline_ms, group.state, group.generation, group.protocol_type,
        group.protocol, group.leader_id, group.next_id, group.round_ends_ms,
        group.first_round_until_ms, group.grew, members, sessions, pending,
    ) = values  # fmt: skip
    group.members, group.sessions, group.pending = dict(members), dict(sessions), dict(pending)


def shift_group(group: GroupData, by_ms: int) -> None:
    """Let ``by_ms`` pass: every time but ``now_ms`` lies so much earlier afterwards."""
    if group.deadline_ms < group_data.NEVER_MS:
        group.deadline_ms -= by_ms
    if group.round_ends_ms is not None:
        group.round_ends_ms -= by_ms
    if group.first_round_until_ms is not None:
        group.first_round_until_ms -= by_ms
    group.sessions = {member_id: ends_ms - by_ms for member_id, ends_ms in group.sessions.items()}
    group.pending = {member_id: ends_ms - by_ms for member_id, ends_ms in group.pending.items()}


def _saved_holdings(holdings: Holdings) -> Saved:
    """A copy of the state, without the settings."""
    return (
        holdings.owned, holdings.announced, holdings.started, holdings.queue, holdings.calling,
        holdings.out_token, holdings.next_token, holdings.hand_over,
        tuple(sorted(holdings.terms.items())), holdings.next_term,
    )  # fmt: skip


def _restore_holdings(holdings: Holdings, values: Saved) -> None:
    """Give holdings the state that :func:`_saved_holdings` copied."""
    (
        holdings.owned, holdings.announced, holdings.started, holdings.queue, holdings.calling,
        holdings.out_token, holdings.next_token, holdings.hand_over, terms, holdings.next_term,
    ) = values  # fmt: skip
    holdings.terms = dict(terms)


def _shift_holdings(holdings: Holdings, by_ms: int) -> None:
    """Let ``by_ms`` pass: times of the hand-over lie so much earlier afterwards."""
    job = holdings.hand_over
    if job is not None:
        retry_ms = None if job.retry_ms is None else job.retry_ms - by_ms
        holdings.hand_over = replace(job, deadline_ms=job.deadline_ms - by_ms, retry_ms=retry_ms)
