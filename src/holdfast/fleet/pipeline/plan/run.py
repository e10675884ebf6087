"""What another assignment would be for every group: moves, gain and cost. Printed, never applied.

**Rules.** The input is each group's last generation in the tables: members, subscriptions, owners
and lag (:mod:`holdfast.fleet.pipeline.plan.rows`). A group that the assignor refuses becomes a row
with the reason; the other groups are planned all the same. The tables have no racks of partitions,
so racks do not count.

**Strategy.** A group is one row, so a plan is a step without a shuffle. The assignor itself plans
each group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.assignors.registry import Named, assign, check_options, find
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, row_of, starts, within
from holdfast.core.model.group import Group
from holdfast.core.model.measure import balance_scores
from holdfast.core.model.reported import ReportedClaims, Subscriptions
from holdfast.core.model.topics import Topics
from holdfast.errors import ModelError
from holdfast.fleet.columnar import BatchTask
from holdfast.fleet.pipeline.plan.rows import FLEET, Fleet, fleet_rows
from holdfast.fleet.pipeline.steps import InMemoryRows, Input, Session, Step, by_table, run
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.folder.snapshot import once_more
from holdfast.fleet.tables.reading import Tables

PLAN: Final = arrow_schema("plan")
"""Columns: :data:`holdfast.fleet.tables.columns.steps.PLAN`."""

GROUP_COST: Final = 1_000
"""A group to be planned costs as much as so many rows of records."""
TASK_GROUPS: Final = 1_000
"""Groups in a task, if there are many groups: Spark makes each batch of rows one."""


def plan_task(assignor: Named, options: Mapping[str, Any]) -> BatchTask:
    """Turn rows of :data:`FLEET` into rows of :data:`PLAN`."""
    return by_table(lambda rows: plan_rows(rows.cast(FLEET), assignor, options))


def plan_rows(rows: pa.Table, assignor: Named, options: Mapping[str, Any]) -> pa.Table:
    """Plan some groups: rows of :data:`FLEET` to rows of :data:`PLAN`, in the same order."""
    fleet = Fleet.of(rows)
    target = np.full(len(fleet.owner), NO_OWNER, np.int32)
    optimal = np.zeros(rows.num_rows, np.bool_)
    refused: list[str | None] = fleet.rows["refused"].to_pylist()
    for group in np.flatnonzero(fleet.rows["refused"].is_null().to_numpy()).tolist():
        tps = slice(fleet.tp_start[group], fleet.tp_start[group + 1])
        try:
            own = _options_of(fleet, group, options, assignor)
            result = assign(group_of(fleet, group), assignor, **own)
        except ModelError as error:
            refused[group] = str(error)
            continue
        except MemoryError as error:
            refused[group] = f"too large for the memory of this machine: {error}"
            continue
        target[tps] = result.target
        optimal[group] = result.optimal
    stops_all = not find(assignor).cooperative
    return _numbers(fleet, target, optimal, refused, stops_all=stops_all)


def _options_of(
    fleet: Fleet, group: int, options: Mapping[str, Any], assignor: Named
) -> dict[str, Any]:
    """Return options for one group; the option ``group_id`` of an assignor is the group's name."""
    if "group_id" in find(assignor).options:
        return {"group_id": fleet.rows["group"][group].as_py(), **options}
    return dict(options)


def group_of(fleet: Fleet, at: int) -> Group:
    """Return one row as a group, for the registry."""
    row = {name: fleet.rows[name][at] for name in ("topics", "member_ids", "instance_ids")}
    counts = fleet.n_partitions[fleet.topic_start[at] : fleet.topic_start[at + 1]]
    topics = Topics.from_counts(dict(zip(row["topics"].as_py(), counts.tolist(), strict=True)))
    low, high = fleet.tp_start[at], fleet.tp_start[at + 1]
    owner = fleet.owner[low:high]
    n_subscribed = fleet.n_subscribed[fleet.member_start[at] : fleet.member_start[at + 1]]
    subscribed = fleet.subscribed[fleet.subscribed_start[at] : fleet.subscribed_start[at + 1]]
    cuts = starts(n_subscribed.astype(np.int64))
    asks = (tuple(subscribed[a:b].tolist()) for a, b in pairwise(cuts))
    return Group.build(
        topics=topics,
        member_ids=tuple(row["member_ids"].as_py()),
        instance_ids=tuple(row["instance_ids"].as_py()),
        subscriptions=Subscriptions.from_rows(asks),
        claims=ReportedClaims.from_owner(topics, owner),
        generation=np.full(len(n_subscribed), fleet.rows["generation"][at].as_py(), np.int32),
        lags=fleet.lag[low:high].copy(),
    )


