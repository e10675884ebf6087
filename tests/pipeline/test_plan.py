"""Plans from tables: what moves, gains and costs; groups that are refused; one way for all."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.running import run as cli
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation
from tests.suites import further

from holdfast.core.assignors.own import assignor
from holdfast.core.assignors.registry import ASSIGNORS, assign
from holdfast.core.model.constants import MOST_PARTITIONS
from holdfast.errors import ConfigError, SourceError
from holdfast.fleet.pipeline import plan as plans
from holdfast.fleet.pipeline import steps
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.pipeline.plan import (
    FLEET,
    Fleet,
    fleet_rows,
    group_of,
    plan,
    plan_rows,
    topics_of,
)
from holdfast.members.config.own_assignors import resolve_for_command


def tables(tmp_path, history, commits=(), ends=()):
    records = fleet.classics(history)
    records += [(g, at, fleet.commit(g, t, p, o, at=at)) for g, t, p, o, at in commits]
    fleet.write_dump(tmp_path / "dump", records, offsets=ends, topics=[("t", 4), ("u", 1)])
    return local.run(tmp_path / "dump", tmp_path / "out", reset="earliest")


TOPICS = {"t": 4, "u": 1}
CROOKED = {"a-1": {"t": [0, 1, 2, 3]}, "b-1": {"t": []}}
EVEN = {"a-1": {"t": [0, 1]}, "b-1": {"t": [2, 3]}}


def test_a_crooked_group_is_evened_out(tmp_path):
    made = tables(tmp_path, [generation("g", 7, CROOKED), generation("empty", 1, {})])
    (row,) = plan(None, made, TOPICS, "sticky").to_pylist()
    assert row["group"] == "g" and row["refused"] is None and row["optimal"]
    assert (row["n_kept"], row["n_moved"]) == (2, 2)
    assert (row["balance_score_before"], row["balance_score"]) == (4, 0)
    moves = json.loads(row["moves"])
    assert [m[2:] for m in moves] == [["a-1", "b-1"]] * 2


def test_lag_comes_from_the_tables(tmp_path):
    commits = [("g", "t", p, 10, 1) for p in range(4)]
    ends = [("t", p, 0, end) for p, end in enumerate((110, 60, 10, 10))]
    made = tables(tmp_path, [generation("g", 7, EVEN)], commits, ends)
    assert fleet_rows(made, TOPICS)["lag"].to_pylist() == [[100, 50, 0, 0]]
    (row,) = plan(None, made, TOPICS, "lag").to_pylist()
    assert (row["largest_lag_before"], row["largest_lag"]) == (150, 100)


def test_a_refused_group_is_a_row_and_stops_no_other(tmp_path):
    uneven = {"a-1": {"t": [0]}, "b-1": {"u": [0]}}
    made = tables(tmp_path, [generation("x", 1, uneven), generation("y", 1, EVEN)])
    rows = plan(None, made, TOPICS, "constrained-sticky").to_pylist()
    assert rows[0]["refused"] and rows[0]["n_moved"] is None
    assert rows[1]["refused"] is None and rows[1]["n_moved"] == 0


def test_nothing_to_plan(tmp_path):
    assert plan(None, tables(tmp_path, []), TOPICS, "sticky").num_rows == 0


def test_only_the_last_generation_counts(tmp_path):
    history = [
        generation("g", 1, {"a-1": {"t": [0, 1, 2, 3]}}, at=1),
        generation("g", 2, {"b-1": {"t": [0, 1, 2, 3]}}, at=2),
    ]
    (row,) = fleet_rows(tables(tmp_path, history), TOPICS).to_pylist()
    assert (row["group"], row["generation"], row["member_ids"]) == ("g", 2, ["b-1"])
    assert (row["topics"], row["owner"]) == (["t"], [0, 0, 0, 0])


def fleet_row(number, counts, asks, owner, **more):
    """A row of FLEET: partitions of each topic, topics that each member asks for, and owners."""
    row = {
        "group": f"g{number:02d}",
        "generation": number,
        "topics": [f"t{i}" for i in range(len(counts))],
        "n_partitions": counts,
        "member_ids": [f"m{i}" for i in range(len(asks))],
        "instance_ids": [None] * len(asks),
        "n_subscribed": [len(one) for one in asks],
        "subscribed": [topic for one in asks for topic in one],
        "owner": owner,
        "lag": [0] * len(owner),
    }
    return row | more


@st.composite
def rows(draw):
    """Rows of FLEET: some groups with one subscription for all, some with several."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        n_topics, n_members = draw(st.integers(0, 4)), draw(st.integers(1, 5))
        counts = [draw(st.integers(0, 9)) for _ in range(n_topics)]
        instances = draw(
            st.lists(
                st.sampled_from(["s", "a", "z"]) | st.none(),
                min_size=n_members,
                max_size=n_members,
            )
        )
        for i, name in enumerate(instances):
            instances[i] = None if name in instances[:i] else name
        everything = list(range(n_topics))
        asks = [everything] * n_members
        if draw(st.booleans()):
            subset = (
                st.lists(st.sampled_from(everything), unique=True) if everything else st.just([])
            )
            asks = [sorted(draw(subset)) for _ in range(n_members)]
            asks[0] = everything
        owner = [draw(st.integers(-1, n_members - 1)) for _ in range(sum(counts))]
        if draw(st.booleans()):
            owner = sorted(owner)
        more = {
            "lag": [draw(st.integers(0, 2**40)) for _ in owner],
            "gap_lower_seconds": draw(st.sampled_from([None, 0.5])),
            "gap_upper_seconds": draw(st.sampled_from([None, 2.0])),
        }
        found.append(fleet_row(number, counts, asks, owner, instance_ids=instances, **more))
    return pa.Table.from_pylist(found, schema=FLEET)


