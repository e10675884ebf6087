"""Rows as Arrow: brought to the columns of their table, flat or sorted.

**Rules.** Columns and types are those of :mod:`holdfast.fleet.tables.columns.stored`. A missing
nullable column holds nulls; any other missing column is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.definition import DType, Table
from holdfast.fleet.tables.columns.holdable import refuse_values
from holdfast.fleet.tables.columns.schemas import ARROW, MILLIS
from holdfast.fleet.tables.columns.stored import TABLES


def flatten(rows: pa.Table, definition: Table) -> pa.Table:
    """The flat view of a nested table."""
    if not definition.explode:
        return rows
    at = definition.names.index(definition.explode)
    nested = rows.column(at).combine_chunks()
    parents = pc.list_parent_indices(nested)
    opened = rows.take(parents)
    return opened.set_column(at, definition.flat_name, nested.flatten())


def sort_rows(rows: pa.Table, definition: Table) -> pa.Table:
    """Rows in the order of the definition (list columns cannot be sorted by, and are left out)."""
    keys = [
        definition.flat_name if k == definition.explode else k
        for k in definition.order
        if k != definition.explode or definition.flat_name in rows.column_names
    ]
    return rows.sort_by([(key, "ascending") for key in keys])


def conform(found: pa.Table, definition: Table, place: str) -> pa.Table:
    """Bring a table to the columns and types of its definition; absent nullable columns are null.

    Raises
    ------
    SourceError
        A column is missing, has values of another type, or values that it cannot have
        (:mod:`holdfast.fleet.tables.columns.holdable`); the text names ``place``.
    """
    schema = pa.schema([(column.name, ARROW[column.dtype]) for column in definition.columns])
    if found.schema.equals(schema):
        refuse_values(found, definition, place)
        return found
    arrays = []
    found = _nest(found, definition)
    for column in definition.columns:
        dtype = ARROW[column.dtype]
        if column.name in found.column_names:
            where = f"{definition.name}.{column.name}"
            arrays.append(_cast(found[column.name], dtype, where))
        elif column.nullable:
            arrays.append(pa.nulls(found.num_rows, dtype))
        else:
            raise SourceError(
                f"{place}: table {definition.name} has no column {column.name}; "
                f"was it written by another version of holdfast?"
            )
    made = pa.table(arrays, schema=schema)
    refuse_values(made, definition, place)
    return made


def _nest(found: pa.Table, definition: Table) -> pa.Table:
    """A flat view as the nested table it came from: one element per list."""
    flat = bool(definition.explode) and definition.explode not in found.column_names
    if not flat or definition.flat_name not in found.column_names:
        return found
    values = found[definition.flat_name].cast(pa.int32()).combine_chunks()
    ends = pa.array(np.arange(found.num_rows + 1, dtype=np.int32))
    return found.append_column(definition.explode, pa.ListArray.from_arrays(ends, values))


def _cast(column: Any, dtype: pa.DataType, place: str) -> Any:
    if column.type == dtype:
        return column
    try:
        return column.cast(dtype, safe=not pa.types.is_timestamp(dtype))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(f"{place}: found {column.type}, expected {dtype}: {error}") from error


def from_memory(name: str, value: Any) -> pa.Table:
    """A table given as Arrow, as columns, or as a list of row mappings.

    Raises
    ------
    SourceError
        As :func:`conform`.
    """
    definition = TABLES[name]
    if isinstance(value, pa.Table):
        return conform(value, definition, "the table given")
    if not isinstance(value, Mapping):
        value = {c.name: [row.get(c.name) for row in value] for c in definition.columns}
    arrays = {c.name: _array(value[c.name], c.dtype) for c in definition.columns if c.name in value}
    return conform(pa.table(arrays), definition, "the columns given")


def _array(values: Any, dtype: DType) -> Any:
    if dtype is not DType.TIMESTAMP:
        return pa.array(values, type=ARROW[dtype])
    array = pa.array(values)
    if pa.types.is_null(array.type) or pa.types.is_integer(array.type):
        array = array.cast(pa.int64()).cast(MILLIS)
    return array.cast(ARROW[dtype])


def latest_ms(times: Any) -> int | None:
    """The latest of some times, rounded up to milliseconds since 1970."""
    us = pc.max(times.cast(ARROW[DType.TIMESTAMP])).cast(pa.int64()).as_py()
    return None if us is None else -(-us // 1_000)


def of_groups(rows: pa.Table, groups: Sequence[str] | None) -> pa.Table:
    """Rows of these groups; all rows without them, or of a table without groups."""
    if groups is None or "group" not in rows.column_names:
        return rows
    return rows.filter(pc.is_in(rows["group"], pa.array(sorted(set(groups)), pa.string())))
