"""Rows that no folder of tables holds: parts of a dump, rows between steps, printed answers.

**Rules.** Only the pipeline reads the rows of steps. After a batch only the state remains that a
stream needs for its next batch. A column with the name of a stored column is that column, but it
may be null here. The rows that ``plan`` and ``replay`` print are always computed.
"""

from __future__ import annotations

from holdfast.fleet.tables.columns.definition import Column, DType, Nullable, Table
from holdfast.fleet.tables.columns.stored import (
    ASSIGNMENTS,
    GENERATIONS,
    LAG,
    MEMBERS,
    OFFSET_COMMITS,
    OWNERSHIP_GAPS,
    REBALANCES,
)

_S, _I, _L, _T, _B = DType.STRING, DType.INT32, DType.INT64, DType.TIMESTAMP, DType.BOOL
_F, _INTS, _STRINGS = DType.FLOAT64, DType.INT32_LIST, DType.STRING_LIST

RECORDS = Table(
    name="records",
    doc="Records of the offsets topic: part of a dump.",
    columns=(
        Column("partition", _I, "partition of that topic"),
        Column("offset", _L, "offset in it"),
        Column("timestamp", _T, "time of the record"),
        Nullable("key", DType.BINARY, "key"),
        Nullable("value", DType.BINARY, "value; null for a tombstone"),
    ),
    order=("partition", "offset"),
)

SHARE_STATE = Table(
    name="share_state",
    doc="Records of __share_group_state: part of a dump of a cluster that has it.",
    columns=RECORDS.columns,
    order=("partition", "offset"),
)

DELETED = Table(
    name="deleted",
    doc="Tombstones that compaction has deleted, at positions that holdfast chose: part of a "
    "merged dump.",
    columns=RECORDS.columns,
    order=("partition", "offset", "key"),
)

TOPICS = Table(
    name="topics",
    doc="Topics of the cluster with their ids: part of a dump.",
    columns=(
        Column("topic_id", _S, "22 characters of base64url, as Kafka's tools show it"),
        Column("topic", _S, "name"),
        Column("partitions", _I, "number of partitions", "partitions"),
    ),
    order=("topic",),
)

OFFSETS = Table(
    name="offsets",
    doc="Begin and end offsets of every partition, read after the records: part of a dump.",
    columns=(
        Column("topic", _S, "topic"),
        Column("partition", _I, "partition of the topic"),
        Column("begin_offset", _L, "first offset"),
        Column("end_offset", _L, "offset of the next record"),
    ),
    order=("topic", "partition"),
)

DUMP_TABLES: dict[str, Table] = {
    table.name: table for table in (RECORDS, SHARE_STATE, DELETED, TOPICS, OFFSETS)
}


FILES = Table(
    name="files",
    doc="Result of a task: one row per file that it has closed, and one with its counts.",
    columns=(
        Nullable("table", _S, "table that the file belongs to"),
        Nullable("file", _S, "path below the folder of the tables"),
        Nullable("rows", _L, "rows in the file"),
        Column("n_unknown", _L, "records of an unknown type, in a row without a file"),
        Nullable("record_type", _I, "that type"),
    ),
)

DUMPED = Table(
    name="dumped",
    doc="Result of a task of a dump: one row with its file.",
    columns=(
        Column("file", _S, "name of the file"),
        Column("partitions", _INTS, "partitions of the offsets topic that gave records"),
        Column("rows", DType.INT64_LIST, "records of each of them", "records"),
    ),
)

WAITING = Table(
    name="waiting",
    doc="Records of open transactions, which wait for the end of theirs.",
    columns=(Column("producer_id", _L, "producer of the transaction"), *RECORDS.columns),
)

KNOWN_KEYS = Table(
    name="known_keys",
    doc="The last record that is known of a key of the offsets topic.",
    columns=RECORDS.pick("partition", "offset", "key"),
)

LAST_OF_KEYS = Table(
    name="last_of_keys",
    doc="The last record of each key among several dumps.",
    columns=(
        *RECORDS.pick("partition", "key", "offset"),
        Column("is_tombstone", _B, "the record deletes its key"),
        Column("is_gone", _B, "a later dump has read its position, and does not have it"),
        Column("begin", _L, "end of a dump that still had the record"),
        Column("time_us", _L, "time of the dump that does not have it", "microseconds"),
    ),
)

