"""Numbers about many generations at once, as columns: the fleet's side of :mod:`.measure`.

**Rules.** A generation is a row; the members of all rows are in one column, sorted by row. A number
means the same as the number of that name in :mod:`holdfast.core.model.measure`, which is about one
assignment.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.model.columns import F64, I64


def balance_scores(load: I64, row: I64, n_rows: int) -> I64:
    """Return the sum over all pairs of members of the difference of their loads, for each row.

    Parameters
    ----------
    load : int64[n_member_rows]
        Topic-partitions of each member.
    row : int64[n_member_rows]
        Row of each member, ascending.

    Returns
    -------
    int64[n_rows]
        Topic-partitions; 0 is perfect.

    References: KIP-54, "The Algorithm": overall balance score.
    """
    ordered = load[np.lexsort((load, row))]
    size = np.bincount(row, minlength=n_rows)
    place = np.arange(len(row)) - (np.cumsum(size) - size)[row]
    score = np.zeros(n_rows, np.int64)
    np.add.at(score, row, ordered * (2 * place - (size[row] - 1)))
    return score


def kept_share(kept: I64, moved: I64) -> F64:
    """Return kept / (kept + moved) of each row, 0 to 1: stickiness. NaN without owners before."""
    total = kept + moved
    return np.where(total > 0, kept / np.maximum(total, 1), np.nan)


def needed_moves(load: I64, before: I64, row: I64, n_moved_or_kept: I64) -> I64:
    """Return the least moves at the most even loads, if all members read the same topics.

    Parameters
    ----------
    load : int64[n_member_rows]
        Topic-partitions of each member.
    before : int64[n_member_rows]
        How many of the partitions that have an owner in this row the member owned last.
    row : int64[n_member_rows]
        Row of each member, ascending.
    n_moved_or_kept : int64[n_rows]
        Partitions of the row that have an owner in it and had one before.

    Returns
    -------
    int64[n_rows]
        Moves: partitions of departed members, and what members hold beyond their even share.

    Notes
    -----
    With ``T`` partitions over ``m`` members the even share is ``T // m``, and one more for
    ``T % m`` of them; most partitions stay if the members that held most get the extra one.
    """
    n_rows = len(n_moved_or_kept)
    size = np.bincount(row, minlength=n_rows)
    total = np.bincount(row, load, n_rows).astype(np.int64)
    share, extra = total // np.maximum(size, 1), total % np.maximum(size, 1)
    order = np.lexsort((-before, row))
    place = np.arange(len(row)) - (np.cumsum(size) - size)[row]
    capacity = share[row] + (place < extra[row])
    kept = np.bincount(row, np.minimum(before[order], capacity), n_rows).astype(np.int64)
    return n_moved_or_kept - kept
