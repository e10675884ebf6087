"""A column of ``__consumer_offsets`` records to columns, without a Python loop per record.

**Rules.**

* What is good here is exactly what :func:`holdfast.wire.offsets_records.decode_record` reads, with
  the same values; what is bad has the reason and the position that it names. Both forms read
  the table in :mod:`holdfast.wire.offsets_schemas`.
* Records of an unknown type are listed, not bad.
* Work goes by chunks that fit a cache, so memory stays within a small multiple of a chunk.

**Strategy.** Records of a chunk are told apart by type and version of their value; each such family
is one flat batch for :mod:`holdfast.wire.lockstep`. If it finds bad records, the scalar form is
asked for their reasons, and the family is read again without them: no column is ever filtered.

References
----------
KIP-482, KIP-848, KIP-915, KIP-932, KIP-1071.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import WireError
from holdfast.wire.codec import Reason
from holdfast.wire.columns import Columns
from holdfast.wire.lockstep import Cursor, plan_of, read
from holdfast.wire.offsets_records import decode_record
from holdfast.wire.offsets_schemas import RECORD_TYPES, schema_layout
from holdfast.wire.ragged import I64, PAD, U8, Mask, padded, windows

CHUNK_RECORDS: Final = 8_192
CHUNK_BYTES: Final = 8 << 20

REASONS: Final = tuple(Reason)
_N_TYPES: Final = max(RECORD_TYPES) + 1
_FIRST_LABEL: Final = 8  # a label is (type + 1) * 8 + version
_TOMBSTONE: Final = 7  # a version beside 0 to 4
_BAD: Final = 6  # a label
_NO_TYPE: Final = np.int16(9)
_KNOWN: Final = np.isin(np.arange(_N_TYPES), list(RECORD_TYPES))
_MAX_VERSION: Final = np.array(
    [RECORD_TYPES[n].value.max_version if n in RECORD_TYPES else 0 for n in range(_N_TYPES)],
    np.uint16,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Binary:
    """A column of byte strings.

    Parameters
    ----------
    data : uint8[n_bytes]
        Contiguous.
    start : int32[n + 1] or int64[n + 1]
        Row ``i`` is ``data[start[i]:start[i + 1]]``.
    valid : bool[n] or None
        False where null; None: nothing is null.
    """

    data: U8
    start: NDArray[np.int32] | I64
    valid: Mask | None = None

    def __len__(self) -> int:
        return len(self.start) - 1

    def row(self, index: int) -> bytes | None:
        """One row."""
        if self.valid is not None and not self.valid[index]:
            return None
        return self.data[self.start[index] : self.start[index + 1]].tobytes()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """Records of one type and one version of their value.

    Parameters
    ----------
    record_type : int
        First int16 of the keys.
    value_version : int or None
        First int16 of the values; None: tombstones.
    rows : int64[n]
        Rows of the input, ascending.
    key, value : dict of name to Column
        Fields by Kafka's names, n rows each; ``value`` is empty for tombstones.
    n_unknown_tags : int64[n] or None
        Tagged fields that were stepped over; None: none at all.
    """

    record_type: int
    value_version: int | None
    rows: I64
    key: Columns
    value: Columns
    n_unknown_tags: I64 | None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BadRows:
    """Records that do not parse.

    Parameters
    ----------
    rows : int64[n]
        Rows of the input, ascending.
    reason : uint8[n]
        Index into :data:`REASONS`.
    position : int64[n]
        Byte of the key or of the value at which reading failed.
    in_key : bool[n]
        Whether that is the key.
    """

    rows: I64
    reason: U8
    position: I64
    in_key: Mask

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
        Record types wanted; records of other known types are passed over, unread.

    Yields
    ------
    Chunk
        In the order of the rows; together they cover them all.

    Notes
    -----
    Cost: O(bytes) time. Memory: a small multiple of :data:`CHUNK_BYTES`, or of the longest record.

    References
    ----------
    KIP-848, KIP-915.
    """
    wanted = _KNOWN if types is None else np.isin(np.arange(_N_TYPES), list(types)) & _KNOWN
    for first, last in _cuts(keys, values):
        yield _decode_chunk(keys, values, first, last, wanted)


