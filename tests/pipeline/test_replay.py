"""Replays: fidelity against simulations whose truth is known, and laws over what may not matter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.pipeline import local, worlds
from tests.pipeline.histories import generation
from tests.pipeline.test_replay_trace import killed, told

from holdfast.fleet.pipeline.replay.run import Request, actual_setting, replay
from holdfast.fleet.pipeline.replay.session import ReplaySettings, played
from holdfast.fleet.pipeline.replay.trace_builder import traces

pytestmark = pytest.mark.xdist_group("replay")

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
    return list(traces(local.run(folder / "dump", folder / "tables"), {"topic": 12}))


@pytest.fixture(scope="module")
def actual(fleet):
    """Rows of the actual settings, by group."""
    rows = replay(None, fleet, Request()).to_pylist()
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
    """Who was there when, and what moved, of every group: no cost is needed for it."""
    for group, row in actual.items():
        assert row["fidelity_rebalances"] == row["fidelity_moves"] == 1, group
        assert row["rebalances"] == row["recorded_rebalances"], group


def test_seconds_are_the_waits_for_members(runs, actual):
    """A member is back after 10 s: twelve partitions wait for theirs, unless they are handed on."""
    name = "partition_seconds_awaited"
    for group, row in actual.items():
        truth = runs[group].report.partition_seconds_unowned
        assert row[name] <= truth + 1, group
        if "static" not in group and "rolling" in group:
            waits = truth if row["delay_ms"] else 0
            assert row[name] == pytest.approx(waits, rel=0.1), group


def test_another_policy_does_what_the_simulation_of_it_does(runs, fleet):
    """The eager group's bounce under Design II: nothing visits a third member, as simulated."""
    (trace,) = [s for s in fleet if s.group == "eager rolling-bounce dynamic"]
    rows = replay(None, [trace], Request(settings=OTHERS)).to_pylist()
    assert [row["policy"] for row in rows] == ["eager", "simple", "deferred"]
    eager, simple, deferred = rows
    truth = runs["deferred rolling-bounce dynamic"].report
    assert (deferred["rebalances"], deferred["moved_to_third"]) == (truth.rounds, 0)
    assert deferred["moved"] == truth.moved == 0
    assert (eager["revocations"], deferred["revocations"]) == (8 * 12, 12)
    assert 0 < simple["moved"] < eager["moved"]
    assert {row["fidelity"] for row in rows} == {eager["fidelity"]}
    assert [row["actual"] for row in rows] == [True, False, False]


def test_a_migration_to_the_new_protocol_moves_twice_and_defers_nothing(fleet):
    """Under KIP-848 a member that is away loses its partitions and gets as many back."""
    (trace,) = [s for s in fleet if s.group == "simple rolling-bounce dynamic"]
    new = ReplaySettings(policy="kip848", assignor="uniform")
    actual, moved, _, deferred = replay(
        None, [trace], Request(settings=(new, *OTHERS[::2]))
    ).to_pylist()
    assert moved["policy"] == "kip848" and moved["delay_ms"] is None and moved["note"] is None
    assert moved["revocations"] == moved["moved"] >= 20
    assert moved["partition_seconds_awaited"] == actual["partition_seconds_awaited"] == 0
    assert deferred["partition_seconds_awaited"] > 100
    assert (deferred["moved"], deferred["revocations"]) == (0, 12)


def test_members_of_an_eager_group_wait_until_a_dead_one_is_removed():
    """It is back after 3 s of its session of 10 s: both partitions of the other stand still."""
    rows = replay(None, [killed(stayed_until_ms=23_000)], Request(settings=OTHERS[2:])).to_pylist()
    eager, deferred = (row["partition_seconds_awaited"] for row in rows)
    assert eager == pytest.approx(2 * 10 + 2 * 7, abs=1)
    assert deferred == pytest.approx(2 * 10, abs=1)


