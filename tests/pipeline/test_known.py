"""Made-up fleets: the tables say what is true, in one run, as a stream, and on Spark."""

from __future__ import annotations

import json

import pytest
from tests.cli.running import run as cli
from tests.pipeline import fleet, known, local
from tests.pipeline.local import everything, rows
from tests.suites import further

from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.ingest.decode import Selection

EVERYONE = Selection(all_groups=True)


def written(folder, seed, **sizes):
    records, offsets, topics, truth = known.fleet_of(seed, **sizes)
    return fleet.write_dump(folder, records, topics=topics, offsets=offsets, files=3), truth


def so_far(found, wanted):
    """A row, where members of this fleet that went had left, whether or not their signs tell it.

    One that left after a silence as long as its poll interval looks as if that were the reason.
    """
    untold = {"cause": "leave"} if found["cause"] in ("leave_or_timeout", "poll_timeout") else {}
    return {name: (found | untold)[name] for name in wanted}


def lag_of(tables):
    """Where every group stands, in the order of :class:`known.Truth`, whatever that of the rows."""
    place, offsets = ("group", "topic", "partition"), ("current_offset", "log_end_offset")
    names = (*place, *offsets, "lag", "lag_by_reset", "member_id")
    return sorted(rows(tables, "lag", *names), key=repr)


def owners(tables):
    """{(group, generation, topic, partition): member id}."""
    names = ("group", "generation", "topic", "partition", "member_id")
    return {tuple(place): member for *place, member in rows(tables, "assignments", *names)}


def check(tables, truth):
    found = tables.table("rebalances").to_pylist()
    wanted = sorted(truth.rebalances, key=lambda r: (r["group"].encode(), r["generation"]))
    assert [so_far(row, wanted[0]) for row in found] == wanted
    names = ("group", "generation", "topic", "partition", "from_member", "to_member", "kind")
    moves = rows(tables, "movements", *names)
    assert sorted(moves, key=repr) == sorted(truth.movements, key=repr)
    assert owners(tables) == truth.owners
    assert lag_of(tables) == sorted(truth.lag, key=repr)
    assert tables.rows("offset_commits") == truth.commits
    assert tables.rows("bad_records") == truth.bad
    states = rows(tables, "generations", "state", "n_members")
    assert all((state in ("Empty", "Dead")) == (n == 0) for state, n in states)
    assert {row["kind"] for row in tables.table("anomalies").to_pylist()} <= {"generation_reset"}


@pytest.mark.parametrize("seed", further(range(6), range(2)))
def test_the_tables_say_what_is_true(tmp_path, seed):
    dump, truth = written(tmp_path / "dump", seed)
    tables = local.run(dump, tmp_path / "out", reset="earliest", batch_rows=50)
    check(tables, truth)
    assert tables.batches()[0].notes["n_unknown"] == truth.unknown


@pytest.mark.parametrize("seed", further(range(2)))
def test_so_does_a_stream(tmp_path, seed):
    dump, truth = written(tmp_path / "dump", seed)
    cuts = [second * 1_000_000 for second in (1_300, 1_700, 2_400)]
    tables = local.stream(dump, tmp_path / "out", cuts, reset="earliest", batch_rows=50)
    check(tables, truth)
    assert everything(tables) == everything(
        local.run(dump, tmp_path / "whole", reset="earliest", batch_rows=500)
    )


@pytest.mark.spark
def test_so_does_spark(spark, tmp_path):
    dump, truth = written(tmp_path / "dump", 100, n_groups=40)
    made = run(
        lambda: spark, dump, tmp_path / "out", selection=EVERYONE, auto_offset_reset="earliest"
    )
    check(made.tables, truth)
    assert made.tables.newest_notes()["n_unknown"] == truth.unknown
    whole = local.run(dump, tmp_path / "whole", reset="earliest", batch_rows=500)
    assert everything(made.tables) == everything(whole)


@pytest.mark.parametrize("seed", further(range(3)))
def test_what_compaction_leaves_is_still_true(tmp_path, seed):
    records, offsets, topics, truth = known.fleet_of(seed)
    left = known.compacted(records, 1_900)
    assert len(left) < len(records)
    dump = fleet.write_dump(tmp_path / "dump", left, topics=topics, offsets=offsets)
    tables = local.run(dump, tmp_path / "out", reset="earliest", batch_rows=50)
    # Owners, positions and lag are those of the whole log; of the past there is less.
    assert lag_of(tables) == sorted(truth.lag, key=repr)
    last = {}
    for row in truth.rebalances:
        last[row["group"]] = row["generation"]
    given = owners(tables)
    assert given.items() <= truth.owners.items()
    at_last = {k: m for k, m in truth.owners.items() if last[k[0]] == k[1]}
    assert {k: m for k, m in given.items() if last[k[0]] == k[1]}.keys() <= at_last.keys()
    kept = {(r["group"], r["generation"]): r for r in tables.table("rebalances").to_pylist()}
    for row in truth.rebalances:
        found = kept.get((row["group"], row["generation"]))
        if found and found["n_missed_generations"] == 0 and found["previous_generation"]:
            assert so_far(found, row) == row


@pytest.mark.parametrize("policy", further(["deferred", "eager", "simple"]))
@pytest.mark.parametrize(("scenario", "cause"), [("scale-up", "join"), ("scale-down", "leave")])
def test_the_tables_of_a_simulation_are_what_it_measured(tmp_path, policy, scenario, cause):
    """``simulate --dump`` is a log like any other; rounds and moves are those of its ledger."""
    setting = ["--scenario", scenario, "--policy", policy, "--members", "4", "--partitions", "12"]
    done = cli("simulate", *setting, "--dump", tmp_path / "run", "--format", "json")
    truth = json.loads(done.out)
    tables = local.run(tmp_path / "run", tmp_path / "out", reset="earliest")
    first, *rows = tables.table("rebalances").to_pylist()
    assert (first["cause"], first["n_members"], first["n_partitions"]) == ("first_seen", 4, 12)
    assert len(rows) == truth["rounds"]
    assert sum(r["n_moved"] + r["n_moved_through_gap"] for r in rows) == truth["moved"] > 0
    waits = (policy, scenario) == ("deferred", "scale-down")
    after = "scheduled_rebalance" if waits else "cooperative_follow_up"
    assert [r["cause"] for r in rows] == [cause, *[after] * (len(rows) - 1)]
    assert {r["cooperative"] for r in rows} == {policy != "eager"}
    assert rows[-1]["n_members"] == (5 if scenario == "scale-up" else 3)
    assert {r["log_end_offset"] for r in tables.table("lag").to_pylist()} != {0}
