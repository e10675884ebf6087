"""Columns of the pipeline's tables, as plain data: name, type, unit, what it says.

**Rules.** This is the only place that names a column. Words are Kafka's; times are UTC
timestamps; durations end in ``_ms`` or ``_seconds``; counts start with ``n_``. Positions in the
offsets topic are ``log_partition`` and ``log_offset``, because ``partition`` and ``offset`` belong
to the consumed topic. A name from a cluster is always a value in a column, never part of a path.

**Strategy.** A type is a word of :class:`DType`; :mod:`holdfast.pipeline.batches.schemas` turns it
into Arrow or Spark. ``assignments`` and ``pauses`` are stored nested (a list of partitions per row)
because flat rows repeat every string; ``Table.explode`` names the list that their flat view opens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DType(StrEnum):
    """Types that a column can have."""

    STRING = "string"
    BINARY = "binary"
    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    TIMESTAMP = "timestamp"
    INT32_LIST = "list<int32>"
    STRING_LIST = "list<string>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; ``unit`` is empty where the type says it all."""

    name: str
    dtype: DType
    doc: str
    unit: str = ""
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table.

    Parameters
    ----------
    name : str
        Also the name of its folder.
    columns : tuple of Column
        In the order in which they are stored and printed.
    order : tuple of str
        Columns that sort the rows; together they are unique in the flat view.
    explode : str
        A list column that the flat view opens into one row per element, or "".
    flat_name : str
        Name of the opened column.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    explode: str = ""
    flat_name: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Stored column names."""
        return tuple(column.name for column in self.columns)

    @property
    def flat_names(self) -> tuple[str, ...]:
        """Column names of the flat view."""
        return tuple(self.flat_name if n == self.explode else n for n in self.names)

    def column(self, name: str) -> Column:
        """The column called ``name``; KeyError where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


def _c(name: str, dtype: DType, doc: str, unit: str = "", *, nullable: bool = False) -> Column:
    return Column(name=name, dtype=dtype, doc=doc, unit=unit, nullable=nullable)


_S, _I, _L, _T, _B = DType.STRING, DType.INT32, DType.INT64, DType.TIMESTAMP, DType.BOOL
_F = DType.FLOAT64

_GROUP = _c("group", _S, "consumer group")
_TYPE = _c("group_type", _S, "protocol of the group: classic or consumer (KIP-848)")
_GENERATION = _c("generation", _I, "generation of a classic group, assignment epoch of KIP-848")
_TIMESTAMP = _c("timestamp", _T, "time of the record in the offsets topic")
_TOPIC = _c("topic", _S, "topic; for KIP-848 the topic id where the name is not known")
_PARTITION = _c("partition", _I, "partition of the topic")
_MEMBER = _c("member_id", _S, "member id")
_LOG = (
    _c("log_partition", _I, "partition of the offsets topic"),
    _c("log_offset", _L, "offset in the offsets topic"),
)

OFFSET_COMMITS = Table(
    name="offset_commits",
    doc="One row per offset commit or tombstone, in the order of the log.",
    columns=(
        _GROUP,
        _TOPIC,
        _PARTITION,
        _c("offset", _L, "committed offset; null in a tombstone", nullable=True),
        _c("leader_epoch", _I, "leader epoch of the last consumed record", nullable=True),
        _c("metadata", _S, "what the committer wrote beside the offset", nullable=True),
        _c("commit_timestamp", _T, "when the coordinator took the commit", nullable=True),
        _c("expire_timestamp", _T, "when the commit expires, if it asked for it", nullable=True),
        _c("topic_id", _S, "topic id, from value version 4 on", nullable=True),
        _c("is_tombstone", _B, "the commit was deleted or has expired"),
        _c("value_version", _I, "version of OffsetCommitValue", nullable=True),
        _TIMESTAMP,
        *_LOG,
    ),
    order=("log_partition", "log_offset"),
)

GENERATIONS = Table(
    name="generations",
    doc="One row per generation (or KIP-848 assignment epoch) that the topic still remembers.",
    columns=(
        _GROUP,
        _GENERATION,
        _TYPE,
        _c("state", _S, "Stable, Empty or Dead (a tombstone)"),
        _c("protocol_type", _S, "consumer, connect or another", nullable=True),
        _c("protocol", _S, "assignor that was chosen", nullable=True),
        _c("leader", _S, "member id of the leader", nullable=True),
        _c("n_members", _I, "members", "members"),
        _c("n_partitions", _L, "partitions with an owner", "partitions"),
        _TIMESTAMP,
        *_LOG,
    ),
    order=("group", "log_partition", "log_offset"),
)

