"""The dtypes of columns, and the few operations that every user of columns needs.

**Rules.** Indices are ``int32``; offsets, times, positions and CSR starts are ``int64``. A column
is read-only once it belongs to a value. No function depends on the meaning of a column.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
T = TypeVar("T", bound=np.integer[Any])

NO_OWNER = -1
"""Value of an owner column where a topic-partition has no owner."""


def frozen(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make a column read-only and return it."""
    column.setflags(write=False)
    return column


def starts(counts: npt.NDArray[Any]) -> I64:
    """Return CSR row starts, int64[n + 1], of rows with ``counts[i]`` values each."""
    start = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=start[1:])
    return start


def row_sizes(start: I64) -> I64:
    """Return the number of values in each row of a CSR pair, int64[n]."""
    return start[1:] - start[:-1]


def row_of(start: I64) -> I32:
    """Return the row index of every value of a CSR pair, int32[start[-1]]."""
    return np.repeat(np.arange(len(start) - 1, dtype=np.int32), row_sizes(start))


def within(counts: npt.NDArray[Any]) -> I64:
    """Return the position of every value inside its row, int64[sum(counts)]: ``0 1 2 0 1 ...``."""
    start = starts(counts)
    return np.arange(start[-1], dtype=np.int64) - np.repeat(start[:-1], counts)


def positions_in(start: I64, rows: npt.NDArray[Any]) -> tuple[I64, I64]:
    """Return the number of values of each of some ``rows`` of a CSR pair, and their positions."""
    first = start[rows]
    sizes = start[rows + 1] - first
    begin = starts(sizes)
    return sizes, np.arange(begin[-1]) + (first - begin[:-1]).repeat(sizes)


def index_in(wanted: I64, known: I64, order: I64 | None = None) -> I64:
    """Return the first position of each wanted value in ``known``, -1 for none.

    Parameters
    ----------
    order : int64, optional
        Sorts ``known``, equal values by position; computed if it is not given.
    """
    if not len(known):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(known, kind="stable") if order is None else order
    at = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    found = order[at]
    return np.where(known[found] == wanted, found, -1)


def distinct(key: npt.NDArray[T]) -> npt.NDArray[T]:
    """Return sorted values without repeats; sorts ``key`` in place.

    ``numpy.unique`` hashes integers since 2.3, which is many times slower where most are distinct.
    Its first call imports ``numpy.ma``, for which a leader's first round would wait 15 ms.
    """
    key.sort()
    new = np.ones(len(key), np.bool_)
    np.not_equal(key[1:], key[:-1], out=new[1:])
    return key[new]


def ranked(values: npt.NDArray[Any], n_values: int) -> tuple[I64, I64]:
    """Return distinct values, ascending, and each value's rank (0 to ``n_values - 1``).

    A table of all values takes linear time; it is not made where it would be mostly empty.
    """
    if n_values > 1024 + 16 * len(values):
        found, rank = np.unique(values, return_inverse=True)
        return found, rank
    met = np.zeros(n_values, np.bool_)
    met[values] = True
    found = met.nonzero()[0]
    rank_of = np.empty(n_values, np.int64)
    rank_of[found] = np.arange(len(found))
    return found, rank_of[values]


def stable_order(values: npt.NDArray[Any], n_values: int) -> npt.NDArray[np.intp]:
    """Return the order that sorts ``values`` (0 to ``n_values - 1``), equal ones by position.

    Sixteen bits are sorted by radix, which takes linear time; more are sorted as a key with the
    position below.
    """
    if n_values <= 1 << 16:
        return np.argsort(values.astype(np.uint16), kind="stable")
    key = values.astype(np.int64) << 32
    key |= np.arange(len(values))
    key.sort()
    return key & 0xFFFFFFFF