@given(rows(), st.sampled_from(["sticky", "cooperative-sticky"]))
def test_every_number_of_a_plan_is_the_assignors_own(fleet_of, assignor):
    as_one_by_one(fleet_of, assignor)


def as_one_by_one(fleet_of, assignor):
    """Every number and every move is that of the registry's assignor on that group alone."""
    planned = plan_rows(fleet_of, assignor, {}).to_pylist()
    columns = Fleet.of(fleet_of)
    for at, row in enumerate(planned):
        group = group_of(columns, at)
        result = assign(group, assignor)
        before = columns.owner[columns.tp_start[at] : columns.tp_start[at + 1]]
        # A claim of a topic that its member does not ask for is one of nobody to the assignor.
        names, ids = group.topics.name_of, group.member_ids
        moved = np.flatnonzero((before >= 0) & (before != result.target))
        expected = [
            [
                *names(tp),
                ids[before[tp]],
                ids[result.target[tp]] if result.target[tp] >= 0 else None,
            ]
            for tp in moved.tolist()
        ]
        assert json.loads(row["moves"]) == expected
        assert row["n_moved"] == len(expected)
        assert row["balance_score"] == result.quality.balance_score
        assert row["largest_lag"] == max(result.quality.lags.values())
        assert row["optimal"] == result.quality.optimal
        assert row["n_partitions"] == int(np.count_nonzero(result.target >= 0))
        assert row["n_kept"] + row["n_moved"] == int(np.count_nonzero(before >= 0))
        cooperative = ASSIGNORS[assignor].cooperative
        stopped = len(expected) if cooperative else np.count_nonzero(before >= 0) * bool(expected)
        assert row["n_stopped"] == stopped
        per = fleet_of["gap_upper_seconds"][at].as_py()
        assert row["cost_upper_seconds"] == (0 if not stopped else per and per * stopped)


def test_a_plan_costs_what_downtime_has_cost_so_far(tmp_path):
    """Partition 0 stood still for 10 s at least; an eager plan stops all, a cooperative two."""
    history = [
        generation("g", 1, {"a-1": {"t": [0, 1, 2, 3]}}, at=100),
        generation("g", 2, {"a-1": {"t": [1, 2, 3]}, "b-1": {"t": []}}, at=110),
        generation("g", 3, CROOKED, at=120),
    ]
    made = tables(tmp_path, history)
    gaps = made.table("ownership_gaps").to_pylist()
    mean = math.fsum(row["gap_upper_seconds"] for row in gaps) / len(gaps)
    (eager,) = plan(None, made, TOPICS, "sticky").to_pylist()
    (gently,) = plan(None, made, TOPICS, "cooperative-sticky").to_pylist()
    assert (eager["n_moved"], eager["n_stopped"], gently["n_stopped"]) == (2, 4, 2)
    assert mean > 0 and eager["cost_upper_seconds"] == pytest.approx(4 * mean)
    assert gently["cost_upper_seconds"] == pytest.approx(2 * mean)
    assert eager["cost_lower_seconds"] <= eager["cost_upper_seconds"]


def test_a_plan_of_a_group_without_a_history_has_no_cost(tmp_path):
    made = tables(tmp_path, [generation("g", 7, CROOKED)])
    (row,) = plan(None, made, TOPICS, "sticky").to_pylist()
    assert row["cost_lower_seconds"] is None and row["n_stopped"] == 4


def test_the_command_plans_tables_that_were_kept(tmp_path):
    """Without Spark and without a dump: partitions are those of the lag table."""
    made = tables(tmp_path, [generation("g", 7, CROOKED), generation("h", 7, CROOKED)])
    assert topics_of(made) == {"t": 4}
    kept = ["plan", "--input", made.root, "--assignor", "sticky", "--format", "json", "-q"]
    done = cli(*kept, "--group", "g*")
    (row,) = json.loads(done.out)["rows"]
    assert (row["group"], row["n_moved"], row["optimal"]) == ("g", 2, True)
    assert [move[0::2] for move in row["moves"]] == [["t", "a-1"]] * 2
    assert [move[3] for move in row["moves"]] == ["b-1"] * 2
    assert cli(*kept, "--group", "nobody").code == 2


