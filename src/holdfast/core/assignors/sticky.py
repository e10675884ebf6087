"""``sticky``, ``cooperative-sticky``, ``fair`` and ``fairest-sticky``: the assignors of KIP-54.

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

**Strategy.** The files of the family, in the order in which they work. All but the closed form are
imported when a group needs them, since a leader's first round waits for the import:

===================================  =======================================================
``sticky``                           chooses between the closed form and the flow
``optimal/sticky_equal``             the closed form, where all members subscribe alike
``optimal/flow_graph``               partitions that are alike and members that are alike, once
``optimal/sticky_flow``              takes parts with equal subscriptions to the closed form,
                                     solves the others as a flow, and names the partitions; no
                                     search where every claim can stay (goals 1, 3)
``optimal/flow_levels``              else: the most balanced loads (goal 1)
``optimal/flow_moves``               and the cheapest flow at the balanced loads (goals 2, 3)
``optimal/sticky_spread``            each topic spread evenly (goal 5)
``optimal/previous_owners``          cycles of moves that cost nothing else (goal 4)
``certificate``                      the prices that prove goals 1 to 4
``optimal/levelling``                ``fairest-sticky``: partitions without a claim are placed
                                     greedily, then moved along chains until no chain helps
===================================  =======================================================

References: KIP-54, "Alternatives Yet to be Considered"; KIP-49; KIP-429; KIP-881.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holdfast.core.assignors.certificate import Certificate, certify
from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.optimal.sticky_equal import Part, Prices, balance_equal
from holdfast.core.assignors.result import Solution
from holdfast.core.model.columns import I32, NO_OWNER


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
