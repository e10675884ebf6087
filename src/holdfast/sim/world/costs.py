"""The cost model: the work of members around a rebalance, and its duration.

**Rules.** Every part is a field with a default and a line for people. A resource is *stopped* while
it has no owner or its owner is still rebuilding its state.

**Strategy.** Values; :mod:`holdfast.sim.world.world` charges them.

References: KIP-54, "Public Interfaces" (the old and the new listener); Incremental Cooperative
Rebalancing, "Motivation".
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from holdfast.core.machine.member.member_data import AGAIN_PAUSE_MS


class Listener(StrEnum):
    """The application's listener, one of KIP-54's."""

    OLD = "old"  # rebuilds the state of every resource at every assignment
    NEW = "new"  # only of resources that were not in its last assignment


def _cost(default: int, text: str) -> Any:
    return field(default=default, metadata={"text": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Times in ms."""

    heartbeat_ms: int = _cost(3_000, "between two heartbeats of a member")
    session_ms: int = _cost(10_000, "without heartbeats until the coordinator removes a member")
    poll_ms: int = _cost(500, "between two polls of a member: a batch is processed so long")
    slow_poll_ms: int = _cost(5_000, "between two polls of the slow members")
    slow_members: int = _cost(1, "how many members are slow")
    revoke_ms: int = _cost(200, "to flush and commit when resources are revoked")
    rebuild_ms: int = _cost(2_000, "to rebuild the state of one resource gained, one by one")
    restart_ms: int = _cost(10_000, "from the end of a process to its next start")
    pause_ms: int = _cost(5_000, "of quiet before the next member is bounced")
    initial_delay_ms: int = _cost(3_000, "the broker's group.initial.rebalance.delay.ms")
    rebalance_ms: int = _cost(60_000, "the coordinator waits for joins")
    plan_ms: int = _cost(0, "planning by a leader: later changes are not in its plan")
    latency_ms: int = _cost(2, "of a message, one way, on average")
    first_fetch_ms: int = _cost(0, "from an assignment to the first batch of it")
    follow_up_ms: int = _cost(
        AGAIN_PAUSE_MS, "until a member joins a follow-up round; Kafka's own clients: a heartbeat"
    )
    joining_stops: int = _cost(0, "of 100 joins after a revocation, how many stop the rest")
    waiting_stops: int = _cost(0, "of 100 joins of any kind, how many stop all; kafka-python: 100")
    listener: Listener | None = None  # None: old for eager members, new for the others
    rebuild_blocks: bool = False  # the member processes nothing while it rebuilds

    def lines(self) -> list[tuple[str, int, str]]:
        """Return name, value and meaning of each part."""
        return [
            (f.name, getattr(self, f.name), f.metadata["text"])
            for f in fields(self)
            if "text" in f.metadata
        ]
