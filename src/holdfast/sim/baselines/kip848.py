"""A baseline: a KIP-848-like group, where the broker computes a target and members reconcile.

**Rules.** This is a model, for comparison only: a target by the registry's ``sticky`` whenever
membership changes, members that hear of it with their next heartbeat, one partition's new owner
waiting only for its old one. There is no barrier and no deferral. Costs are those of
:class:`holdfast.sim.world.costs.Costs`.

**Strategy.** Per-member epochs are not modelled; what matters here is when a partition stops and
starts: a member revokes at its next poll after its next heartbeat, the new owner starts with its
next heartbeat after that. Bytes are those of lists of partitions: a target that is new to its
member, and what a member owns when that has changed.

References: KIP-848.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from holdfast.assignors.registry import assign
from holdfast.machine.leader.leader import group_of
from holdfast.machine.leader.subscriptions import SubscribedMember
from holdfast.model.partition_columns import partitions_by_owner
from holdfast.model.partitions import Resource, grouped
from holdfast.sim.world.costs import Costs
from holdfast.sim.world.ledger import Ledger
from holdfast.wire.layouts.container import MemberSubscription


class KIP848Setup(Protocol):
    """What of a scenario's setup this model needs."""

    @property
    def members(self) -> int:
        """Processes at the start."""

    @property
    def partitions(self) -> int:
        """Of one topic."""

    @property
    def seed(self) -> int:
        """Of all chance."""

    @property
    def costs(self) -> Costs:
        """What things take."""

    @property
    def crash(self) -> bool:
        """Whether bounces are crashes."""

    @property
    def steps(self) -> int:
        """How many members scale or die."""


@dataclass(slots=True, eq=False)
class SimulatedConsumer:
    """A member: what it runs, and when it heartbeats and polls."""

    slot: int
    client: str
    beat_ms: int
    poll_ms: int
    poll_phase_ms: int
    alive: bool = True
    owned: set[Resource] = field(default_factory=set)
    rebuilt_ms: int = 0
    heard_ms: int = 0  # its last heartbeat
    sent: frozenset[Resource] = frozenset()
    reported: frozenset[Resource] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """What a run gave."""

    ledger: Ledger
    rounds: int
    balance_ms: int
    bytes_per_round: int


