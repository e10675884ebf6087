"""holdfast's eager assignors for the stock aiokafka, and aiokafka's own for a member of holdfast.

::

    sticky = [Sticky()]
    consumer = AIOKafkaConsumer("orders", group_id="etl", partition_assignment_strategy=sticky)

**Rules.** aiokafka has the eager protocol only: cooperative assignors and designs are refused. An
instance belongs to one consumer and keeps its own state. (aiokafka's own sticky assignor keeps its
state on the class, so two consumers of one process overwrite each other.) No private part of the
client is used. A claim is the last assignment, without a generation: aiokafka passes none to an
assignor.

**Strategy.** aiokafka gives a leader only the topics and user data of each member; an eager
assignor needs no more. Every claim has generation -1, so all claims are of one age
(:mod:`holdfast.core.assignors.claims`, rules 2 and 3):

- A member that stops makes no claim, and a process that starts claims nothing. So in a bounce no
  partition is claimed twice, and members keep what they have.
- A member that was away while others took its partitions, and did not stop, still claims them. Then
  two members have equal claims to a partition, and neither owns it: it may move. It still gets one
  owner, and the balance is the same.
- Among members that know their generation (Java, ``holdfast.aiokafka``), a claim at -1 counts if no
  other member claims the partition. Java's leaders before KAFKA-14639 drop it.
- A leader does not know the generation of its round either. A claim of a future generation counts
  as the newest; at worst partitions move.

References: KIP-54, KIP-341 (generations of claims), KAFKA-14639 (claims of older generations).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocol

from holdfast.cluster.client_configs import hide_logins
from holdfast.core.assignors.registry import AssignorInfo, Named, known
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader import designs
from holdfast.core.machine.leader.assignor_protocol import (
    Assignor,
    LeaderRound,
    MemberView,
    RebalanceProtocol,
    ReceivedAssignment,
)
from holdfast.core.machine.supported_protocols import AssignorSpec
from holdfast.core.model.constants import NO_GENERATION
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.consumer_protocol import Subscription, encode_subscription
from holdfast.errors import ClientError, ConfigError
from holdfast.members.clients.client_assignor import ClientAssignor, partition_counts
from holdfast.members.config.own_assignors import check_group, make_assignor, resolve
from holdfast.members.runtime.leader_planner import LAG_TIMEOUT_MS, LagSource

__all__ = ["AiokafkaAssignor", "Range", "RoundRobin", "Sticky", "assignor"]

hide_logins()


class AiokafkaAssignor(ClientAssignor, AbstractPartitionAssignor):  # type: ignore[misc] # the client has no types
    """One eager assignor, as aiokafka calls it.

    Parameters
    ----------
    name : str or assignor
        A name of docs/assignors.md, a Java class, an eager assignor of your own
        (:func:`holdfast.assignor`) or its import path, ``module:name``.
    lags : LagSource, optional
        Takes partition counts, returns ``{topic: [lag of each partition, in messages]}`` to the
        leader: a function, or :meth:`holdfast.BrokerLags.connect`, whose ``auto.offset.reset``
        should be the consumer's.
    lag_timeout_ms : int
        Time limit for the client's event loop, in ms; after it the round is planned by counts.
    **options
        Options of the assignor.

    Raises
    ------
    ConfigError
        For an unknown or cooperative assignor, or an unknown option.
    """

    without_plan = "partitions go by range"

    def __init__(
        self,
        name: Named | Assignor,
        *,
        lags: LagSource | None = None,
        lag_timeout_ms: int = LAG_TIMEOUT_MS,
        **options: Any,
    ):
        super().__init__(_eager(resolve(name), options), lags, lag_timeout_ms)
        self._last: frozenset[Resource] = frozenset()
        self._written_at = time.monotonic()

    def metadata(self, topics: Iterable[str]) -> bytes:
        """Return the bytes of this member's subscription.

        Raises
        ------
        LocalProtocolError
            If the assignor needs the group id and does not have it.

        References: KIP-341 (a claim outlives lost membership).
        """
        check_group(self.protocol)
        self._written_at = time.monotonic()
        return self.protocol.subscribe(
            MemberView(
                topics=tuple(sorted(topics)),
                owned=(),
                previous=tuple(sorted(self._last)),
                generation=NO_GENERATION,
            )
        )

    def on_assignment(self, assignment: Any) -> None:
        """Record the assignment: the next subscription claims it."""
        self._last = frozenset((tp.topic, tp.partition) for tp in assignment.partitions())

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, bytes]:
        """Lead a round: return the bytes of every member's assignment."""
        counts = partition_counts(cluster, (t for m in members.values() for t in m.subscription))
        joined = [
            JoinedMember(member_id=member_id, metadata=_subscription(metadata))
            for member_id, metadata in sorted(members.items())
        ]
        waited_ms = round((time.monotonic() - self._written_at) * 1000)
        return self.lead(joined, counts, generation=NO_GENERATION, waited_ms=waited_ms)


