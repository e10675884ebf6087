"""Lag of every group: commits, owners and end offsets joined.

**Rules.** A partition has a row if it has a commit or an owner. Of the records of a partition the
last one in the log counts; a tombstone means no commit. An expired commit counts as none, unless a
member owns the partition (Kafka keeps the commit then). Without a commit the lag is null; another
column has the lag by ``auto.offset.reset``: 0 for ``latest``, the whole log for any other value. A
commit beyond the end or before the beginning of the log is clamped, and ``clamped`` says so. If
the cluster does not have the topic, the lag is unknown. A share group has a start offset instead
of a commit; records behind it that are processed already do not count, and if their number is
unknown, so is the lag. Of its several readers of a partition one is named. ``lag_seconds_basis``
names the meaning of ``lag_seconds``. If a cluster can be queried, it is the age of the first
unread record (``record``), or a lower bound (``at_least``); otherwise it is the time since the
group reached its position (``position``). It is 0 only if no record is unread. Only partitions
with lag and a commit are queried: those furthest behind, and at most as many as one query may name
(:mod:`holdfast.cluster.first_unread`). A commit is ``not_subscribed`` if the subscriptions of all
members of the last generation are known, and none of them names the topic.

Lags rise and fall with every commit, so the slope is smoothed: an earlier reading counts less the
older it is, ``exp(-age / SMOOTHING_S)``. The slope is null if one of two readings is unknown, if
the log ends before the earlier end (another topic of that name), and if the commit is outside of
the log: records deleted there are not read. The time until caught up is 0 if no record is unread,
and null unless the lag falls by :data:`~holdfast.core.model.lag.LEAST_FALL`: less may be the rest
of an earlier fall.

**Strategy.** Positions (:mod:`holdfast.fleet.pipeline.ingest.split`), owners and subscriptions of a
group come to one task, as rows of one table; one sort by partition brings each position and its
owner together. A stream keeps the positions for its next batch.

References
----------
KAFKA-5337 (what the lag of an unknown commit is); KIP-496 (tombstones of deleted offsets);
exponential smoothing over uneven intervals, as of load averages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.cluster.first_unread import MOST_QUERIED, NOT_KNOWN, FirstUnread, Wanted
from holdfast.core.kinds import ACTIVE, SHARED, SOURCE
from holdfast.core.model.columns import F64, I32, I64, Mask, index_in
from holdfast.core.model.lag import LEAST_FALL
from holdfast.fleet.analysis.group.lag import lag_sums
from holdfast.fleet.columnar import (
    Arrays,
    codes,
    floats,
    ints,
    list_parts,
    make_lists,
    new_runs,
    numbered,
    numbered_together,
    replaced,
    take,
)
from holdfast.fleet.pipeline.ingest.generations import Generations, marked
from holdfast.fleet.pipeline.ingest.split import LATEST, POSITION, reduced
from holdfast.fleet.tables.columns.schemas import (
    TIMESTAMP,
    arrow_schema,
    filled_table,
    from_columns,
    to_us,
)
from holdfast.fleet.tables.reading import Tables

INPUT: Final = arrow_schema("lag_input")
"""A position, which has a ``partition``; or ``partitions`` that a member owns; or, without a
member, a topic that members subscribe to."""

OWNERS: Final = "_owners"
"""Staged by the groups job: what the members of each group own now, in the shape of INPUT."""

OLDEST_UNREAD: Final = arrow_schema("oldest_unread")
"""Records to be queried, and how far behind their groups are."""

UnreadQuery = Callable[[Sequence[Wanted]], Sequence[FirstUnread]]
"""Finds the first unread record of partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Begin and end offset of every partition (``offsets`` of a dump), and when they were read.

    ``reset`` is ``latest``, or anything else for the whole log. ``share`` has positions of share
    groups (:mod:`holdfast.fleet.pipeline.ingest.split`), and ``earlier`` an earlier
    reading.
    """

    offsets: pa.Table
    taken_at_us: int
    reset: str
    share: pa.Table = field(default_factory=POSITION.empty_table)
    n_bad_share: int = 0
    earlier: EarlierLag | None = None


def lag_of_groups(
    rows: pa.Table,
    ends: Ends,
    unread: UnreadQuery | None = None,
    resolution_s: int | None = None,
) -> dict[str, pa.Table]:
    """Return the table ``lag`` of whole groups, its row of ``lag_history``, and LATEST.

    ``rows`` are INPUT: positions, several of a partition in any order, and every member's
    assignment. ``unread`` queries the cluster, or returns earlier answers. ``resolution_s`` is that
    of the rows of ``lag_history``; None for no rows.
    """
    is_owner = rows["partition"].is_null()
    latest = reduced(rows.filter(pc.invert(is_owner)))
    lag = lag_table(pa.concat_tables([rows.filter(is_owner), latest]), ends)
    if unread is not None:
        lag = with_record_ages(lag, unread, ends.taken_at_us)
    lag = with_slopes(lag, ends.earlier, ends.taken_at_us)
    kept = lag.slice(0, 0) if resolution_s is None else lag
    readings = history_rows(kept, ends.taken_at_us, resolution_s or 0)
    return {LATEST: latest.select(POSITION.names), "lag": lag, "lag_history": readings}


def history_rows(lag: pa.Table, taken_at_us: int, resolution_s: int) -> pa.Table:
    """Return the rows of ``lag_history`` for the table ``lag`` of whole groups.

    A batch that leaves records unread has none: its lag is that of old commits.
    """
    sums = lag_sums(lag, ["group", "topic"])
    n, schema = sums.num_rows, arrow_schema("lag_history")
    columns = dict(zip(sums.column_names, sums.columns, strict=True))
    columns["timestamp"] = pa.array([taken_at_us] * n, pa.int64())
    columns["resolution_seconds"] = pa.array([resolution_s] * n, pa.int32())
    return filled_table(columns, schema, n)


def owners_of(gens: Generations, rows: I64) -> pa.Table:
    """Return assignments and subscriptions of generations at ``rows``, as :data:`INPUT`."""
    last = gens.take(rows)
    subscribed = _subscriptions(last)
    last = replace(last, owned=last.owned.filter(pa.array(_reads_itself(last))))
    member = pa.array(ints(last.owned, "member"))
    row = pa.array(ints(last.members, "row")).take(member)
    n = last.owned.num_rows
    columns: Arrays = {
        "group": last.head["group"].take(row),
        "topic": last.owned["topic"],
        "partitions": last.owned["partitions"],
        "delivered": pa.array(np.full(n, -1), mask=last.roles != SHARED),
    }
    for name in ("member_id", "client_id", "client_host"):
        columns[name] = last.members[name].take(member)
    return pa.concat_tables([filled_table(columns, INPUT, n), subscribed])


def _subscriptions(gens: Generations) -> pa.Table:
    """Return subscribed topics, each once, of generations with all subscriptions known."""
    lists = gens.members["subscribed_topics"].combine_chunks()
    row = ints(gens.members, "row")
    known = ~np.isin(row, row[np.asarray(lists.is_null())])
    picked = lists.filter(pa.array(known))
    of_topic = row[known][pc.list_parent_indices(picked).to_numpy()]
    pairs = pa.table({"row": of_topic, "topic": picked.flatten()}).group_by(["row", "topic"])
    subscribed = pairs.aggregate([])
    columns: Arrays = {
        "group": gens.head["group"].take(subscribed["row"].combine_chunks()),
        "topic": subscribed["topic"],
        "partitions": make_lists(
            np.zeros(subscribed.num_rows + 1, np.int32), np.zeros(0, np.int32)
        ),
    }
    return filled_table(columns, INPUT, subscribed.num_rows)


def _reads_itself(gens: Generations) -> Mask:
    """Return rows of ``owned`` that name partitions of topics, with a member that reads them."""
    role = gens.roles
    row = ints(gens.members, "row")[ints(gens.owned, "member")]
    tasks = marked(gens.head, lambda kind, _: not kind.topics)
    tasks[row[role == SOURCE]] = True
    found: Mask = np.where(tasks[row], role == SOURCE, (role == ACTIVE) | (role == SHARED))
    return found


def lag_table(rows: pa.Table, ends: Ends) -> pa.Table:
    """Return the table ``lag`` of whole groups; ``rows`` have one position for each partition."""
    row, partition, is_owner = _partitions(rows)
    if len(row) == 0:
        return arrow_schema("lag").empty_table()
    # By name, so that the rows of a group have one order, whatever task makes them.
    row_group, row_topic = (codes(rows, name)[0].astype(np.int64) for name in ("group", "topic"))
    group, topic = row_group[row], row_topic[row]
    end_row = ints(rows, "log_offset")[row], ints(rows, "log_partition")[row]
    # Inside a partition: commits in the order of the log, then its owner, smallest id last.
    rank = pc.rank(rows["member_id"], tiebreaker="dense").to_numpy().astype(np.int64)[row]
    order = np.lexsort((-rank, *end_row, is_owner, partition, topic, group))
    keys = [column[order] for column in (group, topic, partition)]
    first = np.flatnonzero(new_runs(*keys))
    last = np.append(first[1:], len(order)) - 1
    owned = is_owner[order]
    n_owners = np.add.reduceat(owned.astype(np.int64), first)
    commit_at = last - n_owners
    commit = np.where(commit_at >= first, row[order][np.maximum(commit_at, 0)], -1)
    owner = np.where(n_owners > 0, row[order][last], -1)
    at = row[order][first]
    columns = _lag_columns(rows, ends, commit, owner, _end_rows(rows, ends, at, keys[2][first]))
    columns["not_subscribed"] = _not_subscribed(rows, row_group, row_topic, at, commit)
    columns |= {
        "group": take(rows["group"], at),
        "topic": take(rows["topic"], at),
        "partition": keys[2][first],
    }
    keep = (commit >= 0) & ~_is_tombstone(rows, commit) | (owner >= 0)
    table = from_columns("lag", columns)
    return table if bool(keep.all()) else table.filter(pa.array(keep))


def _partitions(rows: pa.Table) -> tuple[I64, I32, Mask]:
    """Return every partition of rows of INPUT: row, number, and whether a member owns it."""
    owners = np.flatnonzero(rows["partition"].is_null().to_numpy())
    positions = np.flatnonzero(rows["partition"].is_valid().to_numpy())
    starts, owned = list_parts(rows["partitions"].take(pa.array(owners)))
    row = np.concatenate([np.repeat(owners, np.diff(starts)), positions])
    single = ints(rows, "partition")[positions].astype(np.int32)
    return row, np.concatenate([owned, single]), np.arange(len(row)) < len(owned)


def _not_subscribed(rows: pa.Table, group: I64, topic: I64, at: I64, commit: I64) -> pa.Array:
    """Return whether no member subscribes to the topic of a commit; null if unknown."""
    asks = rows["partition"].is_null().to_numpy()
    tells = asks & rows["member_id"].is_null().to_numpy()
    topic_of_group = group << 32 | topic
    unknown = ~np.isin(group[at], group[tells]) | (commit < 0) | _is_shared(rows, commit)
    return pa.array(~np.isin(topic_of_group[at], topic_of_group[asks]), mask=unknown)


def _is_tombstone(rows: pa.Table, commit: I64) -> Mask:
    is_null: Mask = rows["offset"].is_null().to_numpy()
    return (commit >= 0) & is_null[np.maximum(commit, 0)]


def _end_rows(rows: pa.Table, ends: Ends, at: I64, partition: I32 | I64) -> I64:
    """Return the row of ``ends.offsets`` for each partition, -1 if the cluster lacks it."""
    n, wanted = len(at), take(rows["topic"], at)
    chunks = [wanted] if isinstance(wanted, pa.Array) else wanted.chunks
    topic = numbered(pa.chunked_array([*chunks, *ends.offsets["topic"].chunks], pa.string()))
    key = topic << 32 | np.concatenate([partition, ints(ends.offsets, "partition")])
    return index_in(key[:n], key[n:])


def _shared(rows: pa.Table, commit: I64, owner: I64) -> tuple[Mask, I64]:
    """Return which partitions a share group reads, and its processed records; -1 if unknown."""
    value = ints(rows, "delivered")
    found = _is_shared(rows, commit) | _is_shared(rows, owner)
    return found, np.where(commit >= 0, value[np.maximum(commit, 0)], -1)


def _is_shared(rows: pa.Table, row: I64) -> Mask:
    """Return which of the rows, -1 for none, are of share groups."""
    known = rows["delivered"].is_valid().to_numpy()
    found: Mask = (row >= 0) & known[np.maximum(row, 0)]
    return found


def _lag_columns(
    rows: pa.Table, ends: Ends, commit: I64, owner: I64, end_row: I64
) -> dict[str, Any]:
    none = commit < 0
    expires, current, time, since = (
        ints(rows, name)[np.maximum(commit, 0)]
        for name in ("expire_timestamp", "offset", "commit_timestamp", "since")
    )
    deleted = _is_tombstone(rows, commit)
    expired = ~none & ~deleted & (expires >= 0) & (expires <= ends.taken_at_us) & (owner < 0)
    has = ~(none | deleted | expired)
    known = end_row >= 0
    at = np.maximum(end_row, 0)
    empty = ends.offsets.num_rows == 0
    begin = np.zeros_like(at) if empty else ints(ends.offsets, "begin_offset")[at]
    end = np.zeros_like(at) if empty else ints(ends.offsets, "end_offset")[at]
    by_reset = np.zeros_like(at) if ends.reset == "latest" else np.maximum(end - begin, 0)
    lag = np.where(has, end - np.clip(current, begin, np.maximum(begin, end)), 0)
    shared, done = _shared(rows, commit, owner)
    lag -= np.where(shared, np.maximum(done, 0), 0)
    # Only its coordinator knows the processed records of a share group.
    known_lag = known & has & (~shared | (done >= 0))
    beyond, before = has & known & (current > end), has & known & (current < begin)
    elapsed_s = (ends.taken_at_us - since) / 1e6
    unknown = (lag > 0) & (
        elapsed_s <= 0
    )  # the clocks differ: even the time at the position is unknown
    status = np.select([has & shared, has, deleted, expired], [4, 0, 2, 3], 1)
    return {
        "current_offset": pa.array(current, mask=~has),
        "log_start_offset": pa.array(begin, mask=~known),
        "log_end_offset": pa.array(end, mask=~known),
        "lag": pa.array(np.maximum(lag, 0), mask=~known_lag),
        "lag_by_reset": pa.array(by_reset, mask=has | ~known | shared),
        "delivered": pa.array(done, mask=~shared | (done < 0)),
        "lag_seconds": pa.array(np.where(lag > 0, elapsed_s, 0.0), mask=~known_lag | unknown),
        "lag_seconds_basis": take(
            pa.array(["position"]), np.where(known_lag & (lag > 0) & ~unknown, 0, -1)
        ),
        "has_unread": pa.array(np.zeros(len(lag), np.bool_), mask=~known_lag | (lag > 0)),
        "lag_per_second": pa.nulls(len(lag)),
        "catch_up_seconds": pa.nulls(len(lag)),
        "member_id": take(rows["member_id"], owner),
        "client_id": take(rows["client_id"], owner),
        "client_host": take(rows["client_host"], owner),
        "commit_timestamp": pa.array(time, mask=~has).cast(TIMESTAMP),
        "position_timestamp": pa.array(since, mask=~has).cast(TIMESTAMP),
        "metadata": take(rows["metadata"], np.where(has, commit, -1)),
        "expire_timestamp": pa.array(expires, mask=~has | (expires < 0)).cast(TIMESTAMP),
        "status": take(pa.array(["committed", "none", "deleted", "expired", "shared"]), status),
        "clamped": take(
            pa.array(["none", "beyond_end", "before_begin"]),
            np.select([beyond, before], [1, 2], 0),
        ),
        "is_idle": known & (begin == end),
    }


def with_record_ages(rows: pa.Table, unread: UnreadQuery, taken_at_us: int) -> pa.Table:
    """Return the table ``lag`` with ages of records instead of times at positions, where known.

    Log ends were read at ``taken_at_us``, in microseconds since 1970.
    """
    at = furthest_behind(rows)
    if not len(at):
        return rows
    found = unread(_wanted(oldest_unread(rows, at, taken_at_us)))
    names = ("lag_seconds", "lag_seconds_basis", "has_unread")
    columns: dict[str, list[Any]] = {name: rows[name].to_pylist() for name in names}
    for i, one in zip(at.tolist(), found, strict=True):
        for name, value in one.of_lag(taken_at_us).items():
            columns[name][i] = value
    return replaced(rows, **columns)


def unread_in_advance(records: pa.Table, unread: UnreadQuery) -> UnreadQuery:
    """Query the records furthest behind; the answers can be sent to tasks."""
    order = np.argsort(-ints(records, "lag"), kind="stable")[:MOST_QUERIED]
    wanted = _wanted(records.take(pa.array(order)))
    return partial(_first_unread, dict(zip(wanted, unread(wanted) if wanted else (), strict=True)))


def _first_unread(
    known: Mapping[Wanted, FirstUnread], wanted: Sequence[Wanted]
) -> list[FirstUnread]:
    return [known.get(record, NOT_KNOWN) for record in wanted]


def furthest_behind(rows: pa.Table) -> I64:
    """Return rows of ``lag`` whose oldest unread record is queried, the largest lag first."""
    lag = ints(rows, "lag")
    subscribed = pc.equal(rows["status"], "committed").to_numpy(zero_copy_only=False) & (lag > 0)
    at = np.flatnonzero(subscribed)
    return at[np.argsort(-lag[at], kind="stable")[:MOST_QUERIED]]


def oldest_unread(rows: pa.Table, at: I64, taken_at_us: int) -> pa.Table:
    """Return the oldest unread record of some rows of ``lag``."""
    elapsed_s = np.nan_to_num(rows["lag_seconds"].to_numpy(zero_copy_only=False)[at])
    first = np.maximum(ints(rows, "current_offset")[at], ints(rows, "log_start_offset")[at])
    picked = rows.select(["topic", "partition", "lag"]).take(pa.array(at))
    columns = {
        "topic": picked["topic"],
        "partition": picked["partition"],
        "offset": pa.array(first),
        "near_ms": pa.array(taken_at_us // 1000 - (elapsed_s * 1000).astype(np.int64)),
        "lag": picked["lag"],
    }
    return pa.table(columns, schema=OLDEST_UNREAD)


def _wanted(records: pa.Table) -> list[Wanted]:
    columns = (records[name].to_pylist() for name in OLDEST_UNREAD.names)
    return [
        Wanted(topic, partition, offset, offset + lag, near_ms)
        for topic, partition, offset, near_ms, lag in zip(*columns, strict=True)
    ]


# The rate of change of a lag


SMOOTHING_S: Final = 60.0
"""After so many seconds a reading counts for a third of what it did."""
READ: Final = ("group", "topic", "partition", "lag", "log_end_offset", "lag_per_second")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierLag:
    """An earlier reading of the lag: the columns READ of the table, and when log ends were read."""

    rows: pa.Table
    taken_at_us: int

    @classmethod
    def of(cls, tables: Tables) -> EarlierLag | None:
        """Return the reading of a stream's newest batch; None without a batch."""
        if not tables.committed():
            return None
        taken_at_us = to_us(str(tables.newest_notes().get("taken_at")))
        if taken_at_us is None:
            return None
        return cls(rows=tables.stored("lag", columns=READ), taken_at_us=taken_at_us)


