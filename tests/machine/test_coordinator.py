"""The classic coordinator, request by request, against hand-played members."""

from __future__ import annotations

import pytest
from tests.machine.clients import (
    COMPLETING,
    NONE,
    PREPARING,
    SESSION_MS,
    STABLE,
    Group,
)

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import SyncAnswered
from holdfast.core.machine.states import GROUP_MEANINGS, GROUP_TRANSITIONS, GroupState
from holdfast.core.wire.layouts.offsets_records import decode_record


def test_the_page_knows_every_state():
    assert set(GROUP_MEANINGS) == set(GROUP_TRANSITIONS) == set(GroupState)


def test_an_id_that_was_never_used_expires():
    g = Group()
    g.join("c")
    assert g.group.deadline_ms == SESSION_MS
    g(after_ms=SESSION_MS)
    assert not g.group.data.pending
    (answer,) = g.join("c", "c-0000")
    assert answer.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_holds_the_round_until_it_joins_or_expires():
    g = Group()
    (a,) = g.stable("a")
    g.join("b")  # has its id, and has not joined with it yet
    assert g.group.state is STABLE
    g.join("a", a, metadata=b"new")
    assert g.group.state is PREPARING
    g(after_ms=SESSION_MS)
    assert g.group.state is COMPLETING
    assert g.group.generation == 2


def test_the_protocol_is_one_that_all_support_by_most_votes():
    g = Group()
    g.stable("a", protocol_names=("range",))
    (refused,) = g.join("b", protocol_names=("sticky",))
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (refused,) = g.join("b", protocol_names=())
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for lists, chosen in (
        ((("x", "y"), ("y", "x"), ("y", "x")), "y"),  # most votes
        ((("x", "y"), ("y", "x")), "x"),  # a tie: the leader's order
        ((("x", "y", "z"), ("z", "y"), ("y", "z")), "y"),  # x is not common: the vote continues
        ((("x", "z"), ("z", "y", "x")), "x"),
    ):
        g = Group(initial_delay_ms=3_000)
        for name, protocol_names in zip("abc", lists, strict=False):
            g.enter(name, protocol_names=protocol_names)
        g(after_ms=3_000)
        g(after_ms=3_000)
        assert g.group.data.protocol == chosen
        assert {g.last(n).protocol_name for n, _ in zip("abc", lists, strict=False)} == {chosen}
        leader = g.last("a")
        expected = b"meta" + chosen.encode()
        assert {m.metadata for m in leader.members} == {expected}


def test_protocol_types_other_than_consumer_keep_to_themselves():
    g = Group()
    (a,) = g.stable("a", protocol_type="connect", protocol_names=("sessioned", "range"))
    (refused,) = g.join("b", protocol_names=("range",))
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    record = decode_record(g.records[-1].key, g.records[-1].value)
    assert record.value["protocolType"] == "connect"
    assert g.leave("a", a) == NONE
    (answer,) = g.join("b", protocol_names=("range",))  # empty: any type may begin
    assert answer.error == ErrorCode.MEMBER_ID_REQUIRED


def test_the_wait_of_a_first_round_ends_with_the_rebalance_timeout():
    g = Group(initial_delay_ms=3_000)
    for n in range(12):
        g.enter(f"c{n}", rebalance_timeout_ms=10_000)
        g(after_ms=1_000)
        if g.group.state is COMPLETING:
            break
    assert g.now_ms in range(10_000, 12_001)


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


def test_limits_are_kept():
    g = Group(min_session_timeout_ms=6_000, max_session_timeout_ms=30_000, max_size=1)
    for session_ms in (5_999, 30_001):
        (answer,) = g.join("a", session_timeout_ms=session_ms)
        assert answer.error == ErrorCode.INVALID_SESSION_TIMEOUT
    g.stable("a")
    (answer,) = g.join("b")
    assert answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "a", "b")])
def test_ties_are_broken_by_the_order_of_joining(order):
    g = Group(initial_delay_ms=1_000)
    ids = [g.enter(client) for client in order]
    g(after_ms=1_000)
    g(after_ms=1_000)
    assert g.group.leader_id == ids[0]
    assert [m.member_id for m in g.last(order[0]).members] == ids
