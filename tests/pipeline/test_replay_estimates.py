"""Costs read out of a history: against simulations that had these costs, and case by case."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.pipeline import local, worlds
from tests.pipeline.histories import generation
from tests.pipeline.test_replay_story import rows_of

from holdfast.pipeline.replay.commits import CommitTimes
from holdfast.pipeline.replay.draws import ReplayInterval, drawn, interval
from holdfast.pipeline.replay.estimates import CLIENTS, client_of, estimate
from holdfast.pipeline.replay.happenings import Do
from holdfast.pipeline.replay.rows import group_rows
from holdfast.pipeline.replay.run import NO_CLASSIC, Request, replay
from holdfast.pipeline.replay.settings import ReplaySettings
from holdfast.pipeline.replay.story import story_of
from holdfast.sim.world.costs import Costs

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
RHYTHM_MS = 1_000


def lived(folder, policy):
    """Rows of a group that was bounced under a policy with these costs, and what it really cost.

    Members commit every second beside what the simulation commits when they give something up.
    """
    run = bounced(policy)
    dump = worlds.write(folder / "dump", [run], topics=[("topic", 12)])
    (rows,) = group_rows(local.run(dump, folder / "tables"))
    times = {key: column.tolist() for key, column in rows.commits.times.items()}
    stable = [g for g in rows.generations if g.members]
    ends = [g.time_ms for g in stable[1:]] + [stable[-1].time_ms + 5_000]
    for row, end_ms in zip(stable, ends, strict=True):
        for own in row.owned:
            made = [t for k in own for t in times.get(k, []) if row.time_ms < t < end_ms]
            for key in own:
                regular = range(row.time_ms + RHYTHM_MS, max(made, default=end_ms), RHYTHM_MS)
                times.setdefault(key, []).extend(regular)
    columns = {k: np.array(sorted(v), np.int64) for k, v in times.items()}
    rows.commits = CommitTimes(times=columns, advanced=columns)
    return rows, run.report


def bounced(policy):
    setup = {"scenario": "rolling-bounce", "members": 4, "partitions": 12, "seed": 3}
    return worlds.play("g", policy=policy, costs=LIVED, **setup)


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    return lived(tmp_path_factory.mktemp("eager"), "eager")


@pytest.fixture(scope="module")
def cooperative(tmp_path_factory):
    return lived(tmp_path_factory.mktemp("cooperative"), "cooperative-sticky")


@pytest.mark.parametrize("group", ["eager", "cooperative"])
def test_the_heartbeat_of_a_bounced_group_is_found(group, request):
    rows, _ = request.getfixturevalue(group)
    found = estimate(rows, rows.commits, Costs()).costs["heartbeat_ms"]
    assert found.n >= 3
    assert found.low_ms <= 1_000 <= found.high_ms
    assert found.mid_ms == pytest.approx(1_000, rel=0.4)


def test_an_eager_round_and_its_members_in_step_are_found(eager):
    rows, _ = eager
    found = estimate(rows, rows.commits, Costs())
    assert found.costs["latency_ms"].mid_ms < 40 and found.costs["latency_ms"].n >= 7
    assert found.costs["rebuild_ms"].high_ms < 200 and not found.rebuild_blocks
    assert len(found.noticed) == found.costs["latency_ms"].n


def test_another_policy_costs_what_its_simulation_costs(eager):
    """From an eager history alone: the truth is in the interval, deferral's within a quarter."""
    rows, report = eager
    story = story_of(rows, {"topic": 12}, Costs())
    settings = (
        ReplaySettings(policy="simple", assignor="cooperative-sticky"),
        ReplaySettings(policy="deferred", assignor="cooperative-sticky", delay_ms=30_000),
    )
    request = Request(settings=settings, given=frozenset({"joining_stops", "waiting_stops"}))
    found = replay(None, [story], request).to_pylist()
    truths = [report.partition_seconds_stopped]
    for policy in ("cooperative-sticky", "deferred"):
        run = bounced(policy)
        truths.append(run.report.partition_seconds_stopped)
    for row, truth in zip(found, truths, strict=True):
        name = "partition_seconds_stopped"
        assert row[f"{name}_low"] <= truth <= row[f"{name}_high"], row["policy"]
        if row["policy"] == "deferred":
            assert worlds.middle(row, name) == pytest.approx(truth, rel=0.25)
    by_prediction = sorted(range(3), key=lambda i: worlds.middle(found[i], name))
    assert by_prediction[-1] == 2 == max(range(3), key=lambda i: truths[i])


