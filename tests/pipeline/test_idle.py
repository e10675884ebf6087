"""Idle traffic: a partition of which no record waits does not stand still."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation

from holdfast.cluster.first_unread import NOT_KNOWN, FirstUnread, RecordTime, Wanted
from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.pipeline.history import lag as lags
from holdfast.fleet.pipeline.history.lag import with_record_ages
from holdfast.fleet.pipeline.history.ownership_gaps import idle_rows
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import read_tables

ENDS = [("t", 0, 0, 10), ("t", 1, 0, 10), ("t", 2, 0, 10), ("t", 3, 0, 0), ("t", 4, 0, 10)]
COMMITS = [
    *((0, 10, at) for at in (80, 90, 110)),  # nothing to read, all the time
    *((1, 7, at) for at in (80, 90)),  # three records are unread
    *((2, offset, at) for offset, at in ((9, 90), (10, 130))),  # a record came, nobody knows when
]  # 3 never had a record; of 4 nothing is known
TAKEN = "1970-01-01T00:16:40+00:00"


def dump(folder):
    """An eager group whose second generation is settled at 100 s."""
    history = [
        generation("g", number, {"m": {"t": [0, 1, 2, 3, 4]}}, at=at)
        for number, at in ((1, 50), (2, 100))
    ]
    records = fleet.classics(history)
    records += [("g", at, fleet.commit("g", "t", p, offset, at=at)) for p, offset, at in COMMITS]
    records.sort(key=lambda record: record[1])
    return fleet.write_dump(folder, records, offsets=ENDS, taken_at=TAKEN)


@pytest.mark.parametrize("stream", [False, True])
def test_a_gap_without_a_record_that_waits_is_idle(tmp_path, stream):
    path = dump(tmp_path / "dump")
    out = tmp_path / "tables"
    tables = local.stream(path, out, [95_000_000]) if stream else local.run(path, out)
    rows = tables.table("ownership_gaps").to_pylist()
    assert {r["partition"]: r["is_idle"] for r in rows} == {
        0: True,
        1: None,
        2: None,
        3: True,
        4: None,
    }
    (row,) = tables.table("rebalances").filter(pa.compute.field("generation") == 2).to_pylist()
    upper = {r["partition"]: r["gap_upper_seconds"] for r in rows}
    assert row["gap_upper_seconds"] == sum(upper.values())
    assert row["idle_upper_seconds"] == upper[0] + upper[3] > 0
    shown = read_group(tables, "g").recorded
    assert shown.downtime_upper_s[-1] == upper[1] + upper[2] + upper[4]
    assert shown.idle_upper_s[-1] == upper[0] + upper[3]


def noted():
    """A cluster in which every record is of second 120, and what it was asked for."""
    asked = []
    record = FirstUnread(RecordTime(120_000, True), True)
    return lambda wanted: asked.extend(wanted) or [record for _ in wanted], asked


def test_the_time_of_the_next_record_says_until_when_nothing_waited(tmp_path):
    lag = local.run(dump(tmp_path / "dump"), tmp_path / "tables").table("lag")
    unread, asked = noted()
    dated = with_record_ages(lag, unread, 1_000_000_000)
    assert [one[:4] for one in asked] == [("t", 1, 7, 10)]
    found = idle_rows(dated, 1_000_000_000).select(["partition", "last_seen", "timestamp"])
    seconds = [
        (p, *(t.timestamp() for t in times)) for p, *times in map(dict.values, found.to_pylist())
    ]
    assert seconds == [(0, 80, 1000), (1, 80, 120), (2, 130, 1000), (3, 0, 1000)]


@pytest.mark.parametrize(
    ("record", "until_s"),
    [
        (FirstUnread(None, False), 1000),  # a transaction's control records wait for nobody
        (FirstUnread(RecordTime(120_000, False), True), None),  # it may have come earlier
        (FirstUnread(None, True), None),
    ],
)
def test_only_the_own_time_of_a_record_says_until_when_nothing_waited(tmp_path, record, until_s):
    lag = local.run(dump(tmp_path / "dump"), tmp_path / "tables").table("lag")
    dated = with_record_ages(lag, lambda wanted: [record for _ in wanted], 1_000_000_000)
    found = {row["partition"]: row["timestamp"] for row in idle_rows(dated, 10**9).to_pylist()}
    assert (found[1].timestamp() if 1 in found else None) == until_s


def test_tasks_are_given_the_times_of_the_records_that_are_furthest_behind(tmp_path, monkeypatch):
    lag = local.run(dump(tmp_path / "dump"), tmp_path / "tables").table("lag")
    at = lags.furthest_behind(lag)
    parts = [lags.oldest_unread(lag, at, 1_000_000_000), lags.OLDEST_UNREAD.empty_table()]
    (record,) = parts[0].to_pylist()
    nearer = pa.Table.from_pylist([{**record, "topic": "s", "lag": 2}], lags.OLDEST_UNREAD)
    monkeypatch.setattr(lags, "MOST_QUERIED", 1)
    unread, asked = noted()
    known = lags.unread_in_advance(pa.concat_tables([nearer, *parts]), unread)
    assert [topic for topic, *_ in asked] == ["t"]
    sent = pickle.loads(pickle.dumps(known))  # as Spark sends it to its tasks
    assert with_record_ages(lag, sent, 1_000_000_000).equals(
        with_record_ages(lag, unread, 1_000_000_000)
    )
    assert sent([Wanted("s", 1, 7, 9, 0)]) == [NOT_KNOWN]


def test_nothing_is_queried_where_nothing_is_unread():
    def unread(wanted):
        raise AssertionError(wanted)

    assert lags.unread_in_advance(lags.OLDEST_UNREAD.empty_table(), unread)([]) == []


def test_tables_of_before_say_nothing_of_idle_traffic(tmp_path):
    tables = local.run(dump(tmp_path / "dump"), tmp_path / "tables")
    old = {name: tables.table(name, flat=False) for name in TABLES}
    old["rebalances"] = old["rebalances"].drop_columns(["idle_lower_seconds", "idle_upper_seconds"])
    shown = read_group(read_tables(old), "g").recorded
    assert shown.downtime_upper_s[-1] > 0 and shown.idle_upper_s[-1] == 0
