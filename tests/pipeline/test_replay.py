"""Replays: fidelity against simulations whose truth is known, and laws over what may not matter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.pipeline import local, worlds
from tests.pipeline.histories import generation
from tests.pipeline.test_replay_story import told

from holdfast.pipeline.replay import run as replays
from holdfast.pipeline.replay.play import replay as replay_story
from holdfast.pipeline.replay.run import REPLAY, Request, replay
from holdfast.pipeline.replay.settings import ReplaySettings, actual_setting
from holdfast.pipeline.replay.story import stories
from holdfast.sim.world.costs import Costs

POLICIES = ("eager", "simple", "holdfast-simple", "deferred", "incremental")
SCENARIOS = ("rolling-bounce", "scale-up", "scale-down", "process-death")
OTHERS = tuple(
    ReplaySettings(policy=policy, assignor=assignor, delay_ms=30_000 * (policy == "deferred"))
    for policy, assignor in (
        ("eager", "range"),
        ("simple", "cooperative-sticky"),
        ("deferred", "cooperative-sticky"),
    )
)


@pytest.fixture(scope="module")
def runs():
    """Each policy in each scenario, with dynamic and with static members, as a group of its own."""
    return {
        f"{policy} {scenario} {'static' if static else 'dynamic'}": worlds.play(
            f"{policy} {scenario} {'static' if static else 'dynamic'}",
            policy=policy,
            scenario=scenario,
            static=static,
            members=4,
            partitions=12,
            seed=5,
        )
        for policy in POLICIES
        for scenario in SCENARIOS
        for static in (False, True)
    }


@pytest.fixture(scope="module")
def fleet(runs, tmp_path_factory):
    """Their stories, through the pipeline."""
    folder = tmp_path_factory.mktemp("worlds")
    worlds.write(folder / "dump", runs.values(), topics=[("topic", 12)])
    return list(stories(local.run(folder / "dump", folder / "tables"), {"topic": 12}))


@pytest.fixture(scope="module")
def actual(fleet):
    """Rows of the actual settings, by group."""
    rows = replay(None, fleet, Request(costs=worlds.COSTS)).to_pylist()
    return {row["group"]: row for row in rows}


def test_every_group_has_one_row_with_its_own_settings(runs, actual):
    assert sorted(actual) == sorted(runs)
    for group, row in actual.items():
        policy = group.split(" ")[0]
        assert row["actual"] and row["policy"] == policy
        assert row["assignor"] == ("range" if policy == "eager" else "cooperative-sticky")
        assert (row["delay_ms"] is not None) == (policy in ("deferred", "incremental"))


def test_what_is_recorded_is_what_the_simulation_did(runs, actual):
    """Rounds and moves by the simulation's ledger are those of the tables."""
    for group, row in actual.items():
        truth = runs[group].report
        assert row["recorded_rebalances"] == truth.rounds, group
        assert row["recorded_moved"] == truth.moved, group


def test_the_replay_does_what_was_recorded(actual):
    """Nearly everywhere exactly: who was there when, and what moved."""
    exact = [
        group
        for group, row in actual.items()
        if row["fidelity_rebalances"] == 1 and row["fidelity_moves"] == 1
    ]
    assert len(exact) >= 0.85 * len(actual), sorted(set(actual) - set(exact))
    assert min(row["fidelity_rebalances"] for row in actual.values()) >= 0.6


def test_the_replay_stops_partitions_about_as_long_as_the_simulation_did(runs, actual):
    for group, row in actual.items():
        if "process-death" in group or row["fidelity_rebalances"] < 1:
            continue  # without a commit before it, a crash looks like a goodbye
        truth = runs[group].report.partition_seconds_stopped
        told = worlds.middle(row, "partition_seconds_stopped")
        assert told == pytest.approx(truth, rel=0.35, abs=5), group


def test_another_policy_does_what_the_simulation_of_it_does(runs, fleet):
    """The eager group's bounce under Design II: nothing visits a third member, as simulated."""
    (story,) = [s for s in fleet if s.group == "eager rolling-bounce dynamic"]
    rows = replay(None, [story], Request(settings=OTHERS, costs=worlds.COSTS)).to_pylist()
    assert [row["policy"] for row in rows] == ["eager", "simple", "deferred"]
    eager, simple, deferred = rows
    truth = runs["deferred rolling-bounce dynamic"].report
    assert (deferred["rebalances"], deferred["moved_to_third"]) == (truth.rounds, 0)
    assert deferred["moved"] == truth.moved == 0
    stopped = [worlds.middle(row, "partition_seconds_stopped") for row in (deferred, eager)]
    assert stopped[0] < stopped[1] / 2
    assert 0 < simple["moved"] < eager["moved"]
    assert {row["fidelity"] for row in rows} == {eager["fidelity"]}
    assert [row["actual"] for row in rows] == [True, False, False]


