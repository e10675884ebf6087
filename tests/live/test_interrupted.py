"""Members that a signal handler or a cancelled task interrupts, on a real broker.

Every time-out here is longer than the wait of the test: a test that passes has waited for none.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress

import pytest
from tests.live.crew import Topic, fresh
from tests.live.waiting import until

from holdfast import aiokafka, confluent, kafka

pytestmark = pytest.mark.broker

LONG_MS = 600_000
SOON_S = 25  # a close that waits for a member in vain takes 30 s


@pytest.fixture(scope="module")
def topic(broker):
    return Topic(broker.bootstrap, 2, 5)


@pytest.fixture
def ring(default_signals):
    """Set an alarm whose handler raises."""

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda after_s: signal.setitimer(signal.ITIMER_REAL, after_s)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def confluents(broker, group):
    return confluent.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 300_000,
            "holdfast.drain.timeout.ms": LONG_MS,
            "max.poll.interval.ms": LONG_MS,
        }
    )


def all_read(broker, group, topic):
    """Another member gets everything, without waiting for a session to end."""
    with confluents(broker, group) as other:
        other.subscribe([topic.name])
        until(lambda: other.poll(0.1) is None and len(other.assignment()) == 2, "all of it")


@pytest.mark.parametrize("after_s", [0.0002, 0.002, 0.01, 0.05])
def test_ctrl_c_just_after_an_assignment_of_confluent(broker, topic, ring, after_s):
    group = fresh("ring")
    consumer = confluents(broker, group)
    consumer.subscribe([topic.name], on_assign=lambda *_: ring(after_s))
    with suppress(KeyboardInterrupt):
        while True:
            consumer.poll(1)
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < SOON_S
    all_read(broker, group, topic)


@pytest.mark.parametrize("after_s", [0.002, 0.05])
def test_ctrl_c_in_a_close_of_kafka(broker, topic, ring, after_s):
    group = fresh("ring")
    consumer = kafka.KafkaConsumer(
        topic.name,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        session_timeout_ms=300_000,
        max_poll_interval_ms=LONG_MS,
        holdfast_drain_timeout_ms=LONG_MS,
    )
    until(lambda: consumer.poll(100) is not None and consumer.assignment(), "its partitions")
    with suppress(KeyboardInterrupt):
        ring(after_s)
        consumer.close()
        ring(0)
    consumer.close()
    all_read(broker, group, topic)


def of_aiokafka(broker, group, topic):
    return aiokafka.AIOKafkaConsumer(
        topic.name,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=LONG_MS,
        max_poll_interval_ms=LONG_MS,
        auto_offset_reset="earliest",
    )


async def ends(consumer):
    """Until the member has left, and is closed."""
    coordinator = consumer._coordinator
    async with asyncio.timeout(120):
        while coordinator.session is not None:
            await asyncio.sleep(0.05)


async def cancelled_stop(consumer):
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stopping.cancel()
    with suppress(asyncio.CancelledError):
        await stopping
    await ends(consumer)
    await consumer._fetcher.close()
    await consumer._client.close()


async def stop_after_all_tasks_were_cancelled(consumer):
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await consumer.stop()
    await ends(consumer)


@pytest.mark.parametrize("end", [cancelled_stop, stop_after_all_tasks_were_cancelled])
def test_a_member_of_aiokafka_leaves_whatever_is_cancelled(broker, topic, end):
    group = fresh("cancelled")

    async def use():
        consumer = of_aiokafka(broker, group, topic)
        await consumer.start()
        await consumer.getone()
        await end(consumer)

    asyncio.run(use())
    all_read(broker, group, topic)