MEMBERS = Table(
    name="members",
    doc="One row per member and generation.",
    columns=(
        _GROUP,
        _GENERATION,
        _TYPE,
        _MEMBER,
        _c("group_instance_id", _S, "static member's name", nullable=True),
        _c("client_id", _S, "client id"),
        _c("client_host", _S, "host the broker saw"),
        _c("rack", _S, "rack of the member", nullable=True),
        _c("rebalance_timeout_ms", _I, "rebalance timeout", "ms", nullable=True),
        _c("session_timeout_ms", _I, "session timeout", "ms", nullable=True),
        _c("subscribed_topics", DType.STRING_LIST, "topics asked for", nullable=True),
        _c("n_claimed", _L, "partitions that the member said it kept when it joined", "partitions"),
        _c("n_partitions", _L, "partitions given to the member", "partitions"),
        _TIMESTAMP,
    ),
    order=("group", "generation", "member_id"),
)

ASSIGNMENTS = Table(
    name="assignments",
    doc="What each member was given: one row per generation, member and topic.",
    columns=(
        _GROUP,
        _GENERATION,
        _MEMBER,
        _TOPIC,
        _c("partitions", DType.INT32_LIST, "partitions, ascending"),
        _TIMESTAMP,
    ),
    order=("group", "generation", "member_id", "topic"),
    explode="partitions",
    flat_name="partition",
)

MOVEMENTS = Table(
    name="movements",
    doc="What changed hands between two successive generations: one row per partition.",
    columns=(
        _GROUP,
        _GENERATION,
        _TOPIC,
        _PARTITION,
        _c("from_member", _S, "last owner; null where nobody ever was", nullable=True),
        _c("to_member", _S, "owner in this generation; null where there is none", nullable=True),
        _c("kind", _S, "moved, moved_through_gap, gained or lost"),
        _c("from_generation", _I, "last generation in which from_member owned it", nullable=True),
        _TIMESTAMP,
    ),
    order=("group", "generation", "topic", "partition"),
)

REBALANCES = Table(
    name="rebalances",
    doc="One row per completed rebalance: why, who, what it moved and what stood still.",
    columns=(
        _GROUP,
        _GENERATION,
        _TYPE,
        _c("previous_generation", _I, "generation it is compared with", nullable=True),
        _TIMESTAMP,
        _c("cause", _S, "inferred reason, or stated by a broker log"),
        _c("confidence", _F, "of the cause, 0 to 1; 1 where it is stated"),
        _c("cause_basis", _S, "inferred from two generations, or stated by a broker log"),
        _c("stated_reason", _S, "the broker's own words, where a log has them", nullable=True),
        _c("n_missed_generations", _I, "generations in between that left no record"),
        _c("n_members", _I, "members after it", "members"),
        _c("n_joined", _I, "members that are new", "members"),
        _c("n_left", _I, "members that are gone", "members"),
        _c("n_restarted", _I, "members that came back under a new id", "members"),
        _c("n_partitions", _L, "partitions with an owner after it", "partitions"),
        _c("n_kept", _L, "partitions with the same owner before and after", "partitions"),
        _c("n_moved", _L, "partitions that went from one member to another", "partitions"),
        _c("n_moved_through_gap", _L, "the same, with no owner in between", "partitions"),
        _c("n_gained", _L, "partitions that had no owner known before", "partitions"),
        _c("n_lost", _L, "partitions that have no owner any more", "partitions"),
        _c("n_needed_moves", _L, "least moves at the most even loads", "moves", nullable=True),
        _c("n_avoidable_moves", _L, "moves beyond the needed ones", "moves", nullable=True),
        _c("balance_score", _L, "sum of pairwise load differences (KIP-54)", "partitions"),
        _c("stickiness", _F, "kept / owned before and after, 0 to 1", nullable=True),
        _c("pause_lower_seconds", _F, "time without an owner, at least", "partition-seconds"),
        _c("pause_upper_seconds", _F, "time without an owner, at most", "partition-seconds"),
        _c("leader_changed", _B, "the leader is another member id"),
        _c("cooperative", _B, "members keep working through the rebalance"),
        _c("needed_moves_proven", _B, "n_needed_moves comes from an exact optimum"),
    ),
    order=("group", "generation", "group_type"),
)

