"""A member is removed from its group, or fails: the same sentences for each session.

An administrator removes a member, which is the quickest of all losses: the answer to its next
request reports it. See :mod:`tests.live.all_clients`.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from tests.live.all_clients import COOPERATIVE, DROP_INS, MANUAL, sentence
from tests.live.clients import word
from tests.live.crew import Held
from tests.live.event_recorder import EventRecorder

from holdfast.core.machine import actions

pytestmark = pytest.mark.broker
SELDOM = {"auto_commit_interval_ms": 600_000}
LOST = {
    "consumer": "RemoteProtocolError UNKNOWN_MEMBER_ID",
    "confluent": "KafkaException UNKNOWN_MEMBER_ID",
    "aiokafka": "CommitFailedError",
    "kafka": "CommitFailedError",
}

IN_COMMON = {
    "consumer": "RemoteProtocolError INCONSISTENT_GROUP_PROTOCOL",
    "confluent": "KafkaException INCONSISTENT_GROUP_PROTOCOL",
    "aiokafka": "InconsistentGroupProtocolError",
    "kafka": "InconsistentGroupProtocolError",
}


def taken_out(stage, member):
    """Take the member out, and wait until it has heard."""
    member_id = member.snapshot.identity.member_id
    stage.remove(member_id)
    stage.until(lambda: member.snapshot.identity.member_id != member_id, "it hears of its end")


@sentence()
def test_what_was_handed_out_before_a_loss_is_never_committed(stage):
    topic = stage.topic(2, 5)
    member = stage.member(topic, **MANUAL)
    before = stage.read(member, 10)
    taken_out(stage, member)
    for call in (member.commit, lambda: member.commit_at({0: 3}), lambda: member.commit_at({1: 5})):
        assert stage.refused(call) == LOST[stage.client]
    del member.records[:]
    stage.until(lambda: member.owns() == {0, 1}, "it has joined again", member)
    stage.until(lambda: len(member.records) >= 10, "everything again", member)
    assert sorted(member.records) == before
    assert [member.committed(p) for p in (0, 1)] == [None, None]
    member.commit()
    assert [member.committed(p) for p in (0, 1)] == [5, 5]


@sentence()
def test_what_came_back_is_committed_only_as_far_as_it_was_handed_out_again(stage):
    came_back(stage)


def came_back(stage, **keys):
    """A partition goes to another member and comes back: its term is a new one."""
    topic = stage.topic(2, 5)
    first = stage.member(topic, **MANUAL, **COOPERATIVE, **keys)
    stage.read(first, 10)
    first.commit_at({0: 5, 1: 5})
    second = stage.member(topic, **MANUAL, **COOPERATIVE)
    stage.share(topic, first, second)
    (away,) = second.owns()
    second.close()
    stage.until(lambda: first.owns() == {0, 1}, "it came back", first)
    topic.produce(5)
    first.seek(away, 7)
    first.commit_at({away: 7})
    assert first.committed(away) == 7
    stage.until(lambda: (away, 9) in first.records, "what is new", first)
    assert (away, 6) not in first.records
    for offset in (11, 4):
        assert stage.refused(lambda: first.commit_at({away: offset})) == LOST[stage.client]  # noqa: B023
    first.commit_at({away: 10})
    assert first.committed(away) == 10
    first.seek(away, 0)
    stage.until(lambda: (away, 0) in first.records[10:], "it goes back", first)
    first.commit_at({away: 1})
    assert first.committed(away) == 1


@sentence(
    originals=DROP_INS,
    ours={"consumer": {"calls": [["assigned", 2], ["revoked", 2], ["assigned", 2]]}},
)
def test_a_listener_without_a_callback_for_losses_is_told_of_a_revocation(stage):
    stage.says("calls", calls_of_a_loss(stage, EventRecorder(hears_losses=False)))


@sentence(
    originals=("confluent", "kafka"),
    ours={
        "consumer": {"calls": [["assigned", 2], ["lost", 2], ["assigned", 2]]},
        # aiokafka's listener has no such callback; ours calls it where there is one
        "aiokafka": {"calls": [["revoked", 0], ["assigned", 2], ["lost", 2], ["assigned", 2]]},
    },
)
def test_a_listener_with_a_callback_for_losses_is_told_of_a_loss(stage):
    stage.says("calls", calls_of_a_loss(stage, EventRecorder()))


def calls_of_a_loss(stage, recorder):
    topic = stage.topic(2, 5)
    member = stage.member(topic, recorder, **MANUAL, partition_assignment_strategy="range")
    stage.read(member, 10)
    stage.remove_all()
    stage.until(lambda: recorder.told("assigned") == [0, 0, 1, 1], "it joins again", member)
    return recorder.counts()


@sentence()
def test_a_commit_tells_a_member_that_it_was_taken_out(stage):
    topic, recorder = stage.topic(2, 10), EventRecorder()
    member = stage.member(topic, recorder, **MANUAL)
    stage.read(member, 20)
    beats = Held(member.runtime, actions.SendHeartbeat)  # or a heartbeat may hear of it first
    stage.remove(member.snapshot.identity.member_id)
    assert stage.refused(lambda: member.commit_at({0: 3})) == LOST[stage.client]
    beats.let_go()
    stage.until(lambda: recorder.told("lost") == [0, 1], "its partitions are lost", member)
    stage.until(lambda: member.owns() == {0, 1}, "it joins again", member)
    assert member.committed(0) is None


@sentence()
def test_an_automatic_commit_that_meets_a_loss_raises_nothing(stage):
    topic = stage.topic(2, 5)
    member = stage.member(topic, **SELDOM)
    before = stage.read(member, 10)
    taken_out(stage, member)
    del member.records[:]
    stage.until(lambda: len(member.records) >= 10, "everything again", member)
    assert sorted(member.records) == before
    member.close()
    other = stage.owner(topic, **MANUAL)
    assert [other.committed(p) for p in (0, 1)] == [5, 5]


@sentence()
def test_a_callback_may_outlive_its_membership(stage):
    topic, recorder = stage.topic(1, 5), EventRecorder()
    member = stage.alone(topic)

    def outlive(_):
        recorder.inside.clear()
        taken_out(stage, member)

    recorder.inside["assigned"] = outlive
    member.subscribe([topic.name], recorder)
    stage.until(lambda: recorder.told("assigned") == [0, 0], "it is assigned again", member)
    stage.until(lambda: {(0, at) for at in range(5)} <= {*member.records}, "all is read", member)
    assert recorder.told("lost") == [0]


@sentence(originals=DROP_INS)
def test_a_member_that_does_not_poll_leaves_and_comes_back(stage):
    topic = stage.topic(2, 5)
    short = {"max_poll_interval_ms": 2_000, "session_timeout_ms": 2_000}
    recorder = EventRecorder()
    idle = stage.owner(topic, recorder, **MANUAL, **short)
    busy = stage.owner(topic, **MANUAL)
    stage.until(lambda: len({*busy.records}) == 10, "it reads all", busy)
    stage.share(topic, idle, busy)
    if not stage.is_original:
        assert {*recorder.told("lost"), *recorder.told("revoked")} == {0, 1}, recorder.calls


@sentence(
    originals=("confluent", "kafka"),  # aiokafka's polls for ever
    ours={
        "consumer": {"error": "RemoteProtocolError FENCED_INSTANCE_ID"},
        "aiokafka": {"error": "UnknownError"},
    },
)
def test_a_fenced_member_is_reported_and_the_other_one_has_all(stage):
    topic = stage.topic(2, 5)
    first = stage.member(topic, group_instance_id="same")
    stage.read(first, 10)
    stage.owner(topic, group_instance_id="same")
    stage.says("error", stage.error_told_by(first))


@sentence()
def test_a_fenced_member_never_takes_its_name_back(stage):
    """Whoever joins again fences the other one, which joins again."""
    topic = stage.topic(2, 5)
    first = stage.member(topic, group_instance_id="same")
    stage.read(first, 10)
    second = stage.owner(topic, group_instance_id="same")
    errors = Counter()

    def poll(client):
        try:
            client.poll(0.1)
        except Exception as error:
            errors[client is first, word(error)] += 1

    stage.until(lambda: poll(first) or poll(second) or errors, "it is told")
    began = time.monotonic()
    while time.monotonic() - began < 3:
        poll(first)
        poll(second)
        time.sleep(0.1)
    ((is_first, _),) = errors
    assert is_first, errors
    assert second.owns() == {0, 1}
    if stage.client == "confluent":  # its errors are records, and librdkafka tells a fatal one once
        assert errors.total() == 1
    first.unsubscribe()
    if stage.client != "confluent":  # one that says so takes it back
        first.subscribe([topic.name])
        stage.until(lambda: poll(first) or poll(second) or first.owns() == {0, 1}, "it is back")


@sentence()
def test_a_member_that_has_nothing_in_common_with_its_group_is_told(stage):
    topic = stage.topic(1)
    stage.owner(topic)
    other = stage.member(topic, holdfast_policy="deferred")
    assert stage.error_told_by(other) == IN_COMMON[stage.client]
