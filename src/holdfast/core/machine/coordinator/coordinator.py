"""Kafka's classic group coordinator for one group, without input or output.

**How to drive it**: ``step(now_ms, Received(client, request))`` returns responses and records.
Write each :class:`Append` to the log and pass it to ``replay``; responses go out after that.

**Rules.**

- One generation at a time: ``PREPARING_REBALANCE`` gathers joins, ``COMPLETING_REBALANCE`` waits
  for the leader's assignments, ``STABLE`` answers syncs and heartbeats.
- The state that must survive a failover changes only in ``replay`` (:class:`Durable`); all other
  state is in :class:`GroupData` and is lost with the coordinator.
- A member that waits for a response is alive; its session runs from the response on.
- A group's record above ``message.max.bytes`` is not written: the leader's sync, and every sync
  that waits for it, ends in UNKNOWN_SERVER_ERROR, and a new rebalance begins.
- Commits are accepted while ``PREPARING_REBALANCE``, refused with REBALANCE_IN_PROGRESS while
  ``COMPLETING_REBALANCE``. Ownership of partitions is not checked.

**Strategy.** :mod:`~holdfast.core.machine.coordinator.group` has the record, with functions on it,
and :mod:`~holdfast.core.machine.coordinator.rebalance` JoinGroup and rebalances; the other requests
are here. Ties are broken by the order of joining.

References: KIP-62, KIP-345, KIP-394 (MEMBER_ID_REQUIRED), KIP-814; KAFKA-9801, KAFKA-12890.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from holdfast.core.machine.actions import SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.coordinator.group import (
    NEVER_MS,
    CoordinatorOptions,
    Durable,
    GroupData,
    GroupMember,
    Out,
    Outs,
    Received,
    Request,
    SendCommit,
    SendResponse,
    alive,
    beat,
    begun_ms,
    commit_record,
    fits_log,
    go,
    put,
    record_of,
    refusal,
    soonest_ms,
    unknown_or_fenced,
)
from holdfast.core.machine.coordinator.rebalance import (
    join,
    prepare,
    rebalance_timed_out,
    remove,
    settle,
)
from holdfast.core.machine.events import (
    CommitAnswered,
    HeartbeatAnswered,
    LeaveAnswered,
    SyncAnswered,
)
from holdfast.core.machine.states import GroupState

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE


class Coordinator:
    """The coordinator of one group.

    Parameters
    ----------
    now_ms : int
        Time of a monotonic clock.
    first_id : int
        First number of the count of member ids.
    """

    __slots__ = ("data",)

    def __init__(
        self,
        group_id: str,
        options: CoordinatorOptions | None = None,
        *,
        now_ms: int = 0,
        first_id: int = 0,
    ):
        self.data = GroupData(
            group_id=group_id,
            options=options or CoordinatorOptions(),
            now_ms=now_ms,
            next_id=first_id,
        )

    # Readings

    @property
    def state(self) -> GroupState:
        """State of the group."""
        return self.data.state

    @property
    def generation(self) -> int:
        """The current generation, 0 before the first."""
        return self.data.generation

    @property
    def leader_id(self) -> str | None:
        """Member id of the leader."""
        return self.data.leader_id

    @property
    def members(self) -> Mapping[str, GroupMember]:
        """Members by id, in the order of joining."""
        return self.data.members

    @property
    def durable(self) -> Durable:
        """The replayed state."""
        return self.data.durable

    @property
    def deadline_ms(self) -> int | None:
        """Latest time for the next ``step``; it may come before anything ends."""
        deadline_ms = self.data.deadline_ms
        return None if deadline_ms == NEVER_MS else deadline_ms

    # The log

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply a record that was written."""
        self.data.durable.replay(key, value)

    def load(self, now_ms: int) -> None:
        """Begin from the replayed log, as after a failover: sessions restart."""
        group = self.data
        group.now_ms = now_ms
        stored = group.durable.group
        if stored is None:
            return
        group.generation, group.protocol_type = stored["generation"], stored["protocolType"]
        group.protocol, group.leader_id = stored["protocol"], stored["leader"]
        for m in stored["members"]:
            member = GroupMember(
                member_id=m["memberId"],
                instance_id=m["groupInstanceId"],
                client=m["clientId"],
                protocol_type=stored["protocolType"],
                protocols=((stored["protocol"] or "", m["subscription"]),),
                session_timeout_ms=m["sessionTimeout"],
                rebalance_timeout_ms=m["rebalanceTimeout"],
                assignment=m["assignment"],
                synced=True,
            )
            put(group, member)
            alive(group, member)
        if group.members:
            go(group, STABLE)
        group.deadline_ms = soonest_ms(group)

    # Time and requests

    def step(self, now_ms: int, event: Received | None = None) -> Outs:
        """Move the clock, then take a request.

        Returns
        -------
        tuple of SendResponse and Append
            In order.
        """
        group = self.data
        group.now_ms = max(group.now_ms, now_ms)
        outs: list[Out] = []
        if group.now_ms >= group.deadline_ms:
            if group.now_ms >= soonest_ms(group):
                outs += _expire(group)
            group.deadline_ms = soonest_ms(group)
        if event is None:
            return tuple(outs)
        request = event.request
        before = group.state, group.generation
        outs += _take(group, event.client, request)
        if isinstance(request, SendHeartbeat):
            return tuple(outs)  # it only moves a session's end further away
        outs += settle(group)
        if request.instance_id is not None or before != (group.state, group.generation):
            group.deadline_ms = soonest_ms(group)
        else:
            group.deadline_ms = min(group.deadline_ms, begun_ms(group, request.member_id))
        return tuple(outs)


