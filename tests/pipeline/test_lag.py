"""Lag: the twin by dictionaries, and a case for every rule."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation
from tests.suites import dear

from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.fleet.pipeline import steps
from holdfast.fleet.pipeline.ingest.split import POSITION, reduced
from holdfast.fleet.tables.reading import open_tables

METADATA = "by hand"
ISO = "1970-01-01T00:16:40+00:00"
COLUMNS = ("group", "topic", "partition", "current_offset", "log_end_offset", "lag", "member_id")


def lag(
    tmp_path, commits, history=(), offsets=(), *, reset="latest", batch_rows=7, columns=COLUMNS
):
    """``commits``: (group, topic, partition, offset, second[, expire second])."""
    records = fleet.classics(history)
    for group, topic, partition, offset, at, *expire in commits:
        version = 1 if expire else 4
        value = fleet.commit(
            group,
            topic,
            partition,
            offset,
            at=at,
            version=version,
            expire=expire[0] if expire else None,
            metadata=METADATA,
        )
        records.append((group, at, value))
    fleet.write_dump(tmp_path / "dump", records, offsets=offsets, taken_at=ISO)
    tables = local.run(tmp_path / "dump", tmp_path / "out", reset=reset, batch_rows=batch_rows)
    return local.rows(tables, "lag", *columns)


names = st.sampled_from(["g", "", "../x", "😀"])
places = st.tuples(names, st.sampled_from(["t", "u"]), st.integers(0, 2))
commits = st.lists(
    st.tuples(places, st.none() | st.integers(0, 12), st.integers(1, 999)), max_size=12
)


@dear
@given(
    commits,
    st.dictionaries(st.tuples(names, st.sampled_from(["t", "u"]), st.integers(0, 2)), st.just("m")),
    st.dictionaries(
        st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 2)),
        st.tuples(st.integers(0, 6), st.integers(0, 6)),
    ),
    st.sampled_from(["latest", "earliest", "none"]),
    st.integers(1, 5),
)
def test_equals_the_twin(new_folder, commits, owned, ends, reset, batch_rows):
    history = []
    for group in sorted({g for g, _, _ in owned}):
        topics = {}
        for g, topic, partition in owned:
            if g == group:
                topics.setdefault(topic, []).append(partition)
        history.append(generation(group, 1, {"m-" + group: topics}, at=1))
    offsets = [(t, p, low, low + size) for (t, p), (low, size) in sorted(ends.items())]
    flat = [(*place, offset, at) for place, offset, at in commits]
    found = lag(new_folder(), flat, history, offsets, reset=reset, batch_rows=batch_rows)
    latest = {place: offset for place, offset, _ in commits}
    expected = []
    for place in set(latest) | set(owned):
        current = latest.get(place)
        if current is None and place not in owned:
            continue
        member = "m-" + place[0] if place in owned else None
        if place[1:] not in ends:
            expected.append((*place, current, None, None, member))
            continue
        low, size = ends[place[1:]]
        behind = None if current is None else max(0, low + size - max(current, low))
        expected.append((*place, current, low + size, behind, member))
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("topics", [("b", "a", "c"), ("c", "b", "a")])
def test_rows_of_a_group_are_sorted_by_name_whatever_came_first(tmp_path, topics):
    """Findings list the first partitions: tasks that read other records first must not differ."""
    commits = [("g", topic, p, 4, at) for at, topic in enumerate(topics, 1) for p in (1, 0)]
    lag(tmp_path, commits)
    rows = open_tables(tmp_path / "out").stored("lag")
    found = list(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
    assert found == [(topic, p) for topic in "abc" for p in (0, 1)]


def test_a_clamped_commit_says_so(tmp_path):
    commits = [("g", "t", 0, 50, 1), ("g", "t", 1, 3, 1), ("g", "t", 2, 7, 1)]
    offsets = [("t", p, 5, 10) for p in range(3)]
    found = lag(tmp_path, commits, offsets=offsets, columns=("partition", "lag", "clamped"))
    assert found == [(0, 0, "beyond_end"), (1, 5, "before_begin"), (2, 3, "none")]


@pytest.mark.parametrize(("reset", "expected"), [("latest", 0), ("earliest", 5), ("none", 5)])
def test_an_unknown_commit_is_what_the_reset_makes_of_it(tmp_path, reset, expected):
    history = [generation("g", 1, {"m": {"t": [0]}})]
    columns = (*COLUMNS, "lag_by_reset")
    found = lag(tmp_path, [], history, [("t", 0, 5, 10)], reset=reset, columns=columns)
    assert found == [("g", "t", 0, None, 10, None, "m", expected)]


def test_a_tombstone_takes_the_commit_away(tmp_path):
    commits = [("g", "t", 0, 4, 1), ("g", "t", 1, 4, 1), ("g", "t", 0, None, 2)]
    columns = ("partition", "current_offset", "status")
    assert lag(tmp_path, commits, columns=columns) == [(1, 4, "committed")]
    owned = [generation("g", 1, {"m": {"t": [0]}})]
    found = lag(tmp_path, commits, owned, columns=columns)
    assert found == [(0, None, "deleted"), (1, 4, "committed")]


def test_an_expired_commit_counts_only_for_a_partition_with_an_owner(tmp_path):
    commits = [("g", "t", p, 4, 1, expire) for p, expire in ((0, 999), (1, 1001), (2, 999))]
    history = [generation("g", 1, {"m": {"t": [2]}})]
    found = lag(tmp_path, commits, history, columns=("partition", "current_offset", "status"))
    assert found == [(0, None, "expired"), (1, 4, "committed"), (2, 4, "committed")]
    columns = ("partition", "metadata", "expire_timestamp")
    shutil.rmtree(tmp_path / "dump")
    at = [datetime.fromtimestamp(second, UTC) for second in (1001, 999)]
    assert lag(tmp_path, commits, history, columns=columns) == [
        (0, None, None),
        (1, METADATA, at[0]),
        (2, METADATA, at[1]),
    ]
    assert lag(tmp_path / "later", [("g", "t", 0, 4, 1)], columns=columns) == [(0, METADATA, None)]


def test_seconds_count_from_the_first_commit_in_a_row_that_says_the_same(tmp_path):
    commits = [
        *(("g", "t", 0, offset, at) for offset, at in ((4, 800), (5, 850), (4, 900), (4, 950))),
        ("g", "t", 1, 10, 900),
        *(("g", "t", 3, offset, at) for offset, at in ((4, 800), (None, 850), (4, 900))),
    ]
    offsets = [("t", 0, 0, 10), ("t", 1, 0, 10), ("t", 2, 0, 0), ("t", 3, 0, 10)]
    history = [generation("g", 1, {"m": {"t": [2]}}, at=1)]
    columns = ("partition", "lag_seconds", "is_idle")
    expected = [(0, 100.0, False), (1, 0.0, False), (2, None, True), (3, 100.0, False)]
    for rows in (1, 2, 100):
        folder = tmp_path / str(rows)
        found = lag(folder, commits, history, offsets, columns=columns, batch_rows=rows)
        assert found == expected


@given(commits, st.lists(st.integers(0, 12), max_size=3))
def test_positions_of_parts_make_those_of_the_whole(rows, cuts):
    whole = positions([(g, t, p, o, at, i) for i, ((g, t, p), o, at) in enumerate(rows)])
    edges = [0, *sorted(cuts), len(rows)]
    parts = [reduced(whole.slice(a, max(b - a, 0))) for a, b in pairwise(edges)]
    again = reduced(pa.concat_tables([POSITION.empty_table(), *reversed(parts)]))
    order = [(name, "ascending") for name in ("group", "topic", "partition")]
    assert again.sort_by(order).equals(reduced(whole).sort_by(order))
    latest, since = {}, {}
    for place, offset, at in rows:
        since[place] = since[place] if latest.get(place, -1) == offset else at
        latest[place] = offset
    found = {(r["group"], r["topic"], r["partition"]): r for r in reduced(whole).to_pylist()}
    assert {k: r["offset"] for k, r in found.items()} == latest
    assert {k: r["since"].timestamp() for k, r in found.items()} == since


def positions(rows):
    names = ("group", "topic", "partition", "offset", "at", "log_offset")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    n = len(rows)
    time = pa.array([at * 1_000_000 for at in columns.get("at", ())], pa.timestamp("us", "UTC"))
    made = {
        name: pa.nulls(n, field.type) for name, field in zip(POSITION.names, POSITION, strict=True)
    }
    for name in ("group", "topic", "partition", "offset", "log_offset"):
        made[name] = pa.array(columns.get(name, ()), POSITION.field(name).type)
    made |= {"commit_timestamp": time, "since": time, "goes_back": pa.array([True] * n, pa.bool_())}
    made["log_partition"] = pa.array([0] * n, pa.int32())
    return pa.table(made, schema=POSITION)


def test_the_last_generation_says_who_owns_what(tmp_path):
    history = [
        generation("g", 1, {"a-1": {"t": [0, 1]}}, at=1),
        generation("g", 2, {"b-1": {"t": [0]}}, at=2),
    ]
    found = lag(
        tmp_path, [("g", "t", 1, 0, 1)], history, columns=("partition", "member_id", "client_id")
    )
    assert found == [(0, "b-1", "b"), (1, None, None)]


def test_groups_that_are_cut_are_put_together_again(tmp_path, monkeypatch):
    commits = [(g, "t", p, p, 1) for g in ("a", "b", "c") for p in range(9)]
    whole = lag(tmp_path / "1", commits, offsets=[("t", p, 0, 9) for p in range(9)])
    monkeypatch.setattr(steps, "WHOLE_GROUPS_ROWS", 2)
    cut = lag(tmp_path / "2", commits, offsets=[("t", p, 0, 9) for p in range(9)], batch_rows=2)
    assert cut == whole and len(whole) == 27


def not_subscribed(tmp_path, records, offsets=()):
    """{(group, topic): ...} of each commit of a dump of these records."""
    fleet.write_dump(tmp_path / "dump", records, offsets=offsets, taken_at=ISO)
    tables = local.run(tmp_path / "dump", tmp_path / "out", batch_rows=7)
    rows = local.rows(tables, "lag", "group", "topic", "current_offset", "not_subscribed")
    return {(group, topic): told for group, topic, at, told in rows if at is not None}


def committed(group, *topics, at=5):
    return [(group, at, fleet.commit(group, topic, 0, 4, at=at)) for topic in topics]


def test_a_commit_of_a_topic_that_the_members_left_is_marked(tmp_path):
    history = [
        generation("moved", 1, {"a": {"old": [0], "new": [0]}}, at=1),
        generation("moved", 2, {"a": {"new": [0]}, "b": {}}, at=2),
        generation("gone", 1, {"a": {"new": [0]}}, at=1),
        generation("gone", 2, {}, at=2),
    ]
    records = fleet.classics(history)
    for group in ("moved", "gone", "simple"):
        records += committed(group, "old", "new")
    assert not_subscribed(tmp_path, records) == {
        ("moved", "old"): True,
        ("moved", "new"): False,
        # Of a group without members, or without any record of members, nobody knows.
        **{(group, topic): None for group in ("gone", "simple") for topic in ("old", "new")},
    }


def test_where_one_subscription_is_not_known_no_commit_is_marked(tmp_path):
    known = fleet.member("a", *messages("new"))
    records = []
    for group, other in (
        ("reads", fleet.member("b", *messages("old"))),
        ("unreadable", fleet.member("b", b"\0", b"")),
        ("says-nothing", fleet.member("b", b"", b"")),
    ):
        value = fleet.generation_value(1, [known, other])
        records += [(group, 1, fleet.record(2, 3, {"group": group}, value))]
        records += committed(group, "old", "left")
    assert not_subscribed(tmp_path, records) == {
        ("reads", "old"): False,
        ("reads", "left"): True,
        **{(g, t): None for g in ("unreadable", "says-nothing") for t in ("old", "left")},
    }


def messages(*topics):
    """A subscription to these topics, and the assignment of partition 0 of each."""
    asked = Subscription(topics=topics)
    given = AssignmentMessage(partitions=tuple((topic, (0,)) for topic in topics))
    return encode_subscription(asked), encode_assignment(given)


def test_members_of_kip_848_ask_by_name_and_of_an_expression_nobody_knows_what_it_names(tmp_path):
    records = []
    for group, pattern in (("names", None), ("pattern", "n.*")):
        member = fleet.consumer_member(group, "m-1", ["new"])
        if pattern is not None:
            member = fleet.record(5, 0, {"groupId": group, "memberId": "m-1"}, asks(pattern))
        events = [
            fleet.consumer_epoch(group, 1),
            member,
            fleet.consumer_target(group, "m-1", {"new": [0]}),
            fleet.assignment_epoch(group, 1),
        ]
        records += [(group, 1 + i / 10, event) for i, event in enumerate(events)]
        records += committed(group, "old", "new")
    assert not_subscribed(tmp_path, records) == {
        ("names", "old"): True,
        ("names", "new"): False,
        ("pattern", "old"): None,
        ("pattern", "new"): None,
    }


def asks(pattern):
    """A member that subscribes by an expression."""
    return {
        "instanceId": None,
        "rackId": None,
        "clientId": "m",
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": (),
        "subscribedTopicRegex": pattern,
        "rebalanceTimeoutMs": 45_000,
        "serverAssignor": None,
        "classicMemberMetadata": None,
    }


def test_a_stream_marks_a_topic_in_the_batch_in_which_the_members_leave_it(tmp_path):
    history = [
        generation("g", 1, {"a": {"old": [0], "new": [0]}}, at=1),
        generation("g", 2, {"a": {"new": [0]}}, at=50),
    ]
    records = [*fleet.classics(history), *committed("g", "old", "new")]
    records += committed("g", "new", at=90)  # a batch of commits alone keeps what was known
    records.sort(key=lambda record: record[1])
    path = fleet.write_dump(tmp_path / "dump", records, taken_at=ISO)
    for cuts in ([20_000_000], [20_000_000, 70_000_000]):
        out = tmp_path / f"out-{len(cuts)}"
        rows = local.rows(local.stream(path, out, cuts), "lag", "topic", "not_subscribed")
        assert sorted(rows) == [("new", False), ("old", True)]


def test_lag_that_nobody_knows_the_age_of_is_never_0_seconds_old(tmp_path):
    # The commit is dated later than the dump was taken: the clocks differ.
    columns = ("partition", "lag", "lag_seconds", "lag_seconds_basis", "has_unread")
    commits = [("g", "t", 0, 4, 5_000), ("g", "t", 1, 10, 5_000)]
    found = lag(tmp_path, commits, offsets=[("t", p, 0, 10) for p in (0, 1)], columns=columns)
    assert found == [(0, 6, None, None, None), (1, 0, 0.0, None, False)]
