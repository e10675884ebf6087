"""A part of a history in time."""

from __future__ import annotations

import pytest
from tests.report.fleet import examine_all, rolling_bounce, tables

from holdfast.fleet.analysis.times import CURRENT_TABLES, within
from holdfast.fleet.columnar import ints
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables, read_tables


@pytest.fixture(name="whole", scope="module")
def whole_history():
    return read_tables(tables(rolling_bounce("a").lag({("orders", 0): 5})))


def test_no_window_is_everything(whole):
    assert within(whole, None, None) is whole


def test_what_was_current_at_the_first_moment_stays_as_of_then(whole):
    times = sorted(set(ints(whole.stored("generations"), "timestamp").tolist()))
    since = (times[2] + times[3]) // 2
    part = within(whole, since, None)
    assert ints(part.stored("generations"), "timestamp").tolist() == [since, *times[3:]]
    for name in CURRENT_TABLES:
        assert set(ints(part.stored(name), "timestamp").tolist()) <= {since, *times}
    assert ints(part.stored("members"), "timestamp").tolist().count(since) > 1
    assert min(ints(part.stored("rebalances"), "timestamp")) == times[3]
    assert part.stored("lag").equals(whole.stored("lag"))
    (found,) = examine_all(part)
    assert found.history.timeline.first_ms == since // 1000
    assert found.history.n_rebalances == len(times) - 3


def test_a_window_that_ends_earlier_has_no_lag(whole):
    times = sorted(set(ints(whole.stored("generations"), "timestamp").tolist()))
    part = within(whole, None, times[4])
    assert max(ints(part.stored("generations"), "timestamp")) == times[4]
    assert not part.stored("lag").num_rows and whole.stored("lag").num_rows
    (found,) = examine_all(part)
    assert found.history.n_rebalances < len(times) - 1


def test_what_a_job_noted_is_still_known(tmp_path):
    """When log ends were read, for one: lags of a stream that died are no lags of now."""
    kept = Tables(tmp_path)
    kept.commit(Batch(id=0, notes={"taken_at": "2025-11-21T09:00:00+00:00"}))
    assert within(kept, 0, None).newest_notes() == kept.newest_notes() != {}
