"""The four clients with the same few verbs, holdfast's and the originals, for the sentences.

**Rules.** A partition is its number, because a sentence reads one topic at a time. Keys are
Kafka's, as for ``holdfast.Consumer``; each client gets them in its own spelling. A verb does one
call of the client. If a client has no such call, its class lacks the verb, and sentences skip it.

**Strategy.** aiokafka has a loop on a thread of its own, so that a sentence is the same plain text
for every client; its callbacks run on another thread, and may use every verb.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

import aiokafka
import confluent_kafka
import kafka
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaTokens
from kafka.structs import OffsetAndMetadata
from tests.live.event_recorder import EventRecorder, Listener, LossListener
from tests.live.waiting import PATIENCE_SECONDS, until

import holdfast
import holdfast.aiokafka
import holdfast.confluent
import holdfast.kafka
from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import RemoteProtocolError

QUICK = {
    "auto.offset.reset": "earliest",
    "heartbeat.interval.ms": 300,
    "session.timeout.ms": 30_000,  # where nothing waits for it, no busy machine reaches it
    "auto.commit.interval.ms": 200,
    "metadata.max.age.ms": 500,
}
TOKENS = "holdfast.oauth.token.provider"
Place = tuple[int, int]
_PASSING = {KafkaError._MAX_POLL_EXCEEDED, KafkaError.UNKNOWN_TOPIC_OR_PART}  # of a new topic


def word(error: BaseException) -> str:
    """An error's class, with its code where the class does not say it."""
    name = type(error).__name__
    if isinstance(error, KafkaException):
        return f"{name} {error.args[0].name()}"
    if isinstance(error, RemoteProtocolError) and error.error_code >= 0:
        return f"{name} {ErrorCode(error.error_code).name}"
    return name


class Client:
    """One consumer. Everything that it has handed out is in ``records``."""

    name: ClassVar[str]
    kinds: ClassVar[tuple[Any, Any]]  # the original, and ours
    recorder: EventRecorder | None = None  # of what it has subscribed to
    passes: Callable[[KafkaError], bool] = staticmethod(lambda error: error.code() in _PASSING)

    def __init__(self, topic: str, config: Mapping[str, Any], *, is_original: bool = False):
        self.topic, self.is_original = topic, is_original
        self.kind = self.kinds[0 if is_original else 1]
        self.records: list[Place] = []
        self.topics: set[str] = set()  # of these records
        self.passed: list[KafkaError] = []  # errors that were messages
        self.consumer = self.made({**QUICK, **config})

    def made(self, config: dict[str, Any]) -> Any:
        raise NotImplementedError

    def poll(self, timeout_s: float = 0.1, n: int = 500) -> list[Place]:
        """The next records."""
        found = self.take(timeout_s, n)
        self.topics |= {topic for topic, _ in found}
        places = [place for _, place in found]
        self.records += places
        return places

    def take(self, timeout_s: float, n: int) -> list[tuple[str, Place]]:
        raise NotImplementedError

    def does(self, call: str, *arguments: Any, **named: Any) -> Any:
        return getattr(self.consumer, call)(*arguments, **named)

    def tp(self, partition: int) -> Any:
        """A partition of the topic, as the client names it."""
        return self.topic, partition

    @property
    def session(self) -> Any:
        """The session of one of ours, None before it has any."""
        return self.consumer._coordinator.session

    @property
    def runtime(self) -> Any:
        return self.session and self.session.membership.runtime

    @property
    def snapshot(self) -> Any:
        return self.runtime.member_thread.snapshot

    def owns(self) -> set[int]:
        return {p.partition for p in self.consumer.assignment()}

    def is_notified(self) -> bool:
        """Whether its callbacks have heard of what it owns, which may be later."""
        return self.recorder is None or self.recorder.holds() == self.owns()

    def seen(self) -> str:
        """What a test that waits in vain shows."""
        calls = "" if self.recorder is None else f", was told {self.recorder.calls}"
        return f"{self.name} owns {sorted(self.owns())}, has {len(self.records)} records{calls}"

    def commit(self) -> None:
        self.does("commit")

    def seek(self, partition: int, offset: int) -> None:
        self.does("seek", self.tp(partition), offset)

    def begin_at(self, partition: int, offset: int) -> None:
        """Inside the callback of an assignment: have a partition begin there."""
        self.seek(partition, offset)

    def seek_to_beginning(self, partition: int) -> None:
        self.does("seek_to_beginning", self.tp(partition))

    def seek_to_end(self, partition: int) -> None:
        self.does("seek_to_end", self.tp(partition))

    def pause(self, partition: int) -> None:
        self.consumer.pause([self.tp(partition)])

    def resume(self, partition: int) -> None:
        self.consumer.resume([self.tp(partition)])

    def position(self, partition: int) -> int | None:
        return self.does("position", self.tp(partition))

    def ends(self, partition: int) -> tuple[int, int]:
        """Where a partition begins and ends."""
        tp = self.tp(partition)
        return self.does("beginning_offsets", [tp])[tp], self.does("end_offsets", [tp])[tp]

    def unsubscribe(self) -> None:
        self.does("unsubscribe")

    def close(self, **said: Any) -> None:
        self.consumer.close(**said)