def test_who_stops_all_while_it_joins_is_down_until_a_dead_member_is_removed():
    """kafka-python does, whatever the policy; Java does not; Design II is run by ours."""
    found = {}
    for client in ("kafka-python-3", "consumer-g-1"):
        trace = killed(stayed_until_ms=23_000, client_id=client)
        rows = replay(None, [trace], Request(settings=OTHERS[1:])).to_pylist()
        found[client] = [row["partition_seconds_awaited"] for row in rows]
    python, java = found.values()
    assert python[1] == pytest.approx(java[1] + 2 * 7, abs=1)
    assert (python[0], python[2]) == (java[0], java[2])


def test_quiet_time_costs_nothing_and_changes_nothing(fleet):
    """Hours between happenings instead of seconds: the same numbers, to the last digit."""
    for trace in fleet[::3]:
        (session,) = [s for s in trace.sessions if s.events]
        if len(session.events) != 1:
            continue
        late = tuple(replace(h, at_ms=h.at_ms + 36_000_000) for h in session.events)
        slow = replace(trace, sessions=(replace(session, events=late),))
        setting, _ = actual_setting(trace, 30_000)
        first, second = (played(s, setting, seed=1) for s in (trace, slow))
        assert first == second


def test_events_of_different_records_are_different_rounds():
    """A second apart: what one record shows is one round, and the next record is the next one."""
    ids, history = ["m0-0", "m1-0", "m2-0"], []
    for number, change in enumerate([None, "m0-0", "m0-1", "m1-0", "m1-1"], 1):
        if change is not None:
            ids = [i for i in ids if i != change] if change in ids else sorted([*ids, change])
        owned = {i: {"t": list(range(k, 60, len(ids)))} for k, i in enumerate(ids)}
        history.append(generation("g", number, owned, at=number, protocol="roundrobin"))
    (row,) = replay(None, [told(history)], Request()).to_pylist()
    assert (row["rebalances"], row["recorded_rebalances"]) == (4, 4)
    assert row["fidelity_rebalances"] == 1 and row["revocations"] == 4 * 60


def test_a_replay_is_the_same_every_time(fleet):
    request = Request(settings=OTHERS, seed=4)
    some = fleet[::7]
    assert replay(None, some, request).equals(replay(None, some, request))


def test_an_assignor_that_nobody_knows_is_replayed_as_the_nearest():
    trace = told([generation("g", 1, {"a": {"t": [0]}}, protocol="ours")])
    row = replay(None, [trace], Request()).to_pylist()[0]
    assert (row["policy"], row["assignor"]) == ("eager", "range")
    assert "'ours' is not known" in row["note"] and row["fidelity"] is None
    assert row["n_events"] == 0 == row["rebalances"]


def test_lags_reach_the_leader():
    """Two members, one partition far behind: by lag it gets a member of its own."""
    two = {"a-1": {"t": [0, 1]}, "b-1": {"t": [2, 3]}}
    three = two | {"c-1": {"t": []}}
    trace = told([generation("g", 1, two, at=10), generation("g", 2, three, at=100)])
    behind = replace(trace, lags={"t": (10_000, 1, 1, 1)})
    setting = ReplaySettings(policy="eager", assignor="lag", actual=True)
    plain, by_lag = (played(s, setting) for s in (trace, behind))
    assert plain.rebalances == by_lag.rebalances == 1
    assert plain.moved != by_lag.moved


def test_a_setting_that_is_refused_is_a_row_with_a_note():
    trace = told(
        [
            generation("g", 1, {"a": {"t": [0]}}, at=1),
            generation("g", 2, {"a": {"t": [0]}, "b": {"t": []}}, at=50),
        ]
    )
    request = Request(settings=(ReplaySettings(policy="eager", assignor="stiky"),))
    rows = replay(None, [trace], request).to_pylist()
    assert rows[0]["note"] is None and rows[0]["rebalances"] == 1
    assert rows[1]["rebalances"] is None and "did you mean sticky" in rows[1]["note"]
