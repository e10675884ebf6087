"""Records of ``__consumer_offsets`` in Arrow, chosen by group and read by type: no Spark, no loop.

A record batch has the columns ``key`` and ``value`` (binary). It may have ``partition`` (int32),
``offset`` (int64) and ``timestamp``, as Spark's Kafka source and a dump do. These three come out as
``log_partition``, ``log_offset`` and ``timestamp`` (:func:`log_positions`). Commits become columns
in :mod:`holdfast.fleet.pipeline.ingest.split`, records of classic groups generations in
:mod:`holdfast.fleet.pipeline.ingest.decode_classic`, those of all other groups events in
:mod:`holdfast.fleet.pipeline.history.consumer_groups`.

**Rules.** The group of a record is read from the bytes of its key, before the record is decoded:
every key has the group behind its type. So a record that does not parse is chosen by its group,
too. A name is compared as bytes, a pattern with the text.

A record that does not parse becomes a row of ``bad_records`` with its bytes, and nothing else. A
record of an unknown type is counted. Rows come out in no particular order within a batch;
``log_partition`` and ``log_offset`` are their positions. No array is built element by element. An
id becomes its canonical text. A time in milliseconds becomes a UTC timestamp in microseconds; it is
null if below 0 or beyond year 9999.

**Strategy.** The usual choice, all groups, reads twelve bytes of each key. Good records are read in
one pass. If fewer rows come out than went in, the batch is read once more for records that are bad
or of an unknown type; clean data do not pay for that. Columns of the batch decoder become Arrow
arrays buffer by buffer.

For inspection a record becomes a row of JSON_RECORDS: Kafka's field names as JSON, or the reason in
``error``. That reads a record at a time, about 50 CPU seconds for a million commits, of which the
readers of columns take less than a hundredth.

References: KIP-429, KIP-848, KIP-915.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I32, I64, Mask
from holdfast.core.model.constants import INT32_MAX
from holdfast.core.names import SPARK_GROUPS, is_pattern, means
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.core.wire.layouts.record_size import batch_bytes
from holdfast.core.wire.many.columns import Column, Columns, Items, Numbers, Text, take
from holdfast.core.wire.many.offsets_batch import (
    REASONS,
    BadRows,
    Binary,
    Chunk,
    Family,
    decode_batch,
)
from holdfast.core.wire.many.ragged import gather, padded
from holdfast.core.wire.one.topic_ids import TEXT_LENGTH, offsets_partition
from holdfast.errors import Reason, WireError
from holdfast.fleet.columnar import Arrays, Batches
from holdfast.fleet.tables.columns.schemas import (
    TIMESTAMP,
    arrow_schema,
    filled_batch,
    holdable_times,
)

Ints = npt.NDArray[Any]

_YEAR_9999_MS: Final = 253_402_300_799_999
BAD: Final[pa.Schema] = arrow_schema("bad_records")
_COUNTED: Final = ("partition", "partitions", "generation", "epoch", "assignmentEpoch")
_COMMON: Final = b"spark-kafka-"
_NAME_AT: Final = 4
"""Behind the type and the length of the name, an int16 each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The groups to read: names, or patterns with ``*`` and ``?``; empty for all.

    ``all_groups`` includes those of Spark's connector.
    """

    groups: Sequence[str] = ()
    all_groups: bool = False

    def keep(self, keys: pa.Array) -> Mask | None:
        """Return which records belong to the groups, by their keys (binary); None: all of them."""
        if self.groups:
            return self._is_named(group_names(binary_column(keys)))
        return None if self.all_groups else _not_sparks(keys, _NAME_AT)

    def log_partitions(self, n_partitions: int) -> frozenset[int] | None:
        """Return partitions of the offsets topic that store the groups; None: any of them may."""
        if not self.groups or any(is_pattern(name) for name in self.groups):
            return None
        return frozenset(offsets_partition(name, n_partitions) for name in self.groups)

    def keep_groups(self, names: pa.Array) -> Mask | None:
        """Return which of some groups, given as bytes, are chosen; None: all of them."""
        if self.groups:
            return self._is_named(names)
        return None if self.all_groups else _not_sparks(names, 0)

    def _is_named(self, names: pa.Array) -> Mask:
        coded = names.dictionary_encode()
        plain = {name.encode() for name in self.groups}  # a name may look like a pattern
        patterns = [name for name in self.groups if is_pattern(name)]
        hit = [
            name in plain or any(means(one, name.decode("utf-8", "replace")) for one in patterns)
            for name in coded.dictionary.to_pylist()
        ]
        found: Mask = np.array(hit, bool)[coded.indices.to_numpy()]
        return found


def _not_sparks(keys: pa.Array, name_at: int) -> Mask | None:
    """Return which keys are not of Spark's own groups; the name begins at byte ``name_at``."""
    head = pc.binary_slice(keys, name_at, name_at + len(_COMMON))
    suspect = pc.fill_null(pc.equal(head, pa.scalar(_COMMON)), False)
    if not pc.any(suspect).as_py():
        return None
    hit = np.zeros(len(keys), bool)
    for name in SPARK_GROUPS:
        prefix = name.encode()
        head = pc.binary_slice(keys, name_at, name_at + len(prefix))
        same = pc.fill_null(pc.equal(head, pa.scalar(prefix)), False)
        hit |= same.to_numpy(zero_copy_only=False)
    return ~hit


