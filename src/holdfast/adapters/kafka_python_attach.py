"""All private access to kafka-python, and the repairs that need it.

=======================================  ==========================================================
private part                             why
=======================================  ==========================================================
``consumer._coordinator``                everything below hangs on it
``coordinator._assignors``               the plug-ins of this consumer
``coordinator._rebalance_protocol``      the mode: an eager member claims nothing
``coordinator._subscription``            what the consumer really holds
``coordinator._generation``              member id and generation of the round that runs
``coordinator.need_rejoin``              a finished join that nobody collected (K1); due rejoins
``coordinator.join_group_async``         the same; it would start a join anew instead
``coordinator._join_task``, ``.state``, ``.rejoining``, ``.rejoin_needed``, ``._lock``,
``._enable_heartbeat``, ``._on_join_complete_async``
                                         the same: what ends a join
``coordinator.time_to_next_poll``        a due rejoin ends a long poll
``coordinator.reset_generation``         a loss: what was owned is no longer claimed
``coordinator._handle_heartbeat_response``, ``._async_commit_fenced``
                                         a fenced static member must stop (K2)
``coordinator._perform_assignment``      a subscription that does not parse (K8)
``coordinator._handle_metadata_update``, ``._cluster``, ``._net``
                                         a topic of others that may not be described (K9)
=======================================  ==========================================================

**Rules.** The client's methods are wrapped on the one instance, never on its class. A version that
was not tested is refused. The wrappers run on the client's two threads (the caller's and the
network thread); each reads or sets one value at a time.

**Repairs.**

- K1: a leader rejoins because metadata changed, ``poll`` times out, and the network thread finishes
  the join. The client then forgets the finished join, sends no heartbeat and keeps its partitions
  for ever. If something else asks for a rejoin as well, the client forgets the finished join and
  starts another one, with claims from before the finished round: a round for nothing.
- K2: a static member that is fenced goes on consuming if it does not auto-commit.
- K4: the client claims partitions after it has lost them, and while it runs eager.
- K8: a leader whose client cannot parse the subscription of one member raises before the assignor
  is called, in every round. Such a member counts as one without topics, as for our own leader.
- K9: a leader that may not describe a topic of another member sees no change of any topic any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Protocol, runtime_checkable

import kafka
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.errors import FencedInstanceIdError
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.structs import MemberState, TopicPartition
from kafka.util import WeakMethod

from holdfast.adapters.readable import ReadableSubscriptions
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.wire.layouts.frames import Leaving

TESTED = frozenset({"3.0.12"})
"""Versions of kafka-python that the live tests ran with."""

_MARK = "_holdfast_attached"


@runtime_checkable
class Bindable(Protocol):
    """An assignor of ours."""

    def bind(self, host: Attached) -> None:
        """Take the consumer."""

    def forget(self) -> None:
        """The member fell out of its group."""

    def announce(self, leaving: Leaving) -> None:
        """Say in the next round what this member is about to do."""


class Attached:
    """A consumer in our hands; made by :func:`attach`.

    Parameters
    ----------
    consumer : kafka.KafkaConsumer
        With a group.
    clock : callable
        Seconds, monotonic.
    """

    def __init__(self, consumer: Any, clock: Callable[[], float] = time.monotonic):
        self.consumer = consumer
        self._coordinator = consumer._coordinator
        self._clock = clock
        self._rejoin_at: float | None = None
        self._remembered: Any = None
        self._assignors = [
            assignor
            for assignor in self._coordinator._assignors.values()
            if isinstance(assignor, Bindable)
        ]
        for assignor in self._assignors:
            assignor.bind(self)
        self._wrap()

    def is_eager(self) -> bool:
        """Whether the consumer gives everything up before it joins."""
        return bool(self._coordinator._rebalance_protocol == RebalanceProtocol.EAGER)

    def held(self) -> Collection[TopicPartition]:
        """What the consumer holds now."""
        return tuple(self._coordinator._subscription.assigned_partitions())

    def member_id(self) -> str:
        """The consumer's id in its group, empty before the first join."""
        return str(self._coordinator._generation.member_id)

    def generation(self) -> int:
        """Of the last round that this member joined, -1 none."""
        return int(self._coordinator._generation.generation_id)

    def heartbeat_interval_ms(self) -> int:
        """The consumer's ``heartbeat_interval_ms``."""
        return int(self.consumer.config["heartbeat_interval_ms"])

    def request_rejoin(self) -> None:
        """Join again at the next poll."""
        self._coordinator.request_rejoin()

    def rejoin_after(self, delay_ms: int | None) -> None:
        """Join again at the first poll that far from now; None cancels."""
        self._rejoin_at = None if delay_ms is None else self._clock() + delay_ms / 1000

    def ms_until_rejoin(self) -> int | None:
        """Time until the rejoin of :meth:`rejoin_after`, at least 0, or None."""
        at = self._rejoin_at
        return None if at is None else max(0, round((at - self._clock()) * 1000))

    def rack(self) -> str | None:
        """The consumer's ``client_rack``, None where it has none."""
        return self.consumer.config["client_rack"] or None

    def group_id(self) -> str:
        """The consumer's ``group_id``."""
        return str(self.consumer.config["group_id"])

    def auto_offset_reset(self) -> str:
        """The consumer's ``auto_offset_reset``; the client also takes the names of Kafka 0.8."""
        given = str(self.consumer.config["auto_offset_reset"])
        return {"smallest": "earliest", "largest": "latest"}.get(given, given)

    def remembered(self, own: Any) -> Any:
        """What all assignors of the consumer remember; ``own`` if this is the first of them."""
        if self._remembered is None:
            self._remembered = own
        return self._remembered

    def close(self, *, for_good: bool = True, timeout_ms: int = 30_000) -> None:
        """Close the consumer, and first let the group know whether it comes back.

        To a leader a clean close looks like a crash, so a deferring one keeps what was held
        waiting. A member that is not coming back joins one more round in which it says so and gets
        nothing; with ``Policy.clean_leave`` immediate others are given it at once.

        Parameters
        ----------
        for_good : bool
            False: it comes back, as in a rolling bounce; closing is then all there is to do.
        timeout_ms : int
            For the round; when it does not come, the consumer closes all the same.
        """
        if for_good and self._assignors and self.member_id() and not self.is_eager():
            for assignor in self._assignors:
                assignor.announce(Leaving.FOR_GOOD)
            deadline = self._clock() + timeout_ms / 1000
            generation = self.generation()
            self._coordinator.request_rejoin()
            while (
                self.generation() == generation or self.held() or self._coordinator.need_rejoin()
            ) and self._clock() < deadline:
                # Paused partitions hand out nothing, so no record is taken and then dropped.
                self.consumer.pause(*self.held())
                self.consumer.poll(timeout_ms=100)
        self.consumer.close()

    def _wrap(self) -> None:
        coordinator = self._coordinator
        need_rejoin = coordinator.need_rejoin
        join_group = coordinator.join_group_async
        time_to_next_poll = coordinator.time_to_next_poll
        reset_generation = coordinator.reset_generation
        handle_heartbeat = coordinator._handle_heartbeat_response

        def need_rejoin_or_collect() -> bool:
            if self._rejoin_at is not None and self._clock() >= self._rejoin_at:
                self._rejoin_at = None
                coordinator.request_rejoin()
            if need_rejoin():
                return True
            # K1: a join that runs or has finished is always collected, whatever else changed.
            joining = (
                coordinator.state is MemberState.REBALANCING or coordinator._join_task is not None
            )
            return joining and bool(coordinator._subscription.partitions_auto_assigned())

        async def collect_or_join_group(timeout_ms: float | None = None) -> bool:
            task = coordinator._join_task
            finished = task is not None and task.is_done and task.succeeded()
            if not finished or coordinator.state is not MemberState.REBALANCING:
                return bool(await join_group(timeout_ms=timeout_ms))
            await self._complete_join(task.value)
            return True

        def time_to_next_poll_or_rejoin() -> float:
            wanted = float(time_to_next_poll())
            remaining_ms = self.ms_until_rejoin()
            return wanted if remaining_ms is None else min(wanted, remaining_ms / 1000)

        def reset_generation_and_forget(*args: Any, **options: Any) -> None:
            reset_generation(*args, **options)
            for assignor in self._assignors:
                assignor.forget()

        def handle_heartbeat_or_stop(*args: Any, **options: Any) -> Any:
            try:
                return handle_heartbeat(*args, **options)
            except FencedInstanceIdError:
                # K2: the flag makes the next poll or commit raise this error, and all later ones.
                coordinator._async_commit_fenced = True
                raise

        coordinator.need_rejoin = need_rejoin_or_collect
        coordinator.join_group_async = collect_or_join_group
        coordinator.time_to_next_poll = time_to_next_poll_or_rejoin
        coordinator.reset_generation = reset_generation_and_forget
        coordinator._handle_heartbeat_response = handle_heartbeat_or_stop
        self._wrap_leader()

    def _wrap_leader(self) -> None:
        coordinator = self._coordinator
        perform_assignment = coordinator._perform_assignment
        handle_metadata = coordinator._handle_metadata_update
        readable = ReadableSubscriptions(ConsumerProtocolSubscription.decode)

        def perform_readable_assignment(leader_id: str, protocol: str, members: Any) -> Any:
            said = readable.of((member.member_id, member.metadata) for member in members)
            for member, metadata in zip(members, said, strict=True):
                member.metadata = metadata
            return perform_assignment(leader_id, protocol, members)

        def handle_own_metadata(cluster: Any) -> None:
            """As the client does, which raises for one topic of anybody that is refused."""
            refused = cluster.unauthorized_topics
            own = coordinator._subscription.subscription or set()
            cluster.unauthorized_topics = refused & own
            try:
                handle_metadata(cluster)
            finally:
                cluster.unauthorized_topics = refused

        async def listen() -> None:
            coordinator._cluster.remove_listener(WeakMethod(handle_metadata))
            coordinator._cluster.add_listener(handle_own_metadata)

        coordinator._perform_assignment = perform_readable_assignment
        coordinator._net.run(listen)

    async def _complete_join(self, assignment: bytes) -> None:
        """End a join as the client does when its task ends while it is awaited."""
        coordinator = self._coordinator
        coordinator._join_task = None
        with coordinator._lock:
            coordinator.rejoining = False
            coordinator.rejoin_needed = False
            coordinator.state = MemberState.STABLE
            coordinator._enable_heartbeat()
        generation = coordinator._generation
        await coordinator._on_join_complete_async(
            generation.generation_id, generation.member_id, generation.protocol, assignment
        )


def attach(consumer: Any, *, allow_untested: bool = False) -> Attached:
    """Repair a consumer and let its assignors see it; call it once, before the first poll.

    Parameters
    ----------
    consumer : kafka.KafkaConsumer
        With a ``group_id``. Assignors that are not ours gain the repairs all the same.
    allow_untested : bool
        Go on with a version of kafka-python that was not tested.

    Returns
    -------
    Attached
        Also asks for rejoins.

    Raises
    ------
    ConfigError
        A version that was not tested, or a consumer without a group.
    LocalProtocolError
        A consumer that is attached already.
    """
    if kafka.__version__ not in TESTED and not allow_untested:
        raise ConfigError(
            f"attach: kafka-python {kafka.__version__} was not tested with holdfast (tested: "
            f"{', '.join(sorted(TESTED))}); attach(consumer, allow_untested=True) tries it"
        )
    if consumer.config["group_id"] is None:
        raise ConfigError("attach: the consumer has no group_id, so it is in no group")
    if getattr(consumer, _MARK, False):
        raise LocalProtocolError("attach: the consumer is attached already")
    attached = Attached(consumer)
    setattr(consumer, _MARK, True)
    return attached
