"""A baseline: a KIP-848-like group, where the broker computes a target and members reconcile.

**Rules.** This is a model, for comparison only. The registry's ``sticky`` computes a target
whenever the members change. A member learns its target with its next heartbeat. A partition's new
owner waits only for the old owner: there is no barrier and no delayed rebalance. Costs are those of
:class:`holdfast.sim.clock.Costs`.

**Strategy.** The model computes when each partition stops and starts; it has no epochs of single
members. A member revokes at the first poll after a heartbeat, and the new owner starts with its
first heartbeat after that. Bytes are those of lists of partitions: a member's target if it is new
to the member, and the member's partitions if they have changed.

References: KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.core.assignors.registry import assign
from holdfast.core.machine.leader.leader import group_of
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.model.partitions import Resource, grouped, resources_of_topic
from holdfast.core.model.reported import partitions_by_owner
from holdfast.core.wire.layouts.container import MemberSubscription
from holdfast.sim.clock import Clock, Costs, OwnershipLog


@dataclass(slots=True, eq=False)
class SimulatedConsumer:
    """A member: its resources, and the times of its heartbeats and polls."""

    slot: int
    client: str
    topics: tuple[str, ...]
    beat_ms: int
    poll_ms: int
    phase_ms: int
    alive: bool = True
    owned: set[Resource] = field(default_factory=set)
    rebuilt_ms: int = 0
    last_beat_ms: int = 0
    sent: frozenset[Resource] = frozenset()  # the target in its last answer
    reported: frozenset[Resource] = frozenset()  # owned, in its last heartbeat


class Group848:
    """The group and its broker in one."""

    def __init__(self, partitions: Mapping[str, int], costs: Costs, seed: int):
        self.partitions, self.costs = dict(partitions), costs
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.resources = self._resources()
        self.ownership_log = OwnershipLog(self.resources)
        self.members: dict[int, SimulatedConsumer] = {}
        self.count: dict[int, int] = {}
        self.target: dict[Resource, str] = {}
        self.epoch = 0
        self.epochs: list[tuple[int, ...]] = []  # slots of the members of each target
        self.clock = Clock()
        self.changed_ms = 0
        self.bytes = 0

    def _resources(self) -> list[Resource]:
        counts = sorted(self.partitions.items())
        return [r for topic, count in counts for r in resources_of_topic(topic, range(count))]

    def start(self, slot: int, topics: Sequence[str] | None = None) -> SimulatedConsumer:
        """Start a process, which joins with its first heartbeat."""
        n = self.count.get(slot, 0)
        self.count[slot] = n + 1
        costs = self.costs
        poll_ms = costs.slow_poll_ms if slot < costs.slow_members else costs.poll_ms
        member = SimulatedConsumer(
            slot=slot,
            client=f"m{slot:04d}.{n}",
            topics=tuple(sorted(self.partitions) if topics is None else topics),
            beat_ms=costs.heartbeat_ms,
            poll_ms=poll_ms,
            phase_ms=int(self.rng.integers(poll_ms)),
        )
        self.members[slot] = member
        self.retarget()
        self.clock.at(self.clock.now_ms + costs.latency_ms, self._beat, member)
        return member

    def stop(self, slot: int) -> None:
        """Leave cleanly: revoke, commit, leave."""
        member = self.members[slot]
        self._release(member, sorted(member.owned))
        self.clock.at(self.clock.now_ms + self.costs.revoke_ms, self._gone, member)

    def crash(self, slot: int) -> None:
        """End a process at once; the broker removes the member at the end of its session."""
        member = self.members[slot]
        member.alive = False
        for resource in sorted(member.owned):
            self.ownership_log.stop(resource, runner=member.client, now_ms=self.clock.now_ms)
        self.clock.at(member.last_beat_ms + self.costs.session_ms, self._gone, member)

    def subscribe(self, slot: int, topics: Sequence[str]) -> None:
        """Subscribe a member to other topics."""
        self.members[slot].topics = tuple(topics)
        self.retarget()

    def resize(self, topic: str, count: int) -> None:
        """Set the number of a topic's partitions to ``count``."""
        self.partitions[topic] = count
        self.resources = self._resources()
        self.ownership_log.add(self.resources, self.clock.now_ms)
        self.retarget()

    def settled(self) -> bool:
        """Return whether the target is reached, and every member could have learned another one."""
        owned = {r: m.client for m in self.members.values() for r in m.owned}
        return (
            owned == self.target and self.clock.now_ms - self.changed_ms > self.costs.heartbeat_ms
        )

    def _gone(self, member: SimulatedConsumer) -> None:
        member.alive = False
        member.owned.clear()
        self.members = {slot: m for slot, m in self.members.items() if m is not member}
        self.retarget()

    def retarget(self) -> None:
        """Compute a new target; each member learns it with its next heartbeat."""
        living = [m for m in self.members.values() if m.alive]
        if not living:
            return
        members = [
            SubscribedMember(
                member_id=m.client,
                subscription=MemberSubscription(
                    topics=m.topics, owned=grouped(sorted(m.owned)), generation=self.epoch
                ),
            )
            for m in sorted(living, key=lambda m: m.client)
        ]
        group = group_of(members, self.partitions)
        owner = assign(group, "sticky").target
        rows = partitions_by_owner(group.topics, owner)
        self.target = {
            (topic, p): members[i].member_id
            for i, row in rows.items()
            for topic, numbers in row
            for p in numbers
        }
        self.epoch += 1
        self.epochs.append(tuple(sorted(s for s, m in self.members.items() if m.alive)))
        self.changed_ms = self.clock.now_ms

    def _beat(self, member: SimulatedConsumer) -> None:
        if not member.alive:
            return
        self.clock.at(self.clock.now_ms + member.beat_ms, self._beat, member)
        member.last_beat_ms = self.clock.now_ms
        self._count_bytes(member)
        extra = sorted(r for r in member.owned if self.target.get(r) != member.client)
        if extra:
            wait_ms = (member.phase_ms - self.clock.now_ms) % member.poll_ms
            self.clock.at(self.clock.now_ms + wait_ms, self._revoke, (member, tuple(extra)))
        taken = {r for m in self.members.values() for r in m.owned}
        for resource in self.resources:
            mine = self.target.get(resource) == member.client
            if mine and resource not in taken:
                self._begin(member, resource)

    def _count_bytes(self, member: SimulatedConsumer) -> None:
        """Count the member's partitions and its target, each only if it has changed."""
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
            self.ownership_log.stop(resource, runner=member.client, now_ms=self.clock.now_ms)
        done_ms = self.clock.now_ms + self.costs.revoke_ms
        self.clock.at(done_ms, self._released, (member, tuple(resources)))

    def _released(self, entry: tuple[SimulatedConsumer, tuple[Resource, ...]]) -> None:
        member, resources = entry
        member.owned.difference_update(resources)
        self.changed_ms = self.clock.now_ms

    def _begin(self, member: SimulatedConsumer, resource: Resource) -> None:
        now_ms, costs = self.clock.now_ms, self.costs
        member.owned.add(resource)
        member.rebuilt_ms = max(member.rebuilt_ms, now_ms) + costs.rebuild_ms
        self.changed_ms = now_ms
        self.ownership_log.start(
            resource,
            runner=member.client,
            slot=member.slot,
            now_ms=now_ms,
            ready_ms=member.rebuilt_ms + costs.first_fetch_ms,
        )
        if costs.rebuild_blocks and costs.rebuild_ms:
            for other in sorted(member.owned):
                self.ownership_log.hold(other, now_ms, member.rebuilt_ms)

    def settle(self) -> None:
        """Wait until the target is reached."""
        for _ in range(100_000):
            if self.settled():
                return
            self.clock.run(self.clock.now_ms + 500)

    def rebuilt(self) -> None:
        """Wait until all state is rebuilt."""
        self.clock.run(max([self.clock.now_ms, *(m.rebuilt_ms for m in self.members.values())]))

    def play(self, scenario: str, members: int, steps: int, *, crash: bool) -> None:
        """Play a scenario by its name, with ``members`` that have started."""
        last = members - 1
        match scenario:
            case "surge":
                self.surge(steps, crash=crash)
            case "rolling-bounce":
                for slot in range(members):
                    self.bounce(slot, crash=crash)
            case "process-death":
                for step in range(steps):
                    slot = last - step % members
                    self.crash(slot)
                    self.clock.run(self.clock.now_ms + self.costs.restart_ms)
                    self.start(slot)
                    self.settle()
            case "scale-up":
                for step in range(steps):
                    self.start(members + step)
            case "scale-down":
                for step in range(steps):
                    self.end(last - step, crash=crash)
            case _:
                pass  # a first start is over when all have started

    def end(self, slot: int, *, crash: bool) -> None:
        """End a process by a crash or cleanly."""
        if crash:
            self.crash(slot)
        else:
            self.stop(slot)

    def bounce(self, slot: int, *, crash: bool) -> None:
        """End a process, start it again, wait until it has work."""
        member = self.members[slot]
        self.end(slot, crash=crash)
        self.clock.run(self.clock.now_ms + self.costs.revoke_ms + self.costs.restart_ms)
        back = self.start(slot)
        for _ in range(10_000):
            if back.owned:
                break
            self.clock.run(self.clock.now_ms + 100)
        assert member is not back
        self.clock.run(self.clock.now_ms + self.costs.pause_ms)

    def surge(self, count: int, *, crash: bool) -> None:
        """Replace all members: ``count`` join, and as many old ones end when all work."""
        slots = len(self.members)
        for first in range(0, slots, count):
            old = range(first, min(slots, first + count))
            for slot in old:
                self.start(slots + slot)
            self.settle()
            self.clock.run(self.clock.now_ms + self.costs.pause_ms)
            for slot in old:
                self.end(slot, crash=crash)


def _size_bytes(count: int) -> int:
    """Return the size of one topic with its partitions: an array, a uuid, int32s, tags."""
    return 1 + 16 + 1 + 4 * count + 1
