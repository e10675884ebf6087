"""``fair`` and ``fairest-sticky``: the two alternatives that KIP-54 names beside its own choice.

``fair`` looks at balance alone and starts from nothing. ``fairest-sticky`` turns the goals round:
every valid claim stays, and only the rest is placed, as evenly as the claims leave room for.

**Rules.** ``fair`` depends on no claim: it is the ``sticky`` optimum of the same group with none
(so racks, where given, still decide among equally balanced assignments); its certificate proves
balance and racks, and says nothing about claims. ``fairest-sticky`` never moves a claimed
partition; among the assignments that do not, its loads are the most even there are. It has no
certificate: that no chain is left is checked by its end, not by a proof to hand on.

**Strategy.** For ``fairest-sticky`` a greedy placing, then chains over unclaimed partitions until
none helps, which is when nothing better is left (:mod:`~holdfast.assignors.optimal.chains`).

References
----------
KIP-54, "Alternatives Yet to be Considered"; KIP-49.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holdfast.assignors.certificate import Certificate
from holdfast.assignors.claims import Claims
from holdfast.assignors.optimal.chains import Levelling
from holdfast.assignors.optimal.placing import place
from holdfast.assignors.result import Solution
from holdfast.assignors.sticky import sticky
from holdfast.model.columns import NO_OWNER


def fair(claims: Claims) -> Solution:
    """Balance alone: the best loads there are, whoever claims what.

    References
    ----------
    KIP-49; KIP-54, "Fairness only can also be supported".
    """
    plan = sticky(claims.without_owners())
    return Solution(target=plan.target, prove=lambda: _of_balance(plan))


def _of_balance(plan: Solution) -> Certificate | None:
    """The proof of a plan that was made without claims: of balance and racks alone."""
    certificate = plan.prove() if plan.prove else None
    return None if certificate is None else replace(certificate, keeps=False)


def fairest_sticky(claims: Claims) -> Solution:
    """Stickiness first: keep every valid claim, place the rest as evenly as that allows.

    Notes ----- Cost: as :func:`holdfast.assignors.optimal.placing.place`, and for unequal
    subscriptions one search a chain.

    References
    ----------
    KIP-54, "sticky yet fair (fairest sticky)".
    """
    group = claims.group
    owner = claims.owner.copy()
    even = np.ones(group.n_members, dtype=np.float64)
    place(group, owner, np.zeros(group.topics.n_tps, dtype=np.int64), even)
    if group.n_sets > 1:
        state = Levelling(group, owner, claims.owner, even, movable=claims.owner == NO_OWNER)
        while (moves := state.step()) is not None:
            state.apply(moves)
    return Solution(target=owner)
