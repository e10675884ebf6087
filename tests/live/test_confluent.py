"""What only programs of confluent-kafka see: ``holdfast.confluent.Consumer`` on a real broker.

What every client's programs see is in ``test_sessions.py`` and its neighbours. The original passes
the tests that have a ``kind``, in the slow runs.
"""

import gc
import logging
import threading
import time
from contextlib import closing

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from tests.live.all_clients import sentence
from tests.live.crew import Topic, fresh
from tests.live.test_session_losses import came_back
from tests.live.waiting import PATIENCE_SECONDS, until

from holdfast.confluent import Consumer
from holdfast.members.clients.confluent.state import ConsumerState
from holdfast.members.clients.librdkafka.recreation import serializes_calls

pytestmark = pytest.mark.broker

KINDS = pytest.mark.parametrize(
    "kind",
    [pytest.param(confluent_kafka.Consumer, id="original", marks=pytest.mark.slow), Consumer],
)


@pytest.fixture(scope="module")
def topic(broker):
    return Topic(broker.bootstrap, 2, 10)


def config(broker, **extra):
    callbacks = {key: extra.pop(key) for key in ("on_commit",) if key in extra}
    settings = {key.replace("_", "."): value for key, value in extra.items()} | callbacks
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": fresh("confluent"),
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6_000,
        "log_level": 0,
        **settings,
    }


def read(consumer, n):
    """Messages, until there are so many."""
    found = []
    while len(found) < n:
        found += consumer.consume(n - len(found), 0.5)
    assert not any(message.error() for message in found)
    return found


def committed(consumer, topic):
    wanted = [TopicPartition(topic.name, p) for p in range(topic.n_partitions)]
    return [p.offset for p in consumer.committed(wanted, 10)]


@KINDS
def test_commits_answer_with_partitions_and_on_commit_is_told(broker, topic, kind):
    commits = []
    settings = config(
        broker,
        enable_auto_commit=False,
        on_commit=lambda error, partitions: commits.append((error, partitions)),
    )
    with closing(kind(settings)) as consumer:
        assert consumer.memberid() is None
        consumer.subscribe([topic.name])
        messages = read(consumer, 20)
        assert consumer.memberid()
        done = consumer.commit(messages[0], asynchronous=False)
        assert [(p.topic, p.partition, p.offset, p.error) for p in done] == [
            (topic.name, messages[0].partition(), messages[0].offset() + 1, None)
        ]
        for nothing in ([], [TopicPartition(topic.name, 0)]):  # is not what is stored
            with pytest.raises(KafkaException) as raised:
                consumer.commit(offsets=nothing, asynchronous=False)
            assert raised.value.args[0].code() == KafkaError._NO_OFFSET
        assert 10 not in committed(consumer, topic)
        assert consumer.commit() is None
        until(lambda: consumer.poll(0.1) is None and commits, "on_commit is called")
        assert commits[0][0] is None
        assert {(p.partition, p.offset) for p in commits[0][1]} == {(0, 10), (1, 10)}
        with pytest.raises(KafkaException) as raised:
            consumer.commit(asynchronous=False)
        assert raised.value.args[0].code() == KafkaError._NO_OFFSET
        assert committed(consumer, topic) == [10, 10]


@sentence(client_names=("confluent",))
def test_what_came_back_to_a_program_that_stores_nothing_is_committed_as_far_as_handed_out(stage):
    came_back(stage, enable_auto_offset_store=False)


def test_a_loop_that_does_not_poll_is_reported_by_a_message(broker, topic):
    settings = config(broker, max_poll_interval_ms=2_000, session_timeout_ms=2_000)
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic.name])
        read(consumer, 1)
        threading.Event().wait(3)
        told = consumer.poll(1)
        assert told.error().code() == KafkaError._MAX_POLL_EXCEEDED
        assert (told.partition(), told.value()) == (0, told.error().str().encode())


@KINDS
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_callbacks_change_the_assignment_and_may_raise(broker, topic, kind, strategy):
    done = []

    def on_assign(consumer, partitions):
        for part in partitions:
            part.offset = 7
        change = consumer.assign if strategy == "range" else consumer.incremental_assign
        change(partitions)
        consumer.pause(partitions)
        consumer.resume(partitions)
        done.append(consumer.assignment())
        raise ValueError("from on_assign")

    def on_revoke(consumer, partitions):
        consumer.store_offsets(offsets=[TopicPartition(topic.name, 0, 9)])
        if strategy == "range":
            consumer.unassign()
        else:
            consumer.incremental_unassign(partitions)
        done.append(consumer.assignment())
        raise ValueError("from on_revoke")

    settings = config(
        broker, partition_assignment_strategy=strategy, enable_auto_offset_store=False
    )
    consumer = kind(settings)
    consumer.subscribe([topic.name], on_assign=on_assign, on_revoke=on_revoke)
    with pytest.raises(ValueError, match="from on_assign"):
        while True:
            consumer.poll(1)
    assert len(done[0]) == 2
    for part in consumer.assignment():  # the original has forgotten the offsets by the error
        consumer.seek(TopicPartition(topic.name, part.partition, 7))
    assert {m.offset() for m in read(consumer, 6)} == {7, 8, 9}
    with pytest.raises(ValueError, match="from on_revoke"):
        consumer.close()
    assert done[1:] == [[]]
    with closing(kind({**settings})) as after:
        assert committed(after, topic) == [9, -1001]


