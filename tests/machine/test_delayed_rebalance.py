"""The examples in the rules of the delayed rebalance, each played by the real leader.

The examples of rules 1, 3, 5 and 6 are the document's:
``tests/kips/test_incremental_cooperative.py``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machine.subscribed import reports
from tests.sim.hand_played import HandPlayedGroup

from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import resources_of

POLICY = Policy(design=Design.DEFERRED, delay_ms=30_000)
TOPICS = st.text("abcdefghijklmnopqrstuvwxyz.-_", min_size=1, max_size=4)


@pytest.fixture
def play() -> HandPlayedGroup:
    """A, B and C own partitions 0, 1 and 2."""
    return HandPlayedGroup.of(POLICY, {"T": 3}, A="T0", B="T1", C="T2")


def test_rule_2_a_partition_that_nobody_ever_owned_does_not_wait(play):
    play.partitions["T"] = 4
    play.settle()
    assert sorted("".join(play.all_owned().values())) == sorted("T0T1T2T3,")


def departs_with(old: dict[str, int], names: str, gone: str) -> HandPlayedGroup:
    """Members own these topics, which are all there are; then some of them depart at once."""
    play = HandPlayedGroup(POLICY, dict(old))
    for name in names:
        play.join(name, *old)
    play.settle()
    play.leave(*gone)
    return play


@pytest.mark.parametrize(
    ("old", "names", "gone", "new"),
    [
        ({"T": 1}, "AB", "A", {"U": 3}),
        ({"T": 2}, "ABC", "AB", {"U": 2}),
        ({"T": 1, "V": 1, "W": 1}, "ABCD", "ABC", {"U": 2, "X": 1}),
        ({"leader": 1}, "AB", "A", {"shard": 4, "connector": 1}),  # kinds of a worker
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_rule_2_a_new_topic_waits_for_nobody_where_nobody_claims_an_old_one(
    old, names, gone, new, at_once
):
    play = departs_with(old, names, gone)
    if not at_once:
        play.round()
    play.partitions |= new
    for name in play.members:
        play.members[name] = reports(play.members[name], topics=tuple(sorted({**old, **new})))
    done = play.round()
    owned = {r for m in play.members.values() for r in resources_of(m.subscription.owned)}
    assert owned == {(topic, p) for topic, count in new.items() for p in range(count)}
    waits = {r for w in done.waiting for r in resources_of(w.owned)}
    assert waits == {(topic, p) for topic, count in old.items() for p in range(count)}


@given(
    old=st.dictionaries(TOPICS, st.integers(1, 3), min_size=1, max_size=4),
    new=st.dictionaries(TOPICS, st.integers(1, 3), min_size=1, max_size=4),
    members=st.integers(2, 9),
    gone=st.integers(1, 3),
    leader=st.booleans(),
)
def test_rule_2_only_what_was_owned_waits(old, new, members, gone, leader):
    """Whatever the topics are called, whoever is left, and whoever leads."""
    names = "ABCDEFGHI"[:members]
    away = names[:gone] if leader else names[members - gone :]
    if len(away) == members:
        away = away[1:]
    play = HandPlayedGroup(POLICY, dict(old))
    for name in names:
        play.join(name, *old)
    play.settle()
    owned = {r for m in away for r in resources_of(play.members[m].subscription.owned)}
    play.leave(*away)
    play.partitions = {**new, **old}
    for name in play.members:
        play.members[name] = reports(play.members[name], topics=tuple(sorted(play.partitions)))
    waits = {r for w in play.round().waiting for r in resources_of(w.owned)}
    assert waits == owned


@pytest.mark.parametrize("returns", [False, True])
def test_rule_2_an_old_claim_takes_nothing_from_its_newest_owner(returns):
    play = HandPlayedGroup.of(POLICY, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.members["C"] = replace(play.members["C"], instance_id="c")
    play.round()
    play.leave("C")
    play.members["B"] = reports(play.members["B"], owned=(("T", (1, 2)),), generation=-1)
    assert play.round().again
    assert play.said("B") == "assigned:,revoked:T2"
    if returns:
        play.members["B"] = reports(play.members["B"], owned=(("T", (1, 2)),), generation=-1)
        play.join("C", instance="c")
        assert play.round().again  # B holds it back once more, and it waits on
    assert play.round().delay_ms == (0 if returns else 30_000)
    owned = {"A": "T0", "B": "T1", "D": "T3"}
    assert play.all_owned() == ({**owned, "C": "T2"} if returns else owned)


def test_rule_2_what_is_held_back_from_a_new_member_costs_nobody_else():
    play = HandPlayedGroup.of(POLICY, {"T": 8}, A="T0,T1", B="T2,T3", C="T4,T5", D="T6,T7")
    play.leave("C")
    play.members["B"] = reports(play.members["B"], owned=(("T", (2, 3, 4, 5)),), generation=-1)
    play.join("E")
    play.round()
    assert play.said("B") == "assigned:,revoked:T4,T5"
    assert play.settle() == 1
    assert play.all_owned() == {"A": "T0,T1", "B": "T2,T3", "D": "T6,T7", "E": "T4,T5"}


@pytest.mark.parametrize("design", [Design.DEFERRED, Design.INCREMENTAL])
def test_rule_2_what_is_held_back_is_asked_for_at_once(design):
    """It is no move of a batch: the claim cannot stand."""
    policy = replace(POLICY, design=design, batch=1, interval_ms=60_000)
    play = HandPlayedGroup.of(policy, {"T": 9}, A="T0,T1", B="T2,T3", C="T4,T5,T6", D="T7,T8")
    play.leave("C")
    play.members["B"] = reports(play.members["B"], owned=(("T", (2, 3, 4, 5, 6)),), generation=-1)
    play.round()
    assert play.said("B") == "assigned:,revoked:T4,T5,T6"


def _held_back_from_one_that_is_back() -> HandPlayedGroup:
    """C is back and has T5 and T6, while B revoked T4, which waits for C."""
    play = HandPlayedGroup.of(POLICY, {"T": 9}, A="T0,T1", B="T2,T3", C="T4,T5,T6", D="T7,T8")
    play.members["C"] = replace(play.members["C"], instance_id="c")
    play.round()
    play.leave("C")
    play.members["B"] = reports(play.members["B"], owned=(("T", (2, 3, 4)),), generation=-1)
    play.join("C", instance="c")
    play.round()
    assert play.said("B") == "assigned:,revoked:T4"
    assert play.all_owned() == {"A": "T0,T1", "B": "T2,T3", "C": "T5,T6", "D": "T7,T8"}
    return play


def test_rule_4_what_is_reserved_costs_nobody_a_claim():
    """Neither its member, which would give up one for it, nor another one."""
    play = _held_back_from_one_that_is_back()
    play.join("E")
    assert play.round().again
    owned = {"A": "T0,T1", "B": "T2,T3", "C": "T4,T5,T6", "D": "T7,T8", "E": ""}
    assert play.all_owned() == owned
    play.settle()
    assert [len(own.split(",")) for own in play.all_owned().values()] == [2, 2, 2, 2, 1]


def test_rule_4_a_member_gives_what_is_free_in_return_for_what_is_reserved_for_it():
    play = _held_back_from_one_that_is_back()
    play.join("E")
    play.partitions["T"] = 12
    play.round()
    owned = play.all_owned()
    assert owned["C"] == "T4,T5,T6"
    assert sorted(len(own.split(",")) for own in owned.values()) == [2, 2, 2, 3, 3]


@pytest.mark.parametrize(("instance_id", "owned"), [(None, "T2"), ("c", "")])
def test_rule_4_a_new_member_replaces_a_dynamic_member_alone(play, instance_id, owned):
    play.members["C"] = replace(play.members["C"], instance_id=instance_id)
    play.settle()
    play.leave("C")
    play.round()
    play.join("D")
    play.round()
    assert play.owned("D") == owned


@pytest.mark.parametrize("generation", [-1, 2**31 - 1])
def test_rule_4_a_new_member_is_one_whatever_generation_it_names(play, generation):
    """An impossible generation is ignored, so the departed member's partitions do not wait."""
    play.settle()
    play.leave("C")
    play.round()
    play.join("D")
    play.members["D"] = reports(play.members["D"], owned=(), generation=generation)
    play.unbroken = True
    play.round()
    assert play.owned("D") == "T2"


