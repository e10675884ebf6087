"""The classic coordinator, request by request, against hand-played members."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.machine.actions import SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.machine.codes import ErrorCode
from holdfast.machine.coordinator import (
    GROUP_MEANINGS,
    GROUP_TRANSITIONS,
    Answer,
    CommitDone,
    Coordinator,
    CoordinatorOptions,
    GroupState,
    Received,
    SendCommit,
)
from holdfast.machine.events import HeartbeatAnswered, JoinAnswered, LeaveAnswered, SyncAnswered
from holdfast.machine.group_log import Append, StoredGroup, StoredMember, group_record
from holdfast.wire.offsets_records import decode_record

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE
NONE = ErrorCode.NONE
SESSION_MS, REBALANCE_MS = 10_000, 60_000


class Group:
    """Plays clients against one coordinator and keeps what each was answered."""

    def __init__(self, *, initial_delay_ms: int = 0, **options):
        self.group = Coordinator(
            "g", CoordinatorOptions(initial_delay_ms=initial_delay_ms, **options)
        )
        self.now_ms = 0
        self.request = 0
        self.answers: dict[str, list] = {}
        self.records: list[Append] = []

    def __call__(self, client: str | None = None, request=None, *, after_ms: int = 0):
        """Send a request (or only let time pass); returns what this client was answered now."""
        self.now_ms += after_ms
        event = None if client is None else Received(client, request)
        outs = self.group.step(self.now_ms, event)
        fresh: list = []
        for out in outs:
            if isinstance(out, Append):
                self.records.append(out)
                self.group.replay(out.key, out.value)
            else:
                assert isinstance(out, Answer)
                self.answers.setdefault(out.client, []).append(out.response)
                fresh += [out.response] if out.client == client else []
        return fresh

    def join(self, client: str, member_id: str = "", *, offers=("range",), **fields):
        self.request += 1
        metadata = fields.pop("metadata", b"meta")
        values = {
            "request": self.request,
            "timeout_ms": 65_000,
            "member_id": member_id,
            "instance_id": None,
            "protocol_type": "consumer",
            "protocols": tuple((name, metadata + name.encode()) for name in offers),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "reason": "",
        }
        return self(client, SendJoin(**(values | fields)))

    def enter(self, client: str, **fields) -> str:
        """A first join with the id that the coordinator asks for; returns the id."""
        (first,) = self.join(client, **fields)
        assert first.error == ErrorCode.MEMBER_ID_REQUIRED
        self.join(client, first.member_id, **fields)
        return first.member_id

    def sync(self, client: str, member_id: str, generation: int, given=(), **fields):
        self.request += 1
        values = {
            "request": self.request,
            "timeout_ms": 65_000,
            "generation": generation,
            "member_id": member_id,
            "instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": tuple(given),
        }
        return self(client, SendSync(**(values | fields)))

    def beat(self, client: str, member_id: str, generation: int, *, after_ms=0, instance_id=None):
        self.request += 1
        request = SendHeartbeat(
            request=self.request,
            timeout_ms=1_000,
            generation=generation,
            member_id=member_id,
            instance_id=instance_id,
        )
        (answer,) = self(client, request, after_ms=after_ms)
        assert isinstance(answer, HeartbeatAnswered)
        return answer.error

    def leave(self, client: str, member_id: str, instance_id=None):
        self.request += 1
        request = SendLeave(
            request=self.request,
            timeout_ms=1_000,
            member_id=member_id,
            instance_id=instance_id,
            reason="",
        )
        answer = self(client, request)[0]
        assert isinstance(answer, LeaveAnswered)
        return answer.error

    def commit(self, client: str, member_id: str, generation: int, offset: int = 5, **fields):
        self.request += 1
        values = {
            "request": self.request,
            "generation": generation,
            "member_id": member_id,
            "instance_id": None,
            "offsets": ((("t", 0), offset),),
        }
        (answer,) = self(client, SendCommit(**(values | fields)))
        assert isinstance(answer, CommitDone)
        return answer.error

    def last(self, client: str, kind=JoinAnswered):
        return next(a for a in reversed(self.answers[client]) if isinstance(a, kind))

    def stable(self, *clients: str, **fields) -> list[str]:
        """All of these in one stable generation; the first leads. Returns their ids."""
        ids = [self.enter(clients[0], **fields)]
        for client in clients[1:]:
            ids.append(self.enter(client, **fields))
        for client, member_id in zip(clients, ids, strict=True):
            if len(clients) > 1 and self.group.members[member_id].joining is None:
                self.join(client, member_id, **fields)
        name = self.last(clients[0]).protocol_name
        generation = self.group.generation
        for client, member_id in zip(clients[1:], ids[1:], strict=True):
            self.sync(client, member_id, generation, protocol_name=name)
        given = [(m, b"for " + m.encode()) for m in ids]
        self.sync(clients[0], ids[0], generation, given, protocol_name=name)
        assert self.group.state is STABLE
        return ids


def test_the_page_knows_every_state():
    assert set(GROUP_MEANINGS) == set(GROUP_TRANSITIONS) == set(GroupState)


def test_a_new_member_is_told_its_id_first():
    g = Group()
    (answer,) = g.join("c")
    assert (answer.error, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-0000")
    assert g.group.pending
    assert not g.group.members
    (answer,) = g.join("c", "c-0000")
    assert (answer.error, answer.generation, answer.leader_id) == (NONE, 1, "c-0000")
    assert [m.metadata for m in answer.members] == [b"metarange"]
    assert not g.group.pending


def test_an_id_that_was_never_used_expires():
    g = Group()
    g.join("c")
    assert g.group.deadline_ms == SESSION_MS
    g(after_ms=SESSION_MS)
    assert not g.group.pending
    (answer,) = g.join("c", "c-0000")
    assert answer.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_holds_the_round_until_it_joins_or_expires():
    g = Group()
    (a,) = g.stable("a")
    g.join("b")  # told its id, and not back yet
    assert g.group.state is STABLE
    g.join("a", a, metadata=b"new")
    assert g.group.state is PREPARING
    g(after_ms=SESSION_MS)
    assert g.group.state is COMPLETING
    assert g.group.generation == 2


def test_generations_and_assignments_go_round():
    g = Group()
    a, b = g.stable("a", "b")
    assert g.last("a", SyncAnswered).assignment == b"for " + a.encode()
    assert g.last("b", SyncAnswered).assignment == b"for " + b.encode()
    generation = g.group.generation
    assert g.beat("a", a, generation) == NONE
    assert g.last("b").members == ()  # only the leader hears of everybody
    assert sorted(m.member_id for m in g.last("a").members) == [a, b]
    c = g.enter("c")
    assert g.beat("a", a, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    g.join("a", a)
    assert g.group.state is PREPARING  # b is awaited
    g.join("b", b)
    assert g.group.state is COMPLETING
    assert g.group.generation == generation + 1
    assert {g.last(x).generation for x in "abc"} == {generation + 1}
    assert g.last("c").leader_id == a
    assert c in g.group.members


def test_the_protocol_is_one_that_all_offer_by_most_votes():
    g = Group()
    g.stable("a", offers=("range",))
    (refused,) = g.join("b", offers=("sticky",))
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (refused,) = g.join("b", offers=())
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for lists, chosen in (
        ((("x", "y"), ("y", "x"), ("y", "x")), "y"),  # most votes
        ((("x", "y"), ("y", "x")), "x"),  # a tie: the leader's order
        ((("x", "y", "z"), ("z", "y"), ("y", "z")), "y"),  # x is not common: the vote goes on
        ((("x", "z"), ("z", "y", "x")), "x"),
    ):
        g = Group(initial_delay_ms=3_000)
        for name, offers in zip("abc", lists, strict=False):
            g.enter(name, offers=offers)
        g(after_ms=3_000)
        g(after_ms=3_000)
        assert g.group.protocol == chosen
        assert {g.last(n).protocol_name for n, _ in zip("abc", lists, strict=False)} == {chosen}
        leader = g.last("a")
        expected = b"meta" + chosen.encode()
        assert {m.metadata for m in leader.members} == {expected}


def test_protocol_types_other_than_consumer_keep_to_themselves():
    g = Group()
    (a,) = g.stable("a", protocol_type="connect", offers=("sessioned", "range"))
    (refused,) = g.join("b", offers=("range",))
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    record = decode_record(g.records[-1].key, g.records[-1].value)
    assert record.value["protocolType"] == "connect"
    assert g.leave("a", a) == NONE
    (answer,) = g.join("b", offers=("range",))  # empty: any type may begin
    assert answer.error == ErrorCode.MEMBER_ID_REQUIRED


def test_a_first_round_waits_for_more_members():
    g = Group(initial_delay_ms=3_000)
    g.enter("a")
    g(after_ms=2_900)
    assert g.group.state is PREPARING
    g.enter("b")
    g(after_ms=100)
    assert g.group.state is PREPARING  # extended, because somebody joined
    g(after_ms=3_000)
    assert g.group.state is COMPLETING
    assert len(g.group.members) == 2
    assert g.group.generation == 1


def test_the_wait_of_a_first_round_ends_with_the_rebalance_timeout():
    g = Group(initial_delay_ms=3_000)
    for n in range(12):
        g.enter(f"c{n}", rebalance_timeout_ms=10_000)
        g(after_ms=1_000)
        if g.group.state is COMPLETING:
            break
    assert g.now_ms in range(10_000, 12_001)


def test_who_does_not_join_in_time_is_out():
    g = Group()
    a, b = g.stable("a", "b")
    g.join("a", a, metadata=b"new")
    for _ in range(6):
        assert g.beat("b", b, g.group.generation, after_ms=9_000) == 27
    g(after_ms=REBALANCE_MS - 54_000)
    assert list(g.group.members) == [a]
    assert g.group.generation == 3
    assert g.beat("b", b, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_sync_in_time_is_out():
    """KAFKA-12890: a leader that never syncs must not hold the group for ever."""
    g = Group()
    a, b = g.stable("a", "b")
    g.join("a", a, metadata=b"new")
    g.join("b", b)
    generation = g.group.generation
    g.sync("b", b, generation)
    for _ in range(7):
        g.beat("a", a, generation, after_ms=9_000)
    assert a not in g.group.members
    assert g.group.state is PREPARING
    assert g.last("b", SyncAnswered).error == ErrorCode.REBALANCE_IN_PROGRESS
    g.join("b", b)
    assert g.last("b").leader_id == b  # leadership has passed on


def test_a_session_ends_without_heartbeats_but_not_while_an_answer_is_awaited():
    g = Group()
    a, b = g.stable("a", "b")
    generation = g.group.generation
    for _ in range(3):
        g.beat("a", a, generation, after_ms=SESSION_MS - 1)
    assert b not in g.group.members
    assert g.group.state is PREPARING
    g.join("a", a)
    assert g.group.state is COMPLETING
    g.sync("a", a, g.group.generation, [(a, b"all")])
    c = g.enter("c")  # waits for a, longer than a session
    g.beat("a", a, g.group.generation, after_ms=SESSION_MS - 1)
    g.beat("a", a, g.group.generation, after_ms=SESSION_MS - 1)
    assert c in g.group.members


def test_a_follower_that_says_nothing_new_starts_no_round():
    g = Group()
    a, b = g.stable("a", "b")
    generation = g.group.generation
    (answer,) = g.join("b", b)
    assert (answer.error, answer.generation) == (NONE, generation)
    assert g.group.state is STABLE
    (answer,) = g.sync("b", b, generation)
    assert answer.assignment == b"for " + b.encode()
    g.join("b", b, metadata=b"changed")
    assert g.group.state is PREPARING
    g = Group()
    a, b = g.stable("a", "b")
    g.join("a", a)  # the leader's join always does
    assert g.group.state is PREPARING
    g.join("b", b)
    (answer,) = g.join("b", b)  # a lost answer, while the leader computes
    assert (g.group.state, answer.generation) == (COMPLETING, g.group.generation)
    g.join("b", b, metadata=b"changed")
    assert g.group.state is PREPARING


def test_a_round_that_begins_refuses_the_syncs_that_wait():
    g = Group()
    a, b = g.stable("a", "b")
    g.join("a", a, metadata=b"new")
    g.join("b", b)
    g.sync("b", b, g.group.generation)
    g.enter("c")
    assert g.last("b", SyncAnswered).error == ErrorCode.REBALANCE_IN_PROGRESS
    (answer,) = g.sync("a", a, g.group.generation)
    assert answer.error == ErrorCode.REBALANCE_IN_PROGRESS


def test_syncs_are_checked():
    g = Group()
    a, b = g.stable("a", "b")
    generation = g.group.generation
    assert g.sync("a", "nobody", generation)[0].error == ErrorCode.UNKNOWN_MEMBER_ID
    assert g.sync("a", a, generation - 1)[0].error == ErrorCode.ILLEGAL_GENERATION
    (answer,) = g.sync("a", a, generation, protocol_name="sticky")
    assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert g.group.state is STABLE
    assert b in g.group.members


def test_members_that_leave():
    g = Group()
    a, b = g.stable("a", "b")
    assert g.leave("a", a) == NONE
    assert g.group.state is PREPARING
    assert g.leave("a", a) == NONE  # twice does not matter
    g.join("b", b)
    assert g.last("b").leader_id == b
    assert g.leave("b", b) == NONE
    assert (g.group.state, g.group.leader_id, g.group.protocol) == (EMPTY, None, None)
    assert g.beat("b", b, g.group.generation) == ErrorCode.UNKNOWN_MEMBER_ID
    g.join("c")
    pending = next(iter(g.group.pending))
    g.leave("c", pending)
    assert not g.group.pending


def test_a_member_that_waits_and_is_removed_hears_of_it():
    g = Group()
    a, b = g.stable("a", "b")
    g.join("a", a, metadata=b"new")
    g.leave("b", b)
    assert g.group.state is COMPLETING  # everybody that is left has joined
    g.join("c")
    (member,) = g.group.pending
    g.join("c", member)
    g.leave("c", member)  # on its other connection, while its join waits
    assert g.last("c").error == ErrorCode.UNKNOWN_MEMBER_ID
    g.join("a", a)
    g.enter("d")
    g.join("a", a)
    d = next(m for m in g.group.members if m.startswith("d"))
    g.sync("d", d, g.group.generation)
    g.leave("d", d)
    assert g.last("d", SyncAnswered).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_limits_are_kept():
    g = Group(min_session_timeout_ms=6_000, max_session_timeout_ms=30_000, max_size=1)
    for session_ms in (5_999, 30_001):
        (answer,) = g.join("a", session_timeout_ms=session_ms)
        assert answer.error == ErrorCode.INVALID_SESSION_TIMEOUT
    g.stable("a")
    (answer,) = g.join("b")
    assert answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED


class TestStaticMembers:
    def test_a_static_member_needs_no_second_join(self):
        g = Group()
        (answer,) = g.join("a", instance_id="i")
        assert (answer.error, answer.generation) == (NONE, 1)

    def test_it_comes_back_without_a_round_and_gets_what_was_stored(self):
        g = Group()
        a, b = self.two(g)
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
        self.two(g)
        (answer,) = g.join("a2", instance_id="i")
        assert answer.skip_assignment  # KIP-814
        assert answer.leader_id == answer.member_id
        assert [m.instance_id for m in answer.members] == ["i", "j"]
        (follower,) = g.join("b2", instance_id="j")
        assert not follower.skip_assignment

    def test_it_starts_a_round_where_the_protocol_would_be_another(self):
        g = Group()
        self.two(g)
        assert g.join("b2", instance_id="j", offers=("range", "sticky")) != []
        assert g.group.state is STABLE
        g = Group()
        self.two(g, offers=("sticky", "range"))
        assert g.group.protocol == "sticky"
        g.join("b2", instance_id="j", offers=("range",))
        assert g.group.state is PREPARING

    def test_a_twin_that_joins_in_a_round_fences_the_first(self):
        g = Group()
        a, b = self.two(g)
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
        a, b = self.two(g, session_timeout_ms=300_000)
        g.join("a", a, instance_id="i", metadata=b"new", session_timeout_ms=300_000)
        g(after_ms=REBALANCE_MS)
        assert g.group.state is COMPLETING
        assert list(g.group.members) == [a, b]
        assert b in [m.member_id for m in g.last("a").members]  # its work is kept for it

    def test_a_round_with_nobody_but_absent_static_members_waits_once_more(self):
        g = Group()
        a, b = self.two(g, session_timeout_ms=300_000)
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

    def two(self, g: Group, **fields) -> list[str]:
        g.join("a", instance_id="i", **fields)
        a = g.last("a").member_id
        g.join("b", instance_id="j", **fields)
        g.join("a", a, instance_id="i", **fields)
        b = g.last("b").member_id
        generation, name = g.group.generation, g.group.protocol
        g.sync("b", b, generation, instance_id="j", protocol_name=name)
        given = [(a, b"I"), (b, b"J")]
        g.sync("a", a, generation, given, instance_id="i", protocol_name=name)
        assert g.group.state is STABLE
        return [a, b]


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
        assert other.group.deadline_ms == 50_000 + SESSION_MS  # sessions begin anew
        other(after_ms=SESSION_MS)
        assert other.group.state is EMPTY

    def test_a_log_without_a_group_is_an_empty_group(self):
        fresh = Coordinator("g")
        fresh.load(5)
        assert (fresh.state, fresh.deadline_ms) == (EMPTY, None)
        fresh.replay(*_empty())
        fresh.load(6)
        assert (fresh.state, fresh.generation) == (EMPTY, 8)


def _empty() -> tuple[bytes, bytes | None]:
    stored = StoredGroup(
        protocol_type="consumer",
        generation=8,
        protocol=None,
        leader=None,
        timestamp_ms=0,
        members=(),
    )
    record = group_record("g", stored)
    return record.key, record.value


def test_time_only_goes_forwards():
    g = Group()
    (a,) = g.stable("a")
    g.beat("a", a, 1, after_ms=5_000)
    g.group.step(1_000)
    assert g.group.now_ms == 5_000


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "a", "b")])
def test_ties_are_broken_by_the_order_of_joining(order):
    g = Group(initial_delay_ms=1_000)
    ids = [g.enter(client) for client in order]
    g(after_ms=1_000)
    g(after_ms=1_000)
    assert g.group.leader_id == ids[0]
    assert [m.member_id for m in g.last(order[0]).members] == ids


def test_stored_members_keep_what_they_were():
    member = StoredMember(
        member_id="m",
        instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=2,
        session_timeout_ms=1,
        subscription=b"s",
        assignment=b"a",
    )
    stored = StoredGroup(
        protocol_type="x",
        generation=3,
        protocol="p",
        leader="m",
        timestamp_ms=4,
        members=(member, replace(member, member_id="n", instance_id=None)),
    )
    group = Coordinator("g")
    record = group_record("g", stored)
    group.replay(record.key, record.value)
    assert group.durable.group == stored
