"""holdfast's assignors as plug-ins for kafka-python: ``partition_assignment_strategy=[...]``.

::

    strategy = [CooperativeSticky()]
    consumer = KafkaConsumer("orders", group_id="etl", partition_assignment_strategy=strategy)
    attach(consumer)

**Rules.** An instance belongs to one consumer. What goes on the wire are our own bytes:
Subscription v3 with generation, owned partitions and rack, and Java's user data for Java's names. Here only
public parts of the client are used; :mod:`~holdfast.adapters.kafka_python_attach` holds the rest.

**Strategy.** The leader's turn is :func:`holdfast.machine.leader_turn.perform_assignment`, bytes to
bytes. Without ``attach`` an assignor knows only what the client tells it: the last assignment and
its generation. With it, it also knows what the consumer really holds, a loss and the mode.

References
----------
KIP-429, KIP-341, KIP-881, KAFKA-12984.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.structs import TopicPartition

from holdfast.adapters.kafka_python_attach import Attached, attach
from holdfast.assign.registry import ASSIGNORS, find
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.machine.leader_turn import perform_assignment
from holdfast.wire.codec import TopicPartitions
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from holdfast.wire.sticky_user_data import (
    NO_GENERATION,
    StickyUserData,
    encode_cooperative_user_data,
    encode_sticky_user_data,
)

__all__ = [
    "Attached",
    "CooperativeSticky",
    "PluginAssignor",
    "Range",
    "RoundRobin",
    "Sticky",
    "assignor",
    "attach",
]

Lags = Callable[[], Mapping[str, Sequence[int]] | None]


class Host(Protocol):
    """What an attached consumer tells its assignors."""

    def is_eager(self) -> bool:
        """Whether the consumer gives everything up before it joins."""

    def held(self) -> Collection[TopicPartition]:
        """What the consumer holds now."""


class PluginAssignor(AbstractPartitionAssignor):  # type: ignore[misc] # the client has no types
    """One assignor of the registry, as kafka-python calls it.

    Parameters
    ----------
    name : str
        A name of the registry.
    rack : str, optional
        The member's rack (KIP-881); the client keeps its own ``client_rack`` to itself.
    upgrading : bool
        For a cooperative assignor in the middle of KIP-429's two bounces: also accept to run eager
        beside an eager assignor. Needs :func:`attach`, which tells it the mode.
    lags : callable, optional
        Gives the leader ``{topic: [messages behind of each partition]}`` or None. It is called on
        the client's network thread and must not block.
    **options
        Those of the assignor.

    Raises
    ------
    ConfigError
        An unknown assignor or option.
    """

    def __init__(
        self,
        name: str,
        *,
        rack: str | None = None,
        upgrading: bool = False,
        lags: Lags | None = None,
        **options: Any,
    ):
        info = find(name)
        unknown = sorted(set(options) - set(info.options))
        if unknown:
            known = ", ".join(info.options) or "none"
            raise ConfigError(f"{name}: unknown option {unknown[0]!r}; it takes: {known}")
        self._name = name
        self._cooperative = info.cooperative
        self._upgrading = upgrading and info.cooperative
        self._rack = rack
        self._lags = lags
        self._options = options
        self._host: Host | None = None
        self._last: tuple[TopicPartition, ...] = ()
        self._generation = NO_GENERATION

    @property
    def name(self) -> str:
        """Protocol name in JoinGroup."""
        return self._name

    def bind(self, host: Host) -> None:
        """Take the consumer that :func:`attach` prepared."""
        if self._host is not None:
            raise LocalProtocolError(f"{self.name}: an assignor belongs to one consumer")
        self._host = host

    def forget(self) -> None:
        """Drop what was owned: the member fell out of its group."""
        self._last = ()
        self._generation = NO_GENERATION

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Modes in which the assignor works."""
        if not self._cooperative:
            return [RebalanceProtocol.EAGER]
        if self._upgrading:
            return [RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER]
        return [RebalanceProtocol.COOPERATIVE]

    def metadata(self, topics: Iterable[str]) -> bytes:
        """Bytes of this member's subscription.

        Raises
        ------
        LocalProtocolError
            If the assignor may run eager and nobody told it the mode.
        """
        owned = sort(self._owned())
        return encode_subscription(
            Subscription(
                topics=tuple(topics),
                user_data=self._user_data(owned),
                owned=owned if self._cooperative else (),
                generation=self._generation,
                rack=self._rack,
            )
        )

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Remember what this member was given, and when."""
        self._last = tuple(assignment.partitions())
        self._generation = generation

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, bytes]:
        """Take the leader's turn: bytes of every member's assignment."""
        return perform_assignment(
            self.name,
            [(m.member_id, m.group_instance_id, m.metadata.encode()) for m in members],
            partition_counts(cluster, members),
            lags=None if self._lags is None else self._lags(),
            racks=replica_racks(cluster, members),
            **self._options,
        )

    def _owned(self) -> Collection[TopicPartition]:
        """What this member may claim.

        Java clears its subscription before an eager join. If an eager member still claimed what it
        has given up, a cooperative leader would withhold it from its new owner, and since an eager
        member never joins a second time by itself, it would stay unowned.
        """
        if not self._cooperative:
            return self._last
        if self._host is None:
            if self._upgrading:
                raise LocalProtocolError(
                    f"{self.name}(upgrading=True) may run eager: call attach(consumer) before poll"
                )
            return self._last
        return () if self._host.is_eager() else self._host.held()

    def _user_data(self, owned: TopicPartitions) -> bytes | None:
        if self._cooperative:
            return encode_cooperative_user_data(self._generation)
        if "sticky" not in ASSIGNORS[self._name].laws:
            return None
        return encode_sticky_user_data(
            StickyUserData(partitions=owned, generation=self._generation)
        )


class CooperativeSticky(PluginAssignor):
    """Best balance, fewest moves, handed over in two rounds; Java's ``cooperative-sticky``."""

    def __init__(self, **options: Any):
        super().__init__("cooperative-sticky", **options)