def group_names(keys: Binary) -> pa.Array:
    """Return the group of each record as bytes; of an odd key the bytes at the group's position.

    A null key, and one too short for a group, gives an empty name.
    """
    start = keys.start.astype(np.int64)
    low = int(start[0])
    data = padded(keys.data[low : int(start[-1])])
    begin, size = start[:-1] - low, np.diff(start)
    if keys.valid is not None:
        size = np.where(keys.valid, size, 0)
    said = data[begin + 2].astype(np.int64) << 8 | data[begin + 3]
    length: I64 = np.clip(np.minimum(said, size - _NAME_AT), 0, None)
    text, starts = gather(data, begin + _NAME_AT, length)
    buffers = [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.binary(), len(length), buffers)


def key_types(keys: pa.Array) -> tuple[Mask, I64]:
    """Return which keys are long enough to have a record type, bool[n], and the types of those."""
    column = binary_column(keys)
    start = column.start.astype(np.int64)
    has_type = np.diff(start) >= 2
    if column.valid is not None:
        has_type &= column.valid
    at = start[:-1][has_type]
    return has_type, column.data[at].astype(np.int64) << 8 | column.data[at + 1]


def unread(batch: pa.RecordBatch) -> tuple[list[pa.RecordBatch], Counter[int]]:
    """Return unparsable records, whole, as rows of BAD, and counts of unknown types.

    ``position`` counts in the key or in the value, whichever does not parse; a record without a key
    has neither ``record_type`` nor ``key_hex``. References: KIP-915 (an unknown version does not
    parse).
    """
    found: list[BadRows] = []
    unknown: Counter[int] = Counter()
    for chunk in _chunks(batch, None):
        found.append(chunk.bad)
        found += [_out_of_range(one.rows[_out_of_count(one)]) for one in chunk.families]
        keys = _pick(batch.column("key"), chunk.unknown).to_pylist()
        unknown.update(int.from_bytes(key[:2], "big", signed=True) for key in keys)
    bad = [filled_batch(_bad_columns(batch, rows), BAD, len(rows)) for rows in found if len(rows)]
    return bad, unknown


