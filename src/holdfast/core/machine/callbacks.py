"""The callbacks of a rebalance listener.

References: KIP-429, "ConsumerRebalanceListener".
"""

from __future__ import annotations

from enum import StrEnum


class ListenerCall(StrEnum):
    """A callback of a listener (KIP-429)."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
