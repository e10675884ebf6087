"""Columns of the batch decoder as Arrow arrays, buffer by buffer.

**Rules.** Nothing is built element by element. An id becomes its canonical text. A time in
milliseconds becomes a UTC timestamp in microseconds; it is null if below 0 or beyond year 9999.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.core.model.columns import I32, I64, Mask
from holdfast.core.model.limits import INT32_MAX
from holdfast.core.wire.layouts.offsets_schemas import Field, Kind, Layout, layout
from holdfast.core.wire.many.columns import (
    Column,
    Columns,
    Ids,
    Items,
    Numbers,
    Optional,
    Slices,
    Text,
)
from holdfast.core.wire.many.offsets_batch import Binary
from holdfast.core.wire.one.topic_ids import TEXT_LENGTH
from holdfast.fleet.pipeline.arrow_types import Arrays
from holdfast.fleet.tables.columns.schemas import TIMESTAMP

Ints = npt.NDArray[Any]

_YEAR_9999_MS: Final = 253_402_300_799_999
_BASE64URL: Final = np.frombuffer(
    f"{ascii_uppercase}{ascii_lowercase}{digits}-_".encode("ascii"), np.uint8
)
_NUMBERS: Final = {
    Kind.INT8: pa.int8(),
    Kind.INT16: pa.int16(),
    Kind.UINT16: pa.uint16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
}


def binary_column(array: pa.Array | pa.ChunkedArray) -> Binary:
    """Buffers of a binary or string array, without a copy unless it is in chunks."""
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
    """An integer array; null where not ``valid``."""
    dtype = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(
        dtype, len(values), [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(values))]
    )


def millis(values: Ints) -> pa.Array:
    """Times in ms since the epoch, int64[n]."""
    valid = (values >= 0) & (values <= _YEAR_9999_MS)
    micros = np.where(valid, values, 0) * 1000
    return pa.Array.from_buffers(
        TIMESTAMP,
        len(values),
        [None if valid.all() else _bitmap(valid), pa.py_buffer(micros)],
    )


def text(column: Column) -> pa.Array:
    """Strings of a :class:`Text`."""
    assert isinstance(column, Text)
    return _runs(pa.string(), column.data, column.start, column.valid)


def id_text(values: Ints, *, zero_is_null: bool = False) -> pa.Array:
    """Topic ids, uint8[n, 16], as Kafka's tools write them; each is written once."""
    ids = pa.Array.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(values)])
    coded = ids.dictionary_encode()
    different = np.frombuffer(coded.dictionary.buffers()[1], np.uint8, 16 * len(coded.dictionary))
    return _write_ids(different.reshape(-1, 16), zero_is_null=zero_is_null).take(coded.indices)


def _write_ids(values: Ints, *, zero_is_null: bool) -> pa.Array:
    n_rows = len(values)
    padded = np.zeros((n_rows, 18), np.uint8)  # 24 characters, of which the last two say nothing
    padded[:, :16] = values
    three = padded.reshape(n_rows, 6, 3).astype(np.uint32)
    bits = three[:, :, 0] << 16 | three[:, :, 1] << 8 | three[:, :, 2]
    letters = np.stack([bits >> shift & 63 for shift in (18, 12, 6, 0)], axis=2)
    out = _BASE64URL[letters.reshape(n_rows, 24)[:, :TEXT_LENGTH]]
    valid = (values != 0).any(axis=1) if zero_is_null else None
    return _runs(pa.string(), out.reshape(-1), np.arange(n_rows + 1) * TEXT_LENGTH, valid)


def lists(start: Ints, child: pa.Array, valid: Mask | None = None) -> pa.Array:
    """A list array from row starts."""
    return pa.Array.from_buffers(
        pa.list_(child.type),
        len(start) - 1,
        [_bitmap(valid), pa.py_buffer(start.astype(np.int32))],
        children=[child],
    )


def column_array(column: Column) -> pa.Array:
    """Any column of the decoder."""
    match column:
        case Numbers():
            return numbers(column.values)
        case Ids():
            return id_text(column.values)
        case Text():
            return text(column)
        case Slices():
            data, start = column.gather()
            return _runs(pa.binary(), data, start, column.valid)
        case Items():
            return lists(column.start, _element_array(column.columns), column.valid)
        case Optional():
            child = struct_array(column.columns)
            index = column.index
            return child.take(numbers(np.maximum(index, 0), index >= 0))


def struct_array(columns: Columns) -> pa.StructArray:
    """Columns of a struct as one array."""
    n_rows = len(next(iter(columns.values())))
    arrays = [column_array(column) for column in columns.values()]
    fields = [pa.field(name, array.type) for name, array in zip(columns, arrays, strict=True)]
    return pa.Array.from_buffers(pa.struct(fields), n_rows, [None], children=arrays)


def _element_array(columns: Columns) -> pa.Array:
    return column_array(columns[""]) if "" in columns else struct_array(columns)


def layout_type(struct: Layout, version: int) -> pa.DataType:
    """Arrow type of :func:`struct_array` for a layout."""
    return pa.struct(
        [
            pa.field(field.name, _field_type(field, version, struct.flexible))
            for field in (*struct.plain, *struct.tagged)
        ]
    )


def _field_type(field: Field, version: int, flexible: bool) -> pa.DataType:
    if field.kind is Kind.STRUCT:
        one = layout_type(layout(field.fields, version, flexible), version)
    elif field.kind is Kind.BYTES:
        one = pa.binary()
    else:
        one = _NUMBERS.get(field.kind, pa.string())
    return pa.list_(one) if field.is_array else one


def or_null(columns: Arrays, field: pa.Field, n_rows: int) -> pa.Array:
    """The column of a field in its type; nulls where there is none."""
    array = columns.get(field.name)
    if array is None:
        return pa.nulls(n_rows, field.type)
    return array if array.type == field.type else array.cast(field.type)


def filled_table(columns: Arrays, schema: pa.Schema, n_rows: int) -> pa.Table:
    """A table of this schema; a column that is not given is null."""
    return pa.Table.from_arrays([or_null(columns, f, n_rows) for f in schema], schema=schema)


def filled_batch(columns: Arrays, schema: pa.Schema, n_rows: int) -> pa.RecordBatch:
    """A record batch of this schema; a column that is not given is null."""
    return pa.RecordBatch.from_arrays([or_null(columns, f, n_rows) for f in schema], schema=schema)


def constant(value: object, dtype: pa.DataType, n_rows: int) -> pa.Array:
    """One value in every row."""
    return pa.nulls(n_rows, dtype) if value is None else pa.repeat(pa.scalar(value, dtype), n_rows)


def ints(column: Column) -> Ints:
    """Values of a column of numbers."""
    assert isinstance(column, Numbers)
    return column.values


def items(column: Column) -> Items:
    """A column of lists."""
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
