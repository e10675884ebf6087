"""A close by another thread, a signal handler, or a callback of a commit: one rule.

A waiting call returns soon, whoever closes, and the member leaves in order. Each session lasts
30 s: a member that takes over sooner has not waited for its end. See :mod:`tests.live.all_clients`.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import pytest
from kafka import AsyncConsumerRebalanceListener
from tests.live.all_clients import ALL, MANUAL, Stage, sentence
from tests.live.calls import CALLS, LONG_S, waits
from tests.live.crew import Topic, fresh
from tests.live.event_recorder import EventRecorder
from tests.live.waiting import until
from tests.suites import further

from holdfast import confluent

pytestmark = pytest.mark.broker
SOON_S = 20


def is_free(stage: Stage, topic: Any) -> None:
    """Nobody is in the group: a new member owns everything soon."""
    began = time.monotonic()
    stage.share(topic, stage.member(topic))
    assert time.monotonic() - began < SOON_S


class Waiting(threading.Thread):
    """A call on a thread of its own; ``answer`` is what it has returned or raised."""

    def __init__(self, call: Any):
        super().__init__(daemon=True)
        self._call, self.answer = call, "still waits"
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._call()
        except BaseException as error:
            self.answer = error


@sentence()
def test_a_close_on_another_thread_ends_every_call_that_waits(stage):
    topic = stage.topic(1)
    for name in waits(stage.alone(topic)):
        member = stage.owner(topic)
        waiting = Waiting(waits(member)[name])
        time.sleep(0.3)
        began = time.monotonic()
        member.close()
        assert time.monotonic() - began < SOON_S, name
        waiting.join(SOON_S)
        ended = waiting.answer
        is_closed = isinstance(ended, Exception) and "losed" in f"{type(ended)}{ended}"
        is_stopped = type(ended).__name__ in ("ConsumerStoppedError", "IllegalStateError")
        assert is_closed or is_stopped or not ended, (name, ended)
    is_free(stage, topic)


def test_a_close_on_another_thread_ends_a_poll_of_partitions_that_were_chosen(broker):
    with Stage(broker.bootstrap, "confluent") as stage:
        member = stage.alone(stage.topic(1))
        member.assign([0])
        waiting = Waiting(lambda: member.consumer.poll(-1))
        time.sleep(0.3)
        member.close()
        waiting.join(SOON_S)
        assert waiting.answer is None


@sentence(client_names=("consumer", "confluent", "kafka"))
def test_a_close_on_another_thread_waits_for_a_callback_and_what_the_other_holds_is_read_again(
    stage,
):
    topic, recorder = stage.topic(2, 5), EventRecorder()
    member = stage.owner(topic, recorder, auto_commit_interval_ms=600_000)
    stage.until(lambda: len(member.records) >= 10, "all records", member)
    in_callback, may_return = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        in_callback.set()
        may_return.wait(SOON_S)

    recorder.inside["revoked"] = recorder.inside["assigned"] = hold
    other = stage.member(topic)
    polls = Waiting(lambda: stage.until(in_callback.is_set, "a callback", member))
    until(lambda: other.poll(0.05) is not None and in_callback.is_set(), "a callback")
    closing = Waiting(member.consumer.close)
    time.sleep(0.3)
    assert closing.answer == "still waits"
    may_return.set()
    for one in (closing, polls):
        one.join(SOON_S)
    assert closing.answer is None
    stage.until(lambda: other.owns() == {0, 1}, "the other member owns all", other)


@sentence(client_names=("consumer", "confluent", "kafka"))
def test_a_callback_closes_what_another_thread_closes_already(stage):
    """The other thread waits for the call of the callback, and the callback not for the thread."""
    topic, recorder, seconds = stage.topic(1), EventRecorder(), []
    member = stage.alone(topic)

    def close_twice(_: Any) -> None:
        began = time.monotonic()
        closing.start()
        time.sleep(0.3)
        member.consumer.close()
        seconds.append(time.monotonic() - began)

    closing = threading.Thread(target=member.consumer.close, daemon=True)
    recorder.inside["assigned"] = close_twice
    member.subscribe([topic.name], recorder)
    stage.until(lambda: bool(seconds), "the callback", member)
    closing.join(SOON_S)
    assert not closing.is_alive()
    assert seconds[0] < SOON_S
    is_free(stage, topic)


def asks_for_a_commit(stage: Stage, member: Any, hear: Any) -> None:
    """Commit without waiting; the callback comes in a later call."""
    if stage.client == "confluent":
        member.consumer.commit(asynchronous=True)
    elif stage.client == "consumer":
        member.consumer.commit_async(on_commit=hear)
    else:
        member.consumer.commit_async(callback=hear)


@sentence(client_names=("consumer", "confluent", "kafka"))
def test_a_callback_of_a_commit_makes_every_call_and_closes(stage):
    topic, slow, done = stage.topic(1, 5), {}, []

    def hear(*_: Any) -> None:
        if done:
            return
        calls = CALLS[stage.client](member)
        for name in [name for name in calls if not name.startswith(("assign", "unassign"))]:
            began = time.monotonic()
            try:
                calls[name]()
            except Exception as error:
                slow[name] = error
            if time.monotonic() - began > SOON_S:
                slow[name] = "it waits for its callback"
        began = time.monotonic()
        member.consumer.close()
        done.append(time.monotonic() - began)

    keys = {"on_commit": hear} if stage.client == "confluent" else {}
    member = stage.alone(topic, **MANUAL, **keys)
    member.subscribe([topic.name])
    stage.read(member, 5)
    asks_for_a_commit(stage, member, hear)
    stage.until(lambda: bool(done), "the callback of the commit", member)
    assert done[0] < SOON_S
    assert "it waits for its callback" not in slow.values(), slow
    is_free(stage, topic)


@pytest.mark.parametrize("name", further(["stats_cb", "error_cb"]))
def test_a_callback_of_librdkafka_closes_and_polls(broker, name):
    """The original dies of it by a segmentation fault."""
    seconds = []

    def close(*_: Any) -> None:
        if seconds:
            return
        began = time.monotonic()
        member.consumer.poll(-1)
        member.consumer.consume(1, -1)
        member.consumer.close()
        seconds.append(time.monotonic() - began)

    nowhere = {"bootstrap_servers": "127.0.0.1:1"} if name == "error_cb" else {}
    with Stage(broker.bootstrap, "confluent") as stage:
        topic = stage.topic(1)
        member = stage.member(topic, **{name: close, "statistics_interval_ms": 100, **nowhere})
        stage.until(lambda: bool(seconds), name, member)
        assert seconds[0] < SOON_S
        is_free(stage, topic)


def test_a_coroutine_of_kafka_python_closes_on_its_thread(broker):
    seconds = []

    class Listener(AsyncConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Any) -> None:
            began = time.monotonic()
            assert member.consumer.poll(1000 * LONG_S) == {}
            member.consumer.unsubscribe()
            member.consumer.close()
            seconds.append(time.monotonic() - began)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            pass

    with Stage(broker.bootstrap, "kafka") as stage:
        topic = stage.topic(1)
        member = stage.alone(topic)
        member.consumer.subscribe([topic.name], listener=Listener())
        stage.until(lambda: bool(seconds), "the callback", member)
        assert seconds[0] < SOON_S
        is_free(stage, topic)


@pytest.fixture
def ring(default_signals):
    """Have a signal's handler call something, a moment from now, again and again until it does."""
    before = signal.getsignal(signal.SIGALRM)

    def set_alarm(after_s: float, call: Any) -> None:
        signal.signal(signal.SIGALRM, lambda *_: call())
        signal.setitimer(signal.ITIMER_REAL, after_s)

    yield set_alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("client", further([name for name in ALL if name != "aiokafka"]))
