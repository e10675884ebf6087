"""The tables of a folder: one row here is one column, and only this module names the column.

**Rules.** A new column is one row here and the line that computes it. The files, Spark's schema,
CSV, JSON, the report's table of rebalances and the lists in ``docs/metrics.md`` follow the row.
"""

from __future__ import annotations

from typing import Final

from holdfast.fleet.tables.columns.definition import Column, DType, Nullable, Table

_S, _I, _L, _T, _B = DType.STRING, DType.INT32, DType.INT64, DType.TIMESTAMP, DType.BOOL
_F = DType.FLOAT64

_GROUP = Column("group", _S, "consumer group")
_TYPE = Column(
    "group_type", _S, "classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071)"
)
_GENERATION = Column(
    "generation",
    _I,
    "generation of a classic group, assignment epoch of KIP-848",
    heading="Generation",
)
_TIMESTAMP = Column(
    "timestamp", _T, "time of the record in the offsets topic", heading="Time (UTC)"
)
_TOPIC = Column("topic", _S, "topic; for KIP-848 the topic id where the name is not known")
_PARTITION = Column("partition", _I, "partition of the topic")
_MEMBER = Column("member_id", _S, "member id")
_LOG = (
    Column("log_partition", _I, "partition of the offsets topic"),
    Column("log_offset", _L, "offset in the offsets topic"),
)

OFFSET_COMMITS = Table(
    name="offset_commits",
    doc="One row per offset commit or tombstone, in the order of the log.",
    columns=(
        _GROUP,
        _TOPIC,
        _PARTITION,
        Nullable("offset", _L, "committed offset; null in a tombstone"),
        Nullable("leader_epoch", _I, "leader epoch of the last consumed record"),
        Nullable("metadata", _S, "what the committer wrote beside the offset"),
        Nullable("commit_timestamp", _T, "when the coordinator took the commit"),
        Nullable("expire_timestamp", _T, "when the commit expires, if it set an expiry"),
        Nullable("topic_id", _S, "topic id, from value version 4 on"),
        Column("is_tombstone", _B, "the commit was deleted or has expired"),
        Nullable("value_version", _I, "version of OffsetCommitValue"),
        _TIMESTAMP,
        *_LOG,
    ),
    order=("log_partition", "log_offset"),
    first=("group", "topic", "partition", "offset", "timestamp", "is_tombstone"),
)

GENERATIONS = Table(
    name="generations",
    doc="One row per generation (or KIP-848 assignment epoch) that the topic still has.",
    columns=(
        _GROUP,
        _GENERATION,
        _TYPE,
        Column("state", _S, "Stable, Empty or Dead (a tombstone)"),
        Nullable("protocol_type", _S, "consumer, connect or another"),
        Nullable("protocol", _S, "assignor that was chosen"),
        Nullable("leader", _S, "member id of the leader"),
        Column("n_members", _I, "members", "members"),
        Column("n_partitions", _L, "partitions with an owner", "partitions"),
        Nullable(
            "delay_ms",
            _L,
            "until the next planned rebalance (delay of Connect, of Design II or III, Streams' "
            "probing); null: none",
            "ms",
        ),
        Nullable("config_offset", _L, "how far Connect's leader had read its configs"),
        Nullable(
            "record_bytes",
            _L,
            "the record of a classic group as its broker compares it with message.max.bytes",
            "bytes",
        ),
        _TIMESTAMP,
        *_LOG,
    ),
    order=("group", "log_partition", "log_offset"),
    first=("group", "generation", "state", "protocol", "n_members", "n_partitions"),
)

MEMBERS = Table(
    name="members",
    doc="One row per member and generation.",
    columns=(
        _GROUP,
        _GENERATION,
        _TYPE,
        _MEMBER,
        Nullable("group_instance_id", _S, "static member's name"),
        Column("client_id", _S, "client id"),
        Column("client_host", _S, "host the broker saw"),
        Nullable("rack", _S, "rack of the member"),
        Nullable("rebalance_timeout_ms", _I, "rebalance timeout", "ms"),
        Nullable("session_timeout_ms", _I, "session timeout", "ms"),
        Nullable("subscribed_topics", DType.STRING_LIST, "subscribed topics"),
        Nullable(
            "n_claimed",
            _L,
            "partitions that the member claimed when it joined; null: not read",
            "partitions",
        ),
        Column("n_partitions", _L, "partitions given to the member", "partitions"),
        Nullable("n_revoked", _L, "tasks or resources that a worker must revoke", "tasks"),
        Nullable("n_standby", _L, "standby tasks of Streams", "tasks"),
        Nullable("n_warmup", _L, "Streams tasks that it warms up", "tasks"),
        _TIMESTAMP,
    ),
    order=("group", "generation", "member_id"),
    first=("group", "generation", "client_id", "client_host", "n_partitions", "n_claimed"),
)