class Consumer(Client):
    name = "consumer"
    kinds = (None, holdfast.Consumer)

    def made(self, config: dict[str, Any]) -> Any:
        return self.kind({"holdfast.handle.signals": False, **config})

    @property
    def session(self) -> Any:
        return self.consumer._session

    def subscribe(self, topics: list[str] | str, recorder: EventRecorder | None = None) -> None:
        self.recorder = recorder
        kind = LossListener if recorder is not None and recorder.hears_losses else Listener
        wanted = re.compile(topics) if isinstance(topics, str) else topics
        self.consumer.subscribe(wanted, None if recorder is None else kind(recorder))

    def take(self, timeout_s: float, n: int) -> list[tuple[str, Place]]:
        found = self.consumer.poll(timeout_s, n)
        return [(m.topic(), (m.partition(), m.offset())) for m in found]

    def commit_at(self, offsets: Mapping[int, int]) -> None:
        self.consumer.commit({self.tp(p): at for p, at in offsets.items()})

    def committed(self, partition: int) -> int | None:
        return self.consumer.committed([self.tp(partition)])[self.tp(partition)]

    def at_time(self, partition: int, time_ms: int) -> int | None:
        return self.consumer.offsets_for_times({self.tp(partition): time_ms})[self.tp(partition)]

    def n_partitions(self) -> int:
        return self.consumer.list_topics()[self.topic]


