"""Rounds of a group: from the first reason for one to the next generation.

**Rules.** A round gathers joins in ``PREPARING_REBALANCE`` until every member has joined or the
rebalance timeout has passed. Then a generation begins in ``COMPLETING_REBALANCE``, or the group is
``EMPTY``. A member that has not joined by then is removed, unless it is static (KIP-345).

**Strategy.** Functions on the group's record; each returns the answers and records it causes.

References: KIP-62, KIP-345, KIP-134 (the first round); KAFKA-12890.
"""

from __future__ import annotations

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.coordinator.group_data import GroupData, go
from holdfast.core.machine.coordinator.group_members import (
    alive,
    choose_protocol,
    join_answer,
    put,
    record_of,
    refuse_waiting,
)
from holdfast.core.machine.coordinator.group_messages import Answer, Out
from holdfast.core.machine.events import SyncAnswered
from holdfast.core.machine.states import GroupState

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE


def prepare(group: GroupData) -> list[Out]:
    """Begin a round: refuse the syncs that wait, and gather joins."""
    outs: list[Out] = []
    for member in list(group.members.values()):
        if member.syncing is not None:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            outs.append(Answer(member.client, SyncAnswered(request=member.syncing, error=error)))
            alive(group, member)
        assignment = member.assignment if group.state is not COMPLETING else b""
        put(group, member._replace(syncing=None, synced=False, assignment=assignment))
    timeout_ms = max(m.rebalance_timeout_ms for m in group.members.values())
    group.round_ends_ms = group.now_ms + timeout_ms
    group.first_round_until_ms, group.grew = None, False
    if group.state is EMPTY and group.options.initial_delay_ms > 0:
        group.first_round_until_ms = group.round_ends_ms
        group.round_ends_ms = group.now_ms + min(group.options.initial_delay_ms, timeout_ms)
    go(group, PREPARING)
    return outs


def settle(group: GroupData) -> list[Out]:
    """Complete the round if every member has joined."""
    if group.state is not PREPARING:
        return []
    if not group.members:
        return _complete_join(group)
    if group.first_round_until_ms is not None or group.pending:
        return []
    if all(m.joining is not None for m in group.members.values()):
        return _complete_join(group)
    return []


def round_timed_out(group: GroupData) -> list[Out]:
    """Continue without the members that sent no join or sync in time."""
    if group.state is COMPLETING:
        outs: list[Out] = []
        for member in list(group.members.values()):
            if not member.synced and member.syncing is None:
                outs += remove(group, member.member_id)
        return outs
    limit_ms = group.first_round_until_ms
    if limit_ms is not None and group.grew and group.now_ms < limit_ms:
        group.grew = False
        group.round_ends_ms = min(group.now_ms + group.options.initial_delay_ms, limit_ms)
        return []
    return _complete_join(group)


def _complete_join(group: GroupData) -> list[Out]:
    """Begin the next generation with the members that have joined.

    Static members that have not joined stay in the group (KIP-345), all others are removed.
    """
    assert group.state is PREPARING, group.state
    assert group.sessions.keys() == group.members.keys()
    for member in list(group.members.values()):
        if member.joining is None and member.instance_id is None:
            del group.members[member.member_id], group.sessions[member.member_id]
    group.first_round_until_ms = None
    group.generation += 1
    joined = [m for m in group.members.values() if m.joining is not None]
    if not group.members:
        go(group, EMPTY)
        group.round_ends_ms = None
        group.protocol = group.leader_id = None
        return [record_of(group)]
    if not joined:  # all members are static, and all are away: wait for them once more
        timeout_ms = max(m.rebalance_timeout_ms for m in group.members.values())
        group.generation -= 1
        group.round_ends_ms = group.now_ms + timeout_ms
        return []
    if group.leader_id not in {m.member_id for m in joined}:
        group.leader_id = joined[0].member_id
    group.protocol = choose_protocol(group)
    go(group, COMPLETING)
    assert group.leader_id in group.members
    group.round_ends_ms = group.now_ms + max(m.rebalance_timeout_ms for m in joined)
    outs: list[Out] = []
    for member in joined:
        assert member.joining is not None
        ready = member._replace(joining=None)
        put(group, ready)
        alive(group, ready)
        outs.append(join_answer(group, ready, member.joining))
    return outs


def remove(group: GroupData, member_id: str) -> list[Out]:
    """Remove a member, and begin a round for the others."""
    member = group.members.pop(member_id)
    group.sessions.pop(member_id, None)
    outs = refuse_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID)
    if group.leader_id == member_id:
        group.leader_id = next(iter(group.members), None)
    if group.state is PREPARING:
        return outs
    if group.members:
        return outs + prepare(group)
    go(group, PREPARING)
    return outs + _complete_join(group)
