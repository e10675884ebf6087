"""kafka-python's consumer with our membership: it joins in the background.

**Rules.** Everything that is not about the group is kafka-python's own: records, errors, positions,
fetching, a consumer without a group and one that assigns partitions itself. The application's calls
keep their names, arguments, results and errors. ``docs/clients.md`` lists what differs.

**Strategy.** A subclass whose coordinator is
:class:`~holdfast.members.drop_in.kafka.coordinator.MemberConsumerCoordinator`.

References: KIP-429, KIP-62; Incremental Cooperative Rebalancing, Designs I, II and III.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import kafka
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConfigurationError
from kafka.structs import TopicPartition

from holdfast.cluster.login_log import hide_logins
from holdfast.errors import ConfigError
from holdfast.members.drop_in.in_place import InPlace
from holdfast.members.drop_in.kafka.coordinator import MemberConsumerCoordinator
from holdfast.members.drop_in.kafka.hands import fetch_what_is_there
from holdfast.members.drop_in.kafka.settings import network_of, settings_of
from holdfast.members.drop_in.keywords import is_ours
from holdfast.members.member.errands import to_the_end
from holdfast.members.member.readiness import clear_ready_file
from holdfast.members.seat.in_hand import NOTHING, InHand

if TYPE_CHECKING:
    from kafka.consumer.fetcher import ConsumerRecord
    from kafka.future import Future

    from holdfast.members.member.metrics import MemberMetrics

_ORIGINAL: Any = kafka.KafkaConsumer
_STRATEGY = "partition_assignment_strategy"
INSTALLED = InPlace(policy="holdfast_policy", strategy=_STRATEGY)
"""What :func:`install` gives every consumer of a group."""


class KafkaConsumer(_ORIGINAL):  # type: ignore[misc]  # kafka-python has no types
    """A consumer, as kafka-python's.

    Parameters
    ----------
    *topics : str
        Topics to subscribe to.
    **configs
        kafka-python's keywords; ``partition_assignment_strategy`` takes names of the registry, too.
        Ours begin with ``holdfast_``: ``holdfast_policy="deferred"`` is Design II, and
        ``scheduled_rebalance_max_delay_ms`` how long its group waits for a member.

    Raises
    ------
    KafkaConfigurationError
        For a keyword that is unknown, or a value that cannot be honoured.

    Examples
    --------
    ::

        consumer = KafkaConsumer("orders", group_id="etl", holdfast_policy="deferred")
        for record in consumer:
            handle(record)
    """

    _group: MemberConsumerCoordinator | None = None
    _coordinator: Any
    _closed: bool
    _has_ended = False
    _in_hand: InHand

    def __init__(self, *topics: str, **configs: Any):
        hide_logins()
        self._in_hand = InHand()
        if configs.get("group_id") is not None:
            configs = INSTALLED.over(configs)
        ours = {word: configs.pop(word) for word in list(configs) if is_ours(word)}
        strategies = configs.get(_STRATEGY, self.DEFAULT_CONFIG[_STRATEGY])
        if "holdfast_policy" in ours and _STRATEGY not in configs:
            strategies = None
        if configs.get("group_id") is None:
            if ours:
                names = ", ".join(sorted(ours))
                raise KafkaConfigurationError(f"{names}: without a group_id there is no group")
            super().__init__(*topics, **configs)
            fetch_what_is_there(self)
            return
        # The leader's code is loaded here, not with the client's module.
        from holdfast.members.member.membership import assignors_of

        whole = {**self.DEFAULT_CONFIG, **configs}
        settings = settings_of(whole, ours, strategies=strategies)
        try:
            offered = assignors_of(settings)
            clear_ready_file(settings)
        except ConfigError as error:
            raise KafkaConfigurationError(str(error)) from error
        # kafka-python's own coordinator takes no name, and never joins
        configs[_STRATEGY] = (RangePartitionAssignor,)
        super().__init__(**configs)
        self.config[_STRATEGY] = whole[_STRATEGY]
        fetch_what_is_there(self)
        self._coordinator = self._group = MemberConsumerCoordinator(
            self._coordinator,
            self._subscription,
            self._cluster,
            self._net.run,
            settings=settings,
            assignors=offered,
            network=network_of(self.config),
            in_hand=self._in_hand,
        )
        if topics:
            self._subscription.subscribe(topics=topics)
            self._cluster.set_topics(topics)

    @property
    def _member(self) -> MemberConsumerCoordinator | None:
        """Who answers for the group, None where nothing is subscribed to."""
        return self._group if self._group is not None and self._group.is_member else None

    def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        update_offsets: bool = True,
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records by partition; see kafka-python."""
        records: dict[TopicPartition, list[ConsumerRecord]] = {}
        self._in_hand.last = None
        try:
            records = super().poll(timeout_ms, max_records, update_offsets)
            return records
        finally:
            self._in_hand.last = records

    def __next__(self) -> ConsumerRecord:
        record = NOTHING
        self._in_hand.last = None
        try:
            if self._group is not None and self._group.waiting and not self._closed:
                self._group.poll(0)  # before the next record of a list that was polled before
            record = super().__next__()
            return record
        finally:
            self._in_hand.last = record  # of the list that it comes from, this one alone

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """Offset of the next record; waits until it is known, see kafka-python."""
        hands = None if self._member is None else self._member.hands
        with nullcontext() if hands is None else hands.awaiting_position():
            found: int | None = super().position(partition, timeout_ms=timeout_ms)
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at another offset; see kafka-python."""
        super().seek(partition, offset)
        if self._member is not None:
            self._member.sought(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset of these, or of all; see kafka-python."""
        super().seek_to_beginning(*partitions)
        if self._member is not None:
            for partition in partitions or self.assignment():
                self._member.sought(partition, 0)

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Hand over, leave and close; see kafka-python."""
        if self._member is not None and self._member.seat is not None:
            self._member.seat.membership.process.check()

        def end() -> None:
            # kafka-python notes at first that it is closed; an exception may have come after that.
            self._closed = self._has_ended
            if self._net._closed:  # it came while the loop ended, the last step, which notes it too
                self._closed, self._net._closed = True, False
                self._net.close()
            super(KafkaConsumer, self).close(autocommit=autocommit, timeout_ms=timeout_ms)
            self._has_ended = True

        to_the_end(end)

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]] | None:
        """kafka-python's numbers, with our member's in ``consumer-coordinator-metrics``."""
        found: dict[str, dict[str, float]] | None = super().metrics(raw)
        ours = self.__holdfast_metrics__()
        if found and ours is not None and not raw:
            found["consumer-coordinator-metrics"] = {
                **found.get("consumer-coordinator-metrics", {}),
                **ours.to_kafka(),
            }
        return found

    def __holdfast_metrics__(self) -> MemberMetrics | None:
        seat = None if self._group is None else self._group.seat
        return None if seat is None else seat.membership.metrics()

    def commit(
        self, offsets: Mapping[TopicPartition, Any] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit, and wait until it is done; see kafka-python.

        Raises
        ------
        CommitFailedError
            If the group refused it, or the member does not own a partition, or lost it before the
            commit. Nothing is committed.
        """
        if offsets is None and self._member is not None:
            self._member.commit_offsets_sync(None, timeout_ms=timeout_ms)
        else:
            super().commit(offsets, timeout_ms=timeout_ms)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, Any] | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> Future:
        """Commit without waiting; see kafka-python."""
        if offsets is None and self._member is not None:
            return self._member.commit_offsets_async(None, callback)
        return super().commit_async(offsets, callback=callback)


def install(**keywords: Any) -> Callable[[], None]:
    """Have everybody who asks kafka-python for a consumer get ours; what is returned undoes it.

    It replaces the class in every loaded module that has it as a global. Classes that were derived
    from the original before, and consumers that exist, stay as they are: call it first. The
    keywords go over those of every consumer of a group that is made from now on. With
    ``holdfast_policy`` the ``partition_assignment_strategy`` of a framework is dropped, unless it
    is given here as well.

    Warns
    -----
    RuntimeWarning
        For each class that was derived from the original before.
    """
    return INSTALLED.install({_ORIGINAL: KafkaConsumer}, keywords)
