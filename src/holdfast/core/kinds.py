"""The kinds of groups, one row each, and how the messages of their members are read.

**Rules.** A kind is recognised by three columns of the table ``generations``: the type of the group
at its broker, its protocol type, and, for Streams alone, its protocol. A row,
:class:`GroupKind`, is all that the pipeline, the report and the commands know of a kind: code that
needs a group's kind calls :func:`kind_of`, and no other code compares the three columns with a
name. A classic group of a protocol type without a row counts as a group of plain consumers, and its
assignments are not read.

A Connect worker, and a Worker, has after a round what it had, less what was revoked, plus what was
assigned. A connector's task is listed under its connector.

A warm-up task of Kafka Streams is inferred. While another rebalance is planned, the copies of a
task beyond those that every task of its subtopology has are warm-up tasks, first the ones whose
state is furthest behind. All other copies are standby tasks. The leader of a group lists one active
task for each partition, by topic and number (``StreamsPartitionAssignor.getActiveTasks``), so the
topics that a subtopology reads follow from the member's lists, unless the two differ in length.

**Strategy.** Subscriptions are read only in rounds that may have warm-up tasks: rounds with a
planned rebalance and copies. Plain consumers are read in columns
(:mod:`holdfast.fleet.pipeline.ingest.decode_classic`).

References: KIP-415 (Connect), KIP-441 (Streams), KIP-848 (consumer), KIP-932 (share), KIP-1071
(streams).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Final, TypeAlias

from holdfast.core.model.partitions import Resource, TopicPartitions, memoized
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment, decode_subscription
from holdfast.core.wire.layouts.container import (
    MOST_FAILED,
    decode_member_assignment,
    decode_member_subscription,
)
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.core.wire.layouts.other_protocols import (
    NEVER_MS,
    Task,
    decode_connect_assignment,
    decode_connect_metadata,
    decode_streams_assignment,
    decode_streams_subscription,
)
from holdfast.errors import WireError

CONSUMER_PROTOCOL: Final = "consumer"
"""Protocol type of groups whose members use Kafka's consumer protocol."""

ACTIVE, STANDBY, WARMUP, SHARED, SOURCE, FAILED = range(6)
"""The member's role for its assignment: the one owner; a copy of a task's state, standby or
warm-up; one of several readers (share groups); the reader of the topic-partitions of an active
task, which only the lag asks for; or a worker whose work on a resource has failed.
"""
ROLES: Final = ("active", "standby", "warmup", "shared")

GivenList: TypeAlias = tuple[int, str, Sequence[int]]
"""A role, a parent (topic, subtopology, connector, kind of resource) and ascending numbers."""


class GroupType(StrEnum):
    """Type of a group at its broker."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The content of a classic group member's two messages, subscription and assignment."""

    owned: list[GivenList]  # the member's assignment after the round
    # How many things the member reported as kept; -1 where the consumer protocol has it.
    n_claimed: int = -1
    # How many things the member is to revoke; -1 where the protocol does not say.
    n_revoked: int = -1
    delay_ms: int = 0  # a running delay; 0 for none
    # How far Connect's leader had read the topic of configurations; -1 for nothing.
    config_offset: int = -1
    # When Streams plans its next rebalance, in ms since 1970, 0 at once; NEVER_MS for never.
    next_ms: int = NEVER_MS
    # For each list of partitions in the consumer protocol's assignment the subtopology that reads
    # it; None where the messages do not show which. Empty for kinds without subtopologies.
    readers: Sequence[str | None] = ()
    # Resources that have failed at a worker, owned or not: their kind, the error, their numbers.
    failed: Sequence[tuple[str, str, Sequence[int]]] = ()


ReadMember: TypeAlias = Callable[[bytes, bytes], Given]
"""Reads a member's subscription and assignment; raises WireError on malformed bytes.

An assignment is never empty here: an empty one assigns nothing, and is not read.
"""

