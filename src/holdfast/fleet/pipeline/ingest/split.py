"""The first step of a batch: write commits at once, send other records to their groups.

A commit becomes a row of ``offset_commits``, and with others the position of its group: the last
commit of each partition, and the first time of its offset.

**Rules.** Every record is read once. A record of a commit's type becomes a row of
``offset_commits`` or of ``bad_records``; every other record is passed on, as bytes, with its group
beside it. A record whose partition or offset is below 0 or null has no position in a log: it
becomes a bad record. ``kind`` of each row that is passed on is its :class:`RowKind`, and the
pipeline's own data are in ``message``, a column that no record has: so no content of a record can
be mistaken for a row of ours. A task also passes on the names of its files, as a row. So the names
reach the driver exactly when the task's output counts, and the files of a task that ran twice are
named once. For a position the latest record of a partition in the log counts, whatever its time.
``since`` is the time of the first commit of the unbroken run, up to the latest commit, that names
the same offset. The result does not depend on the cuts of the log: reducing the positions of parts
gives the positions of the whole.

**Strategy.** Records come from Spark, or the task opens the files of a dump itself: reading by
Arrow costs a fifth of reading through the JVM, and nine records out of ten are commits. A task
reduces positions at once, so later steps read one row per group and partition instead of every
commit. Group, topic and partition become one small number; a few array assignments by that number
find the last row and the run before it, without a sort.

Positions of share groups come from their own topic, ``__share_group_state``. The newest snapshot of
a partition counts, and every update behind it; a group without a start offset has no position. The
topic is compacted and small (a snapshot now and then, a few hundred updates between two), so a loop
reads it on the driver.

References: KAFKA-19141 (version 4 of a commit), KIP-932, KIP-1226.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.core.wire.layouts.share_state import (
    ShareState,
    decode_share_state,
    encode_share_snapshot,
)
from holdfast.core.wire.many.columns import Columns, Ids
from holdfast.errors import WireError
from holdfast.fleet.columnar import Arrays, Batches, BatchTask, numbered, replaced
from holdfast.fleet.columnar import ints as ints_of
from holdfast.fleet.pipeline.ingest.decode import (
    BAD,
    Selection,
    binary_column,
    constant,
    families,
    group_names,
    id_text,
    ints,
    key_types,
    log_positions,
    millis,
    numbers,
    placed,
    text,
    unread,
)
from holdfast.fleet.pipeline.ingest.source import RECORDS
from holdfast.fleet.tables.columns.schemas import (
    arrow_schema,
    filled_batch,
    filled_table,
    holdable_times,
    to_us,
)
from holdfast.fleet.tables.folder.files import BatchWriter
from holdfast.fleet.tables.storage.parquet import BATCH_BYTES

if TYPE_CHECKING:
    from holdfast.cluster.group_messages import Position
    from holdfast.cluster.snapshot import ClusterSnapshot, ShareRecord


COMMIT_TYPES: Final = (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT)
COMMITS: Final[pa.Schema] = arrow_schema("offset_commits")
POSITIONS: Final = "_positions"
"""Staged: rows of :data:`POSITION`."""

LATEST: Final = "_latest"
"""State of a stream between its batches: one row of :data:`POSITION` per group and partition."""

POSITION: Final = arrow_schema("positions")
"""``offset`` is null in a tombstone; ``goes_back``: earlier records may name the same offset."""


class RowKind(IntEnum):
    """What a row on its way to its group is. The rows of a group are sorted by it."""

    FILES = 0
    """``message`` names the files that a task of this step wrote, as JSON; no group."""
    STATE = 1
    """``message`` is the state of the group from the previous batch."""
    RECORD = 2
    """A record of the group, as in the topic."""


SPLIT: Final = arrow_schema("split")
SPLIT_ORDER: Final = ("group", "kind", "partition", "offset")
"""How the rows come to the task of their group."""

_REDUCE_ROWS: Final = 250_000

NOT_KNOWN: Final = -1
ShareKey: TypeAlias = tuple[str, str, int]
"""Group, topic id and partition."""


def split_task(root: str, batch: int, selection: Selection) -> BatchTask:
    """Turn Spark's records into ``offset_commits`` and rows of :data:`SPLIT`."""

    def run(batches: Batches) -> Batches:
        step = _Split(BatchWriter(root, batch), selection)
        for rows in batches:
            yield from step.take(rows)
        yield step.files()

    return run


