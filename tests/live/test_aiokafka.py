"""What only programs of aiokafka see: ``holdfast.aiokafka.AIOKafkaConsumer`` on a real broker.

What every client's programs see is in ``test_seats.py`` and its neighbours. The original passes the
tests that have a ``kind``, in the slow runs.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import aiokafka
import pytest
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    InvalidSessionTimeoutError,
    NoOffsetForPartitionError,
)
from aiokafka.structs import OffsetAndMetadata
from tests.live.crew import Topic, fresh
from tests.live.waiting import PATIENCE_SECONDS

from holdfast.aiokafka import AIOKafkaConsumer

pytestmark = pytest.mark.broker
QUICK = {
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 300,
    "auto_commit_interval_ms": 200,
    "retry_backoff_ms": 50,
    "metadata_max_age_ms": 500,
}
LONGEST_CALL_S = 10  # where the connections would wait 30 s for a broker
both = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(aiokafka.AIOKafkaConsumer, id="original", marks=pytest.mark.slow),
        AIOKafkaConsumer,
    ],
)


class Diary(ConsumerRebalanceListener):
    """Notes callbacks, as functions or as coroutines."""

    def __init__(self, *, awaits=False, inside=None):
        self.calls = []
        self._awaits = awaits
        self._inside = inside

    def _note(self, word, partitions):
        self.calls.append((word, {tp.partition for tp in partitions}))
        return self._later(word) if self._awaits else None

    async def _later(self, word):
        await asyncio.sleep(0.01)
        if self._inside is not None:
            await self._inside(word)

    def on_partitions_revoked(self, revoked):
        return self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned):
        return self._note("assigned", assigned)


@asynccontextmanager
async def opened(kind, broker, *topics, listener=None, group=None, **options):
    consumer = kind(bootstrap_servers=broker.bootstrap, group_id=group, **{**QUICK, **options})
    if topics:
        consumer.subscribe(topics, listener=listener)
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def until(condition, what="a condition"):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.02)


async def read(consumer, n):
    records = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(records) < n:
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                records += batch
    return records


def run(work):
    asyncio.run(asyncio.wait_for(work, PATIENCE_SECONDS))


@both
def test_its_questions_and_seeks_have_aiokafkas_answers(broker, kind):
    topic = Topic(broker.bootstrap, 2)
    topic.produce(5)
    manual = {"group": fresh("group"), "enable_auto_commit": False}
    first, second = (TopicPartition(topic.name, p) for p in (0, 1))

    async def work():
        async with opened(kind, broker, topic.name, **manual) as consumer:
            assert consumer.assignment() == {first, second}
            assert consumer.subscription() == {topic.name}
            assert topic.name in await consumer.topics()
            assert consumer.partitions_for_topic(topic.name) == {0, 1}
            assert [(await consumer.getone(first)).offset for _ in range(3)] == [0, 1, 2]
            assert consumer.highwater(first) == 5
            assert await consumer.position(first) == 3
            await consumer.commit({first: OffsetAndMetadata(2, "here")})
            assert await consumer.committed(first) == 2
            await consumer.commit()
            assert await consumer.committed(first) == 3
            await consumer.seek_to_beginning(first)
            assert (await consumer.getone(first)).offset == 0
            await consumer.seek_to_committed(first)
            assert (await consumer.getone(first)).offset == 3
            await consumer.seek_to_end(first)
            assert await consumer.position(first) == 5
            found = await consumer.offsets_for_times({first: 0, second: 1 << 50})
            assert found[first].offset == 0 and found[second] is None
            consumer.pause(second)
            assert consumer.paused() == {second}
            assert await consumer.getmany(timeout_ms=300) == {}

    run(work())


@both
def test_reads_without_a_group(broker, kind):
    topic = Topic(broker.bootstrap, 2)
    topic.produce(4)

    async def work():
        async with opened(kind, broker) as consumer:
            consumer.assign([TopicPartition(topic.name, 1)])
            assert [r.partition for r in await read(consumer, 4)] == [1] * 4
            with pytest.raises(IllegalOperation):
                await consumer.commit()

    run(work())


@both
def test_a_program_may_put_a_step_of_its_own_into_aiokafkas_fetcher(broker, kind, monkeypatch):
    topic = Topic(broker.bootstrap, 1)
    topic.produce(10)

    def only_even(fetched):
        while (record := next(fetched._records_iterator, None)) is not None:
            if record.offset % 2 == 0:
                return record
        fetched._records_iterator = None
        raise StopIteration

    async def work():
        async with opened(kind, broker, topic.name, group=fresh("steps")) as consumer:
            await until(lambda: consumer._fetcher._records, "the first records")
            monkeypatch.setattr(PartitionRecords, "__next__", only_even)
            assert [r.offset for r in await read(consumer, 5)] == [0, 2, 4, 6, 8]
            assert await consumer.position(TopicPartition(topic.name, 0)) == 10

    run(work())


@both
def test_goes_back_to_what_is_committed(broker, kind):
    topic = Topic(broker.bootstrap, 2)
    topic.produce(5)
    first, second = TopicPartition(topic.name, 0), TopicPartition(topic.name, 1)

    async def work():
        alone = {"group": fresh("back"), "enable_auto_commit": False}
        async with opened(kind, broker, topic.name, **alone) as consumer:
            await read(consumer, 10)
            await consumer.commit({first: 3})
            questions = []
            ask = consumer._coordinator.fetch_committed_offsets

            async def counted(partitions):
                questions.append(partitions)
                return await ask(partitions)

            consumer._coordinator.fetch_committed_offsets = counted
            assert await consumer.seek_to_committed() == {first: 3, second: None}
            assert len(questions) == (1 if kind is AIOKafkaConsumer else 2)
            assert await consumer.position(first) == 3
            assert await consumer.position(second) == 5, "nothing is committed: it stays"
            assert [r.offset for r in await read(consumer, 2)] == [3, 4]
            for odd, error in ((1, TypeError), (TopicPartition("other", 0), IllegalStateError)):
                with pytest.raises(error):
                    await consumer.seek_to_committed(odd)

    run(work())


def test_stops_while_a_fetch_waits_to_be_sent_again(broker, cut, caplog):
    """The original's ``stop`` raises CancelledError then, and leaves its connections open."""
    topic = Topic(broker.bootstrap, 1)
    topic.produce(1)
    options = {**QUICK, "bootstrap_servers": f"127.0.0.1:{cut.port}", "retry_backoff_ms": 60_000}

    async def main():
        before = asyncio.all_tasks()
        consumer = AIOKafkaConsumer(topic.name, group_id=fresh("stops"), **options)
        await consumer.start()
        assert await consumer.getone()
        waiting = asyncio.ensure_future(consumer.getone())
        cut.reset()
        try:
            await until(lambda: "Failed fetch messages" in caplog.text, "a fetch that fails")
        finally:
            cut.mend()
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await waiting
        assert asyncio.all_tasks() == before

    asyncio.run(main())