def test_members_are_as_quick_as_their_follow_up_rounds_show(tmp_path):
    """Heartbeats of 300 ms, replayed with costs that say 3 s: the records know better."""
    quick = Costs(heartbeat_ms=300, poll_ms=100, revoke_ms=50, slow_members=0)
    run = worlds.play("g", policy="cooperative-sticky", scenario="rolling-bounce", costs=quick)
    dump = worlds.write(tmp_path / "dump", [run])
    (story,) = stories(local.run(dump, tmp_path / "tables"))
    low, middle, high, n = story.costs["heartbeat_ms"]
    assert low < 300 < high and middle == pytest.approx(300, rel=0.3) and n > 4
    (row,) = replay(None, [story], Request(given=frozenset())).to_pylist()
    (slow,) = replay(None, [story], Request()).to_pylist()
    truth = run.report.partition_seconds_unowned
    name = "partition_seconds_unowned"
    off = [abs(worlds.middle(r, name) - truth) for r in (row, slow)]
    assert off[0] < off[1] / 2


def test_quiet_time_costs_nothing_and_changes_nothing(fleet):
    """Hours between happenings instead of seconds: the same numbers, to the last digit."""
    for story in fleet[::3]:
        (session,) = [s for s in story.sessions if s.happenings]
        if len(session.happenings) != 1:
            continue
        late = tuple(replace(h, at_ms=h.at_ms + 36_000_000) for h in session.happenings)
        slow = replace(story, sessions=(replace(session, happenings=late),))
        setting, _ = actual_setting(story, 30_000)
        first, second = (replay_story(s, setting, worlds.COSTS, seed=1) for s in (story, slow))
        assert first == second


def test_happenings_keep_their_distance_while_state_is_still_rebuilt():
    """Rebuilding lasts far longer than the time between happenings: each still has its round."""
    ids, history, at = ["m0-0", "m1-0", "m2-0"], [], 0
    for number, change in enumerate([None, "m0-0", "m0-1", "m1-0", "m1-1"], 1):
        if change is not None:
            ids = [i for i in ids if i != change] if change in ids else sorted([*ids, change])
        at += 20
        owned = {i: {"t": list(range(k, 60, len(ids)))} for k, i in enumerate(ids)}
        history.append(generation("g", number, owned, at=at, protocol="roundrobin"))
    (row,) = replay(None, [told(history)], Request(costs=worlds.COSTS)).to_pylist()
    assert (row["rebalances"], row["recorded_rebalances"]) == (4, 4)
    assert row["fidelity_rebalances"] == 1
    assert worlds.middle(row, "partition_seconds_stopped") > 60 * 20


def test_a_replay_is_the_same_every_time(fleet):
    request = Request(settings=OTHERS, costs=worlds.COSTS, seed=4)
    some = fleet[::7]
    assert replay(None, some, request).equals(replay(None, some, request))


def test_an_assignor_that_nobody_knows_is_replayed_as_the_nearest():
    story = told([generation("g", 1, {"a": {"t": [0]}}, protocol="ours")])
    row = replay(None, [story], Request()).to_pylist()[0]
    assert (row["policy"], row["assignor"]) == ("eager", "range")
    assert "'ours' is not known" in row["note"] and row["fidelity"] is None
    assert row["n_events"] == 0 == row["rebalances"]


def test_lags_reach_the_leader():
    """Two members, one partition far behind: by lag it gets a member of its own."""
    two = {"a-1": {"t": [0, 1]}, "b-1": {"t": [2, 3]}}
    three = two | {"c-1": {"t": []}}
    story = told([generation("g", 1, two, at=10), generation("g", 2, three, at=100)])
    behind = replace(story, lags={"t": (10_000, 1, 1, 1)})
    setting = ReplaySettings(policy="eager", assignor="lag", actual=True)
    plain, by_lag = (replay_story(s, setting, worlds.COSTS) for s in (story, behind))
    assert plain.rebalances == by_lag.rebalances == 1
    assert plain.moved != by_lag.moved


def test_a_setting_that_is_refused_is_a_row_with_a_note():
    story = told(
        [
            generation("g", 1, {"a": {"t": [0]}}, at=1),
            generation("g", 2, {"a": {"t": [0]}, "b": {"t": []}}, at=50),
        ]
    )
    request = Request(settings=(ReplaySettings(policy="eager", assignor="stiky"),))
    rows = replay(None, [story], request).to_pylist()
    assert rows[0]["note"] is None and rows[0]["rebalances"] == 1
    assert rows[1]["rebalances"] is None and "did you mean sticky" in rows[1]["note"]


@pytest.mark.spark
def test_spark_replays_as_the_driver_does(spark, fleet, monkeypatch):
    request = Request(settings=OTHERS, costs=worlds.COSTS, seed=2)
    some = fleet[::9]
    here = replay(None, some, request)
    monkeypatch.setattr(replays, "DRIVER_EVENTS", 0)
    there = replay(lambda: spark, some, request)
    assert there.schema == REPLAY and there.equals(here)
