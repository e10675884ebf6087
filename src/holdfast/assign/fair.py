"""``fair`` and ``fairest-sticky``: the two alternatives that KIP-54 names beside its own choice.

``fair`` looks at balance alone and starts from nothing. ``fairest-sticky`` turns the goals round:
every valid claim stays, and only the rest is placed, as evenly as the claims leave room for.

**Rules.** ``fair`` depends on no claim: it is the ``sticky`` optimum of the same group with none
(so racks, where given, still decide among equally balanced assignments). ``fairest-sticky`` never
moves a claimed partition; among the assignments that do not, its loads are the most even there
are.

**Strategy.** For ``fairest-sticky`` a greedy placing, then chains over unclaimed partitions until
none helps, which is when nothing better is left (:mod:`~holdfast.assign.chains`).

References
----------
KIP-54, "Alternatives Yet to be Considered"; KIP-49.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holdfast.assign.chains import Levelling
from holdfast.assign.claims import Claims
from holdfast.assign.placing import place
from holdfast.assign.result import Plan
from holdfast.assign.sticky import sticky
from holdfast.model.columns import NO_OWNER, frozen


def fair(claims: Claims) -> Plan:
    """Balance alone: the best loads there are, whoever claims what.

    References
    ----------
    KIP-49; KIP-54, "Fairness only can also be supported".
    """
    none = np.empty(0, dtype=np.int32)
    unclaimed = replace(
        claims,
        owner=frozen(np.full_like(claims.owner, NO_OWNER)),
        former_tp=none,
        former_member=none,
        double_tp=none,
        double_member=none,
    )
    return Plan(target=sticky(unclaimed).target)


def fairest_sticky(claims: Claims) -> Plan:
    """Stickiness first: keep every valid claim, place the rest as evenly as that allows.

    Notes
    -----
    Cost: as :func:`holdfast.assign.placing.place`, and for unequal subscriptions one search a
    chain.

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
    return Plan(target=owner)
