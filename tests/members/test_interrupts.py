"""A signal handler raises anywhere in a call: the member still gets every answer."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from contextlib import suppress
from typing import ClassVar

import aiokafka.consumer.consumer
import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.structs import PartitionMetadata
from kafka.errors import IllegalStateError
from tests.live import clients
from tests.live.event_recorder import EventRecorder
from tests.members.interrupts import TOPIC, Group, Interrupt, in_time
from tests.suites import further

import holdfast
from holdfast.cluster.kafka_python_repairs import mend_connects
from holdfast.errors import ClientError
from holdfast.members.clients.confluent import state
from holdfast.members.clients.kafka import coordinator
from holdfast.members.clients.librdkafka import adapter
from holdfast.members.runtime import member_runtime
from holdfast.members.session import membership

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
    "auto.commit.interval.ms": 5_000,
}
OF_CONSUMERS = ("max.poll.interval.ms", "auto.commit.interval.ms")
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


class Alone:
    """A client of the live sentences without a broker."""

    reports_on_close = True  # of what it closes with
    keys: ClassVar = {}

    def __init__(self):
        self.recorder = EventRecorder(hears_losses=isinstance(self, Confluent))
        super().__init__(TOPIC, {**CONFIG, **self.keys})

    def end(self):
        """Let go what an interrupted program would take with it."""


class Confluent(Alone, clients.Confluent):
    """``holdfast.confluent``."""

    keys: ClassVar = COOPERATIVE

    def take(self, timeout_s, n):
        self.consumer.poll(timeout_s)
        return super().take(timeout_s, n)


class Kafka(Alone, clients.KafkaPython):
    """``holdfast.kafka``."""

    keys: ClassVar = {"api.version": (2, 6), **COOPERATIVE}


class Own(Alone, clients.Consumer):
    """``holdfast.Consumer``."""


class Aiokafka(Alone, clients.Aiokafka):
    """``holdfast.aiokafka``, on a loop of this thread that an interruption leaves."""

    reports_on_close = False
    keys: ClassVar = {"rebalance.timeout.ms": LONG_S * 1000, **COOPERATIVE}
    listener = clients.KafkaPython.listener

    def made(self, config):
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda *_: None)  # nobody awaits what was interrupted
        return self.done(self._made(clients.keywords(config, is_original=False)))

    async def _made(self, words):
        return self.kind(**words)

    def done(self, work):
        task = self.loop.create_task(work)
        while True:
            try:
                return self.loop.run_until_complete(task)
            except RuntimeError:  # the end of what ran before the interruption stops this run
                if task.done():
                    raise

    def subscribe(self, topics, recorder):
        super().subscribe(topics, recorder)
        self.does("start")

    def close(self):
        if not self.loop.is_closed():
            self.does("stop")

    def end(self):
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.done(asyncio.sleep(0))
        self.done(self.loop.shutdown_default_executor())
        self.loop.close()


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


class OwnWorker(Alone):
    """``holdfast.Worker``."""

    def __init__(self):
        self.recorder = recorder = EventRecorder()

        class Notes:
            def on_assigned(self, found):
                recorder.calls.append(("assigned", sorted(r.number for r in found)))

            def on_revoked(self, found):
                recorder.calls.append(("revoked", sorted(r.number for r in found)))

        config = {k: v for k, v in CONFIG.items() if k not in OF_CONSUMERS}
        self.consumer = holdfast.Worker(config, {TOPIC: 2}, Notes())

    def subscribe(self, topics, recorder):
        self.consumer.start()

    def poll(self, timeout_s):
        self.consumer.run(timeout_s)

    def owns(self):
        return {r.number for r in self.consumer.owned}

    def commit_at(self, offsets):
        pass

    def close(self):
        self.consumer.close()


CLIENTS = [Confluent, Kafka, Own, OwnWorker]
EVERY = [48, pytest.param(1, marks=pytest.mark.slow)]
"""Every so many places: daily, and in the long run."""


def set_up(monkeypatch, made):
    """Have every client be a member of this group."""
    monkeypatch.setattr(member_runtime, "CoordinatorClient", made.coordinator)
    for module in (membership, state, coordinator):
        monkeypatch.setattr(module, "Connections", made.connections)
    monkeypatch.setattr(member_runtime, "Lookup", made.lookup)
    monkeypatch.setattr(state, "LEAVE_S", float(LONG_S))
    monkeypatch.setattr(adapter, "_REQUEST_S", 0.001)
    monkeypatch.setattr(aiokafka.consumer.consumer, "AIOKafkaClient", NoBroker)


def use(client, group):
    """What an application does, to the end; after an interruption it begins again."""
    client.subscribe([TOPIC], client.recorder)
    wait(client, lambda: client.owns() == ({0} if group.is_crowded else {0, 1}))
    client.commit_at({0: 0})
    if not group.is_crowded:
        group.crowd()
    wait(client, lambda: client.owns() == {0})
    client.close()


def wait(client, condition):
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, (
            f"waits in vain: {client.owns()} {client.recorder.calls}"
        )
        client.poll(0.01)


def check_end(client, group):
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < SOON_S, "the close has waited for a time-out"
    assert group.joined <= group.left, "the group was not told"
    assert in_time(client.close, SOON_S), "somebody holds a lock"
    held = set()
    for word, partitions in client.recorder.calls:
        if word == "assigned":
            assert held.isdisjoint(partitions), f"assigned twice: {client.recorder.calls}"
        held = held | set(partitions) if word == "assigned" else held - set(partitions)
    assert not held or not client.reports_on_close, f"not revoked: {client.recorder.calls}"


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
            with suppress(RuntimeError, ClientError, IllegalStateError):  # closed by then
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
    client.subscribe([TOPIC])
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
