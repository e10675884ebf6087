"""KAFKA-5337, the lag based assignor: its sentences, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from kafka import KafkaConsumer
from tests.assignors.groups import run, snapshot
from tests.machine.subscribed import subscribed
from tests.strategies import snapshots

from holdfast.core.assignors import laws
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.leader.leader import plan_round
from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design
from holdfast.errors import ConfigError
from holdfast.members.clients.kafka.consumer import settings_of


def topic_counts(rows: dict[str, dict[str, list[int]]], topic: str) -> list[int]:
    return sorted(len(own.get(topic, ())) for own in rows.values())


def test_partitions_are_assigned_in_decreasing_order_of_lag() -> None:
    group = snapshot({"t0": 3}, ["C0", "C1", "C2"], lags={"t0": [5, 500, 50]})
    by_lag = run(group, "lag").to_dict()
    members = [next(m for m, own in by_lag.items() if own["t0"] == [p]) for p in (1, 2, 0)]
    tied = run(dict(group, lags={"t0": [7, 7, 7]}), "lag").to_dict()
    order = [next(m for m, own in tied.items() if own["t0"] == [p]) for p in (0, 1, 2)]
    assert members == order  # the largest goes where the first of equals goes, and so on


def test_ties_go_to_the_member_with_the_least_lag() -> None:
    group = snapshot({"t0": 4}, ["C0", "C1"], lags={"t0": [100, 60, 30, 10]})
    rows = run(group, "lag").to_dict()
    assert {tuple(own["t0"]) for own in rows.values()} == {(0, 3), (1, 2)}


def test_a_round_is_not_decided_by_the_round_before_alone() -> None:
    group = snapshot({"t0": 6}, ["C0", "C1"], lags={"t0": [90, 50, 40, 30, 20, 10]})
    rows = run(group, "lag").to_dict()
    assert {tuple(own["t0"]) for own in rows.values()} == {(0, 3, 5), (1, 2, 4)}


def test_it_operates_on_a_per_topic_basis() -> None:
    group = snapshot({"t0": 1, "t1": 4}, ["C0", "C1"], lags={"t0": [900], "t1": [100, 60, 30, 10]})
    rows = run(group, "lag").to_dict()
    assert {tuple(own["t1"]) for own in rows.values()} == {(0, 3), (1, 2)}  # whoever has t0


def test_what_a_topic_leaves_tied_is_broken_by_totals_over_all_topics() -> None:
    lags = {"t0": [900, 1], "t1": [900, 1]}
    rows = run(snapshot({"t0": 2, "t1": 2}, ["C0", "C1"], lags=lags), "lag").to_dict()
    assert {own["t0"][0] + own["t1"][0] for own in rows.values()} == {1}  # one large lag each


def test_balanced_by_count_when_all_lags_are_0() -> None:
    group = snapshot({"t0": 7, "t1": 5}, ["C0", "C1", "C2"], lags={"t0": [0] * 7, "t1": [0] * 5})
    result = run(group, "lag")
    assert sorted(result.quality.loads.values()) == [4, 4, 4]


def test_balanced_by_count_when_the_lags_are_heavily_skewed() -> None:
    group = snapshot({"t0": 9}, ["C0", "C1", "C2"], lags={"t0": [10**12] + [0] * 8})
    assert topic_counts(run(group, "lag").to_dict(), "t0") == [3, 3, 3]


def test_lag_is_the_end_less_the_last_committed_offset() -> None:
    offsets = {"t0": [{"begin": 10, "end": 100, "committed": 40}]}
    group = {**snapshot({"t0": 1}, ["C0"]), "offsets": offsets}
    assert run(group, "lag").quality.lags == {"C0": 60}


def test_without_a_commit_latest_has_lag_0() -> None:
    offsets = {"t0": [{"begin": 10, "end": 100, "committed": None}]}
    group = {**snapshot({"t0": 1}, ["C0"]), "offsets": offsets, "auto_offset_reset": "latest"}
    assert run(group, "lag").quality.lags == {"C0": 0}


def test_without_a_commit_earliest_or_anything_else_has_all_that_is_available() -> None:
    offsets = {"t0": [{"begin": 10, "end": 100, "committed": None}]}
    for reset in ("earliest", "none", "by_duration:P1D"):
        group = {**snapshot({"t0": 1}, ["C0"]), "offsets": offsets, "auto_offset_reset": reset}
        assert run(group, "lag").quality.lags == {"C0": 90}


def test_never_always_the_same_member_gets_the_extra_partition() -> None:
    members = [f"C{i}" for i in range(4)]
    topics = [run(snapshot({f"t{i}": 5}, members), "lag").quality.loads for i in range(40)]
    assert {max(loads, key=loads.__getitem__) for loads in topics} == set(members)
    groups = [
        run(snapshot({"t": 5}, members), "lag", group_id=f"group-{i}").quality.loads
        for i in range(40)
    ]
    assert {max(loads, key=loads.__getitem__) for loads in groups} == set(members)


def test_100_one_partition_topics_on_10_members_are_spread() -> None:
    partitions = {f"t{i:02}": 1 for i in range(100)}
    for lags in (None, {name: [3] for name in partitions}, {"t07": [10**6]}):
        group = snapshot(partitions, [f"C{i}" for i in range(10)], lags=lags)
        assert set(run(group, "lag").quality.loads.values()) == {10}


def one_by_one(group: dict[str, Any], topic: str) -> dict[str, int]:
    """The document's loop for one topic, up to ties: lag of each member by count and lag alone."""
    members = [m["id"] for m in group["members"] if topic in m["topics"]]
    lags = sorted(group.get("lags", {}).get(topic, [0] * group["partitions"][topic]), reverse=True)
    count, lag = dict.fromkeys(members, 0), dict.fromkeys(members, 0)
    for each in lags if members else ():
        chosen = min(members, key=lambda m: (count[m], lag[m]))
        count[chosen] += 1
        lag[chosen] += each
    return lag