def _take(group: GroupData, client: str, request: Request) -> list[Out]:
    match request:
        case SendJoin():
            return join(group, client, request)
        case SendSync():
            return _sync(group, client, request)
        case SendHeartbeat():
            error = refusal(group, request.member_id, request.instance_id, request.generation)
            if error is ErrorCode.NONE:
                error = beat(group, request.member_id)
            return [SendResponse(client, HeartbeatAnswered(request.request, error))]
        case SendLeave():
            return _leave(group, client, request)
        case SendCommit():
            return _commit(group, client, request)
        case _:
            assert_never(request)


def _expire(group: GroupData) -> list[Out]:
    outs: list[Out] = []
    for member_id, until in list(group.pending.items()):
        if group.now_ms >= until:
            del group.pending[member_id]
    for member in list(group.members.values()):
        if not member.waits and group.now_ms >= group.sessions[member.member_id]:
            outs += remove(group, member.member_id)
    if group.rebalance_ends_ms is not None and group.now_ms >= group.rebalance_ends_ms:
        outs += rebalance_timed_out(group)
    return outs + settle(group)


def _sync(group: GroupData, client: str, request: SendSync) -> list[Out]:
    error = refusal(group, request.member_id, request.instance_id, request.generation)
    if error is ErrorCode.NONE and request.protocol_name != group.protocol:
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is ErrorCode.NONE and group.state is PREPARING:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    if error is not ErrorCode.NONE:
        return [SendResponse(client, SyncAnswered(request=request.request, error=error))]
    member = group.members[request.member_id]._replace(
        client=client, syncing=request.request, synced=True
    )
    put(group, member)
    alive(group, member)
    if group.state is STABLE:
        return respond_to_syncs(group, (member,))
    if request.member_id != group.leader_id:
        return []
    given = dict(request.assignments)
    for each in list(group.members.values()):
        put(group, each._replace(assignment=given.get(each.member_id, b"")))
    record = record_of(group)
    if not fits_log(group, record):
        return _refuse_syncs(group)
    go(group, STABLE)
    group.rebalance_ends_ms = None
    return [record, *respond_to_syncs(group, tuple(group.members.values()))]


def _refuse_syncs(group: GroupData) -> list[Out]:
    """Refuse all syncs, because the group's record is too large: all members join again.

    References: Kafka's GroupMetadataManager.classicGroupSyncToLeader; seen with 4.3.1.
    """
    outs: list[Out] = []
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    for member in list(group.members.values()):
        if member.syncing is not None:
            response = SyncAnswered(request=member.syncing, error=error)
            outs.append(SendResponse(member.client, response))
            alive(group, member)
        put(group, member._replace(syncing=None, assignment=b""))
    return outs + prepare(group)


def respond_to_syncs(group: GroupData, members: tuple[GroupMember, ...]) -> list[Out]:
    """Respond to the syncs of ``members`` that wait, each with the member's assignment."""
    assert group.state is STABLE, group.state
    outs: list[Out] = []
    for member in members:
        if member.syncing is not None:
            put(group, member._replace(syncing=None))
            alive(group, member)
            response = SyncAnswered(request=member.syncing, assignment=member.assignment)
            outs.append(SendResponse(member.client, response))
    return outs


def _leave(group: GroupData, client: str, request: SendLeave) -> list[Out]:
    group.pending.pop(request.member_id, None)
    member = group.members.get(request.member_id)
    if member is None and request.instance_id is not None:
        error = unknown_or_fenced(group, request.instance_id)
        return [SendResponse(client, LeaveAnswered(request.request, error))]
    outs: list[Out] = [SendResponse(client, LeaveAnswered(request.request))]
    return outs if member is None else outs + remove(group, request.member_id)


def _commit(group: GroupData, client: str, request: SendCommit) -> list[Out]:
    error = ErrorCode.NONE
    if group.state is not EMPTY or request.generation >= 0:
        error = refusal(group, request.member_id, request.instance_id, request.generation)
    if error is ErrorCode.NONE and group.state is COMPLETING:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    outs: list[Out] = []
    if error is ErrorCode.NONE:
        wall_ms = group.options.wall_ms + group.now_ms
        outs += [
            commit_record(group.group_id, topic, partition, offset, wall_ms)
            for (topic, partition), offset in request.offsets
        ]
        if request.member_id in group.members:
            beat(group, request.member_id)
    return [*outs, SendResponse(client, CommitAnswered(request.request, error))]
