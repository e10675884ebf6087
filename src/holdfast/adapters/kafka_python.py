"""holdfast's assignors and designs as plug-ins for kafka-python.

::

    strategy = [CooperativeSticky()]
    consumer = KafkaConsumer("orders", group_id="etl", partition_assignment_strategy=strategy)
    attach(consumer)

**Rules.** An instance belongs to one consumer. holdfast writes all bytes itself: Subscription v3
with generation, owned partitions and rack, and Java's user data for the assignors that Java has.
Only public parts of the client are used here; :mod:`~holdfast.adapters.kafka_python_attach` holds
the private ones. If a leader cannot plan, every member keeps what it claims.

**Strategy.** A plug-in translates between the client's calls and an
:class:`~holdfast.machine.leader.designs.Assignor`, which writes and reads the bytes. Without
``attach`` it knows only the last assignment and its generation. With ``attach`` it also knows the
partitions that the consumer holds now, a loss and the mode, and it can ask for a round. Designs I
to III need that.

References
----------
KIP-429, KIP-341, KIP-881, KAFKA-12984; Incremental Cooperative Rebalancing, Designs I, II, III.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from holdfast.adapters.kafka_python_version import explained

try:
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
    from kafka.structs import TopicPartition
except ImportError as error:
    raise explained(error) from error

from holdfast.adapters.cluster.lag_source import TIMEOUT_MS, AskedInTime, LagSource
from holdfast.adapters.kafka_python_attach import Attached, attach
from holdfast.adapters.login_log import hide_logins
from holdfast.errors import ConfigError, LocalProtocolError, WireError
from holdfast.machine.actions import ComputeAssignment, LedRound
from holdfast.machine.events import JoinedMember
from holdfast.machine.leader import designs
from holdfast.machine.leader.embedded import Instruction, MemberView, RebalanceMode
from holdfast.machine.member.options import AGAIN_PAUSE_MS
from holdfast.machine.member.steps import doubled_ms
from holdfast.machine.policies import DEFAULTS, assignor_of, assignors_for
from holdfast.machine.policy import Policy
from holdfast.model.limits import NO_GENERATION
from holdfast.model.partitions import Resource
from holdfast.wire.layouts.frames import Leaving

__all__ = [
    "Attached",
    "CooperativeSticky",
    "Deferred",
    "HoldfastSimple",
    "Incremental",
    "PluginAssignor",
    "Range",
    "RoundRobin",
    "Simple",
    "Sticky",
    "assignor",
    "attach",
]

log = logging.getLogger(__name__)
hide_logins()

_NOTHING = Instruction(assigned=frozenset())


class Host(Protocol):
    """An attached consumer, as its assignors use it."""

    def is_eager(self) -> bool:
        """Whether the consumer gives everything up before it joins."""

    def held(self) -> Collection[TopicPartition]:
        """What the consumer holds now."""

    def member_id(self) -> str:
        """The consumer's id in its group."""

    def generation(self) -> int:
        """Generation of the round that runs."""

    def heartbeat_interval_ms(self) -> int:
        """The consumer's ``heartbeat_interval_ms``."""

    def rejoin_after(self, delay_ms: int | None) -> None:
        """Join again at the first poll that far from now; None cancels."""

    def ms_until_rejoin(self) -> int | None:
        """Time until the rejoin of :meth:`rejoin_after`, None if there is none."""

    def rack(self) -> str | None:
        """The consumer's ``client_rack``."""


