"""kafka-python's consumer and ours: the same program, the same answers, in real groups."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import closing

import kafka
import pytest
from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.coordinator.base import MemberState
from kafka.errors import CommitFailedError, IllegalStateError, KafkaConfigurationError
from kafka.structs import OffsetAndMetadata
from tests.live.crew import Topic, fresh
from tests.live.waiting import PATIENCE_SECONDS, until

from holdfast.kafka import KafkaConsumer

pytestmark = pytest.mark.broker
QUICK = {
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 300,
    "session_timeout_ms": 30_000,  # nothing here waits for it, and no busy machine reaches it
    "auto_commit_interval_ms": 200,
    "metadata_max_age_ms": 500,
}
LONGEST_CALL_S = 10  # where the connections would wait 30 s for a broker
both = pytest.mark.parametrize("kind", [kafka.KafkaConsumer, KafkaConsumer])


class Diary(ConsumerRebalanceListener):
    """Notes callbacks."""

    def __init__(self):
        self.calls = []

    def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", {tp.partition for tp in revoked}))

    def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", {tp.partition for tp in assigned}))


def made(kind, broker, *topics, **options):
    consumer = kind(*topics, bootstrap_servers=broker.bootstrap, **{**QUICK, **options})
    if kind is kafka.KafkaConsumer:
        # The original never learns of a topic that its first round did not know.
        for topic in topics:
            until(lambda: consumer.partitions_for_topic(topic), f"partitions of {topic}")  # noqa: B023
    return closing(consumer)


def read(consumer, n):
    records = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(records) < n:
        assert time.monotonic() < deadline, f"read {len(records)} of {n}"
        for batch in consumer.poll(200).values():
            records += batch
    return records


class Polling:
    """A consumer that another thread polls."""

    def __init__(self, consumer):
        self.consumer = consumer
        self.records = []
        self.error = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def _run(self):
        try:
            while not self._end.is_set():
                for batch in self.consumer.poll(50, max_records=5).values():
                    self.records += batch
        except BaseException as error:  # the test looks at it
            self.error = error

    def __exit__(self, *error):
        self._end.set()
        self._thread.join(60)
        assert self.error is None, self.error


@both
def test_reads_commits_seeks_and_looks_things_up(broker, kind):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    topic.produce(5)
    first, second = (TopicPartition(topic.name, p) for p in (0, 1))
    with made(
        kind, broker, topic.name, group_id=group, enable_auto_commit=False, max_poll_records=4
    ) as consumer:
        assert len(read(consumer, 10)) == 10
        assert consumer.assignment() == {first, second}
        assert consumer.subscription() == {topic.name}
        assert topic.name in consumer.topics()
        assert consumer.partitions_for_topic(topic.name) == {0, 1}
        assert consumer.committed(first) is None
        assert consumer.highwater(first) == 5
        assert consumer.position(first) == 5
        consumer.commit({first: OffsetAndMetadata(2, "here", -1)})
        assert consumer.committed(first) == 2
        assert consumer.committed(first, metadata=True).metadata == "here"
        consumer.commit()
        assert consumer.committed(first) == consumer.committed(second) == 5
        told = []
        consumer.commit_async(
            {first: OffsetAndMetadata(3, "", -1)}, lambda offsets, answer: told.append(offsets)
        )
        until(lambda: consumer.poll(20) is not None and told, "the callback of a commit")
        assert consumer.committed(first) == 3
        consumer.seek(first, 3)
        assert [r.offset for r in read(consumer, 2)] == [3, 4]
        consumer.seek_to_beginning(first)
        assert consumer.position(first) == 0
        consumer.seek_to_end(first)
        assert consumer.position(first) == 5
        assert consumer.beginning_offsets([first]) == {first: 0}
        assert consumer.end_offsets([first, second]) == {first: 5, second: 5}
        found = consumer.offsets_for_times({first: 0, second: 1 << 50})
        assert found[first].offset == 0 and found[second] is None
        consumer.pause(second)
        assert consumer.paused() == {second}
        topic.produce(1)
        assert {r.partition for r in read(consumer, 1)} == {0}
        consumer.resume(second)
        assert {r.partition for r in read(consumer, 1)} == {1}
        assert consumer.group_metadata().group_id == group
        assert consumer.group_metadata().generation_id > 0
        assert consumer.metrics()


@both
def test_iterates_and_resumes_behind_what_was_read(broker, kind):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    topic.produce(10)
    with made(kind, broker, topic.name, group_id=group) as consumer:  # waits without an end
        assert [next(consumer).offset for _ in range(6)] == list(range(6))
    options = {"group_id": group, "consumer_timeout_ms": 20_000}
    with made(kind, broker, topic.name, **options) as consumer:
        assert [next(consumer).offset for _ in range(4)] == list(range(6, 10))
        consumer.config["consumer_timeout_ms"] = 200
        assert list(consumer) == []


def test_begins_once_a_broker_is_back(broker, cut):
    topic = Topic(broker.bootstrap, 1)
    topic.produce(1)
    options = {**QUICK, "bootstrap_servers": f"127.0.0.1:{cut.port}", "group_id": fresh("cut")}
    with closing(KafkaConsumer(**options)) as consumer:
        cut.reset()
        try:
            consumer.subscribe([topic.name])
            began = time.monotonic()
            assert consumer.poll(300) == {}
            assert time.monotonic() - began < LONGEST_CALL_S
        finally:
            cut.mend()
        assert len(read(consumer, 1)) == 1


@both
def test_refuses_what_cannot_be(broker, kind):
    topic = Topic(broker.bootstrap, 1)
    place = TopicPartition(topic.name, 0)
    with made(kind, broker, topic.name, group_id=fresh("group")) as consumer:
        with pytest.raises(IllegalStateError):
            consumer.assign([place])
        with pytest.raises(TypeError):
            consumer.subscribe([topic.name], listener=object())
        with pytest.raises(TypeError):
            consumer.commit({topic.name: 1})
        with pytest.raises(ValueError):
            consumer.poll(-1)
    with pytest.raises(IllegalStateError):
        consumer.poll(0)
    with pytest.raises(RuntimeError):
        consumer.unsubscribe()
    with pytest.raises(KafkaConfigurationError):
        kind(bootstrap_servers=broker.bootstrap, no_such_key=1)


@both
def test_chooses_its_partitions_itself_with_and_without_a_group(broker, kind):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    topic.produce(4)
    place = TopicPartition(topic.name, 1)
    with made(kind, broker) as consumer:
        consumer.assign([place])
        assert {r.partition for r in read(consumer, 4)} == {1}
        with pytest.raises(IllegalStateError):
            consumer.commit()
    with made(kind, broker, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([place])
        read(consumer, 4)
        consumer.commit({place: OffsetAndMetadata(3, "", -1)})
    # Who unsubscribes commits first. The original does not wait for the answer to that: its leaving
    # may overtake it, and the broker refuses it. So it has committed before; ours has not.
    ours = kind is KafkaConsumer
    interval = {"auto_commit_interval_ms": 600_000 if ours else 200}
    with made(kind, broker, topic.name, group_id=group, **interval) as consumer:
        assert len(read(consumer, 5)) == 5
        if ours:
            assert consumer.committed(place) == 3
        else:
            until(lambda: consumer.poll(50) == {} and consumer.committed(place) == 4, "a commit")
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        consumer.assign([place])
        assert consumer.position(place) == 4


def test_tells_an_eager_listener_of_every_round(broker):
    kind = KafkaConsumer  # the original never learns of a topic that its first round did not know
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    diaries = Diary(), Diary()
    with (
        made(kind, broker, group_id=group) as one,
        made(kind, broker, group_id=group) as other,
    ):
        one.subscribe([topic.name], listener=diaries[0])
        until(lambda: one.poll(50) is not None and len(diaries[0].calls) == 2, "both partitions")
        assert diaries[0].calls == [("revoked", set()), ("assigned", {0, 1})]
        n_calls = len(diaries[0].calls)
        other.subscribe([topic.name], listener=diaries[1])
        with Polling(one), Polling(other):
            until(
                lambda: len(one.assignment()) == len(other.assignment()) == 1, "one partition each"
            )
        assert ("revoked", {0, 1}) in diaries[0].calls[n_calls:]
        owned = [{tp.partition for tp in c.assignment()} for c in (one, other)]
        assert [d.calls[-1][1] for d in diaries] == owned
        assert one.group_metadata().state is MemberState.STABLE


@both
def test_follows_a_pattern(broker, kind):
    prefix = fresh("pattern")
    # It reads the metadata of every topic of the broker each time.
    with made(kind, broker, group_id=fresh("group"), metadata_max_age_ms=3_000) as consumer:
        consumer.subscribe(pattern=f"^{prefix}-.*")
        for name in (f"{prefix}-a", f"{prefix}-b"):
            Topic(broker.bootstrap, 1, name).produce(1)
            assert read(consumer, 1)[0].topic == name


def test_heartbeats_go_on_without_a_poll(broker):
    topic = Topic(broker.bootstrap, 1)
    with made(KafkaConsumer, broker, topic.name, group_id=fresh("group")) as consumer:
        until(lambda: consumer.poll(50) is not None and consumer.assignment(), "an assignment")
        host = consumer._coordinator.seat.membership.host
        for _ in range(2):
            seen = host.answered_at
            until(lambda seen=seen: host.answered_at > seen, "a heartbeat")


def test_a_poll_never_waits_for_a_round(broker):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    topic.produce(200)
    options = {"group_id": group, "partition_assignment_strategy": ["cooperative-sticky"]}
    with (
        made(KafkaConsumer, broker, topic.name, **options) as one,
        made(KafkaConsumer, broker, topic.name, **options) as other,
    ):
        read(one, 5)
        states = dict(one._subscription.assignment)
        with Polling(one) as ours:
            # Another member joins, and does not poll again: its round waits for it.
            until(lambda: other.poll(50) is not None and other.assignment(), "two members")
            n_seen = len(ours.records)
            topic.produce(1)
            until(lambda: len(ours.records) > n_seen, "records while the other one rests")
            until(lambda: len(one.assignment()) == len(other.assignment()) == 2, "two each")
            topic.produce(20)
            kept = one._subscription.assignment
            anew = [tp.partition for tp in one.assignment() if kept[tp] is not states[tp]]
            assert not anew, (anew, one._coordinator.seat.membership.parts.metrics())
            moved = read(other, 20)
        seen = [(r.partition, r.offset) for r in ours.records]
        assert len(seen) == len(set(seen))
        assert not {(r.partition, r.offset) for r in moved} & set(seen)


def test_a_poll_never_waits_for_where_a_gained_partition_begins(broker, monkeypatch):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    options = {"group_id": group, "partition_assignment_strategy": ["cooperative-sticky"]}
    with made(KafkaConsumer, broker, topic.name, **options) as first:
        until(lambda: first.poll(50) or len(first.assignment()) == 2, "it has both")
        with made(KafkaConsumer, broker, topic.name, **options) as second, Polling(second):

            def shared():
                first.poll(50)
                return len(first.assignment()) == len(second.assignment()) == 1

            until(shared, "each has one")
            (stays,) = first.assignment()
            answer = Future()
            monkeypatch.setattr(
                first._coordinator.seat.membership.parts.link, "committed", lambda _: answer
            )
        until(lambda: first.poll(50) or len(first.assignment()) == 2, "it has both again")
        topic.produce(5)
        found = first.poll(1000 * PATIENCE_SECONDS)
        assert found.keys() == {stays}, "what stays keeps flowing"
        (gained,) = first.assignment() - {stays}
        answer.set_result({tuple(gained): 2})
        records = {gained: 0, stays: len(found[stays])}

        def read_on():
            for tp, batch in first.poll(50).items():
                records[tp] += len(batch)
            return records == {gained: 3, stays: 5}

        until(read_on, "the other one begins where it was told")


def test_a_deferring_group_waits_for_a_member_that_was_bounced(broker):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    options = {
        "group_id": group,
        "holdfast_policy": "deferred",
        "scheduled_rebalance_max_delay_ms": 60_000,
        "holdfast_first_member": "immediate",
    }
    with made(KafkaConsumer, broker, topic.name, **options) as one, Polling(one):
        with made(KafkaConsumer, broker, topic.name, **options) as other:
            until(
                lambda: (
                    other.poll(50) is not None
                    and len(other.assignment()) == len(one.assignment()) == 2
                ),
                "two each",
            )
            had, kept = other.assignment(), one.assignment()
        generation = one.group_metadata().generation_id
        until(lambda: one.group_metadata().generation_id > generation, "a round without it")
        assert one.assignment() == kept
        with made(KafkaConsumer, broker, topic.name, **options) as again:
            until(lambda: again.poll(50) is not None and again.assignment() == had, "what it had")
            assert one.assignment() == kept


def test_what_is_lost_is_not_committed(broker):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    topic.produce(5)
    place = TopicPartition(topic.name, 0)
    with made(
        KafkaConsumer,
        broker,
        topic.name,
        group_id=group,
        enable_auto_commit=False,
        max_poll_interval_ms=1_000,
    ) as consumer:
        read(consumer, 5)
        until(lambda: consumer.group_metadata().state is MemberState.UNJOINED, "a member that left")
        for offsets in (None, {place: OffsetAndMetadata(5, "", -1)}):
            with pytest.raises(CommitFailedError):
                consumer.commit(offsets)
        assert [r.offset for r in read(consumer, 5)] == list(range(5))
        consumer.commit()
        assert consumer.committed(place) == 5


def test_an_automatic_commit_that_meets_a_loss_raises_nothing(broker):
    topic = Topic(broker.bootstrap, 1)
    topic.produce(5)

    class Slow(Diary):
        """Its first callback lasts until the member has left, for nobody polls meanwhile."""

        def on_partitions_assigned(self, assigned):
            super().on_partitions_assigned(assigned)
            if len(self.calls) < 3:
                left = MemberState.UNJOINED
                until(lambda: consumer.group_metadata().state is left, "a member that left")

    options = {"group_id": fresh("group"), "max_poll_interval_ms": 1_000}
    with made(KafkaConsumer, broker, **options) as consumer:
        diary = Slow()
        consumer.subscribe([topic.name], listener=diary)
        assert [r.offset for r in read(consumer, 5)] == list(range(5))
        assert ("revoked", {0}) in diary.calls or len(diary.calls) > 2


def test_lives_in_one_group_with_the_original(broker):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    with (
        made(kafka.KafkaConsumer, broker, topic.name, group_id=group) as theirs,
        made(KafkaConsumer, broker, topic.name, group_id=group) as ours,
        Polling(theirs) as their_polls,
        Polling(ours) as our_polls,
    ):
        until(lambda: len(theirs.assignment()) == len(ours.assignment()) == 1, "one each")
        assert theirs.assignment() != ours.assignment()
        topic.produce(3)
        until(lambda: len(their_polls.records) == len(our_polls.records) == 3, "three each")
