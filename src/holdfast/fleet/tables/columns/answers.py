"""The rows that ``holdfast plan`` and ``holdfast replay`` print: always computed, never stored."""

from __future__ import annotations

from holdfast.fleet.tables.columns.definition import Column, DType, Table

_S, _I, _L, _F, _B = DType.STRING, DType.INT32, DType.INT64, DType.FLOAT64, DType.BOOL

PLAN = Table(
    name="plan",
    doc="One row per group that has members: another assignment, and what it would change.",
    columns=(
        Column("group", _S, "consumer group"),
        Column("n_members", _I, "members of the last generation", "members"),
        Column(
            "n_partitions",
            _L,
            "partitions of the topics that members subscribe to",
            "partitions",
            nullable=True,
        ),
        Column("n_kept", _L, "partitions that keep their owner", "partitions", nullable=True),
        Column("n_moved", _L, "partitions that change their owner", "partitions", nullable=True),
        Column(
            "balance_score_before",
            _L,
            "balance_score of the last generation",
            "partitions",
            nullable=True,
        ),
        Column("balance_score", _L, "balance_score of the plan", "partitions", nullable=True),
        Column("largest_lag_before", _L, "largest lag of one member now", "records", nullable=True),
        Column("largest_lag", _L, "the same under the plan", "records", nullable=True),
        Column(
            "n_stopped", _L, "partitions without an owner meanwhile", "partitions", nullable=True
        ),
        Column("cost_lower_seconds", _F, "cost, at least", "partition-seconds", nullable=True),
        Column("cost_upper_seconds", _F, "cost, at most", "partition-seconds", nullable=True),
        Column("optimal", _B, "the plan is proven optimal", nullable=True),
        Column("refused", _S, "why the assignor does not take the group", nullable=True),
        Column("moves", _S, "JSON list of [topic, partition, from, to]", nullable=True),
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
        Column("delay_ms", _L, "delay of a policy that defers", "ms", nullable=True),
        Column("actual", _B, "the setting is the one that the group has"),
        Column("n_places", _L, "members; one that comes back is the same", "members"),
        Column("n_partitions", _L, "partitions", "partitions"),
        Column("n_events", _L, "replayed events"),
        Column("rebalances", _L, "completed rebalances", nullable=True, heading="Rebalances"),
        Column("moved", _L, "moves of a partition", nullable=True, heading="Moved"),
        Column(
            "moved_to_third",
            _L,
            "moves to a member that is the owner neither before nor after",
            nullable=True,
            heading="To a third",
        ),
        Column(
            "revocations",
            _L,
            "how often a partition was taken from its owner",
            nullable=True,
            heading="Revocations",
        ),
        Column(
            "partition_seconds_awaited",
            _F,
            "partition-seconds in which the group waited for a member",
            "partition-seconds",
            nullable=True,
            heading="Awaited, partition-s",
        ),
        Column(
            "longest_wait_seconds",
            _F,
            "longest wait of one partition for its member",
            "seconds",
            nullable=True,
            heading="Longest wait, s",
        ),
        Column(
            "time_to_balance_seconds",
            _F,
            "from an event to the last round before the group is quiescent, on average",
            "seconds",
            nullable=True,
            heading="Balanced after, s",
        ),
        Column("reason", _S, "why a number is missing", nullable=True),
        Column("fidelity", _F, "of the actual setting, 0 to 1", nullable=True, heading="Fidelity"),
        Column("fidelity_rebalances", _F, "agreement of the rebalances, 0 to 1", nullable=True),
        Column("fidelity_moves", _F, "agreement of the moves, 0 to 1", nullable=True),
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
