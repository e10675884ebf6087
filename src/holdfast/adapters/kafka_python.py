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
partitions that the consumer holds now, a loss, the mode, the group and ``auto_offset_reset``, and
it can ask for a round. Designs I to III need that. All plug-ins of an attached consumer share what
they remember: when the group changes from one to another, the other knows the last assignment.

References
----------
KIP-429, KIP-341, KIP-881, KAFKA-12984; Incremental Cooperative Rebalancing, Designs I, II, III.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from holdfast.adapters.client_versions import check

try:
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
    from kafka.structs import TopicPartition
except ImportError:
    check("kafka-python")
    raise

from holdfast.adapters.cluster.broker_lags import BrokerLags
from holdfast.adapters.cluster.lag_source import TIMEOUT_MS, AskedInTime, LagSource
from holdfast.adapters.kafka_python_attach import Attached, attach
from holdfast.adapters.login_log import hide_logins
from holdfast.adapters.own_assignors import check_group, resolve
from holdfast.errors import ConfigError, LocalProtocolError, WireError, suggest
from holdfast.machine.actions import ComputeAssignment, LedRound
from holdfast.machine.events import JoinedMember
from holdfast.machine.leader import designs
from holdfast.machine.leader.embedded import Instruction, MemberView, RebalanceMode
from holdfast.machine.member.options import AGAIN_PAUSE_MS
from holdfast.machine.member.steps import doubled_ms
from holdfast.machine.policies import (
    DEFAULTS,
    DESIGNS,
    assignor_of,
    assignors_for,
    of_group,
    policy_of_protocol,
)
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


