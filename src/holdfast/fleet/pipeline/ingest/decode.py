"""Records of ``__consumer_offsets`` in Arrow, decoded to Arrow: no Spark, no loop per record.

Every function takes an iterable of record batches and returns an iterator. A batch has the columns
``key`` and ``value`` (binary). It may have ``partition`` (int32), ``offset`` (int64) and
``timestamp``, as Spark's Kafka source and a dump do. These three come out as ``log_partition``,
``log_offset`` and ``timestamp``.

=========================  =====================================================================
``offset_commits(b)``      types 0 and 1: the table ``offset_commits``, schema COMMITS
``generations(b)``         type 2: :class:`~holdfast.fleet.pipeline.ingest.generations.Generations`
``typed_records(b, n)``    type n, any: ``key`` and ``value`` as structs, schema typed_schema(n)
``bad_records(b)``         records that do not parse: the table ``bad_records``, schema BAD
``count_records(b)``       one row per (record_type, value_version): n_records, n_unknown_tags,
                           is_known; schema COUNTS
=========================  =====================================================================

**Rules.** A record that does not parse appears in ``bad_records`` and nowhere else. Unknown types
appear in ``count_records`` and nowhere else. Rows come out in no particular order within a batch;
``log_partition`` and ``log_offset`` say where each stood.

References: KIP-429, KIP-848, KIP-915.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS, RecordType, schema_layout
from holdfast.core.wire.layouts.record_size import batch_bytes
from holdfast.core.wire.many.columns import Columns, Ids
from holdfast.core.wire.many.offsets_batch import BadRows, Chunk, Family, decode_batch
from holdfast.core.wire.one.reasons import REASONS, Reason
from holdfast.fleet.pipeline.arrow_types import Arrays, Batches
from holdfast.fleet.pipeline.ingest.arrow_columns import (
    binary_column,
    constant,
    filled_batch,
    id_text,
    ints,
    layout_type,
    millis,
    numbers,
    struct_array,
    text,
)
from holdfast.fleet.pipeline.ingest.decode_classic import group_generations
from holdfast.fleet.pipeline.ingest.generations import Generations
from holdfast.fleet.tables.columns.holdable import holdable_times
from holdfast.fleet.tables.columns.schemas import TIMESTAMP, arrow_schema

LOG: Final = (
    pa.field("timestamp", TIMESTAMP),
    pa.field("log_partition", pa.int32()),
    pa.field("log_offset", pa.int64()),
)
COMMITS: Final[pa.Schema] = arrow_schema("offset_commits")
COMMIT_TYPES: Final = (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT)
BAD: Final[pa.Schema] = arrow_schema("bad_records")
COUNTS: Final = arrow_schema("record_counts")


def offset_commits(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Offset commits and their tombstones.

    Yields
    ------
    RecordBatch of COMMITS
        ``offset`` and all that comes with it is null in a tombstone; so is a leader epoch of
        -1, a topic id of zero and a time below 0.

    References: KAFKA-19141 (version 4).
    """
    for batch, family in _families(batches, COMMIT_TYPES):
        key, value, n_rows = family.key, family.value, len(family)
        columns: Arrays = {
            "group": text(key["group"]),
            "topic": text(key["topic"]),
            "partition": numbers(ints(key["partition"])),
            "is_tombstone": constant(family.value_version is None, pa.bool_(), n_rows),
            "value_version": constant(family.value_version, pa.int32(), n_rows),
            **_log(batch, family.rows),
        }
        if value:
            columns |= _commit_values(value)
        yield filled_batch(columns, COMMITS, n_rows).filter(pa.array(~_of_no_partition(family)))


def _of_no_partition(family: Family) -> Mask:
    """Which commits are of a partition below 0, bool[n]: no broker takes one."""
    found: Mask = ints(family.key["partition"]) < 0
    return found


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


