"""Evening out lag by exchanges between two members, without touching the balance of counts.

**Rules.** An exchange gives one partition of a member above the mean lag per weight to one below
it, and takes one back (or none, where the counts allow). Its *gain* is how far the higher of the
two lags falls, as a share of it. An exchange that breaks no claim more than it mends needs a gain
of 1 %; one that moves claimed partitions needs the gain the caller asks for, and room under his
cap on moves. Counts stay within the skew allowed: after every exchange no chain would help.

Why noise moves nothing: where no exchange had a gain, lags that each change by a fraction e can
make one of at most about 4e. So with e = 2 % and the default of 10 % nothing moves.

**Strategy.** Members above the mean, the highest first, against those with the least lag: the best
exchange of two members comes from two sorted rows and ``searchsorted``. Each exchange lowers the
sum of lag * lag / w, passes are bounded. The Python loop is the named kernel ``even_out``: over
pairs of members and exchanges, never over partitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.assign.chains import Levelling, Move
from holdfast.model.columns import F64, I64

FREE_GAIN = 0.01
"""Gain that an exchange needs if it breaks no claim."""

_PASSES = 16
_CANDIDATES = 16
_PER_MEMBER = 16
_CHECK_STEPS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """Best exchange of one kind between two members."""

    gain: float
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
        held = state.owner >= 0
        np.add.at(lag, state.owner[held], lags[held].astype(np.float64))
        self.lag: F64 = lag
        self.mean = float(lag.sum() / state.weight.sum())
        broken = (state.claimed >= 0) & (state.claimed != state.owner) & held
        self.room = None if max_moves is None else max_moves - int(broken.sum())
        self.checks = max(16, _CHECK_STEPS // (group.topics.n_tps + int(group.sub_start[-1]) + 1))
        self.n_pairs = 0

    def run(self) -> None:
        """Exchange until nothing is gained, or the bound on passes is reached."""
        for _ in range(_PASSES):
            level = self._level()
            above = np.flatnonzero(level > self.mean * (1 + FREE_GAIN))
            order = above[np.lexsort((self.state.rank[above], -level[above]))]
            if not sum(self._relieve(member) for member in order.tolist()):
                return

    def _level(self) -> F64:
        level: F64 = self.lag / self.state.weight
        return level

    def _relieve(self, member: int) -> int:
        """Exchanges made for one member."""
        for done in range(_PER_MEMBER):
            level = self._level()
            if level[member] <= self.mean or not any(
                self._exchange(member, other) for other in self._candidates(member, level)
            ):
                return done
        return _PER_MEMBER

    def _candidates(self, member: int, level: F64) -> list[int]:
        """Members with the least lag: of all, then of those with the same subscription."""
        order = np.lexsort((self.state.rank, level))
        order = order[level[order] < level[member]]
        subscription = self.state.group.subscription
        alike = order[subscription[order] == subscription[member]][:_CANDIDATES]
        listed = order[: 2 * _CANDIDATES if self.equal else _CANDIDATES]
        return list(dict.fromkeys([*listed.tolist(), *alike.tolist()]))

    def _exchange(self, high: int, low: int) -> bool:
        """Make the best exchange of two members if it is worth it."""
        self.n_pairs += 1
        offers = [offer for offer in self._offers(high, low) if self._worth(offer)]
        for offer in sorted(offers, key=lambda offer: (offer.cost > 0, -offer.gain)):
            if self._make(offer):
                return True
        return False

    def _worth(self, offer: _Offer) -> bool:
        if offer.cost <= 0:
            return offer.gain >= FREE_GAIN
        return offer.gain >= max(self.min_gain, FREE_GAIN) and (
            self.room is None or offer.cost <= self.room
        )

    def _make(self, offer: _Offer) -> bool:
        state = self.state
        state.apply(offer.moves)
        if not self._keeps_balance(offer.moves):
            state.apply([Move(tp=m.tp, source=m.end, end=m.source) for m in offer.moves])
            return False
        for move in offer.moves:
            self.lag[move.source] -= float(self.lags[move.tp])
            self.lag[move.end] += float(self.lags[move.tp])
        if self.room is not None:
            self.room -= offer.cost
        return True

    def _keeps_balance(self, moves: list[Move]) -> bool:
        """Whether no chain helps after the moves; cheap answers first."""
        state, group = self.state, self.state.group
        if len(moves) == 2:
            one, other = moves
            topics = group.topics.topic_of
            alike = group.subscription[one.source] == group.subscription[one.end]
            if alike or topics[one.tp] == topics[other.tp]:
                return True  # the same loads, and the same topics in reach
        if self.equal:
            return within_skew(state.count, state.weight, state.slack)
        self.checks -= 1
        return self.checks >= 0 and state.is_level()

    def _offers(self, high: int, low: int) -> list[_Offer]:
        """Best exchange for every change in broken claims, from -2 to 2."""
        give = self._row(high, low)
        take = self._row(low, high)
        w_high, w_low = self.state.weight[high], self.state.weight[low]
        want = (self.lag[high] * w_low - self.lag[low] * w_high) / (w_high + w_low)
        nothing = (np.array([-1]), np.zeros(1))
        offers = []
        for give_cost, (given, given_lag) in give.items():
            rows = [(0, nothing), *take.items()]
            for take_cost, (taken, taken_lag) in rows:
                i, j, shift = _nearest(given_lag, taken_lag, want)
                after = max(
                    (self.lag[high] - shift) / w_high,
                    (self.lag[low] + shift) / w_low,
                )
                gain = 1 - after * w_high / self.lag[high]
                moves = [Move(tp=int(given[i]), source=high, end=low)]
                if taken[j] >= 0:
                    moves.append(Move(tp=int(taken[j]), source=low, end=high))
                offers.append(_Offer(gain=float(gain), cost=give_cost + take_cost, moves=moves))
        return offers

    def _row(self, source: int, end: int) -> dict[int, tuple[I64, F64]]:
        """What ``source`` holds and ``end`` may read, by cost in broken claims, by rising lag."""
        state, group = self.state, self.state.group
        tps = state.rows[source]
        if not self.equal:
            topics = group.topics.topic_of[tps]
            tps = tps[group.is_subscribed(np.full(tps.size, end), topics)]
        tps = tps[np.lexsort((tps, self.lags[tps]))]
        claimed = state.claimed[tps]
        cost = (claimed == source).astype(np.int64) - (claimed == end)
        split = {int(each): tps[cost == each] for each in np.unique(cost)}
        return {each: (row, self.lags[row].astype(np.float64)) for each, row in split.items()}


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
        Share, 0 or more, by which an exchange of claimed partitions must lower the higher lag.
    max_moves : int, optional
        Claims that may be broken in all, those already broken included.

    Returns
    -------
    Exchanges
        For its step counts.

    Notes
    -----
    Cost: O(k log k) a pair of members that hold k, O(n_members) pairs a pass, at most 16 passes.

    References
    ----------
    KAFKA-5337 and what its users asked for.
    """
    exchanges = Exchanges(state, lags, min_gain=min_gain, max_moves=max_moves)
    exchanges.run()
    return exchanges


def within_skew(count: I64, weight: F64, slack: int) -> bool:
    """Whether nobody should give a partition to anyone, where everyone may read everything."""
    highest = ((2.0 * (count - slack) - 1.0) / weight).max(initial=-np.inf)
    lowest = ((2.0 * count + 1.0) / weight).min(initial=np.inf)
    return bool(highest <= lowest + abs(lowest) * 1e-12)


def _nearest(give: F64, take: F64, want: float) -> tuple[int, int, float]:
    """Indices of the pair whose difference is nearest to ``want``, and the difference."""
    after = np.minimum(np.searchsorted(take, give - want), take.size - 1)
    before = np.maximum(after - 1, 0)
    both = np.stack((give - take[after], give - take[before]))
    which, i = np.unravel_index(int(np.abs(both - want).argmin()), both.shape)
    j = (after, before)[int(which)][i]
    return int(i), int(j), float(both[which, i])
