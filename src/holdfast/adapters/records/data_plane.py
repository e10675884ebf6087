"""Data planes: clients that fetch given partitions and do nothing else.

**Rules.** A data plane never joins a group, commits, or chooses an offset: every partition starts
at an explicit position. After :meth:`DataPlane.stop` has returned, :meth:`DataPlane.poll` returns
no record of the stopped partitions. Records keep the client library's own type.

**Strategy.** librdkafka by default (``incremental_assign`` keeps the other partitions flowing);
kafka-python and aiokafka behind the same calls.

References
----------
KIP-429 (partitions that stay keep flowing); the Incremental Cooperative Rebalancing document,
"hold onto resources".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from holdfast.adapters.cluster import render
from holdfast.adapters.records.silence import ASK_S, DEAF, NO_BROKER, Silence
from holdfast.adapters.settings import Settings
from holdfast.errors import AdapterError, RemoteProtocolError
from holdfast.machine.codes import ErrorCode, describe

TopicPartition = tuple[str, int]
MOST_INTRODUCED = 16  # more questions would take as long as they save
_INTRODUCED_S = 1.0
_library_log = logging.getLogger("holdfast.librdkafka")


class DataPlane(Protocol):
    """The calls of every client that fetches."""

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Begin to fetch these partitions, each from its position."""

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these no more; drop their buffered messages."""

    def poll(self, timeout_ms: int, max_records: int) -> list[Any]:
        """Return at most ``max_records`` messages, an empty list after ``timeout_ms``."""

    def positions(self) -> dict[TopicPartition, int]:
        """Offset after the last message returned, for each partition that has returned any."""

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Keep these assigned, but return none of their messages."""

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return messages of these again, from where they were paused."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue this partition at ``offset``."""

    def close(self) -> None:
        """Release connections and buffers."""


def clients_own(kind: Any) -> Any:
    """The client's own class, also where ``install()`` has put one of ours in its place."""
    line = getattr(kind, "__mro__", (kind,))
    return next(one for one in line if not one.__module__.startswith("holdfast."))