@dataclass(slots=True, kw_only=True)
class PluginMemory:
    """What the plug-ins of one consumer know of its last round.

    Parameters
    ----------
    instruction, instructed_at
        The assignment, and when it came.
    last, generation
        The partitions that it gave, and its generation, -1 before the first.
    is_lost : bool
        Whether the member lost its membership since. A cooperative plug-in then claims nothing. An
        eager one still claims its last assignment, at the old generation, as Kafka's
        ``AbstractStickyAssignor`` does: partitions that no other member has had since come back
        (KIP-341).
    planned, led
        This leader's plan of the round that runs, and of the last one that was completed.
    n_announced : int
        Rounds that were announced in a row.
    """

    instructed_at: float
    instruction: Instruction = _NOTHING
    last: frozenset[Resource] = frozenset()
    generation: int = NO_GENERATION
    is_lost: bool = False
    planned: LedRound | None = None
    led: LedRound | None = None
    n_announced: int = 0


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

    def group_id(self) -> str:
        """The consumer's ``group_id``."""

    def auto_offset_reset(self) -> str:
        """The consumer's ``auto_offset_reset``, as Kafka names it."""

    def remembered(self, own: PluginMemory) -> PluginMemory:
        """What all plug-ins of the consumer remember; ``own`` if this is the first of them."""


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
        a function, or :meth:`~holdfast.adapters.cluster.broker_lags.BrokerLags.connect`, which
        under :func:`attach` goes by the consumer's ``auto_offset_reset``.
    lag_timeout_ms : int
        How long the client's network thread may wait for it; then the round is planned by counts.
    needs_attach : bool
        Refuse to join without :func:`attach`.
    clock : callable
        Seconds, monotonic.

    Attributes
    ----------
    spoken : Assignor
        What writes, plans and reads.
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
        self.spoken = spoken
        self._rack = rack
        self._lags = lags
        self._ask = None if lags is None else AskedInTime(lags, lag_timeout_ms)
        self._clock = clock
        self._cooperative = RebalanceMode.COOPERATIVE in spoken.modes
        self._upgrading = upgrading and RebalanceMode.EAGER in spoken.modes and self._cooperative
        self._needs_attach = needs_attach or self._upgrading
        self._host: Host | None = None
        self._leaving = Leaving.STAYS
        self._nonce = 0
        self._written_at = clock()
        self._memory = PluginMemory(instructed_at=clock())

    @property
    def name(self) -> str:
        """Protocol name in JoinGroup."""
        return self.spoken.name

    def bind(self, host: Host) -> None:
        """Take the consumer that :func:`attach` prepared."""
        if self._host is not None:
            raise LocalProtocolError(f"{self.name}: an assignor belongs to one consumer")
        self._host = host
        self._memory = host.remembered(self._memory)
        self.spoken = of_group(self.spoken, host.group_id())
        if isinstance(self._lags, BrokerLags):
            self._lags.reset = host.auto_offset_reset()

    def forget(self) -> None:
        """Note that the member lost its membership; see :class:`PluginMemory`."""
        memory = self._memory
        memory.is_lost, memory.instruction, memory.n_announced = True, _NOTHING, 0

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
            If the assignor needs :func:`attach` and did not get it, or needs the group's id.
        """
        if self._host is None:
            if self._needs_attach:
                call = "call attach(consumer) before the first poll"
                raise LocalProtocolError(f"{self.name}: {call}")
            check_group(self.spoken)
        self._nonce += 1
        self._written_at = self._clock()
        mode = self._mode()
        # Java clears its subscription before an eager join. If an eager member still claimed what
        # it has given up, a cooperative leader would withhold it from its new owner, and since an
        # eager member never joins a second time by itself, it would stay without one.
        owned = self._held() if mode is RebalanceMode.COOPERATIVE else frozenset()
        remaining_ms = self._host.ms_until_rejoin() if self._host is not None else None
        memory = self._memory
        claims_nothing = memory.is_lost and self._cooperative
        return self.spoken.subscribe(
            MemberView(
                topics=tuple(sorted(topics)),
                owned=tuple(sorted(owned)),
                previous=tuple(sorted(memory.last)),
                generation=NO_GENERATION if claims_nothing else memory.generation,
                mode=mode,
                rack=self._rack or (self._host.rack() if self._host is not None else None),
                nonce=self._nonce,
                leaving=self._leaving,
                given_up=tuple(sorted(memory.instruction.revoked - owned)),
                delay_ms=remaining_ms or 0,
                memory=memory.instruction.memory,
                memory_age_ms=self._ms_since(memory.instructed_at),
            )
        )

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Remember the assignment; join again if the leader asks for it.

        The pauses before rounds that are announced in a row are those of our own members
        (``again_pause_ms``). A consumer that gives something up joins at once: it
        asks the client for that itself.
        """
        try:
            instruction = self.spoken.read(assignment.encode())
        except WireError as error:
            log.warning("%s: the leader's assignment has odd user data: %s", self.name, error)
            instruction = _NOTHING
        memory = self._memory
        memory.instruction = instruction
        memory.instructed_at = self._clock()
        memory.last = frozenset((tp.topic, tp.partition) for tp in assignment.partitions())
        memory.generation, memory.is_lost = generation, False
        is_mine = memory.planned is not None and memory.planned.generation == generation
        memory.led, memory.planned = memory.planned if is_mine else None, None
        if self._host is not None:
            self._host.rejoin_after(self._pause_ms(instruction, self._host))

    def _pause_ms(self, instruction: Instruction, host: Host) -> int | None:
        if not instruction.again:
            self._memory.n_announced = 0
            return instruction.delay_ms or None
        self._memory.n_announced += 1
        n_before = self._memory.n_announced - 1
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
            unbroken=host is not None
            and not self._memory.is_lost
            and 0 <= self._memory.generation == host.generation() - 1,
            led=self._memory.led,
        )
        computed = designs.compute(
            [self.spoken],
            request,
            lags=None if self._ask is None else self._ask(counts),
            racks=replica_racks(cluster, members),
        )
        self._memory.planned = designs.led_round(request, computed)
        if computed.failure is not None:
            log.error("%s: no plan, members keep what they have: %s", self.name, computed.failure)
        for note in computed.notes:
            log.warning("%s: %s", self.name, note)
        return dict(computed.assignments)

    def _mode(self) -> RebalanceMode:
        eager = not self._cooperative or (self._host is not None and self._host.is_eager())
        return RebalanceMode.EAGER if eager else RebalanceMode.COOPERATIVE

    def _held(self) -> frozenset[Resource]:
        if self._host is None:
            return self._memory.last
        return frozenset((tp.topic, tp.partition) for tp in self._host.held())

    def _ms_since(self, moment: float) -> int:
        return max(0, round((self._clock() - moment) * 1000))


