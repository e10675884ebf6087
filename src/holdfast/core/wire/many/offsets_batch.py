"""Reading a column of ``__consumer_offsets`` records into columns, without a loop per record.

**Rules.**

* A record is good here exactly if :func:`holdfast.core.wire.layouts.offsets_records.decode_record`
  reads it, and its values are the same. A bad record has the reason and the position of the error
  that ``decode_record`` raises. Both follow the table in
  :mod:`holdfast.core.wire.layouts.offsets_schemas`.
* Records of an unknown type are listed as unknown, and are not bad.
* Records are read in chunks that fit a cache, so memory stays within a small multiple of a chunk.
* The record of a group of protocol type ``consumer`` carries a message for each member: a
  ConsumerProtocolSubscription and a ConsumerProtocolAssignment; their version table is in
  :mod:`holdfast.core.wire.layouts.consumer_protocol`. Messages of other protocol types stay bytes.
  A message that does not parse gives no values; its row is listed with a reason and a position. The
  record around the message is good all the same.

**Strategy.** The records of a chunk are grouped by record type and value version. Each such family
is one flat batch for :mod:`holdfast.core.wire.many.columnar`. For bad records the scalar reader is
called to get the reasons, and the family is read again without them, so no column is ever filtered.

Messages of one version are read together as one layout. If there are several versions, the fields
that a later version added are read from the messages that have them.

References: KIP-482, KIP-848, KIP-915, KIP-932, KIP-1071; KIP-429 (owned partitions), KAFKA-13715
(generation), KIP-881 (rack).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model.columns import I64, U8, Mask
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment, decode_subscription
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.core.wire.layouts.offsets_schemas import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    RECORD_SCHEMAS,
    Default,
    Field,
    Schema,
    layout,
    schema_layout,
)
from holdfast.core.wire.many.columnar import Program, read
from holdfast.core.wire.many.columns import ABSENT, Columns, Numbers, Slices, spread
from holdfast.core.wire.many.programs import message_program, program_of
from holdfast.core.wire.many.ragged import PAD, Cursor, keep_freed_memory, padded, read_at
from holdfast.errors import Reason, WireError

CHUNK_RECORDS: Final = 16_384
CHUNK_BYTES: Final = 8 << 20

REASONS: Final = tuple(Reason)
"""Reasons by their code, the number that a bad row has."""
_CODES: Final[Mapping[str, int]] = {reason: code for code, reason in enumerate(REASONS)}

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

_VERSION: Final = np.dtype(">i2")
_N_PROBES: Final = 64  # messages whose versions are checked first
_MESSAGE_DEFAULTS: dict[str, Default] = {"generationId": -1, "userData": None, "rackId": None}


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
    reason: U8  # uint8[n]: index into :data:`REASONS`
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
    errors = [_error_of(decode_record, keys.row(row), values.row(row)) for row in rows.tolist()]
    return BadRows(
        rows=rows,
        reason=np.array([_CODES[e.reason] for e in errors], np.uint8),
        position=np.array([e.position for e in errors], np.int64),
        in_key=np.array([e.schema.endswith("Key") for e in errors], np.bool_),
    )


def _error_of(decode: Callable[..., object], *data: bytes | None) -> WireError:
    """Return the error that the scalar form raises for what the batch form refused."""
    try:
        decode(*data)
    except WireError as error:
        return error
    raise AssertionError("the batch form refused what the scalar form reads")


# The messages of members in the records of classic groups


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """Messages of one kind."""

    columns: Columns  # fields by Kafka's names, n rows each; defaults where a message was not read
    version: I64  # int64[n]: version that was written, -1 where a message was not read
    unreadable: Mask
    reason: U8  # uint8[n]: why, as an index into :data:`REASONS`; 0 where it parses
    position: I64  # int64[n]: byte of the message at which reading failed; 0 where it parses


def read_assignments(messages: Slices, wanted: Mask) -> Messages:
    """Read many ConsumerProtocolAssignments.

    Parameters
    ----------
    messages : Slices
        Messages of n members.
    wanted : bool[n]
        Members of protocol type ``consumer``; an empty message is not read.

    Returns
    -------
    Messages
        With ``assignedPartitions`` and ``userData``.
    """
    return _read_messages(CONSUMER_ASSIGNMENT, messages, wanted)


def read_subscriptions(messages: Slices, wanted: Mask) -> Messages:
    """Read many ConsumerProtocolSubscriptions; parameters as of :func:`read_assignments`.

    Returns
    -------
    Messages
        With ``topics``, ``userData``, ``ownedPartitions``, ``generationId`` and ``rackId``.
    """
    return _read_messages(CONSUMER_SUBSCRIPTION, messages, wanted)


def _read_messages(schema: Schema, messages: Slices, wanted: Mask) -> Messages:
    rows = np.flatnonzero(wanted & (messages.size > 0))
    columns, version, bad = _read_rows(schema, messages, rows)
    unreadable = np.zeros(len(messages), np.bool_)
    unreadable[rows[bad]] = True
    reason, position = _explain_messages(schema, messages, rows[bad])
    if bad.any():
        rows = rows[~bad]
        columns, version, bad = _read_rows(schema, messages, rows)
        assert not bad.any()
    all_versions = np.full(len(messages), -1, np.int64)
    all_versions[rows] = version
    return Messages(
        columns=_at_rows(columns, rows, len(messages)),
        version=all_versions,
        unreadable=unreadable,
        reason=reason,
        position=position,
    )


def _explain_messages(schema: Schema, messages: Slices, rows: I64) -> tuple[U8, I64]:
    """Return why messages do not parse, by the scalar form: reason and position, for all rows."""
    decode = decode_subscription if schema is CONSUMER_SUBSCRIPTION else decode_assignment
    reason, position = np.zeros(len(messages), np.uint8), np.zeros(len(messages), np.int64)
    data, start = messages.take(rows).gather()
    for row, low, high in zip(rows.tolist(), start[:-1].tolist(), start[1:].tolist(), strict=True):
        error = _error_of(decode, data[low:high].tobytes())
        reason[row], position[row] = _CODES[error.reason], error.position
    return reason, position


def _read_rows(schema: Schema, messages: Slices, rows: I64) -> tuple[Columns, I64, Mask]:
    """Read the messages of ``rows``: return columns, versions, and which of them fail."""
    begin = messages.begin[rows]
    end = begin + messages.size[rows]
    some = Cursor(messages.data, begin[:: len(rows) // _N_PROBES + 1], end).peek(_VERSION)
    if len(some) and some[0] >= 0 and not np.count_nonzero(some != some[0]):
        cursor = Cursor(messages.data, begin, end)
        columns, version = _read_alike(schema, cursor, int(some[0]))
        if not np.count_nonzero(version != some[0]):
            return columns, version, cursor.overrun()
    return _read_mixed(schema, Cursor(messages.data, begin, end))


def _read_alike(schema: Schema, cursor: Cursor, version: int) -> tuple[Columns, I64]:
    """Read messages as if all had one version; also return the version that each states."""
    known = min(version, schema.max_version)
    columns = read(message_program(schema, known), cursor)
    written = columns.pop("version")
    assert isinstance(written, Numbers)
    none = np.zeros(0, np.int64)
    for since, fields in _layers(schema)[known + 1 :]:
        later = read(_layer_program(fields, since), Cursor(cursor.data, none, none))
        columns |= _at_rows(later, none, len(cursor.bad))
    return columns, written.values.astype(np.int64)


def _read_mixed(schema: Schema, cursor: Cursor) -> tuple[Columns, I64, Mask]:
    """Read messages of many versions, layer by layer."""
    version = cursor.take(_VERSION).astype(np.int64)
    cursor.bad |= version < 0
    columns: Columns = {}
    for since, fields in _layers(schema):
        if fields:
            columns |= _read_since(fields, since, cursor, version)
    return columns, version, cursor.overrun()


def _layers(schema: Schema) -> list[tuple[int, tuple[Field, ...]]]:
    """Return fields by the version that introduced them."""
    return [
        (since, tuple(field for field in schema.fields if field.since == since))
        for since in range(schema.max_version + 1)
    ]


def _layer_program(fields: tuple[Field, ...], since: int) -> Program:
    return program_of(layout(fields, since, False), since)


def _read_since(fields: tuple[Field, ...], since: int, cursor: Cursor, version: I64) -> Columns:
    """Read fields that exist from one version on."""
    program = _layer_program(fields, since)
    if version.min(initial=since) >= since:
        return read(program, cursor)
    rows = np.flatnonzero(version >= since)
    child = Cursor(cursor.data, cursor.pos[rows], cursor.end[rows])
    columns = read(program, child)
    cursor.pos[rows] = child.pos
    cursor.absorb(child, rows)
    return _at_rows(columns, rows, len(version))


def _at_rows(columns: Columns, rows: I64, n_rows: int) -> Columns:
    """Return columns of some rows, spread over all, with the defaults between them."""
    index = np.full(n_rows, ABSENT, np.int64)
    index[rows] = np.arange(len(rows))
    return {n: spread(c, index, _MESSAGE_DEFAULTS.get(n, ())) for n, c in columns.items()}
