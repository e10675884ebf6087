"""The rows that ``holdfast plan`` and ``holdfast replay`` print: computed anew, never kept."""

from __future__ import annotations

from holdfast.tables.definition import DType, Table, column

_S, _I, _L, _F, _B = DType.STRING, DType.INT32, DType.INT64, DType.FLOAT64, DType.BOOL

PLAN = Table(
    name="plan",
    doc="One row per group that has members: another assignment, and what it would change.",
    columns=(
        column("group", _S, "consumer group"),
        column("n_members", _I, "members of the last generation", "members"),
        column(
            "n_partitions",
            _L,
            "partitions of the topics that members ask for",
            "partitions",
            nullable=True,
        ),
        column("n_kept", _L, "partitions whose owner stays", "partitions", nullable=True),
        column("n_moved", _L, "partitions whose owner changes", "partitions", nullable=True),
        column(
            "balance_score_before",
            _L,
            "balance_score of the last generation",
            "partitions",
            nullable=True,
        ),
        column("balance_score", _L, "balance_score of the plan", "partitions", nullable=True),
        column("largest_lag_before", _L, "largest lag of one member now", "records", nullable=True),
        column("largest_lag", _L, "the same under the plan", "records", nullable=True),
        column(
            "n_stopped", _L, "partitions that stand still meanwhile", "partitions", nullable=True
        ),
        column("cost_lower_seconds", _F, "cost, at least", "partition-seconds", nullable=True),
        column("cost_upper_seconds", _F, "cost, at most", "partition-seconds", nullable=True),
        column("optimal", _B, "the plan is proven optimal", nullable=True),
        column("refused", _S, "why the assignor does not take the group", nullable=True),
        column("moves", _S, "JSON list of [topic, partition, from, to]", nullable=True),
    ),
    order=("group",),
)

REPLAY = Table(
    name="replay",
    doc="One row per group and setting: what the group's history would have cost under it.",
    columns=(
        column("group", _S, "consumer group", heading="Group"),
        column("policy", _S, "policy of the setting", heading="Policy"),
        column("assignor", _S, "assignor of the setting", heading="Assignor"),
        column("delay_ms", _L, "delay of a policy that defers", "ms", nullable=True),
        column("actual", _B, "the setting is the one that the group has"),
        column("n_places", _L, "members; one that comes back is the same", "members"),
        column("n_partitions", _L, "partitions", "partitions"),
        column("n_events", _L, "happenings that were replayed"),
        column("rebalances", _L, "completed rebalances", nullable=True, heading="Rebalances"),
        column("moved", _L, "moves of a partition", nullable=True, heading="Moved"),
        column(
            "moved_to_third",
            _L,
            "moves to a member that is the owner neither before nor after",
            nullable=True,
            heading="To a third",
        ),
        column(
            "partition_seconds_unowned", _F, "without owner", "partition-seconds", nullable=True
        ),
        column(
            "partition_seconds_stopped",
            _F,
            "without owner, or with one that still rebuilds",
            "partition-seconds",
            nullable=True,
            heading="Stopped, partition-s",
        ),
        column(
            "longest_stop_seconds",
            _F,
            "longest stop of one partition",
            "seconds",
            nullable=True,
            heading="Longest stop, s",
        ),
        column(
            "time_to_balance_seconds",
            _F,
            "from a happening to the last round before the group is still, on average",
            "seconds",
            nullable=True,
            heading="Balanced after, s",
        ),
        column("fidelity", _F, "of the actual setting, 0 to 1", nullable=True, heading="Fidelity"),
        column("fidelity_rebalances", _F, "agreement of the rebalances, 0 to 1", nullable=True),
        column("fidelity_moves", _F, "agreement of the moves, 0 to 1", nullable=True),
        column("fidelity_pause", _F, "agreement of the pauses, 0 to 1", nullable=True),
        column("recorded_rebalances", _L, "rebalances on record"),
        column("recorded_moved", _L, "moves on record"),
        column("recorded_pause_lower_seconds", _F, "pauses, at least", "partition-seconds"),
        column("recorded_pause_upper_seconds", _F, "pauses, at most", "partition-seconds"),
        column("note", _S, "what the replay had to leave out or guess"),
    ),
    order=("group",),
)
