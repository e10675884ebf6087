"""The examples in the rules of successors, each played by the real leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.machine.subscribed import reports
from tests.sim.hand_played import HandPlayedGroup

from holdfast.core.machine.leader.successors import START_MS, TOGETHER_MS
from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design

POLICY = Policy(design=Design.DEFERRED, delay_ms=60_000)
HOUR_MS = 3_600_000


def group(
    partitions: int = 12, members: Sequence[str] = "ABC", policy: Policy = POLICY
) -> HandPlayedGroup:
    """A group that has been as it is for an hour, evenly loaded."""
    each = partitions // len(members)
    owned = {
        name: ",".join(f"T{p}" for p in range(at * each, (at + 1) * each))
        for at, name in enumerate(members)
    }
    play = HandPlayedGroup.of(policy, {"T": partitions}, **owned)
    play.settle()
    play.now_ms += HOUR_MS
    return play


def come(play: HandPlayedGroup, *names: str) -> None:
    for name in names:
        play.join(name)
    play.settle()


def loads(play: HandPlayedGroup) -> dict[str, int]:
    """How many partitions each member owns."""
    return {name: len([p for p in own.split(",") if p]) for name, own in play.all_owned().items()}


def wait_after(play: HandPlayedGroup, *names: str) -> int:
    """The delay of the round in which these are gone, in ms."""
    play.leave(*names)
    return play.round().delay_ms


@pytest.mark.parametrize("design", [Design.DEFERRED, Design.INCREMENTAL])
def test_rule_2_what_a_member_with_a_successor_leaves_does_not_wait(design):
    play = group(policy=replace(POLICY, design=design, interval_ms=1_000))
    for _ in range(8):
        come(play, "D") if "D" not in play.members else play.settle()
        play.now_ms += 1_000
    assert wait_after(play, "A") == 0
    play.settle()
    assert sum(loads(play).values()) == 12
    assert max(loads(play).values()) == 4


def test_rule_2_each_departure_needs_a_successor_of_its_own():
    play = group()
    come(play, "D")
    play.now_ms += 20_000
    assert wait_after(play, "A") == 0
    play.settle()
    play.now_ms += 1_000
    assert wait_after(play, "C") == POLICY.delay_ms


def test_two_that_left_at_once_with_one_successor():
    play = group()
    come(play, "D")
    assert wait_after(play, "A", "B") == POLICY.delay_ms
    assert sum(loads(play).values()) in {9, 10, 11}


def test_the_leader_may_be_the_one_that_leaves():
    """The oldest member leads and is the first one to be replaced."""
    play = group(members="ABCDEF", partitions=24)
    come(play, "G")
    play.now_ms += 5_000
    assert wait_after(play, "A") == 0


def test_a_recent_joiner_may_be_the_first_by_name():
    play = group(members="BCD")
    come(play, "A")
    play.now_ms += 5_000
    assert wait_after(play, "B") == 0


def test_a_recent_joiner_that_is_as_old_as_the_delay_is_a_member_as_any_other():
    play = group()
    come(play, "D")
    play.now_ms += POLICY.delay_ms
    assert wait_after(play, "A") == POLICY.delay_ms


def start(pauses_ms: tuple[int, ...]) -> HandPlayedGroup:
    """A starts, and B, C and so on follow after these pauses."""
    play = HandPlayedGroup.of(POLICY, {"T": 12}, A="")
    play.settle()
    for name, pause_ms in zip("BCDEFG", pauses_ms, strict=False):
        play.now_ms += pause_ms
        come(play, name)
    return play


def test_rule_1_the_members_of_a_start_are_no_successors():
    play = start((1_000, 20_000))
    play.now_ms += 5_000
    assert wait_after(play, "A") == POLICY.delay_ms


def test_rule_1_a_group_that_has_not_grown_for_half_a_minute_has_started():
    play = start((1_000, 1_000, START_MS + 1_000))
    play.now_ms += 8_000
    assert wait_after(play, "A") == 0


def test_rule_1_a_round_without_new_members_makes_no_start_longer():
    play = start((1_000,))
    for _ in range(2):
        play.now_ms += START_MS // 2 + 1_000
        play.round()
    come(play, "C")
    play.now_ms += 5_000
    assert wait_after(play, "A") == 0


def test_who_comes_as_another_leaves_in_a_surge_is_the_next_successor():
    """D comes; A leaves and E comes; C leaves last, and E is its successor."""
    play = group()
    come(play, "D")
    play.now_ms += 5_000
    play.leave("A")
    play.join("E")
    assert play.round().delay_ms == 0
    play.settle()
    assert sorted(loads(play).values()) == [3, 3, 3, 3]
    play.now_ms += 56_000  # D would be no successor any more
    assert wait_after(play, "C") == 0


@pytest.mark.parametrize("pause_ms", [0, 1_000, 50_000])
def test_rule_4_who_is_back_when_its_wait_has_run_out_is_no_successor(pause_ms):
    """A is back as D, in the round in which its time is over or later; then B leaves."""
    play = group()
    assert wait_after(play, "A") == POLICY.delay_ms
    play.now_ms += POLICY.delay_ms
    if pause_ms:
        assert sum(loads(play).values()) == 8
        come(play)
        assert sum(loads(play).values()) == 12
        play.now_ms += pause_ms
    come(play, "D")
    play.now_ms += 1_000
    assert wait_after(play, "B") == POLICY.delay_ms


def test_rule_4_a_vacancy_is_filled_once():
    """A's wait runs out, and D and E come: one of them is back late, the other one is new."""
    play = group(members="ABCDEF", partitions=24)
    wait_after(play, "A")
    play.now_ms += POLICY.delay_ms
    come(play)
    come(play, "G", "H")
    play.now_ms += 1_000
    assert wait_after(play, "B") == 0
    play.settle()
    play.now_ms += 1_000
    assert wait_after(play, "C") == POLICY.delay_ms


