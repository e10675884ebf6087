"""``lag-sticky``: counts and lag even over all topics, and no move without a reason.

It has the features that users of lag assignors requested. Totals count over **all** topics. Options
limit how far counts may drift for the sake of lag, how much noise in lags is ignored, and how many
partitions move. Members may have unequal capacity.

**Rules.** In this order:

1. Every valid claim stays. The other partitions are placed: counts first, then the largest lag to
   the member with the least lag per weight.
2. If some member then holds more than ``max_skew`` partitions too many, the fewest partitions move
   that make counts even again (per weight). The moves are spread over donors
   and topics.
3. Lags are evened out by exchanges. Exchanges of claimed partitions must lower the higher lag by at
   least ``hysteresis`` percent. Exchanges that break no claim are free.

At most ``max_moves`` claims are broken in all; other moves are left to later rounds. The result is
a fixed point: given back as claims, it moves nothing. If ``max_moves`` cut the round short, the
next round continues from there instead.

**Strategy.** :mod:`~holdfast.core.assignors.optimal.levelling` does step 1, and step 2 for unequal
subscriptions; for equal ones step 2 is a cut to quotas.
:mod:`~holdfast.core.assignors.optimal.exchange` does step 3.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.optimal.exchange import even_out, within_skew
from holdfast.core.assignors.optimal.levelling import Levelling, assign_greedily, spread_count
from holdfast.core.assignors.result import Solution
from holdfast.core.model.columns import F64, I32, I64, NO_OWNER, Mask, row_of, within
from holdfast.core.model.group import Group
from holdfast.core.model.lag import summable

DEFAULT_HYSTERESIS = 10.0
"""Hysteresis in percent; 2 % of noise in every lag can ask for at most about 8 %."""


def lag_sticky(
    claims: Claims,
    *,
    max_skew: int = 0,
    hysteresis: float = DEFAULT_HYSTERESIS,
    max_moves: int | None = None,
    weights: Mapping[str, float] | None = None,
) -> Solution:
    """Spread counts and lag over all topics, moving little.

    Parameters
    ----------
    claims : Claims
        The claims of a group with ``lags``, or without: then counts alone are evened out.
    max_skew : int
        Partitions by which a member may exceed its even quota for the sake of lag.
    hysteresis : float
        Percent by which the higher of two lags must fall for an exchange of claimed partitions.
    max_moves : int, optional
        Claims that may be broken in one round.
    weights : mapping of str to float, optional
        Capacity by member id or instance id, 1 for those not named. Ids that are not in the group
        are ignored: the members may be absent.

    Notes
    -----
    Cost: about linear in partitions; see the modules of the three steps.

    References: KAFKA-5337; KAFKA-16277.
    """
    group = claims.group
    weight = weight_column(group, weights)
    lags = summable(group.lags, group.topics.n_tps)
    owner = claims.owner.copy()
    assign_greedily(group, owner, lags, weight)
    state = _level(claims, owner, lags, weight, max_skew=max_skew, max_moves=max_moves)
    even_out(state, lags, min_gain=hysteresis / 100, max_moves=max_moves)
    return Solution(target=state.owner)


def weight_column(group: Group, weights: Mapping[str, float] | None) -> F64:
    """Return the capacity of each member, float64[n_members]; an instance id comes first."""
    column = np.ones(group.n_members, dtype=np.float64)
    if weights is None:
        return column
    for member, member_id in enumerate(group.member_ids):
        instance_id = group.instance_ids[member]
        found = weights.get(member_id, 1.0)
        column[member] = found if instance_id is None else weights.get(instance_id, found)
    return column


def _level(
    claims: Claims, owner: I32, lags: I64, weight: F64, *, max_skew: int, max_moves: int | None
) -> Levelling:
    """Make counts even if they are not within the skew; ``owner`` is complete."""
    group = claims.group
    if group.n_sets == 1:
        count = np.bincount(owner[owner != NO_OWNER], minlength=group.n_members)
        if not within_skew(count, weight, max_skew):
            owner = _cut(claims, weight, max_moves)
            assign_greedily(group, owner, lags, weight)
        return Levelling(group, owner, claims.owner, weight, slack=max_skew)
    state = Levelling(group, owner, claims.owner, weight, slack=max_skew)
    if not state.is_level():
        _relieve(state, max_moves)
    return Levelling(group, state.owner, claims.owner, weight, slack=max_skew)


def _relieve(state: Levelling, max_moves: int | None) -> None:
    """Move along chains until none helps or too many claims break (kernel: one a chain)."""
    state.slack = 0
    state.reopen()
    broken = 0
    while (moves := state.step()) is not None:
        broken += state.cost(moves)
        if max_moves is not None and broken > max_moves:
            return
        state.apply(moves)


def _cut(claims: Claims, weight: F64, max_moves: int | None) -> I32:
    """Return the claims that stay: members above quota revoke the surplus, spread over topics.

    Every member begins with another topic. If all began with the same one, a new member would get
    that topic from all of them (KAFKA-16277).
    """
    group, owner = claims.group, claims.owner.copy()
    tps = np.flatnonzero(owner != NO_OWNER)
    count = np.bincount(owner[tps], minlength=group.n_members).astype(np.int64)
    n_tps = int(group.topics.n_partitions[group.set_topic].sum())
    surplus = np.maximum(count - _quota(count, weight, n_tps, group.assignment_order), 0)
    by_topic = np.lexsort((tps, group.topics.topic_of[tps], owner[tps]))
    tps = tps[by_topic]
    member, topic = owner[tps], group.topics.topic_of[tps]
    lap = within(_run_lengths(member, topic))
    turned = (topic + member) % max(group.topics.n_topics, 1)
    tps = tps[np.lexsort((tps, turned, -lap, member))]
    rank = within(count)
    given = rank < surplus[owner[tps]]
    if max_moves is not None:
        given = _capped(given, count, rank, weight, max_moves)
    owner[tps[given]] = NO_OWNER
    return owner


def _capped(given: Mask, count: I64, rank: I64, weight: F64, max_moves: int) -> Mask:
    """Keep only the ``max_moves`` most urgent moves: of members that hold most per weight."""
    member = row_of(np.append(0, np.cumsum(count)))
    chosen = np.flatnonzero(given)
    height = (count[member[chosen]] - rank[chosen]) / weight[member[chosen]]
    urgent = chosen[np.lexsort((member[chosen], -height))][:max_moves]
    capped = np.zeros(given.size, dtype=np.bool_)
    capped[urgent] = True
    return capped


def _quota(count: I64, weight: F64, n_tps: int, assignment_order: I32) -> I64:
    """Return each member's quota of partitions; ties by load, then by assignment order."""
    rank = np.empty(assignment_order.size, dtype=np.int64)
    rank[assignment_order] = np.arange(assignment_order.size)
    order = np.lexsort((rank, -count / weight))
    quota = np.empty(assignment_order.size, dtype=np.int64)
    quota[order] = spread_count(
        np.zeros(assignment_order.size, dtype=np.int64), weight[order], n_tps
    )
    return quota


def _run_lengths(member: I32, topic: I32) -> I64:
    """Return the length of each run of equal (member, topic) pairs of two sorted columns."""
    first = np.append(True, (member[1:] != member[:-1]) | (topic[1:] != topic[:-1]))
    return np.diff(np.append(np.flatnonzero(first), member.size)).astype(np.int64)
