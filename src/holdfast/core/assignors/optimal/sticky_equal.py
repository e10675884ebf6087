"""The closed form of ``sticky`` for members that all subscribe to the same topics.

**Rules.** With ``P`` partitions and ``N`` members every load is ``floor`` or ``ceil`` of ``P / N``.
Of the members that claim more than the floor, the first ``P mod N`` in assignment order may keep
the ceiling, the others the floor. Each member keeps as many claims as that allows. The goals leave
the rest open, and Kafka's order decides it (checked against Kafka 4.3.1): members in assignment
order, free partitions by topic and then by number, so that every topic is spread over the members.
Free partitions go round robin to members below the floor, then one each to members at the floor.

**Strategy.** Columns only: one sort of the open slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.optimal.sticky_spread import crowded, spread
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, within
from holdfast.core.model.group import Group
from holdfast.core.model.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Members and topics that are solved alone: no other member reads the topics of the part."""

    members: I32  # int32[...]: in assignment order
    topics: I32  # int32[...]: topic indices, sorted
    # int32[n_members]: position of each member of the part in ``members``; entries of other members
    # are undefined.
    position: I32

    @classmethod
    def of(cls, group: Group, members: I32, topics: I32) -> Part:
        """Return a part by itself; several can share one ``position``."""
        position = np.zeros(group.n_members, np.int32)
        position[members] = np.arange(len(members), dtype=np.int32)
        return cls(members=members, topics=topics, position=position)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """Levels and prices of members, from which the certificate is computed."""

    level: I64  # int64[n_members]: each member holds this many partitions or one less
    minor: I64  # int64[n_members]: price of a member in cost of racks and moves

    @classmethod
    def of(cls, n_members: int) -> Prices:
        """Return prices of members that hold nothing."""
        return cls(level=np.zeros(n_members, np.int64), minor=np.zeros(n_members, np.int64))


def balance_equal(claims: Claims, part: Part, target: I32, prices: Prices) -> None:
    """Fill ``target`` for the topics of ``part``, whose members all subscribe to all of them.

    Parameters
    ----------
    claims : Claims
        Normalised claims of the group.
    part : Part
        At least one member and one topic.
    target : int32[n_tps]
        Written where the topic is in ``part``; must be NO_OWNER there.
    prices : Prices
        Written for the members of the part.

    References: KAFKA-9987; KAFKA-12464 (count members at the ceiling exactly); KAFKA-16277 (what is
    kept is cut by partition first); ``ConstrainedAssignmentBuilder`` of Kafka 4.3.1 (order of the
    rest).
    """
    topics = claims.group.topics
    tps = topics.tps_in(part.topics)
    floor, n_over = divmod(len(tps), len(part.members))
    position = part.position
    owner = claims.owner[tps]
    claimed = owner != NO_OWNER
    claims_of = np.bincount(position[owner[claimed]], minlength=len(part.members))
    quota = np.full(len(part.members), floor)
    quota[np.flatnonzero(claims_of > floor)[:n_over]] += 1
    kept = np.where(claimed, owner, NO_OWNER).astype(np.int32)
    stays = np.minimum(claims_of, quota)
    slots = _open_slots(stays, quota, floor, len(tps) - int(stays.sum()))
    over = claims_of > quota
    # Kafka's order first. Where it crowds a topic on a member, what is above the quota is cut
    # evenly over topics; what still is crowded then is exchanged.
    for even in (False, True) if over.any() else (False,):
        left = kept.copy()
        if over.any():
            cut_to_quota(topics, tps, left, position, quota, even=even)
        target[tps] = left
        free = tps[left == NO_OWNER]
        fill_slots(claims, target, free, part.members[slots])
        if not len(crowded(claims.group, target, free)):
            break
    else:
        spread(claims, target, free, _choice(tps, kept, over, position))
    load = stays + np.bincount(slots, minlength=len(stays))
    prices.level[part.members] = floor + 1
    prices.minor[part.members] = _minor_prices(claims_of, load, floor)


def _choice(tps: I32, kept: I32, over: Mask, position: I32) -> I32:
    """Return claims of members above their quota: which of them stay is open."""
    if not over.any():
        return tps[:0]
    claimed = np.flatnonzero(kept != NO_OWNER)
    return tps[claimed[over[position[kept[claimed]]]]]


def cut_to_quota(
    topics: Topics, tps: I32, kept: I32, position: I32, quota: I64, *, even: bool
) -> None:
    """Take from members above their quota.

    Parameters
    ----------
    kept : int32[len(tps)]
        Owner of each of ``tps`` (sorted); set to NO_OWNER where it is taken.
    position : int32[n_members]
        Index into ``quota`` of each member.
    even : bool
        False: members keep their first partitions by number, then topic, as Kafka does. True:
        members give partitions of the topics that they have most of. Each member begins with the
        topic where the member before stopped, so the given partitions are spread over topics.
    """
    owned = np.flatnonzero(kept != NO_OWNER)
    row = position[kept[owned]]
    over: Mask = np.bincount(row, minlength=len(quota)) > quota
    owned, row = owned[over[row]], row[over[row]]
    first, second = topics.partition_of[tps[owned]].astype(np.int64), tps[owned].astype(np.int64)
    if even:
        first, second = (
            _occurrence(topics, tps[owned], row),
            _rotated(topics, tps[owned], row, quota),
        )
    order = np.lexsort((second, first, row))
    owned, row = owned[order], row[order]
    rank = within(np.bincount(row, minlength=len(quota)))
    kept[owned[rank >= quota[row]]] = NO_OWNER


