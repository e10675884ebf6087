"""Rounds of a group, and what continues meanwhile: the same sentences for each session.

See :mod:`tests.live.all_clients`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future
from contextlib import ExitStack

import pytest
from tests.live.all_clients import COOPERATIVE, DROP_INS, MANUAL, WITH_KEYWORDS, Stage, sentence
from tests.live.event_recorder import EventRecorder
from tests.live.waiting import until
from tests.suites import further

pytestmark = pytest.mark.broker
NOT_OWNED = {
    "consumer": "LocalProtocolError",
    "confluent": "KafkaException ILLEGAL_GENERATION",
    "aiokafka": "IllegalStateError",
    "kafka": "CommitFailedError",
}
LONGEST_CALLS_S = 10  # where the connections would wait 30 s for a broker


@sentence()
def test_what_stays_keeps_flowing_while_another_member_joins(stage):
    """The other one joins and does not poll again for a while: its round waits for it."""
    topic = stage.topic(4, 50)
    recorder = EventRecorder()
    one = stage.member(topic, recorder, **COOPERATIVE)
    other = stage.member(topic, **COOPERATIVE)
    stage.until(lambda: len(one.records) >= 8, "the first records", one)
    stage.until(lambda: len(one.owns()) == 4 or len(other.owns()) > 0, "a round", one, other)
    n_seen = len(one.records)
    topic.produce(1)
    stage.until(lambda: len(one.records) > n_seen, "records while the other one rests", one)
    stage.share(topic, one, other)
    assert set(recorder.told("revoked")) == set(range(4)) - one.owns() - set(never_had(recorder))
    topic.produce(20)
    wanted = {(p, at) for p in range(4) for at in range(71)}
    stage.until(lambda: wanted == {*one.records, *other.records}, "all", one, other)
    read = one.records + other.records
    assert len(read) == len(wanted), "a record was handed out twice"


def never_had(recorder):
    return set(range(4)) - set(recorder.told("assigned"))


@sentence()
def test_what_stays_goes_on_where_it_is_and_a_commit_of_what_has_gone_is_refused(stage):
    topic, diaries = stage.topic(4, 5), (EventRecorder(), EventRecorder())
    design = {"holdfast_policy": "incremental", "holdfast_incremental_interval_ms": 200}
    one = stage.member(topic, diaries[0], **MANUAL, **design)
    stage.read(one, 20)
    other = stage.member(topic, diaries[1], **MANUAL, **design)
    stage.share(topic, one, other)
    gone, kept = sorted(other.owns()), sorted(one.owns())
    assert diaries[0].told("revoked") == gone, "what stays is never revoked"
    assert diaries[0].told("assigned") == [0, 1, 2, 3]
    assert diaries[1].told("assigned") == gone
    for partition in gone:
        call = lambda p=partition: one.commit_at({p: 3})  # noqa: E731
        assert stage.refused(call) == NOT_OWNED[stage.client]
    one.commit_at(dict.fromkeys(kept, 5))
    assert [one.committed(p) for p in kept] == [5, 5]
    topic.produce(1)
    assert stage.read(one, 2) == [(p, 5) for p in kept], "no position went back"
    if stage.client in DROP_INS:
        assert (
            stage.refused(lambda: one.assign(gone))
            == {
                "confluent": "KafkaException _STATE",
                "aiokafka": "IllegalStateError",
                "kafka": "IllegalStateError",
            }[stage.client]
        )


@sentence()
def test_no_poll_waits_for_where_a_gained_partition_begins(stage):
    topic = stage.topic(2)
    first = stage.owner(topic, **COOPERATIVE)
    second = stage.member(topic, **COOPERATIVE)
    stage.share(topic, first, second)
    (stays,), answer = first.owns(), Future()
    coordinator = first.runtime.coordinator
    asked, coordinator.committed = coordinator.committed, lambda _: answer
    second.close()
    stage.until(lambda: first.owns() == {0, 1}, "both again", first)
    topic.produce(5)
    stage.until(lambda: len(first.records) == 5, "what stays keeps flowing", first)
    assert {p for p, _ in first.records} == {stays}
    answer.set_result({(topic.name, 1 - stays): 2})
    coordinator.committed = asked
    late = {(1 - stays, at) for at in range(2, 5)}
    stage.until(lambda: late < {*first.records}, "the other one", first)
    assert len(first.records) == 8, "it begins where it was told"


@sentence()
def test_a_deferring_group_keeps_partitions_for_the_member_that_comes_back(stage):
    topic = stage.topic(4)
    design = {
        "holdfast_policy": "deferred",
        "scheduled_rebalance_max_delay_ms": 600_000,
        "holdfast_first_member": "immediate",
    }
    one = stage.member(topic, **design)
    other = stage.member(topic, **design)
    stage.share(topic, one, other)
    stage.until(lambda: generation(one) == generation(other), "a settled group", one, other)
    had, kept, before = other.owns(), one.owns(), generation(one)
    other.close()
    stage.until(lambda: generation(one) > before, "a round without it", one)
    assert one.owns() == kept
    again = stage.member(topic, **design)
    stage.until(lambda: again.owns() == had, "what it had", one, again)
    assert one.owns() == kept


def generation(member):
    return member.snapshot.identity.generation


@pytest.mark.parametrize(
    "is_original", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["ours", "original"]
)
def test_a_member_begins_once_a_broker_is_back(broker, cut, is_original):
    """``holdfast.Consumer`` connects in ``subscribe``, which raises without a broker.

    What kafka-python's own ``poll`` does depends on the moment: it may raise
    ``KafkaConnectionError``.
    """
    names = ("confluent", "aiokafka") if is_original else DROP_INS
    with ExitStack() as stack:
        stages = [Stage(broker.bootstrap, name, is_original=is_original) for name in names]
        members = []
        for stage in stages:
            stack.enter_context(stage)
            topic = stage.topic(1, 1)
            stage.bootstrap = f"127.0.0.1:{cut.port}"
            members.append((stage, topic, stage.alone(topic), stage.alone(topic)))
        cut.reset()
        try:
            for stage, topic, one, other in members:
                began = time.monotonic()
                one.does("subscribe", [topic.name])
                other.does("subscribe", [topic.name])
                if stage.client == "aiokafka":
                    with pytest.raises(TimeoutError):
                        one.done(asyncio.wait_for(one.consumer.getone(), 1))
                else:
                    assert one.poll(0.3) == []
                other.close()
                is_slow = is_original and stage.client == "confluent"
                assert is_slow or time.monotonic() - began < LONGEST_CALLS_S
        finally:
            cut.mend()
        for stage, _, one, _ in members:
            assert stage.read(one, 1) == [(0, 0)]


@pytest.mark.parametrize("client", further(["confluent", "aiokafka", "kafka", "consumer"]))
def test_a_leader_names_the_key_that_tells_processes_of_one_host_apart(broker, caplog, client):
    keys = {"holdfast.policy": "deferred"}
    wanted = "one client.id:", "Set holdfast.location,"
    if client in WITH_KEYWORDS:
        wanted = tuple(text.replace(".", "_") for text in wanted)

    def told():
        return [r.getMessage() for r in caplog.records if "one host name" in r.getMessage()]

    with caplog.at_level(logging.WARNING, "holdfast.member"):
        with Stage(broker.bootstrap, client) as apart:
            topic = apart.topic(2)
            first = apart.member(topic, **keys, holdfast_location="first")
            apart.share(topic, first, apart.member(topic, **keys, holdfast_location="second"))
            assert not told()
        with Stage(broker.bootstrap, client) as alike:
            topic = alike.topic(3)
            members = [alike.owner(topic, **keys)]
            for _ in range(2):
                members.append(alike.member(topic, **keys))
                alike.until(lambda: all(m.owns() for m in members), "each owns some", *members)
            until(told, "a warning")
            (said,) = told()
            assert all(text in said for text in wanted)
