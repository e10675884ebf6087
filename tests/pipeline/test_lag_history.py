"""Lag over time: rows of readings, and few of old ones; how fast a lag rises and falls."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.topic_in_memory import OffsetsLog
from tests.tables.test_maintenance import delta

from holdfast.cli import live_groups
from holdfast.core.model.lag import LEAST_FALL
from holdfast.fleet.pipeline.batches.watch import Stream, follow
from holdfast.fleet.pipeline.history.lag import SMOOTHING_S, EarlierLag, with_slopes
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.tables.columns.schemas import arrow_schema, filled_table, moment_text
from holdfast.fleet.tables.folder.delta_log import DataFile
from holdfast.fleet.tables.folder.maintenance import KEPT_S, expired, merge, resolution_s
from holdfast.fleet.tables.reading import Tables

S_US, MINUTE_S, HOUR_S, DAY_S = 1_000_000, 60, 3_600, 86_400
BEGIN_US = 1_700_000_123_000_000


def kept_readings(every_s: int, n: int) -> dict[int, int]:
    """Moments, in microseconds, and resolutions that are left of ``n`` readings."""
    kept: dict[int, DataFile] = {}
    for i in range(n):
        now_us = BEGIN_US + i * every_s * S_US
        resolution = resolution_s(now_us, max(kept, default=None))
        said = {"timestamp": moment_text(now_us), "resolution_seconds": resolution}
        kept[now_us] = DataFile(name=str(now_us), rows=1, size=1, written_ms=0, highest=said)
        for name in expired([*kept.values()], now_us):
            del kept[int(name)]
    return {at: file.highest["resolution_seconds"] for at, file in kept.items()}


@pytest.mark.parametrize(("every_s", "days"), [(300, 3), (3_000, 30), (11, 0.1)])
def test_each_range_of_a_page_has_the_first_reading_of_each_of_its_periods(every_s, days):
    n = round(days * DAY_S / every_s)
    kept, last_us = kept_readings(every_s, n), BEGIN_US + (n - 1) * every_s * S_US
    every = [BEGIN_US + i * every_s * S_US for i in range(n)]
    for step_s, range_s in (
        (0, HOUR_S),
        (MINUTE_S, 6 * HOUR_S),
        (5 * MINUTE_S, DAY_S),
        (HOUR_S, 7 * DAY_S),
        (6 * HOUR_S, 90 * DAY_S),
    ):
        inside = [at for at in every if at > last_us - range_s * S_US]
        before = [None, *every][len(every) - len(inside)]
        wanted = [
            at
            for past, at in zip([before, *inside], inside, strict=False)
            if not step_s or past is None or past // (step_s * S_US) != at // (step_s * S_US)
        ]
        assert [at for at in kept if at in {*inside} and kept[at] >= step_s] == wanted
    most = sum((kept_s or 0) // max(step, every_s) for step, kept_s in KEPT_S.items())
    assert len(kept) <= most + days * 4 + 10


class EnoughError(Exception):
    """As many polls as the test wants."""


def watched(folder, polls):
    """Follow a log whose poll ``i`` is at ``polls[i][0]`` seconds, after these commits."""
    log, left = OffsetsLog(), list(polls)

    def snapshot():
        found = log.snapshot()
        found.taken_at = moment_text(BEGIN_US + at_s * S_US)
        return found

    def wait(_):
        nonlocal at_s
        if not left:
            raise EnoughError
        at_s, commits = left.pop(0)
        for one in commits:
            log.commit(*one)

    at_s = 0
    wait(0)
    tables = Tables(folder)
    into = Stream(
        tables=tables,
        snapshot=snapshot,
        selection=Selection(all_groups=True),
        every_seconds=1.0,
        max_records=1,
    )
    with pytest.raises(EnoughError):
        follow(log.feed(), into, wait=wait)
    return tables


def readings(tables):
    """Seconds since the first poll, group, topic, lag, partitions, and resolution of each row."""
    return [
        (
            round(row["timestamp"].timestamp()) - BEGIN_US // S_US,
            *(row[name] for name in ("group", "topic", "lag", "n_partitions", "n_unknown")),
            row["resolution_seconds"],
        )
        for row in tables.table("lag_history").to_pylist()
    ]


def test_a_batch_and_a_poll_without_records_add_a_row_a_group_and_topic(tmp_path):
    tables = watched(
        tmp_path,
        [
            # Two batches, for a batch takes one record: the first one leaves a record unread.
            (0, [("g", "t", 0, 100), ("g", "t", 1, 900), ("g", "unknown", 0, 5)]),
            (1, []),
            (2, [("h", "t", 0, 0), ("g", "t", 0, 1000)]),
        ],
    )
    assert tables.rows("offset_commits") == 5
    assert readings(tables) == [
        (0, "g", "t", 1000, 2, 0, 21_600),
        (1, "g", "t", 1000, 2, 0, 0),
        (2, "g", "t", 100, 2, 0, 0),
        (0, "g", "unknown", None, 1, 1, 21_600),
        (1, "g", "unknown", None, 1, 1, 0),
        (2, "g", "unknown", None, 1, 1, 0),
        (2, "h", "t", 1000, 1, 0, 0),
    ]
    assert delta(tables, "lag_history").to_pyarrow_table().num_rows == 7


def test_old_readings_go_as_whole_files_though_they_were_merged(tmp_path):
    """37 s after the first poll a minute begins; the polls merge files of one resolution."""
    polls = [(0, [("g", "t", 0, 100)]), *((at, []) for at in range(1, 45))]
    tables = watched(tmp_path, [*polls, (2 * HOUR_S, []), (2 * HOUR_S + 1, [])])
    assert [(at, resolution) for at, *_, resolution in readings(tables)] == [
        (0, 21_600),
        (37, 60),
        (2 * HOUR_S, 21_600),
        (2 * HOUR_S + 1, 0),
    ]
    removed = tables.folder.newest().known.snapshot("lag_history", tables.manifest()).removed
    assert any("/merged/" in name for name in removed)
    with tables.writing():
        merge(tables.folder, everything=True)
    assert len(tables.data_files("lag_history")) == 3


NOW_US = 1_700_000_000_000_000


def lag_of(*rows, slope=None):
    """Rows (group, topic, partition, lag[, end[, clamped]]) of the table."""
    whole = [(*row, *(1000, "none")[len(row) - 4 :]) for row in rows]
    names = ("group", "topic", "partition", "lag", "log_end_offset", "clamped")
    columns = {
        name: list(values) for name, values in zip(names, zip(*whole, strict=True), strict=True)
    }
    columns["has_unread"] = [None if row[3] is None else row[3] > 0 for row in whole]
    columns["lag_per_second"] = [slope] * len(whole)
    schema = arrow_schema("lag")
    made = {name: pa.array(values, schema.field(name).type) for name, values in columns.items()}
    return filled_table(made, schema, len(whole))


def slopes(now, then, seconds, slope=None):
    """(records per second, seconds until caught up) of each row of ``now``."""
    earlier = EarlierLag(
        rows=lag_of(*then, slope=slope), taken_at_us=NOW_US - round(seconds * 1_000_000)
    )
    rows = with_slopes(lag_of(*now), earlier, NOW_US).to_pylist()
    return [(row["lag_per_second"], row["catch_up_seconds"]) for row in rows]


def test_what_shrinks_has_a_time_and_what_grows_has_none():
    then = [("g", "t", p, lag) for p, lag in enumerate((100, 40, 70, 10))]
    now = [("g", "t", p, lag) for p, lag in enumerate((80, 60, 70, 0))]
    assert slopes(now, then, 10) == [(-2.0, 40.0), (2.0, None), (0.0, None), (-1.0, 0.0)]


def test_without_an_earlier_reading_only_what_is_done_is_known():
    rows = with_slopes(lag_of(("g", "t", 0, 5), ("g", "t", 1, 0)), None, NOW_US).to_pylist()
    assert [(r["lag_per_second"], r["catch_up_seconds"]) for r in rows] == [(None, None), (None, 0)]
    assert slopes([("h", "t", 0, 5)], [("g", "t", 0, 9)], 10) == [(None, None)]


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (("g", "t", 0, None), ("g", "t", 0, 9)),
        (("g", "t", 0, 5), ("g", "t", 0, None)),
        (("g", "t", 0, 5, 500), ("g", "t", 0, 9)),  # a topic that was made anew
        (("g", "t", 0, 5, 1000, "before_begin"), ("g", "t", 0, 9)),  # records were deleted
    ],
)
def test_what_is_no_reading_by_a_consumer_has_no_slope(now, then):
    assert slopes([now], [then], 10) == [(None, None)]


def test_an_earlier_slope_counts_for_less_the_longer_ago_it_was():
    ((soon, _),) = slopes([("g", "t", 0, 80)], [("g", "t", 0, 100)], 10, slope=-8.0)
    left = math.exp(-10 / SMOOTHING_S)
    assert soon == pytest.approx(left * -8.0 + (1 - left) * -2.0)
    ((late, _),) = slopes([("g", "t", 0, 80)], [("g", "t", 0, 100)], 100 * SMOOTHING_S, slope=-8.0)
    assert late == pytest.approx(-20 / (100 * SMOOTHING_S))
    ((same, _),) = slopes([("g", "t", 0, 80)], [("g", "t", 0, 100)], 0, slope=-8.0)
    assert same == -8.0


def test_what_is_left_of_an_earlier_fall_is_no_time():
    at = [("g", "t", 0, 100)]
    ((slope, seconds),) = slopes(at, at, 1000, slope=-5.0)
    assert -LEAST_FALL < slope < 0 and seconds is None


lags = st.none() | st.integers(0, 500)
lag_readings = st.dictionaries(
    st.tuples(st.sampled_from(["g", "h"]), st.sampled_from(["t", "u"]), st.integers(0, 2)),
    st.tuples(lags, st.integers(500, 503), st.sampled_from(["none", "none", "before_begin"])),
    min_size=1,
)


@given(lag_readings, lag_readings, st.integers(1, 10_000))
def test_the_command_has_the_same_rules(now, then, seconds):
    found = slopes(
        *([(*key, *value) for key, value in side.items()] for side in (now, then)), seconds
    )
    rows, earlier = (
        lag_of(*((*key, *value) for key, value in side.items())).to_pylist() for side in (now, then)
    )
    for row in rows:
        row["catch_up_seconds"] = 0.0 if row["has_unread"] is False else None
    ours = [*live_groups.with_slopes(rows, earlier, seconds)]
    for row, (slope, left) in zip(ours, found, strict=True):
        assert row["lag_per_second"] == (None if slope is None else pytest.approx(slope))
        assert row["catch_up_seconds"] == (None if left is None else pytest.approx(left))


class Moving(OffsetsLog):
    """A topic whose log ends are read at moments that a test names."""

    taken_at = "2026-02-01T00:00:00+00:00"

    def snapshot(self):
        return SimpleNamespace(**{**vars(super().snapshot()), "taken_at": self.taken_at})


@pytest.mark.parametrize("commits", [True, False])
def test_a_stream_knows_it_by_its_last_batch(tmp_path, commits):
    log = Moving()
    log.commit("g", "t", 0, 100)

    def look():
        into = Stream(
            tables=Tables(tmp_path), snapshot=log.snapshot, selection=Selection(all_groups=True)
        )
        follow(log.feed(), into)
        (row,) = (r for r in Tables(tmp_path).table("lag").to_pylist() if r["group"] == "g")
        return row["lag"], row["lag_per_second"], row["catch_up_seconds"]

    assert look() == (900, None, None)
    log.taken_at = "2026-02-01T00:00:30+00:00"
    log.commit("g" if commits else "other", "t", 0, 400)
    assert look() == ((600, -10.0, 60.0) if commits else (900, 0.0, None))