def placed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return records with a log position and a time, and the others as rows of BAD, or None.

    A broker writes neither a partition or an offset below 0 or null, nor a time that a table does
    not accept, or null; such a time is null in its row.
    """
    position = [pc.fill_null(batch.column(name), -1) for name in ("partition", "offset")]
    in_time = holdable_times(batch.column("timestamp"))
    good: Mask = np.logical_and(*((column.to_numpy() >= 0) for column in position)) & in_time
    if good.all():
        return batch, None
    rows = np.flatnonzero(~good)
    n_rows = len(rows)
    columns = _bad_columns(batch, _out_of_range(rows))
    unknown = pa.scalar(None, TIMESTAMP)
    columns["timestamp"] = pc.if_else(pa.array(in_time[rows]), columns["timestamp"], unknown)
    return batch.filter(pa.array(good)), filled_batch(columns, BAD, n_rows)


def _out_of_range(rows: I64) -> BadRows:
    """Return rows with a value that no table accepts, or that no broker has written."""
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
        **log_positions(batch, bad.rows),
        "record_type": pa.array(types, pa.int32()),
        "reason": pa.array([str(REASONS[code]) for code in bad.reason.tolist()], pa.string()),
        "position": numbers(bad.position),
        "key_hex": pa.array([None if k is None else k.hex() for k in keys], pa.string()),
        "value_hex": pa.array([None if v is None else v.hex() for v in values], pa.string()),
    }


def _chunks(batch: pa.RecordBatch, types: Collection[int] | None) -> Iterator[Chunk]:
    keys, values = binary_column(batch.column("key")), binary_column(batch.column("value"))
    return decode_batch(keys, values, types)


def families(batch: pa.RecordBatch, types: Collection[int]) -> Iterator[Family]:
    """Yield records of some types with possible numbers, by type and version."""
    for chunk in _chunks(batch, types):
        for family in chunk.families:
            good = ~_out_of_count(family)
            if good.any():
                yield family if good.all() else _taken(family, np.flatnonzero(good))


def _out_of_count(family: Family) -> Mask:
    """Return records with a partition, generation or epoch below 0, bool[n]: brokers have none."""
    return _below_zero(family.key, len(family)) | _below_zero(family.value, len(family))


def _below_zero(columns: Columns, n_rows: int) -> Mask:
    """Return which structs have such a number, or a list that has one, bool[n_rows]."""
    found = np.zeros(n_rows, np.bool_)
    for name, column in columns.items():
        if isinstance(column, Numbers) and name in _COUNTED:
            found |= column.values < 0
        elif isinstance(column, Items):
            inner = {name: column.columns[""]} if "" in column.columns else column.columns
            below = _below_zero(inner, len(next(iter(inner.values()))))
            found |= np.diff(np.append(0, np.cumsum(below))[column.start]) > 0
    return found


def _taken(family: Family, rows: I64) -> Family:
    """Return some rows of a family."""
    key, value = take(family.key, rows), take(family.value, rows)
    return replace(family, rows=family.rows[rows], key=key, value=value, n_unknown_tags=None)


def log_positions(batch: pa.RecordBatch, rows: I64) -> Arrays:
    """Return the log positions of rows, as far as the batch has them."""
    names = {"timestamp": "timestamp", "log_partition": "partition", "log_offset": "offset"}
    here = batch.schema.names
    return {
        name: _pick(batch.column(source), rows) for name, source in names.items() if source in here
    }


def record_sizes(batch: pa.RecordBatch, rows: I64) -> I64:
    """Return the bytes of each record, as its broker compares them with its limit."""
    key, value = (binary_column(_pick(batch.column(name), rows)) for name in ("key", "value"))
    return batch_bytes(*(np.diff(column.start).astype(np.int64) for column in (key, value)))


def _pick(array: pa.Array, rows: I64) -> pa.Array:
    n_rows = len(rows)
    if n_rows and rows[-1] - rows[0] == n_rows - 1 and (np.diff(rows) == 1).all():
        array = array.slice(int(rows[0]), n_rows)
    else:
        array = array.take(pa.array(rows, pa.int64()))
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


# Records as JSON, for inspection


JSON_RECORDS: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("record_type", pa.int32()),
        ("name", pa.string()),
        ("value_version", pa.int32()),
        ("group", pa.string()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("error", pa.string()),
    ]
)
_LOG_POSITION: Final = ("partition", "offset", "timestamp")
_READ: Final = tuple(name for name in JSON_RECORDS.names if name not in _LOG_POSITION)


def json_records(batches: Batches) -> Batches:
    """Turn records into rows of :data:`JSON_RECORDS`; a task for ``mapInArrow``."""
    for batch in batches:
        pairs = zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
        read = [_row(key, value) for key, value in pairs]
        columns = {name: batch[name] for name in _LOG_POSITION}
        columns |= {name: [row.get(name) for row in read] for name in _READ}
        yield filled_batch(columns, JSON_RECORDS, batch.num_rows)


def _row(key: bytes | None, value: bytes | None) -> dict[str, object]:
    try:
        record = decode_record(key, value).to_dict()
    except WireError as error:
        return {"error": str(error)}
    names = record["key"]
    return {
        **record,
        "group": names.get("group", names.get("groupId")),
        "key": json.dumps(names),
        "value": None if record["value"] is None else json.dumps(record["value"]),
    }


# Columns of the batch decoder as Arrow arrays


def binary_column(array: pa.Array | pa.ChunkedArray) -> Binary:
    """Return buffers of a binary or string array, without a copy unless it is in chunks."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
        array = array.cast(pa.binary())
    _, starts, data = array.buffers()
    dtype = np.dtype(np.int64 if pa.types.is_large_binary(array.type) else np.int32)
    n_rows = len(array)
    start: I32 | I64 = np.zeros(n_rows + 1, dtype)
    if starts is not None and n_rows:
        start = np.frombuffer(starts, dtype, n_rows + 1 + array.offset)[array.offset :]
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
    raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return Binary(data=raw, start=start, valid=valid)


