"""Agreements of a replay with its recording, from 0 (nothing) to 1 (the same).

**Rules.** Every agreement compares two values in either order. It is 0 to 1, and 1 only if nothing
differs. The fidelity of a replay is its lowest agreement, so that a
good number cannot hide a bad one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

LOW_FIDELITY: Final = 0.8
"""Agreement below which the numbers of a replay are not to be trusted."""


def agreement_of_counts(left: float, right: float) -> float:
    """Return how near two counts are: (1 + the smaller) / (1 + the larger).

    Without the 1 that is added, 0 against 1 would count like 0 against 1000.
    """
    return (1 + min(left, right)) / (1 + max(left, right))


def agreement_of_sequences(left: Sequence[Hashable], right: Sequence[Hashable]) -> float:
    """Return twice the longest common subsequence over the summed lengths (Dice); 1 if empty.

    Notes
    -----
    Cost: O(len(left) * len(right) / 64).
    """
    total = len(left) + len(right)
    return 2 * common_subsequence(left, right) / total if total else 1.0


def common_subsequence(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence.

    References: H. Hyyrö, "Bit-parallel LCS-length computation revisited" (2004): a column of the
    table of the textbook method is one integer, a bit clear where the length grows.
    """
    lists_with: dict[Hashable, int] = {}
    for i, item in enumerate(left):
        lists_with[item] = lists_with.get(item, 0) | 1 << i
    full = (1 << len(left)) - 1
    row = full
    for item in right:
        found = row & lists_with.get(item, 0)
        row = ((row + found) | (row - found)) & full
    return len(left) - row.bit_count()


def fidelity(agreements: Sequence[float | None]) -> float | None:
    """Return the lowest of the agreements that are not None; None if all are None."""
    known = [a for a in agreements if a is not None]
    return min(known) if known else None
