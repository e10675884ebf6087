"""holdfast's eager assignors as plug-ins for aiokafka.

::

    sticky = [Sticky()]
    consumer = AIOKafkaConsumer("orders", group_id="etl", partition_assignment_strategy=sticky)
    attach(consumer)

**Rules.** aiokafka has the eager protocol only: cooperative assignors and designs are refused. An
instance belongs to one consumer and keeps its own state. (aiokafka's own sticky assignor keeps its
state on the class, so two consumers of one process overwrite each other, and it never learns its
generation.) Only :func:`attach` touches a private part of the client.

**Strategy.** The same translation as in :mod:`~holdfast.adapters.kafka_python`. aiokafka gives a
leader only the topics and user data of each member; an eager assignor needs no more. The client
raises for a member whose bytes do not parse; :func:`attach` makes it one without topics.

References: KIP-54, KIP-341.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiokafka
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocol

from holdfast.adapters.cluster.broker_lags import BrokerLags
from holdfast.adapters.cluster.lag_source import TIMEOUT_MS, AskedInTime, LagSource
from holdfast.adapters.login_log import hide_logins
from holdfast.adapters.own_assignors import check_group, resolve
from holdfast.adapters.readable import ReadableSubscriptions
from holdfast.assignors.registry import ASSIGNORS, find
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.machine.actions import ComputeAssignment
from holdfast.machine.events import JoinedMember
from holdfast.machine.leader import designs
from holdfast.machine.leader.embedded import MemberView, RebalanceMode
from holdfast.machine.policies import DESIGNS, Offered, assignor_of, of_group
from holdfast.model.limits import NO_GENERATION
from holdfast.model.partitions import Resource
from holdfast.wire.layouts.consumer_protocol import Subscription, encode_subscription

__all__ = ["AiokafkaAssignor", "Range", "RoundRobin", "Sticky", "assignor", "attach"]

log = logging.getLogger(__name__)
hide_logins()

TESTED = ("0.12.", "0.13.", "0.14.")
"""Versions of aiokafka, by how they begin, that the live tests ran with."""


class AiokafkaAssignor(AbstractPartitionAssignor):  # type: ignore[misc] # the client has no types
    """One eager assignor of the registry, as aiokafka calls it.

    Parameters
    ----------
    name : str or Assignor
        A name of the registry, a Java class, an eager assignor of your own or the dotted name of
        its factory.
    lags : LagSource, optional
        Takes partition counts, gives the leader ``{topic: [messages behind of each partition]}``:
        a function, or :meth:`~holdfast.adapters.cluster.broker_lags.BrokerLags.connect`, which
        under :func:`attach` goes by the consumer's ``auto_offset_reset``.
    lag_timeout_ms : int
        How long the client's event loop may wait for it; then the round is planned by counts.
    **options
        Those of the assignor.

    Attributes
    ----------
    spoken : Assignor
        What writes, plans and reads.

    Raises
    ------
    ConfigError
        An unknown or cooperative assignor, or an unknown option.
    """

    def __init__(
        self,
        name: str | designs.Assignor,
        *,
        lags: LagSource | None = None,
        lag_timeout_ms: int = TIMEOUT_MS,
        **options: Any,
    ):
        self.spoken: designs.Assignor = _eager(resolve(name), options)
        known = ASSIGNORS.get(self.spoken.name)
        self._needs_attach = known is None or known.uses_claims
        self._lags = lags
        self._ask = None if lags is None else AskedInTime(lags, lag_timeout_ms)
        self._read_generation: Callable[[], int] | None = None
        self._prepare: Callable[[], None] = lambda: None
        self._memory = AiokafkaMemory()
        self._written_at = time.monotonic()

    @property
    def name(self) -> str:
        """Protocol name in JoinGroup."""
        return self.spoken.name

    def bind(
        self,
        read_generation: Callable[[], int],
        prepare: Callable[[], None],
        *,
        memory: AiokafkaMemory | None = None,
        group_id: str = "",
        reset: str = "",
    ) -> None:
        """Take the consumer: how to read its generation and prepare a join, what is shared."""
        if self._read_generation is not None:
            raise LocalProtocolError(f"{self.name}: an assignor belongs to one consumer")
        self._read_generation, self._prepare = read_generation, prepare
        self._memory = memory or self._memory
        self.spoken = of_group(self.spoken, group_id)
        if reset and isinstance(self._lags, BrokerLags):
            self._lags.reset = reset

    def metadata(self, topics: Iterable[str]) -> bytes:
        """Bytes of this member's subscription.

        Raises
        ------
        LocalProtocolError
            If :func:`attach` was not called and the assignor uses claims, or needs the group's id.
        """
        if self._read_generation is None:
            if self._needs_attach:
                raise LocalProtocolError(f"{self.name}: call attach(consumer) before start()")
            check_group(self.spoken)
        self._prepare()
        self._written_at = time.monotonic()
        return self.spoken.subscribe(
            MemberView(
                topics=tuple(sorted(topics)),
                owned=(),
                previous=tuple(sorted(self._memory.last)),
                generation=self._memory.generation,
                mode=RebalanceMode.EAGER,
            )
        )

    def on_assignment(self, assignment: Any) -> None:
        """Remember the assignment and its generation."""
        self._memory.last = frozenset((tp.topic, tp.partition) for tp in assignment.partitions())
        if self._read_generation is not None:
            self._memory.generation = self._read_generation()

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, bytes]:
        """Take the leader's turn: bytes of every member's assignment."""
        topics = sorted({topic for member in members.values() for topic in member.subscription})
        found = {topic: cluster.partitions_for_topic(topic) for topic in topics}
        counts = {topic: max(numbers) + 1 for topic, numbers in found.items() if numbers}
        generation = NO_GENERATION if self._read_generation is None else self._read_generation()
        computed = designs.compute(
            [self.spoken],
            ComputeAssignment(
                token=0,
                generation=generation,
                protocol_name=self.name,
                members=tuple(
                    JoinedMember(member_id=member_id, metadata=_subscription(metadata))
                    for member_id, metadata in sorted(members.items())
                ),
                partitions=tuple(counts.items()),
                member_id="",
                waited_ms=round((time.monotonic() - self._written_at) * 1000),
                unbroken=0 <= self._memory.generation == generation - 1,
            ),
            lags=None if self._ask is None else self._ask(counts),
        )
        if computed.failure is not None:
            log.error("%s: no plan, partitions go by range: %s", self.name, computed.failure)
        for note in computed.notes:
            log.warning("%s: %s", self.name, note)
        return dict(computed.assignments)


@dataclass(slots=True)
class AiokafkaMemory:
    """What the assignors of one consumer know of its last round: aiokafka tells only the chosen.

    Membership that was lost changes nothing: an eager member still claims its last assignment, at
    the old generation, as in Kafka's ``AbstractStickyAssignor`` (KIP-341).
    """

    last: frozenset[Resource] = frozenset()
    generation: int = NO_GENERATION


def _eager(given: Offered, options: Mapping[str, Any]) -> designs.Assignor:
    """The assignor, if aiokafka can run it."""
    if not isinstance(given, str):
        if options:
            raise ConfigError(
                f"{given.name}: it takes no options, found {', '.join(sorted(options))}"
            )
        if RebalanceMode.EAGER in given.modes:
            return given
    elif given not in DESIGNS and not find(given).cooperative:
        return assignor_of(given, options)
    name = given if isinstance(given, str) else given.name
    raise ConfigError(
        f"{name} is cooperative and aiokafka runs eager assignors alone: use 'sticky', or "
        "holdfast.AsyncConsumer"
    )


def _subscription(metadata: Any) -> bytes:
    """The version 0 part of a subscription, which is all that aiokafka reads."""
    return encode_subscription(
        Subscription(
            version=0, topics=tuple(metadata.subscription), user_data=metadata.user_data or None
        )
    )


def assignor(
    name: str | designs.Assignor, *, lags: LagSource | None = None, **options: Any
) -> AiokafkaAssignor:
    """Any eager assignor of the registry; parameters as for :class:`AiokafkaAssignor`."""
    return AiokafkaAssignor(name, lags=lags, **options)


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


def attach(consumer: Any, *, allow_untested: bool = False) -> None:
    """Repair a consumer, and let its assignors know its generation; call it before ``start()``.

    Parameters
    ----------
    consumer : aiokafka.AIOKafkaConsumer
        Its private ``_partition_assignment_strategy``, ``_group_id``, ``_auto_offset_reset`` and,
        later, ``_coordinator`` are read. The
        coordinator's ``_perform_assignment`` is wrapped at the first join, on this one instance.
    allow_untested : bool
        Go on with a version of aiokafka that was not tested.

    Raises
    ------
    ConfigError
        A version that was not tested.
    LocalProtocolError
        An assignor that another consumer has.
    """
    if not aiokafka.__version__.startswith(TESTED) and not allow_untested:
        raise ConfigError(
            f"attach: aiokafka {aiokafka.__version__} was not tested with holdfast (tested: "
            f"{', '.join(f'{v}*' for v in TESTED)}); attach(consumer, allow_untested=True) tries it"
        )

    def read_generation() -> int:
        coordinator = consumer._coordinator
        return NO_GENERATION if coordinator is None else int(coordinator.generation)

    prepared: list[object] = []

    def prepare() -> None:
        coordinator = consumer._coordinator
        if coordinator is not None and coordinator not in prepared:
            prepared[:] = [coordinator]
            _read_leniently(coordinator)

    memory = AiokafkaMemory()
    for one in consumer._partition_assignment_strategy:
        if isinstance(one, AiokafkaAssignor):
            one.bind(
                read_generation,
                prepare,
                memory=memory,
                group_id=consumer._group_id or "",
                reset=consumer._auto_offset_reset,
            )


def _read_leniently(coordinator: Any) -> None:
    """Let a leader's client read every subscription of its group."""
    perform_assignment = coordinator._perform_assignment
    readable = ReadableSubscriptions(ConsumerProtocol.METADATA.decode)

    async def perform_readable_assignment(response: Any) -> Any:
        said = readable.of((member[0], member[-1]) for member in response.members)
        response.members = [
            (*member[:-1], metadata)
            for member, metadata in zip(response.members, said, strict=True)
        ]
        return await perform_assignment(response)

    coordinator._perform_assignment = perform_readable_assignment
