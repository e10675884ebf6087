"""Joins and rebalances of a group: from a JoinGroup request to the next generation.

**Rules.** A rebalance gathers joins in ``PREPARING_REBALANCE`` until every member has joined or the
rebalance timeout has passed. Then a generation begins in ``COMPLETING_REBALANCE``, or the group is
``EMPTY``. A member that has not joined by then is removed, unless it is static (KIP-345).

- A member without an id is first assigned one and joins with it (KIP-394), unless it is static.
- A follower that joins again with the same bytes in ``STABLE`` gets the current generation and no
  rebalance; a leader's join always starts one.
- A static member that joins with a new id replaces its old one (KIP-345). If the group's record
  would pass ``message.max.bytes`` with it, the old one stays and the join ends in
  UNKNOWN_SERVER_ERROR.

**Strategy.** Functions on the group's record; each returns the responses and records it causes.
:func:`join` takes a request; :func:`prepare` begins a rebalance and :func:`settle` completes it.

References: KIP-62, KIP-345, KIP-394, KIP-134 (the first rebalance), KIP-814; KAFKA-9801,
KAFKA-12890.
"""

from __future__ import annotations

from holdfast.core.machine.actions import SendJoin
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.coordinator.group import (
    GroupData,
    GroupMember,
    Out,
    SendResponse,
    alive,
    choose_protocol,
    common_protocols,
    fits_log,
    go,
    join_response,
    put,
    record_of,
    refuse_waiting,
    static_member,
    unknown_or_fenced,
)
from holdfast.core.machine.events import JoinAnswered, SyncAnswered
from holdfast.core.machine.states import GroupState

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE


def join(group: GroupData, client: str, request: SendJoin) -> list[Out]:
    """Handle a JoinGroup request."""
    error = _refuse_join(group, request)
    if error is not ErrorCode.NONE:
        return [_joined(client, request, error)]
    if request.member_id == "":
        return _join_unknown(group, client, request)
    if request.member_id in group.pending:
        del group.pending[request.member_id]
        return _add(group, client, request, request.member_id)
    member = group.members.get(request.member_id)
    if member is None or member.instance_id != request.instance_id:
        return [_joined(client, request, unknown_or_fenced(group, request.instance_id))]
    return _rejoin(group, client, request, member)


def _refuse_join(group: GroupData, request: SendJoin) -> ErrorCode:
    low, high = group.options.min_session_timeout_ms, group.options.max_session_timeout_ms
    if not low <= request.session_timeout_ms <= high:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    member = group.members.get(request.member_id)
    if member is not None and _supports_the_same(member, request):
        return ErrorCode.NONE  # the others fit: each was compared with this one, or this with it
    others = [m for m in group.members.values() if m.member_id != request.member_id]
    if request.instance_id is not None:
        others = [m for m in others if m.instance_id != request.instance_id]
    if not request.protocols:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if others:
        fits = not common_protocols(others).isdisjoint(name for name, _ in request.protocols)
        if others[0].protocol_type != request.protocol_type or not fits:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id == "" and len(others) >= group.options.max_size:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    return ErrorCode.NONE


def _join_unknown(group: GroupData, client: str, request: SendJoin) -> list[Out]:
    member_id = f"{client}-{group.next_id:0{group.options.id_digits}d}"
    group.next_id += 1
    if request.instance_id is None:
        group.pending[member_id] = group.now_ms + request.session_timeout_ms
        return [_joined(client, request, ErrorCode.MEMBER_ID_REQUIRED, member_id)]
    old = static_member(group, request.instance_id)
    if old is None:
        return _add(group, client, request, member_id)
    return _replace_static(group, client, request, old, member_id)


def _add(group: GroupData, client: str, request: SendJoin, member_id: str) -> list[Out]:
    group.protocol_type = request.protocol_type
    put(
        group,
        GroupMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client=client,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            joining=request.request,
        ),
    )
    alive(group, group.members[member_id])
    if group.leader_id is None:
        group.leader_id = member_id
    if group.state is PREPARING:
        group.grew = True
        return []
    return prepare(group)


def _rejoin(group: GroupData, client: str, request: SendJoin, member: GroupMember) -> list[Out]:
    same = member.protocols == request.protocols
    late = group.state is STABLE and same and request.member_id != group.leader_id
    if late or (group.state is COMPLETING and same):
        # The response was lost, or nothing has changed: send the current generation, no rebalance.
        put(group, member._replace(client=client, joining=None))
        return [join_response(group, member._replace(client=client), request.request)]
    put(group, _renewed(member, client, request)._replace(joining=request.request))
    return [] if group.state is PREPARING else prepare(group)


def _renewed(member: GroupMember, client: str, request: SendJoin) -> GroupMember:
    """Return a member with what its new join says, waiting for no response."""
    return member._replace(
        client=client,
        protocols=request.protocols,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        joining=None,
        syncing=None,
    )