@both
def test_begins_once_a_broker_is_back(broker, cut, kind):
    topic = Topic(broker.bootstrap, 1)
    topic.produce(1)
    options = {**QUICK, "bootstrap_servers": f"127.0.0.1:{cut.port}"}

    async def work():
        one, other = (kind(group_id=fresh("cut"), **options) for _ in range(2))
        await one.start()
        await other.start()
        cut.reset()
        try:
            for consumer in (one, other):
                consumer.subscribe([topic.name])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(one.getone(), 1)
            async with asyncio.timeout(LONGEST_CALL_S):
                await other.stop()
        finally:
            cut.mend()
        assert len(await read(one, 1)) == 1
        await one.stop()

    run(work())


@both
def test_refuses_what_cannot_be(broker, kind):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    place = TopicPartition(topic.name, 0)

    async def work():
        async with opened(kind, broker, topic.name, group=group) as consumer:
            assert await consumer.position(place) == 0
            with pytest.raises(IllegalStateError):
                consumer.assign([place])
            for offsets in ({}, "text", {place: (1, "m", 2)}):
                with pytest.raises(ValueError):
                    await consumer.commit(offsets)
            with pytest.raises(TypeError):
                await consumer.commit({topic.name: 1})
            with pytest.raises(IllegalStateError):
                await consumer.commit({TopicPartition(topic.name, 7): 1})
            for bad in ("text", -1):
                with pytest.raises(ValueError):
                    consumer.seek(place, bad)
            with pytest.raises(TypeError):
                consumer.subscribe(topic.name)
            with pytest.raises(TypeError):
                consumer.subscribe([topic.name], listener=object())
            with pytest.raises(ValueError):
                consumer.subscribe(pattern="^(")
            consumer.unsubscribe()
            with pytest.raises(IllegalStateError):
                await consumer.commit({place: 1})
        with pytest.raises(ConsumerStoppedError):
            await consumer.getone()
        with pytest.raises(InvalidSessionTimeoutError):
            async with opened(
                kind,
                broker,
                topic.name,
                group=fresh("group"),
                session_timeout_ms=200,
                heartbeat_interval_ms=100,
            ):
                pass
        with pytest.raises(ValueError):
            kind(bootstrap_servers=broker.bootstrap, max_poll_records=0)
        async with opened(
            kind, broker, topic.name, group=fresh("group"), auto_offset_reset="none"
        ) as consumer:
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.getone()

    run(work())