def uneven(design: Design, n: int) -> HandPlayedGroup:
    """A owns two of n partitions, and B, that has died, all others."""
    paced = replace(POLICY, design=Design.INCREMENTAL, batch=1, interval_ms=60_000)
    others = ",".join(f"T{p}" for p in range(1, n))
    play = HandPlayedGroup.of(paced, {"T": n}, A="T0", B=others)
    play.round()
    play.policy = replace(paced, design=design)
    play.leave("B")
    assert play.round().delay_ms == 30_000
    assert len(play.owned("A").split(",")) == 2
    return play


@pytest.mark.parametrize(
    ("design", "settled"), [(Design.DEFERRED, [4, 4]), (Design.INCREMENTAL, [3, 5])]
)
def test_rule_4_a_new_member_replaces_another_even_above_its_fair_share(design, settled):
    play = uneven(design, 8)
    play.join("D")
    done = play.round()
    assert (done.again, done.delay_ms) == (True, 0)
    assert [len(own.split(",")) for own in play.all_owned().values()] == [2, 6]
    play.now_ms += 60_000
    play.settle()
    assert [len(own.split(",")) for own in play.all_owned().values()] == settled


def test_rule_4_each_new_member_replaces_one_member():
    play = HandPlayedGroup.of(POLICY, {"T": 6}, A="T0,T1", B="T2,T3", C="T4,T5")
    play.leave("B", "C")
    play.join("D")
    done = play.round()
    assert (play.owned("D"), done.delay_ms) in [("T2,T3", 30_000), ("T4,T5", 30_000)]
    play.join("E")
    play.round()
    assert {play.owned("D"), play.owned("E")} == {"T2,T3", "T4,T5"}


def test_rule_4_spare_new_members_divide_one_members_partitions_and_leave_none():
    play = uneven(Design.DEFERRED, 14)
    play.join("D")
    play.join("E")
    assert play.round().delay_ms == 0
    owned = sorted(own.split(",") for own in play.all_owned().values())
    assert sorted(len(own) for own in owned) == [4, 5, 5]


def test_rule_4_of_an_unknown_owner_a_new_member_gets_its_fair_share():
    play = HandPlayedGroup.of(POLICY, {"T": 8}, A="T0,T1")
    assert play.last.delay_ms == 30_000
    play.join("D")
    done = play.round()
    assert play.owned("D") == "T2,T3,T4,T5"
    # The two that wait on hold nothing else up: what A and D own is evened out at once.
    assert (done.delay_ms, done.again) == (0, True)
    play.settle()
    assert sorted(len(own.split(",")) for own in play.all_owned().values()) == [3, 3]
    assert play.last.delay_ms == 30_000
