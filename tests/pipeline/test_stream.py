"""Batch equals stream, row for row, wherever the batches are cut. No Spark."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation, histories

from holdfast.pipeline import tasks

TABLES = ("generations", "members", "assignments", "movements", "rebalances", "anomalies")


def classics(history):
    return [(g["group"], g["timestamp"], fleet.classic(g)) for g in history]


def everything(tables):
    """Rows of every table; of ``pauses`` flat and without order."""
    found = {n: sorted(map(repr, tables.table(n).to_pylist())) for n in (*TABLES, "bad_records")}
    return found | {"pauses": sorted(map(repr, tables.table("pauses").to_pylist()))}


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    histories(),
    st.lists(st.integers(0, 12).map(lambda n: n * 10_000_000 + 5), max_size=3, unique=True),
    st.sampled_from([2_000_000, 1]),
)
def test_batch_equals_stream(tmp_path_factory, history, cuts, bound):
    base = tmp_path_factory.mktemp("stream")
    dump = fleet.write_dump(base / "dump", classics(history))
    whole = everything(local.run(dump, base / "whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "ASSIGNED_AT_ONCE", bound)
        assert everything(local.stream(dump, base / "stream", cuts, batch_rows=3)) == whole
    shutil.rmtree(base)


def consumer_records(group):
    """Two members of a KIP-848 group that come, share, and go; one record a second."""
    steps = [
        fleet.consumer_member(group, "a-1", ["t"]),
        fleet.consumer_epoch(group, 1),
        fleet.consumer_target(group, "a-1", {"t": [0, 1]}),
        fleet.assignment_epoch(group, 1),
        fleet.consumer_member(group, "b-1", ["t"]),
        fleet.consumer_epoch(group, 2),
        fleet.consumer_target(group, "a-1", {"t": [0]}),
        fleet.consumer_target(group, "b-1", {"t": [1]}),
        fleet.assignment_epoch(group, 2),
        *[fleet.tombstone(n, group, "a-1") for n in (8, 7, 5)],
        fleet.consumer_epoch(group, 3),
        fleet.consumer_target(group, "b-1", {"t": [0, 1]}),
        fleet.assignment_epoch(group, 3),
    ]
    return [(group, 100 + i, step) for i, step in enumerate(steps)]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(100, 116), min_size=1, max_size=4, unique=True),
    st.sampled_from([2_000_000, 0]),
)
def test_kip_848_groups_may_be_cut_anywhere(tmp_path_factory, cuts, bound):
    base = tmp_path_factory.mktemp("stream")
    records = consumer_records("new") + consumer_records("other")
    records += classics([generation("old", n, {"m": {"t": [n]}}, at=100 + n) for n in range(9)])
    dump = fleet.write_dump(base / "dump", records, topics=[("t", 2)])
    whole = everything(local.run(dump, base / "whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "ASSIGNED_AT_ONCE", bound)
        cuts = [cut * 1_000_000 for cut in cuts]
        assert everything(local.stream(dump, base / "stream", cuts, batch_rows=2)) == whole
    assert len(whole["generations"]) == 15
    shutil.rmtree(base)
