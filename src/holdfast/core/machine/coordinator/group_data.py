"""The state of a group at its coordinator: a plain record, its transitions, deadlines and members.

**Rules.**

- :class:`GroupData` holds facts. The first three fields are settings and the log. Every other field
  is lost when the coordinator fails, and :meth:`Coordinator.load` restores it from the log.
- ``state`` changes in :func:`go` and nowhere else, along ``GROUP_TRANSITIONS``.
- Members are in the order of joining, and ties are broken by it.
- ``deadline_ms`` is never later than the first thing that ends.

References: KIP-62, KIP-345, KIP-394; Kafka's ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.coordinator.group_messages import (
    Answer,
    Append,
    CoordinatorOptions,
    Durable,
    GroupMember,
    Out,
    group_record,
)
from holdfast.core.machine.events import JoinAnswered, JoinedMember, SyncAnswered
from holdfast.core.machine.states import GROUP_TRANSITIONS, GroupState
from holdfast.core.wire.layouts.record_size import batch_bytes

NEVER_MS = 2**62
"""Value instead of a time: not before the next request."""


@dataclass(slots=True, kw_only=True)
class GroupData:
    """The state of a group at its coordinator."""

    group_id: str
    options: CoordinatorOptions  # the broker's settings
    durable: Durable = field(default_factory=Durable)  # the group's part of the offsets topic

    now_ms: int
    deadline_ms: int = NEVER_MS  # nothing ends before this

    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)  # in the order of joining
    sessions: dict[str, int] = field(default_factory=dict)  # member id -> when its session ends
    pending: dict[str, int] = field(default_factory=dict)  # assigned ids, and until when they count
    next_id: int = 0

    # The round that runs
    round_ends_ms: int | None = None
    first_round_until_ms: int | None = None  # a group's first round only ends by time
    grew: bool = False  # whether a member has joined since that round was last extended


def go(group: GroupData, to: GroupState) -> None:
    """Enter a state; the table must have a row that leads to it."""
    assert to in GROUP_TRANSITIONS[group.state].values(), (group.state, to)
    group.state = to


def soonest_ms(group: GroupData) -> int:
    """Return the time when the first session, pending id or round ends; NEVER_MS for none."""
    sessions = group.sessions
    times = [
        sessions[member_id]
        for member_id, m in group.members.items()
        if m.joining is None and m.syncing is None
    ]
    times += group.pending.values()
    if group.round_ends_ms is not None:
        times.append(group.round_ends_ms)
    return min(times, default=NEVER_MS)


def begun_ms(group: GroupData, member_id: str) -> int:
    """Return when the first wait ends that one member's request may have begun.

    It is enough after a request that has changed neither state nor generation: then only this
    member's session, a pending id and the round can end earlier than before.
    """
    times = [NEVER_MS if group.round_ends_ms is None else group.round_ends_ms]
    times += group.pending.values()
    member = group.members.get(member_id)
    if member is not None and not member.waits:
        times.append(group.sessions[member_id])
    return min(times)


# Members of a group at its coordinator: refusals, sessions, protocols, answers and the record.
#
# A member's tuple is replaced, never changed. A member that waits for an answer is alive; its
# session runs from the answer on.
#
# Functions on the group's record that change no state but members and sessions.
#
# References: KIP-62, KIP-345; Kafka's ClassicGroup.


EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE


def refusal(
    group: GroupData, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """Return why a request of a member for a generation is refused; NONE if it is served."""
    if instance_id is not None:
        known = static_member(group, instance_id)
        if known is not None and known.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members or group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def unknown_or_fenced(group: GroupData, instance_id: str | None) -> ErrorCode:
    """Return the error for an unknown member id: fenced if its instance id is in the group."""
    if instance_id is not None and static_member(group, instance_id) is not None:
        return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.UNKNOWN_MEMBER_ID


def refuse_waiting(member: GroupMember, error: ErrorCode) -> list[Out]:
    """Answer every waiting request of a member with ``error``."""
    outs: list[Out] = []
    if member.joining is not None:
        outs.append(Answer(member.client, JoinAnswered(request=member.joining, error=error)))
    if member.syncing is not None:
        outs.append(Answer(member.client, SyncAnswered(request=member.syncing, error=error)))
    return outs


def beat(group: GroupData, member_id: str) -> ErrorCode:
    """Handle a heartbeat of a member; REBALANCE_IN_PROGRESS while a round gathers joins."""
    alive(group, group.members[member_id])
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE


def put(group: GroupData, member: GroupMember) -> None:
    """Add a member, or replace it at its position."""
    group.members[member.member_id] = member


def alive(group: GroupData, member: GroupMember) -> None:
    """Restart a member's session."""
    group.sessions[member.member_id] = group.now_ms + member.session_timeout_ms


def static_member(group: GroupData, instance_id: str) -> GroupMember | None:
    """Return the member with a ``group.instance.id``."""
    return next((m for m in group.members.values() if m.instance_id == instance_id), None)


def choose_protocol(group: GroupData) -> str:
    """Return the common protocol that most members prefer.

    Ties go to the one that the leader prefers.
    """
    members = list(group.members.values())
    common = common_protocols(members)
    votes: dict[str, int] = {}
    for member in members:
        first = next(name for name, _ in member.protocols if name in common)
        votes[first] = votes.get(first, 0) + 1
    leader = group.members.get(group.leader_id or "", members[0])
    order = {name: i for i, (name, _) in enumerate(leader.protocols)}
    return min(votes, key=lambda name: (-votes[name], order[name]))


def join_answer(
    group: GroupData, member: GroupMember, request: int, *, skip_assignment: bool = False
) -> Answer:
    """Return the generation as a JoinGroup response; only the leader gets the subscriptions."""
    leads = member.member_id == group.leader_id
    everybody = tuple(
        JoinedMember(
            member_id=m.member_id,
            instance_id=m.instance_id,
            metadata=dict(m.protocols)[group.protocol or ""],
        )
        for m in (group.members.values() if leads else ())
    )
    return Answer(
        member.client,
        JoinAnswered(
            request=request,
            generation=group.generation,
            protocol_name=group.protocol or "",
            leader_id=group.leader_id or "",
            member_id=member.member_id,
            members=everybody,
            skip_assignment=skip_assignment,
        ),
    )


def record_of(group: GroupData) -> Append:
    """Return the present group as a record of the offsets topic."""
    client_id = group.options.client_id
    members = tuple(
        {
            "memberId": m.member_id,
            "groupInstanceId": m.instance_id,
            "clientId": client_id(m.client),
            "clientHost": f"/{client_id(m.client)}",
            "rebalanceTimeout": m.rebalance_timeout_ms,
            "sessionTimeout": m.session_timeout_ms,
            "subscription": dict(m.protocols).get(group.protocol or "", b""),
            "assignment": m.assignment,
        }
        for m in group.members.values()
    )
    value = {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader_id,
        "currentStateTimestamp": group.options.wall_ms + group.now_ms,
        "members": members,
    }
    return group_record(group.group_id, value)


def fits_log(group: GroupData, record: Append) -> bool:
    """Return whether the broker writes a record: its batch is at most ``message.max.bytes``."""
    n_bytes = batch_bytes(len(record.key), len(record.value or b""))
    return n_bytes <= group.options.message_max_bytes


def common_protocols(members: Iterable[GroupMember]) -> set[str]:
    """Return the protocols that every one of ``members`` supports."""
    offered = {tuple([name for name, _ in m.protocols]) for m in members}
    return set.intersection(*map(set, offered))
