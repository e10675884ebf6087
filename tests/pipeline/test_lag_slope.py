"""How fast lags change: an example for every rule, the twin of the command, and a stream."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.topic_in_memory import OffsetsLog

from holdfast.cli import live_groups
from holdfast.core.model.lag import LEAST_FALL
from holdfast.fleet.pipeline.batches.watch import Stream, follow
from holdfast.fleet.pipeline.history.lag import SMOOTHING_S, EarlierLag, with_slopes
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.tables.columns.schemas import arrow_schema, filled_table
from holdfast.fleet.tables.reading import Tables

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
readings = st.dictionaries(
    st.tuples(st.sampled_from(["g", "h"]), st.sampled_from(["t", "u"]), st.integers(0, 2)),
    st.tuples(lags, st.integers(500, 503), st.sampled_from(["none", "none", "before_begin"])),
    min_size=1,
)


@given(readings, readings, st.integers(1, 10_000))
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
