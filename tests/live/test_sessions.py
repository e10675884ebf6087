"""Reads, commits, seeks and callbacks of programs of any client: the same sentences for each.

See :mod:`tests.live.all_clients`. The originals' answers are in ``originals.json``.
"""

from __future__ import annotations

import pytest
from tests.live.all_clients import COOPERATIVE, DROP_INS, MANUAL, sentence
from tests.live.crew import fresh
from tests.live.event_recorder import EventRecorder

from holdfast.metrics import metrics_of

pytestmark = pytest.mark.broker
BOTH = [(p, at) for p in (0, 1) for at in range(5)]


@sentence(originals=DROP_INS)
def test_a_member_goes_on_behind_what_the_group_has_committed(stage):
    topic = stage.topic(2, 5)
    member = stage.member(topic, **MANUAL)
    assert stage.read(member, 10) == BOTH
    assert member.owns() == {0, 1}
    assert [member.position(p) for p in (0, 1)] == [5, 5]
    assert [member.committed(p) for p in (0, 1)] == [None, None]
    member.commit_at({0: 2})
    assert [member.committed(p) for p in (0, 1)] == [2, None]
    member.commit()
    assert [member.committed(p) for p in (0, 1)] == [5, 5]
    member.commit_at({1: 3})
    member.close()
    assert stage.read(stage.member(topic, **MANUAL), 2) == [(1, 3), (1, 4)]


@sentence(originals=DROP_INS)
def test_what_was_read_is_committed_now_and_then_and_at_the_end(stage):
    topic = stage.topic(2, 5)
    member = stage.member(topic)
    stage.read(member, 10)
    stage.until(lambda: [member.committed(p) for p in (0, 1)] == [5, 5], "commits", member)
    member.close()
    seldom = {"auto_commit_interval_ms": 600_000}
    member = stage.member(topic, **seldom)
    topic.produce(1)
    assert stage.read(member, 2) == [(0, 5), (1, 5)]
    assert [member.committed(p) for p in (0, 1)] == [5, 5]
    member.close()
    last = stage.owner(topic, **seldom)
    assert [last.committed(p) for p in (0, 1)] == [6, 6]


@sentence(originals=DROP_INS)
def test_seeks_and_looks_things_up(stage):
    topic = stage.topic(2, 5)
    member = stage.member(topic, **MANUAL)
    stage.read(member, 10)
    member.seek(0, 3)
    assert stage.read(member, 2) == [(0, 3), (0, 4)]
    member.seek_to_beginning(0)
    assert stage.read(member, 5) == BOTH[:5]
    assert member.ends(0) == (0, 5)
    member.seek(0, 1)
    member.seek_to_end(0)  # some clients find the end later
    del member.records[:]
    stage.until(
        lambda: topic.produce(1) or 0 in {p for p, _ in member.records}, "a new record", member
    )
    assert min(at for p, at in member.records if p == 0) >= 5
    assert (member.at_time(0, 1), member.at_time(1, 1 << 50)) == (0, None)
    assert member.n_partitions() == 2


@sentence(originals=DROP_INS)
def test_what_is_paused_is_not_handed_out_and_the_rest_is(stage):
    topic = stage.topic(2, 5)
    member = stage.member(topic)
    stage.read(member, 10)
    member.pause(1)
    topic.produce(3)
    assert stage.read(member, 3) == [(0, 5), (0, 6), (0, 7)]
    assert member.poll(0.3) == []
    member.resume(1)
    assert stage.read(member, 3) == [(1, 5), (1, 6), (1, 7)]


@sentence()
def test_a_pause_stays_across_a_rebalance_that_leaves_the_partition_here(stage):
    topic = stage.topic(4)
    one = stage.owner(topic, **COOPERATIVE)
    one.pause(0)
    other = stage.member(topic, **COOPERATIVE)
    stage.share(topic, one, other)
    (open_one,) = one.owns() - {0}
    assert 0 in one.owns()
    topic.produce(5)
    assert {p for p, _ in stage.read(one, 5)} == {open_one}
    if stage.client != "confluent":  # it does not tell
        assert {p.partition for p in one.does("paused")} == {0}
    one.resume(0)
    assert stage.read(one, 5) == [(0, at) for at in range(5)]


