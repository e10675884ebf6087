"""KIP-54 - Sticky Partition Assignment Strategy: its examples and sentences, by name."""

from __future__ import annotations

import pytest
from tests.assignors.groups import run, settled, snapshot, tp

from holdfast.core.assignors import laws
from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.model import measure

FOUR_TOPICS = {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
EXAMPLE_1 = "C0: t0p0 t1p1 t3p0; C1: t0p1 t2p0 t3p1; C2: t1p0 t2p1"
UNEQUAL = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
STAIRS = {"t0": 1, "t1": 2, "t2": 3}
STICKY = ("sticky", "cooperative-sticky")


def without(rows: dict, member: str) -> dict:
    return {name: own for name, own in rows.items() if name != member}


# Example 1


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky", "roundrobin"])
def test_example_1_sticky_and_round_robin_begin_alike(name: str) -> None:
    assert run(snapshot(FOUR_TOPICS, ["C0", "C1", "C2"]), name).to_dict() == tp(EXAMPLE_1)


def test_example_1_round_robin_after_c1_left_preserves_only_3() -> None:
    left = snapshot(FOUR_TOPICS, ["C0", "C2"], owned=without(tp(EXAMPLE_1), "C1"))
    result = run(left, "roundrobin")
    assert result.to_dict() == tp("C0: t0p0 t1p0 t2p0 t3p0; C2: t0p1 t1p1 t2p1 t3p1")
    owners = laws.owners(tp(EXAMPLE_1))
    kept = [tp_ for tp_, member in laws.owners(result.to_dict()).items() if owners[tp_] == member]
    assert len(kept) == 3 == result.quality.kept


@pytest.mark.parametrize("name", [*STICKY, "lag-sticky", "fairest-sticky", "constrained-sticky"])
def test_example_1_sticky_after_c1_left_preserves_5(name: str) -> None:
    left = snapshot(FOUR_TOPICS, ["C0", "C2"], owned=without(tp(EXAMPLE_1), "C1"))
    result = run(left, name)
    assert result.quality.kept == 5
    assert result.quality.moved == 0
    assert result.quality.loads == {"C0": 4, "C2": 4}


# Example 2


def test_example_2_round_robin_begins_unbalanced() -> None:
    result = run(snapshot(STAIRS, UNEQUAL), "roundrobin")
    assert result.to_dict() == tp("C0: t0p0; C1: t1p0; C2: t1p1 t2p0 t2p1 t2p2")


@pytest.mark.parametrize("name", [*STICKY, "fair", "fairest-sticky", "lag-sticky"])
def test_example_2_sticky_begins_more_balanced(name: str) -> None:
    result = run(snapshot(STAIRS, UNEQUAL), name)
    assert result.to_dict() == tp("C0: t0p0; C1: t1p0 t1p1; C2: t2p0 t2p1 t2p2")


def test_example_2_round_robin_after_c0_left_preserves_3() -> None:
    begun = tp("C0: t0p0; C1: t1p0; C2: t1p1 t2p0 t2p1 t2p2")
    members = without(UNEQUAL, "C0")
    result = run(snapshot(STAIRS, members, owned=without(begun, "C0")), "roundrobin")
    assert result.to_dict() == tp("C1: t0p0 t1p1; C2: t1p0 t2p0 t2p1 t2p2")
    assert result.quality.kept == 3


@pytest.mark.parametrize("name", [*STICKY, "fairest-sticky", "lag-sticky"])
def test_example_2_sticky_after_c0_left_preserves_5_and_is_more_balanced(name: str) -> None:
    begun = tp("C0: t0p0; C1: t1p0 t1p1; C2: t2p0 t2p1 t2p2")
    members = without(UNEQUAL, "C0")
    result = run(snapshot(STAIRS, members, owned=without(begun, "C0")), name)
    assert result.to_dict() == tp("C1: t0p0 t1p0 t1p1; C2: t2p0 t2p1 t2p2")
    assert result.quality.kept == 5
    assert result.quality.balance_score == 0
    round_robin = run(snapshot(STAIRS, members), "roundrobin")
    assert round_robin.quality.balance_score == 2


# Example 3

TWO_TOPICS = {"t0": 2, "t1": 2}
EXAMPLE_3 = "C0: t0p0 t1p0; C1: t0p1 t1p1"


@pytest.mark.parametrize("name", ["range", "roundrobin", *STICKY])
def test_example_3_range_round_robin_and_sticky_begin_alike(name: str) -> None:
    assert run(snapshot(TWO_TOPICS, ["C0", "C1"]), name).to_dict() == tp(EXAMPLE_3)


def test_example_3_range_gives_a_new_member_nothing() -> None:
    result = run(snapshot(TWO_TOPICS, ["C0", "C1", "C2"], owned=tp(EXAMPLE_3)), "range")
    assert result.to_dict() == tp(EXAMPLE_3 + "; C2:")


def test_example_3_round_robin_is_not_the_stickiest() -> None:
    result = run(snapshot(TWO_TOPICS, ["C0", "C1", "C2"], owned=tp(EXAMPLE_3)), "roundrobin")
    assert result.to_dict() == tp("C0: t0p0 t1p1; C1: t0p1; C2: t1p0")


@pytest.mark.parametrize("name", ["sticky", "constrained-sticky", "lag-sticky"])
def test_example_3_sticky_moves_one_partition_to_the_new_member(name: str) -> None:
    result = run(snapshot(TWO_TOPICS, ["C0", "C1", "C2"], owned=tp(EXAMPLE_3)), name)
    assert result.quality.kept == 3
    assert result.quality.loads["C2"] == 1
    assert result.quality.spread == 1


# Sentences

NEARLY_EVEN = snapshot({"t0": 7, "t1": 4}, ["C0", "C1", "C2", "C3"])
PINNED = snapshot({"t0": 1, "t1": 6}, {"C0": ["t0"], "C1": ["t1"]})


@pytest.mark.parametrize("name", [name for name, i in ASSIGNORS.items() if "balanced" in i.laws])
def test_guarantee_1_the_numbers_differ_by_at_most_one(name: str) -> None:
    assert run(NEARLY_EVEN, name).quality.spread == 1


@pytest.mark.parametrize("name", [*STICKY, "fair", "lag-sticky"])
def test_guarantee_1_or_nothing_of_the_fuller_member_can_go_to_the_emptier(name: str) -> None:
    result = run(PINNED, name)
    assert result.quality.loads == {"C0": 1, "C1": 6}
    laws.is_balanced(PINNED, result)


@pytest.mark.parametrize("name", [*STICKY, "constrained-sticky", "lag-sticky"])
def test_guarantee_2_balance_comes_before_stickiness(name: str) -> None:
    hoarder = snapshot({"t0": 6}, ["C0", "C1"], owned={"C0": {"t0": range(6)}})
    quality = run(hoarder, name).quality
    assert quality.loads == {"C0": 3, "C1": 3}
    assert quality.kept == 3


@pytest.mark.parametrize("name", [*STICKY, "constrained-sticky", "lag-sticky", "fairest-sticky"])
def test_guarantee_2_partitions_stay_as_much_as_possible(name: str) -> None:
    group = snapshot(FOUR_TOPICS, ["C0", "C1", "C2"])
    again = run(settled(group, run(group, name).to_dict()), name)
    assert again.quality.kept == 8


def test_step_2_a_partition_without_subscriber_remains_unassigned() -> None:
    for name in ASSIGNORS:
        group = snapshot({"t0": 2, "nobody": 3}, {"C0": ["t0"], "C1": ["t0"]})
        assert run(group, name).to_dict() == tp("C0: t0p0; C1: t0p1"), name


def test_the_balance_score_is_the_sum_of_differences_of_all_pairs() -> None:
    result = run(snapshot({"t0": 1, "t1": 6}, {"C0": ["t0"], "C1": ["t1"], "C2": []}), "sticky")
    assert result.quality.balance_score == (6 - 1) + (6 - 0) + (1 - 0)


def test_fair_considers_fairness_only_and_starts_from_nothing() -> None:
    fresh = snapshot(FOUR_TOPICS, ["C0", "C1", "C2"])
    swapped = tp("C2: t0p0 t1p1 t3p0; C0: t0p1 t2p0 t3p1; C1: t1p0 t2p1")
    assert run(settled(fresh, swapped), "fair").to_dict() == run(fresh, "fair").to_dict()


def test_fairest_sticky_preserves_all_and_places_the_rest_towards_the_fairest() -> None:
    owned = {"C0": {"t0": [0, 1], "t1": [0, 1], "t2": [0]}, "C1": {"t2": [1]}}
    result = run(snapshot(FOUR_TOPICS, ["C0", "C1", "C2"], owned=owned), "fairest-sticky")
    assert result.quality.kept == 6
    assert result.quality.loads == {"C0": 5, "C1": 2, "C2": 1}
    assert measure.balance_score(measure.loads(result.target, 3)) == 3 + 4 + 1


def test_notes_no_member_is_given_partitions_again_and_again() -> None:
    """KAFKA-2019: the next partition begins at the next member, not at the first."""
    one_each = {f"t{i}": 1 for i in range(9)}
    result = run(snapshot(one_each, ["C0", "C1", "C2"]), "roundrobin")
    assert result.quality.loads == {"C0": 3, "C1": 3, "C2": 3}