class ConfluentPlane:
    """librdkafka through confluent-kafka.

    Parameters
    ----------
    settings : Settings
        The consumer's configuration.
    answered_at : callable
        When the coordinator last acknowledged a heartbeat. A librdkafka that is deaf is made anew
        (:mod:`holdfast.adapters.records.silence`), by default never.
    """

    def __init__(self, settings: Settings, answered_at: Callable[[], float] = lambda: 0.0):
        try:
            import confluent_kafka
        except ImportError:
            raise AdapterError(
                "confluent-kafka is not installed: pip install 'holdfast[confluent]'"
            ) from None
        self._lib = confluent_kafka
        self._config = render.librdkafka_fetch(settings)
        self._make = clients_own(confluent_kafka.Consumer)
        self._consumer: Any = self._make(self._config, logger=_library_log)
        self._silence = Silence(answered_at)
        self._assigned: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._known: set[str] = set()

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """See :class:`DataPlane`."""
        part = self._lib.TopicPartition
        self._introduce({topic for topic, _ in positions} - self._known)
        self.stop(positions)  # librdkafka refuses to begin what it fetches already
        self._assigned.update(positions)
        self._consumer.incremental_assign([part(t, p, at) for (t, p), at in positions.items()])

    def _introduce(self, topics: set[str]) -> None:
        """Ask for new topics: librdkafka fetches a known topic at once, others a second later.

        If a question fails, librdkafka asks again by itself.
        """
        self._known |= topics
        try:
            for topic in sorted(topics)[:MOST_INTRODUCED]:
                self._consumer.list_topics(topic, _INTRODUCED_S)
        except self._lib.KafkaException as error:
            _library_log.debug("a topic is not known yet: %s", error)

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        held = [tp for tp in partitions if tp in self._assigned]
        if paused := self._paused.intersection(held):
            self.resume(paused)  # librdkafka keeps a pause for the next time
        if held:
            self._consumer.incremental_unassign([self._lib.TopicPartition(t, p) for t, p in held])
            for tp in held:
                del self._assigned[tp]

    def poll(self, timeout_ms: int, max_records: int) -> list[Any]:
        """See :class:`DataPlane`."""
        messages: list[Any] = self._consumer.consume(max_records, timeout_ms / 1000)
        if any(map(self._lib.Message.error, messages)):
            messages = [message for message in messages if not self._failed(message)]
        if messages:
            self._silence.end()
        elif self._silence.is_due() and self._assigned:
            self._listen()
        return messages

    def _listen(self) -> None:
        """Make a deaf librdkafka anew, and raise: everything has to be started again."""
        if self._is_heard():
            self._silence.end()
        elif self._silence.found_none():
            self._renew()
            raise ConnectionError(f"{DEAF}: it is made anew")

    def _is_heard(self) -> bool:
        """Ask for a topic; return whether there is a broker to ask."""
        try:
            self._consumer.list_topics(min(self._assigned)[0], ASK_S)
        except self._lib.KafkaException as error:
            return bool(error.args[0].code() != NO_BROKER)
        return True

    def _renew(self) -> None:
        deaf, self._consumer = self._consumer, self._make(self._config, logger=_library_log)
        deaf.close()
        self._assigned.clear()
        self._paused.clear()
        self._known.clear()

    def _failed(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            text = f"topic {message.topic()!r}: {describe(error.code())}"
            raise RemoteProtocolError(text, error_code=error.code())
        if error.fatal() or not error.retriable():
            name = f"{message.topic()}-{message.partition()}"
            raise AdapterError(f"fetching {name} failed: {error.str()} ({error.name()})")
        return True

    def positions(self) -> dict[TopicPartition, int]:
        """See :class:`DataPlane`."""
        part = self._lib.TopicPartition
        found = self._consumer.position([part(t, p) for t, p in self._assigned])
        return {(f.topic, f.partition): f.offset for f in found if f.offset >= 0}

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        self._paused.update(partitions)
        self._consumer.pause([self._lib.TopicPartition(t, p) for t, p in partitions])

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        self._paused.difference_update(partitions)
        self._consumer.resume([self._lib.TopicPartition(t, p) for t, p in partitions])

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See :class:`DataPlane`."""
        self._consumer.seek(self._lib.TopicPartition(*partition, offset))

    def close(self) -> None:
        """See :class:`DataPlane`."""
        self._consumer.close()
        self._consumer = None  # librdkafka's threads end with the last reference


def taken(
    batches: Mapping[Any, list[Any]],
    next_offset: dict[TopicPartition, int],
    returned: set[TopicPartition],
) -> list[Any]:
    """The fetched records of the partitions that are still assigned.

    Parameters
    ----------
    batches : mapping
        A client's ``TopicPartition`` -> its records, in order.
    next_offset : dict
        Next offset of each assigned partition; moved behind the returned records.
    returned : set
        Gains the partitions of those records.
    """
    messages: list[Any] = []
    for tp, records in batches.items():
        key = (tp.topic, tp.partition)
        if key in next_offset and records:
            next_offset[key] = records[-1].offset + 1
            returned.add(key)
            messages += records
    return messages


class KafkaPythonPlane:
    """kafka-python's consumer with a manual assignment."""

    def __init__(self, settings: Settings):
        import kafka

        from holdfast.adapters.kafka_python_fetches import fetch_what_is_there, let_it_be_slow

        self._part = kafka.TopicPartition
        self._consumer = clients_own(kafka.KafkaConsumer)(**render.kafka_python_fetch(settings))
        fetch_what_is_there(self._consumer)
        let_it_be_slow(self._consumer)
        self._next: dict[TopicPartition, int] = {}
        self._returned: set[TopicPartition] = set()

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """See :class:`DataPlane`."""
        self._next.update(positions)
        self._assign()
        for tp, offset in positions.items():
            self._consumer.seek(self._part(*tp), offset)

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        for tp in partitions:
            self._next.pop(tp, None)
            self._returned.discard(tp)
        self._assign()

    def _assign(self) -> None:
        """Replace the set; kafka-python keeps position, pause and buffers of what stays."""
        self._consumer.assign([self._part(t, p) for t, p in self._next])

    def poll(self, timeout_ms: int, max_records: int) -> list[Any]:
        """See :class:`DataPlane`."""
        if not self._next:
            return []
        batches = self._consumer.poll(timeout_ms=timeout_ms, max_records=max_records)
        return taken(batches, self._next, self._returned)

    def positions(self) -> dict[TopicPartition, int]:
        """See :class:`DataPlane`."""
        return {tp: self._next[tp] for tp in self._returned}

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        self._consumer.pause(*(self._part(t, p) for t, p in partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        self._consumer.resume(*(self._part(t, p) for t, p in partitions))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See :class:`DataPlane`."""
        self._next[partition] = offset
        self._consumer.seek(self._part(*partition), offset)

    def close(self) -> None:
        """See :class:`DataPlane`."""
        self._consumer.close(autocommit=False)
