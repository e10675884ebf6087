"""The plain columns of :mod:`holdfast.model.tables` as Arrow schemas and Spark DDL.

**Rules.** Nothing is named here. Every frame that is stored has exactly the schema of its table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from holdfast.model.tables import DUMP_TABLES, TABLES, Column, DType

_ARROW: Mapping[DType, pa.DataType] = {
    DType.STRING: pa.string(),
    DType.BINARY: pa.binary(),
    DType.BOOL: pa.bool_(),
    DType.INT32: pa.int32(),
    DType.INT64: pa.int64(),
    DType.FLOAT64: pa.float64(),
    DType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    DType.INT32_LIST: pa.list_(pa.int32()),
    DType.STRING_LIST: pa.list_(pa.string()),
}

_DDL: Mapping[pa.DataType, str] = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.list_(pa.int32()): "array<int>",
    pa.list_(pa.string()): "array<string>",
}


@cache
def arrow_schema(name: str) -> pa.Schema:
    """Arrow schema of a stored table or of a part of a dump."""
    table = TABLES.get(name) or DUMP_TABLES[name]
    return arrow_fields(table.columns)


def arrow_fields(columns: Sequence[Column]) -> pa.Schema:
    """Arrow schema of plain columns; every field may be null, as Spark writes them."""
    return pa.schema([(column.name, _ARROW[column.dtype]) for column in columns])


def spark_ddl(name: str) -> str:
    """Schema of a stored table as Spark DDL."""
    return ddl_of(arrow_schema(name))


def ddl_of(schema: pa.Schema) -> str:
    """Any schema of these types as Spark DDL."""
    return ", ".join(f"`{field.name}` {_DDL[field.type]}" for field in schema)


def empty(name: str) -> pa.Table:
    """A table without rows."""
    return arrow_schema(name).empty_table()


def from_columns(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """A table from columns (arrays or lists); int64 microseconds are taken for timestamps."""
    schema = arrow_schema(name)
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Any, dtype: pa.DataType) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values if values.type == dtype else values.cast(dtype)
    if pa.types.is_timestamp(dtype):
        return pa.array(values, pa.int64()).cast(dtype)
    return pa.array(values, dtype)
