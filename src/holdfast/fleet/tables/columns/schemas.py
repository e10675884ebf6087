"""Definitions by name, and their Arrow schemas: the one way from a column's type to others'.

**Rules.** Nothing is named here. Every table that is stored has exactly the schema of its
definition. A time has microseconds: that is Spark's resolution, so a file is read as it was
written, and the milliseconds of Kafka's records fit without loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import pyarrow as pa

from holdfast.fleet.tables.columns import steps, stored
from holdfast.fleet.tables.columns.definition import DType, Table

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_TYPES: Final[Mapping[DType, tuple[pa.DataType, str]]] = {
    DType.STRING: (pa.string(), "string"),
    DType.BINARY: (pa.binary(), "binary"),
    DType.BOOL: (pa.bool_(), "boolean"),
    DType.INT32: (pa.int32(), "integer"),
    DType.INT64: (pa.int64(), "long"),
    DType.FLOAT64: (pa.float64(), "double"),
    DType.TIMESTAMP: (TIMESTAMP, "timestamp"),
    DType.INT32_LIST: (pa.list_(pa.int32()), "array<integer>"),
    DType.INT64_LIST: (pa.list_(pa.int64()), "array<long>"),
    DType.STRING_LIST: (pa.list_(pa.string()), "array<string>"),
}
ARROW: Final[Mapping[DType, pa.DataType]] = {dtype: kind for dtype, (kind, _) in _TYPES.items()}
WORDS: Final[Mapping[DType, str]] = {dtype: word for dtype, (_, word) in _TYPES.items()}
"""Spark's words for types, which Delta's log has too."""

_OF_ARROW: Final[Mapping[pa.DataType, str]] = dict(_TYPES.values())

DEFINITIONS: Final[Mapping[str, Table]] = {
    found.name: found
    for module in (stored, steps)
    for found in vars(module).values()
    if isinstance(found, Table)
}
"""Every table that these modules define, by its name."""


@cache
def arrow_schema(name: str) -> pa.Schema:
    """Return the Arrow schema of a definition; every field is nullable, as in Spark's files."""
    columns = DEFINITIONS[name].columns
    return pa.schema([(column.name, ARROW[column.dtype]) for column in columns])


def ddl_of(schema: pa.Schema) -> str:
    """Return a schema of our types as Spark DDL."""
    return ", ".join(f"`{field.name}` {_OF_ARROW[field.type]}" for field in schema)


def from_columns(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Make a table of columns (arrays or lists); an int64 in a column of times is microseconds."""
    schema = arrow_schema(name)
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Any, dtype: pa.DataType) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values if values.type == dtype else values.cast(dtype)
    if pa.types.is_timestamp(dtype):
        return pa.array(values, pa.int64()).cast(dtype)
    return pa.array(values, dtype)


def filled_table(columns: Mapping[str, Any], schema: pa.Schema, n_rows: int) -> pa.Table:
    """Make a table with a schema; a missing column is null."""
    return pa.Table.from_arrays([_or_null(columns, f, n_rows) for f in schema], schema=schema)


def filled_batch(columns: Mapping[str, Any], schema: pa.Schema, n_rows: int) -> pa.RecordBatch:
    """Make a record batch with a schema; a missing column is null."""
    return pa.RecordBatch.from_arrays([_or_null(columns, f, n_rows) for f in schema], schema=schema)


def _or_null(columns: Mapping[str, Any], field: pa.Field, n_rows: int) -> Any:
    given = columns.get(field.name)
    return pa.nulls(n_rows, field.type) if given is None else _array(given, field.type)
