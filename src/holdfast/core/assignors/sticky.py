"""The sticky assignors: those of KIP-54, its alternatives, and those of KAFKA-9987.

**Rules.** ``sticky`` and ``cooperative-sticky`` have five goals. In order: (1) the most balanced
loads, (2) the fewest partitions read across racks, (3) the most valid claims kept, (4) of the
partitions that are not kept the most with previous owners, which may still have their state, (5)
each topic spread evenly over its members. What these goals leave open is decided by Kafka's own
order (:mod:`holdfast.core.assignors.optimal.sticky_equal`), never by the order of input.

KIP-54 names two alternatives beside its own choice:

- ``fair`` looks at balance alone. Its target is that of ``sticky`` for the same group without
  claims, so racks still decide among equally balanced assignments. Its certificate proves balance
  and racks, and says nothing about claims.
- ``fairest-sticky`` never moves a partition with a valid claim. Among the assignments that
  move none, its loads are the most even ones. It has no certificate.

``constrained-sticky`` and ``constrained-cooperative-sticky`` are linear passes for equal
subscriptions, listed in front of :func:`constrained`.

**Strategy.** The files of the family, in the order in which they work. All but the closed form are
imported when a group needs them, since a leader's first round waits for the import:

===================================  =======================================================
``sticky``                           chooses between the closed form and the flow
``optimal/sticky_equal``             the closed form, where all members subscribe alike
``optimal/flow_graph``               partitions that are alike and members that are alike, once;
                                     the most balanced loads (goal 1)
``optimal/sticky_flow``              takes parts with equal subscriptions to the closed form,
                                     solves the others as a flow, and names the partitions; no
                                     search where every claim can stay (goals 1, 3)
``optimal/flow_moves``               else: the cheapest flow at the balanced loads (goals 2, 3)
``optimal/sticky_spread``            each topic spread evenly (goal 5)
``optimal/previous_owners``          cycles of moves that cost nothing else (goal 4)
``certificate``                      the prices that prove goals 1 to 4
``optimal/levelling``                ``fairest-sticky``: partitions without a claim are placed
                                     greedily, then moved along chains until no chain helps
===================================  =======================================================

References: KIP-54, "Alternatives Yet to be Considered"; KIP-49; KIP-429; KIP-881;
KAFKA-9987 (ConstrainedCooperativeStickyAssignor).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holdfast.core.assignors.certificate import Certificate, certify
from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.optimal.sticky_equal import Part, Prices, balance_equal
from holdfast.core.assignors.result import Solution
from holdfast.core.model.columns import I32, I64, NO_OWNER, within
from holdfast.core.model.group import Group
from holdfast.errors import InfeasibleError


def sticky(claims: Claims) -> Solution:
    """Find the optimal assignment.

    References: KIP-54; KIP-429; KIP-881; KAFKA-9987; KAFKA-16277.
    """
    target, prices = balance_and_keep(claims)
    if not len(claims.previous_tp) + len(claims.double_tp):
        return Solution(
            target=target, prove=lambda: certify(claims, target, prices.level, prices.minor)
        )
    from holdfast.core.assignors.optimal.previous_owners import prefer_previous

    first = certify(claims, target, prices.level, prices.minor)
    proof = None if first is None else prefer_previous(claims, target, first)
    return Solution(target=target, prove=lambda: proof or first)


def balance_and_keep(claims: Claims) -> tuple[I32, Prices]:
    """Return the best assignment without the goal of previous owners, and its prices."""
    group = claims.group
    target = np.full(group.topics.n_tps, NO_OWNER, np.int32)
    prices = Prices.of(group.n_members)
    if group.n_sets == 1 and group.topics.rack_start is None:
        if len(group.set_topic):
            balance_equal(
                claims, Part.of(group, group.assignment_order, group.set_topic), target, prices
            )
    else:
        from holdfast.core.assignors.optimal.flow_graph import build
        from holdfast.core.assignors.optimal.sticky_flow import balance_flow

        balance_flow(claims, build(claims), target, prices)
    return target, prices


def fair(claims: Claims) -> Solution:
    """Assign by balance alone: the most even loads; claims do not matter."""
    best = sticky(claims.without_owners())

    def prove() -> Certificate | None:
        certificate = best.prove() if best.prove else None
        return None if certificate is None else replace(certificate, keeps=False)

    return Solution(target=best.target, prove=prove)


def fairest_sticky(claims: Claims) -> Solution:
    """Keep every valid claim, and place the rest as evenly as that allows.

    Notes
    -----
    Cost: as :func:`holdfast.core.assignors.optimal.levelling.assign_greedily`, and for unequal
    subscriptions one search per chain.
    """
    from holdfast.core.assignors.optimal.levelling import Levelling, assign_greedily

    group = claims.group
    owner = claims.owner.copy()
    even = np.ones(group.n_members, dtype=np.float64)
    assign_greedily(group, owner, np.zeros(group.topics.n_tps, dtype=np.int64), even)
    if group.n_sets > 1:
        state = Levelling(group, owner, claims.owner, even, movable=claims.owner == NO_OWNER)
        while (moves := state.step()) is not None:
            state.apply(moves)
    return Solution(target=owner)


# ``constrained-sticky`` and ``constrained-cooperative-sticky``: KAFKA-9987 to the letter
#
# With N members, P partitions, C_f = floor(P / N) and C_c = ceil(P / N):
#
# 1. every member keeps all that it owns if that is fewer than C_f (the member is *unfilled*), the
#    first C_f if exactly C_f, else the first C_c (the member is at *maximum capacity*);
# 2. *fill*: unfilled members, by id, take unassigned partitions up to C_f;
# 3. *steal*: where those run out, each missing one is taken from the next member at maximum
#    capacity;
# 4. *distribute*: where some are left, they go one each to members not at maximum capacity, by id.
#
# All members subscribe to the same topics, else InfeasibleError names the first one that differs.
# "Partition order" is t0p0, t1p0, .., t0p1, t1p1, .., for owned and for unassigned partitions
# (KAFKA-16277). A member whose generation is behind the newest one in the group owns nothing: its
# whole claim is old, as the document says. The document leaves open which partition is stolen; here
# it is the last one in order, so the member that loses it ends with the first C_f partitions that
# it owned.
#
# The result keeps as many claims as any balanced assignment, and the prices of ``sticky`` prove it.
# There are two exceptions: racks are known (the document has none), or a member lost its claim
# because of its generation.
#
# Every step is a sort, a rank inside a member's row or a ``repeat``: no Python loop.


def constrained(claims: Claims) -> Solution:
    """Assign by the linear passes of KAFKA-9987.

    Raises
    ------
    InfeasibleError
        If two members subscribe to different topics.

    Notes
    -----
    Cost: O(n_tps log n_tps) for the sorts.

    References: KAFKA-9987; KAFKA-16277 on the order of owned partitions.
    """
    group = claims.group
    _require_equal_subscriptions(group)
    target = np.full(group.topics.n_tps, NO_OWNER, dtype=np.int32)
    counted = claims
    if group.n_members:
        stale = np.flatnonzero(group.generation < group.generation.max())
        counted = claims.without_owners_among(stale)
        _run_passes(group, counted.owner, target)
    return Solution(target=target, prove=lambda: _prove_by_sticky(claims), claims=counted)


def _prove_by_sticky(claims: Claims) -> Certificate | None:
    """Return the prices of ``sticky``: they prove any assignment that is as good, and no other."""
    target, prices = balance_and_keep(claims)
    return certify(claims, target, prices.level, prices.minor)


def _run_passes(group: Group, claimed: I32, owner: I32) -> None:
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
