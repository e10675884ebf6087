"""Layouts of every record of ``__consumer_offsets``, and of what it embeds, as data.

A key is an int16 record type, then the fields of the key, which are never flexible. A value is an
int16 version, then the fields of that version. A record without a value is a tombstone.

======  ===============================  ======  ========  ===================================
type    record                           values  flexible  since
======  ===============================  ======  ========  ===================================
0       LegacyOffsetCommit               0       no        0.8.2
1       OffsetCommit                     0-4     4         v4: 4.1 (KAFKA-19141)
2       GroupMetadata                    0-4     4         v3: 2.3 (KIP-345); v4: by nobody yet
3-8     ConsumerGroup...                 0       0         3.5 to 4.0 (KIP-848)
10-15   ShareGroup...                    0       0         4.0 (KIP-932)
16      ConsumerGroupRegularExpression   0       0         4.0 (KIP-848)
17-23   StreamsGroup...                  0       0         4.1 (KIP-1071)
======  ===============================  ======  ========  ===================================

Types 9 and 18 are unused. Tags were added later: 6, 12 and 20 ``assignmentTimestamp`` (KIP-1263,
4.3), 8 and 22 ``assignmentEpochs`` and 17 its two tags (after 4.1).

**Rules.** Names, order, versions and tags are those of Kafka's own message schemas; the first
letter of a name is small. The scalar decoder and the batch decoder both follow this table, and no
other.

**Strategy.** :func:`layout` cuts a schema down to one version: plain fields in the order of the
bytes, then tagged fields. ``min_size`` is the least number of bytes of one element: a count is
checked against it before anything is allocated.

References: KIP-482 (flexible versions), KIP-915 (unknown tags are skipped, unknown versions are
errors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from types import MappingProxyType


class RecordType(IntEnum):
    """The type of a record: the int16 with which its key begins."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    SHARE_GROUP_MEMBER_METADATA = 10
    SHARE_GROUP_METADATA = 11
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = 12
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = 13
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = 14
    SHARE_GROUP_STATE_PARTITION_METADATA = 15
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16
    STREAMS_GROUP_METADATA = 17
    STREAMS_GROUP_MEMBER_METADATA = 19
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = 20
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = 21
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = 22
    STREAMS_GROUP_TOPOLOGY = 23

    @property
    def schema_name(self) -> str:
        """Name in Kafka's message schemas: ``OFFSET_COMMIT`` is ``OffsetCommit`` there."""
        return self.name.title().replace("_", "")


class Kind(StrEnum):
    """Types of one value."""

    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    STRUCT = "struct"


SIZES: Mapping[Kind, int] = MappingProxyType(
    {
        Kind.INT8: 1,
        Kind.INT16: 2,
        Kind.UINT16: 2,
        Kind.INT32: 4,
        Kind.INT64: 8,
        Kind.UUID: 16,
    }
)
_FOREVER = 0x7FFF
Default = int | str | tuple[()] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """One field of a schema."""

    name: str  # Kafka's name
    kind: Kind  # type of the value, or of one element
    is_array: bool = False  # whether the field is an array
    nullable: bool = False  # whether the value may be null
    # First and last version that has the field.
    since: int = 0
    until: int = _FOREVER
    tag: int | None = None  # tag, where the field is a tagged one
    # Value of a tagged field that was not written: () is an empty array, or the struct whose every
    # field is zero or empty.
    default: Default = 0
    fields: tuple[Field, ...] = ()  # of a struct


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schema:
    """One schema in all its versions."""

    name: str  # Kafka's name
    fields: tuple[Field, ...]  # the fields, in the order of the bytes
    max_version: int = 0  # versions are 0 to this one
    flexible_since: int = _FOREVER  # first flexible version


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """A struct in one version: ``plain`` fields, then ``tagged`` ones; ``min_size`` in bytes."""

    plain: tuple[Field, ...]
    tagged: tuple[Field, ...]
    flexible: bool
    min_size: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordSchemas:
    """Schemas of one type of record: of its key and of its value."""

    record_type: RecordType
    name: str
    key: Schema
    value: Schema


