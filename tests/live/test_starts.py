"""Start offsets of partitions, and what is kept of them: the same sentences for each session.

See :mod:`tests.live.all_clients`.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from tests.live.all_clients import COOPERATIVE, MANUAL, Stage, sentence
from tests.live.clients import word
from tests.live.crew import admin_of, commit_alone
from tests.live.event_recorder import EventRecorder

pytestmark = pytest.mark.broker
LATEST = {"auto_offset_reset": "latest", "auto_commit_interval_ms": 600_000}
DEFERRED = {"holdfast_policy": "deferred", "scheduled_rebalance_max_delay_ms": 600_000}
NONE = {"auto_offset_reset": "none", **MANUAL}


def begins(stage: Stage, member: Any, topic: Any) -> None:
    """Poll until the member knows where each of its partitions begins."""
    if stage.client == "confluent":  # it tells no position before a record
        pending_starts = member.consumer._holdfast.adapter.pending_starts
        stage.until(lambda: not pending_starts.waiting, "the places are known", member)
    else:
        for partition in member.owns():
            stage.until(lambda: member.position(partition) == 0, "its end", member)  # noqa: B023


def bounced(stage: Stage, **keys: Any) -> None:
    """A member of two is away while the first records of all partitions come."""
    topic = stage.topic(4)
    one = stage.member(topic, **LATEST, **keys, client_id="one")
    other = stage.member(topic, **LATEST, **keys, client_id="other")
    stage.share(topic, one, other)
    for member in (one, other):
        begins(stage, member, topic)
    other.close()
    topic.produce(5)
    back = stage.member(topic, **LATEST, **keys, client_id="other")
    wanted = {(p, at) for p in range(4) for at in range(5)}
    stage.until(lambda: wanted <= {*one.records, *back.records}, "every record", one, back)


@sentence()
def test_a_bounce_misses_nothing_of_partitions_that_were_empty(stage):
    bounced(stage, **COOPERATIVE)


@sentence()
def test_a_deferred_bounce_misses_nothing_of_partitions_that_were_empty(stage):
    bounced(stage, **DEFERRED)


@pytest.mark.every
@sentence()
def test_an_eager_bounce_misses_nothing_of_partitions_that_were_empty(stage):
    bounced(stage, partition_assignment_strategy="range")


@sentence()
def test_the_only_member_that_restarts_misses_nothing_of_a_partition_that_was_empty(stage):
    topic = stage.topic(2)
    member = stage.owner(topic, **LATEST)
    begins(stage, member, topic)
    member.close()
    topic.produce(5)
    later = stage.member(topic, **LATEST)
    assert stage.read(later, 10) == [(p, at) for p in range(2) for at in range(5)]


@pytest.mark.every
@sentence()
def test_a_member_that_unsubscribes_keeps_where_an_empty_partition_began(stage):
    topic = stage.topic(1)
    member = stage.owner(topic, **LATEST)
    begins(stage, member, topic)
    member.unsubscribe()
    if stage.client == "confluent":  # its next calls end the membership
        stage.until(lambda: member.session is None, "the end", member)
    topic.produce(5)
    later = stage.member(topic, **LATEST)
    assert stage.read(later, 5) == [(0, at) for at in range(5)]


@pytest.mark.every
@sentence(client_names=("confluent",))
def test_a_program_that_stores_offsets_itself_keeps_where_an_empty_partition_began(stage):
    topic = stage.topic(1)
    member = stage.owner(topic, **LATEST, enable_auto_offset_store=False)
    begins(stage, member, topic)
    member.close()
    topic.produce(5)
    assert stage.read(stage.member(topic, **LATEST), 5) == [(0, at) for at in range(5)]


@sentence(client_names=("confluent",), originals=("confluent",))
def test_a_commit_of_what_is_stored_leaves_out_where_partitions_began(stage):
    topic = stage.topic(2)
    member = stage.owner(topic, **MANUAL)
    stage.says("nothing was read", stage.refused(member.commit))
    topic.produce(1)
    stage.read(member, 2)
    member.commit()
    assert [member.committed(p) for p in (0, 1)] == [1, 1]


# Errors of one partition


def polled(stage: Stage, member: Any, n: int) -> list[str]:
    """Poll so many times; the words of the errors."""
    errors = []
    for _ in range(n):
        try:
            member.poll(0.1, 1 if stage.client == "confluent" else 500)  # its errors are records
        except Exception as error:
            errors.append(word(error))
    return errors


def fails_once(stage: Stage, member: Any, wanted: int) -> list[str]:
    """Poll until so many records are there and one partition has failed, and a while longer."""
    errors: list[str] = []
    stage.until(
        lambda: (
            errors.extend(polled(stage, member, 1)) or (len(member.records) >= wanted and errors)
        ),
        f"{wanted} records and an error",
    )
    return errors + polled(stage, member, 20)


def out_of_range(stage: Stage, topic: Any, partition: int) -> None:
    """Commit 3 for every partition, and delete records of one beyond that."""
    starts = {(topic.name, p): 3 for p in range(topic.n_partitions)}
    commit_alone(stage.bootstrap, stage.group, starts)
    gone = TopicPartition(topic.name, partition, 10)
    admin_of(stage.bootstrap).delete_records([gone])[gone].result(60)


@sentence(client_names=("consumer", "confluent"))
def test_a_partition_out_of_range_fails_once_and_the_others_are_read(stage):
    topic = stage.topic(4, 20)
    out_of_range(stage, topic, 0)
    member = stage.member(topic, **NONE)
    errors = fails_once(stage, member, 51)
    assert len(errors) == 1, errors
    assert sorted(member.records) == [(p, at) for p in (1, 2, 3) for at in range(3, 20)]


@sentence(client_names=("consumer", "aiokafka", "kafka"))
def test_a_seek_revives_a_partition_that_was_out_of_range(stage):
    topic = stage.topic(2, 20)
    out_of_range(stage, topic, 0)
    member = stage.member(topic, **NONE)
    fails_once(stage, member, 17)
    member.seek(0, 15)
    stage.until(lambda: (0, 19) in member.records, "what it has sought", member)
    assert [at for p, at in member.records if p == 0] == [15, 16, 17, 18, 19]
    topic.produce(1)
    stage.until(lambda: {(0, 20), (1, 20)} <= {*member.records}, "what is new", member)


@sentence(client_names=("consumer", "confluent"))
def test_a_partition_that_was_never_committed_fails_once_and_the_others_are_read(stage):
    topic = stage.topic(2, 5)
    first = stage.owner(topic, **MANUAL)
    first.commit_at({1: 2})
    first.close()
    member = stage.member(topic, **NONE)
    errors = fails_once(stage, member, 3)
    assert len(errors) == 1, errors
    assert member.records == [(1, 2), (1, 3), (1, 4)]
    if stage.client == "consumer":  # librdkafka's refuses the seek, as the original's
        member.seek(0, 1)
        assert stage.read(member, 4) == [(0, 1), (0, 2), (0, 3), (0, 4)]


@sentence(client_names=("consumer",))
def test_a_callback_chooses_where_a_partition_begins_that_was_never_committed(stage):
    topic, recorder = stage.topic(1, 5), EventRecorder()
    member = stage.alone(topic, **NONE)
    recorder.inside["assigned"] = lambda _: member.seek(0, 3)
    member.subscribe([topic.name], recorder)
    assert stage.read(member, 2) == [(0, 3), (0, 4)]


@sentence(client_names=("consumer",))
def test_a_partition_fails_again_where_it_comes_back_and_is_paused_as_before(stage):
    topic = stage.topic(2, 20)
    out_of_range(stage, topic, 0)
    member = stage.member(topic, **NONE, **COOPERATIVE)
    assert len(fails_once(stage, member, 17)) == 1
    member.pause(0)
    member.seek(0, 12)
    assert polled(stage, member, 5) == []
    assert {p for p, _ in member.records} == {1}
    member.resume(0)
    stage.until(lambda: (0, 19) in member.records, "what it has sought", member)
    other = stage.member(topic, **NONE, **COOPERATIVE)
    errors: list[str] = []

    def is_shared() -> bool:
        for one in (member, other):
            errors.extend(polled(stage, one, 1))
        return len(member.owns()) == len(other.owns()) == 1

    stage.until(is_shared, "one partition each")
    errors += polled(stage, other, 10)
    moved = other.owns() == {0}
    assert len(errors) == moved, "it fails in its new owner's hand, once"