@sentence(
    originals=DROP_INS,
    ours={
        "consumer": {
            "of the first": [["assigned", 2], ["revoked", 2], ["assigned", 1]],
            "of the second": [["assigned", 1]],
            "reads again": True,
            "at the end": [["revoked", 1]],
        }
    },
)
def test_an_eager_listener_is_told_of_every_round(stage):
    topic = stage.topic(2, 3)
    diaries = EventRecorder(), EventRecorder()
    eager = {**MANUAL, "partition_assignment_strategy": "range"}
    one = stage.member(topic, diaries[0], **eager)
    stage.read(one, 6)
    other = stage.member(topic, diaries[1], **eager)
    stage.share(topic, one, other)
    stage.says("of the first", diaries[0].counts())
    told = diaries[1].counts()
    if stage.is_original and stage.client == "kafka":  # it may be told the same for ever
        told = told[:2]
    stage.says("of the second", told)
    (kept,) = one.owns()
    topic.produce(1)
    stage.until(lambda: (kept, 3) in one.records, "what is new", one, other)
    stage.says("reads again", one.records.count((kept, 0)) > 1)
    del diaries[0].calls[:]
    one.close()
    stage.says("at the end", diaries[0].counts())


@sentence(originals=("confluent", "aiokafka"))
def test_a_callback_asks_where_a_partition_begins_and_chooses_another_place(stage):
    topic = stage.topic(1, 6)
    recorder, seen = EventRecorder(), []
    member = stage.alone(topic, **MANUAL)

    def begin(_):
        seen.append(member.committed(0))
        member.begin_at(0, 4)

    recorder.inside["assigned"] = begin
    member.subscribe([topic.name], recorder)
    assert stage.read(member, 2) == [(0, 4), (0, 5)]
    assert seen == [None]


@sentence()
def test_a_callback_of_a_revocation_commits(stage):
    topic = stage.topic(2, 5)
    recorder = EventRecorder()
    one = stage.member(topic, recorder, **MANUAL, **COOPERATIVE)
    stage.read(one, 10)
    recorder.inside["revoked"] = lambda _: recorder.inside.clear() or one.commit()
    other = stage.member(topic, **MANUAL, **COOPERATIVE)
    stage.share(topic, one, other)
    (gone,) = other.owns()
    assert recorder.told("revoked") == [gone]
    assert other.committed(gone) == 5
    topic.produce(1)
    assert stage.read(other, 1) == [(gone, 5)]


@sentence(
    originals=DROP_INS,
    ours={
        "consumer": {
            "leaves": [["assigned", 2], ["revoked", 2]],
            "comes back": [["assigned", 2]],
        },
        # aiokafka's is told again of the partitions from before it left
        "aiokafka": {"comes back": [["revoked", 0], ["assigned", 2]]},
        # kafka-python's is told of a revocation by `close`, and not by `unsubscribe`
        "kafka": {"leaves": [["revoked", 0], ["assigned", 2], ["revoked", 2]]},
    },
)
def test_unsubscribing_leaves_and_subscribing_joins_again(stage):
    topic = stage.topic(2, 5)
    recorder = EventRecorder()
    member = stage.member(topic, recorder, auto_commit_interval_ms=600_000)
    stage.read(member, 10)
    member.unsubscribe()
    other = stage.member(topic)
    if stage.client == "confluent":  # its next calls end the membership
        stage.until(lambda: len(recorder.calls) > 1, "the end", member)
    stage.until(lambda: other.owns() == {0, 1}, "the other member owns all", other)
    stage.says("leaves", recorder.counts())
    if not stage.is_original:  # the leaving of some overtakes their last commit
        assert [other.committed(p) for p in (0, 1)] == [5, 5]
    other.close()
    del recorder.calls[:]
    member.subscribe([topic.name], recorder)
    stage.share(topic, member)
    stage.says("comes back", recorder.counts())