class _Split:
    """One task's work."""

    def __init__(self, writer: BatchWriter, selection: Selection):
        self.writer = writer
        self.selection = selection
        self.waiting: list[pa.Table] = []
        self.n_waiting = 0

    def take(self, rows: pa.RecordBatch) -> Batches:
        keep = self.selection.keep(rows["key"])
        if keep is not None and not keep.all():
            rows = rows.filter(pa.array(keep))
        rows, misplaced = placed(rows)
        if misplaced is not None:
            self.writer.write("bad_records", pa.Table.from_batches([misplaced]))
        commit = is_commit(rows["key"])
        n_commits = int(np.count_nonzero(commit))
        if n_commits:
            self._commits(rows if n_commits == rows.num_rows else rows.filter(pa.array(commit)))
        if n_commits < rows.num_rows:
            rest = rows if not n_commits else rows.filter(pa.array(~commit))
            yield from _with_group(rest)

    def _commits(self, rows: pa.RecordBatch) -> None:
        commits = pa.Table.from_batches(list(offset_commits(rows)), COMMITS)
        self.writer.write("offset_commits", commits)
        if commits.num_rows < rows.num_rows:
            bad, unknown = unread(rows)
            self.writer.write("bad_records", pa.Table.from_batches(bad, BAD))
            self.writer.unknown += unknown
        self.waiting.append(from_commits(commits))
        self.n_waiting += commits.num_rows
        if self.n_waiting >= _REDUCE_ROWS:
            self._reduce()

    def _reduce(self) -> None:
        if self.waiting:
            self.writer.write(POSITIONS, reduced(pa.concat_tables(self.waiting)))
        self.waiting, self.n_waiting = [], 0

    def files(self) -> pa.RecordBatch:
        """Return one row that names the files of this task."""
        self._reduce()
        files = json.dumps(self.writer.close().to_pylist())
        columns = {
            "group": pa.array([b""], pa.binary()),
            "message": pa.array([files], pa.binary()),
        }
        return split_rows(RowKind.FILES, columns, 1)


def split_rows(kind: RowKind, columns: Arrays, n_rows: int) -> pa.RecordBatch:
    """Return rows of :data:`SPLIT`; missing columns are null."""
    kinds = {"kind": constant(int(kind), pa.int32(), n_rows)}
    return filled_batch(columns | kinds, SPLIT, n_rows)


