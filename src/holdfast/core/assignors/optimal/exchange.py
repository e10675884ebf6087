"""Exchanges between two members that even out lag and keep the balance of counts.

**Rules.** An exchange takes one partition from a member above the mean lag per weight, gives it to
a member below the mean, and takes one back (or none, where the counts allow). The *gain* of an
exchange is the fraction by which the higher of the two lags falls. An exchange with a gain below 1
% is not made (less for members that hold many partitions).

- An exchange that breaks no more claims than it restores is made at once.
- Other exchanges are made in runs. A run relieves one member. It is made only if the whole run
  lowers the lag of this member by at least ``min_gain``. If the run would break more than
  ``max_moves`` claims, only its first exchanges are made.

Counts stay within the allowed skew: after every exchange no chain would make them more even.

Noise causes no moves. In an even group no member is far above the mean, so no run gains much. Where
a few large partitions keep a group uneven, noise can turn an exchange without gain into one with at
most about four times the noise.

**Strategy.** Members above the mean are handled one by one, the highest first. For each, one small
table holds the gain of every partition that it can give for every partition that a member with
little lag can give back. Each exchange lowers the higher of two lags, and the number of passes is
bounded. Members are kept in order of their level, so a step looks at a few of them, however many
there are. The Python loop is the named kernel ``even_out``: over members and exchanges, never over
partitions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from holdfast.core.assignors.optimal.levelling import Levelling, Move
from holdfast.core.model.columns import F64, I32, I64, Mask

FREE_GAIN = 0.01
"""Gain that an exchange needs if it breaks no claim."""

_PASSES = 16
_CANDIDATES = 16
_PAIRS = 10_000
_SAMPLE = 96
_ROW = 32
_TRIES = 8
_PER_MEMBER = 16
_CHECK_STEPS = 5_000_000
_NOTHING = np.array([-1], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """One possible exchange; its cost is the number of claims it breaks less those it restores."""

    cost: int
    moves: list[Move]


class Exchanges:
    """The state of :func:`even_out`."""

    def __init__(
        self,
        state: Levelling,
        lags: I64,
        *,
        min_gain: float,
        max_moves: int | None,
    ):
        self.state = state
        self.lags = lags
        self.min_gain = min_gain
        group = state.group
        self.equal = group.n_sets == 1
        lag = np.zeros(group.n_members, dtype=np.float64)
        owned = state.owner >= 0
        np.add.at(lag, state.owner[owned], lags[owned].astype(np.float64))
        self.lag: F64 = lag
        self.mean = float(lag.sum() / max(state.weight.sum(), 1e-9))
        broken = (state.claimed >= 0) & (state.claimed != state.owner) & owned
        self.room = None if max_moves is None else max_moves - int(broken.sum())
        self.checks = max(16, _CHECK_STEPS // (group.topics.n_tps + int(group.sub_start[-1]) + 1))
        self.n_candidates = max(_CANDIDATES // 4, min(_CANDIDATES, _PAIRS // (group.n_members + 1)))
        self.n_pairs = 0
        self.levels = Ranking(lag / state.weight, state.rank, group.subscription)
        nobody = np.zeros(group.n_members, dtype=np.int32)
        self.saved = Ranking(state.saved(), state.rank, nobody)
        self.prices = Ranking(state.price(), state.rank, nobody)
        self._rows: dict[int, I64] = {}
        foreign = np.flatnonzero(owned & (state.claimed != state.owner))
        self.has_foreign: Mask = np.zeros(group.n_members, dtype=np.bool_)
        self.has_foreign[state.owner[foreign]] = True
        # claims of a member that other members hold
        self.away: dict[int, set[int]] = defaultdict(set)
        for tp in foreign.tolist():
            self.away[int(state.claimed[tp])].add(tp)

    def run(self) -> None:
        """Exchange until no exchange gains, or the bound on passes is reached."""
        for _ in range(_PASSES):
            level = np.array(self.levels.values)
            above = np.flatnonzero(level > self.mean * (1 + FREE_GAIN))
            order = above[np.lexsort((self.state.rank[above], -level[above]))].tolist()
            if not sum(
                self._exchange_free(member) + self._exchange_any(member) for member in order
            ):
                return

    def _exchange_free(self, high: int) -> int:
        """Make the exchanges for one member that cost no claims; return their number."""
        steps = _PER_MEMBER * self._parts(high)
        for done in range(steps):
            holders = None
            if not self.has_foreign[high]:
                holders = set(self.state.owner[list(self.away.get(high, ()))].tolist())
            if self._best(high, self._candidates(high, holders), by_cost=True) is None:
                return done
        return steps

    def _exchange_any(self, high: int) -> int:
        """Make a run of exchanges for one member; undo it unless the whole run gains enough.

        The search ignores claims. So in the next round, with this result as claims and the same
        lags, the search finds the same run, and undoes it again.
        """
        before = self.levels.values[high]
        if before <= self.mean or 1 - self.mean / before < self.min_gain:
            return 0
        made: list[_Offer] = []
        while len(made) < _PER_MEMBER * self._parts(high):
            offer = self._best(high, self._candidates(high), by_cost=False)
            if offer is None:
                break
            made.append(offer)
        kept = 0
        if 1 - self.levels.values[high] / before >= self.min_gain:
            kept = len(made) if self.room is None else self._affordable(made, self.room)
        for offer in reversed(made[kept:]):
            self._apply(offer, back=True)
        return kept

    def _affordable(self, made: list[_Offer], room: int) -> int:
        """Return how many of the first exchanges the cap allows; lower the cap by their cost."""
        for kept, offer in enumerate(made):
            if offer.cost > room:
                self.room = room
                return kept
            room -= offer.cost
        self.room = room
        return len(made)

    def _parts(self, high: int) -> int:
        """Return how many times more and smaller steps a member with many partitions makes."""
        return max(1, self.state.rows[high].size // _ROW)

    def _candidates(self, high: int, among: set[int] | None = None) -> I64:
        """Return members with the least lag: of all, then of those with the same subscription.

        A member is left out if evening out both lags exactly would gain too little. ``among``
        restricts the choice.
        """
        level, weight, n = self.levels.values[high], self.state.weight, self.n_candidates
        if level <= self.mean:
            return np.empty(0, dtype=np.int64)
        listed = (
            self.levels.lowest(n, high) if among is None else self.levels.ordered(among)[: 2 * n]
        )
        low = np.array(listed, dtype=np.int64)
        even = (self.lag[high] + self.lag[low]) / (weight[high] + weight[low])
        worth: I64 = low[1 - even / level >= FREE_GAIN / self._parts(high)]
        return worth

    def _best(self, high: int, lows: I64, *, by_cost: bool) -> _Offer | None:
        """Make the best exchange of ``high`` that is worth it and keeps the balance."""
        if lows.size == 0:
            return None
        self.n_pairs += lows.size
        gain, given, taken, column_low = self._gains(high, lows, by_cost)
        for _ in range(_TRIES):
            at = int(gain.argmax())
            i, j = divmod(at, gain.shape[1])
            if not gain[i, j] >= FREE_GAIN / self._parts(high):
                return None
            low = int(column_low[j])
            moves = [Move(tp=int(given[i]), source=high, end=low)]
            if taken[j] >= 0:
                moves.append(Move(tp=int(taken[j]), source=low, end=high))
            offer = _Offer(cost=self.state.cost(moves), moves=moves)
            self._apply(offer)
            if self._keeps_balance(moves):
                return offer
            self._apply(offer, back=True)
            gain[:, j] = -np.inf
        return None

    def _gains(self, high: int, lows: I64, by_cost: bool) -> tuple[F64, I64, I64, I64]:
        """Return the gain of every exchange, float64[n_given, n_taken], -inf if forbidden.

        Also return the partition of each row, the partition of each column (-1: nothing is given
        back), and the member of each column.
        """
        state, topic_of = self.state, self.state.group.topics.topic_of
        given = self._by_lag(high)[1:]
        rows = [self._by_lag(low) for low in lows.tolist()]
        sizes = [row.size for row in rows]
        taken, column_low = np.concatenate(rows), np.repeat(lows, sizes)
        back = taken >= 0
        shift = self.lags[given].astype(np.float64)[:, None] - np.where(back, self.lags[taken], 0)
        weight = state.weight[column_low]
        after = np.maximum(
            (self.lag[high] - shift) / state.weight[high], (self.lag[column_low] + shift) / weight
        )
        gain: F64 = 1 - after * (state.weight[high] / self.lag[high])
        gain[:, ~back & ~self._may_keep(high, column_low)] = -np.inf
        if not self.equal:
            may_take = np.array([state.may_read(low)[topic_of[given]] for low in lows.tolist()]).T
            gain[~np.repeat(may_take, sizes, axis=1)] = -np.inf
            gain[:, back & ~state.may_read(high)[topic_of[taken]]] = -np.inf
        if by_cost:
            claimed, claimed_back = state.claimed[given][:, None], state.claimed[taken]
            cost = (claimed == high).astype(np.int8) - (claimed == column_low)
            cost += np.where(back, (claimed_back == column_low).astype(np.int8), 0)
            cost -= np.where(back, claimed_back == high, 0).astype(np.int8)
            gain[cost > 0] = -np.inf
        return gain, given, taken, column_low

    def _may_keep(self, high: int, low: I64) -> Mask:
        """Return whether each member may take a partition of ``high`` and give nothing back.

        A member may not if a move back to ``high`` would then help. That move is the shortest of
        the chains that :meth:`_keeps_balance` looks for.
        """
        count, weight, slack = self.state.count, self.state.weight, self.state.slack
        saved = (2.0 * (count[low] + 1 - slack) - 1.0) / weight[low]
        taken_on = (2.0 * (count[high] - 1) + 1.0) / weight[high]
        allowed: Mask = saved <= taken_on * (1 + 1e-12)
        return allowed

    def _by_lag(self, member: int) -> I64:
        """Return -1 (give nothing back), then the member's partitions by lag, at most a sample.

        The answer is kept until the member's partitions change.
        """
        if member not in self._rows:
            tps = self.state.rows[member]
            tps = tps[np.lexsort((tps, self.lags[tps]))]
            if tps.size > _SAMPLE:
                tps = tps[np.linspace(0, tps.size - 1, _SAMPLE).astype(np.int64)]
            self._rows[member] = np.concatenate((_NOTHING, tps))
        return self._rows[member]

    def _apply(self, offer: _Offer, *, back: bool = False) -> None:
        moves = offer.moves
        if back:
            moves = [Move(tp=m.tp, source=m.end, end=m.source) for m in offer.moves]
        self.state.apply(moves)
        for move in moves:
            lag, claimed_by = float(self.lags[move.tp]), int(self.state.claimed[move.tp])
            self.lag[move.source] -= lag
            self.lag[move.end] += lag
            self._rows.pop(move.source, None)
            self._rows.pop(move.end, None)
            if claimed_by == move.end:
                self.away[claimed_by].discard(move.tp)
            else:
                self.has_foreign[move.end] = True
                self.away[claimed_by].add(move.tp)
        self._rank_again(moves)

    def _rank_again(self, moves: list[Move]) -> None:
        state = self.state
        for member in (moves[0].source, moves[0].end):  # the same two in every move of an offer
            self.levels.change(member, float(self.lag[member] / state.weight[member]))
            if len(moves) == 1:
                self.saved.change(member, float(state.saved(member)))
                self.prices.change(member, float(state.price(member)))

    def _keeps_balance(self, moves: list[Move]) -> bool:
        """Return whether no chain helps after the moves.

        A swap of two partitions always passes. Each member could already reach the other one, and
        every member that the other one reaches: no chain is new, and no load has changed.
        """
        state = self.state
        if len(moves) == 2:
            return True
        if self.equal:
            return is_even(self.saved.most(), self.prices.least())
        self.checks -= 1
        return self.checks >= 0 and state.is_level()


def even_out(
    state: Levelling, lags: I64, *, min_gain: float, max_moves: int | None = None
) -> Exchanges:
    """Exchange partitions between members until their lags are even.

    Parameters
    ----------
    state : Levelling
        Complete assignment, changed in place; its ``slack`` is the skew of counts allowed.
    lags : int64[n_tps]
        Messages, whose sum fits int64.
    min_gain : float
        Fraction, 0 or more, by which an exchange of claimed partitions must lower the higher lag.
    max_moves : int, optional
        Claims that may be broken in all, counting the claims already broken.

    Returns
    -------
    Exchanges
        The finished search, with its step counts.

    Notes
    -----
    Cost: at most 16 passes over the members; a step looks at 32 others at most, with a sample of
    at most 96 partitions of each.

    References: KAFKA-5337 and its users' requests.
    """
    exchanges = Exchanges(state, lags, min_gain=min_gain, max_moves=max_moves)
    exchanges.run()
    return exchanges


def within_skew(count: I64, weight: F64, slack: int) -> bool:
    """Return whether no single move helps in a group whose members all read everything."""
    highest = ((2.0 * (count - slack) - 1.0) / weight).max(initial=-np.inf)
    lowest = ((2.0 * count + 1.0) / weight).min(initial=np.inf)
    return is_even(float(highest), float(lowest))


def is_even(highest: float, lowest: float) -> bool:
    """Return whether the most that a member could save is at most the least another would pay."""
    return highest <= lowest + abs(lowest) * 1e-12


# Members ordered by a number that changes; the lowest ones come first.
#
# Members with equal numbers are in assignment order.
#
# Sorted lists and bisection. A change costs two searches, in two lists.
#
# References: KAFKA-5337, "the consumer with the least lag".


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
        """Return the lowest number."""
        return self._all[0][0]

    def most(self) -> float:
        """Return the highest number."""
        return self._all[-1][0]

    def _entry(self, member: int) -> Entry:
        return self.values[member], self._rank[member], member