@KINDS
def test_stored_offsets_are_committed_now_and_then_and_at_the_end(broker, topic, kind):
    settings = config(broker, enable_auto_offset_store=False, auto_commit_interval_ms=100)
    with closing(kind(settings)) as consumer:
        consumer.subscribe([topic.name])
        messages = read(consumer, 20)
        of_0 = [m for m in messages if m.partition() == 0]
        consumer.store_offsets(of_0[2])
        until(
            lambda: consumer.poll(0.1) is None and committed(consumer, topic) == [3, -1001],
            "what is stored is committed",
        )
        consumer.store_offsets(offsets=[TopicPartition(topic.name, 1, 5)])
    with closing(kind(settings)) as consumer:
        assert committed(consumer, topic) == [3, 5]


@KINDS
def test_a_manual_assignment_is_the_originals(broker, topic, kind):
    settings = config(broker, enable_partition_eof=True, auto_commit_interval_ms=100)
    with closing(kind(settings)) as consumer:
        consumer.assign([TopicPartition(topic.name, 0, 5)])
        assert [m.offset() for m in consumer.consume(5, 10)] == [5, 6, 7, 8, 9]
        assert consumer.poll(10).error().code() == KafkaError._PARTITION_EOF
        with pytest.raises(KafkaException) as raised:
            consumer.incremental_assign([TopicPartition(topic.name, 0)])
        assert raised.value.args[0].code() == KafkaError._CONFLICT
        until(
            lambda: consumer.poll(0.1) is None and committed(consumer, topic)[0] == 10,
            "it is committed now and then",
        )
        consumer.incremental_assign([TopicPartition(topic.name, 1, 9)])
        assert consumer.poll(10).offset() == 9
    with closing(kind(settings)) as consumer:
        assert committed(consumer, topic) == [10, 10]


@KINDS
def test_a_note_beside_an_offset_is_read_as_it_was_written(broker, topic, kind):
    told = []
    settings = config(
        broker,
        enable_auto_commit=False,
        on_commit=lambda error, partitions: told.append((error, partitions[0].metadata)),
    )
    with closing(kind(settings)) as consumer, closing(confluent_kafka.Consumer(settings)) as reader:
        consumer.subscribe([topic.name])
        read(consumer, 20)
        for note in (None, "", "x", "a longer note", "mit Umlaut: \u00fc"):
            noted = TopicPartition(topic.name, 0, 3, *([] if note is None else [note]))
            done = consumer.commit(offsets=[noted], asynchronous=False)
            assert (done[0].metadata or "") == (note or "")
            assert reader.committed([noted], 10)[0].metadata == note
        consumer.commit(offsets=[noted])
        until(lambda: consumer.poll(0.1) is None and told, "on_commit is called")
        assert told == [(None, note)]


@KINDS
def test_a_transaction_takes_the_group_of_its_consumer(broker, topic, kind):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": fresh("t")})
    producer.init_transactions(20)
    group = fresh("confluent")
    settings = config(broker, enable_auto_commit=False, group_id=group)
    with closing(kind(settings)) as consumer:
        consumer.subscribe([topic.name])
        read(consumer, 20)
        old = consumer.consumer_group_metadata()
        producer.begin_transaction()
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, old, 20)
        producer.commit_transaction(20)
        assert committed(consumer, topic) == [10, 10]
    with closing(kind(settings)) as consumer:
        consumer.subscribe([topic.name])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the next one owns it")
        producer.begin_transaction()
        with pytest.raises(KafkaException):
            producer.send_offsets_to_transaction([TopicPartition(topic.name, 0, 3)], old, 20)
        producer.abort_transaction(20)