AmongMembers: TypeAlias = Callable[[Sequence[bytes], Sequence[Given]], Sequence[Given]]
"""Completes what was read of each member from the subscriptions of all members of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecords:
    """The records of a group whose assignments the broker computes.

    Groups of KIP-848, share groups and streams groups have the same five records under numbers of
    their own.
    """

    # The group's epoch, a member, the epoch of the target assignment, a member's target, and a
    # member's current assignment.
    epoch: RecordType
    member: RecordType
    target_epoch: RecordType
    target: RecordType
    current: RecordType
    # Fields of ``target`` that list a member's assignment, and the member's role for each field.
    roles: Mapping[str, int]
    # Field of an element of those lists that names the topic, or the subtopology.
    parent: str = "topicId"
    # Fields of ``current`` with a member's exclusive partitions, and those that it shall revoke;
    # empty where many members may work on a partition at once.
    assigned: str = ""
    pending: str = ""
    topology: RecordType | None = None  # the record with the topics that a subtopology reads

    @property
    def types(self) -> tuple[RecordType, ...]:
        """The types of the group's records that the tables are made of."""
        records = (self.epoch, self.member, self.target_epoch, self.target, self.current)
        return records if self.topology is None else (*records, self.topology)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words for the things that members of a group divide."""

    things: str = "partitions"  # word for many things
    thing: str = "partition"  # word for one thing, in a sentence about a member that has none
    # Word for what a thing belongs to, such as a topic: one, and many. ``parents`` is empty where
    # an s at the end makes the plural.
    parent: str = "topic"
    parents: str = ""
    joint: str = "-"  # text between the parent and the number


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKind:
    """One kind of group."""

    name: str  # the report's word for it
    group_type: GroupType  # as the tables have it
    protocol_type: str  # as the tables have it
    # The one protocol of its groups, where another kind has the same two other columns.
    protocol: str | None = None
    # Protocols of its classic groups under which members keep working through a rebalance; None
    # where the assignor of that name says so.
    cooperative: frozenset[str] | None = None
    claims_show_stops: bool = False  # members that claim nothing stopped, whatever their protocol
    topics: bool = False  # its assignments name partitions of topics, among others
    # Its subscriptions are the consumer protocol's, in which holdfast members announce that they
    # leave.
    announces: bool = False
    lowest: int = 0  # the lowest number that a thing may have
    words: Words = Words()  # words for the things that members divide
    own_assignment: str = ""  # why no holdfast assignor fits; empty where one does
    # Protocols without a replay, and why.
    no_replay: Mapping[str, str] = field(default_factory=dict)
    # Where a replay moves resources in place of partitions: their kind, by parent and number.
    resource_kind: Callable[[str, int], str] | None = None
    # The policy of a replay that acts like the group's own leader, where that is not a holdfast
    # policy.
    imitated_by: str = ""
    # Kafka's tool that shows a group; empty where Kafka's tools refuse it.
    tool: str = "kafka-consumer-groups.sh"
    # Reads the messages of a member of a classic group, where they name more than partitions of
    # topics.
    read: ReadMember | None = None
    among: AmongMembers | None = None  # completes the result of ``read`` in a round
    records: EpochRecords | None = None  # of a group whose assignments the broker computes

    @property
    def takes_assignors(self) -> bool:
        """Whether an assignor of the clients, and so holdfast's, can serve the group."""
        return not self.own_assignment

    @property
    def is_shared(self) -> bool:
        """Whether several members read a partition together."""
        return self.group_type is GroupType.SHARE


def lists_of(role: int, things: Iterable[Resource]) -> list[GivenList]:
    """Return one list for each topic, connector, kind or subtopology, all sorted."""
    return [
        (role, name, [number for _, number in of_name])
        for name, of_name in groupby(sorted(things), key=itemgetter(0))
    ]


def given_by_increments(
    had: TopicPartitions | None,
    revoked: TopicPartitions | None,
    assigned: TopicPartitions | None,
    *,
    whole: bool = False,
    delay_ms: int = 0,
    config_offset: int = -1,
) -> Given:
    """Return a member's assignment after a round whose messages list changes.

    Parameters
    ----------
    whole : bool
        True: the member has ``assigned`` alone, and the assignment does not say what was revoked.
    """
    before, gone, new = (
        {(name, number) for name, numbers in listed or () for number in numbers}
        for listed in (had, revoked, assigned)
    )
    return Given(
        owned=lists_of(ACTIVE, new if whole else before - gone | new),
        n_claimed=len(before),
        n_revoked=-1 if whole else len(gone),
        delay_ms=delay_ms,
        config_offset=config_offset,
    )


_assignment = memoized(1024, largest=4096)(decode_connect_assignment)
"""Read an assignment; a worker's subscription repeats that of the round before, byte for byte."""


def read_connect(metadata: bytes, assignment: bytes) -> Given:
    """Return the connectors and tasks of a Connect worker; task -1 is the connector itself."""
    allocation = decode_connect_metadata(metadata).allocation
    had = _assignment(allocation).assignment if allocation else None
    now = _assignment(assignment)
    return given_by_increments(
        had=had,
        revoked=now.revoked,
        assigned=now.assignment,
        whole=now.version == 0,  # the eager protocol, before KIP-415: an assignment is everything
        delay_ms=now.delay_ms,
        config_offset=max(now.config_offset, 0),
    )


