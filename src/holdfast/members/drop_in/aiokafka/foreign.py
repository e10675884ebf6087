"""Assignors written for aiokafka's class, offered by a member of ours.

**Rules.** They run as aiokafka runs them: eager, on aiokafka's decoded messages. What they raise
costs the round and not the member; the round begins anew.

**Strategy.** aiokafka's classes encode and decode; :class:`ForeignAssignor` has the two halves of
:class:`~holdfast.core.machine.leader.designs.Assignor`.

References: KIP-726 ("assignors are user-customisable").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocol

from holdfast.core.machine.leader.designs import EAGER, LeaderRound
from holdfast.core.machine.leader.embedded import Instruction, MemberView
from holdfast.core.machine.modes import RebalanceMode
from holdfast.errors import AdapterError


class ForeignAssignor:
    """One eager assignor of aiokafka.

    Parameters
    ----------
    assignor
        A subclass of aiokafka's ``AbstractPartitionAssignor``, or an object of one.
    cluster
        aiokafka's metadata.
    """

    def __init__(self, assignor: Any, cluster: Any):
        self.name: str = assignor.name
        self.modes: frozenset[RebalanceMode] = EAGER
        self._theirs = assignor
        self._cluster = cluster

    def subscribe(self, view: MemberView) -> bytes:
        """As :class:`~holdfast.core.machine.leader.embedded.Embedded` has it."""
        return bytes(self._theirs.metadata(set(view.topics)).encode())

    def read(self, assignment: bytes) -> Instruction:
        """As :class:`~holdfast.core.machine.leader.embedded.Embedded` has it."""
        found = ConsumerProtocol.ASSIGNMENT.decode(assignment)
        self._theirs.on_assignment(found)
        return Instruction(
            assigned=frozenset((tp.topic, tp.partition) for tp in found.partitions())
        )

    def lead(self, turn: LeaderRound) -> dict[str, bytes]:
        """As :class:`~holdfast.core.machine.leader.designs.Assignor` has it."""
        members = {m.member_id: ConsumerProtocol.METADATA.decode(m.metadata) for m in turn.members}
        plan = self._theirs.assign(_Counted(self._cluster, turn.partitions), members)
        return {member: bytes(assignment.encode()) for member, assignment in plan.items()}

    def stay(self, turn: LeaderRound) -> dict[str, bytes]:
        """Give up this round: an eager member claims nothing that it could keep."""
        raise AdapterError(f"assignor {self.name}: the round begins anew")


class _Counted:
    """aiokafka's metadata, which knows the partition counts of this round."""

    def __init__(self, cluster: Any, counts: Mapping[str, int]):
        self._cluster = cluster
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        known: set[str] = self._cluster.topics(exclude_internal_topics)
        return known | set(self._counts)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        if topic in self._counts:
            return set(range(self._counts[topic]))
        found: set[int] | None = self._cluster.partitions_for_topic(topic)
        return found