def _with_group(rows: pa.RecordBatch) -> Batches:
    """Yield records with their group, in batches of bounded size."""
    columns = {field.name: rows[field.name].cast(field.type, safe=False) for field in RECORDS}
    columns["group"] = group_names(binary_column(rows["key"]))
    whole = split_rows(RowKind.RECORD, columns, rows.num_rows)
    step = max(1, whole.num_rows * BATCH_BYTES // max(whole.nbytes, 1))
    for start in range(0, whole.num_rows, step):
        yield whole.slice(start, step)


def is_commit(keys: pa.Array) -> Mask:
    """Return whether each record is an offset commit by its key's type; False without a key."""
    found, types = key_types(keys)
    found[found] = np.isin(types, COMMIT_TYPES)
    return found


def by_kind(batch: pa.RecordBatch) -> list[tuple[RowKind, pa.RecordBatch]]:
    """Return rows of :data:`SPLIT` by kind, sorted as Spark sorts them: records last."""
    kind = batch["kind"].to_numpy()
    if bool((kind == RowKind.RECORD).all()):
        return [(RowKind.RECORD, batch)]
    found = [(one, kind == one) for one in RowKind]
    return [(one, batch.filter(pa.array(rows))) for one, rows in found if rows.any()]


def file_names(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the content of rows of kind FILES, as rows of the table ``files``."""
    return [file for value in batch["message"].to_pylist() for file in json.loads(value)]


# A commit


def offset_commits(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield offset commits and their tombstones, as COMMITS.

    ``offset`` and its fields are null in a tombstone; so is a leader epoch of -1, a topic id of
    zero and a time below 0. References: KAFKA-19141 (version 4).
    """
    for family in families(batch, COMMIT_TYPES):
        key, value, n_rows = family.key, family.value, len(family)
        columns: Arrays = {
            "group": text(key["group"]),
            "topic": text(key["topic"]),
            "partition": numbers(ints(key["partition"])),
            "is_tombstone": constant(family.value_version is None, pa.bool_(), n_rows),
            "value_version": constant(family.value_version, pa.int32(), n_rows),
            **log_positions(batch, family.rows),
        }
        if value:
            columns |= _commit_values(value)
        yield filled_batch(columns, COMMITS, n_rows)


def _commit_values(value: Columns) -> Arrays:
    columns = {
        "offset": numbers(ints(value["offset"])),
        "metadata": text(value["metadata"]),
        "commit_timestamp": millis(ints(value["commitTimestamp"])),
    }
    if "leaderEpoch" in value:
        epoch = ints(value["leaderEpoch"])
        columns["leader_epoch"] = numbers(epoch, epoch >= 0)
    if "expireTimestamp" in value:
        columns["expire_timestamp"] = millis(ints(value["expireTimestamp"]))
    if "topicId" in value:
        ids = value["topicId"]
        assert isinstance(ids, Ids)
        columns["topic_id"] = id_text(ids.values, zero_is_null=True)
    return columns


# A position


def from_commits(commits: pa.Table) -> pa.Table:
    """Return every row of ``offset_commits`` as a position of its own."""
    time = pc.coalesce(commits["commit_timestamp"], commits["timestamp"])
    columns: Arrays = {n: commits[n] for n in POSITION.names if n in commits.column_names}
    columns |= {"commit_timestamp": time, "since": time}
    columns["goes_back"] = pa.repeat(True, commits.num_rows)
    return filled_table(columns, POSITION, commits.num_rows)


def reduced(rows: pa.Table) -> pa.Table:
    """Reduce positions in any order to one row for each group and partition.

    Cost: O(n) if the rows are in the order of the log; else a sort by their positions.
    """
    if rows.num_rows < 2:
        return rows
    key = _keys(rows)
    order = _log_order(rows)
    offset, goes_back = ints_of(rows, "offset"), rows["goes_back"].to_numpy()
    if order is not None:
        key, offset, goes_back = key[order], offset[order], goes_back[order]
    first, last, reaches = _runs(key, offset, goes_back)
    if order is not None:
        first, last = order[first], order[last]
    since = rows["since"].take(pa.array(first))
    return replaced(rows.take(pa.array(last)), since=since, goes_back=pa.array(reaches))


def _runs(key: I64, offset: I64, goes_back: Mask) -> tuple[I64, I64, Mask]:
    """Return first and last row of each key's last run of equal offsets, and if it has no other.

    If an index occurs more than once in an assignment, the last value counts.
    """
    at = np.arange(len(key))
    last = np.full(int(key.max()) + 1, -1, np.int64)
    last[key] = at
    other = np.flatnonzero(offset != offset[last][key])
    low = np.zeros(len(last), np.int64)
    low[key[other]] = other + 1
    if not goes_back.all():
        final = np.flatnonzero(~goes_back)
        begin = np.zeros(len(last), np.int64)
        begin[key[final]] = final
        low = np.maximum(low, begin)
    inside = np.flatnonzero(at >= low[key])[::-1]
    first = np.zeros(len(last), np.int64)
    first[key[inside]] = inside
    eldest = np.zeros(len(last), np.int64)
    eldest[key[::-1]] = at[::-1]
    there = last >= 0
    first, last, eldest = first[there], last[there], eldest[there]
    return first, last, (first == eldest) & goes_back[first]


def _keys(rows: pa.Table) -> I64:
    """Return a small number for each group, topic and partition, int64[n]."""
    group, topic, partition = (
        numbered(rows["group"]),
        numbered(rows["topic"]),
        ints_of(rows, "partition"),
    )
    pair = group * (int(topic.max()) + 1) + topic
    width = int(partition.max()) + 1
    low = int(partition.min())
    if low >= 0 and (int(pair.max()) + 1) * width <= 4 * len(pair) + 1_000_000:
        return pair * width + partition
    pair = np.unique(pair, return_inverse=True)[1].astype(np.int64)
    found: I64 = np.unique(pair << 32 | (partition & 0xFFFFFFFF), return_inverse=True)[1]
    return found.astype(np.int64)


def _log_order(rows: pa.Table) -> I64 | None:
    """Return the sort order of rows by log position; None if each partition is in order."""
    log_partition, log_offset = ints_of(rows, "log_partition"), ints_of(rows, "log_offset")
    order = np.argsort(log_partition.astype(np.int16), kind="stable")  # a radix sort
    falls = (np.diff(log_offset[order]) < 0) & (np.diff(log_partition[order]) == 0)
    if not falls.any():
        return None
    found: I64 = np.lexsort((log_offset, log_partition))
    return found


# Positions of share groups


def share_positions(
    records: pa.Table, topic_names: Mapping[str, str], selection: Selection
) -> tuple[pa.Table, int]:
    """Return positions of share groups, as POSITION, and the number of records that do not parse.

    ``records`` of ``__share_group_state`` have each partition in the order of its log. An unknown
    topic keeps its id as a name. ``delivered`` is the number of processed records behind the
    offset; -1 if unknown.
    """
    found: dict[ShareKey, dict[str, Any]] = {}
    n_bad = 0
    times, in_time = ints_of(records, "timestamp").tolist(), holdable_times(records["timestamp"])
    columns = (records[name].to_pylist() for name in ("key", "value", "partition", "offset"))
    for at, (key, value, partition, offset) in enumerate(zip(*columns, strict=True)):
        try:
            state = decode_share_state(key or b"", value)
        except WireError:
            n_bad += 1
            continue
        if state.partition < 0 or not in_time[at]:
            n_bad += 1
            continue
        _apply(found, state, times[at], {"log_partition": partition, "log_offset": offset})
    rows = [
        {"group": group, "topic": topic_names.get(topic_id, topic_id), "partition": number, **row}
        for (group, topic_id, number), row in sorted(found.items())
        if row["offset"] >= 0
    ]
    table = pa.Table.from_pylist(rows, schema=POSITION)
    keep = selection.keep_groups(pa.array([row["group"].encode() for row in rows], pa.binary()))
    return (table if keep is None else table.filter(pa.array(keep))), n_bad


def records_of(starts: Sequence[Position], snapshot: ClusterSnapshot) -> list[ShareRecord]:
    """Return positions that coordinators answered, as records of ``__share_group_state``."""
    ids = {topic: topic_id for topic_id, topic, _ in snapshot.topics}
    ends = {(topic, partition): end for topic, partition, _, end in snapshot.offsets}
    at_us = to_us(snapshot.taken_at) or 0
    found: list[ShareRecord] = []
    for offset, one in enumerate(starts):
        end = ends.get((one.topic, one.partition), -1)
        is_known = end >= 0 and one.share_lag is not None and one.share_lag >= 0
        state = ShareState(
            group=one.group,
            topic_id=ids.get(one.topic, ""),
            partition=one.partition,
            is_update=False,
            start_offset=one.offset,
            n_delivered=max(end - one.offset - (one.share_lag or 0), 0) if is_known else NOT_KNOWN,
        )
        if state.topic_id:  # a topic that was deleted meanwhile has no position
            found.append((0, offset, at_us, *encode_share_snapshot(state)))
    return found


def _apply(
    found: dict[ShareKey, dict[str, Any]], state: ShareState, at_us: int, log: Mapping[str, int]
) -> None:
    """Apply a record: a position dates from the first record in a row that names its offset."""
    tp_key = (state.group, state.topic_id, state.partition)
    before = found.get(tp_key)
    start, since = state.start_offset, at_us
    if start is None:
        if not state.is_update:
            found.pop(tp_key, None)
        return
    if before is not None:
        if state.is_update and start == NOT_KNOWN:
            start = before["offset"]
        if start == before["offset"]:
            since = before["since"]
    times = {"commit_timestamp": at_us, "since": since}
    said = {"offset": start, "delivered": state.n_delivered, "goes_back": False}
    found[tp_key] = {**said, **times, **log}
