"""Proof that an assignment is optimal, and a checker that trusts nothing but the proof.

**Rules.** The cost of an assignment is the sum of

- ``W`` times the sum of squared loads,
- ``R`` for each partition that is read across racks,
- 1 for each partition that is not with its owner by claims.

Where some member claims a partition under an older generation or as another one does, a move costs
``K`` instead of 1, and ``K + 1`` if it goes to a member that is not such a previous owner. ``K`` is
larger than the number of partitions, and ``R`` and ``W`` are as many times larger. So the goals in
their order are: balance, racks, claims kept, previous owners.

``R`` is larger than the number of partitions, and ``W`` is larger than everything that racks and
moves together can cost. So an assignment of least cost has the most balanced loads; among those it
has the fewest reads across racks; among those it keeps the most claims. With ``keeps`` False claims
are not a goal: every partition costs 1, whatever its owner.

The proof is a price for each member and each partition, such that

- the price of a member lies between what its last partition added to ``W`` times its squared load
  and what one more partition would add;
- the price of a partition is at most its cost at a member plus the price of that member, for every
  member that may have it;
- at the member that has it, the two are equal.

Any other assignment then costs at least as much: add up the second rule over its partitions and
compare the loads by the first. For example, one topic has 3 partitions and two members, without
claims. Loads of 2 and 1 are proven by the price ``3 W`` for both members. Loads of 3 and 0 have no
proof: the first member's price would be at least ``5 W``, the other's at most ``W``, and the price
of a partition cannot equal the first one and stay below the second.

The prices of one best assignment prove every other best one, and no worse one. So an assignor that
finds its answer in its own way is judged by the prices of ``sticky``. :func:`proves` checks these
rules and nothing else, in one pass. Of members with equal subscriptions and rack it looks only at
the cheapest.

References: Duality of convex-cost flow: Ahuja, Magnanti, Orlin, "Network Flows", 14.4. KIP-54,
KIP-881.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.core.assignors.claims import Claims
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, row_of, row_sizes
from holdfast.core.model.group import Group
from holdfast.core.model.measure import check_owner, crosses_rack, loads

LARGEST = 2**62
"""Above every price; costs are kept below, so that no sum of two leaves int64."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Certificate:
    """Prices that prove an assignment optimal."""

    # ``W`` and ``R`` of the cost; ``R`` is 0 where no racks are known.
    load_weight: int
    rack_weight: int
    member: I64  # int64[n_members]: price of one more partition at each member
    partition: I64  # int64[n_tps]: price of each topic-partition; 0 where no member subscribes
    keeps: bool = True  # whether claims kept are one of the goals, after balance and racks
    move_weight: int = 1  # ``K`` of the cost; 1 where previous owners are not a goal

    @property
    def prefers_previous(self) -> bool:
        """Whether previous owners are one of the goals, after claims kept."""
        return self.move_weight > 1

    def with_previous(self, claims: Claims, minor: I64, *, move_weight: int) -> Certificate | None:
        """Return the certificate with previous owners as one more goal.

        Parameters
        ----------
        minor : int64[n_members]
            Prices of members by the goal of previous owners alone.
        move_weight : int
            ``K``: above the number of partitions, and above twice every price of ``minor``.

        Returns
        -------
        Certificate or None
            None if the group is too large for prices in int64.
        """
        if int(np.abs(self.member).max(initial=0)) + self.load_weight >= LARGEST // move_weight:
            return None
        price = move_weight * self.member + minor
        rack_weight = move_weight * self.rack_weight
        partition = cheapest(claims, price, rack_weight, move_weight)
        return Certificate(
            load_weight=move_weight * self.load_weight,
            rack_weight=rack_weight,
            member=price,
            partition=partition,
            move_weight=move_weight,
        )


def proves(certificate: Certificate, claims: Claims, target: I32) -> bool:
    """Return whether the certificate proves ``target`` optimal, by every rule of the module."""
    if not certificate.keeps:
        claims = claims.without_owners()
    group, tps = claims.group, np.flatnonzero(target != NO_OWNER).astype(np.int32)
    check_owner(group, target)
    if (group.has_subscriber[group.topics.topic_of] != (target != NO_OWNER)).any():
        return False  # a partition with subscribers has no owner, or the other way round
    weight, rack_weight = certificate.load_weight, certificate.rack_weight
    n_tps, move = len(tps), certificate.move_weight
    if certificate.prefers_previous and move <= n_tps:
        return False
    stranger = int(certificate.prefers_previous)
    known_racks = group.topics.rack_start is not None
    most = move + stranger
    if weight <= n_tps * (rack_weight + most) or (known_racks and rack_weight <= n_tps * most):
        return False  # the weights do not keep the goals in order
    load, price = loads(target, group.n_members), certificate.member
    if ((price > weight * (2 * load + 1)) | ((load > 0) & (price < weight * (2 * load - 1)))).any():
        return False
    owner = target[tps]
    crossed = crosses_rack(group, tps, owner)
    moved = owner != claims.owner[tps]
    paid = rack_weight * crossed + move * moved + price[owner]
    if stranger:
        paid += moved & ~_has_previous(claims, target)[tps]
    stated = certificate.partition[tps]
    least = cheapest(claims, price, rack_weight, move)[tps]
    return bool((stated == paid).all() and (stated <= least).all())


