"""Every consumer of the chaos suite, with the same few calls.

**Rules.** A client gets the configuration of ``holdfast.Consumer``, in its own spelling. ``poll``
returns (partition, offset) of delivered records, ``rest`` is the application's work, during which
an event loop keeps running. An error that ends the membership for good is a :class:`RefusedError`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

Positions = list[tuple[int, int]]


class RefusedError(Exception):
    """The group refused this member for good."""


def answers(**questions: Callable[[], object]) -> dict[str, str]:
    """What a client answers, as text; an error is an answer, too."""
    found = {}
    for name, ask in questions.items():
        try:
            found[name] = str(ask())
        except Exception as error:  # the run is lost already, and this is why it is asked
            found[name] = repr(error)
    return found


class Ours:
    """``holdfast.Consumer``."""

    def __init__(self, config, topic, event_log):
        from holdfast import Consumer

        self._consumer = Consumer(config)
        self._consumer.subscribe([topic], listener=event_log)
        self.rest, self.close = time.sleep, self._consumer.close

    def poll(self) -> Positions:
        from holdfast.errors import RemoteProtocolError

        try:
            return [(m.partition(), m.offset()) for m in self._consumer.poll(0.1)]
        except RemoteProtocolError as error:
            raise RefusedError(str(error)) from error

    def stands(self) -> dict[str, str]:
        asked = self._consumer
        held = asked.assignment()
        return answers(
            member=asked.metrics,
            position=lambda: {tp: asked.position(tp) for tp in held},
            committed=lambda: asked.committed(held),
            paused=asked.paused,
        )


class OfConfluent:
    """``holdfast.confluent.Consumer``."""

    def __init__(self, config, topic, event_log):
        from holdfast.confluent import Consumer

        config = dict(config)
        config["socket.timeout.ms"] = config.pop("request.timeout.ms")
        self._consumer = Consumer({**config, "log_level": 0})
        self._errors: deque[str] = deque(maxlen=10)
        self._consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: event_log.on_partitions_assigned(partitions),
            on_revoke=lambda _, partitions: event_log.on_partitions_revoked(partitions),
            on_lost=lambda _, partitions: event_log.on_partitions_lost(partitions),
        )
        self.rest, self.close = time.sleep, self._consumer.close

    def poll(self) -> Positions:
        found = []
        for message in self._consumer.consume(500, 0.1):
            error = message.error()
            if error is None:
                found.append((message.partition(), message.offset()))
            elif error.fatal():
                raise RefusedError(error.str())
            else:  # it says what is wrong for now, as with the original: no broker, a late poll
                self._errors.append(f"{time.time():.1f} {error.str()}")
        return found

    def stands(self) -> dict[str, str]:
        asked = self._consumer
        held = asked.assignment()

        def ends():
            return {str(tp): asked.get_watermark_offsets(tp, cached=True) for tp in held}

        return answers(
            assignment=lambda: held,
            position=lambda: asked.position(held),
            watermarks=ends,
            committed=lambda: asked.committed(held, 5),
            errors=lambda: list(self._errors),
        )


def keywords(config):
    """Kafka's keys as the keywords of aiokafka and of kafka-python."""
    return {key.replace(".", "_"): value for key, value in config.items()}


class OfKafkaPython:
    """``holdfast.kafka.KafkaConsumer``."""

    def __init__(self, config, topic, event_log):
        from kafka import ConsumerRebalanceListener

        from holdfast.kafka import KafkaConsumer

        class Listener(type(event_log), ConsumerRebalanceListener):
            def __init__(self):
                vars(self).update(vars(event_log))

        self._consumer = KafkaConsumer(**keywords(config))
        self._consumer.subscribe([topic], listener=Listener())
        self.rest, self.close = time.sleep, self._consumer.close

    def poll(self) -> Positions:
        from kafka.errors import FencedInstanceIdError

        try:
            found = self._consumer.poll(100)
        except FencedInstanceIdError as error:
            raise RefusedError(f"group.instance.id: {error}") from error
        return [(r.partition, r.offset) for batch in found.values() for r in batch]

    def stands(self) -> dict[str, str]:
        asked = self._consumer
        held = asked.assignment()
        return answers(
            position=lambda: {tp: asked.position(tp, timeout_ms=1000) for tp in held},
            highwater=lambda: {tp: asked.highwater(tp) for tp in held},
            committed=lambda: {tp: asked.committed(tp, timeout_ms=5000) for tp in held},
            paused=asked.paused,
        )


