"""Consumers on threads, each with an event recorder, and checks of the recordings."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Self

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.live.event_recorder import held_after
from tests.live.waiting import PATIENCE_SECONDS, until

from holdfast import Consumer
from holdfast.core.machine import actions

QUICK = {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 500,
    "auto.commit.interval.ms": 300,
}


def fresh(prefix: str) -> str:
    """A name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@cache
def admin_of(bootstrap: str) -> AdminClient:
    """One admin client for the questions to a cluster."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def group_of(bootstrap: str, group: str) -> Any:
    """The description of a group by its coordinator."""
    return admin_of(bootstrap).describe_consumer_groups([group])[group].result(60)


def commit_alone(
    bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int], metadata: str = ""
) -> None:
    """Commit as a group without members does; a coordinator that loads is asked again."""
    lone = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
    )
    wanted = [TopicPartition(*tp, at, metadata) for tp, at in offsets.items()]

    def is_done() -> bool:
        try:
            return bool(lone.commit(offsets=wanted, asynchronous=False))
        except KafkaException:
            return False

    until(is_done, f"{group} has committed")
    lone.close()


def transaction(bootstrap: str, **config: object) -> confluent_kafka.Producer:
    """A producer whose transaction has begun."""
    own = {"transactional.id": fresh("transaction"), **config}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0, **own})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


def commit_in(
    producer: confluent_kafka.Producer, bootstrap: str, group: str, topic: str, offset: int
) -> None:
    """Send the offset of partition 0 of a group without members to a transaction."""
    lone = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
    )
    at = [TopicPartition(topic, 0, offset)]
    producer.send_offsets_to_transaction(at, lone.consumer_group_metadata(), 60)
    lone.close()


class Topic:
    def __init__(
        self,
        bootstrap: str,
        n_partitions: int,
        n_each: int = 0,
        *,
        name: str = "",
        n_copies: int = -1,
        placed: list[list[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ):
        """Create it; without a number of copies it has as many as the cluster's topics have.

        ``placed`` has the nodes of each partition.
        """
        self.name = name or fresh("topic")
        self.n_partitions = n_partitions
        client = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = admin_of(bootstrap)
        # A batch that is sent again counts once.
        self._client = {**client, "enable.idempotence": True}
        self._producer = confluent_kafka.Producer(self._client)
        self.sent: Counter[int] = Counter()
        own = {"min.insync.replicas": "2"} if n_copies > 1 else {}
        copies = {"replica_assignment": placed} if placed else {"replication_factor": n_copies}
        wanted = NewTopic(self.name, n_partitions, **copies, config={**own, **(config or {})})
        self._admin.create_topics([wanted])[self.name].result(60)
        if n_each:
            self.produce(n_each)

    def grow(self, n_partitions: int) -> None:
        wanted = NewPartitions(self.name, n_partitions)
        self._admin.create_partitions([wanted])[self.name].result(60)
        self.n_partitions = n_partitions
        self._producer = confluent_kafka.Producer(self._client)  # the old one may know the old ones

    def produce(self, n_each: int, value: bytes = b"x") -> None:
        """Write so many records to every partition."""
        self.write(dict.fromkeys(range(self.n_partitions), n_each), value)

    def write(self, counts: Mapping[int, int], value: bytes = b"x") -> None:
        """Write so many records to these partitions."""
        for partition, n in counts.items():
            for _ in range(n):
                self._producer.produce(self.name, value, partition=partition)
            self.sent[partition] += n
        left = self._producer.flush(60)
        assert left == 0, f"{left} records to {self.name} have no answer after 60 s"


class PollingThread:
    """A thread that polls a member until its end; it can be held, as by work on a batch."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.work_s = 0.0
        self._end = threading.Event()
        self._hold = threading.Event()
        self.is_held = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def poll_once(self) -> None:
        """Poll, and note what a test looks at."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the member, on its thread."""
        raise NotImplementedError

    def start(self) -> Self:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self.poll_once()
                while self._hold.is_set() and not self._end.is_set():
                    self.is_held.set()
                    time.sleep(0.02)
                self.is_held.clear()
                time.sleep(self.work_s)
        except BaseException as error:  # the test looks at it
            self.error = error
        finally:
            self.close()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def hold(self) -> None:
        """Keep the application busy with its batch until :meth:`release`."""
        self._hold.set()

    def release(self) -> None:
        self._hold.clear()

    def stop(self) -> Self:
        self._end.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the consumer did not close"
        return self