def _has_previous(claims: Claims, target: I32) -> Mask:
    """Return whether each topic-partition is with a previous owner of it, bool[n_tps]."""
    previous_tp, previous_member = claims.all_previous
    mask = np.zeros(len(target), np.bool_)
    mask[previous_tp[target[previous_tp] == previous_member]] = True
    return mask


def cheapest(claims: Claims, price: I64, rack_weight: int, move_weight: int = 1) -> I64:
    """Return the least cost plus price of members that may have each topic-partition, int64[n_tps].

    Entries of topics without a subscriber are 0.
    """
    group = claims.group
    best = np.full(group.topics.n_tps, LARGEST, np.int64)
    for rack, per_topic in _per_topic(group, price):
        crosses = rack_crossings(group, rack)
        any_one = per_topic[group.topics.topic_of] + move_weight + (move_weight > 1)
        np.minimum(best, any_one + rack_weight * crosses, out=best)
    if move_weight > 1:
        previous_tp, previous_member = claims.all_previous
        crossed = rack_weight * crosses_rack(group, previous_tp, previous_member)
        np.minimum.at(best, previous_tp, price[previous_member] + move_weight + crossed)
    tps = np.flatnonzero(claims.owner != NO_OWNER).astype(np.int32)
    owner = claims.owner[tps]
    kept = rack_weight * crosses_rack(group, tps, owner) + price[owner]
    best[tps] = np.minimum(best[tps], kept)
    best[~group.has_subscriber[group.topics.topic_of]] = 0
    return best


def _per_topic(group: Group, price: I64) -> list[tuple[int, I64]]:
    """Return for each rack of members the least price of a subscriber in it, by topic."""
    rack = group.rack if group.topics.rack_start is not None else np.full_like(group.rack, -1)
    result = []
    for one in np.unique(rack).tolist():
        there = rack == one
        hub = np.full(group.n_sets, LARGEST, np.int64)
        np.minimum.at(hub, group.subscription[there], price[there])
        topic = np.full(group.topics.n_topics, LARGEST, np.int64)
        np.minimum.at(topic, group.set_topic, hub[row_of(group.set_start)])
        result.append((one, np.minimum(topic, LARGEST)))
    return result


def rack_crossings(group: Group, rack: int) -> npt.NDArray[Any]:
    """Return whether a member in ``rack`` reads each topic-partition across racks, bool[n_tps]."""
    topics = group.topics
    if topics.rack_start is None or topics.rack is None or rack < 0:
        return np.zeros(topics.n_tps, np.bool_)
    crosses = row_sizes(topics.rack_start) > 0
    crosses[row_of(topics.rack_start)[topics.rack == rack]] = False
    return crosses


def certify(claims: Claims, target: I32, level: I64, minor: I64) -> Certificate | None:
    """Build the certificate from the levels and prices of the solver.

    Parameters
    ----------
    target : int32[n_tps]
        The assignment to be proven.
    level : int64[n_members]
        Members hold their level or one partition less.
    minor : int64[n_members]
        Price of each member beyond its level, in units of ``R`` and 1.

    Returns
    -------
    Certificate or None
        None if the group is too large for prices in int64.
    """
    n_tps = int(np.count_nonzero(target != NO_OWNER))
    rack_weight = rack_weight_of(claims.group)
    span = int(minor.max() - minor.min()) if len(minor) else 0
    weight = n_tps * (rack_weight + 1) + span + 2
    if weight * (2 * int(level.max(initial=0)) + 2) >= LARGEST:
        return None
    price = weight * (2 * level - 1) + minor
    partition = cheapest(claims, price, rack_weight)
    return Certificate(
        load_weight=weight, rack_weight=rack_weight, member=price, partition=partition
    )


def rack_weight_of(group: Group) -> int:
    """Return the cost of a read across racks: above the number of partitions; 0 without racks."""
    return group.topics.n_tps + 1 if group.topics.rack_start is not None else 0