def with_slopes(lag: pa.Table, earlier: EarlierLag | None, taken_at_us: int) -> pa.Table:
    """Return the table ``lag`` with the columns ``lag_per_second`` and ``catch_up_seconds``."""
    slope = np.full(lag.num_rows, np.nan)
    if earlier is not None and lag.num_rows and earlier.rows.num_rows:
        slope = _slopes(lag, earlier, (taken_at_us - earlier.taken_at_us) / 1e6)
    falls = slope <= -LEAST_FALL
    behind = ints(lag, "lag")
    seconds = np.where(falls, behind / np.where(falls, -slope, 1.0), np.nan)
    seconds[pc.equal(lag["has_unread"], pa.scalar(False)).fill_null(False).to_numpy()] = 0.0
    return replaced(
        lag,
        lag_per_second=pa.array(slope, mask=np.isnan(slope)),
        catch_up_seconds=pa.array(seconds, mask=np.isnan(seconds) | (behind < 0)),
    )


def _slopes(lag: pa.Table, earlier: EarlierLag, seconds: float) -> F64:
    at = _earlier_rows(lag, earlier.rows)
    past = np.maximum(at, 0)
    before = np.where(at >= 0, floats(earlier.rows, "lag_per_second")[past], np.nan)
    behind, end = ints(lag, "lag"), ints(lag, "log_end_offset")
    behind_then = ints(earlier.rows, "lag")[past]
    inside = pc.equal(lag["clamped"], "none").to_numpy()
    same = (at >= 0) & (end >= ints(earlier.rows, "log_end_offset")[past])
    known = same & inside & (behind >= 0) & (behind_then >= 0)
    if seconds <= 0:
        return np.where(known, before, np.nan)
    new = (behind - behind_then) / seconds
    left = np.where(np.isnan(before), 0.0, np.exp(-seconds / SMOOTHING_S))
    return np.where(known, left * np.nan_to_num(before) + (1 - left) * new, np.nan)


def _earlier_rows(lag: pa.Table, rows: pa.Table) -> I64:
    """Return the row of ``rows`` for the partition of each row of ``lag``, -1 for none."""
    group, topic = (numbered_together(lag, rows, name) for name in ("group", "topic"))
    both = group * (int(topic.max()) + 1) + topic
    _, pair = np.unique(both, return_inverse=True)
    partition = np.concatenate([ints(lag, "partition"), ints(rows, "partition")])
    key = pair.astype(np.int64) << 32 | partition
    return index_in(key[: lag.num_rows], key[lag.num_rows :])
