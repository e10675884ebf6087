"""When librdkafka has lost all its brokers for good, although they are there; it is made anew.

**Rules.** librdkafka is *deaf* if nothing comes from it and four questions in a row find no broker,
although the group's coordinator has acknowledged a heartbeat of this member before each of them,
since the one before. While the coordinator is silent too, the brokers are away, and nobody is deaf.

Only the consumer of a group is looked after: without a subscription everything is the original.
Everything here runs on the application's thread, which has the turn. After a renewal everything is
fetched from where the application is, and what it has paused stays paused. Nothing is lost or
handed out twice: a deaf librdkafka has nothing.

**Strategy.** Where no position has moved for a while, librdkafka is asked for a topic;
:class:`StallDetector` counts. If a renewal does not help, the next one comes after twice as many
questions. confluent-kafka lets an object that is closed be initialized again, inside the same
consumer. Before its version with a gate, another thread could be inside the library meanwhile:
there the log has to do.

Not obvious: librdkafka 2.10 to 2.16 drops every broker that a Metadata answer does not name. A
broker that has just started may name none. Then librdkafka begins again at ``bootstrap.servers``,
but in some orders of its threads it does not, and stays without brokers.

References: librdkafka issue 5301; KIP-899 (re-bootstrap).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition, cimpl

from holdfast.core.model.partitions import Resource
from holdfast.members.session.session import GroupSession

ASK_EVERY_S = 5.0
ASK_S = 0.25
NO_BROKER = -195
"""librdkafka's code where it finds nobody to ask (``_TRANSPORT``)."""
_QUESTIONS, _MOST_QUESTIONS = 4, 64
STALLED = (
    "librdkafka finds no broker any more, although the group's coordinator answers "
    "(librdkafka issue 5301)"
)
CALLER = getattr(cimpl, "_reentry_identity_var", None)
"""For whom a thread of AIOConsumer calls; None where confluent-kafka's calls have no gate."""
has_gate = CALLER is not None
"""Whether confluent-kafka's own calls wait for each other."""
_Original: Any = confluent_kafka.Consumer


class RecreatableClient(Protocol):
    """The hands of a consumer that may be made anew."""

    paused: set[Resource]

    @property
    def session(self) -> GroupSession:
        """The member's."""

    @property
    def consumer(self) -> Any:
        """Fetches."""

    def forget_fetched(self) -> Mapping[Resource, int] | None:
        """Forget what is not handed out; return where to begin, None for where librdkafka is."""


class StallDetector:
    """How long nothing has come."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        """Note that something has come."""
        self._asked_at = time.monotonic()
        self._n_in_vain = 0
        self._n_allowed = _QUESTIONS

    def is_due(self) -> bool:
        """Whether it is time to ask."""
        return time.monotonic() - self._asked_at >= ASK_EVERY_S

    def found_none(self, answered_at: float) -> bool:
        """Note a question that found no broker; return whether the client is deaf.

        ``answered_at`` is when the coordinator last acknowledged a heartbeat, by the monotonic
        clock.
        """
        is_there = answered_at > self._asked_at
        self._n_in_vain = self._n_in_vain + 1 if is_there else 0
        self._asked_at = time.monotonic()
        if self._n_in_vain < self._n_allowed:
            return False
        self._n_in_vain = 0
        self._n_allowed = min(2 * self._n_allowed, _MOST_QUESTIONS)
        return True


class ClientRecreation:
    """What a consumer needs to be made anew."""

    def __init__(self, plane: Mapping[str, Any]):
        self._plane = plane
        self.stall_detector = StallDetector()
        self._login: tuple[str, str] | None = None
        self._sought: dict[Resource, tuple[int, int]] = {}  # to where, and from which position
        self._application_positions: dict[Resource, int] = {}

    def log_in_as(self, username: str, password: str) -> None:
        """Log in with these after a renewal, too."""
        self._login = username, password

    def seek(self, consumer: Any, partition: Any) -> None:
        """Note where a partition goes on, until its position has moved."""
        before = _Original.position(consumer, [partition])[0].offset
        self._sought[partition.topic, partition.partition] = partition.offset, before

    def forget(self, partitions: Collection[Resource] | None = None) -> None:
        """These are assigned no more, or begin at another place; without an argument, all."""
        for tp in list(self._sought if partitions is None else partitions):
            self._sought.pop(tp, None)

    def recreate_if_stalled(self, adapter: RecreatableClient) -> None:
        """Make librdkafka anew if it is deaf."""
        runtime, member_thread = (
            adapter.session.membership.runtime,
            adapter.session.membership.member_thread,
        )
        answered_at = 0.0 if member_thread is None else member_thread.answered_at
        if runtime is None or not self._is_stalled(adapter.consumer, answered_at):
            return
        if not has_gate:
            runtime.log.warning("%s: this process reads nothing until it is restarted", STALLED)
            return
        runtime.log.warning("%s: it is made anew", STALLED)
        self.recreate(adapter.consumer, adapter.paused, adapter.forget_fetched())

    def _is_stalled(self, consumer: Any, answered_at: float) -> bool:
        """Ask, if it is time to; return whether librdkafka has no broker any more."""
        stall_detector = self.stall_detector
        if not stall_detector.is_due():
            return False
        before, self._application_positions = self._application_positions, self._now(consumer)
        if not self._application_positions or self._application_positions != before:
            stall_detector.end()
            return False
        try:
            _Original.list_topics(consumer, min(self._application_positions)[0], ASK_S)
        except KafkaException as error:
            if error.args[0].code() == NO_BROKER:
                return stall_detector.found_none(answered_at)
        stall_detector.end()
        return False

    def recreate(
        self,
        consumer: Any,
        paused: Collection[Resource],
        start_offsets: Mapping[Resource, int] | None = None,
    ) -> None:
        """Close librdkafka, and begin with a new one at these places, or where the old one was."""
        start_offsets = self._now(consumer) if start_offsets is None else dict(start_offsets)
        _Original.close(consumer)
        _Original.__init__(consumer, self._plane)
        if self._login is not None:
            _Original.set_sasl_credentials(consumer, *self._login)
        _Original.incremental_assign(
            consumer, [TopicPartition(*tp, at) for tp, at in sorted(start_offsets.items())]
        )
        still = sorted(start_offsets.keys() & set(paused))
        _Original.pause(consumer, [TopicPartition(*tp) for tp in still])

    def _now(self, consumer: Any) -> dict[Resource, int]:
        """Where librdkafka fetches each partition next; what it has not begun, from where."""
        assigned = _Original.assignment(consumer)
        found = {}
        for begun, reached in zip(assigned, _Original.position(consumer, assigned), strict=True):
            tp = begun.topic, begun.partition
            to, before = self._sought.get(tp, (0, None))
            if before == reached.offset:
                found[tp] = to
            else:
                self._sought.pop(tp, None)
                found[tp] = reached.offset if reached.offset >= 0 else begun.offset
        return found