class Group848:
    """The group and its broker in one."""

    def __init__(self, plan: KIP848Setup):
        self.plan, self.costs = plan, plan.costs
        self.rng = np.random.Generator(np.random.PCG64(plan.seed))
        self.resources: list[Resource] = [("topic", p) for p in range(plan.partitions)]
        self.ledger = Ledger(self.resources)
        self.members: dict[int, SimulatedConsumer] = {}
        self.count: dict[int, int] = {}
        self.target: dict[Resource, str] = {}
        self.epoch = 0
        self.now_ms = 0
        self.changed_ms = 0
        self.bytes = 0
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._n = 0

    def at(self, time_ms: int, function: Callable[[Any], None], argument: Any) -> None:
        """Call a function at a time."""
        self._n += 1
        heapq.heappush(self._heap, (max(time_ms, self.now_ms), self._n, function, argument))

    def run(self, until_ms: int) -> None:
        """Go on to a time."""
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, function, argument = heapq.heappop(self._heap)
            function(argument)
        self.now_ms = max(self.now_ms, until_ms)

    def start(self, slot: int) -> SimulatedConsumer:
        """A process starts and joins with its first heartbeat."""
        n = self.count.get(slot, 0)
        self.count[slot] = n + 1
        costs = self.costs
        poll_ms = costs.slow_poll_ms if slot < costs.slow_members else costs.poll_ms
        member = SimulatedConsumer(
            slot=slot,
            client=f"m{slot:04d}.{n}",
            beat_ms=costs.heartbeat_ms,
            poll_ms=poll_ms,
            poll_phase_ms=int(self.rng.integers(poll_ms)),
        )
        self.members[slot] = member
        self.retarget()
        self.at(self.now_ms + costs.latency_ms, self._beat, member)
        return member

    def stop(self, slot: int) -> None:
        """A clean leave: revoke, commit, leave."""
        member = self.members[slot]
        self._release(member, sorted(member.owned))
        self.at(self.now_ms + self.costs.revoke_ms, self._gone, member)

    def crash(self, slot: int) -> None:
        """The broker hears of it when the session runs out, from the last heartbeat on."""
        member = self.members[slot]
        member.alive = False
        for resource in sorted(member.owned):
            self.ledger.stop(resource, runner=member.client, now_ms=self.now_ms)
        self.at(member.heard_ms + self.costs.session_ms, self._gone, member)

    def _gone(self, member: SimulatedConsumer) -> None:
        member.alive = False
        member.owned.clear()
        if self.members.get(member.slot) is member:
            del self.members[member.slot]
        self.retarget()

    def retarget(self) -> None:
        """Compute a new target; members hear of it one by one."""
        living = [m for m in self.members.values() if m.alive]
        if not living:
            return
        claims = [
            SubscribedMember(
                member_id=m.client,
                subscription=MemberSubscription(
                    topics=("topic",), owned=grouped(sorted(m.owned)), generation=self.epoch
                ),
            )
            for m in sorted(living, key=lambda m: m.client)
        ]
        group = group_of(claims, {"topic": self.plan.partitions})
        owner = assign(group, "sticky").target
        rows = partitions_by_owner(group.topics, owner)
        self.target = {
            (topic, p): claims[i].member_id
            for i, row in rows.items()
            for topic, numbers in row
            for p in numbers
        }
        self.epoch += 1
        self.changed_ms = self.now_ms

    def _beat(self, member: SimulatedConsumer) -> None:
        if not member.alive:
            return
        self.at(self.now_ms + member.beat_ms, self._beat, member)
        member.heard_ms = self.now_ms
        self._count_bytes(member)
        extra = sorted(r for r in member.owned if self.target[r] != member.client)
        if extra:
            wait_ms = (member.poll_phase_ms - self.now_ms) % member.poll_ms
            self.at(self.now_ms + wait_ms, self._revoke, (member, tuple(extra)))
        taken = {r for m in self.members.values() for r in m.owned}
        for resource in self.resources:
            mine = self.target.get(resource) == member.client
            if mine and resource not in taken:
                self._begin(member, resource)

    def _count_bytes(self, member: SimulatedConsumer) -> None:
        """A heartbeat names what is owned if that has changed, its answer a target that is new."""
        owned = frozenset(member.owned)
        target = frozenset(r for r, client in self.target.items() if client == member.client)
        if owned != member.reported:
            self.bytes += _size_bytes(len(owned))
        if target != member.sent:
            self.bytes += _size_bytes(len(target))
        member.reported, member.sent = owned, target

    def _revoke(self, entry: tuple[SimulatedConsumer, tuple[Resource, ...]]) -> None:
        member, resources = entry
        if member.alive:
            self._release(member, [r for r in resources if r in member.owned])

    def _release(self, member: SimulatedConsumer, resources: list[Resource]) -> None:
        for resource in resources:
            self.ledger.stop(resource, runner=member.client, now_ms=self.now_ms)
        done_ms = self.now_ms + self.costs.revoke_ms
        self.at(done_ms, self._released, (member, tuple(resources)))

    def _released(self, entry: tuple[SimulatedConsumer, tuple[Resource, ...]]) -> None:
        member, resources = entry
        member.owned.difference_update(resources)
        self.changed_ms = self.now_ms

    def _begin(self, member: SimulatedConsumer, resource: Resource) -> None:
        member.owned.add(resource)
        member.rebuilt_ms = max(member.rebuilt_ms, self.now_ms) + self.costs.rebuild_ms
        self.changed_ms = self.now_ms
        self.ledger.start(
            resource,
            runner=member.client,
            slot=member.slot,
            generation=self.epoch,
            now_ms=self.now_ms,
            ready_ms=member.rebuilt_ms,
            excused=False,
        )

    def settle(self) -> None:
        """Wait until the target is reached."""
        for _ in range(100_000):
            owned = {r: m.client for m in self.members.values() for r in m.owned}
            if owned == self.target and self.now_ms - self.changed_ms > self.costs.heartbeat_ms:
                return
            self.run(self.now_ms + 500)

    def bounce(self, slot: int) -> None:
        """End, restart, wait for work."""
        member = self.members[slot]
        if self.plan.crash:
            self.crash(slot)
        else:
            self.stop(slot)
        self.run(self.now_ms + self.costs.revoke_ms + self.costs.restart_ms)
        back = self.start(slot)
        for _ in range(10_000):
            if back.owned:
                break
            self.run(self.now_ms + 100)
        assert member is not back
        self.run(self.now_ms + self.costs.pause_ms)


def run_kip848(scenario: str, plan: KIP848Setup) -> RunTotals:
    """Play a scenario with this model."""
    group = Group848(plan)
    for slot in range(plan.members):
        group.start(slot)
        group.run(group.now_ms + 1000 // plan.members)
    begin_ms = epoch = size = 0
    if scenario != "first-start":
        group.settle()
        group.run(max([group.now_ms, *(m.rebuilt_ms for m in group.members.values())]))
        begin_ms, epoch, size = group.now_ms, group.epoch, group.bytes
        group.ledger.begin(begin_ms)
    last = plan.members - 1
    if scenario == "rolling-bounce":
        for slot in range(plan.members):
            group.bounce(slot)
    for step in range(plan.steps):
        if scenario == "process-death":
            slot = last - step % plan.members
            group.crash(slot)
            group.run(group.now_ms + plan.costs.restart_ms)
            group.start(slot)
            group.settle()
        elif scenario == "scale-up":
            group.start(plan.members + step)
        elif scenario == "scale-down":
            end = group.crash if plan.crash else group.stop
            end(last - step)
    group.run(group.now_ms + (plan.costs.session_ms if plan.crash else plan.costs.revoke_ms))
    group.settle()
    balance_ms = max(0, group.changed_ms - begin_ms)
    group.run(max([group.now_ms, *(m.rebuilt_ms for m in group.members.values())]))
    group.ledger.finish(group.now_ms)
    rounds = group.epoch - epoch
    return RunTotals(
        ledger=group.ledger,
        rounds=rounds,
        balance_ms=balance_ms,
        bytes_per_round=(group.bytes - size) // max(1, rounds),
    )


def _size_bytes(count: int) -> int:
    """Of one topic's partitions in a heartbeat or its answer: an array, a uuid, int32s, tags."""
    return 1 + 16 + 1 + 4 * count + 1
