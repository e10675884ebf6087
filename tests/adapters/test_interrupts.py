"""What a signal's handler raises, anywhere in a call: the member hears of what it waits for."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from contextlib import suppress

import aiokafka.consumer.consumer
import kafka
import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.structs import PartitionMetadata
from confluent_kafka import TopicPartition
from kafka.errors import IllegalStateError
from kafka.structs import OffsetAndMetadata
from tests.adapters.interrupts import TOPIC, Group, Interrupt, in_time
from tests.suites import further

import holdfast
import holdfast.aiokafka
import holdfast.confluent
import holdfast.kafka
from holdfast.cluster.refused import mend_connects
from holdfast.errors import AdapterError
from holdfast.members import worker
from holdfast.members.drop_in.confluent import group_calls, hands
from holdfast.members.drop_in.kafka import coordinator
from holdfast.members.member import parts
from holdfast.members.seat import membership

NOWHERE = "127.0.0.1:1"
LONG_S = 600  # whoever waits for a time-out waits for longer than this test
SOON_S = 60  # however slow the machine is
LEAST_PLACES = 80
CONFIG = {
    "bootstrap.servers": NOWHERE,
    "group.id": "etl",
    "heartbeat.interval.ms": 20,
    "holdfast.drain.timeout.ms": LONG_S * 1000,
    "max.poll.interval.ms": LONG_S * 1000,
}


class Notes:
    """What a listener hears."""

    def __init__(self, calls):
        self._calls = calls

    def on_partitions_assigned(self, found):
        self._calls.append(("assign", sorted(p.partition for p in found)))

    def on_partitions_revoked(self, found):
        self._calls.append(("revoke", sorted(p.partition for p in found)))


class KafkaNotes(Notes, kafka.ConsumerRebalanceListener):
    """The same for kafka-python."""


class AiokafkaNotes(Notes, aiokafka.ConsumerRebalanceListener):
    """The same for aiokafka."""


class Confluent:
    """``holdfast.confluent``."""

    hears_the_end = True  # of what it closes with

    def __init__(self):
        self.calls = []
        self.consumer = holdfast.confluent.Consumer(
            {**CONFIG, "partition.assignment.strategy": "cooperative-sticky", "log_level": 0}
        )

    def subscribe(self):
        def note(word):
            return lambda _, found: self.calls.append((word, sorted(p.partition for p in found)))

        words = {f"on_{word}": note(word) for word in ("assign", "revoke", "lost")}
        self.consumer.subscribe([TOPIC], **words)

    def poll(self):
        self.consumer.poll(0.01)
        self.consumer.consume(1, 0.01)

    def owned(self):
        return {p.partition for p in self.consumer.assignment()}

    def commit(self, partition):
        at = TopicPartition(TOPIC, partition, 0)
        self.consumer.commit(offsets=[at], asynchronous=False)

    def close(self):
        self.consumer.close()

    def end(self):
        """Let go what an interrupted program would take with it."""


class Kafka(Confluent):
    """``holdfast.kafka``."""

    def __init__(self):
        self.calls = []
        self.consumer = holdfast.kafka.KafkaConsumer(
            bootstrap_servers=NOWHERE,
            api_version=(2, 6),
            group_id="etl",
            heartbeat_interval_ms=20,
            max_poll_interval_ms=LONG_S * 1000,
            holdfast_drain_timeout_ms=LONG_S * 1000,
            partition_assignment_strategy=["cooperative-sticky"],
        )

    def subscribe(self):
        self.consumer.subscribe([TOPIC], listener=KafkaNotes(self.calls))

    def poll(self):
        self.consumer.poll(10)

    def commit(self, partition):
        at = kafka.TopicPartition(TOPIC, partition)
        self.consumer.commit({at: OffsetAndMetadata(0, "", -1)})


class Own(Confluent):
    """``holdfast.Consumer``."""

    def __init__(self):
        self.calls = []
        self.consumer = holdfast.Consumer(CONFIG)

    def subscribe(self):
        self.consumer.subscribe([TOPIC], Notes(self.calls))

    def poll(self):
        self.consumer.poll(0.01)

    def commit(self, partition):
        self.consumer.commit()


class Aiokafka(Confluent):
    """``holdfast.aiokafka``, on a loop of its own that an interruption leaves."""

    hears_the_end = False

    def __init__(self):
        self.calls = []
        self._loop = asyncio.new_event_loop()
        self.consumer = self._run(self._made())

    async def _made(self):
        return holdfast.aiokafka.AIOKafkaConsumer(
            bootstrap_servers=NOWHERE,
            group_id="etl",
            heartbeat_interval_ms=20,
            rebalance_timeout_ms=LONG_S * 1000,
            partition_assignment_strategy=["cooperative-sticky"],
        )

    def _run(self, work):
        task = self._loop.create_task(work)
        while True:
            try:
                return self._loop.run_until_complete(task)
            except RuntimeError:  # the end of what ran before the interruption stops this run
                if task.done():
                    raise

    def subscribe(self):
        self.consumer.subscribe([TOPIC], listener=AiokafkaNotes(self.calls))
        self._run(self.consumer.start())

    def poll(self):
        self._run(self.consumer.getmany(timeout_ms=10))

    def commit(self, partition):
        self._run(self.consumer.commit({aiokafka.TopicPartition(TOPIC, partition): 0}))

    def close(self):
        if not self._loop.is_closed():
            self._run(self.consumer.stop())

    def end(self):
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._run(asyncio.sleep(0))
        self._run(self._loop.shutdown_default_executor())
        self._loop.close()


class NoBroker:
    """Stands for aiokafka's client, where no partition has a leader."""

    def __init__(self, *, loop, **_):
        self._loop = loop
        self.cluster = ClusterMetadata()
        self.cluster._partitions = {
            TOPIC: {n: PartitionMetadata(TOPIC, n, -1, [], [], None) for n in (0, 1)}
        }
        self._metadata_max_age_ms = 1_000

    async def bootstrap(self):
        pass

    async def close(self):
        pass

    def set_topics(self, topics):
        return self.force_metadata_update()

    add_topic = set_topics

    def force_metadata_update(self):
        return asyncio.ensure_future(asyncio.sleep(0.02), loop=self._loop)

    async def _wait_on_metadata(self, topic):
        return self.cluster

    async def _maybe_wait_metadata(self):
        pass


