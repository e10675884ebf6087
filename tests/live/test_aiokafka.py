"""What only programs of aiokafka see: ``holdfast.aiokafka.AIOKafkaConsumer`` on a real broker.

What every client's programs see is in ``test_sessions.py`` and its neighbours, what they share
with kafka-python's in ``test_kafka.py``.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    InvalidSessionTimeoutError,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from tests.live.all_clients import MANUAL, OF_AIOKAFKA, sentence
from tests.live.clients import QUICK, KafkaPython
from tests.live.crew import Topic, fresh
from tests.live.event_recorder import EventRecorder
from tests.live.waiting import PATIENCE_SECONDS

from holdfast.aiokafka import AIOKafkaConsumer

pytestmark = pytest.mark.broker
OURS = {"client_names": ("aiokafka",)}


@sentence(**OF_AIOKAFKA)
def test_reads_one_by_one_and_goes_back_to_what_is_committed(stage):
    member = stage.member(stage.topic(2, 5), **MANUAL)
    does, first = member.does, member.tp(0)
    assert [does("getone", first).offset for _ in range(3)] == [0, 1, 2]
    does("commit", {first: OffsetAndMetadata(2, "here")})
    assert member.committed(0) == 2
    member.commit()
    assert member.committed(0) == 3
    does("seek_to_beginning", first)
    assert does("getone", first).offset == 0
    does("seek_to_committed", first)
    assert does("getone", first).offset == 3


@sentence(**OF_AIOKAFKA)
def test_a_program_may_put_a_step_of_its_own_into_aiokafkas_fetcher(stage):
    def only_even(fetched):
        while (record := next(fetched._records_iterator, None)) is not None:
            if record.offset % 2 == 0:
                return record
        fetched._records_iterator = None
        raise StopIteration

    member = stage.member(stage.topic(1, 10))
    stage.until(lambda: member.consumer._fetcher._records, "the first records")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionRecords, "__next__", only_even)
        assert stage.read(member, 5) == [(0, at) for at in (0, 2, 4, 6, 8)]
        assert member.position(0) == 10


@sentence(**OF_AIOKAFKA)
def test_all_partitions_go_back_to_what_is_committed_by_one_question(stage):
    member = stage.member(stage.topic(2, 5), **MANUAL)
    stage.read(member, 10)
    member.commit_at({0: 3})
    coordinator, asked = member.consumer._coordinator, []
    ask = coordinator.fetch_committed_offsets
    coordinator.fetch_committed_offsets = lambda places: asked.append(places) or ask(places)
    assert member.does("seek_to_committed") == {member.tp(0): 3, member.tp(1): None}
    assert len(asked) == (2 if stage.is_original else 1)
    assert [member.position(p) for p in (0, 1)] == [3, 5], "where nothing is committed it stays"
    assert stage.read(member, 2) == [(0, 3), (0, 4)]
    for odd, error in ((1, TypeError), (TopicPartition("other", 0), IllegalStateError)):
        with pytest.raises(error):
            member.does("seek_to_committed", odd)


def test_stops_while_a_fetch_waits_to_be_sent_again(broker, cut, caplog):
    """The original's ``stop`` raises CancelledError then, and leaves its connections open."""
    topic = Topic(broker.bootstrap, 1, 1)
    options = {"bootstrap_servers": f"127.0.0.1:{cut.port}", "retry_backoff_ms": 60_000}
    options |= {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500}

    async def until_a_fetch_fails():
        while "Failed fetch messages" not in caplog.text:
            await asyncio.sleep(0.02)

    async def main():
        before = asyncio.all_tasks()
        consumer = AIOKafkaConsumer(topic.name, group_id=fresh("stops"), **options)
        await consumer.start()
        assert await consumer.getone()
        waiting = asyncio.ensure_future(consumer.getone())
        cut.reset()
        try:
            await asyncio.wait_for(until_a_fetch_fails(), PATIENCE_SECONDS)
        finally:
            cut.mend()
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await waiting
        assert asyncio.all_tasks() == before

    asyncio.run(main())


