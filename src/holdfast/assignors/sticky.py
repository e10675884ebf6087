"""``sticky`` and ``cooperative-sticky``: the best assignment there is, with its proof.

**Rules.** Goals in order: (1) the most balanced loads, (2) the fewest partitions read across racks,
(3) the most valid claims kept, (4) each topic spread evenly over its members. What they leave open
is decided by Kafka's own order (:mod:`holdfast.assignors.optimal.sticky_equal`), never by the order
of input.

**Strategy.** The group falls into parts that share no topic. A part whose members all read the same
has a closed form. Any other one is a small flow: :mod:`~holdfast.assignors.optimal.flow_levels`
finds the loads, :mod:`~holdfast.assignors.optimal.flow_moves` the cheapest way to have them, and
:mod:`~holdfast.assignors.optimal.sticky_flow` names the partitions.
"""

from __future__ import annotations

import numpy as np

from holdfast.assignors.certificate import Certificate, certify
from holdfast.assignors.claims import Claims
from holdfast.assignors.optimal.flow_graph import build
from holdfast.assignors.optimal.sticky_equal import Part, Prices, balance_equal
from holdfast.assignors.optimal.sticky_flow import balance_flow
from holdfast.assignors.result import Solution
from holdfast.model.columns import I32, NO_OWNER


def sticky(claims: Claims) -> Solution:
    """Find the optimal assignment.

    References
    ----------
    KIP-54; KIP-429; KIP-881; KAFKA-9987; KAFKA-16277.
    """
    group = claims.group
    target = np.full(group.topics.n_tps, NO_OWNER, np.int32)
    prices = Prices.of(group.n_members)
    if group.n_sets == 1 and group.topics.rack_start is None:
        if len(group.set_topic):
            balance_equal(
                claims, Part.of(group, group.dealing_order, group.set_topic), target, prices
            )
    else:
        balance_flow(claims, build(claims), target, prices)
    return Solution(target=target, prove=lambda: _prove(claims, target, prices))


def _prove(claims: Claims, target: I32, prices: Prices) -> Certificate | None:
    return certify(claims, target, prices.level, prices.minor)
