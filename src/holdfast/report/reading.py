"""Tables of the pipeline as Arrow, from a folder or from columns in memory, cut by group.

**Rules.** Needs no Spark. Columns and types are those of :mod:`holdfast.model.tables`; a missing
table is an empty one, a missing column is an error that names it. Times become UTC milliseconds.

**Strategy.** Where a manifest names the files of complete batches, those are read and no others;
else every Parquet file below a table's folder. Each table is sorted by group once, so a group's
rows are a slice.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import ConfigError, SourceError
from holdfast.model.columns import F64, I32, I64
from holdfast.model.tables import TABLES, DType, Table
from holdfast.report.names import visible

ArrowTable: TypeAlias = pa.Table

Track = Callable[[Sequence[str]], Iterable[str]]

_ARROW: dict[DType, Any] = {
    DType.STRING: pa.string(),
    DType.BINARY: pa.binary(),
    DType.BOOL: pa.bool_(),
    DType.INT32: pa.int32(),
    DType.INT64: pa.int64(),
    DType.FLOAT64: pa.float64(),
    DType.TIMESTAMP: pa.timestamp("ms", tz="UTC"),
    DType.INT32_LIST: pa.list_(pa.int32()),
    DType.STRING_LIST: pa.list_(pa.string()),
}
MANIFEST = "_manifest.json"
Source = str | Path | Mapping[str, Any]


def read_tables(source: Source, names: Sequence[str] | None = None) -> Tables:
    """Tables from a folder of Parquet or from a mapping.

    Parameters
    ----------
    source : path or mapping
        A folder as the pipeline writes it; or table name -> Arrow table, mapping of columns
        (sequences or arrays; times as UTC milliseconds or datetimes) or list of row mappings.
    names : sequence of str, optional
        Tables wanted; all but ``offset_commits`` and ``bad_records`` by default.

    Returns
    -------
    Tables

    Raises
    ------
    SourceError
        If there is no such folder, it holds none of the tables, a file is unreadable or a column
        is missing.
    """
    wanted = list(names) if names is not None else [*TABLES]
    if isinstance(source, Mapping):
        found = {name: _from_memory(name, source[name]) for name in wanted if name in source}
    else:
        found = _from_folder(Path(source), wanted)
    return Tables(found)


class Tables:
    """Arrow tables by name; a table that was not found is empty."""

    def __init__(self, found: Mapping[str, ArrowTable]):
        self._found = dict(found)
        self._cuts: dict[str, tuple[ArrowTable, dict[str, tuple[int, int]]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def table(self, name: str) -> ArrowTable:
        """The whole table."""
        if name not in self._found:
            empty: ArrowTable = _schema(TABLES[name]).empty_table()
            return empty
        return self._found[name]

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Names of all groups, sorted."""
        names: set[str] = set()
        for name in ("generations", "lag", "members", "rebalances"):
            if name in self._found:
                names.update(pc.unique(self._found[name]["group"]).to_pylist())
        return tuple(sorted(names))

    def choose(self, groups: Sequence[str] | None) -> tuple[str, ...] | None:
        """Wanted groups by name or pattern, as they were asked for; None stays None.

        Raises
        ------
        ConfigError
            If there is no such group, with the nearest names.
        """
        chosen: dict[str, None] = {}
        for name in groups or ():
            hits = [g for g in self.groups if g == name or fnmatch.fnmatchcase(g, name)]
            chosen |= dict.fromkeys(hits)
            if not hits:
                near = difflib.get_close_matches(name, self.groups, 3, 0.5)
                hint = f"did you mean {' or '.join(near)}?" if near else self._sample()
                raise ConfigError(f"no group {visible(name)!r} in these tables; {visible(hint)}")
        return tuple(chosen) if groups else None

    def _sample(self) -> str:
        shown = ", ".join(self.groups[:5])
        rest = len(self.groups) - 5
        more = f" and {rest} more" if rest > 0 else ""
        return f"there are {shown}{more}" if shown else "there is none"

    def of_group(self, group: str, name: str) -> ArrowTable:
        """Rows of one group, in the order of the table."""
        if name not in self._cuts:
            self._cuts[name] = _cut(self.table(name))
        ordered, bounds = self._cuts[name]
        low, high = bounds.get(group, (0, 0))
        return ordered.slice(low, high - low)


def ints(table: ArrowTable, name: str, missing: int = -1) -> I64:
    """An integer column; null is ``missing``."""
    return np.asarray(pc.fill_null(table[name].cast(pa.int64()), missing), dtype=np.int64)


def floats(table: ArrowTable, name: str, missing: float = np.nan) -> F64:
    """A float column; null is ``missing``."""
    return np.asarray(pc.fill_null(table[name].cast(pa.float64()), missing), dtype=np.float64)


def times_ms(table: ArrowTable, name: str, missing: int = -1) -> I64:
    """A time column as UTC milliseconds; null is ``missing``."""
    column = table[name].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    return np.asarray(pc.fill_null(column, missing), dtype=np.int64)


def codes(table: ArrowTable, name: str) -> tuple[I32, tuple[str, ...]]:
    """A string column as indices into its sorted distinct values; null is -1."""
    column = table[name].combine_chunks() if table.num_rows else pa.array([], pa.string())
    encoded = pc.dictionary_encode(column)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    values = encoded.dictionary.to_pylist()
    order = sorted(range(len(values)), key=values.__getitem__)
    rank = np.empty(len(values) + 1, dtype=np.int32)
    rank[order] = np.arange(len(values), dtype=np.int32)
    rank[-1] = -1
    indices = np.asarray(pc.fill_null(encoded.indices.cast(pa.int64()), -1), dtype=np.int64)
    return rank[indices], tuple(values[i] for i in order)


