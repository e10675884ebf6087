"""A group at its coordinator: its messages, its records and their replay, its state and members.

**Rules.**

- Messages are values. A response repeats the number of its request.
- Records are Kafka's bytes: GroupMetadataValue v3, OffsetCommitValue v4. A group record holds a
  completed generation; an interrupted generation leaves no record. The durable state changes only
  in :meth:`Durable.replay`: a change is first written as a record.
- :class:`GroupData` holds facts. The first three fields are settings and the log. Every other field
  is lost when the coordinator fails, and :meth:`Coordinator.load` restores it from the log.
- ``state`` changes in :func:`go` and nowhere else, along ``GROUP_TRANSITIONS``.
- Members are in the order of joining, and ties are broken by it. A member's tuple is replaced,
  never changed. A member that waits for a response is alive; its session runs from the response on.
- ``deadline_ms`` is never later than the first thing that ends.

**Strategy.** Replay keeps the last record of each key as bytes. The first reader of the state, in
general a coordinator after a failover, decodes the records. The functions change no state of the
group's record but members and sessions.

References: KIP-62, KIP-345 (v3), KIP-394, KAFKA-19141 (v4); Kafka's ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from holdfast.core.machine.actions import SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import (
    CommitAnswered,
    HeartbeatAnswered,
    JoinAnswered,
    JoinedMember,
    LeaveAnswered,
    SyncAnswered,
)
from holdfast.core.machine.states import GROUP_TRANSITIONS, GroupState
from holdfast.core.model.constants import INT32_MAX
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.offsets_records import Record, decode_record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES, batch_bytes
from holdfast.core.wire.one.reader import INT16, INT32, INT64

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE

GROUP_VERSION, COMMIT_VERSION = 3, 4

NEVER_MS = 2**62
"""Value instead of a time: not before the next request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCommit:
    """OffsetCommit, fenced by member, generation and instance."""

    request: int
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[tuple[Resource, int], ...]


Request: TypeAlias = SendJoin | SendSync | SendHeartbeat | SendLeave | SendCommit
Response: TypeAlias = (
    JoinAnswered | SyncAnswered | HeartbeatAnswered | LeaveAnswered | CommitAnswered
)


class Received(NamedTuple):
    """A request of a client; ``client`` names its connection."""

    client: str
    request: Request


class SendResponse(NamedTuple):
    """A response to a client."""

    client: str
    response: Response


class Append(NamedTuple):
    """A record to be written to the offsets topic and then replayed."""

    key: bytes
    value: bytes | None


