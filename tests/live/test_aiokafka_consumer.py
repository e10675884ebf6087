"""aiokafka's consumer and ours: the same program, the same answers, in real groups."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import aiokafka
import pytest
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import (
    CommitFailedError,
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
both = pytest.mark.parametrize("kind", [aiokafka.AIOKafkaConsumer, AIOKafkaConsumer])
PLAIN = (ConsumerRebalanceListener,)


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
def test_reads_commits_seeks_and_looks_things_up(broker, kind):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    topic.produce(5)
    manual = {"group": group, "enable_auto_commit": False}
    first, second = (TopicPartition(topic.name, p) for p in (0, 1))

    async def work():
        async with opened(kind, broker, topic.name, **manual) as consumer:
            assert consumer.assignment() == {first, second}
            assert consumer.subscription() == {topic.name}
            assert topic.name in await consumer.topics()
            assert consumer.partitions_for_topic(topic.name) == {0, 1}
            assert await consumer.committed(first) is None
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
            consumer.seek(first, 1)
            assert (await consumer.getone(first)).offset == 1
            await consumer.seek_to_end(first)
            assert await consumer.position(first) == 5
            assert await consumer.beginning_offsets([first]) == {first: 0}
            assert await consumer.end_offsets([first, second]) == {first: 5, second: 5}
            found = await consumer.offsets_for_times({first: 0, second: 1 << 50})
            assert found[first].offset == 0 and found[second] is None
            consumer.pause(second)
            assert consumer.paused() == {second}
            assert await consumer.getmany(timeout_ms=300) == {}
            consumer.resume(second)
            assert {r.partition for r in await read(consumer, 5)} == {1}
        async with opened(kind, broker, topic.name, group=group) as consumer:
            assert await read(consumer, 7)
        # What was read counts as processed at the end.
        async with opened(kind, broker, topic.name, **manual) as consumer:
            assert await consumer.committed(second) == 5

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
def test_chooses_its_partitions_itself_with_and_without_a_group(broker, kind):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    topic.produce(4)
    place = TopicPartition(topic.name, 1)

    async def work():
        async with opened(kind, broker) as consumer:
            consumer.assign([place])
            assert [r.partition for r in await read(consumer, 4)] == [1] * 4
            with pytest.raises(IllegalOperation):
                await consumer.commit()
        async with opened(kind, broker, group=group, enable_auto_commit=False) as consumer:
            consumer.assign([place])
            await consumer.getone()
            await consumer.commit()
        async with opened(kind, broker, group=group) as consumer:
            consumer.assign([place])
            assert (await consumer.getone()).offset == 1
            consumer.unsubscribe()
            consumer.assign([TopicPartition(topic.name, 0)])
            assert (await consumer.getone()).partition == 0
        async with opened(kind, broker, topic.name, group=fresh("group")) as consumer:
            assert {r.partition for r in await read(consumer, 8)} == {0, 1}
            consumer.unsubscribe()
            consumer.assign([place])
            assert (await consumer.getone()).partition == 1

    run(work())


@both
@pytest.mark.parametrize("awaits", [False, True])
def test_tells_an_eager_listener_of_every_round(broker, kind, awaits):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    topic.produce(3)

    async def work():
        diaries = Diary(awaits=awaits), Diary(awaits=awaits)
        manual = {"group": group, "enable_auto_commit": False}
        async with opened(kind, broker, topic.name, listener=diaries[0], **manual) as one:
            assert (await one.getone()).offset == 0
            await until(lambda: len(diaries[0].calls) == 2)
            assert diaries[0].calls == [("revoked", set()), ("assigned", {0, 1})]
            async with opened(kind, broker, topic.name, listener=diaries[1], **manual) as other:
                await until(lambda: len(diaries[0].calls) == 4 and len(diaries[1].calls) == 2)
                assert diaries[0].calls[2] == ("revoked", {0, 1})
                owned = [{tp.partition for tp in c.assignment()} for c in (one, other)]
                assert [d.calls[-1][1] for d in diaries] == owned
                assert owned[0] | owned[1] == {0, 1} and not owned[0] & owned[1]
                # The position is the committed one again.
                assert (await one.getone()).offset == 0

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
def test_a_callback_commits_and_seeks(broker, kind):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    topic.produce(6)
    place = TopicPartition(topic.name, 0)

    async def work():
        seen = []

        async def inside(word):
            if word == "assigned":
                seen.append((await consumer.committed(place), await consumer.position(place)))
                await consumer.seek_to_end(place)
                seen.append(await consumer.position(place))
            elif consumer.assignment():
                await consumer.commit()

        diary = Diary(awaits=True, inside=inside)
        consumer = kind(
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            **{**QUICK, "enable_auto_commit": False},
        )
        consumer.subscribe([topic.name], listener=diary)
        await consumer.start()
        await until(lambda: len(seen) == 2)
        assert seen == [(None, 0), 6]
        consumer.subscribe([topic.name], listener=diary)
        await until(lambda: len(seen) == 4)
        assert seen[2:] == [(None, 0), 6]
        await consumer.stop()

    run(work())


@both
def test_follows_a_pattern(broker, kind):
    prefix, group = fresh("pattern"), fresh("group")

    async def work():
        consumer = kind(bootstrap_servers=broker.bootstrap, group_id=group, **QUICK)
        consumer.subscribe(pattern=f"^{prefix}-.*")
        await consumer.start()
        assert consumer.assignment() == set()
        for name in (f"{prefix}-a", f"{prefix}-b"):
            await asyncio.to_thread(lambda name=name: Topic(broker.bootstrap, 1, name).produce(1))
            assert (await consumer.getone()).topic == name
        assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}
        await consumer.stop()

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


@both
def test_leaves_when_nobody_polls_and_comes_back(broker, kind):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    topic.produce(5)
    manual = {"group": group, "enable_auto_commit": False}

    async def work():
        async with (
            opened(kind, broker, topic.name, max_poll_interval_ms=2_000, **manual) as idle,
            opened(kind, broker, topic.name, **manual) as busy,
        ):
            assert {r.partition for r in await read(busy, 10)} == {0, 1}
            topic.produce(5)
            assert await idle.getone()

    run(work())


def test_what_stays_keeps_flowing_in_a_cooperative_round(broker):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    topic.produce(50)

    async def work():
        diaries = Diary(), Diary()
        options = {"group": group, "partition_assignment_strategy": ["cooperative-sticky"]}
        async with opened(
            AIOKafkaConsumer, broker, topic.name, listener=diaries[0], **options
        ) as one:
            records = await read(one, 8)
            kept_states = {
                tp: one._subscription.subscription.assignment.state_value(tp)
                for tp in one.assignment()
            }
            async with opened(
                AIOKafkaConsumer, broker, topic.name, listener=diaries[1], **options
            ) as other:

                async def reading():
                    while True:
                        for batch in (await one.getmany(timeout_ms=50, max_records=5)).values():
                            records.extend(batch)

                task = asyncio.create_task(reading())
                await until(lambda: len(other.assignment()) == 2 and len(one.assignment()) == 2)
                gone = {p for word, ps in diaries[0].calls if word == "revoked" for p in ps}
                assert gone == {tp.partition for tp in other.assignment()}
                now = one._subscription.subscription.assignment
                assert all(now.state_value(tp) is kept_states[tp] for tp in one.assignment())
                topic.produce(1)
                moved = await read(other, 1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            seen = [(r.partition, r.offset) for r in records]
            assert len(seen) == len(set(seen)), "a record twice at the member that stayed"
            assert not {(r.partition, r.offset) for r in moved} & set(seen)

    run(work())


def test_a_deferring_group_waits_for_a_member_that_was_bounced(broker):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    options = {
        "group": group,
        "holdfast_policy": "deferred",
        "scheduled_rebalance_max_delay_ms": 60_000,
        "holdfast_first_member": "immediate",
    }

    async def work():
        async with opened(AIOKafkaConsumer, broker, topic.name, **options) as one:
            async with opened(AIOKafkaConsumer, broker, topic.name, **options) as other:
                await until(lambda: len(other.assignment()) == len(one.assignment()) == 2)
                had = other.assignment()
                kept = one.assignment()
            generation = one._coordinator.generation
            await until(lambda: one._coordinator.generation > generation)
            assert one.assignment() == kept
            async with opened(AIOKafkaConsumer, broker, topic.name, **options) as again:
                await until(lambda: again.assignment() == had)
                assert one.assignment() == kept

    run(work())


def test_a_lost_partition_is_not_committed(broker):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    topic.produce(5)
    place = TopicPartition(topic.name, 0)

    async def work():
        async with opened(
            AIOKafkaConsumer,
            broker,
            topic.name,
            group=group,
            enable_auto_commit=False,
            max_poll_interval_ms=1_000,
        ) as consumer:
            await consumer.getone()
            await until(lambda: not consumer.assignment(), "a member that has left")
            with pytest.raises((CommitFailedError, IllegalStateError)):
                await consumer.commit({place: 1})
            waits = asyncio.create_task(consumer.getone())
            assert (await waits).offset == 0
            with pytest.raises(CommitFailedError):
                await consumer.commit({place: 4})  # of the earlier term
            await consumer.commit()
            assert await consumer.committed(place) == 1

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


def test_lives_in_one_group_with_the_original(broker):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    topic.produce(3)

    async def work():
        async with (
            opened(aiokafka.AIOKafkaConsumer, broker, topic.name, group=group) as theirs,
            opened(AIOKafkaConsumer, broker, topic.name, group=group) as ours,
        ):
            await until(lambda: len(theirs.assignment()) == len(ours.assignment()) == 1)
            assert theirs.assignment() != ours.assignment()
            assert len(await read(ours, 3)) == len(await read(theirs, 3)) == 3

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