def _occurrence(topics: Topics, tps: I32, row: I32) -> I64:
    """Count the entries of the same topic and row before each of ``tps`` (sorted)."""
    key = row * np.int64(topics.n_topics) + topics.topic_of[tps]
    order = np.argsort(key, kind="stable")
    rank = np.empty(len(tps), np.int64)
    rank[order] = within(np.unique(key, return_counts=True)[1])
    return rank


def _rotated(topics: Topics, tps: I32, row: I32, quota: I64) -> I64:
    """Return each topic's position in an order that begins where the row before stopped."""
    given = np.maximum(np.bincount(row, minlength=len(quota)) - quota, 0)
    given[np.bincount(row, minlength=len(quota)) == 0] = 0
    shift = np.cumsum(given) - given
    distinct_topics, topic = np.unique(topics.topic_of[tps], return_inverse=True)
    return np.asarray((topic + shift[row]) % len(distinct_topics), dtype=np.int64)


def _open_slots(claims_of: I64, quota: I64, floor: int, n_free: int) -> I64:
    """Return the member position for each free partition, int64[n_free], in assignment order."""
    needs = np.maximum(floor - claims_of, 0)
    needy = np.flatnonzero(needs)
    lap = within(needs[needy])
    receiver = np.repeat(needy, needs[needy])
    order = np.argsort(lap * np.int64(len(claims_of)) + receiver, kind="stable")
    lap, receiver = lap[order], receiver[order]
    filled = receiver[lap + 1 == needs[receiver]]  # in the order in which they reach the floor
    at_floor = np.flatnonzero((claims_of == floor) & (quota == floor))
    rest = np.concatenate((at_floor, filled))
    return np.concatenate((receiver, rest[: n_free - len(receiver)]))


def _minor_prices(claims_of: I64, load: I64, floor: int) -> I64:
    """Return the price of each member: the moves that one more slot at the member would save.

    One more slot keeps a claim at a member that holds fewer partitions than it claims: the price is
    ``top``. A member that takes partitions of others has the price ``top - 1``, since each such
    partition costs a move. Prices are at least 0 at the ceiling and at most 0 at the floor.
    """
    more, above = load > claims_of, load > floor
    top = int((more & above).any())
    takes = more | ((load == claims_of) & ~above)
    return np.where(takes, top - 1, top).astype(np.int64)


def fill_slots(claims: Claims, target: I32, free: I32, slots: I32, row: I64 | None = None) -> None:
    """Give each of the partitions ``free`` to the member at the same position of ``slots``.

    Parameters
    ----------
    free, slots : int32[n]
        Topic-partitions without an owner yet, and members with an open slot, in assignment order.
    row : int64[n], optional
        Slots of different rows must not be exchanged.

    Notes
    -----
    Previous owners (older claims) with an open slot are served first, newest claim first; the rest
    keeps its order.
    """
    assert len(free) == len(slots), (len(free), len(slots))
    if len(claims.previous_tp) == 0:
        target[free] = slots
        return
    row = np.zeros(len(free), np.int64) if row is None else row
    left, positions = _serve_previous(claims, target, free, slots, row)
    target[free[left]] = slots[positions]


def _serve_previous(
    claims: Claims, target: I32, free: I32, slots: I32, row: I64
) -> tuple[I64, I64]:
    """Give free partitions to previous owners; return the positions left, of free and slots.

    Kernel: a loop over older claims of free partitions whose member has an open slot, and over the
    open slots.
    """
    position = np.full(len(target), -1, np.int64)
    position[free] = np.arange(len(free))
    has_slot = np.zeros(claims.group.n_members, np.bool_)
    has_slot[slots] = True
    may = (position[claims.previous_tp] >= 0) & has_slot[claims.previous_member]
    members, at_free = claims.previous_member[may], position[claims.previous_tp[may]]
    has_slot[:] = False
    has_slot[members] = True
    open_at: dict[tuple[int, int], list[int]] = {}
    for at in np.flatnonzero(has_slot[slots])[::-1].tolist():
        open_at.setdefault((int(row[at]), int(slots[at])), []).append(at)
    unused, left = np.ones(len(slots), np.bool_), np.ones(len(free), np.bool_)
    for member, at in zip(members.tolist(), at_free.tolist(), strict=True):
        positions = open_at.get((int(row[at]), member))
        if positions and left[at]:
            left[at] = False
            unused[positions.pop()] = False
            target[free[at]] = member
    return np.flatnonzero(left), np.flatnonzero(unused)
