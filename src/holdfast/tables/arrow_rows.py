"""Rows of files as Arrow: read, brought to the columns of their table, flat or sorted.

**Rules.** Columns and types are those of :mod:`holdfast.tables.stored`. A missing nullable column
holds nulls; any other missing column is an error that names it. Where groups are named, only row
groups are read whose bounds admit one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SourceError
from holdfast.tables.definition import DType, Table
from holdfast.tables.filesystems import telling
from holdfast.tables.parquet import open_parquet, row_groups_of
from holdfast.tables.places import Place, StorePath
from holdfast.tables.remote_store import each
from holdfast.tables.schemas import ARROW, MILLIS, arrow_schema
from holdfast.tables.stored import TABLES


def read_parquet(
    path: Place, groups: Sequence[str] | None = None, footers: dict[Place, Any] | None = None
) -> pa.Table:
    """Read one of our files as it is; ``groups`` keeps rows of these groups only.

    Parameters
    ----------
    footers : dict of Path to FileMetaData, optional
        Footers of files that were read already; where groups are named, others are added.

    Raises
    ------
    OSError, ArrowException
        It cannot be read; a store's error is a SourceError.
    """
    with telling(path, "read") if isinstance(path, StorePath) else nullcontext():
        if groups is None:
            return open_parquet(path).read()
        opened = opened_parquet(path, {} if footers is None else footers)
        return of_groups(opened.read_row_groups(row_groups(opened, groups)), groups)


def opened_parquet(path: Place, footers: dict[Place, Any]) -> Any:
    """A file of ours, open; its footer, which is not small, is read once."""
    opened = open_parquet(path, metadata=footers.get(path))
    footers[path] = opened.metadata
    return opened


def row_groups(opened: Any, groups: Sequence[str] | None) -> list[int]:
    """Row groups of an open file that may hold one of these groups; all without them."""
    if groups is None:
        return list(range(opened.num_row_groups))
    return row_groups_of(opened.metadata, "group", sorted(set(groups)))


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
        A column is missing or has values of another type; the text names ``place``.
    """
    schema = arrow_schema(definition.name)
    if found.schema.equals(schema):
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
    return pa.table(arrays, schema=schema)


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


def read_files(
    files: Sequence[Place],
    definition: Table,
    groups: Sequence[str] | None = None,
    footers: dict[Place, Any] | None = None,
) -> pa.Table:
    """The rows of some files of one table, in the columns of its definition.

    Raises
    ------
    SourceError
        A file is no Parquet, or as :func:`conform`; FileNotFoundError if one is gone.
    """

    def read(file: Place) -> pa.Table:
        try:
            rows = read_parquet(file, groups, footers)
            rows.validate(full=True)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{file}: not readable as Parquet: {error}") from error
        return conform(rows, definition, str(file))

    return pa.concat_tables([arrow_schema(definition.name).empty_table(), *each(read, files)])


def latest_ms(times: Any) -> int | None:
    """The latest of some times, rounded up to milliseconds since 1970."""
    us = pc.max(times.cast(ARROW[DType.TIMESTAMP])).cast(pa.int64()).as_py()
    return None if us is None else -(-us // 1_000)


def of_groups(rows: pa.Table, groups: Sequence[str] | None) -> pa.Table:
    """Rows of these groups; all rows without them, or of a table without groups."""
    if groups is None or "group" not in rows.column_names:
        return rows
    return rows.filter(pc.is_in(rows["group"], pa.array(sorted(set(groups)), pa.string())))
