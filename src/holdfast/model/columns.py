"""The dtypes of our columns, and the few operations every column user needs.

**Rules.** Indices are ``int32``; offsets, times, positions and CSR starts are ``int64``. A column
is read-only once it belongs to a value. Nothing here knows what a column means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

NO_OWNER = -1
"""Value of an owner column where a topic-partition has no owner."""


def frozen(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make a column read-only and return it."""
    column.setflags(write=False)
    return column


def starts(counts: npt.NDArray[Any]) -> I64:
    """CSR row starts, int64[n + 1], of rows with these counts."""
    start = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=start[1:])
    return start


def row_of(start: I64) -> I32:
    """Row index of every value of a CSR pair, int32[start[-1]]."""
    return np.repeat(np.arange(len(start) - 1, dtype=np.int32), np.diff(start))


def within(counts: npt.NDArray[Any]) -> I64:
    """Position of every value inside its row, int64[sum(counts)]: ``0 1 2 0 1 ...``."""
    start = starts(counts)
    return np.arange(start[-1], dtype=np.int64) - np.repeat(start[:-1], counts)