@given(group=snapshots())
def test_each_topic_has_the_lags_of_the_loop_of_the_document(group: dict[str, Any]) -> None:
    rows = laws.owners(run(group, "lag").to_dict())
    for topic, n in group["partitions"].items():
        lags = group.get("lags", {}).get(topic, [0] * n)
        lag = {m["id"]: 0 for m in group["members"] if topic in m["topics"]}
        for partition in range(n):
            if (topic, partition) in rows:
                lag[rows[topic, partition]] += lags[partition]
        assert sorted(lag.values()) == sorted(one_by_one(group, topic).values())


@pytest.mark.parametrize("design", list(Design))
def test_under_a_design_lag_is_refused_because_it_never_rests(design) -> None:
    with pytest.raises(ConfigError, match=r"lag would move .* in every round.*take lag-sticky"):
        DesignAssignor(Policy(design=design, assignor="lag"))


@pytest.mark.parametrize("design", list(Design))
def test_lag_sticky_rests_under_a_design_while_lags_vary(design) -> None:
    policy = Policy(design=design, assignor="lag-sticky", delay_ms=0, interval_ms=0)
    members = [subscribed(m, topics=("t",), owned=(), generation=-1) for m in "abc"]
    rng, again = np.random.default_rng(3), []
    for generation in range(60):
        lags = {"t": (1000 + rng.integers(-50, 50, 12)).tolist()}
        done = plan_round(policy, members, {"t": 12}, generation=generation, lags=lags)
        again.append(done.again)
        members = [
            subscribed(m, topics=("t",), owned=a.listed, generation=generation)
            for m, a in done.assignments.items()
        ]
    assert sum(again) <= 3
    assert not any(again[10:])


@pytest.mark.parametrize(
    ("word", "expected"),
    [("latest", "latest"), ("smallest", "earliest"), ("largest", "latest"), ("never", "none")],
)
def test_the_lags_of_a_member_on_kafka_python_begin_where_its_group_begins(word, expected) -> None:
    options = {**KafkaConsumer.DEFAULT_CONFIG, "auto_offset_reset": word, "group_id": "g"}
    options["bootstrap_servers"] = "127.0.0.1:1"
    assert (
        settings_of({**options, "partition_assignment_strategy": ["lag"]}, {}, written=())[
            "auto.offset.reset"
        ]
        == expected
    )