@sentence(client_names=DROP_INS, originals=DROP_INS)
def test_a_program_chooses_its_partitions_itself(stage):
    topic = stage.topic(2, 4)
    chosen = stage.alone(topic, **MANUAL)
    chosen.assign([1])
    assert stage.read(chosen, 4) == [(1, at) for at in range(4)]
    chosen.commit_at({1: 3})
    chosen.close()
    chosen = stage.alone(topic)
    chosen.assign([1])
    assert stage.read(chosen, 1) == [(1, 3)]
    stage.until(lambda: chosen.committed(1) == 4, "it is committed now and then", chosen)
    chosen.unsubscribe()
    stage.says("has after it unsubscribed", len(chosen.owns()))
    chosen.assign([0])
    assert stage.read(chosen, 4) == [(0, at) for at in range(4)]
    chosen.close()
    member = stage.owner(topic, **MANUAL)
    assert [member.committed(p) for p in (0, 1)] == [4, 4]
    member.unsubscribe()
    stage.until(
        lambda: member.owns() == set(), "it has left", *[member][: stage.client == "confluent"]
    )
    member.assign([1])
    topic.produce(1)
    assert stage.read(member, 1) == [(1, 4)]


@sentence(client_names=DROP_INS, originals=DROP_INS)
def test_a_program_that_subscribes_may_not_assign(stage):
    topic = stage.topic(1)
    member = stage.owner(topic, **COOPERATIVE)
    stage.says("assign", stage.refused(lambda: member.assign([0])))


@sentence(originals=("confluent", "aiokafka"))  # kafka-python's misses topics on a busy machine
def test_a_pattern_is_followed(stage):
    prefix = fresh("pattern")
    member = stage.alone()
    member.subscribe(f"^{prefix}-.*")
    names = [f"{prefix}-{letter}" for letter in "ab"]
    for name in names:
        topic = stage.topic(1, 1, name)
        stage.until(lambda: topic.name in member.topics, "a record of it", member)  # noqa: B023


@sentence()
def test_new_partitions_of_a_topic_are_read(stage):
    topic = stage.topic(2)
    member = stage.owner(topic)
    topic.grow(4)
    stage.until(lambda: member.owns() == {0, 1, 2, 3}, "the new ones, too", member)
    topic.produce(1)
    assert stage.read(member, 4) == [(p, 0) for p in range(4)]


@sentence(
    originals=DROP_INS,
    ours={"consumer": {"error": "RemoteProtocolError"}},
)
def test_no_committed_offset_and_no_reset_is_an_error(stage):
    topic = stage.topic(1, 1)
    stage.says("error", stage.error_told_by(stage.member(topic, auto_offset_reset="none")))
    if stage.client == "consumer":
        assert all(word in str(stage.error) for word in (f"{topic.name}-0", "auto.offset.reset"))


@sentence(client_names=DROP_INS)
def test_members_with_and_without_holdfast_are_in_one_group(stage):
    topic = stage.topic(2)
    ours = stage.member(topic)
    stage.is_original = True
    theirs = stage.member(topic)
    stage.share(topic, ours, theirs)
    topic.produce(3)
    for member in (ours, theirs):
        (owned,) = member.owns()
        stage.until(
            lambda: {(owned, at) for at in range(3)} <= {*member.records},  # noqa: B023
            "its records",
            ours,
            theirs,
        )


@sentence()
def test_heartbeats_go_on_while_the_application_asks_for_nothing(stage):
    topic = stage.topic(1)
    member = stage.owner(topic)
    for _ in range(2):
        thread = member.runtime.member_thread
        seen = thread.heartbeat_answered_at
        stage.until(lambda: thread.heartbeat_answered_at > seen, "a heartbeat")  # noqa: B023


@sentence()
def test_every_client_tells_the_same_numbers(stage):
    topic = stage.topic(1)
    member = stage.owner(topic)
    now = metrics_of(member.consumer)
    assert (now.assigned_partitions, now.is_leader, now.waiting) == (1, True, ())
    assert min(now.rebalance_total, now.join_total, now.sync_total) >= 1
    assert 0 < now.join_time_max <= now.rebalance_latency_max