PAUSES = Table(
    name="pauses",
    doc="How long partitions had no owner around a rebalance, as a lower and an upper bound.",
    columns=(
        _GROUP,
        _GENERATION,
        _TOPIC,
        _c("partitions", DType.INT32_LIST, "partitions with these bounds, ascending"),
        _c("pause_lower_seconds", _F, "at least so long", "seconds"),
        _c("pause_upper_seconds", _F, "at most so long", "seconds"),
        _c("unowned_since", _T, "first record without an owner", nullable=True),
        _c("last_seen", _T, "last sign of the old owner: its last commit, or the old record"),
        _c("timestamp", _T, "record in which the partitions have an owner again"),
        _c("basis", _S, "what the bounds rest on: unowned, eager, handover, reconciled"),
    ),
    order=("group", "generation", "topic", "partitions"),
    explode="partitions",
    flat_name="partition",
)

LAG = Table(
    name="lag",
    doc="How far each group is behind, per partition.",
    columns=(
        _GROUP,
        _TOPIC,
        _PARTITION,
        _c("current_offset", _L, "committed offset; null where there is none", nullable=True),
        _c("log_start_offset", _L, "first offset the broker still has", nullable=True),
        _c("log_end_offset", _L, "offset of the next record to be written", nullable=True),
        _c("lag", _L, "records between them, never negative; null: unknown topic", nullable=True),
        _c("lag_seconds", _F, "since the group came to current_offset; 0: no lag", nullable=True),
        _c("member_id", _S, "owner in the last generation", nullable=True),
        _c("client_id", _S, "of that member", nullable=True),
        _c("client_host", _S, "of that member", nullable=True),
        _c("commit_timestamp", _T, "when current_offset was committed", nullable=True),
        _c("status", _S, "committed, none, expired or deleted"),
        _c("clamped", _S, "none, beyond_end or before_begin"),
        _c("is_idle", _B, "the topic holds no record"),
    ),
    order=("group", "topic", "partition"),
)

ANOMALIES = Table(
    name="anomalies",
    doc="What should not be: two owners of one partition, unreadable members, odd generations.",
    columns=(
        _GROUP,
        _GENERATION,
        _c("kind", _S, "double_owner, unreadable_assignment, unknown_topic_id, generation_reset"),
        _c("topic", _S, "topic, where one is meant", nullable=True),
        _c("partition", _I, "partition, where one is meant", nullable=True),
        _c("member_ids", DType.STRING_LIST, "members concerned, sorted"),
        _c("detail", _S, "one sentence"),
        _TIMESTAMP,
    ),
    order=("group", "generation", "kind", "topic", "partition"),
)

BAD_RECORDS = Table(
    name="bad_records",
    doc="Records that do not parse, whole, with the reason and the place.",
    columns=(
        *_LOG,
        _c("timestamp", _T, "time of the record", nullable=True),
        _c("record_type", _I, "first int16 of the key", nullable=True),
        _c("reason", _S, "a stable word, such as truncated or unknown-version"),
        _c("position", _L, "byte at which reading failed; -1 where there is none", "bytes"),
        _c("key_hex", _S, "the key", nullable=True),
        _c("value_hex", _S, "the value; null for a tombstone", nullable=True),
    ),
    order=("log_partition", "log_offset", "reason", "position"),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        OFFSET_COMMITS,
        GENERATIONS,
        MEMBERS,
        ASSIGNMENTS,
        MOVEMENTS,
        REBALANCES,
        PAUSES,
        LAG,
        ANOMALIES,
        BAD_RECORDS,
    )
}

RECORDS = Table(
    name="records",
    doc="The offsets topic as it stands: part of a dump.",
    columns=(
        _c("partition", _I, "partition of the offsets topic"),
        _c("offset", _L, "offset in it"),
        _c("timestamp", _T, "time of the record"),
        _c("key", DType.BINARY, "key", nullable=True),
        _c("value", DType.BINARY, "value; null for a tombstone", nullable=True),
    ),
    order=("partition", "offset"),
)

TOPICS = Table(
    name="topics",
    doc="Topics of the cluster with their ids: part of a dump.",
    columns=(
        _c("topic_id", _S, "UUID"),
        _c("topic", _S, "name"),
        _c("partitions", _I, "number of partitions", "partitions"),
    ),
    order=("topic",),
)

OFFSETS = Table(
    name="offsets",
    doc="Begin and end of every partition, read after the records: part of a dump.",
    columns=(
        _TOPIC,
        _PARTITION,
        _c("begin_offset", _L, "first offset"),
        _c("end_offset", _L, "offset of the next record"),
    ),
    order=("topic", "partition"),
)

DUMP_TABLES: dict[str, Table] = {table.name: table for table in (RECORDS, TOPICS, OFFSETS)}
