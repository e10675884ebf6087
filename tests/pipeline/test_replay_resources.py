"""Replays of groups of workers: connectors, tasks and resources are what moves."""

from __future__ import annotations

import pytest
from tests.cli.running import run
from tests.pipeline.histories import generation
from tests.pipeline.kinds import tables_of
from tests.pipeline.test_replay_trace import told

from holdfast.fleet.pipeline.replay.run import NO_848, Request, replay
from holdfast.fleet.pipeline.replay.session import ReplaySettings
from holdfast.fleet.pipeline.replay.trace_builder import traces

SETTINGS = (
    ReplaySettings(policy="deferred", assignor="cooperative-sticky", delay_ms=300_000),
    ReplaySettings(policy="simple", assignor="cooperative-sticky"),
    ReplaySettings(policy="kip848", assignor="uniform"),
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of the captured groups, by kind."""
    names = ("connect", "worker", "streams_classic")
    return tables_of(names, tmp_path_factory.mktemp("kinds"))


def replayed(tables):
    (trace,) = traces(tables)
    request = Request(settings=SETTINGS)
    rows = replay(None, [trace], request).to_pylist()
    return trace, {(row["policy"], row["actual"]): row for row in rows}


def test_a_connect_group_is_replayed_by_connectors_and_tasks(tables):
    trace, rows = replayed(tables["connect"])
    assert (trace.imitated_by, trace.n_partitions) == ("deferred", 7)  # two connectors, five tasks
    own = rows["deferred", True]
    assert own["delay_ms"] == 12_000  # as its own assignments say
    assert own["recorded_rebalances"] == 8 and own["recorded_moved"] > 0
    assert own["fidelity_rebalances"] > 0.8
    assert "replayed as the nearest policy, deferred" in own["note"]
    assert "without 2 rounds of other configurations, which every policy has" in own["note"]
    longer, simple = rows["deferred", False], rows["simple", False]
    name = "partition_seconds_awaited"
    assert longer[name] > 10 * own[name]  # 300 s and 12 s
    assert own[name] > 3 * simple[name]  # which never waits


def test_a_group_of_workers_is_replayed_by_its_resources(tables):
    trace, rows = replayed(tables["worker"])
    assert (trace.workers, trace.imitated_by, trace.n_partitions) == (True, "", 8)
    own = rows["deferred", True]
    assert own["delay_ms"] == 5_000
    assert own["moved"] == own["recorded_moved"] == 12
    assert min(own["fidelity_rebalances"], own["fidelity_moves"]) > 0.9
    assert rows["simple", False]["rebalances"] < own["rebalances"]


@pytest.mark.parametrize("name", ["connect", "worker"])
def test_workers_have_no_new_protocol_to_migrate_to(tables, name):
    row = replayed(tables[name])[1]["kip848", False]
    assert row["reason"] == NO_848 and row["rebalances"] is None


def test_what_has_no_replay_says_why_once(tables):
    path = tables["streams_classic"].root
    done = run("replay", "--input", path, "--policy", "simple,kip848")
    (said,) = [line for line in done.err.splitlines() if "assigns tasks" in line]
    assert "under simple, kip848: Kafka Streams" in said


def test_eager_connect_has_no_replay():
    two = {"a": {"t": [0]}, "b": {"t": [1]}}
    history = [
        generation("g", n, owned, at=10 * n, protocol="default") | {"protocol_type": "connect"}
        for n, owned in enumerate(({"a": {"t": [0, 1]}}, two), 1)
    ]
    row = replay(None, [told(history)], Request()).to_pylist()[0]
    assert "eager" in row["reason"] and row["moved"] is None
