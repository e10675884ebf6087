"""Awaits that are cancelled at every step of a call: nothing is lost, the next call is prompt."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from itertools import count

import pytest
from aiokafka.structs import TopicPartition as AiokafkaPartition
from confluent_kafka import KafkaException, TopicPartition
from tests.live.crew import Topic, fresh, group_of
from tests.live.waiting import until
from tests.suites import further

import holdfast.confluent
from holdfast.aiokafka import AIOKafkaConsumer

pytest.importorskip("confluent_kafka.aio")
from holdfast.confluent import AIOConsumer

pytestmark = pytest.mark.broker
N_RECORDS = 60
STEPS = 8  # of the loop, before the cancellation
WAITS_S = (0.0, 0.001, 0.004, 0.016, 0.06)
PROMPT_S = 5.0  # of a call that would take 20 s or more if it waited for the one before


@pytest.fixture(scope="module")
def topic(broker):
    return Topic(broker.bootstrap, 1, N_RECORDS)


async def cancelled(call, *, steps=0, wait_s=0.0):
    """Begin a call and cancel it, after some steps of the loop and some time; what it returned."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        await asyncio.sleep(0)
    if wait_s:
        await asyncio.sleep(wait_s)
    task.cancel()
    with suppress(asyncio.CancelledError):
        return await task
    return None


def settings(broker):
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": fresh("cancelled"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }


@asynccontextmanager
async def of_confluent(broker, topic):
    consumer = AIOConsumer(settings(broker))
    await consumer.subscribe([topic.name])
    yield consumer
    await consumer.close()


async def slowly(value, _):
    """A deserializer with several awaits."""
    for _ in range(3):
        await asyncio.sleep(0.002)
    return value.decode()


@asynccontextmanager
async def of_deserializing(broker, topic):
    made = getattr(holdfast.confluent, "AsyncDeserializingConsumer", None)
    if made is None:
        pytest.skip("confluent-kafka has it since 2.16")
    consumer = await made({**settings(broker), "value.deserializer": slowly})
    await consumer.subscribe([topic.name])
    yield consumer
    await consumer.close()


async def decoded(call, *args):
    """What a call returns, whose values are deserialized."""
    found = await call(*args)
    for message in found if isinstance(found, list) else [found]:
        assert message is None or message.value() == message.deserialized_value() == "x"
    return found


