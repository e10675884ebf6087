"""holdfast's assignors as plain classes for kafka-python's own consumer.

::

    strategy = [CooperativeSticky()]
    consumer = KafkaConsumer("orders", group_id="etl", partition_assignment_strategy=strategy)

**Rules.** An instance belongs to one consumer. holdfast writes all bytes itself: Subscription v3
with generation, owned partitions and rack, and Java's user data for the assignors that Java has.
Only public parts of the client are used. A cooperative instance claims its own last assignment. The
client passes an assignment to the chosen assignor alone, so a cooperative instance is alone in its
list, or is ``upgrading``. If a leader cannot plan, every member keeps what it claims.

**Strategy.** A class here translates between the client's calls and an
:class:`~holdfast.core.machine.leader.assignor_protocol.Assignor`, which writes and reads the bytes.
An assignor sees no consumer. So it cannot request a round, and no Design runs here. It is not
notified of a lost membership either: in its next subscription a cooperative member still claims its
old partitions, at the old generation. A newer claim wins over that claim, and partitions that the
leader leaves unassigned because of it wait for the next round. The ``CooperativeStickyAssignor`` of
the client behaves alike; :class:`holdfast.kafka.KafkaConsumer` claims nothing after a loss, and
runs every design.

References: KIP-429, KIP-341, KIP-881, KAFKA-12984.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.cluster.versions import check

try:
    from kafka.coordinator.assignors.abstract import (
        AbstractPartitionAssignor,
    )
    from kafka.coordinator.assignors.abstract import (
        RebalanceProtocol as KafkaRebalanceProtocol,
    )
    from kafka.structs import TopicPartition
except ImportError:
    check("kafka-python")
    raise

from holdfast.cluster.client_configs import hide_logins
from holdfast.core.assignors.registry import Named
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.assignor_protocol import Assignor, MemberView, RebalanceProtocol
from holdfast.core.machine.policy import DESIGNS, policy_of_protocol
from holdfast.core.model.constants import NO_GENERATION
from holdfast.core.model.partitions import Resource
from holdfast.errors import ConfigError, WireError
from holdfast.members.clients.client_assignor import ClientAssignor, partition_counts
from holdfast.members.config.own_assignors import check_group, make_assignor, resolve
from holdfast.members.runtime.leader_planner import LAG_TIMEOUT_MS, LagSource

__all__ = [
    "CooperativeSticky",
    "KafkaPythonAssignor",
    "Range",
    "RoundRobin",
    "Sticky",
    "assignor",
]

log = logging.getLogger(__name__)
hide_logins()


class KafkaPythonAssignor(ClientAssignor, AbstractPartitionAssignor):  # type: ignore[misc] # the client has no types
    """One assignor, as kafka-python calls it.

    Parameters
    ----------
    name : str or assignor
        A name of docs/assignors.md, a Java class, an assignor of your own
        (:func:`holdfast.assignor`) or its import path, ``module:name``.
    rack : str, optional
        The member's rack (KIP-881); the client passes its ``client_rack`` only to its fetcher.
    upgrading : bool
        For a cooperative assignor in the first of KIP-429's two bounces, listed with the group's
        old assignor: it supports only the eager protocol, and claims nothing as owned.
    lags : LagSource, optional
        Takes partition counts, returns ``{topic: [lag of each partition, in messages]}`` to the
        leader: a function, or :meth:`holdfast.BrokerLags.connect`.
    lag_timeout_ms : int
        Time limit for the client's network thread, in ms; after it the round is planned by counts.
    **options
        Options of the assignor.

    Raises
    ------
    ConfigError
        For an unknown assignor or option, a design, or ``upgrading`` with an assignor that does not
        run eager.
    """

    def __init__(
        self,
        name: Named | Assignor,
        *,
        rack: str | None = None,
        upgrading: bool = False,
        lags: LagSource | None = None,
        lag_timeout_ms: int = LAG_TIMEOUT_MS,
        **options: Any,
    ):
        given = resolve(name)
        _refuse_design(given if isinstance(given, str) else given.name)
        protocol = make_assignor(given, options)
        if upgrading and RebalanceProtocol.EAGER not in protocol.rebalance_protocols:
            raise ConfigError(f"upgrading: {protocol.name} does not run eager")
        super().__init__(protocol, lags, lag_timeout_ms)
        self._rack = rack
        is_eager = upgrading or RebalanceProtocol.COOPERATIVE not in protocol.rebalance_protocols
        self._rebalance_protocol = (
            RebalanceProtocol.EAGER if is_eager else RebalanceProtocol.COOPERATIVE
        )
        self._nonce = 0
        self._last: frozenset[Resource] = frozenset()
        self._generation = NO_GENERATION
        self._leader_state: bytes | None = None
        self._received_at = time.monotonic()

    def supported_protocols(self) -> list[KafkaRebalanceProtocol]:
        """Return the one rebalance protocol in which the assignor runs."""
        return [KafkaRebalanceProtocol[self._rebalance_protocol.name]]

    def metadata(self, topics: Iterable[str]) -> bytes:
        """Return the bytes of this member's subscription.

        Raises
        ------
        LocalProtocolError
            If the assignor needs the group id and does not have it.
        """
        check_group(self.protocol)
        self._nonce += 1
        wanted = tuple(sorted(topics))
        cooperative = self._rebalance_protocol is RebalanceProtocol.COOPERATIVE
        if cooperative:
            # The client revokes the partitions of other topics before it joins.
            self._last = frozenset(tp for tp in self._last if tp[0] in wanted)
        # Java clears its subscription before an eager join. If an eager member still claimed
        # revoked partitions, a cooperative leader would not assign them to a new owner, and as an
        # eager member never joins a second time by itself, it would stay without one.
        return self.protocol.subscribe(
            MemberView(
                topics=wanted,
                owned=tuple(sorted(self._last)) if cooperative else (),
                previous=tuple(sorted(self._last)),
                generation=self._generation,
                rack=self._rack,
                nonce=self._nonce,
                leader_state=self._leader_state,
                state_age_ms=round((time.monotonic() - self._received_at) * 1000),
            )
        )

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Record the assignment."""
        try:
            self._leader_state = self.protocol.read(assignment.encode()).leader_state
        except WireError as error:
            log.warning("%s: the leader's assignment has odd user data: %s", self.name, error)
            self._leader_state = None
        self._received_at = time.monotonic()
        self._last = frozenset((tp.topic, tp.partition) for tp in assignment.partitions())
        self._generation = generation

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, bytes]:
        """Lead a round: return the bytes of every member's assignment."""
        counts = partition_counts(cluster, (t for m in members for t in m.metadata.topics))
        newest = max((member.metadata.generation_id for member in members), default=NO_GENERATION)
        joined = [
            JoinedMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                metadata=member.metadata.encode(),
            )
            for member in members
        ]
        racks = replica_racks(cluster, members, counts)
        return self.lead(joined, counts, generation=newest + 1, racks=racks)