class OwnWorker(Confluent):
    """``holdfast.Worker``."""

    def __init__(self):
        self.calls = []
        outer = self

        class Notes:
            def on_assigned(self, found):
                outer.calls.append(("assign", sorted(r.number for r in found)))

            def on_revoked(self, found):
                outer.calls.append(("revoke", sorted(r.number for r in found)))

        config = {k: v for k, v in CONFIG.items() if k != "max.poll.interval.ms"}
        self.consumer = holdfast.Worker(config, {TOPIC: 2}, Notes())

    def subscribe(self):
        self.consumer.start()

    def poll(self):
        self.consumer.run(0.01)

    def owned(self):
        return {r.number for r in self.consumer.owned}

    def commit(self, partition):
        pass


CLIENTS = [Confluent, Kafka, Own, OwnWorker]
EVERY = [48, pytest.param(1, marks=pytest.mark.slow)]
"""Every so many places: daily, and in the long run."""


def set_up(monkeypatch, made):
    """Have every client be a member of this group."""
    for module in (parts, worker):
        monkeypatch.setattr(module, "GroupLink", made.link)
    for module in (membership, worker, group_calls, coordinator):
        monkeypatch.setattr(module, "Connections", made.connections)
    monkeypatch.setattr(parts, "Lookup", made.lookup)
    monkeypatch.setattr(group_calls, "LEAVE_S", float(LONG_S))
    monkeypatch.setattr(hands, "_ASKED_S", 0.001)
    monkeypatch.setattr(aiokafka.consumer.consumer, "AIOKafkaClient", NoBroker)


