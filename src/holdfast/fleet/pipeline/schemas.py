"""Spark's schemas, made from the Arrow schemas of :mod:`holdfast.fleet.tables.columns.schemas`.

**Rules.** Nothing is named here: a column that a definition gains is in Spark's schema too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from holdfast.fleet.tables.columns.definition import DType
from holdfast.fleet.tables.columns.schemas import ARROW

_WORDS: Final[Mapping[DType, str]] = {
    DType.STRING: "string",
    DType.BINARY: "binary",
    DType.BOOL: "boolean",
    DType.INT32: "int",
    DType.INT64: "bigint",
    DType.FLOAT64: "double",
    DType.TIMESTAMP: "timestamp",
    DType.INT32_LIST: "array<int>",
    DType.INT64_LIST: "array<bigint>",
    DType.STRING_LIST: "array<string>",
}
_SPARK: Final[Mapping[pa.DataType, str]] = {ARROW[dtype]: word for dtype, word in _WORDS.items()}


def ddl_of(schema: pa.Schema) -> str:
    """Any schema of these types as Spark DDL."""
    return ", ".join(f"`{field.name}` {_SPARK[field.type]}" for field in schema)