def _cuts(keys: Binary, values: Binary) -> Iterator[tuple[int, int]]:
    """Ranges of rows that hold at most CHUNK_RECORDS and, but for one record, CHUNK_BYTES."""
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
    """Keys or values of a chunk: padded bytes, begin and end of each row, its leading int16."""

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
        # What it says means nothing where size < 2.
        self.head = windows(self.data, 2)[self.begin].view(">i2").astype(np.int16)

    def is_short(self) -> Mask:
        """Rows that hold no int16; null rows may be among them."""
        return self.size < 2

    def cursor(self, rows: I64 | slice) -> Cursor:
        """At what follows the int16."""
        return Cursor(self.data, self.begin[rows] + 2, self.end[rows])


def _decode_chunk(keys: Binary, values: Binary, first: int, last: int, wanted: Mask) -> Chunk:
    key, value = _Side(keys, first, last), _Side(values, first, last)
    label, unknown = _labels(key, value, wanted)
    families: list[Family] = []
    bad: list[I64] = [np.flatnonzero(label == _BAD)]
    n_rows = np.bincount(label)
    for one in np.flatnonzero(n_rows).tolist():
        if one >= _FIRST_LABEL:
            rows = np.flatnonzero(label == one)
            family, bad_rows = _decode_family(key, value, rows, one)
            bad.append(bad_rows)
            if len(family):
                families.append(replace(family, rows=family.rows + first))
    return Chunk(
        first=first,
        last=last,
        families=tuple(families),
        unknown=np.flatnonzero(unknown) + first,
        bad=_explain(keys, values, np.sort(np.concatenate(bad)) + first),
    )


def _labels(key: _Side, value: _Side, wanted: Mask) -> tuple[NDArray[np.int16], Mask]:
    """Family of each row, ``(type + 1) * 8 + version``, 0 for none; and the unknown types."""
    is_bad = key.is_short()
    if key.valid is not None:
        is_bad |= ~key.valid
    number = np.where(key.head.view(np.uint16) < _N_TYPES, key.head, _NO_TYPE)
    unknown = ~(_KNOWN[number] | is_bad)
    version = value.head
    bad_version = (version.view(np.uint16) > _MAX_VERSION[number]) | value.is_short()
    label = np.where(bad_version, _BAD, (number + 1) * _FIRST_LABEL + version)
    if value.valid is not None:
        label = np.where(value.valid, label, (number + 1) * _FIRST_LABEL + _TOMBSTONE)
    label = np.where(wanted[number], label, 0)
    return np.where(is_bad, _BAD, label).astype(np.int16), unknown


def _decode_family(key: _Side, value: _Side, rows: I64, label: int) -> tuple[Family, I64]:
    """Records of one label, and the rows found bad."""
    family, bad = _read_family(key, value, rows, label)
    bad_rows = rows[bad]
    if len(bad_rows):
        family, bad = _read_family(key, value, rows[~bad], label)
        assert not bad.any()
    return family, bad_rows


def _read_family(key: _Side, value: _Side, rows: I64, label: int) -> tuple[Family, Mask]:
    record_type, version = RECORD_TYPES[(label >> 3) - 1], label & 7
    picked = slice(None) if len(rows) == len(key.begin) else rows
    cursor = key.cursor(picked)
    key_columns = read(plan_of(schema_layout(record_type.key, 0), 0), cursor)
    bad = cursor.bad | (cursor.pos != cursor.end)
    value_columns: Columns = {}
    if version != _TOMBSTONE:
        cursor = value.cursor(picked)
        value_columns = read(plan_of(schema_layout(record_type.value, version), version), cursor)
        bad |= cursor.bad | (cursor.pos != cursor.end)
    family = Family(
        record_type=record_type.number,
        value_version=None if version == _TOMBSTONE else version,
        rows=rows,
        key=key_columns,
        value=value_columns,
        n_unknown_tags=cursor.n_unknown_tags,
    )
    return family, bad


def _explain(keys: Binary, values: Binary, rows: I64) -> BadRows:
    """Ask the scalar form why these rows are bad."""
    errors = [_error_of(keys.row(row), values.row(row)) for row in rows.tolist()]
    return BadRows(
        rows=rows,
        reason=np.array([REASONS.index(Reason(e.reason)) for e in errors], np.uint8),
        position=np.array([e.position for e in errors], np.int64),
        in_key=np.array([e.schema.endswith("Key") for e in errors], np.bool_),
    )


def _error_of(key: bytes | None, value: bytes | None) -> WireError:
    try:
        decode_record(key, value)
    except WireError as error:
        return error
    raise AssertionError("the batch form refused what the scalar form reads")
