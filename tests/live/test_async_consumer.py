"""holdfast.AsyncConsumer in real groups."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.live.crew import QUICK, Hand, Topic, closing, fresh
from tests.live.crew import _place as place
from tests.live.waiting import PATIENCE_SECONDS, until

from holdfast import AsyncConsumer
from holdfast.errors import RemoteProtocolError

pytestmark = pytest.mark.broker


def made(broker, group, **extra):
    settings = {k.replace("_", "."): v for k, v in extra.items()}
    return AsyncConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, **QUICK, **settings}
    )


async def until_polled(consumer, condition, read=None):
    """Poll until a condition holds; what is read goes into a list."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            batch = await consumer.poll(0.1)
            if read is not None:
                read += map(place, batch)


class Plain:
    """Notes callbacks."""

    def __init__(self):
        self.calls = []

    def on_partitions_assigned(self, partitions):
        self.calls.append(("assigned", [p.partition for p in partitions]))

    def on_partitions_revoked(self, partitions):
        self.calls.append(("revoked", [p.partition for p in partitions]))

    def on_partitions_lost(self, partitions):
        self.calls.append(("lost", [p.partition for p in partitions]))

    def words(self):
        return [word for word, partitions in self.calls if partitions]


class Awaiting(Plain):
    """The same as coroutines, which use the consumer while they run."""

    def __init__(self, consumer):
        super().__init__()
        self.consumer = consumer
        self.committed = []

    async def on_partitions_assigned(self, partitions):
        if partitions:
            self.committed.append(await self.consumer.committed(partitions))
        super().on_partitions_assigned(partitions)

    async def on_partitions_revoked(self, partitions):
        await self.consumer.commit()
        super().on_partitions_revoked(partitions)

    async def on_partitions_lost(self, partitions):
        await asyncio.sleep(0)
        super().on_partitions_lost(partitions)


@pytest.mark.parametrize("plane", ["confluent", "aiokafka"])
@pytest.mark.parametrize("kind", ["plain", "coroutines"])
def test_a_group_of_two_shares_and_reads_everything_once(broker, plane, kind):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    topic.produce(25)

    async def run():
        read = []
        async with (
            made(broker, group, holdfast_data_plane=plane) as one,
            made(broker, group, holdfast_data_plane=plane) as two,
        ):
            a = Plain() if kind == "plain" else Awaiting(one)
            b = Plain()
            await one.subscribe([topic.name], a)
            await until_polled(one, lambda: len(read) == 100, read)
            await two.subscribe([topic.name], b)
            first = asyncio.create_task(
                until_polled(one, lambda: len(two.assignment()) == 2 and "revoked" in a.words())
            )
            await until_polled(two, lambda: first.done() and "assigned" in b.words(), read)
            await first
            topic.produce(5)
            ends = [
                until_polled(c, lambda: len(set(read)) == 120, read)  # both put in what they read
                for c in (one, two)
            ]
            await asyncio.gather(*ends)
            assert len(one.assignment()) == 2
            assert one.metrics().records_consumed_total > 0
        if kind == "coroutines":
            assert a.committed[0] == {(topic.name, p): None for p in range(4)}
        assert a.words()[:2] == ["assigned", "revoked"]
        assert a.words()[-1] == "revoked"
        return Counter(read)

    assert set(asyncio.run(run()).values()) == {1}


def test_a_poll_that_is_cancelled_loses_nothing_and_neither_does_a_close_after_it(broker):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")

    async def run():
        first, second = [], []
        async with made(broker, group) as consumer:
            await consumer.subscribe([topic.name])
            await until_polled(consumer, consumer.assignment)
            topic.produce(20)
            while len(first) < 10:  # three records at a time, most polls given up too early
                try:
                    batch = await asyncio.wait_for(consumer.poll(0.2, 3), 0.001)
                    first += map(place, batch)
                except TimeoutError:
                    await asyncio.sleep(0.005)
            poll = asyncio.create_task(consumer.poll(5, 3))
            await asyncio.sleep(0)
            poll.cancel()
            await asyncio.wait([poll])
        async with made(broker, group) as consumer:
            await consumer.subscribe([topic.name])
            await until_polled(consumer, lambda: len(first + second) >= 20, second)
        return [offset for *_, offset in first + second]

    assert asyncio.run(run()) == list(range(20))