def test_a_vacancy_is_remembered_for_another_delay():
    play = group()
    wait_after(play, "A")
    play.now_ms += POLICY.delay_ms
    come(play)
    play.now_ms += POLICY.delay_ms
    come(play, "D")
    play.now_ms += 1_000
    assert wait_after(play, "B") == 0


def test_a_plain_bounce_has_no_successor():
    """A leaves and is back under a new id; then B leaves."""
    play = group()
    assert wait_after(play, "A") == POLICY.delay_ms
    play.now_ms += 5_000
    come(play, "A2")
    assert loads(play)["A2"] == 4
    play.now_ms += 1_000
    assert wait_after(play, "B") == POLICY.delay_ms


def test_rule_3_a_recent_joiner_that_dies_is_waited_for_and_who_replaces_it_is_one_too():
    play = group()
    come(play, "D")
    play.now_ms += 2_000
    assert wait_after(play, "D") == POLICY.delay_ms
    play.now_ms += 2_000
    come(play, "D2")
    assert loads(play)["D2"] == 3
    play.now_ms += 1_000
    assert wait_after(play, "A") == 0


def test_rule_5_a_static_member_has_no_successor():
    play = group()
    play.members["A"] = replace(play.members["A"], instance_id="a")
    play.settle()
    play.now_ms += HOUR_MS
    come(play, "D")
    assert wait_after(play, "A") == POLICY.delay_ms


def test_a_successor_reads_what_the_departed_one_read():
    play = group()
    play.partitions["U"] = 4
    play.join("D")
    play.members["D"] = reports(play.members["D"], topics=("U",))
    play.settle()
    assert wait_after(play, "A") == POLICY.delay_ms


def test_rule_5_an_idle_member_of_the_last_generation_is_no_successor():
    """More members than partitions: D has been there for an hour and owns nothing."""
    play = group(partitions=3)
    come(play, "D")
    play.now_ms += HOUR_MS
    play.settle()
    assert wait_after(play, "A") == POLICY.delay_ms


def test_an_idle_new_member_is_a_successor():
    play = group(partitions=3)
    come(play, "D")
    play.now_ms += 1_000
    assert wait_after(play, "A") == 0
    play.settle()
    assert loads(play) == {"B": 1, "C": 1, "D": 1}


@pytest.mark.parametrize("listed", ["T0", "T0,T1,T2,T3"])
def test_an_old_claim_makes_nobody_wait_who_has_a_successor(listed):
    """B lists a part of what A owned, or all of it, without a generation: as under Design I."""
    play = group()
    come(play, "D")
    play.now_ms += 1_000
    own = (*play.all_owned()["B"].split(","), *listed.split(","))
    numbers = tuple(sorted({int(name[1:]) for name in own}))
    play.members["B"] = reports(play.members["B"], generation=-1, owned=(("T", numbers),))
    assert wait_after(play, "A") == 0
    play.settle()
    assert loads(play) == {"B": 4, "C": 4, "D": 4}


def test_a_liar_gains_no_more_than_its_share():
    """D names no generation for ever; what A leaves is dealt evenly all the same."""
    play = group()
    come(play, "D")
    play.now_ms += HOUR_MS
    play.members["D"] = reports(play.members["D"], generation=-1, owned=())
    play.leave("A")
    play.round()
    play.settle()
    assert max(loads(play).values()) <= 6
    assert loads(play)["D"] <= 5


def test_rule_7_all_that_came_together_are_remembered():
    play = group(members="ABCDEF", partitions=24)
    come(play, "G", "H", "I", "J", "K")
    assert wait_after(play, "A", "B", "C", "D", "E") == 0
    play.settle()
    assert wait_after(play, "F") == POLICY.delay_ms


def test_rule_7_no_more_times_than_a_quarter_are_remembered():
    play = group(members="ABCDEFGH", partitions=24)
    for name in "IJKL":
        come(play, name)
        play.now_ms += TOGETHER_MS
    assert wait_after(play, "A", "B", "C") == 0
    play.settle()
    assert wait_after(play, "D") == POLICY.delay_ms
