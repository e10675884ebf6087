"""``lag-sticky``: what users of lag assignors reported, and every option."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.assignors.groups import run, settled, snapshot
from tests.strategies import snapshots

from holdfast.core.assignors.optimal import exchange
from holdfast.core.assignors.optimal.levelling import Levelling
from holdfast.core.assignors.registry import assign
from holdfast.core.model.group import Group
from holdfast.errors import ConfigError

NAME = "lag-sticky"


def sixty(seed: int, n_topics: int, n_members: int, shape: str) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    size = 60 // n_topics
    draw = {
        "even": lambda: np.full(size, 500),
        "uniform": lambda: rng.integers(0, 1000, size),
        "exponential": lambda: rng.exponential(1000, size).astype(int),
        "heavy": lambda: (rng.pareto(1, size) * 1000).astype(int),
    }[shape]
    partitions = {f"t{i}": size for i in range(n_topics)}
    lags = {topic: draw().tolist() for topic in partitions}
    return snapshot(partitions, [f"C{i}" for i in range(n_members)], lags=lags)


def noisy(lags: dict[str, list[int]], seed: int, share: float) -> dict[str, list[int]]:
    rng = np.random.default_rng(seed)
    return {
        topic: [round(lag * (1 + rng.uniform(-share, share))) for lag in each]
        for topic, each in lags.items()
    }


# Facts that users reported


def test_100_one_partition_topics_do_not_land_on_one_of_10_members() -> None:
    partitions = {f"t{i:02}": 1 for i in range(100)}
    members = [f"C{i}" for i in range(10)]
    for lags in (None, {topic: [i * 7919 % 1000] for i, topic in enumerate(partitions)}):
        quality = run(snapshot(partitions, members, lags=lags), NAME).quality
        assert set(quality.loads.values()) == {10}
    assert max(quality.lags.values()) < 1.01 * sum(quality.lags.values()) / 10


@pytest.mark.parametrize("shape", ["even", "uniform", "exponential", "heavy"])
@pytest.mark.parametrize("n_topics", [1, 4])
def test_noise_of_2_percent_moves_none_of_60_partitions(shape: str, n_topics: int) -> None:
    for seed in range(12):
        group = sixty(seed, n_topics, 2 + seed % 9, shape)
        rows = run(group, NAME).to_dict()
        again = settled(group, rows, lags=noisy(group["lags"], seed, 0.02))
        assert run(again, NAME).quality.moved == 0, seed


def test_noise_moves_none_of_60_partitions_that_the_lag_assignor_spread() -> None:
    for seed in range(12):
        group = sixty(seed, 1, 10, "uniform")
        rows = run(group, "lag").to_dict()
        again = settled(group, rows, lags=noisy(group["lags"], seed, 0.02))
        assert run(again, NAME).quality.moved == 0, seed
        assert run(again, "lag").quality.moved > 0


@pytest.mark.parametrize("lags", [None, 5])
@pytest.mark.parametrize("name", [NAME, "sticky"])
def test_a_new_member_does_not_get_one_whole_topic(name: str, lags: int | None) -> None:
    """KAFKA-16277."""
    partitions = {f"t{i}": 10 for i in range(10)}
    known = None if lags is None else {topic: [lags] * 10 for topic in partitions}
    group = snapshot(partitions, [f"C{i}" for i in range(10)], lags=known)
    begun = run(group, "range").to_dict()
    joined = settled(group, begun)
    joined["members"].append({"id": "D", "topics": [*partitions], "owned": []})
    result = run(joined, name)
    mine = result.to_dict()["D"]
    assert sum(map(len, mine.values())) == 9
    if name == NAME:
        assert max(map(len, mine.values())) <= 2
    assert result.quality.moved == 9


def test_mixed_subscriptions_settle_at_once_and_stay() -> None:
    """No endless reassignment: the outcome is a fixed point, whatever the lags."""
    rng = np.random.default_rng(7)
    for _ in range(40):
        partitions = {f"t{i}": int(rng.integers(0, 10)) for i in range(6)}
        members = {f"C{i}": [t for t in partitions if rng.random() < 0.5] for i in range(7)}
        lags = {t: rng.integers(0, 1000, n).tolist() for t, n in partitions.items()}
        group = snapshot(partitions, members, lags=lags)
        first = assign(Group.from_dict(group), "roundrobin")
        second = assign(first.next_round(), NAME)
        third = assign(second.next_round(), NAME)
        assert third.target.tolist() == second.target.tolist()


# Goals


def test_counts_and_lag_are_even_over_all_topics_not_in_each() -> None:
    lags = {"t0": [900, 800], "t1": [10, 0], "t2": [5, 5]}
    quality = run(snapshot(dict.fromkeys(lags, 2), ["C0", "C1"], lags=lags), NAME).quality
    assert quality.loads == {"C0": 3, "C1": 3}
    assert quality.lag_spread <= 100


def test_lag_moves_where_it_pays() -> None:
    group = snapshot(
        {"t0": 4},
        ["C0", "C1"],
        owned={"C0": {"t0": [0, 1]}, "C1": {"t0": [2, 3]}},
        lags={"t0": [1000, 1000, 0, 0]},
    )
    result = run(group, NAME)
    assert result.quality.lags == {"C0": 1000, "C1": 1000}
    assert result.quality.moved == 2


def test_many_small_exchanges_that_pay_together_are_made() -> None:
    lags = {"t0": [120] * 20 + [80] * 20}
    owned = {"C0": {"t0": range(20)}, "C1": {"t0": range(20, 40)}}
    quality = run(snapshot({"t0": 40}, ["C0", "C1"], owned=owned, lags=lags), NAME).quality
    assert max(quality.lags.values()) <= 2160  # 2400 and 1600 before, 10 % less at least
    assert quality.moved > 2


def test_a_new_member_takes_lag_as_well_as_partitions() -> None:
    lags = {"t0": [1000, 900, 800, 10, 5, 0], "t1": [700, 600, 500, 2, 1, 0]}
    owned = {"C0": {"t0": range(6)}, "C1": {"t1": range(6)}}
    group = snapshot({"t0": 6, "t1": 6}, ["C0", "C1", "C2"], owned=owned, lags=lags)
    quality = run(group, NAME).quality
    assert quality.loads == {"C0": 4, "C1": 4, "C2": 4}
    assert max(quality.lags.values()) < 1.1 * 4518 / 3
    assert run(group, NAME, hysteresis=100).quality.moved == 4


def test_zero_lag_everywhere_is_an_even_spread_of_counts() -> None:
    group = snapshot({"t0": 7, "t1": 5}, ["a", "b", "c"], lags={"t0": [0] * 7, "t1": [0] * 5})
    assert set(run(group, NAME).quality.loads.values()) == {4}
    assert run(group, NAME).to_dict() == run(dict(group, lags=None), NAME).to_dict()


# Options


def test_max_skew_lets_counts_drift_for_the_sake_of_lag_and_no_further() -> None:
    lags = {"t0": [1000, 400, 400, 400, 400, 400]}
    group = snapshot({"t0": 6}, ["C0", "C1"], lags=lags)
    loads = []
    for max_skew in range(4):
        quality = run(group, NAME, max_skew=max_skew).quality
        assert quality.spread <= 1 + max_skew
        loads.append(max(quality.lags.values()))
    assert loads == [1800, 1600, 1600, 1600]


def test_counts_within_the_skew_are_left_alone() -> None:
    owned = {"C0": {"t0": range(4)}, "C1": {"t0": [4, 5]}}
    group = snapshot({"t0": 6}, ["C0", "C1"], owned=owned)
    assert run(group, NAME, max_skew=1).quality.moved == 0
    assert run(group, NAME, max_skew=0).quality.moved == 1
    mixed = snapshot({"t0": 6, "t1": 0}, {"C0": ["t0"], "C1": ["t0", "t1"]}, owned=owned)
    assert run(mixed, NAME, max_skew=1).quality.moved == 0
    assert run(mixed, NAME, max_skew=0).quality.moved == 1


@pytest.mark.parametrize(("hysteresis", "moved"), [(0, 2), (10, 2), (20, 2), (26, 0), (100, 0)])
def test_hysteresis_is_the_least_gain_in_percent(hysteresis: float, moved: int) -> None:
    owned = {"C0": {"t0": [0, 1]}, "C1": {"t0": [2, 3]}}
    lags = {"t0": [500, 300, 100, 300]}
    group = snapshot({"t0": 4}, ["C0", "C1"], owned=owned, lags=lags)
    quality = run(group, NAME, hysteresis=hysteresis).quality  # from 800 to 600: 25 %
    assert quality.moved == moved


@pytest.mark.parametrize("members", [["C0", "C1"], {"C0": ["t0"], "C1": ["t0", "gone"]}])
@pytest.mark.parametrize("max_moves", [0, 1, 2, 3])
def test_max_moves_caps_every_round_and_later_rounds_finish(members: Any, max_moves: int) -> None:
    group = snapshot({"t0": 8}, members, owned={"C0": {"t0": range(8)}})
    loads = []
    current = assign(Group.from_dict(group), NAME, max_moves=max_moves)
    for _ in range(5):
        assert current.quality.moved <= max_moves
        loads.append(current.quality.loads["C1"])
        current = assign(current.next_round(), NAME, max_moves=max_moves)
    assert loads == [min(4, max_moves * (i + 1)) for i in range(5)]


def test_max_moves_caps_mixed_subscriptions_as_well() -> None:
    members = {"C0": ["t0", "t1"], "C1": ["t0"]}
    group = snapshot({"t0": 8, "t1": 1}, members, owned={"C0": {"t0": range(8), "t1": [0]}})
    assert [run(group, NAME, max_moves=n).quality.moved for n in (0, 2, 4, 9)] == [0, 2, 4, 4]


def test_max_moves_keeps_the_first_exchanges_that_fit() -> None:
    owned = {"C0": {"t0": range(20)}, "C1": {"t0": range(20, 40)}}
    lags = {"t0": [120] * 20 + [80] * 20}
    group = snapshot({"t0": 40}, ["C0", "C1"], owned=owned, lags=lags)
    assert run(group, NAME, max_moves=5).quality.moved == 4
    assert run(group, NAME, max_moves=100).quality.moved > 5


def test_weights_share_counts_and_lag_by_capacity() -> None:
    group = snapshot({"t0": 12}, ["big", "small"], lags={"t0": [100] * 12})
    quality = run(group, NAME, weights={"big": 3}).quality
    assert quality.loads == {"big": 9, "small": 3}
    assert quality.lags == {"big": 900, "small": 300}


def test_weights_with_unequal_subscriptions() -> None:
    group = snapshot({"t0": 10, "t1": 2}, {"a": ["t0"], "b": ["t0", "t1"]})
    assert run(group, NAME, weights={"a": 2.0}).quality.loads == {"a": 8, "b": 4}


def test_a_weight_may_name_an_instance_and_one_of_nobody_is_ignored() -> None:
    group = snapshot({"t0": 4}, ["a", "b"])
    group["members"][0]["instance_id"] = "pod-0"
    quality = run(group, NAME, weights={"pod-0": 3, "gone": 9}).quality
    assert quality.loads == {"a": 3, "b": 1}
    assert run(group, NAME, weights={"a": 3}).quality.loads == {"a": 3, "b": 1}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_skew": -1}, "max_skew: -1, expected an integer of 0 or more"),
        ({"max_skew": 1.5}, "max_skew"),
        ({"max_skew": True}, "max_skew"),
        ({"hysteresis": "10"}, "hysteresis"),
        ({"hysteresis": True}, "hysteresis"),
        ({"hysteresis": 101}, "0 to 100 percent"),
        ({"hysteresis": float("nan")}, "0 to 100 percent"),
        ({"max_moves": -1}, "max_moves"),
        ({"max_moves": "1"}, "max_moves"),
        ({"max_moves": False}, "max_moves"),
        ({"weights": ["C0"]}, "weights: .* mapping"),
        ({"weights": {"C0": "1"}}, r"weights\['C0'\]"),
        ({"weights": {"C0": True}}, r"weights\['C0'\]"),
        ({"weights": {"C0": 0}}, r"weights\['C0'\]"),
        ({"weights": {"C0": float("inf")}}, r"weights\['C0'\]"),
        ({"max_skow": 1}, "unknown option 'max_skow'; did you mean max_skew"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        run(snapshot({"t0": 1}, ["C0"]), NAME, **options)


@given(group=snapshots(), max_moves=st.integers(1, 3))
def test_capped_rounds_come_to_rest(group: dict[str, Any], max_moves: int) -> None:
    current = assign(Group.from_dict(group), NAME, max_moves=max_moves)
    for _ in range(40):
        following = assign(current.next_round(), NAME, max_moves=max_moves)
        if following.quality.moved == 0:
            return
        current = following
    raise AssertionError("still moving after 40 rounds")


def test_lags_near_the_limit_of_int64_do_not_overflow() -> None:
    group = snapshot({"t0": 6}, ["C0", "C1"], lags={"t0": [2**62] * 6})
    for name in (NAME, "lag"):
        assert run(group, name).to_dict()["C0"]["t0"].__len__() == 3


# The exchanges of step 3

LONG = snapshot(
    {"t0": 120},
    ["C0", "C1"],
    owned={"C0": {"t0": range(60)}, "C1": {"t0": range(60, 120)}},
    lags={"t0": [200] * 60 + [0] * 60},
)


SKEWED = snapshot(
    {"t0": 8},
    ["C0", "C1", "C2"],
    owned={"C0": {"t0": range(4)}, "C1": {"t0": [4, 5]}, "C2": {"t0": [6, 7]}},
    lags={"t0": [25, 25, 25, 25, 100, 100, 0, 0]},
)


def test_a_long_run_is_made_in_parts() -> None:
    quality = run(LONG, NAME).quality
    assert quality.lags == {"C0": 6000, "C1": 6000}
    assert quality.moved == 60


def test_passes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_PASSES", 1)
    assert run(LONG, NAME).quality.lags == {"C0": 8800, "C1": 3200}  # one run of 16


def test_unclaimed_partitions_are_exchanged_freely() -> None:
    group = Group.from_dict(LONG)
    owner = np.repeat([0, 1], 60).astype(np.int32)
    state = Levelling(group, owner, np.full(120, -1, np.int32), np.ones(2))
    lags = np.repeat([200, 0], 60)
    steps = exchange.even_out(state, lags, min_gain=1.0)
    assert np.bincount(state.owner, weights=lags).tolist() == [6000, 6000]
    assert steps.n_pairs <= 64


def test_what_is_given_back_keeps_the_counts_within_the_skew() -> None:
    quality = run(SKEWED, NAME, max_skew=1).quality
    assert quality.loads == {"C0": 4, "C1": 2, "C2": 2}
    assert quality.lags == {"C0": 100, "C1": 100, "C2": 100}


def test_tries_that_break_the_balance_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_TRIES", 1)
    assert run(SKEWED, NAME, max_skew=1).quality.moved == 0


def test_of_long_rows_a_sample_is_looked_at() -> None:
    rng = np.random.default_rng(5)
    lags = {"t0": rng.exponential(1000, 1200).astype(int).tolist()}
    owned = {"C0": {"t0": range(600)}, "C1": {"t0": range(600, 1200)}}
    lags["t0"][:600] = [2 * lag for lag in lags["t0"][:600]]
    quality = run(snapshot({"t0": 1200}, ["C0", "C1"], owned=owned, lags=lags), NAME).quality
    assert max(quality.lags.values()) < 1.1 * sum(lags["t0"]) / 2


def test_a_group_without_members_or_partitions_is_answered() -> None:
    assert run(snapshot({"t0": 2}, []), NAME).to_dict() == {}
    assert run(snapshot({"t0": 0}, ["C0"]), NAME).to_dict() == {"C0": {}}
    assert run(snapshot({"t0": 0}, ["C0"]), NAME, weights={"C0": 2}).to_dict() == {"C0": {}}


def test_the_cap_may_leave_nothing_of_what_was_claimed_to_give_up() -> None:
    group = snapshot({"t0": 2}, ["C0", "C1"])
    assert run(group, NAME, max_moves=0).quality.loads == {"C0": 1, "C1": 1}