def _numbers(
    fleet: Fleet,
    target: I32,
    optimal: Mask,
    refused: Sequence[str | None],
    *,
    stops_all: bool,
) -> pa.Table:
    """Return rows of :data:`PLAN` from the owners before and after."""
    n = fleet.rows.num_rows
    group = row_of(fleet.tp_start).astype(np.int64)
    owned, wanted = fleet.owner != NO_OWNER, target != NO_OWNER
    moved, kept = owned & (fleet.owner != target), owned & (fleet.owner == target)
    n_moved, n_kept, n_wanted = (_count(mask, fleet.tp_start) for mask in (moved, kept, wanted))
    row_group = row_of(fleet.member_start).astype(np.int64)
    (before, lag_before), (after, lag_after) = (
        _loads(fleet, owner, group, row_group) for owner in (fleet.owner, target)
    )
    n_owned = _count(owned, fleet.tp_start)
    stopped = np.where(n_moved > 0, n_owned, 0) if stops_all else n_moved
    bad = np.array([text is not None for text in refused], bool)
    columns: dict[str, Any] = {
        "n_partitions": n_wanted,
        "n_kept": n_kept,
        "n_moved": n_moved,
        "balance_score_before": balance_scores(before, row_group, n),
        "balance_score": balance_scores(after, row_group, n),
        "largest_lag_before": lag_before,
        "largest_lag": lag_after,
        "n_stopped": stopped,
        "cost_lower_seconds": _cost(fleet, "gap_lower_seconds", stopped),
        "cost_upper_seconds": _cost(fleet, "gap_upper_seconds", stopped),
        "optimal": optimal,
        "moves": _moves(fleet, target, np.flatnonzero(moved), group),
    }
    # A group that was refused has no plan, so no number of one.
    masked = {name: pc.if_else(bad, None, pa.array(values)) for name, values in columns.items()}
    masked |= {
        "group": fleet.rows["group"],
        "n_members": pa.array(np.diff(fleet.member_start)),
        "refused": pa.array(refused, pa.string()),
    }
    return pa.table(masked, schema=PLAN)


def _loads(fleet: Fleet, owner: I32, group: I64, row_group: I64) -> tuple[I64, I64]:
    """Return partitions of each member, and the largest lag of one in each group."""
    held = np.flatnonzero(owner != NO_OWNER)
    row = fleet.member_start[group[held]] + owner[held]
    total = np.zeros(len(row_group), np.int64)
    np.add.at(total, row, fleet.lag[held])
    largest = np.zeros(fleet.rows.num_rows, np.int64)
    np.maximum.at(largest, row_group, total)
    return np.bincount(row, minlength=len(row_group)).astype(np.int64), largest


def _count(mask: Mask, start: I64) -> I64:
    """Count the true entries in each row of a CSR pair."""
    counted: I64 = np.diff(starts(mask)[start])
    return counted


def _cost(fleet: Fleet, name: str, stopped: I64) -> pa.Array:
    """Return partition-seconds: what stops times its past downtime; null if unknown."""
    per = fleet.rows[name].to_numpy()
    cost = np.where(stopped > 0, np.round(per * stopped, 6), 0.0)
    return pa.array(cost, mask=np.isnan(cost))


def _moves(fleet: Fleet, target: I32, moved: I64, group: I64) -> pa.Array:
    """Return JSON of the moves, by group."""
    topic_of = row_of(starts(fleet.n_partitions))
    partition = within(fleet.n_partitions)
    topics = fleet.rows["topics"].combine_chunks().flatten()
    ids = fleet.rows["member_ids"].combine_chunks().flatten()
    first = fleet.member_start[group[moved]]
    to = np.where(target[moved] != NO_OWNER, first + target[moved], -1)
    topic, member = (
        [encode_basestring_ascii(name) for name in names.to_pylist()] for names in (topics, ids)
    )
    member.append("null")  # at -1
    columns = (topic_of[moved], partition[moved], first + fleet.owner[moved], to)
    rows = [
        f"[{topic[t]}, {p}, {member[a]}, {member[b]}]"
        for t, p, a, b in zip(*(column.tolist() for column in columns), strict=True)
    ]
    cuts = np.searchsorted(group[moved], np.arange(len(fleet.tp_start))).tolist()
    return pa.array([f"[{', '.join(rows[a:b])}]" for a, b in pairwise(cuts)], pa.string())


def plan(
    session: Session,
    tables: Tables,
    topics: Mapping[str, int],
    assignor: Named,
    *,
    groups: Sequence[str] | None = None,
    **options: Any,
) -> pa.Table:
    """Plan every group of a folder of tables.

    Parameters
    ----------
    session : callable or None
        Returns the session if many groups are planned; few are planned in this process.
    topics : mapping
        Topic to number of partitions.

    Returns
    -------
    Table of PLAN
        Sorted by group.

    Raises
    ------
    ConfigError
        The assignor is unknown, or has no such option.
    """
    check_options(assignor, options)
    rows = once_more(lambda: fleet_rows(tables, topics, groups=groups))
    cost = GROUP_COST * rows.num_rows
    fleet = InMemoryRows(rows=rows, cost_rows=cost, task_rows=TASK_GROUPS)
    inputs = [Input(rows=fleet, into=plan_task(assignor, options))]
    step = Step(what="the groups to be planned", inputs=inputs, schema=PLAN)
    return run(session, step).sort_by("group")