@cache
def layout(fields: tuple[Field, ...], version: int, flexible: bool) -> Layout:
    """Cut the fields of a schema, or of a struct in it, down to one version of the schema.

    ``min_size`` is positive for every struct that an array may hold.
    """
    here = tuple(field for field in fields if field.since <= version <= field.until)
    plain = tuple(field for field in here if field.tag is None)
    tagged = tuple(field for field in here if field.tag is not None)
    size = sum(min_size(field, version, flexible) for field in plain)
    return Layout(plain=plain, tagged=tagged, flexible=flexible, min_size=size + flexible)


def schema_layout(schema: Schema, version: int) -> Layout:
    """Return the layout of a whole schema in one of its versions."""
    return layout(schema.fields, version, version >= schema.flexible_since)


def min_size(field: Field, version: int, flexible: bool) -> int:
    """Return the least number of bytes of a plain field."""
    if field.is_array:
        return 1 if flexible else 4
    return element_min_size(field, version, flexible)


def element_min_size(field: Field, version: int, flexible: bool) -> int:
    """Return the least number of bytes of one value, or of one element of an array."""
    if field.kind is Kind.STRUCT:
        return 1 if field.nullable else layout(field.fields, version, flexible).min_size
    if field.kind in SIZES:
        return SIZES[field.kind]
    return 1 if flexible else 2 if field.kind is Kind.STRING else 4


def _f(name: str, kind: Kind, **options: object) -> Field:
    return Field(name=name, kind=kind, **options)  # type: ignore[arg-type] # checked by a test


def _many(name: str, kind: Kind, *fields: Field, **options: object) -> Field:
    return _f(name, kind, is_array=True, fields=fields, **options)


_GROUP, _GROUP_ID, _MEMBER_ID = (_f(n, Kind.STRING) for n in ("group", "groupId", "memberId"))
_COMMIT_KEY = (_GROUP, _f("topic", Kind.STRING), _f("partition", Kind.INT32))
_MEMBER_KEY = (_GROUP_ID, _MEMBER_ID)

_COMMIT = (
    _f("offset", Kind.INT64),
    _f("leaderEpoch", Kind.INT32, since=3),
    _f("metadata", Kind.STRING),
    _f("commitTimestamp", Kind.INT64),
    _f("expireTimestamp", Kind.INT64, since=1, until=1),
    _f("topicId", Kind.UUID, since=4, tag=0),
)
_CLASSIC_MEMBER = (
    _MEMBER_ID,
    _f("groupInstanceId", Kind.STRING, since=3, nullable=True),
    _f("clientId", Kind.STRING),
    _f("clientHost", Kind.STRING),
    _f("rebalanceTimeout", Kind.INT32, since=1),
    _f("sessionTimeout", Kind.INT32),
    _f("subscription", Kind.BYTES),
    _f("assignment", Kind.BYTES),
)
_CLASSIC_GROUP = (
    _f("protocolType", Kind.STRING),
    _f("generation", Kind.INT32),
    _f("protocol", Kind.STRING, nullable=True),
    _f("leader", Kind.STRING, nullable=True),
    _f("currentStateTimestamp", Kind.INT64, since=2),
    _many("members", Kind.STRUCT, *_CLASSIC_MEMBER),
)
_EPOCH = _f("epoch", Kind.INT32)
_METADATA_HASH = _f("metadataHash", Kind.INT64)
_TARGET = (
    _f("assignmentEpoch", Kind.INT32),
    _f("assignmentTimestamp", Kind.INT64, tag=0),
)
_TOPIC_ID, _TOPIC_NAME = _f("topicId", Kind.UUID), _f("topicName", Kind.STRING)
_PARTITIONS = _many("partitions", Kind.INT32)
_ASSIGNMENT_EPOCHS = _many("assignmentEpochs", Kind.INT32, tag=0, nullable=True, default=())
_MEMBER_STATE = (
    _f("memberEpoch", Kind.INT32),
    _f("previousMemberEpoch", Kind.INT32),
    _f("state", Kind.INT8),
)
_INSTANCE = _f("instanceId", Kind.STRING, nullable=True)
_CLIENT = (
    _f("rackId", Kind.STRING, nullable=True),
    _f("clientId", Kind.STRING),
    _f("clientHost", Kind.STRING),
)
_SUBSCRIBED = _many("subscribedTopicNames", Kind.STRING)


def _id_partitions(name: str, *more: Field) -> Field:
    return _many(name, Kind.STRUCT, _TOPIC_ID, _PARTITIONS, *more)


def _id_name_partitions(name: str, *more: Field) -> Field:
    return _many(name, Kind.STRUCT, _TOPIC_ID, _TOPIC_NAME, *more)


