"""Batch equals stream, row for row, wherever the batches are cut. No Spark."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.pipeline import fleet, local
from tests.pipeline.fleet import classics
from tests.pipeline.histories import generation, histories
from tests.pipeline.local import everything, rows
from tests.suites import dear

from holdfast.core.wire.one.topic_ids import topic_id_text
from holdfast.fleet.pipeline.batches import tasks


@dear
@given(
    histories(),
    st.lists(
        st.tuples(
            st.sampled_from(["g", "../h", ""]),
            st.sampled_from(["t", "../x"]),
            st.integers(0, 3),
            st.none() | st.integers(0, 3),
            st.integers(0, 125),
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 12).map(lambda n: n * 10_000_000 + 5), max_size=3, unique=True),
    st.sampled_from([2_000_000, 1]),
)
@example(  # a member that was static in an earlier batch: its process has that name
    [
        generation("g", 0, {"a-1": ({"group_instance_id": "s"}, {"t": [0, 1]}), "b-1": {}}, at=0),
        generation("g", 1, {"b-1": {"t": [0, 1]}}, at=10),
        generation("g", 2, {"a-1": {"t": [0, 1]}, "b-1": {}}, at=20),
        generation("g", 3, {}, at=30),
    ],
    [],
    [5, 10_000_005],
    2_000_000,
)
def test_batch_equals_stream(new_folder, history, commits, cuts, bound):
    base = new_folder()
    records = [(g, at, fleet.commit(g, t, p, o, at=at)) for g, t, p, o, at in commits]
    records = sorted([*classics(history), *records], key=lambda record: record[1])
    offsets = [("t", p, 0, 2) for p in range(4)]
    dump = fleet.write_dump(base / "dump", records, offsets=offsets)
    whole = everything(local.run(dump, base / "whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "ASSIGNED_AT_ONCE", bound)
        assert everything(local.stream(dump, base / "stream", cuts, batch_rows=3)) == whole


def test_gaps_of_each_life_of_a_group_are_its_own(tmp_path):
    """A group that was deleted and made anew has the same generations again."""
    owned, lives = {"m": {"t": [0, 1]}}, []
    for life, pause_s in enumerate((1, 20, 3)):
        begin = 100 * life
        lives += [
            generation("g", 1, owned, at=begin),
            generation("g", 2, {"n": {}}, at=begin + 10),
            generation("g", 3, {"n": {"t": [0, 1]}}, at=begin + 10 + pause_s),
            generation("g", 4, {}, at=begin + 50, state="Dead"),
        ]
    dump = fleet.write_dump(tmp_path / "dump", classics(lives), offsets=[("t", 0, 0, 1)])
    whole = local.run(dump, tmp_path / "whole")
    cuts = [60_000_000, 115_000_000, 160_000_000]
    stream = local.stream(dump, tmp_path / "stream", cuts, batch_rows=3)
    assert everything(stream) == everything(whole)
    ended = whole.table("rebalances").filter(pc.field("generation") == 3)
    assert ended["gap_lower_seconds"].to_pylist() == [2.0, 40.0, 6.0]


CLASSIC = {"sessionTimeoutMs": 1, "supportedProtocols": ({"name": "range", "metadata": b"\xff"},)}


def consumer_records(group):
    """Two members of a KIP-848 group that come, share, and go; one record a second."""
    steps = [
        fleet.consumer_member(group, "a-1", ["t"]),
        fleet.consumer_epoch(group, 1),
        fleet.consumer_target(group, "a-1", {"t": [0, 1]}),
        fleet.assignment_epoch(group, 1),
        fleet.consumer_current(group, "a-1", 1, {"t": [0, 1]}),
        fleet.commit(group, "t", 1, 5, at=105),
        fleet.consumer_member(group, "b-1", ["t"], classic=CLASSIC),
        fleet.consumer_epoch(group, 2),
        fleet.consumer_target(group, "a-1", {"t": [0]}),
        fleet.consumer_target(group, "b-1", {"t": [1]}),
        fleet.assignment_epoch(group, 2),
        fleet.consumer_current(group, "b-1", 2, {}, state=2),
        fleet.consumer_current(group, "a-1", 1, {"t": [0]}, pending={"t": [1]}, state=1),
        fleet.commit(group, "t", 1, 6, at=113),
        fleet.consumer_current(group, "a-1", 2, {"t": [0]}),
        fleet.consumer_current(group, "b-1", 2, {"t": [1]}),
        *[fleet.tombstone(n, group, "a-1") for n in (8, 7, 5)],
        fleet.consumer_epoch(group, 3),
        fleet.consumer_target(group, "b-1", {"t": [0, 1]}),
        fleet.assignment_epoch(group, 3),
        fleet.consumer_current(group, "b-1", 3, {"t": [0, 1]}),
    ]
    return [(group, 100 + i, step) for i, step in enumerate(steps)]


@dear
@given(
    st.lists(st.integers(100, 125), min_size=1, max_size=4, unique=True),
    st.sampled_from([2_000_000, 0]),
)
@example([111], 2_000_000)  # a gap of a rebalance of the batch before, and other groups' rebalances
@pytest.mark.every
def test_kip_848_groups_may_be_cut_anywhere(new_folder, cuts, bound):
    base = new_folder()
    records = consumer_records("new") + consumer_records("other")
    records += classics([generation("old", n, {"m": {"t": [n]}}, at=100 + n) for n in range(9)])
    dump = fleet.write_dump(base / "dump", records, topics=[("t", 2)])
    whole = everything(local.run(dump, base / "whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "ASSIGNED_AT_ONCE", bound)
        cuts = [cut * 1_000_000 for cut in cuts]
        assert everything(local.stream(dump, base / "stream", cuts, batch_rows=2)) == whole
    assert len(whole["generations"]) == 15
    assert len(whole["ownership_gaps"]) == 4


def test_what_members_say_they_have_bounds_their_gaps(tmp_path):
    dump = fleet.write_dump(tmp_path / "dump", consumer_records("g"), topics=[("t", 2)])
    names = ("generation", "partition", "gap_lower_seconds", "gap_upper_seconds", "basis")
    tables = local.run(dump, tmp_path / "out")
    # 1 is asked back at 112, committed at 113, given up at 114 and had by b at 115. When a is
    # gone at 116, 0 was in its record of 114; b has it at 122.
    assert rows(tables, "ownership_gaps", *names) == [
        (2, 1, 1.0, 2.0, "reconciled"),
        (3, 0, 6.0, 8.0, "reconciled"),
    ]
    sums = rows(tables, "rebalances", "generation", "gap_lower_seconds", "gap_upper_seconds")
    assert sums == [(1, 0.0, 0.0), (2, 1.0, 2.0), (3, 6.0, 8.0)]


def test_a_topic_id_that_nobody_knows_is_reported(tmp_path):
    dump = fleet.write_dump(tmp_path / "dump", consumer_records("g"))
    tables = local.run(dump, tmp_path / "out")
    topic = topic_id_text(fleet.topic_id("t"))
    kind = "unknown_topic_id"
    assert rows(tables, "anomalies", "kind", "generation", "topic", "member_ids") == [
        (kind, 1, topic, ["a-1"]),
        (kind, 2, topic, ["a-1", "b-1"]),
        (kind, 3, topic, ["b-1"]),
    ]
    assert {r["topic"] for r in tables.table("assignments").to_pylist()} == {topic}
