"""Reading a column of ``__consumer_offsets`` records into columns, without a loop per record.

**Rules.**

* A record is good here exactly if :func:`holdfast.core.wire.layouts.offsets_records.decode_record`
  reads it, and its values are the same. A bad record has the reason and the position of the error
  that ``decode_record`` raises. Both follow the table in
  :mod:`holdfast.core.wire.layouts.offsets_schemas`.
* Records of an unknown type are listed as unknown, and are not bad.
* Records are read in chunks that fit a cache, so memory stays within a small multiple of a chunk.

**Strategy.** The records of a chunk are grouped by record type and value version. Each such family
is one flat batch for :mod:`holdfast.core.wire.many.columnar`. For bad records the scalar reader is
called to get the reasons, and the family is read again without them, so no column is ever filtered.

References: KIP-482, KIP-848, KIP-915, KIP-932, KIP-1071.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model.columns import I64, U8, Mask
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS, schema_layout
from holdfast.core.wire.many.columnar import read
from holdfast.core.wire.many.columns import Columns
from holdfast.core.wire.many.programs import program_of
from holdfast.core.wire.many.ragged import PAD, Cursor, keep_freed_memory, padded, read_at
from holdfast.core.wire.one.reasons import reason_code
from holdfast.errors import WireError

CHUNK_RECORDS: Final = 16_384
CHUNK_BYTES: Final = 8 << 20

_HEAD: Final = np.dtype(">u2")
_HEAD_SIZE: Final = 2  # a key and a value begin with an int16
_N_TYPES: Final = max(RECORD_SCHEMAS) + 1  # also used for every type above
_NO_KEY: Final = _N_TYPES + 1
# A version is one that a schema has, or one of two numbers above every schema's version.
_ANOTHER: Final = max(schemas.value.max_version for schemas in RECORD_SCHEMAS.values()) + 1
_TOMBSTONE: Final = _ANOTHER + 1
_N_VERSIONS: Final = _TOMBSTONE + 1
# A label is one of the first three, or _FIRST + type * _N_VERSIONS + version.
_BAD, _UNKNOWN, _PASSED_OVER, _FIRST = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Binary:
    """A column of byte strings."""

    data: U8  # uint8[n_bytes]: contiguous
    # int32[n + 1] or int64[n + 1]: row ``i`` is ``data[start[i]:start[i + 1]]``.
    start: NDArray[np.int32] | I64
    valid: Mask | None = None  # bool[n] or None: false where null; None: nothing is null

    def __len__(self) -> int:
        return len(self.start) - 1

    def row(self, index: int) -> bytes | None:
        """Return one row."""
        if self.valid is not None and not self.valid[index]:
            return None
        return self.data[self.start[index] : self.start[index + 1]].tobytes()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """Records of one type and one version of their value."""

    record_type: int  # first int16 of the keys
    value_version: int | None  # first int16 of the values; None: tombstones
    rows: I64  # int64[n]: rows of the input, ascending
    # Fields by Kafka's names, n rows each; ``value`` is empty for tombstones.
    key: Columns
    value: Columns
    # int64[n] or None: tagged fields that were skipped; None: none at all.
    n_unknown_tags: I64 | None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BadRows:
    """Records that do not parse."""

    rows: I64  # int64[n]: rows of the input, ascending
    reason: U8  # uint8[n]: index into :data:`holdfast.core.wire.one.reasons.REASONS`
    position: I64  # int64[n]: byte of the key or of the value at which reading failed
    in_key: Mask  # bool[n]: whether that is the key

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """Decoded records of the input rows ``first`` to ``last`` (not included).

    ``unknown`` are the rows (int64) whose record type is not known.
    """

    first: int
    last: int
    families: tuple[Family, ...]
    unknown: I64
    bad: BadRows


def decode_batch(
    keys: Binary, values: Binary, types: Collection[int] | None = None
) -> Iterator[Chunk]:
    """Decode many records.

    Parameters
    ----------
    keys, values : Binary
        Of the same length; a null value is a tombstone.
    types : collection of int, optional
        Record types wanted; records of other known types are skipped, unread.

    Yields
    ------
    Chunk
        In the order of the rows; together the chunks cover all rows.

    Notes
    -----
    Cost: O(bytes) time. Memory: a small multiple of :data:`CHUNK_BYTES`, or of the longest record.
    """
    keep_freed_memory()
    label_of = _label_table(types)
    for first, last in _cuts(keys, values):
        yield _decode_chunk(keys, values, slice(first, last), label_of)


def _cuts(keys: Binary, values: Binary) -> Iterator[tuple[int, int]]:
    """Return ranges of rows of at most CHUNK_RECORDS and, but for one record, CHUNK_BYTES."""
    first, n_rows = 0, len(keys)
    while first < n_rows:
        last = min(first + CHUNK_RECORDS, n_rows)
        used = int(keys.start[first]) + int(values.start[first])
        total = (
            keys.start[first + 1 : last + 1].astype(np.int64) + values.start[first + 1 : last + 1]
        )
        n_fit = int(np.searchsorted(total, used + CHUNK_BYTES, side="right"))
        last = first + max(1, n_fit)
        yield first, last
        first = last


class _Side:
    """Keys or values of a chunk: padded bytes, begin and end of each row, its leading uint16."""

    __slots__ = ("begin", "data", "end", "head", "size", "valid")

    def __init__(self, column: Binary, first: int, last: int):
        start = column.start[first : last + 1].astype(np.int64)
        low, high = int(start[0]), int(start[-1])
        if high + PAD <= len(column.data):
            self.data = column.data
        else:
            self.data = padded(column.data[low:high])
            start -= low
        self.begin, self.end = start[:-1], start[1:]
        self.size = self.end - self.begin
        self.valid = None if column.valid is None else column.valid[first:last]
        # The head has no meaning where size < 2.
        self.head = read_at(self.data, self.begin, _HEAD).astype(np.uint16)

    def cursor(self, rows: I64 | slice) -> Cursor:
        """Return a cursor behind the int16."""
        return Cursor(self.data, self.begin[rows] + 2, self.end[rows])


def _decode_chunk(keys: Binary, values: Binary, span: slice, label_of: NDArray[np.int16]) -> Chunk:
    first, last = span.start, span.stop
    key, value = _Side(keys, first, last), _Side(values, first, last)
    label = _labels(key, value, label_of)
    n_rows = np.bincount(label, minlength=_FIRST)
    families: list[Family] = []
    bad = [np.flatnonzero(label == _BAD)]
    for one in (np.flatnonzero(n_rows[_FIRST:]) + _FIRST).tolist():
        rows = np.flatnonzero(label == one)
        family, bad_rows = _decode_family(key, value, rows, one - _FIRST)
        bad.append(bad_rows)
        if len(family):
            families.append(replace(family, rows=family.rows + first))
    return Chunk(
        first=first,
        last=last,
        families=tuple(families),
        unknown=np.flatnonzero(label == _UNKNOWN) + first,
        bad=_explain(keys, values, np.sort(np.concatenate(bad)) + first),
    )


def _labels(key: _Side, value: _Side, label_of: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return the label of each row."""
    number = np.minimum(key.head, _N_TYPES)
    number[key.size < _HEAD_SIZE] = _NO_KEY
    if key.valid is not None:
        number[~key.valid] = _NO_KEY
    version = np.minimum(value.head, _ANOTHER)
    version[value.size < _HEAD_SIZE] = _ANOTHER
    if value.valid is not None:
        version[~value.valid] = _TOMBSTONE
    label: NDArray[np.int16] = label_of.take(number * _N_VERSIONS + version)
    return label


