"""The definition of a kind of group.

**Rules.** A kind is recognised by three columns of the table ``generations``: the type of the group
at its broker, its protocol type, and, for Streams alone, its protocol. Everything that differs
between kinds is a field of :class:`GroupKind`; no other code compares the three columns with a
name.

References: KIP-415 (Connect), KIP-441 (Streams), KIP-848 (consumer), KIP-932 (share), KIP-1071
(streams).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.core.wire.layouts.streams_user_data import NEVER_MS

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