def read_worker(subscription: bytes, assignment: bytes) -> Given:
    """Return the resources of a :class:`holdfast.Worker`, and what has failed there."""
    said = decode_member_subscription(subscription)
    now = decode_member_assignment(assignment)
    given = given_by_increments(
        had=said.owned, revoked=now.revoked, assigned=now.assigned, delay_ms=now.delay_ms
    )
    # A message may list more than a worker is allowed to report: the rest is not read.
    failed = [(one.topic, one.error, one.partitions[:MOST_FAILED]) for one in said.failed]
    return replace(given, failed=failed[:MOST_FAILED])


Copy = tuple[int, Task]
"""A member, by its position in the round, and a task that it does not run itself."""


def read_streams(subscription: bytes, assignment: bytes) -> Given:
    """Return active tasks and copies of a member."""
    return _read_assignment(assignment)


@memoized(1024, largest=4096)
def _read_assignment(assignment: bytes) -> Given:
    """Read as :func:`read_streams`, memoized: most rounds give most members what they had."""
    message = decode_assignment(assignment)
    tasks = decode_streams_assignment(message.user_data or b"")
    return Given(
        owned=[*lists_of(ACTIVE, tasks.active), *lists_of(STANDBY, tasks.standby)],
        next_ms=tasks.next_rebalance_ms,
        readers=_readers(message.partitions, tasks.active),
    )


def _readers(partitions: TopicPartitions, active: Sequence[Task]) -> list[str | None]:
    """Return the subtopology that reads each list of partitions; None where it is not shown."""
    by_topic = sorted(
        ((topic, sorted(numbers), at) for at, (topic, numbers) in enumerate(partitions)),
    )
    read = [(number, at) for _, numbers, at in by_topic for number in numbers]
    found: list[str | None] = [None] * len(partitions)
    if [number for number, _ in read] != [number for _, number in active]:
        return found
    readers: dict[int, set[str]] = {}
    for (_, at), (name, _) in zip(read, active, strict=True):
        readers.setdefault(at, set()).add(name)
    for at, names in readers.items():
        if len(names) == 1:
            (found[at],) = names
    return found


def mark_warm_ups(subscriptions: Sequence[bytes], given: Sequence[Given]) -> Sequence[Given]:
    """Return ``given``, in which the copies that are to take over are named warm-up tasks."""
    if all(one.next_ms == NEVER_MS for one in given):
        return given
    copies = [
        (member, (name, number))
        for member, one in enumerate(given)
        for role, name, numbers in one.owned
        if role == STANDBY
        for number in numbers
    ]
    if not copies:
        return given
    warm = _warm(copies, given, subscriptions)
    return [_with_warm(member, one, warm) for member, one in enumerate(given)]


def _warm(
    copies: Sequence[Copy], given: Sequence[Given], subscriptions: Sequence[bytes]
) -> set[Copy]:
    """Return copies beyond those that every task of the subtopology has, furthest behind first."""
    n_copies = Counter(task for _, task in copies)
    least: dict[str, int] = {}
    for one in given:
        for _, name, numbers in one.owned:
            fewest = min(n_copies[name, number] for number in numbers)
            least[name] = min(fewest, least.get(name, fewest))
    holders = dict.fromkeys(member for member, _ in copies)
    behind = {member: _offset_sums(subscriptions[member]) for member in holders}
    found: set[Copy] = set()
    seen: Counter[Task] = Counter()
    # A task without a reported sum is furthest behind; a copy that is listed twice counts twice.
    for member, task in sorted(copies, key=lambda c: (behind[c[0]].get(c[1], -1), c[0])):
        seen[task] += 1
        if seen[task] <= n_copies[task] - least[task[0]]:
            found.add((member, task))
    return found


def _offset_sums(subscription: bytes) -> dict[Task, int]:
    """Return how far the state of each task of a member is; nothing on malformed bytes."""
    try:
        user_data = decode_subscription(subscription).user_data
        return dict(decode_streams_subscription(user_data or b"").offset_sums)
    except WireError:
        return {}


def _with_warm(member: int, given: Given, warm: set[Copy]) -> Given:
    """Return the member's lists with its copies split into standby and warm-up tasks."""
    copies = [
        (name, number)
        for role, name, numbers in given.owned
        if role == STANDBY
        for number in numbers
    ]
    owned = [one for one in given.owned if one[0] == ACTIVE]
    owned += lists_of(STANDBY, [task for task in copies if (member, task) not in warm])
    owned += lists_of(WARMUP, [task for task in copies if (member, task) in warm])
    return replace(given, owned=owned)


_TASKS: Final = Words(
    things="tasks", thing="task", parent="subtopology", parents="subtopologies", joint="_"
)
_OF_STREAMS: Final = "Kafka Streams assigns tasks, and takes no other assignor"

