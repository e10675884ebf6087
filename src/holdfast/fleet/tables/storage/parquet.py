"""Parquet files: open them, and read them in pieces of bounded size.

**Rules.** Only this module opens the Parquet of dumps and of tables. A file that by its footer
unpacks to more than MOST_TIMES its size is refused; one that unpacks to at most SMALL_BYTES is
read, whatever its size. A folder of tables is the user's own, so its footers are trusted. A dump
may come from another person: its records are read in pieces (:meth:`BoundedParquet.batches`), and
refused as soon as the records read exceed that limit, or one value has more than MOST_VALUE_BYTES.

**Strategy.** A footer counts a dictionary once, however often its values are used. So the first
row of each row group of a dump is read with its dictionaries. If their longest values would make a
piece too large, the rows are read as dictionary and indices, and the lengths of the values give
the number of rows in a piece, before any value is unpacked. Other rows are read directly, which
costs a third of that.

Every read error, of the bytes or of the storage, is a SourceError of one sentence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.core.model.columns import I64
from holdfast.errors import SourceError
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of

BATCH_BYTES: Final = 8 << 20
BATCH_ROWS: Final = 65_536
MOST_TIMES: Final = 1_000
SMALL_BYTES: Final = 64 << 20
MOST_VALUE_BYTES: Final = 64 << 20
FETCHED_BYTES: Final = 16 << 20
"""A remote file of up to this size is fetched whole."""


@contextmanager
def reading(file: StoragePath | str) -> Iterator[None]:
    """Turn a Parquet error into one sentence; FileNotFoundError stays."""
    try:
        with file_system_of(file).translated_errors("read"):
            yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, OverflowError, pa.ArrowException) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise SourceError(f"{file}: not readable as Parquet: {reason}") from error


class BoundedParquet:
    """A Parquet file whose rows are read within the bounds of this module.

    Columns of ``read_dictionary`` stay dictionaries in :meth:`iter_batches`. ``metadata`` is a
    footer that was read before, and ``file`` another source of the bytes than ``path``.
    """

    def __init__(
        self,
        path: StoragePath | str,
        read_dictionary: Sequence[str] = (),
        metadata: Any = None,
        file: Any = None,
    ):
        self._path = path
        with reading(path):
            file = file_system_of(path).readable() if file is None else file
            self.size = int(file.size())
            if self.size <= FETCHED_BYTES and not isinstance(file, pa.OSFile):
                file = pa.BufferReader(file.read())
            self._file = file
            self._opened = pq.ParquetFile(file, read_dictionary=read_dictionary, metadata=metadata)
        self.metadata: Any = self._opened.metadata
        self.limit = max(SMALL_BYTES, MOST_TIMES * self.size)
        names = self.schema_arrow.names
        if len(set(names)) < len(names):
            raise SourceError(f"{path} has two columns of one name")
        self._refuse_above_limit(_least_size(self.metadata))

    @property
    def schema_arrow(self) -> pa.Schema:
        """Its columns, as Arrow reads them."""
        return self._opened.schema_arrow

    @property
    def num_row_groups(self) -> int:
        """Number of its row groups."""
        return int(self.metadata.num_row_groups)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read columns of all row groups, by default all columns."""
        return self.read_row_groups(range(self.num_row_groups), columns)

    def read_row_groups(
        self, row_groups: Sequence[int], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read columns of some row groups, by default all columns."""
        named = None if columns is None else list(columns)
        with reading(self._path):
            rows = self._opened.read_row_groups(list(row_groups), columns=named)
            rows.validate(full=True)
        return rows

    def iter_batches(
        self, n_rows: int, row_groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns in batches; columns of ``read_dictionary`` stay dictionaries."""
        with reading(self._path):
            yield from self._opened.iter_batches(
                n_rows, row_groups=list(row_groups), columns=list(columns)
            )

    def batches(
        self, columns: Sequence[str], row_groups: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        """Read columns in batches of about BATCH_BYTES, unpacked."""
        about = [self.metadata.row_group(i) for i in row_groups]
        n_bytes, n = sum(a.total_byte_size for a in about), sum(a.num_rows for a in about)
        n_rows = min(max(BATCH_BYTES * n // max(n_bytes, 1), 1), BATCH_ROWS)
        coded = [one for one in columns if _is_bytes(self.schema_arrow.field(one).type)]
        opened = pq.ParquetFile(self._file, read_dictionary=coded, metadata=self.metadata)
        if self._longest_coded(opened, coded, row_groups) * n_rows <= 4 * BATCH_BYTES:
            opened = self._opened
        unpacked = 0
        with reading(self._path):
            for rows in opened.iter_batches(
                n_rows, row_groups=list(row_groups), columns=list(columns), use_threads=False
            ):
                sizes = _sizes(self._path, rows)
                unpacked += int(sizes.sum())
                self._refuse_above_limit(unpacked)
                for start, stop in _pieces(sizes):
                    yield _unpacked(rows.slice(start, stop - start).select(columns))

    def _longest_coded(self, opened: Any, columns: list[str], row_groups: Sequence[int]) -> int:
        """Return the bytes of the longest value in the dictionaries of columns and row groups."""
        longest = 0
        with reading(self._path):
            for number in row_groups if columns else ():
                for rows in opened.iter_batches(1, row_groups=[number], columns=columns):
                    dictionaries = [one.dictionary for one in rows.columns]
                    longest = max(longest, *(int(_lengths(d).max(initial=0)) for d in dictionaries))
                    break
        return longest

    def _refuse_above_limit(self, unpacked: int) -> None:
        if unpacked > self.limit:
            raise SourceError(
                f"{self._path} has {self.size} bytes and unpacks to {unpacked} or more: refused, "
                f"because no log shrinks to a {MOST_TIMES}th of its size"
            )


def statistics_of(about: Any, column: str) -> list[Any]:
    """Return the statistics of a column, by row group; None without bounds.

    Arrow ends the process if statistics are compared with None by ``==`` or ``in``.
    """
    at = {about.schema.column(i).path: i for i in range(about.num_columns)}.get(column)
    if at is None:
        return [None] * int(about.num_row_groups)
    said = [about.row_group(i).column(at).statistics for i in range(about.num_row_groups)]
    return [one if one is not None and one.has_min_max else None for one in said]


def row_groups_of(about: Any, column: str, values: Sequence[Any]) -> list[int]:
    """Return row groups that may contain one of ``values``, which ascend, by statistics."""
    return [
        number
        for number, said in enumerate(statistics_of(about, column))
        if said is None
        or ((i := bisect_left(values, said.min)) < len(values) and values[i] <= said.max)
    ]


def batches_of(
    path: StoragePath | str, columns: Sequence[str], row_groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a Parquet file, in batches of about BATCH_BYTES, unpacked."""
    opened = BoundedParquet(path)
    yield from opened.batches(
        columns, range(opened.num_row_groups) if row_groups is None else row_groups
    )


def _least_size(about: Any) -> int:
    """Return the unpacked bytes by a footer: its pages, or as many values as it has rows."""
    columns = [about.schema.column(i) for i in range(about.num_columns)]
    row = sum(max(int(one.length or 0), 4) for one in columns if not one.max_repetition_level)
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    return sum(max(one.total_byte_size, one.num_rows * row) for one in groups)


def _sizes(path: StoragePath | str, rows: pa.RecordBatch) -> I64:
    """Return the bytes of each row, unpacked."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        if pa.types.is_dictionary(column.type):
            at = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False)
            length = np.append(_lengths(column.dictionary), 0)[at]
        else:
            length = _lengths(column)
        if int(length.max(initial=0)) > MOST_VALUE_BYTES:
            raise SourceError(
                f"{path} has a value of {int(length.max())} bytes, expected at most "
                f"{MOST_VALUE_BYTES}"
            )
        total += length
    return total


def _lengths(column: pa.Array) -> I64:
    """Return the bytes of each value; a null has none."""
    if _is_bytes(column.type):
        found = pc.fill_null(pc.binary_length(column), 0)
        return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)
    return np.full(len(column), column.nbytes // max(len(column), 1), np.int64)


def _is_bytes(dtype: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(dtype) for is_kind in (*kinds, pa.types.is_string, pa.types.is_large_string))


def _pieces(sizes: I64) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of about BATCH_BYTES: the first, and the one behind the last."""
    if not len(sizes):
        return
    turn = (np.cumsum(sizes) - sizes) // BATCH_BYTES
    cuts = np.flatnonzero(np.diff(turn)) + 1
    yield from pairwise([0, *cuts.tolist(), len(sizes)])


def _unpacked(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
