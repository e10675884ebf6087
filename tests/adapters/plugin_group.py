"""A group of plug-in assignors without a broker: kafka-python's calls in kafka-python's order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.structs import TopicPartition

from holdfast.adapters.kafka_python import PluginAssignor


class Cluster:
    """As much of kafka-python's ClusterMetadata as assignors may use."""

    def __init__(self, partitions: dict[str, int], racks: dict[int, str] | None = None):
        self.partitions = partitions
        self.racks = racks or {}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        n = self.partitions.get(topic)
        return None if n is None else set(range(n))

    def brokers(self) -> list[Any]:
        return [SimpleNamespace(node_id=i, rack=rack) for i, rack in self.racks.items()]

    def is_replica_node(self, tp: TopicPartition, node_id: int) -> Any:
        """One replica: partition p is on node p modulo their number."""
        nodes = sorted(self.racks)
        return nodes[tp.partition % len(nodes)] == node_id


class Member:
    """A consumer: what it holds, and the host of its assignor."""

    def __init__(self, group: Group, name: str, assignor: PluginAssignor, *, eager: bool = False):
        self.group = group
        self.name = name
        self.assignor = assignor
        self.eager = eager
        self.owned: set[TopicPartition] = set()
        self.rejoin = True
        self.due: float | None = None
        self.pauses_ms: list[int | None] = []

    def is_eager(self) -> bool:
        return self.eager

    def held(self) -> set[TopicPartition]:
        return set(self.owned)

    def member_id(self) -> str:
        return self.name

    def generation(self) -> int:
        return self.group.generation

    def heartbeat_interval_ms(self) -> int:
        return 3_000

    def rejoin_after(self, delay_ms: int | None) -> None:
        self.pauses_ms.append(delay_ms)
        self.due = None if delay_ms is None else self.group.now + delay_ms / 1000

    def ms_until_rejoin(self) -> int | None:
        return None if self.due is None else max(0, round((self.due - self.group.now) * 1000))

    def rack(self) -> str | None:
        return None

    def group_id(self) -> str:
        return "g"

    def auto_offset_reset(self) -> str:
        return "latest"

    def remembered(self, own: Any) -> Any:
        return own

    @property
    def is_announced(self) -> bool:
        """Whether the last assignment said that another round follows."""
        return self.due is not None and self.assignor._memory.n_announced > 0

    def partitions(self) -> list[int]:
        return sorted(tp.partition for tp in self.owned)


class Group:
    """The coordinator's part: rounds, generations, a leader."""

    def __init__(self, partitions: int = 6, **racks: str):
        self.cluster = Cluster({"t": partitions})
        self.members: dict[str, Member] = {}
        self.generation = 0
        self.now = 1_000.0
        self.leader: str | None = None
        self.log: list[dict[str, list[int]]] = []
        self.sent: dict[str, bytes] = {}

    def clock(self) -> float:
        return self.now

    def join(self, name: str, assignor: PluginAssignor, *, attached: bool = True, **options: Any):
        member = Member(self, name, assignor, **options)
        if attached:
            assignor.bind(member)
        self.members[name] = member
        return member

    def kill(self, name: str) -> Member:
        """The session of a member times out; the others are told."""
        for other in self.members.values():
            other.rejoin = True
        return self.members.pop(name)

    def settle(self, limit: int = 20) -> int:
        """Run rounds until nobody asks for another one; returns how many."""
        rounds = 0
        while any(member.rejoin or member.is_announced for member in self.members.values()):
            if not any(member.rejoin for member in self.members.values()):
                self.advance(3)  # the pause before a round that is announced is no longer
            self.round()
            rounds += 1
            assert rounds <= limit, "the group does not settle"
        return rounds

    def advance(self, seconds: float) -> None:
        """Let time pass: who was told a delay joins again when it is over."""
        self.now += seconds
        for member in self.members.values():
            if member.due is not None and self.now >= member.due:
                member.due = None
                member.rejoin = True

    def round(self) -> None:
        """One JoinGroup and SyncGroup of everybody."""
        for member in self.members.values():
            member.rejoin = False
            member.due = None
            if member.eager:
                member.owned.clear()
        self.sent = {name: m.assignor.metadata(["t"]) for name, m in self.members.items()}
        self.generation += 1
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        joined = [
            SimpleNamespace(
                member_id=name,
                group_instance_id=None,
                metadata=ConsumerProtocolSubscription.decode(data),
            )
            for name, data in self.sent.items()
        ]
        plan = self.members[self.leader].assignor.assign(self.cluster, joined)
        assert sorted(plan) == sorted(self.members)
        # No partition is given to one member while another one has not let go of it.
        given = [
            tp for d in plan.values() for tp in ConsumerProtocolAssignment.decode(d).partitions()
        ]
        assert len(given) == len(set(given))
        for name, data in plan.items():
            self._apply(self.members[name], data)
        owned = [tp for member in self.members.values() for tp in member.owned]
        assert len(owned) == len(set(owned)), "two owners"
        self.log.append({name: member.partitions() for name, member in self.members.items()})

    def _apply(self, member: Member, data: bytes) -> None:
        """As the client does: what is absent is revoked, and who revoked joins again."""
        assignment = ConsumerProtocolAssignment.decode(data)
        given = set(assignment.partitions())
        for other in self.members.values():
            if other is not member:
                assert not given & other.owned, f"{member.name} is given what {other.name} holds"
        revoked = member.owned - given
        member.owned = given
        member.assignor.on_assignment(assignment, self.generation)
        if revoked:
            member.rejoin = True