@KINDS
def test_a_topic_that_does_not_exist_is_a_message_with_the_original_code(kind, broker):
    name = fresh("nowhere")
    with closing(kind(config(broker))) as consumer:
        consumer.subscribe([name])
        message = consumer.poll(PATIENCE_SECONDS)
        assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert isinstance(message, Message)
        assert len(message) == len(message.value())
        assert message.value().decode() == message.error().str()
        assert message.error().str().startswith(f"Subscribed topic not available: {name}")
        assert message.timestamp() == (TIMESTAMP_NOT_AVAILABLE, -1)
        assert (message.topic(), message.partition()) == (name, 0)
        beside = ("key", "headers", "offset", "leader_epoch", "latency")
        assert [getattr(message, name)() for name in beside] == [None] * len(beside)
        for call in (consumer.commit, consumer.store_offsets):
            with pytest.raises(KafkaException, match="message with error") as raised:
                call(message)
            assert raised.value.args[0].code() == KafkaError._INVALID_ARG
        names = ("value", "key", "headers")
        for name, value in zip(names, (b"text", b"key", [("a", b"b")]), strict=True):
            getattr(message, f"set_{name}")(value)
            assert getattr(message, name)() == value


def test_a_consumer_that_is_forgotten_ends_its_threads(broker, topic):
    def threads():
        return [t for t in threading.enumerate() if group in t.name]

    class Program:
        """Its callback refers to it, and it to the consumer."""

        def __init__(self):
            self.consumer = Consumer(config(broker, group_id=group))
            self.consumer.subscribe([topic.name], on_assign=self.note)

        def note(self, *_):
            pass

    group = fresh("confluent")
    program = Program()
    read(program.consumer, 1)
    assert threads()
    del program
    gc.collect()
    until(lambda: not threads(), "its threads end")


def test_librdkafka_is_not_left_alone_with_the_question_where_to_start(broker, topic):
    """It may never ask again, and then fetches nothing that is assigned from then on."""
    said = []
    log = logging.Logger("librdkafka")
    log.addHandler(logging.Handler())
    log.handlers[0].emit = lambda record: said.append(record.getMessage())
    with closing(
        Consumer({**config(broker, debug="cgrp"), "log_level": 7}, logger=log)
    ) as consumer:
        consumer.subscribe([topic.name])
        read(consumer, 20)
        assert [p.offset for p in consumer.assignment()] == [OFFSET_STORED] * 2  # as the original
    assert any("assignment" in line for line in said)
    assert not [line for line in said if "Fetching committed offsets" in line]


@KINDS
def test_a_commit_of_all_tells_what_had_nothing_to_commit(kind, broker, topic):
    with closing(kind(config(broker, enable_auto_commit=False))) as consumer:
        consumer.subscribe([topic.name])
        read(consumer, 20)
        consumer.commit(offsets=[TopicPartition(topic.name, 1, 10)], asynchronous=False)
        told = consumer.commit(asynchronous=False)
    assert {p.partition: p.offset for p in told} == {0: 10, 1: OFFSET_INVALID}


@KINDS
@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
def test_the_commit_of_the_end_is_told(kind, ends, broker, topic):
    told = []

    def on_commit(error, partitions):
        told.append((error, {p.partition: p.offset for p in partitions}))

    settings = config(broker, auto_commit_interval_ms=600_000, on_commit=on_commit)
    with closing(kind(settings)) as consumer:
        consumer.subscribe([topic.name])
        read(consumer, 20)
        if ends == "unsubscribe":
            consumer.unsubscribe()
            until(lambda: consumer.poll(0.05) is None and told, "the commit is told")
    assert told == [(None, {0: 10, 1: 10})]


QUESTIONS = {
    "position": lambda consumer, at: consumer.position([at]),
    "list_topics": lambda consumer, at: consumer.list_topics(at.topic, 10),
    "commit": lambda consumer, at: consumer.commit(offsets=[at], asynchronous=False),
    "committed": lambda consumer, at: consumer.committed([at], 10),
    "watermarks": lambda consumer, at: consumer.get_watermark_offsets(at, 10),
}


@pytest.mark.skipif(not serializes_calls, reason="confluent-kafka's own calls wait since 2.16 only")
@KINDS
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_waits_for_the_poll_of_another_thread(
    kind, question, broker, topic, monkeypatch
):
    serve, polled, begun = ConsumerState.serve, [], threading.Event()

    def serve_slowly(side):
        time.sleep(0.02)  # between two slices librdkafka would let others in
        return serve(side)

    with closing(kind(config(broker, enable_auto_commit=False))) as consumer:
        consumer.subscribe([topic.name])
        read(consumer, 20)
        monkeypatch.setattr(ConsumerState, "serve", serve_slowly)

        def poll():
            begun.set()
            polled.append(consumer.poll(2))

        thread = threading.Thread(target=poll)
        thread.start()
        begun.wait(10)
        time.sleep(0.3)  # the poll is under way
        assert polled == []
        QUESTIONS[question](consumer, TopicPartition(topic.name, 0, 10))
        assert polled == [None]
        thread.join()
