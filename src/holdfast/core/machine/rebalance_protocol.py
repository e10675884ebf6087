"""The rebalance protocol of a member: eager or cooperative, and that of a list of assignors.

References: KIP-429; KIP-726.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from holdfast.errors import ConfigError


class RebalanceProtocol(IntEnum):
    """Whether a member revokes everything before it joins (KIP-429's RebalanceProtocol)."""

    EAGER = 0
    COOPERATIVE = 1


class HasRebalanceProtocols(Protocol):
    """An assignor, reduced to its rebalance protocols."""

    @property
    def name(self) -> str:
        """Kafka's protocol name."""

    @property
    def rebalance_protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols that the assignor supports."""


def choose_rebalance_protocol(assignors: Sequence[HasRebalanceProtocols]) -> RebalanceProtocol:
    """Return the highest rebalance protocol that every assignor of a list supports.

    References: KIP-429, "Consumer": ``[cooperative-sticky, range]`` therefore runs EAGER.
    """
    if not assignors:
        raise ConfigError("partition.assignment.strategy: found none, expected an assignor")
    rebalance_protocols = set(RebalanceProtocol).intersection(
        *(a.rebalance_protocols for a in assignors)
    )
    if not rebalance_protocols:
        names = ", ".join(a.name for a in assignors)
        raise ConfigError(f"partition.assignment.strategy: {names} share no rebalance protocol")
    return max(rebalance_protocols)