Out: TypeAlias = SendResponse | Append
Outs = tuple[Out, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """Broker settings; times in ms.

    ``wall_ms`` is the wall clock's time at time 0, for the times in records. ``client_id`` returns
    the client id of a connection's name: a process that starts again has another connection and
    keeps its client id. ``message_max_bytes`` is the broker's ``message.max.bytes``: a group's
    record above it is not written. A member id ends in a counter of ``id_digits`` digits; with 36
    it is as long as Kafka's, which ends in a UUID.
    """

    initial_delay_ms: int = 3_000
    wall_ms: int = 0
    client_id: Callable[[str], str] = str
    min_session_timeout_ms: int = 1
    max_session_timeout_ms: int = 1_800_000
    max_size: int = INT32_MAX
    message_max_bytes: int = MESSAGE_MAX_BYTES
    id_digits: int = 4


class GroupMember(NamedTuple):
    """One member; ``joining`` and ``syncing`` are requests that wait for a response.

    A named tuple costs least, and a member is rewritten six times in a rebalance.
    """

    member_id: str
    instance_id: str | None
    client: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    joining: int | None = None
    syncing: int | None = None
    synced: bool = False
    assignment: bytes = b""

    @property
    def waits(self) -> bool:
        """Whether the member waits for a response, and so is alive."""
        return self.joining is not None or self.syncing is not None


def group_record(group_id: str, value: Mapping[str, Any]) -> Append:
    """Return the record of a completed generation; ``value`` has the fields of Kafka's schema.

    A group without members has neither protocol nor leader.
    """
    record = Record(
        record_type=RecordType.GROUP_METADATA,
        name="GroupMetadata",
        key={"group": group_id},
        value_version=GROUP_VERSION,
        value=dict(value),
    )
    return Append(*encode_record(record))


def commit_record(
    group_id: str, topic: str, partition: int, offset: int, timestamp_ms: int
) -> Append:
    """Return the record of one committed offset."""
    key, version, rest = _commit_around(group_id, topic, timestamp_ms)
    return Append(key + INT32.pack(partition), version + INT64.pack(offset) + rest)


@lru_cache(maxsize=256)
def _commit_around(group_id: str, topic: str, timestamp_ms: int) -> tuple[bytes, bytes, bytes]:
    """Return the bytes around partition and offset: key, version, value after the offset.

    A member commits hundreds of partitions at once, and their records differ only in partition and
    offset.
    """
    record = Record(
        record_type=RecordType.OFFSET_COMMIT,
        name="OffsetCommit",
        key={"group": group_id, "topic": topic, "partition": 0},
        value_version=COMMIT_VERSION,
        value={"offset": 0, "leaderEpoch": -1, "metadata": "", "commitTimestamp": timestamp_ms},
    )
    key, value = encode_record(record)
    assert value is not None
    return key[: -INT32.size], value[: INT16.size], value[INT16.size + INT64.size :]


class Durable:
    """The state of a group in its log: of each key the last record counts, as after compaction."""

    __slots__ = ("_group", "_offsets", "_unread")

    def __init__(self) -> None:
        self._group: Mapping[str, Any] | None = None
        self._offsets: dict[tuple[str, int], int] = {}
        self._unread: dict[bytes, bytes | None] = {}

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one record of this group.

        References: Kafka's group coordinator: ``replay`` is the only key that mutates.
        """
        self._unread[key] = value

    @property
    def group(self) -> Mapping[str, Any] | None:
        """The value of the last group record; ``WireError`` if a record is broken."""
        self._read()
        return self._group

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        """Committed offset of each (topic, partition); raises as :attr:`group`."""
        self._read()
        return self._offsets

    def _read(self) -> None:
        for key, value in self._unread.items():
            record = decode_record(key, value)
            if record.record_type == RecordType.GROUP_METADATA:
                self._group = record.value
            elif record.record_type == RecordType.OFFSET_COMMIT:
                resource = (record.key["topic"], record.key["partition"])
                if record.value is None:
                    self._offsets.pop(resource, None)
                else:
                    self._offsets[resource] = record.value["offset"]
        self._unread.clear()


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

    # The rebalance that runs
    rebalance_ends_ms: int | None = None
    first_rebalance_until_ms: int | None = None  # a group's first rebalance only ends by time
    grew: bool = False  # whether a member has joined since that rebalance was last extended


def go(group: GroupData, to: GroupState) -> None:
    """Enter a state; the table must have a row that leads to it."""
    assert to in GROUP_TRANSITIONS[group.state].values(), (group.state, to)
    group.state = to


def soonest_ms(group: GroupData) -> int:
    """Return the time when the first session, pending id or rebalance ends; NEVER_MS for none."""
    sessions = group.sessions
    times = [
        sessions[member_id]
        for member_id, m in group.members.items()
        if m.joining is None and m.syncing is None
    ]
    times += group.pending.values()
    if group.rebalance_ends_ms is not None:
        times.append(group.rebalance_ends_ms)
    return min(times, default=NEVER_MS)


def begun_ms(group: GroupData, member_id: str) -> int:
    """Return when the first wait ends that one member's request may have begun.

    It is enough after a request that has changed neither state nor generation: then only this
    member's session, a pending id and the rebalance can end earlier than before.
    """
    times = [NEVER_MS if group.rebalance_ends_ms is None else group.rebalance_ends_ms]
    times += group.pending.values()
    member = group.members.get(member_id)
    if member is not None and not member.waits:
        times.append(group.sessions[member_id])
    return min(times)


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
    """Respond to every waiting request of a member with ``error``."""
    outs: list[Out] = []
    if member.joining is not None:
        outs.append(SendResponse(member.client, JoinAnswered(request=member.joining, error=error)))
    if member.syncing is not None:
        outs.append(SendResponse(member.client, SyncAnswered(request=member.syncing, error=error)))
    return outs


def beat(group: GroupData, member_id: str) -> ErrorCode:
    """Handle a heartbeat of a member; REBALANCE_IN_PROGRESS while a rebalance gathers joins."""
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


def join_response(
    group: GroupData, member: GroupMember, request: int, *, skip_assignment: bool = False
) -> SendResponse:
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
    return SendResponse(
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