def test_what_no_record_tells_has_no_number_but_a_reason():
    """Two records and no commit: heartbeats may be anything, and so may rebuilding."""
    story = story_of(
        rows_of(
            [
                generation("g", 1, {"a-1": {"t": [0, 1]}, "b-1": {"t": [2, 3]}}, at=10),
                generation("g", 2, {"a-1": {"t": [0, 1, 2, 3]}}, at=30),
            ]
        ),
        {},
        Costs(),
    )
    (row,) = replay(None, [story], Request(given=frozenset())).to_pylist()
    assert row["partition_seconds_stopped"] is None
    assert row["partition_seconds_stopped_low"] < row["partition_seconds_stopped_high"]
    assert "does not tell" in row["reason"] and "rebuild" in row["reason"]
    assert row["rebalances"] == 1 and row["moved"] == 2
    (told,) = replay(None, [story], Request()).to_pylist()
    assert "does not tell" not in (told["reason"] or "")


def test_a_given_cost_is_that_cost_in_every_draw():
    story = story_of(rows_of([generation("g", 1, {"a-1": {"t": [0]}}, at=1)]), {}, Costs())
    costs = replace(Costs(), heartbeat_ms=777)
    cases = drawn(story, costs, frozenset({"heartbeat_ms"}), "simple", 5)
    assert {c.heartbeat_ms for _, c in cases} == {777}
    assert len({c.rebuild_ms for _, c in cases}) == len(cases) > 4
    assert cases == drawn(story, costs, frozenset({"heartbeat_ms"}), "simple", 5)
    assert drawn(story, costs, None, "simple", 5) == [(story, costs)]


def test_an_eager_group_has_no_free_fidelity(eager):
    """Its owners commit when they give up: a replay that stops far too shortly is told so."""
    rows, _ = eager
    story = story_of(rows, {"topic": 12}, Costs())
    assert 0 < story.pause_least_seconds <= story.pause_upper_seconds
    assert story.pause_lower_seconds == 0
    quick = replace(LIVED, heartbeat_ms=10, poll_ms=1, revoke_ms=0)
    (row,) = replay(None, [story], Request(costs=quick)).to_pylist()
    assert row["fidelity"] == row["fidelity_pause"] < 0.9


@pytest.mark.parametrize(
    ("extra", "epochs", "client"),
    [
        ({"rack": ""}, True, "librdkafka"),
        ({"client_id": "kafka-python-3.0.12"}, True, "kafka-python"),
        ({"client_id": "consumer-g-1"}, True, "java"),
        ({"client_id": "consumer-g-1"}, False, "holdfast"),
        ({"client_id": "app"}, True, ""),
    ],
)
def test_what_members_run_is_told_by_what_only_one_client_writes(extra, epochs, client):
    rows = rows_of([generation("g", 1, {"a-1": {"t": [0]}}, at=1)])
    (row,) = rows.generations
    row.members = [replace(m, **extra) for m in row.members]
    commits = CommitTimes(times={("t", 0): np.array([1], np.int64)}, epochs=epochs)
    assert client_of(rows, commits) == client and client in CLIENTS


def test_an_interval_holds_nine_of_ten_draws():
    rng = np.random.Generator(np.random.PCG64(1))
    values = np.exp(rng.normal(3, 0.2, 400))
    found = interval(values.tolist(), 0.0)
    inside = np.mean((values >= found.low) & (values <= found.high))
    assert 0.85 <= inside <= 0.95
    assert interval([5.0], 0.0).width == 0
    assert interval([5.0] * 9, 0.2).width > 0.2


def test_a_chance_is_the_share_of_truths_within_a_quarter():
    rng = np.random.Generator(np.random.PCG64(2))
    values = np.exp(rng.normal(6, 0.17, 20_000))
    found = interval(values[:400].tolist(), 0.0)
    within = np.mean(np.maximum(values / found.mid, found.mid / values) <= 1.25)
    assert found.chance == pytest.approx(within, abs=0.03)
    assert interval([5.0], 0.0).chance == 1
    assert ReplayInterval(low=0, mid=1, high=500).chance < 0.2