@sentence(**OF_AIOKAFKA)
def test_refuses_what_cannot_be(stage):
    """More of it is in ``test_wrong_calls.py``."""
    topic = stage.topic(1)
    member = stage.member(topic)
    does, place = member.does, member.tp(0)
    stage.until(lambda: member.owns() == {0}, "its partition")
    for offsets in ({}, "text", {place: (1, "m", 2)}):
        with pytest.raises(ValueError):
            does("commit", offsets)
    with pytest.raises(IllegalStateError):
        member.commit_at({7: 1})
    with pytest.raises(ValueError):
        does("subscribe", pattern="^(")
    member.unsubscribe()
    with pytest.raises(IllegalStateError):
        member.commit_at({0: 1})
    with pytest.raises(ValueError):
        stage.alone(max_poll_records=0)
    short = stage.member(topic, session_timeout_ms=200, heartbeat_interval_ms=100)
    with pytest.raises(InvalidSessionTimeoutError):
        short.done(asyncio.wait_for(short.consumer.getone(), PATIENCE_SECONDS))


@sentence(**OF_AIOKAFKA)
def test_the_callbacks_of_a_listener_may_be_functions(stage):
    """Those of all other tests are coroutines."""
    topic, recorder = stage.topic(2), EventRecorder(hears_losses=False)
    one = stage.alone(topic)
    one.does("subscribe", [topic.name], listener=KafkaPython.listener(one, recorder))
    stage.until(lambda: len(recorder.calls) == 2, "its partitions", one)
    assert recorder.calls == [("revoked", []), ("assigned", [0, 1])]
    stage.share(topic, one, stage.member(topic))
    stage.until(lambda: len(recorder.calls) == 4, "its share", one)
    assert recorder.calls[2:] == [("revoked", [0, 1]), ("assigned", sorted(one.owns()))]


@sentence(**OURS)
def test_a_callback_sees_that_the_member_joins_again(stage):
    """In a private future, but aiokafka's own tests look at it."""
    topic, recorder, seen = stage.topic(1), EventRecorder(), []
    member = stage.alone(topic)
    for call in ("revoked", "assigned"):
        recorder.inside[call] = lambda _, call=call: seen.append(
            (call, member.consumer._coordinator._rejoin_needed_fut.done())
        )
    for n_calls in (2, 4):
        member.subscribe([topic.name], recorder)
        stage.until(lambda: len(seen) == n_calls, "its callbacks")  # noqa: B023
    assert seen == [("revoked", True), ("assigned", False)] * 2


@sentence(**OF_AIOKAFKA)
def test_a_round_for_a_new_topic_finds_it_known_to_all(stage):
    prefix = fresh("found")
    topics = [stage.topic(2, name=f"{prefix}-first")]
    members = [stage.alone(metadata_max_age_ms=ms) for ms in (500, 300_000)]
    for member in members:
        member.subscribe(f"^{prefix}.*")

    def is_known():
        owned = [{tp.topic for tp in member.consumer.assignment()} for member in members]
        return owned == [{topic.name for topic in topics}] * 2

    stage.until(is_known, "a partition of it at both")
    topics.append(stage.topic(2, name=f"{prefix}-second"))
    stage.until(is_known, "a partition of the second one at both")


@sentence(**OURS)
def test_an_automatic_commit_leaves_out_what_the_application_still_has(stage):
    member = stage.member(stage.topic(1, 5))
    assert [member.does("getone").offset for _ in range(2)] == [0, 1]
    stage.until(lambda: (member.committed(0) or 0) >= 1, "a commit")
    time.sleep(3 * QUICK["auto.commit.interval.ms"] / 1000)
    assert member.committed(0) == 1


@sentence(**OURS)
def test_a_listener_hears_of_changes_alone_or_of_the_whole_assignment(stage):
    """The second member is written for eager rebalances, as Faust is."""
    topic, whole, changes, nothing = (
        stage.topic(2),
        EventRecorder(),
        EventRecorder(),
        EventRecorder(),
    )
    design = {"holdfast_policy": "deferred"}
    second = stage.member(topic, whole, **design, holdfast_whole_assignment=True)
    stage.until(lambda: len(whole.calls) == 2, "its partitions")
    assert whole.calls == [("revoked", []), ("assigned", [0, 1])]
    first = stage.member(topic, changes, **design)
    stage.share(topic, first, second)
    kept, moved = (sorted(member.owns()) for member in (second, first))
    stage.until(lambda: len(whole.calls) == 4, "what it keeps")
    assert whole.calls[2:] == [("revoked", moved), ("assigned", kept)]
    stage.until(lambda: ("assigned", moved) in changes.calls, "what it gets")
    heard = list(whole.calls), list(changes.calls)
    stage.member(topic, nothing, **design)
    stage.until(lambda: nothing.calls, "a round")
    assert nothing.calls == [("assigned", [])]
    assert (whole.calls, changes.calls) == heard
