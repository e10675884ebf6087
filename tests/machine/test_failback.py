"""Failback: a departed member's partitions are reassigned at once, and return to it."""

from __future__ import annotations

from dataclasses import replace

from tests.machine.test_locations import A, B, C, D
from tests.sim.hand_played import HandPlayedGroup

from holdfast.core.machine.policy import Policy

FAILBACK = Policy(failback=True, delay_ms=60_000)
LOCATIONS = dict(zip("ABCD", (A, B, C, D), strict=True))


def with_failback(members: str = "ABC", partitions: int = 12) -> HandPlayedGroup:
    play = HandPlayedGroup(FAILBACK, {"T": partitions})
    for name in members:
        play.join(name, location=LOCATIONS[name])
    play.settle()
    play.now_ms += 1_000
    return play


def test_others_have_it_at_once_and_nobody_waits():
    play = with_failback()
    play.leave("C")
    plan = play.round()
    assert (plan.delay_ms, plan.again, plan.waiting) == (0, False, ())
    assert sum(len(own.split(",")) for own in play.all_owned().values()) == 12


def test_it_goes_back_to_its_member_and_others_have_what_they_had():
    play = with_failback()
    had = play.all_owned()
    play.leave("C")
    play.round()
    play.now_ms += FAILBACK.delay_ms - 2_000
    play.join("E", location=C)
    assert play.round().again
    play.round()
    assert play.owned("E") == had["C"]
    assert (play.owned("A"), play.owned("B")) == (had["A"], had["B"])


def test_after_the_delay_the_others_keep_it():
    play = with_failback()
    play.depart("C")
    reassigned = play.all_owned()
    play.now_ms += FAILBACK.delay_ms
    play.arrive("E", location=C)
    for name in "AB":
        assert set(play.owned(name).split(",")) <= set(reassigned[name].split(","))


def test_it_is_reassigned_again_when_who_has_it_leaves_too():
    """Each of the two that are back gets what it had, in whatever order they come."""
    play = with_failback()
    had = play.all_owned()
    play.depart("C")
    play.now_ms += 10_000
    play.depart("B")
    play.arrive("F", location=B)
    assert set(had["B"].split(",")) <= set(play.owned("F").split(","))
    play.arrive("E", location=C)
    assert (play.owned("A"), play.owned("F"), play.owned("E")) == tuple(had.values())


def test_after_a_second_departure_the_whole_delay_counts_again():
    play = with_failback()
    had = play.owned("C")
    for name in "EF":
        play.depart("C" if name == "E" else "E")
        play.now_ms += FAILBACK.delay_ms - 2_000
        play.arrive(name, location=C)
        assert play.owned(name) == had


def test_a_new_member_with_a_location_of_its_own_takes_nobodys():
    play = with_failback()
    had = play.owned("C")
    play.depart("C")
    play.arrive("D", location=D)
    play.arrive("E", location=C)
    assert set(play.owned("E").split(",")) <= set(had.split(","))
    assert len(play.owned("E").split(",")) == 3


def test_a_static_member_gets_it_back_under_its_instance_id():
    play = HandPlayedGroup(FAILBACK, {"T": 12})
    for name in "ABC":
        play.join(name, instance=f"i{name}")
    play.settle()
    had = play.owned("C")
    play.depart("C")
    play.arrive("E", instance="iC")
    assert play.owned("E") == had


def test_what_gives_way_for_balance_is_what_is_reassigned():
    """B and C are away, B is back first: A and D give up what is C's, and none of their own."""
    play = with_failback("ABCD", 25)
    had = play.all_owned()
    play.depart("B", "C")
    play.arrive("F", location=B)
    for name in "AD":
        assert set(had[name].split(",")) <= set(play.owned(name).split(","))


def test_who_says_that_it_lives_there_too_gets_nothing_of_it():
    play = with_failback()
    had = play.all_owned()
    play.arrive("E", location=C)
    play.depart("E")
    assert set(had["C"].split(",")) & set(play.owned("C").split(","))


def test_without_a_delay_nothing_is_reassigned_temporarily():
    play = with_failback()
    play.policy = replace(FAILBACK, delay_ms=0)
    play.leave("C")
    leader_state = play.round().leader_state
    assert leader_state.waiting == ()