ASSIGNMENTS = Table(
    name="assignments",
    doc="What each member was given: one row per generation, member and topic.",
    columns=(
        _GROUP,
        _GENERATION,
        _MEMBER,
        _TOPIC,
        Column("partitions", DType.INT32_LIST, "partitions, ascending"),
        Nullable("role", _S, "active: its one owner; standby, warmup: a copy of a task; shared"),
        _TIMESTAMP,
    ),
    order=("group", "generation", "member_id", "topic", "role"),
    explode="partitions",
    flat_name="partition",
    first=("group", "generation", "topic", "partition", "member_id"),
)

MOVEMENTS = Table(
    name="movements",
    doc="Changes of owner between two successive generations: one row per partition.",
    columns=(
        _GROUP,
        _GENERATION,
        _TOPIC,
        _PARTITION,
        Nullable("from_member", _S, "last owner; null if there was none"),
        Nullable("to_member", _S, "owner in this generation; null if there is none"),
        Column("kind", _S, "moved, moved_through_gap, gained or lost"),
        Nullable("from_generation", _I, "last generation in which from_member owned it"),
        _TIMESTAMP,
    ),
    order=("group", "generation", "topic", "partition"),
    first=("group", "generation", "topic", "partition", "kind", "from_member", "to_member"),
)

REBALANCES = Table(
    name="rebalances",
    doc="One row per completed rebalance: cause, members, moves and downtime. In a share "
    "group a pair of a member and a partition is kept, gained or lost, and none moves.",
    columns=(
        _GROUP,
        _GENERATION,
        _TYPE,
        Nullable("previous_generation", _I, "generation it is compared with"),
        _TIMESTAMP,
        Column(
            "cause",
            _S,
            "inferred, by evidence of members too; or stated by a broker log",
            heading="Cause",
        ),
        Column(
            "confidence", _F, "how often such a cause was right in live runs; 1 where it is stated"
        ),
        Column("cause_basis", _S, "inferred from two generations, or stated by a broker log"),
        Nullable("stated_reason", _S, "the broker's own words, where a log has them"),
        Column("n_missed_generations", _I, "generations in between that left no record"),
        Column("n_members", _I, "members after it", "members", heading="Members"),
        Column("n_joined", _I, "members that are new", "members", heading="Joined"),
        Column("n_left", _I, "departed members", "members", heading="Left"),
        Column(
            "n_restarted",
            _I,
            "members that came back under a new id",
            "members",
            heading="Restarted",
        ),
        Column("n_partitions", _L, "partitions with an owner after it", "partitions"),
        Column(
            "n_kept",
            _L,
            "partitions with the same owner before and after",
            "partitions",
            heading="Kept",
        ),
        Column(
            "n_moved",
            _L,
            "partitions that went from one member to another",
            "partitions",
            heading="Moved",
        ),
        Column("n_moved_through_gap", _L, "the same, with no owner in between", "partitions"),
        Column(
            "n_gained",
            _L,
            "partitions that had no owner known before",
            "partitions",
            heading="Gained",
        ),
        Column(
            "n_lost", _L, "partitions that have no owner any more", "partitions", heading="Lost"
        ),
        Nullable("n_needed_moves", _L, "least moves at the most even loads", "moves"),
        Nullable(
            "n_avoidable_moves",
            _L,
            "moves beyond the needed ones",
            "moves",
            heading="Avoidable",
            behind="n_moved",
        ),
        Column("balance_score", _L, "sum of pairwise load differences (KIP-54)", "partitions"),
        Nullable("stickiness", _F, "kept / owned before and after, 0 to 1"),
        Column(
            "gap_lower_seconds",
            _F,
            "time without an owner, at least, as the broker saw it",
            "partition-seconds",
        ),
        Column(
            "gap_upper_seconds",
            _F,
            "time without an owner, at most, as the broker saw it",
            "partition-seconds",
            heading="Downtime, partition-s",
        ),
        Nullable(
            "idle_lower_seconds",
            _F,
            "part of gap_lower_seconds in partitions of which no record waited",
            "partition-seconds",
        ),
        Nullable(
            "idle_upper_seconds",
            _F,
            "part of gap_upper_seconds in partitions of which no record waited",
            "partition-seconds",
        ),
        Nullable(
            "silent_seconds",
            _F,
            "longest time without a commit of a member that went, while most others committed",
            "seconds",
        ),
        Nullable(
            "unseen_ms",
            DType.INT64_LIST,
            "since the last evidence, a commit or the round before, of each departed member, "
            "in the order of their ids; -1 without evidence",
            "ms",
        ),
        Column("leader_changed", _B, "the leader is another member id"),
        Column("cooperative", _B, "members keep working through the rebalance"),
        Column("needed_moves_proven", _B, "n_needed_moves comes from an exact optimum"),
    ),
    order=("group", "generation", "timestamp", "group_type"),
    first=(
        "group",
        "generation",
        "timestamp",
        "cause",
        "n_moved",
        "n_avoidable_moves",
        "gap_upper_seconds",
        "n_members",
        "n_restarted",
        "n_joined",
        "n_left",
        "stickiness",
        "balance_score",
        "gap_lower_seconds",
        "n_partitions",
    ),
)

