"""Records above ``message.max.bytes``: the coordinator's answers, as observed on Kafka 4.3.1.

``tests/live/test_record_limit.py`` plays the same with a broker.
"""

from __future__ import annotations

import pytest
from tests.machine.clients import NONE, PREPARING, SESSION_MS, STABLE, Group

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import JoinAnswered, SyncAnswered
from holdfast.core.wire.layouts.record_size import batch_bytes

UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
LIMIT = 4_000


def size_of_last(g: Group) -> int:
    record = g.records[-1]
    return batch_bytes(len(record.key), len(record.value))


def syncing(g: Group, assignment: bytes) -> tuple[str, str, int]:
    """Two members in one generation; the follower's sync waits, the leader's brings this."""
    a, b = g.stable("a", "b")
    g.join("a", a, metadata=b"again")
    g.join("b", b)
    generation = g.group.generation
    g.sync("b", b, generation)
    g.sync("a", a, generation, [(a, assignment), (b, b"b")])
    return a, b, generation


def test_a_record_of_the_limit_is_written_and_one_byte_more_is_not():
    probe = Group(message_max_bytes=LIMIT)
    syncing(probe, b"x" * 1_000)
    room = LIMIT - size_of_last(probe) + 1_000
    exact, over = Group(message_max_bytes=LIMIT), Group(message_max_bytes=LIMIT)
    syncing(exact, b"x" * room)
    assert size_of_last(exact) == LIMIT
    assert exact.last("a", SyncAnswered).error == NONE
    syncing(over, b"x" * (room + 1))
    assert over.last("a", SyncAnswered).error == UNKNOWN


def test_every_sync_that_waits_ends_in_the_error_and_a_round_begins():
    g = Group(message_max_bytes=LIMIT)
    a, _, generation = syncing(g, b"x" * LIMIT)
    assert (g.last("a", SyncAnswered).error, g.last("b", SyncAnswered).error) == (UNKNOWN, UNKNOWN)
    assert g.group.state is PREPARING
    assert g.group.generation == generation
    assert g.group.durable.group["generation"] == generation - 1  # nothing was written
    assert {m.assignment for m in g.group.members.values()} == {b""}
    assert g.beat("a", a, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_that_comes_after_it_is_told_to_join_again():
    g = Group(message_max_bytes=LIMIT)
    a, b = g.stable("a", "b")
    g.join("a", a, metadata=b"again")
    g.join("b", b)
    generation = g.group.generation
    g.sync("a", a, generation, [(a, b"x" * LIMIT)])
    (late,) = g.sync("b", b, generation)
    assert late.error == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_join_again_with_less_are_a_group_with_their_ids():
    g = Group(message_max_bytes=LIMIT)
    a, b, generation = syncing(g, b"x" * LIMIT)
    g.join("a", a)
    g.join("b", b)
    assert g.group.generation == generation + 1
    g.sync("b", b, generation + 1)
    g.sync("a", a, generation + 1, [(a, b"1"), (b, b"2")])
    assert g.group.state is STABLE
    assert g.last("b", SyncAnswered).assignment == b"2"


def test_a_member_that_stays_away_afterwards_is_removed_by_its_session():
    g = Group(message_max_bytes=LIMIT)
    a, b, generation = syncing(g, b"x" * LIMIT)
    g.join("a", a)
    g(after_ms=SESSION_MS)
    assert list(g.group.members) == [a]
    assert g.group.generation == generation + 1
    assert b not in g.group.members


@pytest.mark.parametrize("instance_id", ["i", "j"], ids=["leader", "follower"])
def test_a_static_member_is_not_replaced_where_the_record_would_be_too_large(instance_id) -> None:
    g = Group(message_max_bytes=LIMIT)
    a, b = g.static_pair()
    old = a if instance_id == "i" else b
    generation, members, n_records = g.group.generation, dict(g.group.members), len(g.records)
    (answer,) = g.join("new", instance_id=instance_id, metadata=b"x" * LIMIT)
    assert isinstance(answer, JoinAnswered)
    assert (answer.error, answer.member_id) == (UNKNOWN, "")
    assert (answer.generation, answer.leader_id) == (generation, a)
    assert not answer.skip_assignment
    assert g.group.state is STABLE
    assert list(g.group.members.items()) == list(members.items())
    assert g.group.leader_id == a
    assert len(g.records) == n_records
    assert g.group.data.sessions.keys() == members.keys()
    assert g.beat("old", old, generation, instance_id=instance_id) == NONE  # it is not fenced
    (fits,) = g.join("new", instance_id=instance_id)
    assert (fits.error, fits.generation) == (NONE, generation)
    assert g.beat("old", old, generation, instance_id=instance_id) == ErrorCode.FENCED_INSTANCE_ID


def test_a_group_that_is_empty_is_always_written():
    g = Group(message_max_bytes=LIMIT)
    (a,) = g.stable("a")
    g.leave("a", a)
    assert g.group.durable.group["members"] == ()
    assert size_of_last(g) < LIMIT