class Sticky(PluginAssignor):
    """Best balance, fewest moves, eager; Java's ``sticky``."""

    def __init__(self, **options: Any):
        super().__init__("sticky", **options)


class Range(PluginAssignor):
    """Java's ``range``."""

    def __init__(self, **options: Any):
        super().__init__("range", **options)


class RoundRobin(PluginAssignor):
    """Java's ``roundrobin``."""

    def __init__(self, **options: Any):
        super().__init__("roundrobin", **options)


def assignor(name: str, **options: Any) -> PluginAssignor:
    """Any assignor of the registry as a plug-in; parameters as for :class:`PluginAssignor`."""
    return PluginAssignor(name, **options)


def sort(partitions: Iterable[TopicPartition]) -> TopicPartitions:
    """(topic, partitions) with both sorted."""
    rows: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        rows.setdefault(tp.topic, []).append(tp.partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in rows.items())


def partition_counts(cluster: Any, members: Sequence[Any]) -> dict[str, int]:
    """Partitions of every subscribed topic that the client knows."""
    topics = sorted({topic for member in members for topic in member.metadata.topics})
    found = {topic: cluster.partitions_for_topic(topic) for topic in topics}
    return {topic: max(numbers) + 1 for topic, numbers in found.items() if numbers}


def replica_racks(cluster: Any, members: Sequence[Any]) -> dict[str, list[tuple[str, ...]]] | None:
    """Racks that hold a replica of each partition; None when no member has a rack (KIP-881)."""
    if not any(member.metadata.rack_id for member in members):
        return None
    racks = {broker.node_id: broker.rack for broker in cluster.brokers() if broker.rack}
    return {
        topic: [
            tuple(
                sorted(
                    {
                        rack
                        for node_id, rack in racks.items()
                        if cluster.is_replica_node(TopicPartition(topic, partition), node_id)
                    }
                )
            )
            for partition in range(count)
        ]
        for topic, count in partition_counts(cluster, members).items()
    }
