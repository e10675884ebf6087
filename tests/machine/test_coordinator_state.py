"""The coordinator's state: static members (KIP-345), its records, and their replay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machine.clients import (
    COMPLETING,
    EMPTY,
    NONE,
    PREPARING,
    REBALANCE_MS,
    SESSION_MS,
    STABLE,
    Group,
)

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.coordinator.coordinator import Coordinator
from holdfast.core.machine.coordinator.group import (
    Durable,
    commit_record,
    group_record,
)
from holdfast.core.machine.events import SyncAnswered
from holdfast.core.wire.layouts.offsets_records import decode_record, encode_record
from holdfast.errors import WireError

NAMES = st.text(st.characters(codec="utf-8"), max_size=30)
INT32S, INT64S = (st.integers(-(2**n), 2**n - 1) for n in (31, 63))


class TestStaticMembers:
    def test_a_static_member_needs_no_second_join(self):
        g = Group()
        (answer,) = g.join("a", instance_id="i")
        assert (answer.error, answer.generation) == (NONE, 1)

    def test_it_comes_back_without_a_round_and_gets_what_was_stored(self):
        g = Group()
        a, b = g.static_pair()
        generation, records = g.group.generation, len(g.records)
        (answer,) = g.join("b2", instance_id="j")
        assert (answer.error, answer.generation) == (NONE, generation)
        assert g.group.state is STABLE
        assert answer.member_id not in (a, b)
        assert len(g.records) == records + 1  # the new id is durable
        (synced,) = g.sync("b2", answer.member_id, generation, instance_id="j")
        assert synced.assignment == b"J"
        assert g.beat("b", b, generation, instance_id="j") == ErrorCode.FENCED_INSTANCE_ID
        assert g.commit("b", b, generation, instance_id="j") == ErrorCode.FENCED_INSTANCE_ID
        (refused,) = g.join("b", b, instance_id="j")
        assert refused.error == ErrorCode.FENCED_INSTANCE_ID
        assert g.leave("b", b, "j") == ErrorCode.FENCED_INSTANCE_ID
        assert g.leave("b", b, "unheard of") == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_leader_that_comes_back_is_told_to_skip_the_assignment(self):
        g = Group()
        g.static_pair()
        (answer,) = g.join("a2", instance_id="i")
        assert answer.skip_assignment  # KIP-814
        assert answer.leader_id == answer.member_id
        assert [m.instance_id for m in answer.members] == ["i", "j"]
        (follower,) = g.join("b2", instance_id="j")
        assert not follower.skip_assignment

    def test_it_starts_a_round_where_the_protocol_would_be_another(self):
        g = Group()
        g.static_pair()
        assert g.join("b2", instance_id="j", protocol_names=("range", "sticky")) != []
        assert g.group.state is STABLE
        g = Group()
        g.static_pair(protocol_names=("sticky", "range"))
        assert g.group.data.protocol == "sticky"
        g.join("b2", instance_id="j", protocol_names=("range",))
        assert g.group.state is PREPARING

    def test_a_twin_that_joins_in_a_round_fences_the_first(self):
        g = Group()
        a, b = g.static_pair()
        g.join("b", b, instance_id="j", metadata=b"new")
        assert g.group.state is PREPARING
        g.join("b2", instance_id="j")
        assert g.last("b").error == ErrorCode.FENCED_INSTANCE_ID
        g.join("a", a, instance_id="i")
        assert g.group.state is COMPLETING
        new = g.last("b2").member_id
        g.sync("b2", new, g.group.generation, instance_id="j")
        g.join("b3", instance_id="j")
        assert g.last("b2", SyncAnswered).error == ErrorCode.FENCED_INSTANCE_ID

    def test_it_stays_a_member_when_a_round_ends_without_it(self):
        g = Group()
        a, b = g.static_pair(session_timeout_ms=300_000)
        g.join("a", a, instance_id="i", metadata=b"new", session_timeout_ms=300_000)
        g(after_ms=REBALANCE_MS)
        assert g.group.state is COMPLETING
        assert list(g.group.members) == [a, b]
        assert b in [m.member_id for m in g.last("a").members]  # its work is kept for it

    def test_a_round_with_nobody_but_absent_static_members_waits_once_more(self):
        g = Group()
        a, b = g.static_pair(session_timeout_ms=300_000)
        generation = g.group.generation
        c = g.enter("c", session_timeout_ms=300_000)
        g.leave("c", c)
        g(after_ms=REBALANCE_MS)
        assert (g.group.state, g.group.generation) == (PREPARING, generation)
        g.join("b", b, instance_id="j", session_timeout_ms=300_000)
        g(after_ms=REBALANCE_MS)
        assert g.group.generation == generation + 1
        assert g.group.leader_id == b  # one that has joined
        assert a in g.group.members


class TestRecords:
    def test_a_completed_generation_is_one_record_of_kafka_s_bytes(self):
        g = Group()
        a, b = g.stable("a", "b")
        (first,) = [decode_record(r.key, r.value) for r in g.records]
        assert (first.record_type, first.name, first.value_version) == (2, "GroupMetadata", 3)
        assert first.key == {"group": "g"}
        value = first.value
        assert (value["generation"], value["protocol"], value["leader"]) == (2, "range", a)
        assert [m["memberId"] for m in value["members"]] == [a, b]
        assert [bytes(m["subscription"]) for m in value["members"]] == [b"metarange"] * 2
        assert bytes(value["members"][1]["assignment"]) == b"for " + b.encode()
        assert value["members"][0]["sessionTimeout"] == SESSION_MS
        assert value["members"][0]["rebalanceTimeout"] == REBALANCE_MS

    def test_an_interrupted_generation_leaves_no_record(self):
        g = Group()
        a, b = g.stable("a", "b")
        g.join("a", a, metadata=b"new")
        g.join("b", b)
        assert g.group.state is COMPLETING
        g.enter("c")
        assert len(g.records) == 1

    def test_an_empty_group_is_written(self):
        g = Group()
        (a,) = g.stable("a")
        g.leave("a", a)
        last = decode_record(g.records[-1].key, g.records[-1].value).value
        assert (last["protocol"], last["leader"], last["members"]) == (None, None, ())

    def test_commits_are_fenced_and_written(self):
        g = Group()
        a, b = g.stable("a", "b")
        generation = g.group.generation
        assert g.commit("a", a, generation) == NONE
        last = decode_record(g.records[-1].key, g.records[-1].value)
        assert (last.name, last.key) == (
            "OffsetCommit",
            {"group": "g", "topic": "t", "partition": 0},
        )
        assert last.value["offset"] == 5
        records = len(g.records)
        assert g.commit("a", a, generation - 1) == ErrorCode.ILLEGAL_GENERATION
        assert g.commit("a", "nobody", generation) == ErrorCode.UNKNOWN_MEMBER_ID
        assert g.commit("a", "", -1) == ErrorCode.UNKNOWN_MEMBER_ID  # the group has members
        assert len(g.records) == records
        g.join("a", a, metadata=b"new")
        assert g.commit("b", b, generation) == NONE  # still in time
        g.join("b", b)
        assert g.commit("b", b, g.group.generation) == ErrorCode.REBALANCE_IN_PROGRESS
        assert g.group.durable.offsets == {("t", 0): 5}

    def test_an_empty_group_takes_commits_of_nobody(self):
        g = Group()
        assert g.commit("tool", "", -1, 9) == NONE
        assert g.group.durable.offsets == {("t", 0): 9}
        assert g.commit("tool", "x", 3) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_coordinator_goes_on_from_its_log(self):
        g = Group()
        a, b = g.stable("a", "b")
        g.commit("a", a, 2, 7)
        other = Group()
        other.now_ms = 50_000
        for record in g.records:
            other.group.replay(record.key, record.value)
        other.group.load(50_000)
        assert (other.group.state, other.group.generation) == (STABLE, 2)
        assert other.beat("a", a, 2) == NONE
        assert other.group.durable.offsets == {("t", 0): 7}
        (answer,) = other.sync("b", b, 2)
        assert answer.assignment == b"for " + b.encode()
        assert other.group.deadline_ms == 50_000 + SESSION_MS  # sessions restart
        other(after_ms=SESSION_MS)
        assert other.group.state is EMPTY

    def test_a_log_without_a_group_is_an_empty_group(self):
        fresh = Coordinator("g")
        fresh.load(5)
        assert (fresh.state, fresh.deadline_ms) == (EMPTY, None)
        fresh.replay(*group_record("g", STORED))
        fresh.load(6)
        assert (fresh.state, fresh.generation) == (EMPTY, 8)


STORED_MEMBER = {
    "memberId": "m",
    "groupInstanceId": "i",
    "clientId": "c",
    "clientHost": "/h",
    "rebalanceTimeout": 2,
    "sessionTimeout": 1,
    "subscription": b"s",
    "assignment": b"a",
}
STORED = {
    "protocolType": "consumer",
    "generation": 8,
    "protocol": None,
    "leader": None,
    "currentStateTimestamp": 0,
    "members": (),
}


def test_stored_members_keep_what_they_were():
    other = STORED_MEMBER | {"memberId": "n", "groupInstanceId": None}
    stored = STORED | {"protocol": "p", "leader": "m", "members": (STORED_MEMBER, other)}
    group = Coordinator("g")
    group.replay(*group_record("g", stored))
    assert group.durable.group == stored


@given(NAMES, NAMES, INT32S, INT64S, INT64S)
def test_a_commit_is_written_as_the_schema_says(group, topic, partition, offset, at_ms):
    record = commit_record(group, topic, partition, offset, at_ms)
    read = decode_record(record.key, record.value)
    assert read.key == {"group": group, "topic": topic, "partition": partition}
    assert (read.value["offset"], read.value["commitTimestamp"]) == (offset, at_ms)
    assert encode_record(read) == (record.key, record.value)


def test_a_log_is_read_when_it_is_asked_for_and_of_each_key_the_last_record():
    durable = Durable()
    for offset in (5, 9):
        record = commit_record("g", "t", 0, offset, 1)
        durable.replay(record.key, record.value)
    assert durable.offsets == {("t", 0): 9}
    durable.replay(record.key, None)
    assert durable.offsets == {}
    durable.replay(b"\x00\x01", b"")
    with pytest.raises(WireError, match="truncated"):
        _ = durable.group
