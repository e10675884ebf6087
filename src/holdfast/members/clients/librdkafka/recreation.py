"""The life of a librdkafka client: recreated when it stalls, untouched in a fork of its process.

**Rules.** librdkafka is *stalled* if nothing comes from it and four requests in a row find no
broker, although the group's coordinator has acknowledged a heartbeat of this member before each of
them, since the one before. While the coordinator does not answer either, the brokers are
unavailable, and no client is stalled. Only the consumer of a group is watched: without a
subscription everything is the original. Everything here runs on the application's thread, which
holds the call lock. A recreated client fetches from the application's positions, and paused
partitions stay paused. Nothing is lost or delivered twice: a stalled librdkafka has no records.

A fork has the memory of its parent's clients and none of their threads. Destroying such a client
waits for these threads, and librdkafka then ends the process with a failed assertion, even if the
program only forgets the client or ends. So in a fork every client of the parent stays as it is,
until the process ends.

**Strategy.** If no position has moved for a while, librdkafka gets a request for a topic. If a
recreation does not help, the next one comes after twice as many requests. confluent-kafka lets a
closed object be initialized again, inside the same consumer. Before its calls waited for each
other, another thread could be inside the library meanwhile: there the stall is only logged.

Not obvious: librdkafka 2.10 to 2.16 drops every broker that a Metadata response does not name. A
broker that has just started may name none. Then librdkafka usually starts again at
``bootstrap.servers``, but in some orders of its threads it does not, and stays without brokers.

References: librdkafka issue 5301; KIP-899 (re-bootstrap); POSIX, ``fork`` (only the calling thread
is copied); librdkafka, INTRODUCTION.md, "fork()".
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from typing import Any
from weakref import WeakSet

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition, cimpl

from holdfast.core.model.partitions import Resource

REQUEST_EVERY_S = 5.0
REQUEST_S = 0.25
NO_BROKER = -195
"""librdkafka's code if it finds no broker (``_TRANSPORT``)."""
_REQUESTS, _MOST_REQUESTS = 4, 64
STALLED = (
    "librdkafka finds no broker, although the group's coordinator answers (librdkafka issue 5301)"
)
CALLER = getattr(cimpl, "_reentry_identity_var", None)
"""The caller of a thread of AIOConsumer; None if confluent-kafka's calls do not wait."""
serializes_calls = CALLER is not None
"""Whether confluent-kafka's own calls wait for each other."""
_Original: Any = confluent_kafka.Consumer


class ClientRecreation:
    """Recreates the client of one consumer."""

    def __init__(self, client_config: Mapping[str, Any]):
        self._client_config = client_config
        self.record_progress()
        self._login: tuple[str, str] | None = None
        # Seeks to which offset, and from which position, that have moved nothing yet.
        self._pending_seeks: dict[Resource, tuple[int, int]] = {}
        self._application_positions: dict[Resource, int] = {}

    def log_in_as(self, username: str, password: str) -> None:
        """Use these credentials for a recreated client as well."""
        self._login = username, password

    def seek(self, consumer: Any, partition: Any) -> None:
        """Record a seek of a partition, until its position has moved."""
        before = _Original.position(consumer, [partition])[0].offset
        self._pending_seeks[partition.topic, partition.partition] = partition.offset, before

    def forget(self, partitions: Collection[Resource] | None = None) -> None:
        """Forget seeks of partitions that are unassigned or restarted; by default all."""
        for tp in list(self._pending_seeks if partitions is None else partitions):
            self._pending_seeks.pop(tp, None)

    def record_progress(self) -> None:
        """Record that a record or a response has come."""
        self._requested_at = time.monotonic()
        self._n_failed = 0  # requests since then that have found no broker
        self._n_allowed = _REQUESTS

    def is_request_due(self) -> bool:
        """Return whether the next request is due."""
        return time.monotonic() - self._requested_at >= REQUEST_EVERY_S

    def record_no_broker(self, heartbeat_answered_at: float) -> bool:
        """Record a request that found no broker; return whether the client is stalled.

        ``heartbeat_answered_at`` is the time at which the coordinator last acknowledged a
        heartbeat, by the monotonic clock.
        """
        has_coordinator = heartbeat_answered_at > self._requested_at
        self._n_failed = self._n_failed + 1 if has_coordinator else 0
        self._requested_at = time.monotonic()
        if self._n_failed < self._n_allowed:
            return False
        self._n_failed = 0
        self._n_allowed = min(2 * self._n_allowed, _MOST_REQUESTS)
        return True

    def check_stalled(self, consumer: Any, heartbeat_answered_at: float) -> bool:
        """Send a request, if it is due; return whether librdkafka has no broker."""
        if not self.is_request_due():
            return False
        before, self._application_positions = (
            self._application_positions,
            self._next_offsets(consumer),
        )
        if not self._application_positions or self._application_positions != before:
            self.record_progress()
            return False
        try:
            _Original.list_topics(consumer, min(self._application_positions)[0], REQUEST_S)
        except KafkaException as error:
            if error.args[0].code() == NO_BROKER:
                return self.record_no_broker(heartbeat_answered_at)
        self.record_progress()
        return False

    def recreate(
        self,
        consumer: Any,
        paused: Collection[Resource],
        start_offsets: Mapping[Resource, int] | None = None,
    ) -> None:
        """Close librdkafka, and start a new one at ``start_offsets`` or the old positions."""
        start_offsets = (
            self._next_offsets(consumer) if start_offsets is None else dict(start_offsets)
        )
        _Original.close(consumer)
        _Original.__init__(consumer, self._client_config)
        if self._login is not None:
            _Original.set_sasl_credentials(consumer, *self._login)
        _Original.incremental_assign(
            consumer, [TopicPartition(*tp, at) for tp, at in sorted(start_offsets.items())]
        )
        kept_paused = sorted(start_offsets.keys() & set(paused))
        _Original.pause(consumer, [TopicPartition(*tp) for tp in kept_paused])

    def _next_offsets(self, consumer: Any) -> dict[Resource, int]:
        """Return librdkafka's next offset of each partition; before the first fetch, its start."""
        assigned = _Original.assignment(consumer)
        next_offsets = {}
        for start, position in zip(assigned, _Original.position(consumer, assigned), strict=True):
            tp = start.topic, start.partition
            to, before = self._pending_seeks.get(tp, (0, None))
            if before == position.offset:
                next_offsets[tp] = to
            else:
                self._pending_seeks.pop(tp, None)
                next_offsets[tp] = position.offset if position.offset >= 0 else start.offset
        return next_offsets


_clients: WeakSet[Any] = WeakSet()


def keep_in_forks(client: Any) -> None:
    """Keep a fork from destroying ``client``."""
    _clients.add(client)


def _keep_for_ever() -> None:
    """Give each client a reference that is never released: Python destroys none of them."""
    for client in list(_clients):
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_for_ever)