def killed(*, quiet, client=""):
    """a is killed at 24 s and back by the record of 30 s, when its session of 6 s is over.

    The others commit each second; ``quiet``: until they join at 27 s, as clients do whose commits
    brokers refuse meanwhile.
    """
    kept = {f"{name}-1": {"t": [2 * n, 2 * n + 1]} for n, name in enumerate("bcde", start=1)}
    steps = [{"a-1": {"t": [0, 1]}, **kept}, {"a-2": {"t": [0, 1]}, **kept}]
    rows = rows_of(
        [
            generation("g", n, members, at=at, protocol="cooperative-sticky")
            for n, (members, at) in enumerate(zip(steps, (10, 30), strict=True), start=1)
        ]
    )
    for row in rows.generations:
        row.members = [
            replace(m, session_ms=6_000, client_id=f"{client}{m.member_id[0]}") for m in row.members
        ]
    rows.pauses = [
        {
            "timestamp": 30_000,
            "unowned_since": None,
            "last_seen": 24_000,
            "topic": "t",
            "partitions": [0, 1],
            "basis": "handover",
        }
    ]
    ends_ms = [24_000] * 2 + [27_000 if quiet else 30_000] * 8
    times = {("t", p): np.arange(11_000, end + 1, 1_000) for p, end in enumerate(ends_ms)}
    rows.commits = CommitTimes(times=times, advanced=times)
    return story_of(rows, {"t": 10}, replace(LIVED, restart_ms=10_000))


def test_members_that_all_fall_silent_tell_when_a_killed_one_came_back():
    """b joined after its last commit and before the next was due; a came within a heartbeat."""
    for quiet in (True, False):
        story = killed(quiet=quiet)
        (session,) = story.sessions
        (back,) = [h for h in session.happenings if h.do is Do.START]
        beat_ms = round(story.costs["heartbeat_ms"][1])
        if quiet:
            assert back.at_ms == 27_500 - beat_ms // 2 - 10_000
            assert back.vague_ms == beat_ms + 1_000
        else:  # at any time between
            assert back.vague_ms > 2 * 1_000


def test_who_stops_while_it_joins_stands_still_until_a_dead_member_is_given_up():
    """kafka-python does, Java does not, and of a client that is not known no number is told."""
    settings = (ReplaySettings(policy="deferred", assignor="cooperative-sticky", delay_ms=30_000),)
    name = "partition_seconds_stopped"
    told = {}
    for client in ("kafka-python-", "consumer-", "app-"):
        story = killed(quiet=True, client=client)
        story = replace(story, costs=story.costs | {"rebuild_ms": (0, 0, 0, 4)})
        request = Request(settings=settings, costs=LIVED, given=frozenset({"heartbeat_ms"}))
        told[client] = replay(None, [story], request).to_pylist()
    python, java = (
        [row[f"{name}_high"] for row in told[c]] for c in ("kafka-python-", "consumer-")
    )
    assert python[0] > java[0] + 8  # eight partitions, more than a second
    assert python[1] == pytest.approx(java[1], rel=0.05)  # ours goes on, whoever ran before
    assert told["app-"][0][name] is None and "waiting-stops" in told["app-"][0]["reason"]


def test_commits_in_step_with_heartbeats_are_those_of_members_that_notice_a_round():
    """Heartbeats and commits of one period, both begun by the last round: no rhythm is broken."""
    rows = rows_of(
        [
            generation("g", n, {"a-1": {"t": [0]}, "b-1": {"t": [1]}, **more}, at=10 * n)
            for n, more in enumerate(({}, {"c-1": {"t": [2]}}, {}, {"d-1": {"t": [2]}}), start=1)
        ]
    )
    for late_ms, n in ((20, 6), (700, 0)):
        beats = np.concatenate(
            [
                np.arange(at + 1_000, at + 10_000, 1_000) - late_ms
                for at in range(10_000, 50_000, 10_000)
            ]
            + [np.array([at - late_ms for at in range(20_000, 50_000, 10_000)])]
        )
        beats.sort()
        times = {("t", p): beats for p in range(2)}
        found = estimate(rows, CommitTimes(times=times, advanced=times), Costs())
        assert len(found.noticed) * 2 == n