def _replace_static(
    group: GroupData, client: str, request: SendJoin, old: GroupMember, member_id: str
) -> list[Out]:
    """Replace a static member's old id, after the member has joined with a new one.

    The process with the old id is fenced. A stable group keeps its generation and assignments.
    """
    outs = refuse_waiting(old, ErrorCode.FENCED_INSTANCE_ID)
    new = _renewed(old, client, request)._replace(member_id=member_id)
    was_leader = group.leader_id == old.member_id
    _exchange(group, old, new)
    if group.state is STABLE and choose_protocol(group) == group.protocol:
        record = record_of(group)
        if not fits_log(group, record):
            _exchange(group, new, old)
            return [*outs, _refused_replacement(group, client, request)]
        outs.append(record)
        return [*outs, join_response(group, new, request.request, skip_assignment=was_leader)]
    put(group, new._replace(joining=request.request, synced=False))
    return outs if group.state is PREPARING else [*outs, *prepare(group)]


def _exchange(group: GroupData, old: GroupMember, new: GroupMember) -> None:
    """Exchange a member for another one, which has its position and leads if it led."""
    members = [new if m is old else m for m in group.members.values()]
    group.members = {m.member_id: m for m in members}
    group.sessions.pop(old.member_id, None)
    alive(group, new)
    if group.leader_id == old.member_id:
        group.leader_id = new.member_id


def _refused_replacement(group: GroupData, client: str, request: SendJoin) -> SendResponse:
    """Refuse a join, because the record with its new id is too large; the old id is not fenced.

    References: Kafka's GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin; seen
    with 4.3.1.
    """
    response = JoinAnswered(
        request=request.request,
        error=ErrorCode.UNKNOWN_SERVER_ERROR,
        member_id="",
        generation=group.generation,
        protocol_name=group.protocol or "",
        leader_id=group.leader_id or "",
    )
    return SendResponse(client, response)


def _supports_the_same(member: GroupMember, request: SendJoin) -> bool:
    """Return whether a member joins again with the identity and the protocols it has."""
    if (member.instance_id, member.protocol_type) != (request.instance_id, request.protocol_type):
        return False
    return [name for name, _ in member.protocols] == [name for name, _ in request.protocols]


def _joined(
    client: str, request: SendJoin, error: ErrorCode, member_id: str | None = None
) -> SendResponse:
    given = request.member_id if member_id is None else member_id
    return SendResponse(client, JoinAnswered(request=request.request, error=error, member_id=given))


def prepare(group: GroupData) -> list[Out]:
    """Begin a rebalance: refuse the syncs that wait, and gather joins."""
    outs: list[Out] = []
    for member in list(group.members.values()):
        if member.syncing is not None:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            outs.append(
                SendResponse(member.client, SyncAnswered(request=member.syncing, error=error))
            )
            alive(group, member)
        assignment = member.assignment if group.state is not COMPLETING else b""
        put(group, member._replace(syncing=None, synced=False, assignment=assignment))
    timeout_ms = max(m.rebalance_timeout_ms for m in group.members.values())
    group.rebalance_ends_ms = group.now_ms + timeout_ms
    group.first_rebalance_until_ms, group.grew = None, False
    if group.state is EMPTY and group.options.initial_delay_ms > 0:
        group.first_rebalance_until_ms = group.rebalance_ends_ms
        group.rebalance_ends_ms = group.now_ms + min(group.options.initial_delay_ms, timeout_ms)
    go(group, PREPARING)
    return outs


def settle(group: GroupData) -> list[Out]:
    """Complete the rebalance if every member has joined."""
    if group.state is not PREPARING:
        return []
    if not group.members:
        return _complete_join(group)
    if group.first_rebalance_until_ms is not None or group.pending:
        return []
    if all(m.joining is not None for m in group.members.values()):
        return _complete_join(group)
    return []


def rebalance_timed_out(group: GroupData) -> list[Out]:
    """Continue without the members that sent no join or sync in time."""
    if group.state is COMPLETING:
        outs: list[Out] = []
        for member in list(group.members.values()):
            if not member.synced and member.syncing is None:
                outs += remove(group, member.member_id)
        return outs
    limit_ms = group.first_rebalance_until_ms
    # A first rebalance waits again after each new member, within the rebalance timeout (KIP-134).
    if limit_ms is not None and group.grew and group.now_ms < limit_ms:
        group.grew = False
        group.rebalance_ends_ms = min(group.now_ms + group.options.initial_delay_ms, limit_ms)
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
    group.first_rebalance_until_ms = None
    group.generation += 1
    joined = [m for m in group.members.values() if m.joining is not None]
    if not group.members:
        go(group, EMPTY)
        group.rebalance_ends_ms = None
        group.protocol = group.leader_id = None
        return [record_of(group)]
    if not joined:  # all members are static, and all are away: wait for them once more
        timeout_ms = max(m.rebalance_timeout_ms for m in group.members.values())
        group.generation -= 1
        group.rebalance_ends_ms = group.now_ms + timeout_ms
        return []
    # The leader stays the leader if it is there, as in Kafka; else the member that joined first.
    if group.leader_id not in {m.member_id for m in joined}:
        group.leader_id = joined[0].member_id
    group.protocol = choose_protocol(group)
    go(group, COMPLETING)
    assert group.leader_id in group.members
    group.rebalance_ends_ms = group.now_ms + max(m.rebalance_timeout_ms for m in joined)
    outs: list[Out] = []
    for member in joined:
        assert member.joining is not None
        ready = member._replace(joining=None)
        put(group, ready)
        alive(group, ready)
        outs.append(join_response(group, ready, member.joining))
    return outs


def remove(group: GroupData, member_id: str) -> list[Out]:
    """Remove a member, and begin a rebalance for the others."""
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