OWNERSHIP_GAPS = Table(
    name="ownership_gaps",
    doc="How long partitions had no owner around a rebalance, as a lower and an upper bound.",
    columns=(
        _GROUP,
        _GENERATION,
        _TOPIC,
        Column("partitions", DType.INT32_LIST, "partitions with these bounds, ascending"),
        Column("gap_lower_seconds", _F, "lower bound, as the broker saw it", "seconds"),
        Column("gap_upper_seconds", _F, "upper bound, as the broker saw it", "seconds"),
        Nullable("unowned_since", _T, "first record without an owner"),
        Column(
            "last_seen", _T, "last evidence of the old owner: its last commit, or the old record"
        ),
        Column("timestamp", _T, "record in which the partitions have an owner again"),
        Column("basis", _S, "what the bounds rest on: unowned, eager, handover, reconciled"),
        Nullable("is_idle", _B, "true: no record waited meanwhile; null: unknown from log ends"),
    ),
    order=("group", "generation", "topic", "partitions"),
    explode="partitions",
    flat_name="partition",
    first=("group", "generation", "topic", "partition", "gap_upper_seconds", "basis"),
)

LAG = Table(
    name="lag",
    doc="How far each group is behind, per partition.",
    columns=(
        _GROUP,
        _TOPIC,
        _PARTITION,
        Nullable(
            "current_offset", _L, "committed offset; null if there is none", heading="Committed"
        ),
        Nullable("log_start_offset", _L, "first offset the broker still has"),
        Nullable(
            "log_end_offset", _L, "offset of the next record to be written", heading="Log end"
        ),
        Nullable(
            "lag",
            _L,
            "records between them, never negative; null: no commit, or unknown topic",
            heading="Lag",
        ),
        Nullable(
            "lag_by_reset",
            _L,
            "lag by auto.offset.reset without a commit; null with one",
            "records",
        ),
        Nullable(
            "lag_seconds",
            _F,
            "age of the first unread record, or since the group came to current_offset; 0: no "
            "record is unread; null: not known",
            "seconds",
        ),
        Nullable(
            "lag_seconds_basis",
            _S,
            "record: the record's own time; at_least: it is that old or older; position: since the "
            "group came to current_offset",
        ),
        Nullable(
            "has_unread",
            _B,
            "a record is unread; false: read to the end, but for control records of transactions; "
            "null: not known",
        ),
        Nullable(
            "lag_per_second",
            _F,
            "how fast the lag grows, below 0: shrinks, by readings of about the last minute; null: "
            "one reading, or a commit outside of the log",
            "records per second",
        ),
        Nullable(
            "catch_up_seconds",
            _F,
            "until the lag is 0 at its present rate; null: unknown, or the lag does "
            "not shrink by a record a minute",
            "seconds",
        ),
        Nullable(
            "delivered",
            _L,
            "share groups: processed records from current_offset on; null: unknown",
            "records",
        ),
        Nullable("member_id", _S, "owner in the last generation", heading="Member id"),
        Nullable("client_id", _S, "of that member"),
        Nullable("client_host", _S, "of that member"),
        Nullable("commit_timestamp", _T, "when current_offset was committed"),
        Nullable(
            "position_timestamp", _T, "first of the commits in a row that name current_offset"
        ),
        Nullable("metadata", _S, "what the committer wrote beside current_offset"),
        Nullable(
            "expire_timestamp",
            _T,
            "when the commit expires, if it set an expiry; null from coordinators",
        ),
        Nullable(
            "not_subscribed",
            _B,
            "a commit of a topic that no member subscribes to; null: no commit, or not known",
        ),
        Column("status", _S, "committed, none, expired or deleted; shared (a share group's start)"),
        Column("clamped", _S, "none, beyond_end or before_begin"),
        Column("is_idle", _B, "the topic holds no record"),
    ),
    order=("group", "topic", "partition"),
    first=(
        *("group", "topic", "partition", "lag", "lag_seconds", "client_id", "status"),
        *("current_offset", "log_end_offset", "not_subscribed"),
    ),
)