assignor = KafkaPythonAssignor
"""Any assignor for kafka-python."""


def _refuse_design(protocol: str) -> None:
    if protocol in DESIGNS:
        policy = policy_of_protocol(protocol)
        assert policy is not None
        raise ConfigError(
            f"{protocol}: kafka-python's own consumer runs no design: use "
            f"holdfast.kafka.KafkaConsumer(..., holdfast_policy={policy.name!r})"
        )


class CooperativeSticky(KafkaPythonAssignor):
    """Best balance, fewest moves, revoked in one round and assigned in the next; Java's.

    Parameters
    ----------
    rack, upgrading
        As for :class:`holdfast.kafka.assignor`.
    """

    def __init__(self, *, rack: str | None = None, upgrading: bool = False):
        super().__init__("cooperative-sticky", rack=rack, upgrading=upgrading)


class Sticky(KafkaPythonAssignor):
    """Best balance, fewest moves, eager; Java's ``sticky``. ``rack`` is the member's."""

    def __init__(self, *, rack: str | None = None):
        super().__init__("sticky", rack=rack)


class Range(KafkaPythonAssignor):
    """Java's ``range``. ``rack`` is the member's."""

    def __init__(self, *, rack: str | None = None):
        super().__init__("range", rack=rack)


class RoundRobin(KafkaPythonAssignor):
    """Java's ``roundrobin``. ``rack`` is the member's."""

    def __init__(self, *, rack: str | None = None):
        super().__init__("roundrobin", rack=rack)


def replica_racks(
    cluster: Any, members: Sequence[Any], counts: Mapping[str, int]
) -> dict[str, list[tuple[str, ...]]] | None:
    """Return the racks of each partition's replicas; None if no member has a rack (KIP-881)."""
    if not any(member.metadata.rack_id for member in members):
        return None
    racks = {broker.node_id: broker.rack for broker in cluster.brokers() if broker.rack}

    def of(tp: TopicPartition) -> tuple[str, ...]:
        of_replicas = {
            rack for node_id, rack in racks.items() if cluster.is_replica_node(tp, node_id)
        }
        return tuple(sorted(of_replicas))

    return {
        topic: [of(TopicPartition(topic, partition)) for partition in range(count)]
        for topic, count in counts.items()
    }