class Held:
    """Requests of one kind wait, for as long as we like; the other requests of the member go on."""

    def __init__(self, runtime: Any, kind: type[actions.Action]):
        self._perform = runtime.coordinator.perform
        self._kind = kind
        self._lock = threading.Lock()
        self._waiting: list[actions.Action] | None = []
        runtime.coordinator.perform = self._hold  # type: ignore[method-assign]
        self.n_held = 0

    def _hold(self, action: actions.Action) -> None:
        with self._lock:
            if isinstance(action, self._kind) and self._waiting is not None:
                self._waiting.append(action)
                self.n_held += 1
                return
        self._perform(action)

    def let_go(self) -> None:
        """Send what waits, and hold no more."""
        with self._lock:
            waiting, self._waiting = self._waiting or [], None
        for action in waiting:
            self._perform(action)


class ConsumerThread(PollingThread):
    """A ``holdfast.Consumer`` on a thread of its own.

    ``recorder`` holds (time, what, partitions); ``read`` every (topic, partition, offset)
    processed.
    """

    def __init__(self, bootstrap: str, group: str, topics: Any, **config: object):
        super().__init__()
        settings = {k.replace("_", "."): v for k, v in config.items()}
        self.consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, **QUICK, **settings}
        )
        self.recorder: list[tuple[float, str, list[int]]] = []
        self.read: list[tuple[str, int, int]] = []
        self.on_assigned: Callable[[list[Any]], None] | None = None
        self.has_ended = False
        self._topics = topics
        self._returns = True

    def start(self) -> Self:
        self.consumer.subscribe(self._topics, self)
        return super().start()

    def poll_once(self) -> None:
        for m in self.consumer.poll(0.1):
            self.read.append((m.topic(), m.partition(), m.offset()))

    def close(self) -> None:
        self.consumer.close(returns=self._returns)

    def _note(self, what: str, partitions: list[Any]) -> None:
        self.recorder.append((time.monotonic(), what, [p.partition for p in partitions]))

    def on_partitions_assigned(self, partitions: list[Any]) -> None:
        self._note("assigned", partitions)
        if self.on_assigned is not None:
            self.on_assigned(partitions)

    def on_partitions_revoked(self, partitions: list[Any]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: list[Any]) -> None:
        self._note("lost", partitions)

    @property
    def owns(self) -> list[int]:
        """Partitions by its callbacks."""
        return sorted(held_after((what, found) for _, what, found in list(self.recorder)))

    @property
    def offsets(self) -> list[int]:
        """Offsets of what it has read."""
        return [offset for _, _, offset in self.read]

    def stop(self, *, returns: bool = True) -> Self:
        self._returns, self.has_ended = returns, True
        return super().stop()


class ThreadGroup:
    """Consumers on threads: a group of its own on a topic of its own.

    At the end of its block all of them end, and none has failed.
    """

    def __init__(
        self,
        bootstrap: str,
        n_partitions: int,
        n_each: int = 0,
        placed: list[list[int]] | None = None,
        **config: object,
    ):
        self.topic = Topic(bootstrap, n_partitions, n_each, placed=placed)
        self.name = fresh("group")
        self.threads: list[ConsumerThread] = []
        self._bootstrap, self._config = bootstrap, config

    def consumer(self, **config: object) -> ConsumerThread:
        """One that has not joined; ``config`` has a ``_`` for each point."""
        given = {**self._config, **config}
        self.threads.append(ConsumerThread(self._bootstrap, self.name, [self.topic.name], **given))
        return self.threads[-1]

    def join(self, **config: object) -> ConsumerThread:
        return self.consumer(**config).start()

    @property
    def living(self) -> list[ConsumerThread]:
        return [thread for thread in self.threads if not thread.has_ended]

    def is_spread(self) -> bool:
        """Whether the partitions are all owned, each once, and evenly."""
        owned = [thread.owns for thread in self.living]
        loads = [len(one) for one in owned]
        everything = sorted(p for one in owned for p in one)
        return everything == [*range(self.topic.n_partitions)] and max(loads) - min(loads) <= 1

    def await_spread(self) -> None:
        until(self.is_spread, lambda: f"even shares; now {[thread.owns for thread in self.living]}")

    def await_read(self) -> None:
        until(lambda: self.account()[0] == 0, lambda: f"every record is read: {self.account()}")

    def account(self) -> tuple[int, int]:
        """Records never read, and reads beyond the first."""
        seen = Counter(place for thread in self.threads for place in thread.read)
        return self.topic.sent.total() - len(seen), seen.total() - len(seen)

    def overlaps(self) -> list[tuple[int, float]]:
        """Partitions that two threads owned at once, by their callbacks, with the moment."""
        events = sorted(
            (when, i, what, p)
            for i, thread in enumerate(self.threads)
            for when, what, partitions in thread.recorder
            for p in partitions
        )
        owner: dict[int, int] = {}
        found = []
        for when, who, what, partition in events:
            if what == "assigned":
                if owner.get(partition, who) != who:
                    found.append((partition, when))
                owner[partition] = who
            elif owner.get(partition) == who:
                del owner[partition]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for thread in self.living:
            thread.stop()
        if kind is None:
            assert {thread.error for thread in self.threads} <= {None}
