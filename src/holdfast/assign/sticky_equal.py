"""The sticky optimum of members that all subscribe to the same topics: a closed form.

**Rules.** With ``P`` partitions and ``N`` members every load is ``floor`` or ``ceil`` of ``P / N``.
Of the members with more claims than the floor, as many as there may be at the ceiling keep one
more; each keeps what fits its quota. Nothing else is free in the goals, and the rest follows
Kafka's order: members in their turn, free partitions by partition number, then topic, dealt round
robin to members below the floor, then one each to members at the floor.

**Strategy.** Columns only: one sort of the free partitions, one of the open places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.assign.claims import Claims
from holdfast.model.columns import I32, I64, NO_OWNER, Mask, within
from holdfast.model.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Members and topics that can be dealt with alone: no other member reads these topics.

    Parameters
    ----------
    members : int32[...]
        In their turn.
    topics : int32[...]
        Topic indices, sorted.
    """

    members: I32
    topics: I32


def balance_equal(claims: Claims, part: Part, target: I32) -> int:
    """Fill ``target`` for the topics of ``part``, whose members all subscribe to all of them.

    Parameters
    ----------
    claims : Claims
        Normalised claims of the group.
    part : Part
        At least one member and one topic.
    target : int32[n_tps]
        Written where the topic is in ``part``; must be NO_OWNER there.

    Returns
    -------
    int
        The ceiling quota: loads of the part are this or one less.

    References
    ----------
    KAFKA-9987; KAFKA-12464 (count members at the ceiling exactly); KAFKA-16277 (what is kept is
    cut by partition first); ``ConstrainedAssignmentBuilder`` of Kafka 4.3.1 (order of the rest).
    """
    topics = claims.group.topics
    tps = tps_of(topics, part.topics)
    floor, n_over = divmod(len(tps), len(part.members))
    place = np.full(claims.group.n_members, NO_OWNER, np.int32)  # turn of each member in the part
    place[part.members] = np.arange(len(part.members), dtype=np.int32)
    owner = claims.owner[tps]
    claimed = owner != NO_OWNER
    held = np.bincount(place[owner[claimed]], minlength=len(part.members))
    quota = np.full(len(part.members), floor)
    quota[np.flatnonzero(held > floor)[:n_over]] += 1
    kept = np.where(claimed, owner, NO_OWNER).astype(np.int32)
    if (held > quota).any():
        cut_to_quota(topics, tps, kept, place, quota)
        held = np.minimum(held, quota)
    target[tps] = kept
    free = tps[kept == NO_OWNER]
    slots = _open_places(held, quota, floor, len(free))
    hand_out(claims, target, free, part.members[slots])
    return floor + 1


def tps_of(topics: Topics, chosen: I32) -> I32:
    """Topic-partitions of the topics ``chosen`` (sorted), int32[...]."""
    if len(chosen) == topics.n_topics:
        return np.arange(topics.n_tps, dtype=np.int32)
    counts = topics.n_partitions[chosen]
    return (np.repeat(topics.start[chosen], counts) + within(counts)).astype(np.int32)


def by_partition(topics: Topics, tps: I32) -> I32:
    """``tps`` sorted by partition number, then topic."""
    key = topics.partition_of[tps].astype(np.int64) << 32
    key |= tps
    key.sort()
    return (key & 0xFFFFFFFF).astype(np.int32)


def cut_to_quota(topics: Topics, tps: I32, kept: I32, place: I32, quota: I64) -> None:
    """Take from members above their quota; they keep their first partitions by number, then topic.

    Parameters
    ----------
    kept : int32[len(tps)]
        Owner of each of ``tps`` (sorted); set to NO_OWNER where it is taken.
    place : int32[n_members]
        Index into ``quota`` of each member.
    """
    owned = np.flatnonzero(kept != NO_OWNER)
    row = place[kept[owned]]
    over: Mask = np.bincount(row, minlength=len(quota)) > quota
    owned, row = owned[over[row]], row[over[row]]
    order = np.lexsort((tps[owned], topics.partition_of[tps[owned]], row))
    owned, row = owned[order], row[order]
    rank = within(np.bincount(row, minlength=len(quota)))
    kept[owned[rank >= quota[row]]] = NO_OWNER


def _open_places(held: I64, quota: I64, floor: int, n_free: int) -> I64:
    """Turn of the member that gets each free partition, int64[n_free], in dealing order."""
    needs = np.maximum(floor - held, 0)
    needy = np.flatnonzero(needs)
    lap = within(needs[needy])
    turn = np.repeat(needy, needs[needy])
    order = np.argsort(lap * np.int64(len(held)) + turn, kind="stable")
    lap, turn = lap[order], turn[order]
    filled = turn[lap + 1 == needs[turn]]  # in the order in which they reach the floor
    at_floor = np.flatnonzero((held == floor) & (quota == floor))
    rest = np.concatenate((at_floor, filled))
    return np.concatenate((turn, rest[: n_free - len(turn)]))


def hand_out(claims: Claims, target: I32, free: I32, slots: I32) -> None:
    """Give the partitions ``free`` to the members ``slots``, one each, in order.

    Parameters
    ----------
    free : int32[n]
        Topic-partitions without an owner yet, sorted.
    slots : int32[n]
        The member of each open place, in dealing order.

    Notes
    -----
    Former owners (older claims) with an open place are served first, newest claim first.
    """
    assert len(free) == len(slots), (len(free), len(slots))
    if len(claims.former_tp):
        free, slots = _serve_former(claims, target, free, slots)
    target[by_partition(claims.group.topics, free)] = slots


def _serve_former(claims: Claims, target: I32, free: I32, slots: I32) -> tuple[I32, I32]:
    """Give free partitions to their former owners; return what is left of both."""
    open_at: dict[int, list[int]] = {}
    for at in range(len(slots) - 1, -1, -1):
        open_at.setdefault(int(slots[at]), []).append(at)
    wanted = set(free.tolist())
    used = np.zeros(len(slots), np.bool_)
    for tp, member in zip(claims.former_tp.tolist(), claims.former_member.tolist(), strict=True):
        places = open_at.get(member)
        if places and tp in wanted:
            wanted.discard(tp)
            used[places.pop()] = True
            target[tp] = member
    return np.array(sorted(wanted), np.int32), slots[~used]