CLASSIC: Final = GroupKind(
    name="consumer",
    group_type=GroupType.CLASSIC,
    protocol_type=CONSUMER_PROTOCOL,
    topics=True,
    announces=True,
)

KINDS: Final = (
    CLASSIC,
    GroupKind(
        name="stream",
        group_type=GroupType.CLASSIC,
        protocol_type=CONSUMER_PROTOCOL,
        protocol="stream",
        # Cooperative since 2.4, but eager where `upgrade.from` names an older version.
        cooperative=frozenset(["stream"]),
        claims_show_stops=True,
        topics=True,
        announces=True,
        words=_TASKS,
        own_assignment=_OF_STREAMS,
        read=read_streams,
        among=mark_warm_ups,
    ),
    GroupKind(
        name="connect",
        group_type=GroupType.CLASSIC,
        protocol_type="connect",
        cooperative=frozenset(["compatible", "sessioned"]),  # since KIP-415
        lowest=-1,  # a connector itself
        words=Words(things="connectors and tasks", thing="task", parent="connector"),
        own_assignment="Kafka Connect assigns connectors and tasks, and takes no other assignor",
        no_replay={"default": "Kafka Connect's eager protocol has no replay"},
        resource_kind=lambda _, number: "connector" if number < 0 else "task",
        imitated_by="deferred",
        tool="",
        read=read_connect,
    ),
    GroupKind(
        name="worker",
        group_type=GroupType.CLASSIC,
        protocol_type="holdfast",
        announces=True,
        words=Words(things="resources", thing="task", parent="kind"),
        own_assignment="a group of workers divides resources of its own, not partitions of topics",
        resource_kind=lambda kind, _: kind,
        tool="",
        read=read_worker,
    ),
    GroupKind(
        name="consumer",
        group_type=GroupType.CONSUMER,
        protocol_type=GroupType.CONSUMER,
        topics=True,
        records=EpochRecords(
            epoch=RecordType.CONSUMER_GROUP_METADATA,
            member=RecordType.CONSUMER_GROUP_MEMBER_METADATA,
            target_epoch=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
            target=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            current=RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            roles={"topicPartitions": ACTIVE},
            assigned="assignedPartitions",
            pending="partitionsPendingRevocation",
        ),
    ),
    GroupKind(
        name="share",
        group_type=GroupType.SHARE,
        protocol_type=GroupType.SHARE,
        topics=True,
        own_assignment="a share group: its members read partitions together, without an assignor "
        "of the clients",
        tool="kafka-share-groups.sh",
        records=EpochRecords(
            epoch=RecordType.SHARE_GROUP_METADATA,
            member=RecordType.SHARE_GROUP_MEMBER_METADATA,
            target_epoch=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
            target=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
            current=RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            roles={"topicPartitions": SHARED},
        ),
    ),
    GroupKind(
        name="streams",
        group_type=GroupType.STREAMS,
        protocol_type=GroupType.STREAMS,
        words=_TASKS,
        own_assignment=_OF_STREAMS,
        tool="kafka-streams-groups.sh",
        records=EpochRecords(
            epoch=RecordType.STREAMS_GROUP_METADATA,
            member=RecordType.STREAMS_GROUP_MEMBER_METADATA,
            target_epoch=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
            target=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
            current=RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            roles={"activeTasks": ACTIVE, "standbyTasks": STANDBY, "warmupTasks": WARMUP},
            parent="subtopologyId",
            assigned="activeTasks",
            pending="activeTasksPendingRevocation",
            topology=RecordType.STREAMS_GROUP_TOPOLOGY,
        ),
    ),
)


BY_RECORD: Final[Mapping[int, tuple[GroupKind, EpochRecords]]] = MappingProxyType(
    {
        record_type: (kind, kind.records)
        for kind in KINDS
        if kind.records is not None
        for record_type in kind.records.types
    }
)
"""The kind of group whose broker writes records of a type, and all such records of it."""


def kind_of(group_type: str, protocol_type: str | None, protocol: str | None) -> GroupKind:
    """Return the kind of a group, by three columns of one row of the table ``generations``."""
    found = [
        kind
        for kind in KINDS
        if kind.group_type == group_type
        and (group_type != GroupType.CLASSIC or kind.protocol_type == protocol_type)
        and kind.protocol in (None, protocol)
    ]
    return found[-1] if found else CLASSIC  # of two, the one that has this protocol alone


def is_read(protocol_type: str) -> bool:
    """Return whether the assignments of groups of a protocol type are read."""
    return protocol_type in {kind.protocol_type for kind in KINDS}
