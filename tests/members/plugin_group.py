"""A group of holdfast's assignors without a broker: kafka-python's calls in its order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.structs import TopicPartition

from holdfast.members.clients.kafka.assignors import KafkaPythonAssignor


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
    """A consumer: what it holds, and whether it asks for a round."""

    def __init__(self, name: str, assignor: KafkaPythonAssignor):
        self.name = name
        self.assignor = assignor
        self.is_eager = assignor.supported_protocols() == [RebalanceProtocol.EAGER]
        self.owned: set[TopicPartition] = set()
        self.rejoin = True

    def lose(self) -> None:
        """The client drops its partitions and joins anew; its assignor hears of nothing."""
        self.owned.clear()
        self.rejoin = True

    def partitions(self) -> list[int]:
        return sorted(tp.partition for tp in self.owned)


class Group:
    """The coordinator's part: rounds, generations, a leader."""

    def __init__(self, partitions: int = 6):
        self.cluster = Cluster({"t": partitions})
        self.members: dict[str, Member] = {}
        self.generation = 0
        self.leader: str | None = None
        self.log: list[dict[str, list[int]]] = []
        self.sent: dict[str, bytes] = {}

    def join(self, name: str, assignor: KafkaPythonAssignor) -> Member:
        """One more member; it joins in the next round."""
        self.members[name] = member = Member(name, assignor)
        return member

    def come(self, name: str, assignor: KafkaPythonAssignor) -> Member:
        """One more member joins, and the group settles."""
        member = self.join(name, assignor)
        self.call()
        self.settle()
        return member

    def call(self) -> None:
        """Heartbeats tell everybody that a round is due."""
        for member in self.members.values():
            member.rejoin = True

    def kill(self, name: str) -> Member:
        """The session of a member times out; the others are told."""
        self.call()
        return self.members.pop(name)

    def settle(self, limit: int = 20) -> int:
        """Run rounds until nobody asks for another one; returns how many."""
        rounds = 0
        while any(member.rejoin for member in self.members.values()):
            self.round()
            rounds += 1
            assert rounds <= limit, "the group does not settle"
        return rounds

    def round(self) -> None:
        """One JoinGroup and SyncGroup of everybody."""
        for member in self.members.values():
            member.rejoin = False
            if member.is_eager:
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
        """As the client does: what is absent is revoked, and a member that revoked joins again."""
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