@pytest.mark.parametrize("place", further(["a call that waits", "a callback"]))
def test_a_handler_closes(broker, ring, client, place):
    with Stage(broker.bootstrap, client) as stage:
        topic, recorder = stage.topic(1), EventRecorder()
        member = stage.alone(topic)
        if place == "a callback":
            recorder.inside["assigned"] = lambda _: (
                ring(0.2, member.consumer.close) or time.sleep(0.5)
            )
            member.subscribe([topic.name], recorder)
        else:
            member.subscribe([topic.name])
            stage.share(topic, member)
            ring(0.3, member.consumer.close)
        began = time.monotonic()
        for call in waits(member).values():
            try:
                assert not call()
            except Exception as error:
                assert "losed" in f"{type(error)}{error}", error
        assert time.monotonic() - began < SOON_S
        is_free(stage, topic)


needs_pool = pytest.mark.skipif(not hasattr(confluent, "AIOConsumer"), reason="before 2.13")


@needs_pool
@pytest.mark.parametrize("how", further(["close", "unsubscribe", "poll", "commit"]))
@pytest.mark.parametrize("word", further(["on_assign", "on_revoke"]))
def test_a_callback_of_the_asyncio_consumer_of_confluent(broker, how, word):
    seconds = []

    async def use() -> None:
        config = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": fresh("group"),
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 300,
            "enable.auto.commit": False,
        }
        topic = Topic(broker.bootstrap, 2, 5)
        one, other = confluent.AIOConsumer(config), confluent.AIOConsumer(config)
        arguments = {"poll": [-1]}.get(how, [])

        async def hear(consumer: Any, partitions: Any) -> None:
            began = time.monotonic()
            if not seconds:
                try:
                    await getattr(consumer, how)(*arguments)
                except confluent.KafkaException:
                    assert how == "commit"
                seconds.append(time.monotonic() - began)

        await one.subscribe([topic.name], **{word: hear})
        async with asyncio.timeout(120):
            while word == "on_revoke" and len(await one.assignment()) < 2:
                await one.poll(0.1)
            await other.subscribe([topic.name])
            while not seconds:
                await one.poll(0.1)
                await other.poll(0.1)
            while how == "unsubscribe" and one._consumer._holdfast.session is not None:
                await one.poll(0.1)
            if how != "close":
                await one.close()
            while len(await other.assignment()) < 2:
                await other.poll(0.1)
            await other.close()

    began = time.monotonic()
    asyncio.run(use())
    assert seconds[0] < SOON_S
    assert time.monotonic() - began < 2 * SOON_S
