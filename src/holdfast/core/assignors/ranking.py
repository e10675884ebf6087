"""Members ordered by a number that changes; the lowest ones come first.

**Rules.** Members with equal numbers are in assignment order.

**Strategy.** Sorted lists and bisection. A change costs two searches, in two lists.

References: KAFKA-5337, "the consumer with the least lag".
"""

from __future__ import annotations

from bisect import bisect_left, insort

from holdfast.core.model.columns import F64, I32, I64

Entry = tuple[float, int, int]
"""Number, position in assignment order, member."""


class Ranking:
    """Members sorted by one number each: one list of all members, one list per subscription.

    Parameters
    ----------
    values : float64[n_members]
        The numbers; changed by :meth:`change`.
    rank : int64[n_members]
        Position of each member in assignment order.
    subscription : int32[n_members]
        Row of the subscription table for each.
    """

    def __init__(self, values: F64, rank: I64, subscription: I32):
        self.values: list[float] = values.tolist()
        self._rank: list[int] = rank.tolist()
        self._set_of: list[int] = subscription.tolist()
        self._all = sorted(map(self._entry, range(len(self.values))))
        self._alike: dict[int, list[Entry]] = {}
        for entry in self._all:
            self._alike.setdefault(self._set_of[entry[2]], []).append(entry)

    def change(self, member: int, value: float) -> None:
        """Give a member another number."""
        old = self._entry(member)
        self.values[member] = value
        new = self._entry(member)
        for row in (self._all, self._alike[self._set_of[member]]):
            del row[bisect_left(row, old)]
            insort(row, new)

    def lowest(self, n: int, like: int) -> list[int]:
        """Return the ``n`` lowest members, then the ``n`` next that subscribe as ``like`` does."""
        listed = [member for _, _, member in self._all[:n]]
        alike = [member for _, _, member in self._alike[self._set_of[like]][: 2 * n]]
        seen = set(listed)
        return listed + [member for member in alike if member not in seen][:n]

    def ordered(self, members: set[int]) -> list[int]:
        """Return some members, the lowest first."""
        return [member for _, _, member in sorted(map(self._entry, members))]

    def least(self) -> float:
        """The lowest number."""
        return self._all[0][0]

    def most(self) -> float:
        """The highest number."""
        return self._all[-1][0]

    def _entry(self, member: int) -> Entry:
        return self.values[member], self._rank[member], member