LAG_HISTORY = Table(
    name="lag_history",
    doc="Lag over time: one row per group, topic and reading of the log ends; fewer of old ones.",
    columns=(
        _GROUP,
        _TOPIC,
        Column("timestamp", _T, "when the log ends were read"),
        Nullable(
            "lag",
            _L,
            "sum over partitions whose lag is known; null: it is known of none",
            "records",
        ),
        Nullable(
            "lag_seconds",
            _F,
            "the largest of the partitions, as in lag, without those that no member subscribes to; "
            "null: not known",
            "seconds",
        ),
        Column("n_partitions", _L, "partitions with a commit or an owner", "partitions"),
        Column("n_unknown", _L, "partitions whose lag is not known", "partitions"),
        Column(
            "resolution_seconds",
            _I,
            "the longest of 21600, 3600, 300 and 60 of which it is the first reading; 0: of none",
            "seconds",
        ),
    ),
    order=("group", "topic", "timestamp"),
    first=("group", "topic", "timestamp", "lag", "lag_seconds"),
)

ANOMALIES = Table(
    name="anomalies",
    doc="Anomalies: two owners of one partition, unreadable members, odd generations.",
    columns=(
        _GROUP,
        _GENERATION,
        Column(
            "kind",
            _S,
            "double_owner, unreadable_assignment, unknown_topic_id, generation_reset, "
            "contradicted_cause, failed_resource, shared_place",
        ),
        Nullable("topic", _S, "topic, where one is meant"),
        Nullable("partition", _I, "partition, where one is meant"),
        Column("member_ids", DType.STRING_LIST, "members concerned, sorted"),
        Column("detail", _S, "one sentence"),
        _TIMESTAMP,
    ),
    order=("group", "generation", "kind", "topic", "partition"),
)

BAD_RECORDS = Table(
    name="bad_records",
    doc="Records that do not parse, whole, with the reason and the position.",
    columns=(
        Nullable("log_partition", _I, f"{_LOG[0].doc}; null where it has none"),
        Nullable("log_offset", _L, f"{_LOG[1].doc}; null where it has none"),
        Nullable("timestamp", _T, "time of the record"),
        Nullable("record_type", _I, "first int16 of the key"),
        Column("reason", _S, "a stable word, such as truncated or unknown-version"),
        Column("position", _L, "byte at which reading failed; -1 if there is none", "bytes"),
        Nullable("key_hex", _S, "the key"),
        Nullable("value_hex", _S, "the value; null for a tombstone"),
    ),
    order=("log_partition", "log_offset", "reason", "position"),
    first=("reason", "record_type", "log_partition", "log_offset", "position"),
)

FINDINGS = Table(
    name="findings",
    doc="What the doctor found: one row per finding, as of the moment when the source was read.",
    columns=(
        _GROUP,
        Column("number", _I, "rank in the group: 0 is the worst, and effects follow their cause"),
        Column("code", _S, "stable code, which `explain` explains"),
        Column("severity", _S, "info, warn or error"),
        Column("basis", _S, "stated by a record, or inferred from several"),
        Column("text", _S, "one sentence"),
        Nullable("ended_timestamp", _T, "when it ended; null: it is active"),
        Nullable("follows", _S, "code of the finding that causes it"),
        Column("cost_lower_seconds", _F, "what it cost, at least", "partition-seconds"),
        Column("cost_upper_seconds", _F, "what it cost, at most", "partition-seconds"),
        Column("generations", DType.INT64_LIST, "generations concerned, the first ten"),
        Column("n_generations", _L, "generations concerned", "generations"),
        Nullable("from_timestamp", _T, "first moment of the evidence"),
        Nullable("to_timestamp", _T, "last moment of the evidence"),
        Column("members", DType.STRING_LIST, "processes or member ids, the first ten"),
        Column("n_members", _L, "processes or member ids concerned", "members"),
        Column("topic_partitions", DType.STRING_LIST, "partitions concerned, the first ten"),
        Column("n_partitions", _L, "partitions concerned", "partitions"),
        Column("figures", _S, "named measurements as JSON, units at the end of each name"),
        Column("command", _S, "what to run next; DUMP and HOST:PORT stand for the source"),
        Column("timestamp", _T, "end of the window that was examined"),
    ),
    order=("group", "number"),
    first=("group", "code", "severity", "ended_timestamp", "text"),
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
        OWNERSHIP_GAPS,
        LAG,
        LAG_HISTORY,
        ANOMALIES,
        BAD_RECORDS,
        FINDINGS,
    )
}

NOT_LOADED: Final = frozenset({"offset_commits", "movements", "lag_history"})
"""Tables that are not in memory with the others, because they are large: no page and no finding
shows movements, of commits only the last time counts, and of ``lag_history`` a time range."""