class PluginAssignor(AbstractPartitionAssignor):  # type: ignore[misc] # the client has no types
    """One assignor, as kafka-python calls it.

    Parameters
    ----------
    spoken : Assignor
        What writes, plans and reads.
    rack : str, optional
        The member's rack (KIP-881). Under :func:`attach` it is the consumer's ``client_rack``
        where not given; the client alone keeps that to its fetcher.
    upgrading : bool
        For a cooperative assignor in the middle of KIP-429's two bounces: also accept to run eager
        beside an eager assignor. Needs :func:`attach` to know the mode.
    lags : LagSource, optional
        Takes partition counts, gives the leader ``{topic: [messages behind of each partition]}``:
        a function, or :meth:`~holdfast.adapters.cluster.broker_lags.BrokerLags.connect`.
    lag_timeout_ms : int
        How long the client's network thread may wait for it; then the round is planned by counts.
    needs_attach : bool
        Refuse to join without :func:`attach`.
    clock : callable
        Seconds, monotonic.
    """

    def __init__(
        self,
        spoken: designs.Assignor,
        *,
        rack: str | None = None,
        upgrading: bool = False,
        lags: LagSource | None = None,
        lag_timeout_ms: int = TIMEOUT_MS,
        needs_attach: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._spoken = spoken
        self._rack = rack
        self._ask = None if lags is None else AskedInTime(lags, lag_timeout_ms)
        self._clock = clock
        self._cooperative = RebalanceMode.COOPERATIVE in spoken.modes
        self._upgrading = upgrading and RebalanceMode.EAGER in spoken.modes and self._cooperative
        self._needs_attach = needs_attach or self._upgrading
        self._host: Host | None = None
        self._leaving = Leaving.STAYS
        self._nonce = 0
        self._written_at = clock()
        self._instructed_at = clock()
        self._instruction = _NOTHING
        self._last: frozenset[Resource] = frozenset()
        self._generation = NO_GENERATION
        self._planned: LedRound | None = None  # in this round
        self._led: LedRound | None = None  # the last round that was completed
        self._rounds_announced = 0  # in a row

    @property
    def name(self) -> str:
        """Protocol name in JoinGroup."""
        return self._spoken.name

    def bind(self, host: Host) -> None:
        """Take the consumer that :func:`attach` prepared."""
        if self._host is not None:
            raise LocalProtocolError(f"{self.name}: an assignor belongs to one consumer")
        self._host = host

    def forget(self) -> None:
        """Note that the member lost its membership: a cooperative one then claims nothing.

        An eager one still claims its last assignment, at the old generation. Partitions that no
        other member has had since come back to it (KIP-341).
        """
        if self._cooperative:
            self._last = frozenset()
            self._generation = NO_GENERATION
            self._instruction = _NOTHING
            self._rounds_announced = 0

    def announce(self, leaving: Leaving) -> None:
        """Say in the next round what this member is about to do."""
        self._leaving = leaving

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
            If the assignor needs :func:`attach` and did not get it.
        """
        if self._needs_attach and self._host is None:
            raise LocalProtocolError(f"{self.name}: call attach(consumer) before the first poll")
        self._nonce += 1
        self._written_at = self._clock()
        mode = self._mode()
        # Java clears its subscription before an eager join. If an eager member still claimed what
        # it has given up, a cooperative leader would withhold it from its new owner, and since an
        # eager member never joins a second time by itself, it would stay without one.
        owned = self._held() if mode is RebalanceMode.COOPERATIVE else frozenset()
        remaining_ms = self._host.ms_until_rejoin() if self._host is not None else None
        return self._spoken.subscribe(
            MemberView(
                topics=tuple(sorted(topics)),
                owned=tuple(sorted(owned)),
                previous=tuple(sorted(self._last)),
                generation=self._generation,
                mode=mode,
                rack=self._rack or (self._host.rack() if self._host is not None else None),
                nonce=self._nonce,
                leaving=self._leaving,
                given_up=tuple(sorted(self._instruction.revoked - owned)),
                delay_ms=remaining_ms or 0,
                memory=self._instruction.memory,
                memory_age_ms=self._ms_since(self._instructed_at),
            )
        )

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Remember the assignment; join again if the leader asks for it.

        The pauses before rounds that are announced in a row are those of our own members
        (``again_pause_ms``). A consumer that gives something up joins at once: it
        asks the client for that itself.
        """
        try:
            instruction = self._spoken.read(assignment.encode())
        except WireError as error:
            log.warning("%s: the leader's assignment has odd user data: %s", self.name, error)
            instruction = _NOTHING
        self._instruction = instruction
        self._instructed_at = self._clock()
        self._last = frozenset((tp.topic, tp.partition) for tp in assignment.partitions())
        self._generation = generation
        is_mine = self._planned is not None and self._planned.generation == generation
        self._led, self._planned = self._planned if is_mine else None, None
        if self._host is not None:
            self._host.rejoin_after(self._pause_ms(instruction, self._host))

    def _pause_ms(self, instruction: Instruction, host: Host) -> int | None:
        if not instruction.again:
            self._rounds_announced = 0
            return instruction.delay_ms or None
        self._rounds_announced += 1
        n_before = self._rounds_announced - 1
        return doubled_ms(AGAIN_PAUSE_MS, n_before, host.heartbeat_interval_ms())

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, bytes]:
        """Take the leader's turn: bytes of every member's assignment."""
        host = self._host
        counts = partition_counts(cluster, members)
        highest = max((member.metadata.generation_id for member in members), default=-1)
        request = ComputeAssignment(
            token=0,
            generation=highest + 1 if host is None else host.generation(),
            protocol_name=self.name,
            members=tuple(
                JoinedMember(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    metadata=member.metadata.encode(),
                )
                for member in members
            ),
            partitions=tuple(sorted(counts.items())),
            member_id="" if host is None else host.member_id(),
            waited_ms=self._ms_since(self._written_at),
            unbroken=host is not None and 0 <= self._generation == host.generation() - 1,
            led=self._led,
        )
        computed = designs.compute(
            [self._spoken],
            request,
            lags=None if self._ask is None else self._ask(counts),
            racks=replica_racks(cluster, members),
        )
        self._planned = designs.led_round(request, computed)
        if computed.failure is not None:
            log.error("%s: no plan, members keep what they have: %s", self.name, computed.failure)
        return dict(computed.assignments)

    def _mode(self) -> RebalanceMode:
        eager = not self._cooperative or (self._host is not None and self._host.is_eager())
        return RebalanceMode.EAGER if eager else RebalanceMode.COOPERATIVE

    def _held(self) -> frozenset[Resource]:
        if self._host is None:
            return self._last
        return frozenset((tp.topic, tp.partition) for tp in self._host.held())

    def _ms_since(self, moment: float) -> int:
        return max(0, round((self._clock() - moment) * 1000))