def words(table: ArrowTable, name: str) -> tuple[str, ...]:
    """A string column as it stands; null is empty."""
    return tuple(str(word or "") for word in table[name].to_pylist())


def lists(table: ArrowTable, name: str) -> tuple[I64, I64]:
    """A list column as row of each element and element."""
    column = table[name]
    if not table.num_rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = np.repeat(
        np.arange(table.num_rows), np.asarray(pc.fill_null(pc.list_value_length(column), 0))
    )
    return rows, np.asarray(pc.list_flatten(column), dtype=np.int64)


def _cut(table: ArrowTable) -> tuple[ArrowTable, dict[str, tuple[int, int]]]:
    rank, values = codes(table, "group")
    order = np.argsort(rank, kind="stable")
    edges = np.searchsorted(rank[order], np.arange(len(values) + 1))
    bounds = {name: (int(edges[i]), int(edges[i + 1])) for i, name in enumerate(values)}
    in_order = bool((order[1:] > order[:-1]).all())
    return (table if in_order else table.take(pa.array(order))), bounds


def _schema(table: Table) -> Any:
    return pa.schema([pa.field(c.name, _ARROW[c.dtype]) for c in table.columns])


def _from_memory(name: str, value: Any) -> ArrowTable:
    table = TABLES[name]
    if isinstance(value, pa.Table):
        return _conform(value, table, "the table given")
    if not isinstance(value, Mapping):
        value = {c.name: [row.get(c.name) for row in value] for c in table.columns}
    columns = {c.name: value[c.name] for c in table.columns if c.name in value}
    arrays = [_array(columns[c.name], c.dtype) for c in table.columns if c.name in columns]
    return _conform(pa.table(arrays, names=list(columns)), table, "the columns given")


def _array(values: Any, dtype: DType) -> Any:
    if dtype is not DType.TIMESTAMP:
        return pa.array(values, type=_ARROW[dtype])
    array = pa.array(values)
    if pa.types.is_null(array.type) or pa.types.is_integer(array.type):
        return array.cast(pa.int64()).cast(_ARROW[dtype])
    return array.cast(pa.timestamp("ms")).cast(_ARROW[dtype])


def _conform(found: ArrowTable, table: Table, place: str) -> ArrowTable:
    """Bring a table to the columns and types of the model; absent nullable columns are null."""
    arrays = []
    found = _nest(found, table)
    for column in table.columns:
        if column.name in found.column_names:
            arrays.append(_cast(found[column.name], column.dtype, f"{table.name}.{column.name}"))
        elif column.nullable:
            arrays.append(pa.nulls(found.num_rows, _ARROW[column.dtype]))
        else:
            raise SourceError(
                f"{place}: table {table.name} has no column {column.name}; "
                f"was it written by another version of holdfast?"
            )
    conformed: ArrowTable = pa.table(arrays, schema=_schema(table))
    return conformed


def _nest(found: ArrowTable, table: Table) -> ArrowTable:
    """A flat view as the nested table it came from: one element per list."""
    flat = bool(table.explode) and table.explode not in found.column_names
    if not flat or table.flat_name not in found.column_names:
        return found
    values: Any = found[table.flat_name].cast(pa.int32()).combine_chunks()
    ends = pa.array(np.arange(found.num_rows + 1, dtype=np.int32))
    return found.append_column(table.explode, pa.ListArray.from_arrays(ends, values))


def _cast(column: Any, dtype: DType, place: str) -> Any:
    if column.type == _ARROW[dtype]:
        return column
    try:
        return column.cast(_ARROW[dtype], safe=dtype is not DType.TIMESTAMP)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(f"{place}: found {column.type}, expected {dtype}: {error}") from error


def _from_folder(folder: Path, wanted: Sequence[str]) -> dict[str, ArrowTable]:
    if not folder.is_dir():
        raise SourceError(f"{folder}: no such folder; expected one that `holdfast history -o` made")
    listed = _listed(folder)
    found: dict[str, ArrowTable] = {}
    for name in wanted:
        files = _files(folder, name) if listed is None else listed.get(name, [])
        if files:
            found[name] = _read_files(files, TABLES[name], folder / name)
    if not any(name in found for name in ("generations", "lag", "rebalances", "assignments")):
        raise SourceError(
            f"{folder}: no tables here; expected folders such as generations/ and assignments/ "
            "(write them with `holdfast history -b HOST:PORT -o DIR`)"
        )
    return found


def _listed(folder: Path) -> dict[str, list[Path]] | None:
    """Files of every table that the manifest names; None where there is no manifest."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        batches = json.loads(path.read_text(encoding="utf-8"))["batches"]
        named = [(t, name) for b in batches for t, fs in b["files"].items() for name, _ in fs]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{path}: not a manifest: {error!r}") from error
    files: dict[str, list[Path]] = {}
    for table, name in named:
        file = folder / str(name)
        if not file.resolve().is_relative_to(folder.resolve()):
            raise SourceError(f"{path}: names {name!r}, which is outside of the folder")
        files.setdefault(table, []).append(file)
    return files


def _files(folder: Path, name: str) -> list[Path]:
    single = folder / f"{name}.parquet"
    if single.is_file():
        return [single]
    files = sorted((folder / name).rglob("*.parquet")) if (folder / name).is_dir() else []
    hidden = (".", "_")
    return [f for f in files if not any(p.startswith(hidden) for p in f.relative_to(folder).parts)]


def _read_files(files: Sequence[Path], table: Table, place: Path) -> ArrowTable:
    parts = []
    for file in files:
        try:
            parts.append(_conform(pq.ParquetFile(file).read(), table, str(place)))
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{file}: not readable as Parquet: {error}") from error
    whole: ArrowTable = pa.concat_tables(parts)
    return whole
