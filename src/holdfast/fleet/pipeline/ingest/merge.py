"""Merge several dumps of one cluster: the earlier ones have what compaction deleted later.

**Rules.** A record is identified by its partition and offset; one in several dumps counts once.
Dumps of different clusters, or of a topic that was recreated between them, are refused, without a
loss: the output becomes a dump at the very end. Topics, offsets and share groups come from the
newest dump. Sources are only read.

Records that were deleted between two dumps stay deleted
(:mod:`holdfast.fleet.pipeline.ingest.deletions`): the merged dump has tombstones in its part
``deleted``, each behind the end of the last dump with the record, with the time of the dump that
proves the deletion. So the key's history stays, and ends.

**Strategy.** The footers give the first and the last record (partition and offset) of each row
group. A window of that order is cut so that the row groups that reach into it have about
WINDOW_BYTES; it is read from all dumps, sorted, deduplicated, and written. So memory depends on
the window and not on the dumps, and few records are one window; in addition the keys of one
partition are in memory. Rows without a partition or an offset, which are bad records of another
writer, come last, unchanged. Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.core.model.columns import I64
from holdfast.errors import SourceError
from holdfast.fleet.columnar import ints
from holdfast.fleet.pipeline.ingest.deletions import (
    DumpView,
    LastOfKeys,
    joined_spans,
    offsets_of,
    tombstones,
)
from holdfast.fleet.pipeline.ingest.dump import make_room, write_parts
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.fleet.pipeline.ingest.source import RECORDS, Dump, read_pieces
from holdfast.fleet.tables.columns.schemas import to_us
from holdfast.fleet.tables.storage.clients import translated_errors
from holdfast.fleet.tables.storage.parquet import BoundedParquet, batches_of, statistics_of
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of, storage_path

WINDOW_BYTES: Final = 256 << 20
FILE: Final = "part-0.parquet"
ANOTHER_TOPIC: Final = (
    "these are dumps of different clusters, or the topic was recreated between them: merge only "
    "dumps of one topic"
)

At = tuple[int, int]
"""Partition and offset of a record."""

FIRST: Final[At] = (-(2**31), -(2**63))
LAST: Final[At] = (2**31 - 1, 2**63 - 1)
BEHIND: Final[At] = (2**31, 0)
"""Behind every record: no partition has this number."""
_BAD: Final = pc.field("partition").is_null() | pc.field("offset").is_null()


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowGroup:
    """A row group: between which records it lies, both included, and whether it may lack some."""

    dump: int
    file: str
    number: int
    size: int
    first: At
    last: At
    may_be_bad: bool


def merge_dumps(sources: Sequence[StoragePath | str], folder: StoragePath | str) -> Dump:
    """Write one dump with every record of several.

    Parameters
    ----------
    folder : path or URL
        New or empty, or a dump, which is replaced; not one of the sources.

    Raises
    ------
    SourceError
        A source is not a dump or cannot be read, the dumps are not of one cluster and one topic,
        or ``folder`` contains something else.
    """
    dumps = sorted((Dump.open(source) for source in sources), key=_taken)
    root = storage_path(folder).absolute()
    if any(root.resolve() == dump.path.resolve() for dump in dumps):
        raise SourceError(
            f"{root} is one of the dumps to merge: name another folder for the result"
        )
    for dump in dumps:
        if dump.is_polled:
            raise SourceError(
                f"{dump.path} is a poll of coordinators, whose records have no offsets of a topic: "
                "it cannot be merged; `watch` keeps a history of polls"
            )
    ids = {dump.cluster_id: dump.path for dump in dumps if dump.cluster_id}
    if len(ids) > 1:
        (one, at), (other, beside), *_ = ids.items()
        raise SourceError(
            f"{at} is a dump of cluster {one}, {beside} of cluster {other}: dumps of one cluster "
            "can be merged"
        )
    snapshot = _snapshot(dumps, next(iter(ids), ""))
    views = [DumpView.of(dump, number, _taken(dump)) for number, dump in enumerate(dumps)]
    make_room(root)
    file = root / "records" / FILE
    deleted = _placed(*_write_records(dumps, views, file), file)
    groups = {name for dump in dumps for name in dump.groups}
    whole = any(not dump.groups for dump in dumps)
    write_parts(
        root,
        snapshot,
        [FILE],
        () if whole else sorted(groups),
        dumps[-1].complete_at,
        read=joined_spans(views),
        open_transactions=dumps[-1].open_transactions,
        deleted=deleted,
    )
    return Dump.open(root)


def _taken(dump: Dump) -> int:
    """Return when a dump was taken; 0 if unknown."""
    return to_us(dump.taken_at) or 0


def _snapshot(dumps: Sequence[Dump], cluster_id: str) -> ClusterSnapshot:
    """Return topics, offsets and share state of the newest dump: each is complete in a dump."""
    newest = dumps[-1]
    return ClusterSnapshot(
        cluster_id=cluster_id,
        taken_at=newest.taken_at,
        topics=_tuples(newest.topics()),
        offsets=_tuples(newest.offsets()),
        share_state=_tuples(newest.share_state()),
    )


def _tuples(rows: pa.Table) -> list[Any]:
    """Return rows as tuples; times as microseconds."""
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in rows.columns
    ]
    return list(zip(*columns, strict=True))


def once(rows: pa.Table, topic: str) -> pa.Table:
    """Return records in order, each once; a SourceError if two with one offset differ."""
    found = rows.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()
    if found.num_rows < 2:
        return found
    before, after = found.slice(0, found.num_rows - 1), found.slice(1)
    again = _same(before, after, ("partition", "offset"))
    differ = np.flatnonzero(again & ~_same(before, after, ("key", "value")))
    if len(differ):
        at = int(differ[0])
        raise SourceError(
            f"partition {before['partition'][at]} of {topic} has two records with offset "
            f"{before['offset'][at]}: {ANOTHER_TOPIC}"
        )
    return found.filter(pa.array(np.append(True, ~again)))


def _same(one: pa.Table, other: pa.Table, names: Sequence[str]) -> Any:
    """Return which rows of two tables are equal in some columns; null equals null."""
    found = np.ones(one.num_rows, bool)
    for name in names:
        equal = pc.fill_null(pc.equal(one[name], other[name]), False)
        both_null = pc.and_(pc.is_null(one[name]), pc.is_null(other[name]))
        found &= pc.or_(equal, both_null).to_numpy()
    return found


def _write_records(
    dumps: Sequence[Dump], views: Sequence[DumpView], file: StoragePath
) -> tuple[pa.Table, pa.Table]:
    """Write the records of all dumps; what :meth:`LastOfKeys.deleted` finds among them."""
    listed = _tuples(dumps[-1].offsets())
    ends = {partition: end for topic, partition, _, end in listed if topic == OFFSETS_TOPIC}
    groups = [group for number, dump in enumerate(dumps) for group in _row_groups(number, dump)]
    keys = LastOfKeys(views)
    with file_system_of(file).writable() as sink, pq.ParquetWriter(sink, RECORDS) as writer:
        for first, last in _windows(groups):
            near = [one for one in groups if one.last >= first and one.first < last]
            parts = [
                _read([one for one in near if one.dump == number], _between(first, last))
                for number in range(len(dumps))
            ]
            rows = once(pa.concat_tables(parts), OFFSETS_TOPIC)
            _check_ends(rows, ends, dumps[-1])
            keys.take(rows, parts)
            with translated_errors(file, "written"):
                writer.write_table(rows)
        bad = _read([one for one in groups if one.may_be_bad], _BAD)
        with translated_errors(file, "written"):
            writer.write_table(bad)
    return keys.deleted()


def _placed(found: pa.Table, retained: pa.Table, file: StoragePath) -> pa.Table:
    """Return tombstones of keys, at positions without a record, and the retained ones."""

    def taken(partition: int) -> I64:
        parts = [RECORDS.empty_table().select(["partition", "offset"])]
        for batch in batches_of(file, ["partition", "offset"]):
            rows = pa.Table.from_batches([batch])
            parts.append(rows.filter(pc.field("partition") == partition))
        parts.append(retained.select(["partition", "offset"]))
        return offsets_of(pa.concat_tables(parts), partition)

    ours = tombstones(found, ints(found, "begin"), ints(found, "time_us"), taken)
    whole = pa.concat_tables([retained, ours])
    return whole.sort_by([("partition", "ascending"), ("offset", "ascending")])


def _row_groups(number: int, dump: Dump) -> list[_RowGroup]:
    found = []
    for file in dump.record_files():
        about = BoundedParquet(file).metadata
        columns = (statistics_of(about, name) for name in ("partition", "offset"))
        for row_group, said in enumerate(zip(*columns, strict=True)):
            first, last = FIRST, LAST
            if all(one is not None for one in said):
                partition, offset = said
                of_one = partition.min == partition.max
                first = (partition.min, offset.min if of_one else FIRST[1])
                last = (partition.max, offset.max if of_one else LAST[1])
            found.append(
                _RowGroup(
                    dump=number,
                    file=str(file),
                    number=row_group,
                    size=about.row_group(row_group).total_byte_size,
                    first=first,
                    last=last,
                    may_be_bad=any(one is None or one.null_count != 0 for one in said),
                )
            )
    return found


def _windows(groups: Sequence[_RowGroup]) -> Iterator[tuple[At, At]]:
    """Yield parts of the order of records: the begin of each, and of the next one."""
    begin, size = FIRST, 0
    for group in sorted(groups, key=lambda one: (one.first, one.last)):
        if size and size + group.size > WINDOW_BYTES and group.first > begin:
            yield begin, group.first
            begin, size = group.first, 0
        size += group.size
    yield begin, BEHIND


def _between(first: At, last: At) -> pc.Expression:
    """Return a filter for records from ``first`` on, up to the one before ``last``."""
    partition, offset = pc.field("partition"), pc.field("offset")
    later = (partition > first[0]) | ((partition == first[0]) & (offset >= first[1]))
    earlier = (partition < last[0]) | ((partition == last[0]) & (offset < last[1]))
    return later & earlier & ~_BAD


def _read(groups: Sequence[_RowGroup], chosen: pc.Expression) -> pa.Table:
    batches = read_pieces([(one.file, one.number) for one in groups])
    tables = (pa.Table.from_batches([rows]).filter(chosen) for rows in batches)
    return pa.concat_tables([RECORDS.empty_table(), *tables])


def _check_ends(rows: pa.Table, ends: Mapping[int, int], newest: Dump) -> None:
    """Refuse records that the topic, when it was dumped last, had not reached yet."""
    found = rows.group_by("partition").aggregate([("offset", "max")])
    for offset, partition in zip(
        found["offset_max"].to_pylist(), found["partition"].to_pylist(), strict=True
    ):
        if offset >= ends.get(partition, LAST[1]):
            raise SourceError(
                f"partition {partition} of {OFFSETS_TOPIC} has a record with offset {offset}, but "
                f"ended at {ends[partition]} in {newest.path}, which was taken last: "
                f"{ANOTHER_TOPIC}"
            )