def use(client, group):
    """What an application does, to the end; after an interruption it begins again."""
    client.subscribe()
    wait(client, lambda: client.owned() == ({0} if group.is_crowded else {0, 1}))
    client.commit(0)
    if not group.is_crowded:
        group.crowd()
    wait(client, lambda: client.owned() == {0})
    client.close()


def wait(client, condition):
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, f"waits in vain: {client.owned()} {client.calls}"
        client.poll()


def check_end(client, group):
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < SOON_S, "the close has waited for a time-out"
    assert group.joined <= group.left, "the group was not told"
    assert in_time(client.close, SOON_S), "somebody holds a lock"
    held = set()
    for word, partitions in client.calls:
        if word == "assign":
            assert held.isdisjoint(partitions), f"assigned twice: {client.calls}"
        held = held | set(partitions) if word == "assign" else held - set(partitions)
    assert not held or not client.hears_the_end, f"not revoked: {client.calls}"


def places(kind, group):
    """Where a handler may raise while an application does everything."""
    client = kind()
    with Interrupt() as noted:
        use(client, group)
    check_end(client, group)
    client.end()
    return list(noted.places)


def interrupted(kind, group, at, *, goes_on):
    gc.collect()  # finalisers of others, in which an exception would be ignored
    client = kind()
    raised = None
    try:
        with Interrupt(at):
            use(client, group)
    except KeyboardInterrupt as error:
        raised = error  # it keeps every frame
        if goes_on:
            with suppress(RuntimeError, AdapterError, IllegalStateError):  # closed by then
                use(client, group)
    check_end(client, group)
    client.end()
    return raised


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("goes_on", further([False, True]), ids=["closes", "goes on"])
@pytest.mark.parametrize("kind", CLIENTS)
def test_wherever_a_call_is_interrupted_nobody_waits_for_a_time_out(kind, goes_on, every, caplog):
    """The close returns at once, the group is told, no lock is held, no partition is forgotten."""
    interrupt_everywhere(kind, every, caplog, goes_on=goes_on)


# A coroutine that was made just before the interruption is never run.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", EVERY)
def test_wherever_the_loop_of_aiokafka_is_interrupted_its_consumer_stops_at_once(every, caplog):
    """The task that was interrupted is gone, so a program can do nothing more but stop."""
    interrupt_everywhere(Aiokafka, every, caplog, goes_on=False)


def interrupt_everywhere(kind, every, caplog, *, goes_on):
    mend_connects()  # kafka-python's own leaves those open that are refused
    caplog.set_level(logging.CRITICAL)
    in_a_group(kind, places)  # what is done once in a process
    found = in_a_group(kind, places)
    assert len(found) > LEAST_PLACES
    n_raised = 0
    for at in found[::every]:
        try:
            n_raised += in_a_group(kind, interrupted, at, goes_on=goes_on) is not None
        except BaseException as error:
            error.add_note(f"interrupted at {at}")
            raise
    # Some places are reached only if the member's thread is slow just then.
    assert n_raised > len(found[::every]) / 3


def in_a_group(kind, work, *arguments, **named):
    with pytest.MonkeyPatch.context() as patch:
        set_up(patch, group := Group({TOPIC: 2}))
        return work(kind, group, *arguments, **named)


@pytest.mark.parametrize("stops", [False, True])
def test_a_close_that_is_interrupted_while_kafka_pythons_loop_ends_may_be_called_again(
    stops, monkeypatch
):
    """The client notes at first that its loop is closed, and only then ends the loop's thread."""
    mend_connects()
    set_up(monkeypatch, Group({TOPIC: 2}))
    client = Kafka()
    client.subscribe()
    loop = client.consumer._net
    stop, thread = loop.stop, loop._io_thread

    def interrupt():
        if stops:
            stop()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "stop", interrupt)
        client.close()
    client.close()
    assert not thread.is_alive()
