"""What a replay takes for granted, and what a migration and a dead member cost by it."""

from __future__ import annotations

import json

import pytest
from tests.pipeline import local, worlds
from tests.pipeline.test_replay_story import killed

from holdfast.fleet.pipeline.replay.costs import COSTS, HAND_OVERS, ReplayCosts
from holdfast.fleet.pipeline.replay.run import Request, replay
from holdfast.fleet.pipeline.replay.settings import ReplaySettings
from holdfast.fleet.pipeline.replay.story import stories
from holdfast.sim.world.costs import Costs

STOPPED = "partition_seconds_stopped"
DEFERRED = ReplaySettings(policy="deferred", assignor="cooperative-sticky", delay_ms=30_000)
LIVED = Costs(
    heartbeat_ms=1_000,
    session_ms=6_000,
    poll_ms=60,
    revoke_ms=20,
    rebuild_ms=0,
    restart_ms=2_000,
    follow_up_ms=1_000,
    slow_members=0,
)


@pytest.fixture(scope="module")
def cooperative(tmp_path_factory):
    """The story of four cooperative members that were bounced one after the other."""
    folder = tmp_path_factory.mktemp("cooperative")
    setup = {"scenario": "rolling-bounce", "members": 4, "partitions": 12, "seed": 3}
    run = worlds.play("g", policy="cooperative-sticky", costs=LIVED, **setup)
    dump = worlds.write(folder / "dump", [run], topics=[("topic", 12)])
    (story,) = stories(local.run(dump, folder / "tables"), {"topic": 12})
    return story


def test_a_migration_to_the_new_protocol_moves_twice_and_defers_nothing(cooperative):
    """Under KIP-848 a member that is away for 2 s loses its partitions and gets as many back."""
    settings = (
        ReplaySettings(policy="kip848", assignor="uniform"),
        ReplaySettings(policy="connect", assignor="connect", delay_ms=30_000),
        DEFERRED,
    )
    actual, new, connect, deferred = replay(
        None, [cooperative], Request(settings=settings)
    ).to_pylist()
    assert (new["policy"], new["rebalances"], new[f"{STOPPED}_low"]) == ("kip848", 8, 0)
    assert 20 <= new["moved"] <= 24 and new["revocations"] == new["moved"]
    assert actual[f"{STOPPED}_low"] == 0 == connect[f"{STOPPED}_low"]  # its leader is bounced
    assert deferred[f"{STOPPED}_low"] == pytest.approx(4 * 3 * 2, rel=0.1)
    assert (deferred["moved"], deferred["revocations"]) == (0, 12)
    assert new["note"] is None and new["delay_ms"] is None
    assert (connect["policy"], connect["delay_ms"]) == ("connect", 30_000)
    assert connect["moved_to_third"] <= connect["moved"]


@pytest.mark.parametrize(
    ("given", "policy", "ms"),
    [
        ({}, "eager", HAND_OVERS["java"].eager * 3_000),
        ({}, "simple", HAND_OVERS["java"].cooperative * 3_000),
        ({}, "deferred", HAND_OVERS["holdfast"].cooperative * 3_000),
        ({}, "kip848", HAND_OVERS["java"].kip848 * 5_000),
        ({"heartbeat": 500}, "eager", HAND_OVERS["java"].eager * 500),
        ({"broker-heartbeat": 500}, "kip848", HAND_OVERS["java"].kip848 * 500),
        ({"hand-over": 70}, "eager", 70),
        ({"hand-over": 70, "heartbeat": 500}, "kip848", 70),
    ],
)
def test_a_hand_over_costs_what_is_given_or_heartbeats_of_its_client(given, policy, ms):
    story = killed(stayed_until_ms=23_000, client_id="consumer-g-1")
    found = ReplayCosts(given=given).hand_over(story, policy)
    assert found.ms == ms
    assert found.basis == "given" if "hand-over" in given else "assumed" in found.basis


def test_every_cost_says_where_it_comes_from(cooperative):
    """The session is in the records, and so are two absences; what a hand-over costs is not."""
    (row,) = replay(None, [cooperative], Request()).to_pylist()
    costs = json.loads(row["costs"])
    assert set(costs) == {"hand-over", "session", "restart"} < set(COSTS)
    assert costs["session"] == {"ms": 6_000, "basis": "recorded"}
    assert costs["restart"]["basis"] == "recorded"
    assert costs["hand-over"]["basis"].startswith("assumed: ")
    given = ReplayCosts(given={"restart": 9_000, "broker-session": 7_000})
    moved = ReplaySettings(policy="kip848", assignor="uniform")
    row = replay(None, [cooperative], Request(settings=(moved,), costs=given)).to_pylist()[1]
    costs = json.loads(row["costs"])
    assert costs["broker-session"] == {"ms": 7_000, "basis": "given"}
    assert costs["restart"] == {"ms": 9_000, "basis": "given"}


def test_members_of_an_eager_group_wait_until_a_dead_one_is_given_up():
    """It is back after 3 s of its session of 10 s: both partitions of the other stand still."""
    story = killed(stayed_until_ms=23_000)
    eager, deferred = replay(None, [story], Request(settings=(DEFERRED,))).to_pylist()
    assert eager[f"{STOPPED}_low"] == pytest.approx(2 * 10 + 2 * 7, abs=1)
    assert deferred[f"{STOPPED}_low"] == pytest.approx(2 * 10, abs=1)


def test_who_stops_all_while_it_joins_stands_still_until_a_dead_member_is_given_up():
    """kafka-python does, whatever the policy; Java does not; Design II is run by ours."""
    simple = ReplaySettings(policy="simple", assignor="cooperative-sticky")
    found = {}
    for client in ("kafka-python-3", "consumer-g-1"):
        story = killed(stayed_until_ms=23_000, client_id=client)
        rows = replay(None, [story], Request(settings=(simple, DEFERRED))).to_pylist()
        found[client] = [row[f"{STOPPED}_low"] for row in rows]
    python, java = found.values()
    assert python[1] == pytest.approx(java[1] + 2 * 7, abs=1)
    assert (python[0], python[2]) == (java[0], java[2])