def _tasks(name: str, *more: Field) -> Field:
    return _many(name, Kind.STRUCT, _f("subtopologyId", Kind.STRING), _PARTITIONS, *more)


_TARGET_MEMBER = (_id_partitions("topicPartitions"),)
_PARTITION_METADATA = (
    _many(
        "topics",
        Kind.STRUCT,
        _TOPIC_ID,
        _TOPIC_NAME,
        _f("numPartitions", Kind.INT32),
        _many(
            "partitionMetadata",
            Kind.STRUCT,
            _f("partition", Kind.INT32),
            _many("racks", Kind.STRING),
        ),
    ),
)
_CLASSIC_METADATA = _f(
    "classicMemberMetadata",
    Kind.STRUCT,
    nullable=True,
    tag=0,
    default=(),
    fields=(
        _f("sessionTimeoutMs", Kind.INT32),
        _many(
            "supportedProtocols",
            Kind.STRUCT,
            _f("name", Kind.STRING),
            _f("metadata", Kind.BYTES),
        ),
    ),
)
_CONSUMER_MEMBER = (
    _INSTANCE,
    *_CLIENT,
    _SUBSCRIBED,
    _f("subscribedTopicRegex", Kind.STRING, nullable=True),
    _f("rebalanceTimeoutMs", Kind.INT32),
    _f("serverAssignor", Kind.STRING, nullable=True),
    _CLASSIC_METADATA,
)
_KEY_VALUE = (_f("key", Kind.STRING), _f("value", Kind.STRING))
_STREAMS_MEMBER = (
    _INSTANCE,
    *_CLIENT,
    _f("rebalanceTimeoutMs", Kind.INT32),
    _f("topologyEpoch", Kind.INT32),
    _f("processId", Kind.STRING),
    _f(
        "userEndpoint",
        Kind.STRUCT,
        nullable=True,
        fields=(_f("host", Kind.STRING), _f("port", Kind.UINT16)),
    ),
    _many("clientTags", Kind.STRUCT, *_KEY_VALUE),
)
_TASKS = ("activeTasks", "standbyTasks", "warmupTasks")
_CHANGELOG_TOPIC = (
    _f("name", Kind.STRING),
    _f("partitions", Kind.INT32),
    _f("replicationFactor", Kind.INT16),
    _many("topicConfigs", Kind.STRUCT, *_KEY_VALUE),
)
_SUBTOPOLOGY = (
    _f("subtopologyId", Kind.STRING),
    _many("sourceTopics", Kind.STRING),
    _many("sourceTopicRegex", Kind.STRING),
    _many("stateChangelogTopics", Kind.STRUCT, *_CHANGELOG_TOPIC),
    _many("repartitionSinkTopics", Kind.STRING),
    _many("repartitionSourceTopics", Kind.STRUCT, *_CHANGELOG_TOPIC),
    _many(
        "copartitionGroups",
        Kind.STRUCT,
        _many("sourceTopics", Kind.INT16),
        _many("sourceTopicRegex", Kind.INT16),
        _many("repartitionSourceTopics", Kind.INT16),
    ),
)
_STREAMS_GROUP = (
    _EPOCH,
    _METADATA_HASH,
    _f("validatedTopologyEpoch", Kind.INT32, tag=0, default=-1),
    _many("lastAssignmentConfigs", Kind.STRUCT, *_KEY_VALUE, tag=1, nullable=True, default=()),
)


def _schemas(
    record_type: RecordType,
    key: tuple[Field, ...],
    value: tuple[Field, ...],
    *,
    max_version: int = 0,
    flexible_since: int = 0,
) -> RecordSchemas:
    name = record_type.schema_name
    return RecordSchemas(
        record_type=record_type,
        name=name,
        key=Schema(name=f"{name}Key", fields=key),
        value=Schema(
            name=f"{name}Value",
            fields=value,
            max_version=max_version,
            flexible_since=flexible_since,
        ),
    )


