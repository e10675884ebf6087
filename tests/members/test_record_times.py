"""Times of records by their offsets, in known logs."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.first_unread import NEAR_MS, NEAR_SHARE, STEPS, RecordTime, record_times

NOW = 10**9
DAY = 86_400_000


class Log:
    """A partition: records as (offset, time), with gaps between the offsets, as a broker finds."""

    def __init__(self, records: list[tuple[int, int]]):
        self.records = records
        self.newest: list[int] = []  # the largest time up to each record
        for _, time in records:
            self.newest.append(max(time, self.newest[-1] if self.newest else time))
        self.asked = 0

    @classmethod
    def steady(cls, steps: list[tuple[int, int]]) -> Log:
        """Times that never fall."""
        found: list[tuple[int, int]] = []
        offset, time = 0, 0
        for more, later in steps:
            offset, time = offset + more, min(time + later, NOW)
            found.append((offset, time))
        return cls(found)

    def first_from(self, time: int) -> tuple[int, int] | None:
        """Kafka's answer: the first record whose time is not before ``time``."""
        at = bisect_left(self.newest, time)
        return self.records[at] if at < len(self.records) else None

    def truth(self, offset: int) -> int:
        """The time of the first record at the offset or behind it."""
        return self.records[bisect_left(self.records, (offset, -1))][1]

    def ask(self, times):
        self.asked += 1
        assert all(time >= 0 for time in times.values()), "Kafka has other questions below 0"
        return {place: self.first_from(time) for place, time in times.items()}


steps = st.tuples(st.integers(1, 3), st.sampled_from([0, 1, 3, 50, 2_000, 10_000_000]))
clocks = st.sampled_from([-DAY, -90_000, -1, 0, 0, 0, 1, 5_000, 3_000_000, DAY])


@given(st.lists(steps, min_size=1, max_size=60), st.data(), st.integers(-NOW, 2 * NOW))
def test_in_a_log_whose_times_rise_the_bound_is_near(given_steps, data, near):
    log = Log.steady(given_steps)
    offset = data.draw(st.integers(0, log.records[-1][0]))
    truth = log.truth(offset)
    (found,) = record_times([("t", 0, offset, near)], log.ask, NOW)
    assert log.asked <= STEPS
    if found is None:
        assert truth >= NOW - 1
        return
    assert found.ms >= truth
    if found.is_exact:
        assert found.ms == truth
    times = [time for _, time in log.records]
    alone = times.count(truth) == 1 and (offset, truth) in log.records
    if log.asked < STEPS and alone:
        assert found.ms <= truth + max(NEAR_MS, 1 + NEAR_SHARE * (NOW - truth))


@given(st.lists(st.tuples(steps, clocks), min_size=1, max_size=60), st.data(), st.integers(0, NOW))
def test_whatever_clocks_say_a_record_is_as_old_as_is_said_or_older(told, data, near):
    steady = Log.steady([step for step, _ in told])
    records = [
        (offset, max(time + clock, 0))
        for (offset, time), (_, clock) in zip(steady.records, told, strict=True)
    ]
    log = Log(records)
    offset = data.draw(st.integers(0, records[-1][0]))
    (found,) = record_times([("t", 0, offset, near)], log.ask, NOW)
    assert log.asked <= STEPS
    if found is not None:
        assert found.ms >= log.truth(offset)
        if found.is_exact:
            assert found.ms == log.truth(offset)


@pytest.mark.parametrize("ahead_ms", [5_000, 3_000_000, DAY])
def test_one_record_from_the_future_that_was_read_hides_no_age(ahead_ms):
    unread = [NOW - 1_800_000, NOW - 1_790_000, NOW - 1_780_000]
    log = Log([(0, NOW + ahead_ms), *((i, time) for i, time in enumerate(unread, 1))])
    assert record_times([("t", 0, 1, NOW)], log.ask, NOW) == [None]
    later = NOW + ahead_ms + 60_000  # when its time has come, one that is later bounds the others
    log = Log([*log.records, (4, later - 10_000)])
    assert record_times([("t", 0, 1, later)], log.ask, later) == [RecordTime(later - 10_000, False)]


def test_behind_a_gap_the_time_of_the_record_that_was_read_last_does_not_count():
    log = Log([(4, NOW - DAY), (90, NOW - 10_000)])  # compaction took what lay between
    (found,) = record_times([("t", 0, 5, NOW - DAY)], log.ask, NOW)
    assert found == RecordTime(NOW - 10_000, False)


def test_a_steady_log_is_quick_and_two_groups_may_ask_for_one_partition():
    now = 100_000_000
    log = Log.steady([(1, 100)] * 1_000_000)  # ten records a second, for 28 hours
    wanted = [("t", 0, 5_000, now - 60_000), ("t", 0, 900_000, now), ("t", 0, 999_990, now)]
    found = record_times(wanted, log.ask, now)
    for time, offset in zip(found, (5_000, 900_000, 999_990), strict=True):
        truth = offset * 100
        assert time is not None and truth <= time.ms <= truth + max(100, (now - truth) / 100)
    assert log.asked <= 3 * 5


def test_nothing_is_asked_for_nothing_and_a_partition_without_a_leader_has_no_time():
    assert record_times([], Log([(1, 1)]).ask, NOW) == []
    assert record_times([("t", 0, 5, 7)], lambda _: {}, NOW) == [None]
    assert record_times([("t", 0, 5, 7)], dict.fromkeys, NOW) == [None]