def assignor(
    name: str,
    *,
    rack: str | None = None,
    upgrading: bool = False,
    lags: LagSource | None = None,
    lag_timeout_ms: int = TIMEOUT_MS,
    **options: Any,
) -> PluginAssignor:
    """Any assignor of the registry as a plug-in.

    Parameters
    ----------
    name : str
        A name of :data:`holdfast.assignors.registry.ASSIGNORS`.
    rack, upgrading, lags, lag_timeout_ms
        As for :class:`PluginAssignor`.
    **options
        Those of the assignor.

    Raises
    ------
    ConfigError
        An unknown assignor or option.
    """
    return PluginAssignor(
        assignor_of(name, options),
        rack=rack,
        upgrading=upgrading,
        lags=lags,
        lag_timeout_ms=lag_timeout_ms,
    )


class CooperativeSticky(PluginAssignor):
    """Best balance, fewest moves, handed over in two rounds; Java's ``cooperative-sticky``."""

    def __init__(self, *, rack: str | None = None, upgrading: bool = False):
        super().__init__(assignor_of("cooperative-sticky"), rack=rack, upgrading=upgrading)


class Sticky(PluginAssignor):
    """Best balance, fewest moves, eager; Java's ``sticky``."""

    def __init__(self, *, rack: str | None = None):
        super().__init__(assignor_of("sticky"), rack=rack)


class Range(PluginAssignor):
    """Java's ``range``."""

    def __init__(self, *, rack: str | None = None):
        super().__init__(assignor_of("range"), rack=rack)


class RoundRobin(PluginAssignor):
    """Java's ``roundrobin``."""

    def __init__(self, *, rack: str | None = None):
        super().__init__(assignor_of("roundrobin"), rack=rack)


class Simple(CooperativeSticky):
    """Policy ``simple``: Design I as Kafka's own ``cooperative-sticky``."""


class _DesignPlugin(PluginAssignor):
    """A design, in holdfast's protocol."""

    def __init__(self, policy: str, rack: str | None, **settings: Any):
        made = Policy(**settings)
        if made.omit_unchanged:
            raise ConfigError("omit_unchanged: kafka-python takes an absent partition for revoked")
        (spoken,) = assignors_for(policy, made)
        super().__init__(spoken, rack=rack, needs_attach=True)


class HoldfastSimple(_DesignPlugin):
    """Policy ``holdfast-simple``: Design I in holdfast's own protocol.

    Parameters
    ----------
    rack : str, optional
        The member's rack.
    **settings
        Those of :class:`~holdfast.machine.policy.Policy`.
    """

    def __init__(self, *, rack: str | None = None, **settings: Any):
        super().__init__("holdfast-simple", rack, **settings)


class Deferred(_DesignPlugin):
    """Design II: the partitions of a departed member wait ``delay_ms`` for its return.

    Parameters
    ----------
    delay_ms : int
        ``scheduled.rebalance.max.delay.ms``; 0 is Design I.
    rack : str, optional
        The member's rack.
    **settings
        Others of :class:`~holdfast.machine.policy.Policy`.
    """

    def __init__(
        self, *, delay_ms: int = DEFAULTS.delay_ms, rack: str | None = None, **settings: Any
    ):
        super().__init__("deferred", rack, delay_ms=delay_ms, **settings)


class Incremental(_DesignPlugin):
    """Design III: Design II, and moves in small batches with pauses between them.

    Parameters
    ----------
    delay_ms : int
        As for :class:`Deferred`.
    batch, interval_ms : int
        Moves in a round, and the pause to the next one.
    rack : str, optional
        The member's rack.
    **settings
        Others of :class:`~holdfast.machine.policy.Policy`.
    """

    def __init__(
        self,
        *,
        delay_ms: int = DEFAULTS.delay_ms,
        batch: int = DEFAULTS.batch,
        interval_ms: int = DEFAULTS.interval_ms,
        rack: str | None = None,
        **settings: Any,
    ):
        settings |= {"delay_ms": delay_ms, "batch": batch, "interval_ms": interval_ms}
        super().__init__("incremental", rack, **settings)


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

    def of(tp: TopicPartition) -> tuple[str, ...]:
        found = {rack for node_id, rack in racks.items() if cluster.is_replica_node(tp, node_id)}
        return tuple(sorted(found))

    counts = partition_counts(cluster, members)
    return {
        topic: [of(TopicPartition(topic, partition)) for partition in range(count)]
        for topic, count in counts.items()
    }