def numbers(values: Ints, valid: Mask | None = None) -> pa.Array:
    """Make an integer array; null where not ``valid``."""
    dtype = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(
        dtype, len(values), [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(values))]
    )


def millis(values: Ints) -> pa.Array:
    """Convert times in ms since the epoch, int64[n]."""
    valid = (values >= 0) & (values <= _YEAR_9999_MS)
    micros = np.where(valid, values, 0) * 1000
    return pa.Array.from_buffers(
        TIMESTAMP,
        len(values),
        [None if valid.all() else _bitmap(valid), pa.py_buffer(micros)],
    )


def text(column: Column) -> pa.Array:
    """Return the strings of a :class:`Text`."""
    assert isinstance(column, Text)
    return _runs(pa.string(), column.data, column.start, column.valid)


def id_text(values: Ints, *, zero_is_null: bool = False) -> pa.Array:
    """Format topic ids, uint8[n, 16], as Kafka's tools do; each one once."""
    ids = pa.Array.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(values)])
    coded = ids.dictionary_encode()
    n_ids = len(coded.dictionary)
    different = np.frombuffer(coded.dictionary.buffers()[1], np.uint8, 16 * n_ids)
    padded = np.zeros((n_ids, 18), np.uint8)  # 24 characters, of which the last two are padding
    padded[:, :16] = different.reshape(-1, 16)
    letters = np.frombuffer(urlsafe_b64encode(padded.tobytes()), np.uint8).reshape(n_ids, 24)
    data, start = letters[:, :TEXT_LENGTH].reshape(-1), np.arange(n_ids + 1) * TEXT_LENGTH
    valid = (different.reshape(-1, 16) != 0).any(axis=1) if zero_is_null else None
    return _runs(pa.string(), data, start, valid).take(coded.indices)


def constant(value: object, dtype: pa.DataType, n_rows: int) -> pa.Array:
    """Return one value in every row."""
    return pa.nulls(n_rows, dtype) if value is None else pa.repeat(pa.scalar(value, dtype), n_rows)


def ints(column: Column) -> Ints:
    """Return the values of a column of numbers."""
    assert isinstance(column, Numbers)
    return column.values


def items(column: Column) -> Items:
    """Return a column of lists."""
    assert isinstance(column, Items)
    return column


def _runs(dtype: pa.DataType, data: Ints, start: Ints, valid: Mask | None) -> pa.Array:
    if len(data) > INT32_MAX:
        raise OverflowError(f"{len(data)} bytes of text in one batch; decode smaller batches")
    return pa.Array.from_buffers(
        dtype,
        len(start) - 1,
        [
            _bitmap(valid),
            pa.py_buffer(start.astype(np.int32)),
            pa.py_buffer(np.ascontiguousarray(data)),
        ],
    )


def _bitmap(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
