"""Parquet files that somebody else may have written: opened, and read in pieces of bounded size.

**Rules.** A file that unpacks to more than MOST_TIMES its size is refused: by its footer, and where
a dictionary stands for its values, as soon as the values that were read are that much. A file that
unpacks to SMALL_BYTES is read whatever its size is. A value above MOST_VALUE_BYTES is refused.

**Strategy.** A footer counts a dictionary once, however often its values are used. So a file with
large values in a dictionary is read as dictionary and indices; the lengths of the values say how
many rows make a piece, before any of them is unpacked. Other files are read as they are, which
costs half of that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.core.model.columns import I64
from holdfast.errors import SourceError
from holdfast.fleet.tables.storage.places import Place, readable, size_of

BATCH_BYTES: Final = 8 << 20
BATCH_ROWS: Final = 65_536
MOST_TIMES: Final = 1_000
SMALL_BYTES: Final = 64 << 20
MOST_VALUE_BYTES: Final = 64 << 20


def open_parquet(path: Place | str, **options: Any) -> Any:
    """A Parquet file whose footer was looked at.

    Parameters
    ----------
    **options
        Of ``pyarrow.parquet.ParquetFile``, which is what it returns.

    Raises
    ------
    SourceError
        By its footer it unpacks to more than MOST_TIMES its size.
    """
    opened = pq.ParquetFile(readable(path), **options)
    about = opened.metadata
    unpacked = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    if unpacked > SMALL_BYTES:
        _check_size(path, size_of(path), unpacked)
    return opened


def row_groups_of(about: Any, column: str, values: Sequence[Any]) -> list[int]:
    """Row groups that may hold one of these values of a column, by the statistics of a footer.

    Parameters
    ----------
    values : sequence
        Ascending.
    """
    at = {about.schema.column(i).path: i for i in range(about.num_columns)}.get(column)
    if at is None:
        return list(range(about.num_row_groups))
    found = []
    for number in range(about.num_row_groups):
        said = about.row_group(number).column(at).statistics
        if (
            said is None
            or not said.has_min_max
            or ((i := bisect_left(values, said.min)) < len(values) and values[i] <= said.max)
        ):
            found.append(number)
    return found


def batches_of(
    path: Place | str, columns: Sequence[str], row_groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Columns of a Parquet file, in batches of about BATCH_BYTES, unpacked.

    Parameters
    ----------
    columns : sequence of str
        In the order of the batches.
    row_groups : sequence of int, optional
        All by default.

    Raises
    ------
    SourceError
        The file unpacks to too much, or a value is too large.
    OSError, ArrowException
        It cannot be read.
    """
    opened = open_parquet(path)
    groups = list(range(opened.num_row_groups) if row_groups is None else row_groups)
    about = [opened.metadata.row_group(i) for i in groups]
    n_bytes, n = sum(a.total_byte_size for a in about), sum(a.num_rows for a in about)
    n_rows = min(max(BATCH_BYTES * n // max(n_bytes, 1), 1), BATCH_ROWS)
    if _longest(path, columns, groups) * n_rows > 4 * BATCH_BYTES:
        opened = open_parquet(path, read_dictionary=list(columns))
    unpacked, size = 0, size_of(path)
    for rows in opened.iter_batches(
        n_rows, row_groups=groups, columns=list(columns), use_threads=False
    ):
        sizes = _sizes(path, rows)
        unpacked += int(sizes.sum())
        _check_size(path, size, unpacked)
        for start, stop in _pieces(sizes):
            yield _unpacked(rows.slice(start, stop - start).select(columns))


def _check_size(path: Place | str, size: int, unpacked: int) -> None:
    if unpacked > max(SMALL_BYTES, MOST_TIMES * size):
        raise SourceError(
            f"{path} has {size} bytes and unpacks to {unpacked} or more: refused, because no log "
            f"shrinks to a {MOST_TIMES}th of its size"
        )


def _longest(path: Place | str, columns: Sequence[str], groups: Sequence[int]) -> int:
    """Bytes of the longest value in the dictionaries of row groups; 0 without a dictionary.

    The first row brings the whole dictionary of its row group with it.
    """
    opened = open_parquet(path, read_dictionary=list(columns))
    longest = 0
    for group in groups:
        about = opened.metadata.row_group(group)
        listed = (about.column(i) for i in range(about.num_columns))
        # A number in a dictionary is as long as any other: only bytes are looked at.
        coded = [
            chunk.path_in_schema
            for chunk in listed
            if chunk.has_dictionary_page
            and chunk.physical_type == "BYTE_ARRAY"
            and chunk.path_in_schema in columns
        ]
        if not coded:
            continue
        for rows in opened.iter_batches(1, row_groups=[group], columns=coded, use_threads=False):
            found = [column for column in rows.columns if pa.types.is_dictionary(column.type)]
            lengths = (_lengths(column.dictionary) for column in found)
            longest = max(longest, *(int(length.max(initial=0)) for length in lengths), 0)
            break
    return longest


def _sizes(path: Place | str, rows: pa.RecordBatch) -> I64:
    """Bytes of each row, unpacked."""
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
    """Bytes of each value; a null has none."""
    if _is_bytes(column.type):
        found = pc.fill_null(pc.binary_length(column), 0)
        return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)
    return np.full(len(column), column.nbytes // max(len(column), 1), np.int64)


def _is_bytes(dtype: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(dtype) for is_kind in (*kinds, pa.types.is_string, pa.types.is_large_string))


def _pieces(sizes: I64) -> Iterator[tuple[int, int]]:
    """Rows that together have about BATCH_BYTES: first, and the one behind the last."""
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