class Confluent(Client):
    """``holdfast.confluent``. Errors that are messages are raised; passing ones are kept."""

    name = "confluent"
    kinds = (confluent_kafka.Consumer, holdfast.confluent.Consumer)

    def made(self, config: dict[str, Any]) -> Any:
        keys = dict(config)
        keys["topic.metadata.refresh.interval.ms"] = keys.pop("metadata.max.age.ms")
        if keys["auto.offset.reset"] == "none":
            keys["auto.offset.reset"] = "error"
        if (provide := keys.pop(TOKENS, None)) is not None:
            keys["oauth_cb"] = lambda _: provide()
        if keys.get("group.protocol") == "consumer":  # the broker decides on both
            del keys["heartbeat.interval.ms"], keys["session.timeout.ms"]
        if (timeout_ms := keys.pop("request.timeout.ms", None)) is not None:
            keys["socket.timeout.ms"] = timeout_ms
        return self.kind({"log_level": 0, **keys})

    @property
    def session(self) -> Any:
        return self.consumer._holdfast.session

    def subscribe(self, topics: list[str] | str, recorder: EventRecorder | None = None) -> None:
        self.recorder = recorder
        calls: dict[str, Any] = {}
        if recorder is not None:
            calls["on_assign"] = lambda _, partitions: recorder.note("assigned", partitions)
            calls["on_revoke"] = lambda _, partitions: recorder.note("revoked", partitions)
            if recorder.hears_losses:
                calls["on_lost"] = lambda _, partitions: recorder.note("lost", partitions)
        self.consumer.subscribe([topics] if isinstance(topics, str) else topics, **calls)

    def take(self, timeout_s: float, n: int) -> list[tuple[str, Place]]:
        found = self.consumer.consume(n, timeout_s)
        bad = [m.error() for m in found if m.error() is not None]
        self.passed += bad
        for error in bad:
            if not self.passes(error):
                raise KafkaException(error)
        good = [m for m in found if m.error() is None]
        return [(m.topic(), (m.partition(), m.offset())) for m in good]

    def tp(self, partition: int, *offset: int) -> Any:
        return TopicPartition(self.topic, partition, *offset)

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def commit_at(self, offsets: Mapping[int, int]) -> None:
        wanted = [self.tp(p, at) for p, at in offsets.items()]
        for done in self.consumer.commit(offsets=wanted, asynchronous=False):
            if done.error is not None:
                raise KafkaException(done.error)

    def committed(self, partition: int) -> int | None:
        at = self.consumer.committed([self.tp(partition)], 30)[0].offset
        return at if at >= 0 else None

    def position(self, partition: int) -> int:
        return self.consumer.position([self.tp(partition)])[0].offset

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(self.tp(partition, offset))

    def begin_at(self, partition: int, offset: int) -> None:
        self.consumer.assign([self.tp(partition, offset)])

    def seek_to_beginning(self, partition: int) -> None:
        self.seek(partition, confluent_kafka.OFFSET_BEGINNING)

    def seek_to_end(self, partition: int) -> None:
        self.seek(partition, confluent_kafka.OFFSET_END)

    def ends(self, partition: int) -> tuple[int, int]:
        return self.consumer.get_watermark_offsets(self.tp(partition), 30)

    def at_time(self, partition: int, time_ms: int) -> int | None:
        at = self.consumer.offsets_for_times([self.tp(partition, time_ms)], 30)[0].offset
        return at if at >= 0 else None

    def n_partitions(self) -> int:
        return len(self.consumer.list_topics(self.topic, 30).topics[self.topic].partitions)

    def assign(self, partitions: Iterable[int]) -> None:
        self.consumer.assign([self.tp(p) for p in partitions])


LOGIN_WORDS = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    TOKENS: "sasl_oauth_token_provider",
}


def keywords(config: Mapping[str, Any], *, is_original: bool) -> dict[str, Any]:
    """Kafka's keys as the keywords of aiokafka and of kafka-python."""
    words = {LOGIN_WORDS.get(k, k.replace(".", "_")): value for k, value in config.items()}
    strategy = words.pop("partition_assignment_strategy", [])
    listed = strategy if isinstance(strategy, list) else [strategy]
    if is_original:  # they take classes: for a name their own default
        listed = [each for each in listed if not isinstance(each, str)]
    return {**words, "partition_assignment_strategy": listed} if listed else words


class KafkaPython(Client):
    """``holdfast.kafka``."""

    name = "kafka"
    kinds = (kafka.KafkaConsumer, holdfast.kafka.KafkaConsumer)
    listener_kind: ClassVar[Any] = kafka.ConsumerRebalanceListener

    def made(self, config: dict[str, Any]) -> Any:
        return self.kind(**self.words(config))

    def words(self, config: dict[str, Any]) -> dict[str, Any]:
        words = keywords(config, is_original=self.is_original)
        if (provide := words.get(LOGIN_WORDS[TOKENS])) is not None:
            words[LOGIN_WORDS[TOKENS]] = self.tokens(provide)
        return words

    def tokens(self, provide: Callable[[], tuple[str, float]]) -> Any:
        """What the client asks for a token."""

        class Tokens(KafkaTokens):
            def token(self) -> str:
                return provide()[0]

        return Tokens()

    def subscribe(self, topics: list[str] | str, recorder: EventRecorder | None = None) -> None:
        self.recorder = recorder
        named = {"pattern": topics} if isinstance(topics, str) else {"topics": topics}
        listener = None if recorder is None else self.listener(recorder)
        self.does("subscribe", **named, listener=listener)
        if self.is_original and not isinstance(topics, str):
            # The originals never learn of a topic that their first round did not know.
            for topic in topics:
                until(lambda: self.does("partitions_for_topic", topic), topic)  # noqa: B023

    def listener(self, recorder: EventRecorder) -> Any:
        own = LossListener if recorder.hears_losses else Listener
        return type("OfKafkaPython", (own, self.listener_kind), {})(recorder)

    def take(self, timeout_s: float, n: int) -> list[tuple[str, Place]]:
        return _listed(self.consumer.poll(1000 * timeout_s, max_records=n))

    def tp(self, partition: int) -> Any:
        return kafka.TopicPartition(self.topic, partition)

    def offset(self, at: int) -> Any:
        return OffsetAndMetadata(at, "", -1)

    def commit_at(self, offsets: Mapping[int, int]) -> None:
        self.does("commit", {self.tp(p): self.offset(at) for p, at in offsets.items()})

    def committed(self, partition: int) -> int | None:
        return self.does("committed", self.tp(partition))

    def pause(self, partition: int) -> None:
        self.does("pause", self.tp(partition))

    def resume(self, partition: int) -> None:
        self.does("resume", self.tp(partition))

    def at_time(self, partition: int, time_ms: int) -> int | None:
        tp = self.tp(partition)
        at = self.does("offsets_for_times", {tp: time_ms})[tp]
        return None if at is None else at.offset

    def n_partitions(self) -> int:
        return len(self.does("partitions_for_topic", self.topic))

    def assign(self, partitions: Iterable[int]) -> None:
        self.does("assign", [self.tp(p) for p in partitions])


