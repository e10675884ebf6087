"""One session of a trace as a KIP-848 group, by the model that ``simulate`` has of KIP-848 groups.

**Rules.** The session is the broker's, since a KIP-848 member has none of its own. Rebalances are
never delayed.

**Strategy.** :class:`World848` is the model, with the interface that a replay needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from holdfast.fleet.pipeline.replay.session import QUICK, QUIET_MS, ReplayedSession
from holdfast.fleet.pipeline.replay.trace import SESSION_MS
from holdfast.sim.kip848 import Group848, SimulatedConsumer
from holdfast.sim.world.costs import Costs


class World848(Group848):
    """The model of a KIP-848 group, with the additional interface of a replay."""

    def __init__(self, partitions: Mapping[str, int], costs: Costs, seed: int):
        super().__init__(partitions, costs, seed)
        self.subscriptions: dict[int, tuple[str, ...]] = {}
        self.log, self.warnings = self.epochs, list[str]()
        self.run = self.clock.run

    @property
    def now_ms(self) -> int:
        """Current time."""
        return self.clock.now_ms

    @property
    def rounds(self) -> int:
        """Number of targets that the broker has computed."""
        return self.epoch

    @property
    def counts(self) -> SimpleNamespace:
        """When an owner or the target last changed."""
        return SimpleNamespace(last_round_ms=self.changed_ms)

    def start(self, slot: int, topics: Sequence[str] | None = None) -> SimulatedConsumer:
        """Start the process of a slot, with the topics that it subscribes to."""
        return super().start(slot, topics or self.subscriptions.get(slot))

    def stop(self, slot: int, *, returns: bool = True) -> None:
        """Stop a process cleanly; a KIP-848 broker reassigns its partitions, returning or not."""
        member = self.members.get(slot)
        if member is not None:  # between two batches
            wait_ms = (member.phase_ms - self.now_ms) % member.poll_ms
            self.clock.at(self.now_ms + wait_ms, self._stop, slot)

    def _stop(self, slot: int) -> None:
        if slot in self.members:
            super().stop(slot)

    def crash(self, slot: int) -> None:
        """End a process at once, without leaving the group."""
        if slot in self.members:
            super().crash(slot)

    def subscribe(self, slot: int, topics: Sequence[str]) -> None:
        """Subscribe a member to other topics."""
        if slot in self.members:
            super().subscribe(slot, topics)


class ReplayedSession848(ReplayedSession):
    """One session of a KIP-848 group, by the model of :mod:`holdfast.sim.kip848`."""

    def quick_costs(self) -> Costs:
        """Return costs of members with instant revocations, with the broker's session."""
        return replace(QUICK, session_ms=SESSION_MS)

    def new_world(self, seed: int) -> Any:
        """Return the model of a KIP-848 group."""
        self.patience_ms = 2 * self.costs.session_ms + 60_000
        return World848(dict(self.session.partitions), self.costs, seed)

    def known(self, slot: int) -> bool:
        """Return whether the broker still has the member of a slot."""
        return slot in self.world.members

    def is_quiescent(self) -> bool:
        """Return whether nothing more happens before the next event."""
        quiet_ms = self.world.now_ms - max(self.world.changed_ms, self.begun_ms or 0)
        return quiet_ms >= QUIET_MS and bool(self.world.settled())

    def generations(self, first: int) -> list[tuple[int, ...]]:
        """Return identities of the members of each target but the first ``first``."""
        found = self.world.epochs[first:]
        return [
            tuple(sorted(self.trace.identities[s - self.base] for s in slots)) for slots in found
        ]
