"""Rows that one step of the pipeline hands to another: staged files, state, frames of a job.

**Rules.** Nobody but the pipeline reads these tables, and nothing of them is left after a batch,
except the state that a stream keeps for its next batch.
"""

from __future__ import annotations

from holdfast.tables.definition import Column, DType, Table
from holdfast.tables.dumped import RECORDS

_S, _I, _L, _T, _B = DType.STRING, DType.INT32, DType.INT64, DType.TIMESTAMP, DType.BOOL
_F, _INTS, _STRINGS = DType.FLOAT64, DType.INT32_LIST, DType.STRING_LIST

_GROUP = Column("group", _S, "consumer group")
_TOPIC = Column("topic", _S, "topic")
_PARTITIONS = Column("partitions", _INTS, "partitions of the topic")
_LOG_PARTITION = Column("log_partition", _I, "partition of the offsets topic")
_LOG_OFFSET = Column("log_offset", _L, "offset in the offsets topic")

FILES = Table(
    name="files",
    doc="Files that a task has closed: one row per file.",
    columns=(
        Column("table", _S, "table that the file belongs to"),
        Column("file", _S, "path below the folder of the tables"),
        Column("rows", _L, "rows in the file"),
    ),
    order=("table", "file"),
)

SPLIT = Table(
    name="split",
    doc="Rows on their way to their group: records, state, and names of written files.",
    columns=(
        Column("group", DType.BINARY, "consumer group, as bytes"),
        Column("kind", _I, "what the row is: a RowKind"),
        *RECORDS.columns,
    ),
)

STATE = Table(
    name="state",
    doc="What a stream keeps of each group for its next batch.",
    columns=(
        Column("group", DType.BINARY, "consumer group, as bytes"),
        Column("value", DType.BINARY, "generations and KIP-848 records that still count"),
    ),
)

COUNTS = Table(
    name="record_counts",
    doc="Records per type and version.",
    columns=(
        Column("record_type", _I, "first int16 of the key"),
        Column("value_version", _I, "version of the value; null for a tombstone", nullable=True),
        Column("is_known", _B, "the type is known here"),
        Column("n_records", _L, "records"),
        Column("n_unknown_tags", _L, "tagged fields that are not known here"),
    ),
)

HEAD = Table(
    name="generation_heads",
    doc="Successive generations of groups, sorted by group and place in the log.",
    columns=(
        _GROUP,
        Column("generation", _I, "generation, or assignment epoch of KIP-848"),
        Column("group_type", _S, "classic or consumer"),
        Column("state", _S, "Stable, Empty or Dead"),
        Column("protocol_type", _S, "protocol type", nullable=True),
        Column("protocol", _S, "assignor that was chosen", nullable=True),
        Column("leader", _S, "member id of the leader", nullable=True),
        Column("timestamp", _T, "time of the record"),
        _LOG_PARTITION,
        _LOG_OFFSET,
        Column("context", _B, "reported before; here only to be compared with"),
    ),
)

MEMBER_ROWS = Table(
    name="generation_members",
    doc="Members of those generations.",
    columns=(
        Column("row", _I, "row of the member's generation"),
        Column("member_id", _S, "member id"),
        Column("group_instance_id", _S, "static member's name", nullable=True),
        Column("client_id", _S, "client id"),
        Column("client_host", _S, "host the broker saw"),
        Column("rack", _S, "rack of the member", nullable=True),
        Column("rebalance_timeout_ms", _I, "rebalance timeout", "ms", nullable=True),
        Column("session_timeout_ms", _I, "session timeout", "ms", nullable=True),
        Column("subscribed_topics", _STRINGS, "topics asked for", nullable=True),
        Column("n_claimed", _L, "owned partitions that the member reported", "partitions"),
        Column("readable", _B, "the member's assignment parses"),
    ),
)

OWNED_ROWS = Table(
    name="generation_owned",
    doc="What those members own: one row per member and topic.",
    columns=(Column("member", _I, "row of the member"), _TOPIC, _PARTITIONS),
)

_POSITION = (
    Column("offset", _L, "committed offset; null in a tombstone", nullable=True),
    Column("commit_timestamp", _T, "when the coordinator took the commit", nullable=True),
    Column("expire_timestamp", _T, "when the commit expires", nullable=True),
    Column("since", _T, "first of the commits in a row that name the offset", nullable=True),
    Column("goes_back", _B, "earlier commits may name the same offset", nullable=True),
    Column("log_partition", _I, "partition of the offsets topic", nullable=True),
    Column("log_offset", _L, "offset in the offsets topic", nullable=True),
)

POSITION = Table(
    name="positions",
    doc="The latest commit of each group and partition.",
    columns=(_GROUP, _TOPIC, Column("partition", _I, "partition of the topic"), *_POSITION),
)

LAG_INPUT = Table(
    name="lag_input",
    doc="A position (no member; a tombstone has no offset), or partitions that a member owns.",
    columns=(
        _GROUP,
        _TOPIC,
        _PARTITIONS,
        Column("member_id", _S, "owner", nullable=True),
        Column("client_id", _S, "of that member", nullable=True),
        Column("client_host", _S, "of that member", nullable=True),
        *_POSITION,
        Column("is_owner", _B, "the row says what a member owns"),
    ),
)

PAUSE_INPUT = Table(
    name="pause_input",
    doc="Pauses, and the commits that narrow their bounds; basis says which.",
    columns=(
        _GROUP,
        Column("generation", _I, "generation that ended the pause", nullable=True),
        _TOPIC,
        _PARTITIONS,
        Column("pause_lower_seconds", _F, "at least so long", "seconds", nullable=True),
        Column("unowned_since", _T, "first record without an owner", nullable=True),
        Column("last_seen", _T, "last sign of the old owner so far", nullable=True),
        Column("timestamp", _T, "end of the pause, or time of the commit"),
        Column("basis", _S, "as in pauses; commit; or open: no owner yet"),
        Column("log_offset", _L, "a commit counts for a pause only before this place"),
    ),
)

FLEET = Table(
    name="fleet",
    doc="The last generation of each group, one row per group with everything in lists.",
    columns=(
        _GROUP,
        Column("generation", _I, "last generation with members"),
        Column("topics", _STRINGS, "topics that some member asks for, sorted"),
        Column("n_partitions", _INTS, "partitions of each topic", "partitions"),
        Column("member_ids", _STRINGS, "members, sorted"),
        Column("instance_ids", _STRINGS, "static name of each member, or null"),
        Column("n_asked", _INTS, "topics that each member asks for", "topics"),
        Column("asked", _INTS, "indices into topics, member by member"),
        Column("owner", _INTS, "index into member_ids of each topic-partition, or -1"),
        Column("lag", DType.INT64_LIST, "lag of each topic-partition", "records"),
        Column("pause_lower_seconds", _F, "mean pause so far, at least", "seconds", nullable=True),
        Column("pause_upper_seconds", _F, "mean pause so far, at most", "seconds", nullable=True),
    ),
)
