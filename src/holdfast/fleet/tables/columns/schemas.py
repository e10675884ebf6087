"""Definitions by name, their Arrow schemas, and the values that their columns accept.

**Rules.** Nothing is named here. Every table that is stored has exactly the schema of its
definition. A time has microseconds: that is Spark's resolution, so a file is read as it was
written, and the milliseconds of Kafka's records fit without loss.

A time is in the years 1 to 9999, as in Python and ISO 8601. A partition is not negative; in tables
of a Connect member's assignment it may be -1, the connector itself. A name has at most as many
bytes as a string of Kafka's protocol. A column that is not nullable has no null, and no list has
one. Readers of tables rely on this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import Mask
from holdfast.errors import SourceError
from holdfast.fleet.tables.columns import steps, stored
from holdfast.fleet.tables.columns.definition import Column, DType, Table

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

FIRST_US: Final = -62_135_596_800_000_000
"""First microsecond of year 1, UTC."""
LAST_US: Final = 253_402_300_799_999_999
"""Last microsecond of year 9999, UTC."""
MOST_NAME_BYTES: Final = 32_767
CONNECTOR: Final = -1
"""What a member of Connect can own beside its tasks: the connector itself."""

_NAMES: Final = frozenset(
    {"group", "topic", "member_id", "client_id", "client_host", "group_instance_id"}
)
_PARTITIONS: Final = frozenset({"partition", "partitions"})
_OWNED: Final = frozenset({"assignments", "movements", "ownership_gaps", "anomalies"})
"""Tables of assignments, in which a task of Connect is a partition."""
_LISTS: Final = frozenset({DType.INT32_LIST, DType.INT64_LIST, DType.STRING_LIST})


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


def refuse_values(rows: pa.Table, definition: Table, path: str) -> None:
    """Refuse rows with a value that a column cannot have; the SourceError names the column."""
    least = CONNECTOR if definition.name in _OWNED else 0
    for column in definition.columns:
        reason = next(_faults(column, rows[column.name], least), None)
        if reason:
            raise SourceError(f"{path}: column {column.name} of {definition.name} {reason}")


def holdable_times(times: Any) -> Mask:
    """Return which of some times, in microseconds, a table accepts, bool[n]; False for null."""
    us = pc.fill_null(times.cast(pa.int64()), LAST_US + 1)
    found: Mask = np.asarray(pc.and_(pc.greater_equal(us, FIRST_US), pc.less_equal(us, LAST_US)))
    return found


def to_us(text: str) -> int | None:
    """Return ISO 8601 as microseconds since 1970, UTC without a zone; None for a wrong text."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)


def moment_text(us: int) -> str:
    """Format microseconds since 1970 as ISO 8601 in UTC, which :func:`to_us` reads."""
    held = min(max(us, FIRST_US), LAST_US)
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=held)).isoformat()


def held_ms(ms: int) -> int:
    """Return a moment in UTC milliseconds, or the nearest one that a column of times accepts."""
    return min(max(ms, FIRST_US // 1000), LAST_US // 1000)


def _faults(column: Column, values: Any, least: int) -> Iterator[str]:
    if values.null_count and not column.nullable:
        yield f"has no value in {values.null_count} rows"
    if column.dtype in _LISTS:
        values = pc.list_flatten(values)
        if values.null_count:
            yield "has a list with no value in it"
    if column.dtype is DType.TIMESTAMP:
        low, high = _bounds(values.cast(pa.int64()))
        if low < FIRST_US or high > LAST_US:
            yield "has a time outside of the years 1 to 9999"
    if column.name in _PARTITIONS and (found := _bounds(values)[0]) < least:
        yield f"has partition {found}, expected {least} or more"
    if column.name in _NAMES and (size := _bounds(pc.binary_length(values))[1]) > MOST_NAME_BYTES:
        yield f"has a name of {size} bytes, expected at most {MOST_NAME_BYTES}"


def _bounds(numbers: Any) -> tuple[int, int]:
    """Return the least and the greatest of some numbers; zeros if there is none."""
    found = pc.min_max(numbers).as_py()
    return found["min"] or 0, found["max"] or 0
