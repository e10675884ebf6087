"""``fair`` and ``fairest-sticky``: the two alternatives that KIP-54 names beside its own choice.

**Rules.**

- ``fair`` looks at balance alone. Its target is that of ``sticky`` for the same group without
  claims, so racks still decide among equally balanced assignments. Its certificate proves balance
  and racks, and says nothing about claims.
- ``fairest-sticky`` never moves a partition with a valid claim. Among the assignments that
  move none, its loads are the most even ones. It has no certificate.

**Strategy.** ``fairest-sticky`` places the other partitions greedily. Then it moves them along
chains until no chain helps, which is when no better loads are left
(:mod:`~holdfast.core.assignors.optimal.levelling`).

References: KIP-54, "Alternatives Yet to be Considered"; KIP-49.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holdfast.core.assignors.certificate import Certificate
from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.optimal.levelling import Levelling, assign_greedily
from holdfast.core.assignors.result import Solution
from holdfast.core.assignors.sticky import sticky
from holdfast.core.model.columns import NO_OWNER


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
    group = claims.group
    owner = claims.owner.copy()
    even = np.ones(group.n_members, dtype=np.float64)
    assign_greedily(group, owner, np.zeros(group.topics.n_tps, dtype=np.int64), even)
    if group.n_sets > 1:
        state = Levelling(group, owner, claims.owner, even, movable=claims.owner == NO_OWNER)
        while (moves := state.step()) is not None:
            state.apply(moves)
    return Solution(target=owner)
