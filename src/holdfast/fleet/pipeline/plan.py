"""What another assignment would be for every group: moves, gain and cost. Printed, never applied.

**Rules.** The input is each group's last generation in the tables, one row per group with lists.
The topics of a row are the topics that a member subscribes to and that the cluster has, sorted by
name; members are sorted by id. ``owner`` and ``lag`` have one entry per topic-partition, in that
order. The owner of a partition is the one in the table ``lag``. Rows about partitions that the
cluster does not have make no topic larger. A group that the assignor refuses, or that has more than
MOST_PARTITIONS topic-partitions, becomes a row with the reason; the other groups are planned all
the same. The tables have no racks of partitions, so racks do not count.

**Strategy.** The input is made by columns over the whole fleet, each placed by one search: no
Python object per partition. A file of ``lag`` is read with its strings as dictionaries. A group is
one row, so a plan is a step without a shuffle. The assignor itself plans each group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.assignors.registry import Named, assign, check_options, find
from holdfast.core.kinds import kind_of
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, index_in, row_of, starts, within
from holdfast.core.model.constants import INT32_MAX, MOST_PARTITIONS, believed_size
from holdfast.core.model.group import Group
from holdfast.core.model.measure import balance_scores
from holdfast.core.model.reported import ReportedClaims, Subscriptions
from holdfast.core.model.topics import Topics
from holdfast.errors import ModelError
from holdfast.fleet.columnar import BatchTask, list_parts, make_lists, new_runs, numbered
from holdfast.fleet.pipeline.steps import InMemoryRows, Input, Session, Step, by_table, run
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.folder.snapshot import once_more, row_groups
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.parquet import BoundedParquet

FLEET: Final = arrow_schema("fleet")
"""Columns: :data:`holdfast.fleet.tables.columns.steps.FLEET`."""
PLAN: Final = arrow_schema("plan")
"""Columns: :data:`holdfast.fleet.tables.columns.answers.PLAN`."""

GROUP_COST: Final = 1_000
"""A group to be planned costs as much as so many rows of records."""
TASK_GROUPS: Final = 1_000
"""Groups in a task, if there are many groups: Spark makes each batch of rows one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """Rows of :data:`FLEET`, in one chunk, and their lists as columns.

    Each ``_start``, int64[n_groups + 1], has the start of each group's entries in its lists.
    """

    rows: pa.Table
    member_start: I64
    topic_start: I64
    tp_start: I64
    subscribed_start: I64
    n_partitions: I32
    n_subscribed: I32
    subscribed: I32
    owner: I32
    lag: I64

    @classmethod
    def of(cls, rows: pa.Table) -> Fleet:
        """Return the columns of ``rows``."""
        whole = rows.combine_chunks()
        topic_start, n_partitions = list_parts(whole["n_partitions"])
        member_start, n_subscribed = list_parts(whole["n_subscribed"])
        tp_start, owner = list_parts(whole["owner"])
        subscribed_start, subscribed = list_parts(whole["subscribed"])
        return cls(
            rows=whole,
            member_start=member_start,
            topic_start=topic_start,
            tp_start=tp_start,
            subscribed_start=subscribed_start,
            n_partitions=n_partitions,
            n_subscribed=n_subscribed,
            subscribed=subscribed,
            owner=owner,
            lag=list_parts(whole["lag"])[1].astype(np.int64, copy=False),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SubscribedTopics:
    """Which topics each group reads, as columns sorted by (group, topic)."""

    key: I64
    n_partitions: I32
    start: I64
    names: pa.Array

    def tps(self, group: I64, topic: I64, partition: I64) -> tuple[Mask, I64]:
        """Return which of the partitions the cluster has, and their flat indices."""
        key = group * len(self.names) + topic
        at = index_in(key, self.key)
        good = (group >= 0) & (topic >= 0) & (partition >= 0) & (at >= 0)
        good[good] = partition[good] < self.n_partitions[at[good]]
        return good, self.start[at[good]] + partition[good]


def topics_of(tables: Tables) -> dict[str, int]:
    """Return topics of the table ``lag`` with their partitions, if no dump has their number.

    A partition that has neither a commit nor an owner is not in it, so this is a lower bound. Of a
    topic that has end offsets, only partitions with one count: members' claims and commits are not
    checked by the cluster, end offsets are its own.
    """
    rows = tables.stored("lag", columns=["topic", "partition", "log_end_offset"])
    real = rows.filter(rows["log_end_offset"].is_valid())
    return _sizes(rows) | _sizes(real)


def _sizes(rows: pa.Table) -> dict[str, int]:
    """Return the partitions of each topic in ``rows``."""
    counts = [("partition", "max"), ("partition", "count_distinct")]
    found = rows.group_by("topic").aggregate(counts).to_pylist()
    return {
        row["topic"]: believed_size(row["partition_max"] + 1, row["partition_count_distinct"])
        for row in found
    }


def fleet_rows(
    tables: Tables, topics: Mapping[str, int], *, groups: Sequence[str] | None = None
) -> pa.Table:
    """Return one row of :data:`FLEET` for every group that has members, sorted by group.

    Topics without a number of partitions in ``topics`` are omitted.
    """
    groups = None if groups is None else sorted(groups)
    last = _last_generations(tables.table("generations", groups=groups))
    members = _members_of(tables.table("members", flat=False, groups=groups), last)
    names = pa.array(sorted(topics), pa.string())
    found = pc.unique(members["group"])
    last = last.take(pc.index_in(found, last["group"]))
    group = pc.index_in(members["group"], found).to_numpy().astype(np.int64)
    member_start = np.searchsorted(group, np.arange(len(found) + 1))
    member, topic = _subscribed_pairs(members["subscribed_topics"], names)
    counts = np.array([topics[name] for name in names.to_pylist()], np.int64)
    width = max(len(names), 1)
    read = np.unique(group[member] * width + topic)
    n_tps = np.zeros(len(found), np.int64)  # known before anything of that size is made
    np.add.at(n_tps, read // width, counts[read % width])
    texts = _refused(n_tps, last)
    is_out = texts.is_valid().to_numpy(zero_copy_only=False)
    member, topic = (pair[~is_out[group[member]]] for pair in (member, topic))
    read = read[~is_out[read // width]]
    sizes = np.clip(counts, 0, INT32_MAX).astype(np.int32)[read % width]
    subscribed = _SubscribedTopics(
        key=read, n_partitions=sizes, start=starts(sizes.astype(np.int64)), names=names
    )
    owner, lag = _owners(tables, subscribed, found, members, group, wanted=groups)
    topic_start = np.searchsorted(subscribed.key, np.arange(len(found) + 1) * width)
    per_member = np.bincount(member, minlength=members.num_rows)
    key = group[member] * len(names) + topic
    local = np.searchsorted(subscribed.key, key) - topic_start[group[member]]
    lower, upper = _gaps(tables, found, groups)
    columns = {
        "group": found,
        "generation": last["generation"],
        "topics": make_lists(topic_start, names.take(pa.array(subscribed.key % width))),
        "n_partitions": make_lists(topic_start, subscribed.n_partitions),
        "member_ids": make_lists(member_start, members["member_id"]),
        "instance_ids": make_lists(member_start, members["group_instance_id"]),
        "n_subscribed": make_lists(member_start, per_member.astype(np.int32)),
        "subscribed": make_lists(starts(per_member)[member_start], local.astype(np.int32)),
        "owner": make_lists(subscribed.start[topic_start], owner),
        "lag": make_lists(subscribed.start[topic_start], lag),
        "refused": texts,
        "gap_lower_seconds": lower,
        "gap_upper_seconds": upper,
    }
    return pa.table(columns, schema=FLEET)


def _last_generations(generations: pa.Table) -> pa.Table:
    """Return each group's newest generation with members (rows are in the order of the log)."""
    last = np.roll(new_runs(numbered(generations["group"])), -1)
    stable = pc.equal(generations["state"], "Stable").to_numpy()
    columns = ["group", "generation", "timestamp", "group_type", "protocol_type", "protocol"]
    return generations.select(columns).filter(pa.array(last & stable)).combine_chunks()


def _members_of(members: pa.Table, last: pa.Table) -> pa.Table:
    """Return members of the generations ``last``, sorted by group and id."""
    keys = ["group", "generation", "timestamp"]
    positions = pa.array(range(members.num_rows), pa.int64())
    rows = (
        members.select(keys)
        .append_column("_row", positions)
        .join(last.select(keys), keys, join_type="left semi")["_row"]
    )
    found = members.take(rows)
    return found.sort_by([("group", "ascending"), ("member_id", "ascending")]).combine_chunks()


def _subscribed_pairs(column: pa.ChunkedArray, names: pa.Array) -> tuple[I64, I64]:
    """Return (member row, topic) of each known subscribed topic, sorted, each pair once."""
    lists = column.combine_chunks()
    parent = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    topic = pc.fill_null(pc.index_in(lists.flatten(), names), -1).to_numpy().astype(np.int64)
    known = topic >= 0
    width = max(len(names), 1)
    pair = np.unique(parent[known] * width + topic[known])
    return pair // width, pair % width


def _refused(n_tps: I64, last: pa.Table) -> pa.Array:
    """Return why each group is refused; null if it is not."""
    kinds = zip(
        *(last[name].to_pylist() for name in ("group_type", "protocol_type", "protocol")),
        strict=True,
    )
    texts = []
    for n, kind in zip(n_tps.tolist(), kinds, strict=True):
        text = kind_of(*kind).own_assignment or None
        if text is None and n > MOST_PARTITIONS:
            text = f"{n} topic-partitions, of which a plan takes {MOST_PARTITIONS}"
        texts.append(text)
    return pa.array(texts, pa.string())


def _owners(
    tables: Tables,
    subscribed: _SubscribedTopics,
    groups: pa.Array,
    members: pa.Table,
    group: I64,
    *,
    wanted: Sequence[str] | None,
) -> tuple[I32, I64]:
    """Return owner (member index in its group) and lag of every topic-partition."""
    ids = pc.unique(members["member_id"]).sort()
    code = pc.index_in(members["member_id"], ids).to_numpy().astype(np.int64)
    member_key = group * max(len(ids), 1) + code
    first = np.searchsorted(group, np.arange(len(groups) + 1))
    owner = np.full(subscribed.start[-1], NO_OWNER, np.int32)
    lag = np.zeros(subscribed.start[-1], np.int64)
    columns = ["group", "topic", "partition", "member_id", "lag", "lag_by_reset"]
    for file in tables.files("lag", wanted):
        source = BoundedParquet(file, read_dictionary=["group", "topic", "member_id"])
        listed = row_groups(source, wanted)
        for batch in source.iter_batches(1 << 20, row_groups=listed, columns=columns):
            of = _indices_in(batch["group"], groups)
            topic = _indices_in(batch["topic"], subscribed.names)
            partition = batch["partition"].to_numpy().astype(np.int64)
            good, tp = subscribed.tps(of, topic, partition)
            to_read = pc.coalesce(batch["lag"], batch["lag_by_reset"], pa.scalar(0, pa.int64()))
            lag[tp] = to_read.to_numpy()[good]
            who = _indices_in(batch["member_id"], ids)[good]
            key = of[good] * max(len(ids), 1) + who
            at = index_in(key, member_key)
            owned = (who >= 0) & (at >= 0)
            owner[tp[owned]] = (at - first[of[good]])[owned]
    return owner, lag


def _indices_in(column: pa.Array, values: pa.Array) -> I64:
    """Return the index of each entry of a dictionary column among ``values``; -1 if missing."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    table = pc.fill_null(pc.index_in(column.dictionary, values), -1).to_numpy().astype(np.int64)
    at: I64 = pc.fill_null(column.indices, -1).to_numpy().astype(np.int64)
    return np.append(table, -1)[at]


def _gaps(
    tables: Tables, groups: pa.Array, wanted: Sequence[str] | None
) -> tuple[pa.Array, pa.Array]:
    """Return mean bounds of one partition's gaps, by group; null without a recorded gap.

    One file at a time is in memory: the gaps of a large fleet are many.
    """
    total = np.zeros((3, len(groups)))
    for file in tables.files("ownership_gaps", wanted):
        columns = ["group", "partitions", "gap_lower_seconds", "gap_upper_seconds"]
        opened = BoundedParquet(file)
        rows = opened.read_row_groups(row_groups(opened, wanted), columns)
        of = pc.fill_null(pc.index_in(rows["group"], groups), -1).to_numpy()
        size = pc.list_value_length(rows["partitions"]).to_numpy().astype(np.float64)
        good = of >= 0
        for row, weight in enumerate(
            [np.ones(len(of)), *(rows[c].to_numpy() for c in columns[2:])]
        ):
            total[row] += np.bincount(of[good], (size * weight)[good], len(groups))
    some = total[0] > 0
    mean = total[1:] / np.maximum(total[0], 1)
    return tuple(pa.array(np.round(bound, 6), mask=~some) for bound in mean)


def plan_task(assignor: Named, options: Mapping[str, Any]) -> BatchTask:
    """Turn rows of :data:`FLEET` into rows of :data:`PLAN`."""
    return by_table(lambda rows: plan_rows(rows.cast(FLEET), assignor, options))


def plan_rows(rows: pa.Table, assignor: Named, options: Mapping[str, Any]) -> pa.Table:
    """Plan some groups: rows of :data:`FLEET` to rows of :data:`PLAN`, in the same order."""
    fleet = Fleet.of(rows)
    target = np.full(len(fleet.owner), NO_OWNER, np.int32)
    optimal = np.zeros(rows.num_rows, np.bool_)
    refused: list[str | None] = fleet.rows["refused"].to_pylist()
    takes_name = "group_id" in find(assignor).options
    for group in np.flatnonzero(fleet.rows["refused"].is_null().to_numpy()).tolist():
        tps = slice(fleet.tp_start[group], fleet.tp_start[group + 1])
        try:
            name = {"group_id": fleet.rows["group"][group].as_py()} if takes_name else {}
            result = assign(group_of(fleet, group), assignor, **{**name, **options})
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