class OfAiokafka:
    """``holdfast.aiokafka.AIOKafkaConsumer`` on a loop that goes on while the application works."""

    def __init__(self, config, topic, event_log):
        self._loop = asyncio.new_event_loop()
        self._event_log = event_log
        self._consumer = None
        self._run(self._open(config, topic, event_log))

    async def _open(self, config, topic, event_log) -> None:
        from aiokafka import ConsumerRebalanceListener

        from holdfast.aiokafka import AIOKafkaConsumer

        class Listener(type(event_log), ConsumerRebalanceListener):
            def __init__(self):
                vars(self).update(vars(event_log))

        # By default aiokafka allows a hand-over a session, and slow callbacks last longer.
        whole = {"rebalance_timeout_ms": config["max.poll.interval.ms"]}
        self._consumer = AIOKafkaConsumer(**keywords(config), **whole)
        await self._consumer.start()
        self._consumer.subscribe([topic], listener=Listener())

    def _run(self, work):
        return self._loop.run_until_complete(work)

    def rest(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    def poll(self) -> Positions:
        from aiokafka.errors import KafkaError

        try:
            found = self._run(self._consumer.getmany(timeout_ms=100))
        except KafkaError as error:
            if "group.instance.id" not in str(error):  # aiokafka has no class for that code
                raise
            raise RefusedError(str(error)) from error
        return [(r.partition, r.offset) for batch in found.values() for r in batch]

    def stands(self) -> dict[str, str]:
        asked = self._consumer
        held = asked.assignment()

        def wait(question):
            return self._run(asyncio.wait_for(question, 5))

        return answers(
            position=lambda: {tp: wait(asked.position(tp)) for tp in held},
            highwater=lambda: {tp: asked.highwater(tp) for tp in held},
            committed=lambda: {tp: wait(asked.committed(tp)) for tp in held},
            paused=asked.paused,
            tasks=lambda: [
                [str(task), *map(str, task.get_stack())] for task in asyncio.all_tasks(self._loop)
            ],
        )

    def close(self) -> None:
        # stop() calls no listener: from here on nothing of these is handed out.
        self._event_log.write(
            ("dropped", sorted(tp.partition for tp in self._consumer.assignment()))
        )
        self._run(self._consumer.stop())
        self._loop.close()


CLIENTS: dict[str, Callable] = {
    "holdfast": Ours,
    "confluent": OfConfluent,
    "aiokafka": OfAiokafka,
    "kafka": OfKafkaPython,
}


def sign_commits(name: str, note) -> None:
    """Put the name into every commit of this process; ``note`` is told of what was acknowledged.

    ``note`` takes a dict of partition to offset, and runs before anybody else hears of it.
    """
    from holdfast.members.runtime import coordinator_client

    build, commit = coordinator_client._commit_topics, coordinator_client.CoordinatorClient.commit

    def signed(kind, offsets):
        topics = build(kind, offsets)
        for topic in topics:
            for partition in topic.partitions:
                partition.committed_metadata = name
        return topics

    def noted(self, offsets, who):
        future = commit(self, offsets, who)

        def answered(done):
            if not done.cancelled() and done.exception() is None and done.result() == 0:
                note({p: at.offset for (_, p), at in offsets.items()})

        future.add_done_callback(answered)
        return future

    coordinator_client._commit_topics, coordinator_client.CoordinatorClient.commit = signed, noted


def note_drops(note) -> None:
    """Tell ``note`` of every loss, on the member's thread, once nothing more is handed out of it.

    ``note`` takes the partitions. ``on_partitions_lost`` runs later, in the application's poll.
    """
    from holdfast.members.runtime.member_thread import MemberThread

    start = MemberThread.start

    def noting(self, coordinator_client):
        drop = self._rebalance_handler.drop

        def dropped(resources, lost):
            drop(resources, lost)
            note(sorted(partition for _, partition in resources))

        self._rebalance_handler.drop = dropped
        start(self, coordinator_client)

    MemberThread.start = noting
