"""Lag: from offsets to messages, as columns.

**Rules.** Lag is a count of messages, 0 or more. A committed offset below the first offset of its
partition counts as the first, one behind the end as the end. A partition without a commit has lag 0
under ``auto.offset.reset=latest``; under ``earliest`` and any other value it has all its messages.

References: KAFKA-5337.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.core.model.columns import I64, frozen
from holdfast.core.model.topics import Topics
from holdfast.errors import ModelError

NO_COMMIT = -1
"""Committed offset of a partition without one, as Kafka's own tools have it."""

MAX_LAG = 2**62
"""Largest lag read, so that sums of a few stay inside int64."""

LEAST_FALL = 1 / 60
"""Records per second; a lag that falls by less does not count as catching up."""

_MAX_SUM = float(2**61)


def lag_of_columns(begin: I64, end: I64, committed: I64, reset: str) -> I64:
    """Return messages between each committed offset and the end of its partition.

    Parameters
    ----------
    begin, end : int64[n]
        First existing offset, and the next to be written; ``begin <= end``.
    committed : int64[n]
        Offset at which the group continues, NO_COMMIT where it has none.
    reset : str
        ``auto.offset.reset`` of the group, in any case.

    Returns
    -------
    int64[n]
        At least 0.

    Raises
    ------
    ModelError
        Columns of different lengths, or an end before its beginning, with the index.
    """
    if not begin.shape == end.shape == committed.shape:
        text = f"{len(begin)}, {len(end)} and {len(committed)} entries, expected equal lengths"
        raise ModelError(text, column="begin, end, committed")
    turned = np.flatnonzero(end < begin)
    if turned.size:
        i = int(turned[0])
        raise ModelError(f"{end[i]} is before the beginning {begin[i]}", column="end", index=i)
    start = end if reset.lower() == "latest" else begin
    known = np.where(committed == NO_COMMIT, start, committed)
    lag: I64 = end - np.minimum(np.maximum(known, begin), end)
    return lag


def lag_column_of(values: npt.ArrayLike, label: str = "lags") -> I64:
    """Return lags given by a caller as one checked column; ``label`` names them in errors.

    Returns
    -------
    int64[n]
        Copied.

    Raises
    ------
    ModelError
        A lag that is negative or not an integer, with its index.
    """
    mixed = None if isinstance(values, np.ndarray) else object  # keeps 1 and 2.5 apart
    column: npt.NDArray[Any] = np.asarray(values, dtype=mixed)
    if column.size == 0:
        return np.zeros(0, dtype=np.int64)
    if column.ndim != 1:
        raise ModelError(f"shape {column.shape}, expected one dimension", column=label)
    if not np.issubdtype(column.dtype, np.integer):
        for index, value in enumerate(column.tolist()):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
                raise ModelError(f"{value!r}, expected messages", column=label, index=index)
    negative = np.flatnonzero(column < 0)
    if negative.size:
        index = int(negative[0])
        raise ModelError(f"{column[index]}, expected 0 or more", column=label, index=index)
    return column.astype(np.int64)


def lag_column(lags: Mapping[str, Sequence[int]] | None, topics: Topics) -> I64 | None:
    """Return lags by topic as one column, int64[n_tps]; a missing topic is 0. None for None."""
    if lags is None:
        return None
    column = np.zeros(topics.n_tps, np.int64)
    for topic, name in enumerate(topics.names):
        if name in lags:
            column[topics.start[topic] : topics.start[topic + 1]] = lags[name]
    return frozen(column)


def summable(lags: I64 | None, n_tps: int) -> I64:
    """Return lags whose sum is far inside int64: all shifted right if not; zeros for None."""
    if lags is None:
        return np.zeros(n_tps, dtype=np.int64)
    total = float(lags.sum(dtype=np.float64))
    shift = 0 if total < _MAX_SUM else int(np.ceil(np.log2(total / _MAX_SUM))) + 1
    return lags >> shift