def _label_table(types: Collection[int] | None) -> NDArray[np.int16]:
    """Return the label of each (type, version); a known pair has a label of its own."""
    table = np.full((_NO_KEY + 1, _N_VERSIONS), _BAD, np.int16)
    table[:_NO_KEY] = _UNKNOWN
    for number, schemas in RECORD_SCHEMAS.items():
        if types is not None and number not in types:
            table[number] = _PASSED_OVER
            continue
        table[number] = _BAD
        for version in (*range(schemas.value.max_version + 1), _TOMBSTONE):
            table[number, version] = number * _N_VERSIONS + version + _FIRST
    return table.reshape(-1)


def _decode_family(key: _Side, value: _Side, rows: I64, label: int) -> tuple[Family, I64]:
    """Return records of one label, and the rows found bad."""
    family, bad = _read_family(key, value, rows, label)
    bad_rows = rows[bad]
    if len(bad_rows):
        family, bad = _read_family(key, value, rows[~bad], label)
        assert not bad.any()
    return family, bad_rows


def _read_family(key: _Side, value: _Side, rows: I64, label: int) -> tuple[Family, Mask]:
    number, version = divmod(label, _N_VERSIONS)
    schemas = RECORD_SCHEMAS[number]
    picked = slice(None) if len(rows) == len(key.begin) else rows
    cursor = key.cursor(picked)
    key_columns = read(program_of(schema_layout(schemas.key, 0), 0), cursor)
    bad = cursor.unfinished()
    value_columns: Columns = {}
    if version != _TOMBSTONE:
        cursor = value.cursor(picked)
        cursor.align()
        value_columns = read(program_of(schema_layout(schemas.value, version), version), cursor)
        bad |= cursor.unfinished()
    family = Family(
        record_type=number,
        value_version=None if version == _TOMBSTONE else version,
        rows=rows,
        key=key_columns,
        value=value_columns,
        n_unknown_tags=cursor.n_unknown_tags,
    )
    return family, bad


def _explain(keys: Binary, values: Binary, rows: I64) -> BadRows:
    """Return why each of ``rows`` is bad, by the scalar form."""
    errors = [_error_of(keys.row(row), values.row(row)) for row in rows.tolist()]
    return BadRows(
        rows=rows,
        reason=np.array([reason_code(e) for e in errors], np.uint8),
        position=np.array([e.position for e in errors], np.int64),
        in_key=np.array([e.schema.endswith("Key") for e in errors], np.bool_),
    )


def _error_of(key: bytes | None, value: bytes | None) -> WireError:
    try:
        decode_record(key, value)
    except WireError as error:
        return error
    raise AssertionError("the batch form refused what the scalar form reads")