_GROUP_KEY = (_GROUP_ID,)
_RECORDS = (
    _schemas(
        RecordType.LEGACY_OFFSET_COMMIT,
        _COMMIT_KEY,
        (_COMMIT[0], _COMMIT[2], _COMMIT[3]),
        flexible_since=_FOREVER,
    ),
    _schemas(RecordType.OFFSET_COMMIT, _COMMIT_KEY, _COMMIT, max_version=4, flexible_since=4),
    _schemas(RecordType.GROUP_METADATA, (_GROUP,), _CLASSIC_GROUP, max_version=4, flexible_since=4),
    _schemas(
        RecordType.CONSUMER_GROUP_METADATA,
        _GROUP_KEY,
        (_EPOCH, _f("metadataHash", Kind.INT64, tag=0)),
    ),
    _schemas(RecordType.CONSUMER_GROUP_PARTITION_METADATA, _GROUP_KEY, _PARTITION_METADATA),
    _schemas(RecordType.CONSUMER_GROUP_MEMBER_METADATA, _MEMBER_KEY, _CONSUMER_MEMBER),
    _schemas(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, _GROUP_KEY, _TARGET),
    _schemas(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, _MEMBER_KEY, _TARGET_MEMBER),
    _schemas(
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        _MEMBER_KEY,
        (
            *_MEMBER_STATE,
            _id_partitions("assignedPartitions", _ASSIGNMENT_EPOCHS),
            _id_partitions("partitionsPendingRevocation", _ASSIGNMENT_EPOCHS),
        ),
    ),
    _schemas(RecordType.SHARE_GROUP_MEMBER_METADATA, _MEMBER_KEY, (*_CLIENT, _SUBSCRIBED)),
    _schemas(RecordType.SHARE_GROUP_METADATA, _GROUP_KEY, (_EPOCH, _METADATA_HASH)),
    _schemas(RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, _GROUP_KEY, _TARGET),
    _schemas(RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, _MEMBER_KEY, _TARGET_MEMBER),
    _schemas(
        RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        _MEMBER_KEY,
        (*_MEMBER_STATE, _id_partitions("assignedPartitions")),
    ),
    _schemas(
        RecordType.SHARE_GROUP_STATE_PARTITION_METADATA,
        _GROUP_KEY,
        (
            _id_name_partitions("initializingTopics", _PARTITIONS),
            _id_name_partitions("initializedTopics", _PARTITIONS),
            _id_name_partitions("deletingTopics"),
        ),
    ),
    _schemas(
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        (_GROUP_ID, _f("regularExpression", Kind.STRING)),
        (_many("topics", Kind.STRING), _f("version", Kind.INT64), _f("timestamp", Kind.INT64)),
    ),
    _schemas(RecordType.STREAMS_GROUP_METADATA, _GROUP_KEY, _STREAMS_GROUP),
    _schemas(RecordType.STREAMS_GROUP_MEMBER_METADATA, _MEMBER_KEY, _STREAMS_MEMBER),
    _schemas(RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, _GROUP_KEY, _TARGET),
    _schemas(
        RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        _MEMBER_KEY,
        tuple(_tasks(name) for name in _TASKS),
    ),
    _schemas(
        RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        _MEMBER_KEY,
        (
            *_MEMBER_STATE,
            *(_tasks(name, _ASSIGNMENT_EPOCHS) for name in _TASKS),
            *(_tasks(f"{name}PendingRevocation", _ASSIGNMENT_EPOCHS) for name in _TASKS),
        ),
    ),
    _schemas(
        RecordType.STREAMS_GROUP_TOPOLOGY,
        _GROUP_KEY,
        (_EPOCH, _many("subtopologies", Kind.STRUCT, *_SUBTOPOLOGY)),
    ),
)
RECORD_SCHEMAS: Mapping[int, RecordSchemas] = MappingProxyType(
    {schemas.record_type: schemas for schemas in _RECORDS}
)

_TOPIC_PARTITIONS = (_f("topic", Kind.STRING), _PARTITIONS)
CONSUMER_ASSIGNMENT = Schema(
    name="ConsumerProtocolAssignment",
    fields=(
        _many("assignedPartitions", Kind.STRUCT, *_TOPIC_PARTITIONS),
        _f("userData", Kind.BYTES, nullable=True),
    ),
    max_version=3,
)
CONSUMER_SUBSCRIPTION = Schema(
    name="ConsumerProtocolSubscription",
    fields=(
        _many("topics", Kind.STRING),
        _f("userData", Kind.BYTES, nullable=True),
        _many("ownedPartitions", Kind.STRUCT, *_TOPIC_PARTITIONS, since=1),
        _f("generationId", Kind.INT32, since=2),
        _f("rackId", Kind.STRING, since=3, nullable=True),
    ),
    max_version=3,
)
