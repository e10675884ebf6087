"""``constrained-sticky`` and ``constrained-cooperative-sticky``: KAFKA-9987 to the letter.

With N members, P partitions, C_f = floor(P / N) and C_c = ceil(P / N):

1. every member keeps all that it owns if that is fewer than C_f (the member is *unfilled*), the
   first C_f if exactly C_f, else the first C_c (the member is at *maximum capacity*);
2. *fill*: unfilled members, by id, take unassigned partitions up to C_f;
3. *steal*: where those run out, each missing one is taken from the next member at maximum capacity;
4. *distribute*: where some are left, they go one each to members not at maximum capacity, by id.

**Rules.** All members subscribe to the same topics, else InfeasibleError names the first one that
differs. "Partition order" is t0p0, t1p0, .., t0p1, t1p1, .., for owned and for unassigned
partitions. A member whose generation is behind the newest one in the group owns nothing: its whole
claim is old, as the document says. The document leaves open which partition is stolen; here it is
the last one in order, so the member that loses it ends with the first C_f partitions that it owned.

The result keeps as many claims as any balanced assignment, and the prices of ``sticky`` prove it.
There are two exceptions: racks are known (the document has none), or a member lost its claim
because of its generation.

**Strategy.** Every step is a sort, a rank inside a member's row or a ``repeat``: no Python loop.

References: KAFKA-9987 (ConstrainedCooperativeStickyAssignor); KAFKA-16277 on the order of owned
partitions.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.assignors.certificate import Certificate, certify
from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.result import Solution
from holdfast.core.assignors.sticky import balance_and_keep
from holdfast.core.model.columns import I32, I64, NO_OWNER, within
from holdfast.core.model.group import Group
from holdfast.errors import InfeasibleError


def constrained(claims: Claims) -> Solution:
    """Assign by the linear passes of KAFKA-9987.

    Raises
    ------
    InfeasibleError
        If two members subscribe to different topics.

    Notes
    -----
    Cost: O(n_tps log n_tps) for the sorts, no Python loop.
    """
    group = claims.group
    _require_equal_subscriptions(group)
    target = np.full(group.topics.n_tps, NO_OWNER, dtype=np.int32)
    counted = claims
    if group.n_members:
        stale = np.flatnonzero(group.generation < group.generation.max())
        counted = claims.without_owners_among(stale)
        _fill(group, counted.owner, target)
    return Solution(target=target, prove=lambda: _prove(claims), claims=counted)


def _prove(claims: Claims) -> Certificate | None:
    """Return the prices of ``sticky``: they prove any assignment that is as good, and no other."""
    target, prices = balance_and_keep(claims)
    return certify(claims, target, prices.level, prices.minor)


def _fill(group: Group, claimed: I32, owner: I32) -> None:
    """Write the four passes into ``owner``; ``claimed`` is the owner by valid claims."""
    partitions = _in_partition_order(group)
    floor, rest = divmod(partitions.size, group.n_members)
    ceiling = floor + (rest > 0)

    owned, claim_member, count = _owned_rows(group, claimed, partitions)
    capacity = np.where(count < floor, count, np.where(count == floor, floor, ceiling))
    kept = within(count) < capacity[claim_member]
    owner[owned[kept]] = claim_member[kept]
    size = np.minimum(count, capacity)
    unassigned = partitions[owner[partitions] == NO_OWNER]
    wanting = np.repeat(np.arange(group.n_members, dtype=np.int32), np.maximum(floor - size, 0))

    n_filled = min(unassigned.size, wanting.size)
    owner[unassigned[:n_filled]] = wanting[:n_filled]
    at_maximum = np.flatnonzero(count > floor)
    robbed = at_maximum[: wanting.size - n_filled]
    owner[_last_kept(owned, count, size)[robbed]] = wanting[n_filled:]
    below = np.setdiff1d(np.arange(group.n_members, dtype=np.int32), at_maximum)
    left = unassigned[n_filled:]
    owner[left] = below[: left.size]


def _require_equal_subscriptions(group: Group) -> None:
    rows = {int(row): _topics_of(group, int(row)) for row in np.unique(group.subscription)}
    if len({frozenset(topics) for topics in rows.values()}) < 2:
        return
    mine = rows[int(group.subscription[0])]
    others = [row for row, topics in rows.items() if topics != mine]
    member = int(np.flatnonzero(np.isin(group.subscription, others))[0])
    topic = min(mine ^ rows[int(group.subscription[member])])
    one, other = group.member_ids[0], group.member_ids[member]
    text = (
        f"members {one!r} and {other!r} do not subscribe to the same topics (only one of them to "
        f"{topic!r}); constrained assignors need equal subscriptions, sticky takes any"
    )
    raise InfeasibleError(text, column="members", index=member)


def _topics_of(group: Group, row: int) -> set[str]:
    """Return the names in one row of the subscription table."""
    topics = group.set_topic[group.set_start[row] : group.set_start[row + 1]]
    return {group.topics.names[topic] for topic in topics.tolist()}


def _in_partition_order(group: Group) -> I64:
    """Return subscribed topic-partitions as t0p0, t1p0, .., t0p1, int64[n_subscribed]."""
    tps = np.flatnonzero(group.has_subscriber[group.topics.topic_of])
    in_order: I64 = tps[np.argsort(group.topics.partition_of[tps], kind="stable")]
    return in_order


def _owned_rows(group: Group, owned: I32, partitions: I64) -> tuple[I64, I32, I64]:
    """Return valid claims by member and partition order, as (tp, claimant), and their counts."""
    claim_member = owned[partitions]
    valid = claim_member != NO_OWNER
    by_member = np.argsort(claim_member[valid], kind="stable")
    claims, claim_member = partitions[valid][by_member], claim_member[valid][by_member]
    return (
        claims,
        claim_member,
        np.bincount(claim_member, minlength=group.n_members).astype(np.int64),
    )


def _last_kept(claims: I64, count: I64, size: I64) -> I64:
    """Return the last partition that each member keeps, int64[n_members]; any if it keeps none."""
    row_start = np.cumsum(count) - count
    if claims.size == 0:
        return row_start
    last: I64 = claims[np.clip(row_start + size - 1, 0, claims.size - 1)]
    return last