class Aiokafka(KafkaPython):
    """``holdfast.aiokafka``, on a loop of its own; its names are those of kafka-python."""

    name = "aiokafka"
    kinds = (aiokafka.AIOKafkaConsumer, holdfast.aiokafka.AIOKafkaConsumer)
    listener_kind = aiokafka.ConsumerRebalanceListener

    def made(self, config: dict[str, Any]) -> Any:
        self.loop = asyncio.new_event_loop()
        self._runs = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._runs.start()
        words = self.words(config)
        if (ca := words.pop("ssl_cafile", None)) is not None:
            words["ssl_context"] = ssl.create_default_context(cafile=ca)
        try:
            return self.done(self._started({"retry_backoff_ms": 50, **words}))
        except BaseException:
            self._end_loop()
            raise

    def tokens(self, provide: Callable[[], tuple[str, float]]) -> Any:
        class Tokens(AiokafkaTokens):
            async def token(self) -> str:
                return provide()[0]

        return Tokens()

    async def _started(self, words: dict[str, Any]) -> Any:
        consumer = self.kind(**words)
        await consumer.start()
        return consumer

    def done(self, work: Any) -> Any:
        """Have the loop do it, and wait."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_SECONDS)

    def does(self, call: str, *arguments: Any, **named: Any) -> Any:
        async def called() -> Any:
            answer = getattr(self.consumer, call)(*arguments, **named)
            return await answer if inspect.isawaitable(answer) else answer

        return self.done(called())

    def listener(self, recorder: EventRecorder) -> Any:
        """Its methods are coroutines: what they do goes on another thread."""
        listener = super().listener(recorder)
        for call in ("assigned", "revoked", "lost"):
            name = f"on_partitions_{call}"
            if (method := getattr(listener, name, None)) is not None:
                setattr(listener, name, partial(asyncio.to_thread, method))
        return listener

    def take(self, timeout_s: float, n: int) -> list[tuple[str, Place]]:
        return _listed(self.does("getmany", timeout_ms=int(1000 * timeout_s), max_records=n))

    def tp(self, partition: int) -> Any:
        return aiokafka.TopicPartition(self.topic, partition)

    def offset(self, at: int) -> Any:
        return at

    def close(self, **said: Any) -> None:
        try:
            self.does("stop", **said)
            self.done(self._last())
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._runs.join(60)
        self.loop.close()

    async def _last(self) -> None:
        """End what a call after ``stop`` has begun: aiokafka's client connects for whoever asks."""
        begun = asyncio.all_tasks() - {asyncio.current_task()}
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        await self.consumer._client.close()


def _listed(found: Mapping[Any, list[Any]]) -> list[tuple[str, Place]]:
    return [(r.topic, (r.partition, r.offset)) for batch in found.values() for r in batch]


CLIENTS: dict[str, type[Any]] = {
    kind.name: kind for kind in (Consumer, Confluent, Aiokafka, KafkaPython)
}