def test_options_reach_the_assignor(tmp_path):
    commits = [("g", "t", p, 10, 1) for p in range(4)]
    ends = [("t", p, 0, end) for p, end in enumerate((1010, 810, 10, 10))]
    made = tables(tmp_path, [generation("g", 7, EVEN)], commits, ends)
    free, none = (
        plan(None, made, TOPICS, "lag-sticky", max_moves=limit).to_pylist()[0] for limit in (4, 0)
    )
    assert free["n_moved"] > 0 == none["n_moved"]
    with pytest.raises(ConfigError, match="did you mean max_moves"):
        plan(None, made, TOPICS, "lag-sticky", max_move=1)


@pytest.mark.spark
@pytest.mark.parametrize("assignor", further(["sticky", "lag-sticky", "constrained-sticky"]))
def test_spark_plans_as_the_driver_does(spark, tmp_path, monkeypatch, assignor):
    history = [
        generation("a", 1, CROOKED),
        generation("../b", 1, {"a-1": {"t": [0], "u": [0]}, "b-1": {"t": [1, 2, 3]}}),
        generation("c\n😀", 1, EVEN),
        generation("d", 1, {}),
    ]
    made = tables(tmp_path, history)
    here = plan(None, made, TOPICS, assignor)
    monkeypatch.setattr(steps, "HERE_ROWS", -1)
    there = plan(lambda: spark, made, TOPICS, assignor)
    assert here.num_rows == 3 and there.equals(here)


LIES = [2**31 - 1, 2**31 - 2, 50_000_000]


@pytest.mark.parametrize("number", LIES)
@pytest.mark.parametrize("ends", [True, False])
def test_a_partition_that_cannot_be_sizes_nothing(tmp_path, number, ends):
    """One group's word costs the other groups neither memory nor partitions."""
    history = [generation("g", 7, CROOKED), generation("liar", 1, {"x": {"t": [0, number]}})]
    known = [("t", p, 0, 9) for p in range(4)] if ends else ()
    made = tables(tmp_path, history, ends=known)
    topics = topics_of(made)
    assert topics["t"] == (4 if ends else 5)  # without ends, what was seen is counted
    rows = {row["group"]: row for row in plan(None, made, topics, "sticky").to_pylist()}
    assert rows["g"]["refused"] is None and rows["g"]["n_moved"] == (2 if ends else 1)
    assert rows["liar"]["refused"] is None


def test_a_dump_whose_topics_cannot_be_is_refused(tmp_path):
    tables(tmp_path, [], ends=[("t", p, 0, 9) for p in range(4)])
    assert Dump.open(tmp_path / "dump").partition_counts() == {"t": 4, "u": 1}
    for count in (2**31 - 1, 2**20 + 1, -1):
        fleet.write_dump(tmp_path / "dump", [], topics=[("t", count)])
        with pytest.raises(SourceError, match=f"topic 't' has {count} partitions, expected at mo"):
            Dump.open(tmp_path / "dump").partition_counts()


def test_a_group_that_is_too_large_is_a_row_and_stops_no_other(tmp_path):
    history = [
        generation("large", 1, {"a-1": {"t": [0], "u": [0]}}),
        generation("other", 1, CROOKED),
    ]
    made = tables(tmp_path, history)
    for count in (MOST_PARTITIONS + 1, 2**31 - 1, 2**40):
        rows = plan(None, made, {"t": 4, "u": count}, "sticky").to_pylist()
        text = f"{4 + count} topic-partitions, of which a plan takes {MOST_PARTITIONS}"
        assert [row["refused"] for row in rows] == [text, None]
        assert rows[0]["n_moved"] is None and rows[1]["n_moved"] == 2


def test_a_group_that_memory_does_not_hold_is_a_row(tmp_path, monkeypatch):
    made = tables(tmp_path, [generation("g", 7, CROOKED), generation("h", 7, CROOKED)])

    planned = []

    def full(group, name):
        planned.append(group)
        if len(planned) == 1:
            raise MemoryError("Unable to allocate 16.0 GiB")
        return assign(group, name)

    monkeypatch.setattr(plans, "assign", full)
    rows = plan(None, made, TOPICS, "fair").to_pylist()
    assert rows[0]["refused"].startswith("too large for the memory of this machine: Unable to")
    assert rows[1]["refused"] is None


def test_an_assignor_of_the_user_plans_and_its_error_is_a_row(tmp_path):
    made = tables(tmp_path, [generation("g", 7, {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}})])
    (row,) = plan(
        None, made, TOPICS, resolve_for_command("tests.live.own_policy:eager")
    ).to_pylist()
    assert (row["refused"], row["n_moved"]) == (None, 0)
    (row,) = plan(None, made, TOPICS, assignor("mine", lambda m, t, c: {})).to_pylist()
    assert row["refused"].startswith("assignor mine: gives ")
