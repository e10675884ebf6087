"""Times of records by their offsets, against logs that are known."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.record_times import NEAR_MS, NEAR_SHARE, STEPS, record_times

NOW = 10**9


class Log:
    """A partition: offsets ascending, with gaps, and times that never fall."""

    def __init__(self, steps: list[tuple[int, int]]):
        self.offsets, self.times = [], []
        offset, time = 0, 0
        for more, later in steps:
            offset, time = offset + more, min(time + later, NOW)
            self.offsets.append(offset)
            self.times.append(time)
        self.asked = 0

    def first_from(self, time: int) -> tuple[int, int] | None:
        at = bisect_left(self.times, time)
        return (self.offsets[at], self.times[at]) if at < len(self.times) else None

    def ask(self, times):
        self.asked += 1
        return {place: self.first_from(time) for place, time in times.items()}


steps = st.tuples(st.integers(1, 3), st.sampled_from([0, 1, 3, 50, 2_000, 10_000_000]))


@given(st.lists(steps, min_size=1, max_size=60), st.data(), st.integers(0, NOW))
def test_the_time_is_found_in_few_requests(given_steps, data, near):
    log = Log(given_steps)
    offset = data.draw(st.integers(0, log.offsets[-1]))
    truth = log.times[bisect_left(log.offsets, offset)]
    (found,) = record_times([("t", 0, offset, near)], log.ask, NOW)
    assert log.asked <= STEPS
    if offset < log.offsets[0]:  # it was deleted
        assert found == truth
        return
    assert found is not None
    existing = offset in log.offsets
    if log.asked < STEPS and existing:
        assert truth - max(NEAR_MS, 1 + NEAR_SHARE * (NOW - truth)) <= found <= truth


def test_a_steady_log_is_quick_and_two_groups_may_ask_for_one_partition():
    log = Log([(1, 100)] * 1_000_000)  # ten records a second, for 28 hours
    wanted = [("t", 0, 5_000, NOW - 60_000), ("t", 0, 900_000, NOW), ("t", 0, 999_990, NOW)]
    found = record_times(wanted, log.ask, 100_000_000)
    for time, offset in zip(found, (5_000, 900_000, 999_990), strict=True):
        truth = offset * 100
        assert time is not None and truth - max(100, (100_000_000 - truth) / 100) <= time <= truth
    assert log.asked <= 3 * 5


def test_nothing_is_asked_for_nothing():
    assert record_times([], Log([(1, 1)]).ask, NOW) == []
    assert record_times([("t", 0, 5, 7)], lambda _: {}, NOW) == [None]