def test_a_callback_that_waits_does_not_stop_the_loop(broker):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")

    async def run():
        may_go_on, ticks = asyncio.Event(), []

        class Slow:
            async def on_partitions_assigned(self, partitions):
                if partitions:
                    ticks.append("asked")
                    await may_go_on.wait()
                    ticks.append("answered")

        async with made(broker, group) as consumer:
            await consumer.subscribe([topic.name], Slow())
            poll = asyncio.create_task(until_polled(consumer, lambda: "answered" in ticks))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while "asked" not in ticks:
                    await asyncio.sleep(0.01)
            ticks.append("the loop is free")
            may_go_on.set()
            await poll
        return ticks

    assert asyncio.run(run()) == ["asked", "the loop is free", "answered"]


def test_lost_is_told_and_the_consumer_is_back(broker):
    from tests.live.test_consumer import taken_out

    topic, group = Topic(broker.bootstrap, 2), fresh("group")

    async def run():
        async with made(broker, group) as consumer:
            listener = Awaiting(consumer)
            await consumer.subscribe([topic.name], listener)
            await until_polled(consumer, lambda: listener.words() == ["assigned"])
            member_id = consumer.metrics().member_id
            await asyncio.to_thread(taken_out, broker, group, member_id)
            await until_polled(consumer, lambda: listener.words()[1:] == ["lost", "assigned"])

    asyncio.run(run())


def test_a_close_that_comes_back_and_one_that_does_not(broker):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    other = Hand(broker.bootstrap, group, [topic.name], group_instance_id="other").start()

    async def join_and_leave(returns):
        consumer = made(broker, group, group_instance_id="a")
        await consumer.subscribe([topic.name])
        await until_polled(consumer, lambda: len(consumer.assignment()) == 1)
        await consumer.close(returns=returns)

    until(lambda: len(other.owns) == 2, "one member owns all")
    asyncio.run(join_and_leave(returns=True))
    generation = other.consumer.generation
    asyncio.run(join_and_leave(returns=False))
    # It came back without a round; then it left for good, and the other one has all.
    until(lambda: len(other.owns) == 2, "the other member owns all again")
    assert other.consumer.generation > generation
    assert closing([other]) == {}


def test_pause_seek_position_and_the_errors_of_a_group(broker):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    topic.produce(10)
    place_0 = (topic.name, 0)

    async def run():
        read = []
        async with made(broker, group) as consumer:
            await consumer.subscribe([topic.name])
            await until_polled(consumer, lambda: len(read) == 10, read)
            assert await consumer.position(place_0) == 10
            await consumer.commit({place_0: 4})
            assert await consumer.committed([place_0]) == {place_0: 4}
            await consumer.pause([place_0])
            await consumer.seek(place_0, 7)
            assert await consumer.poll(0.3) == []
            await consumer.resume([place_0])
            await until_polled(consumer, lambda: len(read) == 13, read)
            assert [offset for *_, offset in read[10:]] == [7, 8, 9]
            stranger = made(broker, group, holdfast_policy="deferred")
            await stranger.subscribe([topic.name])
            with pytest.raises(RemoteProtocolError, match="INCONSISTENT_GROUP_PROTOCOL"):
                await until_polled(stranger, lambda: False)
            await stranger.close()
            await consumer.unsubscribe()

    asyncio.run(run())


def test_tells_where_it_stands_and_hands_out_one_record_at_a_time(broker):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    topic.produce(5)
    first, second = (topic.name, 0), (topic.name, 1)

    async def work():
        async with made(broker, group, enable_auto_commit=False) as consumer:
            assert consumer.member_id == "" and consumer.generation == -1
            await consumer.subscribe([topic.name])
            await until_polled(consumer, lambda: len(consumer.assignment()) == 2)
            assert consumer.member_id and consumer.generation > 0
            await consumer.pause([second])
            assert consumer.paused() == {second}
            await consumer.seek(first, 0)
            for offset in range(2):
                while (record := await consumer.poll_one()) is None:
                    pass
                assert place(record) == (topic.name, 0, offset)
            await consumer.commit()
            assert await consumer.position(first) == 2
            assert consumer.subscription() == {topic.name}
            assert (await consumer.list_topics())[topic.name] == 2
            both = [first, second]
            assert await consumer.beginning_offsets(both) == dict.fromkeys(both, 0)
            assert await consumer.end_offsets(both) == dict.fromkeys(both, 5)
            assert await consumer.offsets_for_times({first: 0}) == {first: 0}
            await consumer.seek_to_end(first)
            assert await consumer.position(first) == 5
            await consumer.seek_to_beginning(first)
            assert await consumer.position(first) == 0
            await consumer.seek_to_committed(first)
            assert await consumer.position(first) == 2
            assert consumer.member_id.encode() in consumer.group_metadata()
            before = consumer.generation
            consumer.enforce_rebalance()
            await until_polled(consumer, lambda: consumer.generation > before)

    asyncio.run(work())