def test_a_migration_to_the_new_protocol_moves_twice_and_defers_nothing(cooperative):
    """Under KIP-848 a member that is away for 2 s loses its partitions and gets as many back."""
    rows, _ = cooperative
    story = story_of(rows, {"topic": 12}, Costs())
    settings = (
        ReplaySettings(policy="kip848", assignor="uniform"),
        ReplaySettings(policy="connect", assignor="connect", delay_ms=30_000),
    )
    names = frozenset(
        {"broker_heartbeat_ms", "broker_session_ms", "joining_stops", "waiting_stops"}
    )
    costs = replace(Costs(), broker_heartbeat_ms=1_000, broker_session_ms=6_000)
    actual, new, connect = replay(
        None, [story], Request(settings=settings, costs=costs, given=names)
    ).to_pylist()
    assert (new["policy"], new["rebalances"]) == ("kip848", 8)
    assert 20 <= new["moved"] <= 24
    unowned = [worlds.middle(row, "partition_seconds_unowned") for row in (new, actual, connect)]
    assert unowned[0] < unowned[1] < unowned[2]
    assert new["note"] is None and new["delay_ms"] is None
    assert (connect["policy"], connect["delay_ms"]) == ("connect", 30_000)
    assert connect["moved_to_third"] <= connect["moved"]
    (_, guessed) = replay(
        None,
        [story],
        Request(settings=settings[:1], given=frozenset({"joining_stops", "waiting_stops"})),
    ).to_pylist()
    assert "broker-heartbeat and broker-session" in guessed["note"]


def modern(*, last_commit, costs):
    """A KIP-848 group whose member a is gone at 30 s, by its replayed story and its rows.

    b joins at 26 s, so a's partition 1 is due to b, and a owns only 0 by the last record with it.
    """
    steps = [
        {"a": {"t": [0, 1]}},
        {"a": {"t": [0]}, "b": {"t": [1]}},
        {"b": {"t": [0, 1]}},
    ]
    generations = [
        generation("g", n, members, at=at, kind="consumer", protocol="uniform")
        for n, (members, at) in enumerate(zip(steps, (10, 26, 30), strict=True), start=1)
    ]
    rows = rows_of(generations)
    beats = np.arange(11_000, last_commit + 1, 1_000)
    rows.commits = CommitTimes(times={("t", 0): beats}, advanced={("t", 0): beats})
    return story_of(rows, {"t": 2}, costs)


@pytest.mark.parametrize(("last_commit", "how"), [(24_000, Do.CRASH), (29_000, Do.STOP)])
def test_a_member_of_a_kip848_group_that_fell_silent_before_another_epoch_has_crashed(
    last_commit, how
):
    """Its last commit came before the epoch before it was gone: a join had bumped that."""
    story = modern(last_commit=last_commit, costs=Costs(broker_session_ms=6_000))
    (session,) = story.sessions
    gone = [h for h in session.happenings if h.do in {Do.STOP, Do.CRASH}]
    assert [h.do for h in gone] == [how]


def test_a_kip848_group_says_nothing_of_classic_heartbeats_and_sessions():
    story = modern(last_commit=24_000, costs=Costs(broker_session_ms=6_000))
    assert story.costs["heartbeat_ms"][3] == story.costs["session_ms"][3] == 0
    request = Request(
        settings=(ReplaySettings(policy="eager", assignor="range"),),
        given=frozenset({"broker_session_ms", "broker_heartbeat_ms"}),
        costs=Costs(broker_session_ms=6_000, broker_heartbeat_ms=1_000),
    )
    own, eager = replay(None, [story], request).to_pylist()
    assert own["partition_seconds_stopped_low"] and own["reason"] != NO_CLASSIC
    assert eager["reason"] == NO_CLASSIC
    assert eager["partition_seconds_stopped"] is None and "session" in eager["reason"]
    bounds = [eager[f"partition_seconds_stopped_{end}"] for end in ("low", "high")]
    assert bounds == [None, None]  # they would be those of a guessed session
    assert eager["rebalances_low"] is not None


def test_how_often_librdkafka_stops_is_what_six_of_38_revocations_bear_out():
    z, share, n = 1.645, 6 / 38, 38
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    off = z / (1 + z * z / n) * math.sqrt((share * (1 - share) + z * z / (4 * n)) / n)
    low, mid, high = CLIENTS["librdkafka"].stops
    assert (low, mid, high) == (
        round(100 * (middle - off)),
        round(100 * share),
        round(100 * (middle + off)),
    )