def generations(batches: Batches, *, subscriptions: bool = True) -> Iterator[Generations]:
    """Records of classic groups: generations, their members, and each member's partitions.

    Parameters
    ----------
    subscriptions : bool
        Read the members' subscriptions too.

    Yields
    ------
    Generations
        In the order of the log as far as the batch is. ``state`` is Stable, Empty, or Dead for a
        tombstone (generation -1, no members). What a subscription says (``rack``,
        ``subscribed_topics``, ``n_claimed``) is null where it was not read: another protocol
        type, empty, or unreadable. A member owns nothing where its assignment was not read;
        ``readable`` is False where the assignment does not parse. ``partitions`` ascend.

    References: KIP-429, KIP-345.
    """
    for batch, family in _families(batches, (RecordType.GROUP_METADATA,)):
        place = {"group": text(family.key["group"]), **_log(batch, family.rows)}
        if family.value:
            place["record_bytes"] = numbers(_sizes(batch, family.rows))
        yield group_generations(family, place, subscriptions=subscriptions)


def typed_schema(record_type: RecordType) -> pa.Schema:
    """Schema of :func:`typed_records`; for types whose value has one version only."""
    schemas = RECORD_SCHEMAS[record_type]
    if schemas.value.max_version:
        raise ValueError(f"{schemas.name} has several versions: use its own function")
    return pa.schema(
        [
            pa.field("is_tombstone", pa.bool_()),
            pa.field("key", layout_type(schema_layout(schemas.key, 0), 0)),
            pa.field("value", layout_type(schema_layout(schemas.value, 0), 0)),
            *LOG,
        ]
    )


def typed_records(batches: Batches, record_type: RecordType) -> Iterator[pa.RecordBatch]:
    """Records of one type, fields by Kafka's names.

    Parameters
    ----------
    batches : iterable of RecordBatch
        With ``key`` and ``value``.
    record_type : RecordType
        Of KIP-848 (3 to 8, 16), share groups (10 to 15) or streams groups (17 to 23).

    Yields
    ------
    RecordBatch of typed_schema(record_type)
        ``value`` is null in a tombstone. Ids are text. An absent tagged struct is null.

    References: KIP-848, KIP-932, KIP-1071.
    """
    schema = typed_schema(record_type)
    for batch, family in _families(batches, (record_type,)):
        columns: Arrays = {
            "is_tombstone": constant(not family.value, pa.bool_(), len(family)),
            "key": struct_array(family.key),
            **_log(batch, family.rows),
        }
        if family.value:
            columns["value"] = struct_array(family.value)
        yield filled_batch(columns, schema, len(family))