SPLIT = Table(
    name="split",
    doc="Rows on their way to their group: records, state, and names of written files.",
    columns=(
        Column("group", DType.BINARY, "consumer group, as bytes"),
        Column("kind", _I, "what the row is: a RowKind"),
        Nullable("message", DType.BINARY, "state, or names of files; null in a record"),
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

EXAMINED = Table(
    name="examined",
    doc="Groups to be examined.",
    columns=(
        *GENERATIONS.pick("group"),
        Column("is_whole", _B, "by all rules; else by those of the lag alone"),
    ),
)

FOLLOWED = Table(
    name="followed",
    doc="Groups whose past events are judged by their commits.",
    columns=GENERATIONS.pick("group"),
)

HEAD = Table(
    name="generation_heads",
    doc="Successive generations of groups, sorted by group and position in the log.",
    columns=(
        *GENERATIONS.pick("group", "generation", "group_type", "state", "protocol_type"),
        *GENERATIONS.pick("protocol", "leader", "timestamp", "log_partition", "log_offset"),
        *GENERATIONS.pick("delay_ms", "config_offset", "record_bytes"),
        Column("context", _B, "reported before; here only to be compared with"),
    ),
)

MEMBER_ROWS = Table(
    name="generation_members",
    doc="Members of those generations.",
    columns=(
        Column("row", _I, "row of the member's generation"),
        *MEMBERS.pick("member_id", "group_instance_id", "client_id", "client_host", "rack"),
        *MEMBERS.pick("rebalance_timeout_ms", "session_timeout_ms", "subscribed_topics"),
        *MEMBERS.pick("n_claimed", "n_revoked"),
        Nullable("leaving", _I, "it announces that it stops, as on the wire; null: no"),
        Nullable("location", _I, "a digest of its location; null: not reported"),
        Column("readable", _B, "the member's assignment parses"),
    ),
)

OWNED_ROWS = Table(
    name="generation_owned",
    doc="Assignments of those members: one row per member and topic.",
    columns=(
        Column("member", _I, "row of the member"),
        *ASSIGNMENTS.pick("topic", "partitions"),
        Nullable("role", _I, "what the member is to them, as a number; null: active"),
        Nullable("reader", _S, "subtopology that reads them (source), or the error (failed)"),
    ),
)

_POSITION = (
    *OFFSET_COMMITS.pick("offset", "commit_timestamp", "expire_timestamp", "metadata"),
    Nullable("since", _T, "first of the commits in a row that name the offset"),
    Nullable("goes_back", _B, "earlier commits may name the same offset"),
    *OFFSET_COMMITS.pick("log_partition", "log_offset"),
    *LAG.pick("delivered"),  # -1: of a share group, and unknown
)

POSITION = Table(
    name="positions",
    doc="The latest commit of each group and partition.",
    columns=(*OFFSET_COMMITS.pick("group", "topic", "partition"), *_POSITION),
)

LAG_INPUT = Table(
    name="lag_input",
    doc="A position (a tombstone has no offset), or partitions that a member owns.",
    columns=(
        *ASSIGNMENTS.pick("group", "topic"),
        Column("partition", _I, "of a position; null: the row is a member's assignment"),
        Nullable("partitions", _INTS, "what a member owns"),
        *LAG.pick("member_id", "client_id", "client_host"),
        *_POSITION,
    ),
)

OLDEST_UNREAD = Table(
    name="oldest_unread",
    doc="The oldest unread records of partitions with lag, to be read from a cluster.",
    columns=(
        *LAG.pick("topic", "partition"),
        *OFFSET_COMMITS.pick("offset"),
        Column("near_ms", _L, "a time near the record's own", "milliseconds since 1970"),
        *LAG.pick("lag"),
    ),
)

GAP_INPUT = Table(
    name="gap_input",
    doc="Ownership gaps, and the commits that narrow their bounds; basis tells them apart.",
    columns=(
        *OWNERSHIP_GAPS.pick("group", "generation", "topic", "partitions"),
        Column("partition", _I, "of a commit and of idle time, instead of partitions"),
        *OWNERSHIP_GAPS.pick("gap_lower_seconds", "unowned_since", "last_seen"),
        Column("timestamp", _T, "end of the gap, or time of the commit"),
        Column("basis", _S, "as in ownership_gaps; commit; open: no owner yet; left; or idle"),
        Column("log_offset", _L, "a commit counts for a gap only before this position"),
        Nullable("member", _I, "a number for the member that went"),
        *MEMBERS.pick("session_timeout_ms", "rebalance_timeout_ms"),
        Nullable("reads", _STRINGS, "what its tasks read; null: the topic"),
    ),
)

DEPARTURES = Table(
    name="departures",
    doc="Departures of the members of a rebalance, by their last evidence.",
    columns=REBALANCES.pick(
        "group", "generation", "timestamp", "cause", "silent_seconds", "unseen_ms"
    ),
)

FLEET = Table(
    name="fleet",
    doc="The last generation of each group, one row per group with everything in lists.",
    columns=(
        *GENERATIONS.pick("group"),
        Column("generation", _I, "last generation with members"),
        Column("topics", _STRINGS, "topics that a member subscribes to, sorted"),
        Column("n_partitions", _INTS, "partitions of each topic", "partitions"),
        Column("member_ids", _STRINGS, "members, sorted"),
        Column("instance_ids", _STRINGS, "static name of each member, or null"),
        Column("n_subscribed", _INTS, "topics that each member subscribes to", "topics"),
        Column("subscribed", _INTS, "indices into topics, member by member"),
        Column("owner", _INTS, "index into member_ids of each topic-partition, or -1"),
        Column("lag", DType.INT64_LIST, "lag of each topic-partition", "records"),
        Nullable("refused", _S, "why the group has no plan, and no topics here"),
        Nullable("gap_lower_seconds", _F, "mean gap so far, at least", "seconds"),
        Nullable("gap_upper_seconds", _F, "mean gap so far, at most", "seconds"),
    ),
)

PLAN = Table(
    name="plan",
    doc="One row per group that has members: another assignment, and what it would change.",
    columns=(
        Column("group", _S, "consumer group"),
        Column("n_members", _I, "members of the last generation", "members"),
        Nullable(
            "n_partitions", _L, "partitions of the topics that members subscribe to", "partitions"
        ),
        Nullable("n_kept", _L, "partitions that keep their owner", "partitions"),
        Nullable("n_moved", _L, "partitions that change their owner", "partitions"),
        Nullable("balance_score_before", _L, "balance_score of the last generation", "partitions"),
        Nullable("balance_score", _L, "balance_score of the plan", "partitions"),
        Nullable("largest_lag_before", _L, "largest lag of one member now", "records"),
        Nullable("largest_lag", _L, "the same under the plan", "records"),
        Nullable("n_stopped", _L, "partitions without an owner meanwhile", "partitions"),
        Nullable("cost_lower_seconds", _F, "cost, at least", "partition-seconds"),
        Nullable("cost_upper_seconds", _F, "cost, at most", "partition-seconds"),
        Nullable("optimal", _B, "the plan is proven optimal"),
        Nullable("refused", _S, "why the assignor does not take the group"),
        Nullable("moves", _S, "JSON list of [topic, partition, from, to]"),
    ),
    order=("group",),
)

REPLAY = Table(
    name="replay",
    doc="One row per group and setting: what the group's history would have cost under it.",
    columns=(
        Column("group", _S, "consumer group", heading="Group"),
        Column("policy", _S, "policy of the setting", heading="Policy"),
        Column("assignor", _S, "assignor of the setting", heading="Assignor"),
        Nullable("delay_ms", _L, "delay of a policy that defers", "ms"),
        Column("actual", _B, "the setting is the one that the group has"),
        Column("n_places", _L, "members; one that comes back is the same", "members"),
        Column("n_partitions", _L, "partitions", "partitions"),
        Column("n_events", _L, "replayed events"),
        Nullable("rebalances", _L, "completed rebalances", heading="Rebalances"),
        Nullable("moved", _L, "moves of a partition", heading="Moved"),
        Nullable(
            "moved_to_third",
            _L,
            "moves to a member that is the owner neither before nor after",
            heading="To a third",
        ),
        Nullable(
            "revocations",
            _L,
            "how often a partition was taken from its owner",
            heading="Revocations",
        ),
        Nullable(
            "partition_seconds_awaited",
            _F,
            "partition-seconds in which the group waited for a member",
            "partition-seconds",
            heading="Awaited, partition-s",
        ),
        Nullable(
            "longest_wait_seconds",
            _F,
            "longest wait of one partition for its member",
            "seconds",
            heading="Longest wait, s",
        ),
        Nullable(
            "time_to_balance_seconds",
            _F,
            "from an event to the last round before the group is quiescent, on average",
            "seconds",
            heading="Balanced after, s",
        ),
        Nullable("reason", _S, "why a number is missing"),
        Nullable("fidelity", _F, "of the actual setting, 0 to 1", heading="Fidelity"),
        Nullable("fidelity_rebalances", _F, "agreement of the rebalances, 0 to 1"),
        Nullable("fidelity_moves", _F, "agreement of the moves, 0 to 1"),
        Column("recorded_rebalances", _L, "rebalances on record"),
        Column("recorded_moved", _L, "moves on record"),
        Column(
            "recorded_gap_lower_seconds",
            _F,
            "ownership gaps, at least, as the broker saw them",
            "partition-seconds",
        ),
        Column(
            "recorded_gap_upper_seconds",
            _F,
            "ownership gaps, at most, as the broker saw them",
            "partition-seconds",
        ),
        Column("note", _S, "what the replay had to leave out or guess"),
    ),
    order=("group",),
)