@asynccontextmanager
async def of_aiokafka(broker, topic):
    consumer = AIOKafkaConsumer(
        topic.name,
        bootstrap_servers=broker.bootstrap,
        group_id=fresh("cancelled"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    yield consumer
    await consumer.stop()


def offsets(found):
    """Offsets in what a call of either client has returned."""
    if found is None:
        return []
    if isinstance(found, dict):
        return [record.offset for batch in found.values() for record in batch]
    several = found if isinstance(found, list) else [found]
    return [m.offset if isinstance(m.offset, int) else m.offset() for m in several]


async def until_first(read):
    async with asyncio.timeout(120):
        while not (found := offsets(await read())):
            pass
    return found


async def one(consumer):
    """A record of aiokafka within a second, or None."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(consumer.getone(), 1.0)
    return None


READS = {
    "poll": (of_confluent, lambda c: c.poll(1.0)),
    "consume": (of_confluent, lambda c: c.consume(5, 0.3)),
    "deserialized poll": (of_deserializing, lambda c: decoded(c.poll, 1.0)),
    "deserialized consume": (of_deserializing, lambda c: decoded(c.consume, 5, 0.3)),
    "getone": (of_aiokafka, one),
    "getmany": (of_aiokafka, lambda c: c.getmany(timeout_ms=300, max_records=5)),
}


@pytest.mark.parametrize("name", further(READS, stays=["poll", "getone"]))
def test_every_record_comes_once_and_in_order_whatever_is_cancelled(broker, topic, name):
    opened, read = READS[name]

    async def work():
        async with opened(broker, topic) as consumer:
            seen = await until_first(lambda: read(consumer))
            cases = [(steps, 0.0) for steps in range(STEPS)] + [(0, s) for s in WAITS_S]
            for n in count():
                if len(seen) >= N_RECORDS:
                    break
                steps, wait_s = cases[n % len(cases)]
                seen += offsets(await cancelled(read(consumer), steps=steps, wait_s=wait_s))
                if n % 3 == 2:
                    seen += offsets(await read(consumer))
            return seen

    assert asyncio.run(asyncio.wait_for(work(), 120)) == list(range(N_RECORDS))


def test_the_next_calls_of_confluent_are_prompt_after_a_long_poll(broker, topic):
    async def work():
        async with of_confluent(broker, topic) as consumer:
            await until_first(lambda: consumer.consume(N_RECORDS, 1.0))
            await cancelled(consumer.poll(60), wait_s=0.2)
            began = time.monotonic()
            await consumer.poll(0.1)
            await cancelled(consumer.consume(5, -1), wait_s=0.2)
            await consumer.committed([TopicPartition(topic.name, 0)], 10)
            await cancelled(consumer.poll(), wait_s=0.2)
        return time.monotonic() - began  # with the close

    assert asyncio.run(work()) < PROMPT_S


def test_what_a_cancelled_poll_had_taken_is_not_committed(broker, topic):
    async def work():
        async with of_confluent(broker, topic) as consumer:
            seen = await until_first(lambda: consumer.poll(1.0))
            for wait_s in (*WAITS_S, *WAITS_S):
                seen += offsets(await cancelled(consumer.poll(1.0), wait_s=wait_s))
                with suppress(KafkaException):  # there is nothing new
                    await consumer.commit(asynchronous=False)
                (place,) = await consumer.committed([TopicPartition(topic.name, 0)], 10)
                assert place.offset == seen[-1] + 1
            assert seen == list(range(len(seen)))

    asyncio.run(work())


def test_a_new_loop_goes_on_where_a_cancelled_one_ended(broker):
    """`asyncio.run` cancels what waits when it ends."""
    topic = Topic(broker.bootstrap, 1, 5)

    async def opened():
        consumer = AIOConsumer(settings(broker))
        await consumer.subscribe([topic.name])
        seen = await until_first(lambda: consumer.consume(5, 2.0))
        while len(seen) < 5:
            seen += offsets(await consumer.consume(5, 1.0))
        waiting = asyncio.ensure_future(consumer.poll(60))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        return consumer, seen

    async def rest(consumer, seen):
        while len(seen) < 10:
            seen += offsets(await consumer.consume(10, 1.0))
        await consumer.close()
        return seen

    began = time.monotonic()
    consumer, seen = asyncio.run(opened())
    topic.produce(5)
    assert asyncio.run(rest(consumer, seen)) == list(range(10))
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("steps", further(range(0, STEPS, 2)))
def test_a_cancelled_commit_of_aiokafka_holds_up_nobody(broker, topic, steps):
    tp = AiokafkaPartition(topic.name, 0)

    async def work():
        async with of_aiokafka(broker, topic) as consumer:
            await until_first(lambda: consumer.getmany(timeout_ms=500))
            began = time.monotonic()
            await cancelled(consumer.commit({tp: 3}), steps=steps)
            await cancelled(consumer.committed(tp), steps=steps)
            await cancelled(consumer.position(tp), steps=steps)
            await consumer.commit({tp: 5})
            assert await consumer.committed(tp) == 5
        return time.monotonic() - began

    assert asyncio.run(work()) < PROMPT_S


CLOSES = {"close": (of_confluent, "poll"), "stop": (of_aiokafka, "getmany")}


@pytest.mark.parametrize("name", CLOSES)
@pytest.mark.parametrize(
    ("steps", "wait_s"), further([*((n, 0.0) for n in range(0, STEPS, 2)), (0, 0.004), (0, 0.06)])
)
def test_a_cancelled_close_holds_up_no_other_one(broker, topic, name, steps, wait_s):
    """confluent-kafka's own says "Consumer closed" to the second one, and so does ours."""
    opened, read = CLOSES[name][0], READS[CLOSES[name][1]][1]

    async def work():
        with suppress(RuntimeError):
            async with opened(broker, topic) as consumer:
                await until_first(lambda: read(consumer))
                began = time.monotonic()
                await cancelled(getattr(consumer, name)(), steps=steps, wait_s=wait_s)
        return time.monotonic() - began  # with the second close

    assert asyncio.run(asyncio.wait_for(work(), 120)) < PROMPT_S


@pytest.mark.parametrize("steps", further(range(1, 4)))
def test_a_cancelled_close_of_confluent_leaves_the_group(broker, topic, steps):
    """The pool drops a call that is cancelled before a thread takes it."""
    config = settings(broker)

    async def work():
        consumer = AIOConsumer(config)
        await consumer.subscribe([topic.name])
        await until_first(lambda: consumer.poll(1.0))
        await cancelled(consumer.close(), steps=steps)

    asyncio.run(work())
    until_left(broker, config["group.id"])


def test_a_stop_of_aiokafka_that_ends_with_its_loop_leaves_the_group(broker, topic):
    """``asyncio.run`` cancels the task that leaves, and waits for it."""
    group = fresh("cancelled")

    async def work():
        consumer = AIOKafkaConsumer(
            topic.name,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        await consumer.getone()
        await consumer._fetcher.close()
        await consumer._client.close()
        stopping = asyncio.ensure_future(consumer.stop())
        while consumer._coordinator._ending is None:
            await asyncio.sleep(0)
        assert not stopping.done()

    asyncio.run(work())
    until_left(broker, group)


def until_left(broker, group):
    """A session takes 45 s."""
    until(lambda: not group_of(broker.bootstrap, group).members, "the member to leave", 6.0)