@both
@pytest.mark.parametrize("awaits", [False, True])
def test_a_listener_may_have_functions_or_coroutines(broker, kind, awaits):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")

    async def work():
        diaries = Diary(awaits=awaits), Diary(awaits=awaits)
        async with opened(kind, broker, topic.name, listener=diaries[0], group=group) as one:
            await until(lambda: len(diaries[0].calls) == 2)
            assert diaries[0].calls == [("revoked", set()), ("assigned", {0, 1})]
            async with opened(kind, broker, topic.name, listener=diaries[1], group=group) as other:
                await until(lambda: len(diaries[0].calls) == 4 and len(diaries[1].calls) == 2)
                assert diaries[0].calls[2] == ("revoked", {0, 1})
                owned = [{tp.partition for tp in c.assignment()} for c in (one, other)]
                assert [d.calls[-1][1] for d in diaries] == owned

    run(work())


def test_a_callback_sees_that_the_member_joins_again(broker):
    """In a private future, but aiokafka's own tests look at it."""
    topic, group = Topic(broker.bootstrap, 1), fresh("group")

    async def work():
        seen = []

        async def inside(word):
            seen.append((word, consumer._coordinator._rejoin_needed_fut.done()))

        async with opened(AIOKafkaConsumer, broker, group=group) as consumer:
            for n_calls in (2, 4):
                consumer.subscribe([topic.name], listener=Diary(awaits=True, inside=inside))
                await until(lambda: len(seen) == n_calls)  # noqa: B023
        assert seen[:4] == [("revoked", True), ("assigned", False)] * 2

    run(work())


@both
def test_a_round_for_a_new_topic_finds_it_known_to_all(broker, kind):
    prefix, group = fresh("found"), fresh("pattern")

    async def work():
        seldom = {**QUICK, "metadata_max_age_ms": 300_000}
        consumers = []
        for options in (QUICK, seldom):
            consumer = kind(bootstrap_servers=broker.bootstrap, group_id=group, **options)
            consumer.subscribe(pattern=f"^{prefix}.*")
            await consumer.start()
            consumers.append(consumer)
        for name in ("first", "second"):
            Topic(broker.bootstrap, 2, f"{prefix}-{name}")
            await until(
                lambda name=name: all(
                    any(tp.topic.endswith(name) for tp in consumer.assignment())
                    for consumer in consumers
                ),
                f"a partition of the {name} topic at both",
            )
        for consumer in consumers:
            await consumer.stop()

    run(work())


def test_an_automatic_commit_leaves_out_what_the_application_still_has(broker):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    topic.produce(5)
    place = TopicPartition(topic.name, 0)

    async def work():
        async with opened(AIOKafkaConsumer, broker, topic.name, group=group) as consumer:
            await consumer.getone()
            await consumer.getone()
            while (committed := await consumer.committed(place)) is None or committed < 1:
                await asyncio.sleep(0.05)
            await asyncio.sleep(3 * QUICK["auto_commit_interval_ms"] / 1000)
            assert await consumer.committed(place) == 1

    run(work())


def test_a_listener_hears_of_changes_alone_or_of_the_whole_assignment(broker):
    """The second member is written for eager rebalances, as Faust is."""

    async def main():
        topic, group = Topic(broker.bootstrap, 2), fresh("group")
        changes, whole, nothing = Diary(), Diary(), Diary()
        ours = {"group": group, "holdfast_policy": "deferred"}
        async with opened(
            AIOKafkaConsumer,
            broker,
            topic.name,
            listener=whole,
            holdfast_whole_assignment=True,
            **ours,
        ) as second:
            await until(lambda: len(second.assignment()) == 2)
            await until(lambda: len(whole.calls) == 2)
            assert whole.calls == [("revoked", set()), ("assigned", {0, 1})]
            async with opened(
                AIOKafkaConsumer, broker, topic.name, listener=changes, **ours
            ) as first:
                await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
                (kept,), (moved,) = (
                    {tp.partition for tp in c.assignment()} for c in (second, first)
                )
                await until(lambda: len(whole.calls) == 4)
                assert whole.calls[2:] == [("revoked", {moved}), ("assigned", {kept})]
                await until(lambda: ("assigned", {moved}) in changes.calls)
                heard = list(whole.calls), list(changes.calls)
                async with opened(AIOKafkaConsumer, broker, topic.name, listener=nothing, **ours):
                    await until(lambda: nothing.calls)
                assert nothing.calls == [("assigned", set())]
                assert (whole.calls, changes.calls) == heard

    run(main())
