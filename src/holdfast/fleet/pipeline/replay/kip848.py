"""One session of a story as a KIP-848 group, by the model that ``simulate`` has of KIP-848 groups.

**Rules.** The session is the broker's, for a KIP-848 member has none of its own. There is no
deferral.

**Strategy.** :class:`World848` shows the model as a replay sees a world of the machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.fleet.pipeline.replay.costs import ReplayCosts
from holdfast.fleet.pipeline.replay.session import QUICK, QUIET_MS, ReplayedSession
from holdfast.sim.baselines.kip848 import Group848, SimulatedConsumer
from holdfast.sim.world.costs import Costs


@dataclass(slots=True)
class EpochCounts:
    """What a replay asks of the counts of a world."""

    last_round_ms: int = 0


class World848:
    """The model of a KIP-848 group, as a replay sees a world."""

    def __init__(self, partitions: Mapping[str, int], costs: Costs, seed: int):
        self.group = Group848(partitions, costs, seed)
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.clock, self.ledger = self.group.clock, self.group.ledger
        self.subscriptions: dict[int, tuple[str, ...]] = {}
        self.counts = EpochCounts()
        self.log = self.group.epochs
        self.warnings: list[str] = []

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.clock.now_ms

    @property
    def rounds(self) -> int:
        """How many targets the broker has computed."""
        return self.group.epoch

    def run(self, until_ms: int) -> None:
        """Go on to a time."""
        self.clock.run(until_ms)
        self.counts.last_round_ms = self.group.changed_ms

    def living(self) -> list[SimulatedConsumer]:
        """Members that are up."""
        return [m for m in self.group.members.values() if m.alive]

    def start(self, slot: int) -> SimulatedConsumer:
        """Start the process of a slot."""
        return self.group.start(slot, self.subscriptions.get(slot))

    def stop(self, slot: int, *, returns: bool = True) -> None:
        """A process ends cleanly; a KIP-848 broker gives its partitions away, returning or not."""
        member = self.group.members.get(slot)
        if member is not None:  # between two batches
            wait_ms = (member.phase_ms - self.now_ms) % member.poll_ms
            self.clock.at(self.now_ms + wait_ms, self._stop, slot)

    def _stop(self, slot: int) -> None:
        if slot in self.group.members:
            self.group.stop(slot)

    def crash(self, slot: int) -> None:
        """A process ends at once, without leaving the group."""
        if slot in self.group.members:
            self.group.crash(slot)

    def subscribe(self, slot: int, topics: tuple[str, ...]) -> None:
        """A member subscribes to other topics."""
        if slot in self.group.members:
            self.group.subscribe(slot, topics)

    def resize(self, topic: str, count: int) -> None:
        """A topic gets ``count`` partitions."""
        self.group.resize(topic, count)

    def is_member(self, slot: int) -> bool:
        """Whether the broker still has the member of a slot."""
        return slot in self.group.members

    def settled(self) -> bool:
        """Whether everything is where it shall be."""
        return self.group.settled()

    @property
    def changed_ms(self) -> int:
        """When an owner or the target has last changed."""
        return self.group.changed_ms


class ReplayedSession848(ReplayedSession):
    """One session of a KIP-848 group, by the model of :mod:`holdfast.sim.baselines.kip848`."""

    def quick_costs(self, costs: ReplayCosts) -> Costs:
        """Members whose hand-overs cost nothing, with the broker's session."""
        return replace(QUICK, session_ms=costs.of("broker-session").ms)

    def new_world(self, seed: int) -> Any:
        """The model of a KIP-848 group."""
        self.patience_ms = 2 * self.costs.session_ms + 60_000
        return World848(dict(self.session.partitions), self.costs, seed)

    def known(self, slot: int) -> bool:
        """Whether the broker still has the member of a slot."""
        return bool(self.world.is_member(slot))

    def still(self) -> bool:
        """Whether nothing more happens before the next happening."""
        quiet_ms = self.world.now_ms - max(self.world.changed_ms, self.begun_ms or 0)
        return quiet_ms >= QUIET_MS and bool(self.world.settled())

    def generations(self, first: int) -> list[tuple[int, ...]]:
        """Places of the members of each target but the first ``first``."""
        found = self.world.group.epochs[first:]
        return [tuple(sorted(self.story.places[s - self.base] for s in slots)) for slots in found]
