"""What another assignment would be for every group: moves, gain and cost. Printed, never applied.

**Rules.** The input is what the tables say of a group's last generation: members, subscriptions,
owners, lag. A group that an assignor refuses is a row with the reason, and stops no other.

**Strategy.** A group is one row with its snapshot, so a plan is one ``mapInArrow`` with no shuffle;
few groups are planned where the driver is.
"""

# mypy: disable-error-code="arg-type, assignment, call-overload, index, union-attr"
# (The stubs inside pyarrow 26 refuse calls that pyarrow takes.)

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.assign.registry import assign
from holdfast.errors import ModelError
from holdfast.model import measure
from holdfast.model.columns import NO_OWNER
from holdfast.model.group import Group
from holdfast.pipeline.storage import Tables

Batches = Iterator[pa.RecordBatch]

PLAN: Final[pa.Schema] = pa.schema(
    [
        pa.field("group", pa.string()),
        pa.field("n_members", pa.int32()),
        pa.field("n_partitions", pa.int64()),
        pa.field("n_kept", pa.int64()),
        pa.field("n_moved", pa.int64()),
        pa.field("balance_score_before", pa.int64()),
        pa.field("balance_score", pa.int64()),
        pa.field("largest_lag_before", pa.int64()),
        pa.field("largest_lag", pa.int64()),
        pa.field("optimal", pa.bool_()),
        pa.field("refused", pa.string()),
        pa.field("moves", pa.string()),
    ]
)
"""``largest_lag``: of one member; ``moves``: JSON of [topic, partition, from, to]."""
PLAN_DDL: Final = (
    "`group` string, `n_members` int, `n_partitions` bigint, `n_kept` bigint, `n_moved` bigint, "
    "`balance_score_before` bigint, `balance_score` bigint, `largest_lag_before` bigint, "
    "`largest_lag` bigint, `optimal` boolean, `refused` string, `moves` string"
)

DRIVER_GROUPS: Final = 200


def snapshots(tables: Tables, topics: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Snapshot of each group that has members, from its last generation.

    Parameters
    ----------
    topics : mapping
        Topic to number of partitions; topics that are not there are left out.

    Returns
    -------
    dict of group to snapshot
        As :meth:`holdfast.model.group.Group.from_dict` reads it.
    """
    last: dict[str, dict[str, Any]] = {}
    for row in tables.table("generations").to_pylist():
        last[row["group"]] = row  # sorted by group and place in the log: the last one stays
    found: dict[str, dict[str, Any]] = {}
    for row in tables.table("members").to_pylist():
        now = last.get(row["group"])
        if now is None or now["state"] != "Stable":
            continue
        if (row["generation"], row["timestamp"]) != (now["generation"], now["timestamp"]):
            continue
        asked = [t for t in row["subscribed_topics"] or () if t in topics]
        member = {
            "id": row["member_id"],
            "topics": asked,
            "owned": [],
            "generation": row["generation"],
            "instance_id": row["group_instance_id"],
        }
        if row["rack"]:
            member["rack"] = row["rack"]
        group = found.setdefault(row["group"], {"partitions": {}, "lags": {}, "members": []})
        group["members"].append(member)
        for topic in asked:
            group["partitions"][topic] = topics[topic]
            group["lags"].setdefault(topic, [0] * topics[topic])
    _fill(tables, found)
    return found


def _fill(tables: Tables, found: dict[str, dict[str, Any]]) -> None:
    """Put owners and lags into the snapshots."""
    members = {(g, m["id"]): m for g, snapshot in found.items() for m in snapshot["members"]}
    for row in tables.table("lag").to_pylist():
        snapshot = found.get(row["group"])
        if snapshot is None or row["partition"] >= snapshot["partitions"].get(row["topic"], 0):
            continue
        snapshot["lags"][row["topic"]][row["partition"]] = row["lag"] or 0
        owner = members.get((row["group"], row["member_id"]))
        if owner is not None:
            owner["owned"].append([row["topic"], row["partition"]])


def plan_task(assignor: str, options: Mapping[str, Any]) -> Callable[[Batches], Batches]:
    """Rows of (group, snapshot as JSON) to rows of :data:`PLAN`."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            pairs = zip(batch["group"].to_pylist(), batch["snapshot"].to_pylist(), strict=True)
            rows = [plan_group(g, json.loads(text), assignor, options) for g, text in pairs]
            yield from pa.Table.from_pylist(rows, schema=PLAN).to_batches()

    return run


def plan_group(
    name: str, snapshot: Mapping[str, Any], assignor: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Plan one group."""
    row: dict[str, Any] = dict.fromkeys(PLAN.names)
    row |= {"group": name, "n_members": len(snapshot["members"])}
    try:
        group = Group.from_dict(snapshot)
        result = assign(group, assignor, **options)
    except ModelError as error:
        return row | {"refused": str(error)}
    before = _owners(group)
    lags = group.lags
    moved = np.flatnonzero((before != NO_OWNER) & (result.target != before))
    moves = [
        [
            group.topics.names[topic],
            int(tp - group.topics.start[topic]),
            group.member_ids[before[tp]],
            group.member_ids[result.target[tp]] if result.target[tp] != NO_OWNER else None,
        ]
        for tp, topic in zip(moved.tolist(), group.topics.topic_of[moved].tolist(), strict=True)
    ]
    largest = []
    for owner in (before, result.target):
        total = measure.lag_per_member(owner, lags, group.n_members) if lags is not None else [0]
        largest.append(int(max(total, default=0)))
    return row | {
        "n_partitions": int(np.count_nonzero(result.target != NO_OWNER)),
        "n_kept": measure.count_kept(before, result.target),
        "n_moved": len(moves),
        "balance_score_before": measure.balance_score(measure.loads(before, group.n_members)),
        "balance_score": result.quality.balance_score,
        "largest_lag_before": largest[0],
        "largest_lag": largest[1],
        "optimal": result.quality.optimal,
        "moves": json.dumps(moves),
    }


def _owners(group: Group) -> Any:
    """Owner of each topic-partition by the members' claims; of two the first."""
    owner = np.full(group.topics.n_tps, NO_OWNER, np.int32)
    member = np.repeat(np.arange(group.n_members, dtype=np.int32), np.diff(group.claim_start))
    owner[group.claim_tp[::-1]] = member[::-1]
    return owner


def plan(
    spark: Any, tables: Tables, topics: Mapping[str, int], assignor: str, **options: Any
) -> pa.Table:
    """Plan every group of a folder of tables.

    Parameters
    ----------
    spark : SparkSession or None
        Where many groups are planned; few are planned here.

    Returns
    -------
    Table of PLAN
        Sorted by group.
    """
    found = snapshots(tables, topics)
    rows = pa.table(
        {
            "group": pa.array(list(found), pa.string()),
            "snapshot": pa.array([json.dumps(s) for s in found.values()], pa.string()),
        }
    )
    task = plan_task(assignor, options)
    if spark is None or len(found) <= DRIVER_GROUPS:
        planned = pa.Table.from_batches(task(iter(rows.to_batches())), PLAN)
    else:
        planned = spark.createDataFrame(rows).mapInArrow(task, PLAN_DDL).toArrow().cast(PLAN)
    return planned.sort_by("group")