def bad_records(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Records that do not parse, whole, with the reason and the place.

    Yields
    ------
    RecordBatch of BAD
        ``position`` counts in the key or in the value, whichever does not parse; a record without
        a key has neither ``record_type`` nor ``key_hex``.

    References: KIP-915 (an unknown version of a known type does not parse).
    """
    for batch, chunk in _chunks(batches, None):
        if len(chunk.bad):
            yield filled_batch(_bad_columns(batch, chunk.bad), BAD, len(chunk.bad))
        for family in chunk.families:
            if family.record_type in COMMIT_TYPES and (of_none := _of_no_partition(family)).any():
                bad = _out_of_range(family.rows[of_none])
                yield filled_batch(_bad_columns(batch, bad), BAD, len(bad))


def placed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Records that have a place in a log and a time, and the others as rows of BAD, or None.

    A partition or an offset below 0, or none at all, is not one that a broker has written, nor is a
    time outside of what a table can hold, or none; such a time is null in its row.
    """
    place = [pc.fill_null(batch.column(name), -1) for name in ("partition", "offset")]
    in_time = holdable_times(batch.column("timestamp"))
    good: Mask = np.logical_and(*((column.to_numpy() >= 0) for column in place)) & in_time
    if good.all():
        return batch, None
    rows = np.flatnonzero(~good)
    n_rows = len(rows)
    columns = _bad_columns(batch, _out_of_range(rows))
    unknown = pa.scalar(None, TIMESTAMP)
    columns["timestamp"] = pc.if_else(pa.array(in_time[rows]), columns["timestamp"], unknown)
    return batch.filter(pa.array(good)), filled_batch(columns, BAD, n_rows)


def _out_of_range(rows: I64) -> BadRows:
    """Rows with a value that no table holds, or that no broker has written."""
    n_rows = len(rows)
    return BadRows(
        rows=rows,
        reason=np.full(n_rows, REASONS.index(Reason.OUT_OF_RANGE), np.uint8),
        position=np.full(n_rows, -1, np.int64),
        in_key=np.zeros(n_rows, np.bool_),
    )


def _bad_columns(batch: pa.RecordBatch, bad: BadRows) -> Arrays:
    keys = _pick(batch.column("key"), bad.rows).to_pylist()
    values = _pick(batch.column("value"), bad.rows).to_pylist()
    types = [
        None if not k or len(k) < 2 else int.from_bytes(k[:2], "big", signed=True) for k in keys
    ]
    return {
        **_log(batch, bad.rows),
        "record_type": pa.array(types, pa.int32()),
        "reason": pa.array([str(REASONS[code]) for code in bad.reason.tolist()], pa.string()),
        "position": numbers(bad.position),
        "key_hex": pa.array([None if k is None else k.hex() for k in keys], pa.string()),
        "value_hex": pa.array([None if v is None else v.hex() for v in values], pa.string()),
    }


def count_records(batches: Batches) -> Iterator[pa.RecordBatch]:
    """How many records there are of each type and version; one small batch per chunk of input.

    Yields
    ------
    RecordBatch of COUNTS
        To be summed by ``record_type`` and ``value_version`` (null: tombstones, and unknown types).

    References: KIP-915.
    """
    for batch, chunk in _chunks(batches, None):
        rows = [
            {
                "record_type": family.record_type,
                "value_version": family.value_version,
                "is_known": True,
                "n_records": len(family),
                "n_unknown_tags": 0
                if family.n_unknown_tags is None
                else int(family.n_unknown_tags.sum()),
            }
            for family in chunk.families
        ]
        keys = _pick(batch.column("key"), chunk.unknown).to_pylist()
        types = [int.from_bytes(key[:2], "big", signed=True) for key in keys]
        rows += [
            {
                "record_type": number,
                "value_version": None,
                "is_known": False,
                "n_records": types.count(number),
                "n_unknown_tags": 0,
            }
            for number in sorted(set(types))
        ]
        yield pa.RecordBatch.from_pylist(rows, COUNTS)


def _chunks(
    batches: Batches, types: Collection[int] | None
) -> Iterator[tuple[pa.RecordBatch, Chunk]]:
    for batch in batches:
        keys, values = binary_column(batch.column("key")), binary_column(batch.column("value"))
        for chunk in decode_batch(keys, values, types):
            yield batch, chunk


def _families(batches: Batches, types: Collection[int]) -> Iterator[tuple[pa.RecordBatch, Family]]:
    for batch, chunk in _chunks(batches, types):
        for family in chunk.families:
            yield batch, family


def _log(batch: pa.RecordBatch, rows: I64) -> Arrays:
    """Where the rows stood in the log, as far as the batch says."""
    names = {"timestamp": "timestamp", "log_partition": "partition", "log_offset": "offset"}
    here = batch.schema.names
    return {
        name: _pick(batch.column(source), rows) for name, source in names.items() if source in here
    }


def _sizes(batch: pa.RecordBatch, rows: I64) -> I64:
    """Bytes of each record, as its broker compares them with its limit."""
    key, value = (binary_column(_pick(batch.column(name), rows)) for name in ("key", "value"))
    return batch_bytes(*(np.diff(column.start).astype(np.int64) for column in (key, value)))


def _pick(array: pa.Array, rows: I64) -> pa.Array:
    n_rows = len(rows)
    if n_rows and rows[-1] - rows[0] == n_rows - 1 and (np.diff(rows) == 1).all():
        array = array.slice(int(rows[0]), n_rows)
    else:
        array = array.take(pa.array(rows, pa.int64()))
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