def _eager(given: AssignorSpec, options: Mapping[str, Any]) -> Assignor:
    """Return the assignor, if aiokafka can run it."""
    if isinstance(given, str | AssignorInfo):
        row = known(given)
        runs = row is not None and not row.cooperative
    else:
        runs = RebalanceProtocol.EAGER in given.rebalance_protocols
    if runs:
        return make_assignor(given, options)
    name = given if isinstance(given, str) else given.name
    raise ConfigError(
        f"{name} is cooperative, but aiokafka runs only eager assignors: use 'sticky', or "
        "holdfast.aiokafka"
    )


def _subscription(metadata: Any) -> bytes:
    """Return the version 0 part of a subscription, which is all that aiokafka reads."""
    return encode_subscription(
        Subscription(
            version=0, topics=tuple(metadata.subscription), user_data=metadata.user_data or None
        )
    )


assignor = AiokafkaAssignor
"""Any eager assignor for aiokafka."""


class Sticky(AiokafkaAssignor):
    """Best balance, fewest moves; Java's ``sticky``."""

    def __init__(self) -> None:
        super().__init__("sticky")


class Range(AiokafkaAssignor):
    """Java's ``range``."""

    def __init__(self) -> None:
        super().__init__("range")


class RoundRobin(AiokafkaAssignor):
    """Java's ``roundrobin``."""

    def __init__(self) -> None:
        super().__init__("roundrobin")


class ForeignAssignor:
    """One eager assignor of aiokafka, a class or an object, run by a member of holdfast.

    It runs as aiokafka runs it: eager, on aiokafka's decoded messages. An error fails the round,
    not the member; the group rebalances again.
    """

    def __init__(self, assignor: Any, cluster: Any):
        self.name: str = assignor.name
        self.rebalance_protocols: frozenset[RebalanceProtocol] = designs.EAGER
        self._original = assignor
        self._cluster = cluster

    def subscribe(self, view: MemberView) -> bytes:
        """Return the bytes of a subscription, as aiokafka's assignor writes them."""
        return bytes(self._original.metadata(set(view.topics)).encode())

    def read(self, assignment: bytes) -> ReceivedAssignment:
        """Read an assignment, and pass it to aiokafka's assignor."""
        decoded = ConsumerProtocol.ASSIGNMENT.decode(assignment)
        self._original.on_assignment(decoded)
        return ReceivedAssignment(
            assigned=frozenset((tp.topic, tp.partition) for tp in decoded.partitions())
        )

    def lead(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Return the assignments that aiokafka's assignor computes."""
        members = {
            m.member_id: ConsumerProtocol.METADATA.decode(m.metadata) for m in leader_round.members
        }
        plan = self._original.assign(
            _ClusterWithCounts(self._cluster, leader_round.partitions), members
        )
        return {member: bytes(assignment.encode()) for member, assignment in plan.items()}

    def stay(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Fail this round: an eager member claims nothing that it could keep."""
        raise ClientError(f"assignor {self.name}: assignment failed; rebalancing again")


class _ClusterWithCounts:
    """aiokafka's metadata, with the partition counts of this round."""

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
        partitions: set[int] | None = self._cluster.partitions_for_topic(topic)
        return partitions