def assignor(
    name: str | designs.Assignor,
    *,
    rack: str | None = None,
    upgrading: bool = False,
    lags: LagSource | None = None,
    lag_timeout_ms: int = TIMEOUT_MS,
    **options: Any,
) -> PluginAssignor:
    """Any assignor as a plug-in.

    Parameters
    ----------
    name : str or Assignor
        A name of :data:`holdfast.assignors.registry.ASSIGNORS`, a Java class, the protocol of a
        design such as ``holdfast-deferred``, an assignor of your own or the dotted name of its
        factory.
    rack, upgrading, lags, lag_timeout_ms
        As for :class:`PluginAssignor`.
    **options
        Those of the assignor; for a design those of :class:`~holdfast.machine.policy.Policy`.

    Raises
    ------
    ConfigError
        An unknown assignor or option.
    """
    given = resolve(name)
    if isinstance(given, str) and given in DESIGNS:
        policy = policy_of_protocol(given)
        assert policy is not None
        made: PluginAssignor = _DesignPlugin(policy.name, rack, upgrading, **options)
        return made
    if not isinstance(given, str) and options:
        raise ConfigError(f"{given.name}: it takes no options, found {', '.join(sorted(options))}")
    return PluginAssignor(
        assignor_of(given, options) if isinstance(given, str) else given,
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

    def __init__(self, policy: str, rack: str | None, upgrading: bool = False, **settings: Any):
        known = {field.name for field in fields(Policy)} - {"design"}
        if unknown := sorted(set(settings) - known):
            raise ConfigError(
                f"{policy}: unknown option {unknown[0]!r}; {suggest(unknown[0], known)}"
            )
        made = Policy(**settings)
        if made.omit_unchanged:
            raise ConfigError("omit_unchanged: kafka-python takes an absent partition for revoked")
        (spoken,) = assignors_for(policy, made)
        super().__init__(spoken, rack=rack, upgrading=upgrading, needs_attach=True)


class HoldfastSimple(_DesignPlugin):
    """Policy ``holdfast-simple``: Design I in holdfast's own protocol.

    Parameters
    ----------
    rack, upgrading
        As for :class:`PluginAssignor`.
    **settings
        Those of :class:`~holdfast.machine.policy.Policy`.
    """

    def __init__(self, *, rack: str | None = None, upgrading: bool = False, **settings: Any):
        super().__init__("holdfast-simple", rack, upgrading, **settings)


class Deferred(_DesignPlugin):
    """Design II: the partitions of a departed member wait ``delay_ms`` for its return.

    Parameters
    ----------
    delay_ms : int
        ``scheduled.rebalance.max.delay.ms``; 0 is Design I.
    rack, upgrading
        As for :class:`PluginAssignor`.
    **settings
        Others of :class:`~holdfast.machine.policy.Policy`.
    """

    def __init__(
        self,
        *,
        delay_ms: int = DEFAULTS.delay_ms,
        rack: str | None = None,
        upgrading: bool = False,
        **settings: Any,
    ):
        super().__init__("deferred", rack, upgrading, delay_ms=delay_ms, **settings)


class Incremental(_DesignPlugin):
    """Design III: Design II, and moves in small batches with pauses between them.

    Parameters
    ----------
    delay_ms : int
        As for :class:`Deferred`.
    batch, interval_ms : int
        Moves in a round, and the pause to the next one.
    rack, upgrading
        As for :class:`PluginAssignor`.
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
        upgrading: bool = False,
        **settings: Any,
    ):
        settings |= {"delay_ms": delay_ms, "batch": batch, "interval_ms": interval_ms}
        super().__init__("incremental", rack, upgrading, **settings)


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
