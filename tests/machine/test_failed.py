"""Resources that have failed at a member, in its leader's plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machine.subscribed import reports
from tests.sim.hand_played import HandPlayedGroup

from holdfast.core.machine.leader.targets import MOST_TRIED
from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import grouped, resources_of
from holdfast.core.wire.layouts.container import MOST_FAILED, FailedPartitions

SIMPLE = Policy(design=Design.SIMPLE)
POLICIES = [
    SIMPLE,
    Policy(design=Design.DEFERRED, delay_ms=30_000),
    Policy(design=Design.DEFERRED, delay_ms=30_000, failback=True),
    Policy(design=Design.INCREMENTAL, delay_ms=30_000, interval_ms=0),
    Policy(design=Design.SIMPLE, isolate=True),
    Policy(design=Design.SIMPLE, weights={"t": 2, "u": 3}),
]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{p.design}-{p.isolate}")


class Played(HandPlayedGroup):
    """Members that report what has failed, and what moved in a settlement."""

    def fail(self, name: str, *numbers: int, topic: str = "t") -> None:
        said = self.members[name]
        before = {(one.topic, n) for one in said.subscription.failed for n in one.partitions} | {
            (topic, n) for n in numbers
        }
        listed = (FailedPartitions(t, "OSError", own) for t, own in grouped(sorted(before)))
        self.members[name] = reports(said, failed=tuple(listed))

    def recover(self, name: str) -> None:
        self.members[name] = reports(self.members[name], failed=())

    def has(self, name: str) -> set[tuple[str, int]]:
        return set(resources_of(self.members[name].subscription.owned))

    def owner(self, number: int, topic: str = "t") -> str:
        (name,) = [name for name in self.members if (topic, number) in self.has(name)]
        return name

    def loads(self) -> dict[str, int]:
        return {name: len(self.has(name)) for name in self.members}


def play(policy: Policy, counts: dict[str, int], *names: str) -> Played:
    played = Played(policy, counts)
    for name in names:
        played.arrive(name, *counts)
    return played


@every_policy
def test_a_resource_that_has_failed_goes_elsewhere_and_nothing_else_moves(policy):
    played = play(policy, {"t": 12}, "A", "B", "C")
    before = {name: played.has(name) for name in "ABC"}
    at_a = min(n for _, n in played.has("A"))
    played.fail("A", at_a)
    assert played.settle() == 2  # asked back, handed out
    taker = played.owner(at_a)
    assert taker != "A"
    assert sorted(played.loads().values()) == [3, 4, 5]
    for name in "ABC":
        assert played.has(name) - {("t", at_a)} == before[name] - {("t", at_a)}
    assert played.settle() == 1  # at rest, although A has two less than its fair share
    assert sorted(played.loads().values()) == [3, 4, 5]


@every_policy
def test_a_resource_that_fails_everywhere_is_tried_at_three_members_and_rests(policy):
    played = play(policy, {"t": 10}, "A", "B", "C", "D", "E")
    number = min(n for _, n in played.has("A"))
    before = {name: played.has(name) - {("t", number)} for name in "ABCDE"}
    tried, rounds = [], 0
    while played.owner(number) not in tried:
        tried.append(played.owner(number))
        played.fail(tried[-1], number)
        rounds += played.settle()
        assert {name: played.has(name) - {("t", number)} for name in "ABCDE"} == before
    assert len(tried) == MOST_TRIED
    assert rounds <= 2 * MOST_TRIED
    assert played.owner(number) == tried[-1]
    assert sum(played.loads().values()) == 10


def test_all_that_fails_at_one_member_is_spread_as_if_it_had_left():
    played = play(SIMPLE, {"t": 12}, "A", "B", "C")
    played.fail("A", *(n for _, n in played.has("A")))
    played.settle()
    assert played.loads() == {"A": 0, "B": 6, "C": 6}
    assert played.settle() == 1


@every_policy
def test_a_resource_that_fails_everywhere_lets_all_others_be(policy):
    """Also where the last member at which it fails is fuller than the first one."""
    played = play(policy, {"t": 12}, "A", "B")
    number = min(n for _, n in played.has("A"))
    before = {name: played.has(name) - {("t", number)} for name in "AB"}
    for name in "AB":
        played.fail(name, number)
        played.settle()
    assert played.owner(number) == "B"
    assert played.settle() == 1
    assert {name: played.has(name) - {("t", number)} for name in "AB"} == before


def test_what_fails_at_one_member_alone_stays_where_no_other_member_is():
    played = play(SIMPLE, {"t": 3}, "A")
    played.fail("A", 0)
    assert played.settle() == 1
    assert played.loads() == {"A": 3}
    played.arrive("B", "t")
    assert played.owner(0) == "B"


def test_a_member_that_recovers_gets_its_share_again():
    played = play(SIMPLE, {"t": 12}, "A", "B", "C")
    played.fail("A", *(n for _, n in played.has("A")))
    played.settle()
    played.recover("A")
    played.settle()
    assert played.loads() == {"A": 4, "B": 4, "C": 4}


@every_policy
def test_whoever_has_a_failed_resource_may_leave(policy):
    played = play(policy, {"t": 9}, "A", "B", "C")
    number = min(n for _, n in played.has("A"))
    played.fail("A", number)
    played.settle()
    taker = played.owner(number)
    played.depart(taker)
    if policy.defers:
        played.now_ms += 30_000
        played.settle()
    (other,) = {"B", "C"} - {taker}
    assert played.owner(number) == other
    assert sum(played.loads().values()) == 9


def test_a_member_is_believed_about_itself_and_about_what_exists():
    played = play(SIMPLE, {"t": 6}, "A", "B")
    played.fail("B", 77, 2**31 - 1)
    played.fail("B", 0, topic="unknown")
    assert played.settle() == 1
    mine = played.has("A")
    played.fail("B", *(n for _, n in mine))  # they are no business of B's, and stay with A
    played.settle()
    assert mine <= played.has("A")
    assert sum(played.loads().values()) == 6


def test_no_more_than_a_hundred_of_a_member_count():
    n = 3 * MOST_FAILED
    played = play(SIMPLE, {"t": n}, "A", "B")
    had = played.loads()["A"]
    played.fail("A", *range(n))
    played.settle()
    assert had - played.loads()["A"] <= MOST_FAILED


def test_no_heavier_share_than_that_without_the_members_it_failed_at():
    played = play(Policy(design=Design.SIMPLE, weights={"u": 3}), {"t": 6, "u": 2}, "A", "B", "C")
    where = played.owner(0, "u")
    played.fail(where, 0, topic="u")
    played.settle()
    assert played.owner(0, "u") != where


@given(st.data())
def test_a_group_comes_to_rest_whatever_fails(data):
    policy = data.draw(st.sampled_from(POLICIES))
    counts = {"t": data.draw(st.integers(1, 9)), "u": data.draw(st.integers(0, 4))}
    names = "ABCD"[: data.draw(st.integers(1, 4))]
    played = play(policy, counts, *names)
    things = [(topic, n) for topic, count in counts.items() for n in range(count)]
    for _ in range(data.draw(st.integers(1, 5))):
        name = data.draw(st.sampled_from(names))
        topic, number = data.draw(st.sampled_from(things))
        played.fail(name, number, topic=topic)
        if data.draw(st.booleans()):
            played.recover(data.draw(st.sampled_from(names)))
        played.settle(8)
        assert sorted(r for name in names for r in played.has(name)) == things
        assert played.settle() == 1
        for name in names:
            for one in played.members[name].subscription.failed:
                for n in one.partitions:
                    failing = [
                        other
                        for other in names
                        for f in played.members[other].subscription.failed
                        if f.topic == one.topic and n in f.partitions
                    ]
                    tried = len(failing) >= MOST_TRIED or len(failing) == len(names)
                    assert tried or played.owner(n, one.topic) not in failing
