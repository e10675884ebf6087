"""Rows of ``lag`` from what coordinators answer: those of the pipeline, by its own rule."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli import live_groups
from holdfast.cli.live_groups import chosen_groups, lag_rows
from holdfast.cluster.first_unread import NOT_KNOWN, FirstUnread, RecordTime
from holdfast.cluster.groups import GroupReader, Position
from holdfast.cluster.groups_now import GroupsNow
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.history.lag import (
    INPUT,
    Ends,
    lag_table,
    with_record_ages,
    with_slopes,
)
from holdfast.fleet.tables.columns.schemas import from_columns

NOW_US = 1_700_000_000_000_000
NOT_REPORTED = {"commit_timestamp", "position_timestamp", "expire_timestamp"}
GROUPS, TOPICS = ("a", "b", "shared"), ("t", "u")


@st.composite
def answers(draw: st.DrawFn) -> GroupsNow:
    """What coordinators of three groups and leaders of two topics may answer."""
    places = [(g, t, p) for g in GROUPS for t in TOPICS for p in range(2)]
    offsets = []
    for topic in TOPICS:
        for partition in range(draw(st.integers(0, 2))):
            begin = draw(st.integers(0, 5))
            offsets.append((topic, partition, begin, begin + draw(st.integers(0, 5))))
    positions = []
    for group, topic, partition in draw(st.lists(st.sampled_from(places), unique=True)):
        left = draw(st.integers(-1, 3)) if group == "shared" else None
        offset = draw(st.integers(0, 12))
        positions.append(
            Position(
                group=group,
                topic=topic,
                partition=partition,
                offset=offset,
                share_lag=left,
                metadata=draw(st.none() | st.sampled_from(["", "by hand"])),
            )
        )
    readers = [
        GroupReader(
            group=draw(st.sampled_from(GROUPS)),
            member_id=f"m{number}",
            client_id="c",
            client_host="/h",
            partitions=((draw(st.sampled_from(TOPICS)), (draw(st.integers(0, 1)),)),),
            subscribed=draw(st.none() | st.frozensets(st.sampled_from(TOPICS))),
        )
        for number in draw(st.lists(st.integers(0, 5), max_size=4, unique=True))
    ]
    times = st.integers(-1, 90_000).map(lambda age: NOW_US // 1000 - age)
    records = st.builds(
        FirstUnread,
        st.none() | st.builds(RecordTime, times, st.booleans()),
        st.none() | st.booleans(),
    )
    unread = {
        (one.topic, one.partition, max(one.offset, begin)): draw(records)
        for one in positions
        for topic, partition, begin, end in offsets
        if (topic, partition) == (one.topic, one.partition)
        and one.share_lag is None
        and one.offset < end
        and draw(st.booleans())
    }
    return GroupsNow(
        positions=positions,
        readers=readers,
        share_groups=frozenset({"shared"}),
        offsets=offsets,
        taken_at_us=NOW_US,
        unread=unread,
    )


def as_input(found: GroupsNow) -> pa.Table:
    """The same as the pipeline has it: commits with places in a log, and what members own."""
    ends = {(topic, p): (begin, end) for topic, p, begin, end in found.offsets}
    rows: list[dict[str, Any]] = []
    for at, one in enumerate(found.positions):
        _, end = ends.get((one.topic, one.partition), (0, None))
        done = None
        if one.share_lag is not None:
            known = end is not None and one.share_lag >= 0
            done = max(end - one.offset - one.share_lag, 0) if known else -1
        rows.append(
            {
                "group": one.group,
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "since": NOW_US,
                "log_offset": at,
                "delivered": done,
                "metadata": one.metadata,
            }
        )
    for reader in found.readers:
        for topic, partitions in reader.partitions:
            rows.append(
                {
                    "group": reader.group,
                    "topic": topic,
                    "partitions": list(partitions),
                    "member_id": reader.member_id,
                    "client_id": reader.client_id,
                    "client_host": reader.client_host,
                    "delivered": -1 if reader.group in found.share_groups else None,
                }
            )
    for group in GROUPS:
        asked = [one.subscribed for one in found.readers if one.group == group]
        known = group not in found.share_groups and None not in asked
        for topic in sorted({topic for topics in asked for topic in topics or ()} if known else ()):
            rows.append({"group": group, "topic": topic, "partitions": []})
    return pa.table({n: [row.get(n) for row in rows] for n in INPUT.names}, schema=INPUT)


def by_the_pipeline(found: GroupsNow, reset: str) -> list[dict[str, Any]]:
    names = ("topic", "partition", "begin_offset", "end_offset")
    columns = list(zip(*found.offsets, strict=True)) or [(), (), (), ()]
    offsets = from_columns("offsets", dict(zip(names, columns, strict=True)))
    table = lag_table(as_input(found), Ends(offsets=offsets, taken_at_us=NOW_US, reset=reset))

    def unread(wanted: Any) -> list[FirstUnread]:
        return [found.unread.get(one[:3], NOT_KNOWN) for one in wanted]

    aged = with_record_ages(table, unread, NOW_US)
    rows: list[dict[str, Any]] = with_slopes(aged, None, NOW_US).to_pylist()
    for row in rows:
        if row["lag_seconds_basis"] == "position":  # since when is not said
            row |= {"lag_seconds": None, "lag_seconds_basis": None}
    return sorted(rows, key=lambda row: (row["group"], row["topic"], row["partition"]))


@given(answers(), st.sampled_from(["latest", "earliest"]))
def test_the_rows_are_those_of_the_pipeline(found: GroupsNow, reset: str) -> None:
    expected = by_the_pipeline(found, reset)
    got = list(lag_rows(found, reset))
    assert [{n: v for n, v in row.items() if n not in NOT_REPORTED} for row in got] == [
        {n: v for n, v in row.items() if n not in NOT_REPORTED} for row in expected
    ]
    assert all(row[name] is None for row in got for name in NOT_REPORTED)


@pytest.mark.parametrize(
    ("wanted", "all_groups", "chosen"),
    [
        ((), False, {"etl", "etl*", "web"}),
        ((), True, {"etl", "etl*", "web", "spark-kafka-source-1"}),
        (("etl",), False, {"etl"}),
        (("etl*",), False, {"etl", "etl*"}),
        (("spark-*", "web"), False, {"web", "spark-kafka-source-1"}),
    ],
)
def test_groups_are_chosen_by_name_and_pattern(
    wanted: tuple[str, ...], all_groups: bool, chosen: set[str]
) -> None:
    known = {"etl", "etl*", "web", "spark-kafka-source-1"}
    assert set(chosen_groups(known, wanted, all_groups=all_groups)) == chosen


def test_a_name_that_no_group_has_is_reported_and_many_groups_are_left_to_the_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def now(cluster: Any, choose: Any) -> GroupsNow | None:
        asked.append(choose({"etl", "web"}))
        if asked[-1] is None:
            return None
        return GroupsNow(
            positions=[],
            readers=[],
            share_groups=frozenset(),
            offsets=[],
            taken_at_us=NOW_US,
            unread={},
        )

    monkeypatch.setattr(live_groups, "groups_now", now)
    told: list[str] = []
    cluster: Any = None

    def rows(*groups: str) -> list[dict[str, Any]] | None:
        return live_groups.live_lag(
            cluster, groups, all_groups=False, reset="latest", note=told.append
        )

    assert rows("etl", "elt") == []
    assert told == ["no group 'elt': did you mean etl?"]
    monkeypatch.setattr(live_groups, "MOST_GROUPS", 1)
    assert rows() is None
    assert rows("etl") == []
    with pytest.raises(SourceError, match=r"^no group 'nosuch' here; known: etl, web$"):
        rows("nosuch")
    assert [None if names is None else set(names) for names in asked] == [{"etl"}, None, {"etl"}]
