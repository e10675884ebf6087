"""The first unread record of a partition, by batches in a broker's format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as Layout
from kafka.record.memory_records import MemoryRecordsBuilder

from holdfast.cluster import first_unread as module
from holdfast.cluster.first_unread import (
    MOST_ALONE,
    NOT_KNOWN,
    FirstUnread,
    RecordTime,
    Wanted,
    first_unread,
)

NOW = 1_800_000_000_000
_ATTRIBUTES = Layout.ATTRIBUTES_OFFSET + 1


@dataclass(frozen=True)
class Batch:
    """A batch: its records as (offset, time), and what stands in its header."""

    base: int
    last: int
    records: tuple[tuple[int, int], ...]
    control: bool = False
    producer: int = -1
    codec: int = 0
    attributes: int = 0
    size: int = 10

    @property
    def data(self) -> bytes:
        transactional = self.producer >= 0
        state = {"producer_id": self.producer, "producer_epoch": 0, "base_sequence": 0}
        made = MemoryRecordsBuilder(
            2, self.codec, 1 << 24, 0, transactional, **(state if transactional else {})
        )
        for offset, time in self.records:
            made.skip(offset - self.base - made.next_offset())
            made.append(time, None, b"-" * self.size)
        made.close()
        data = bytearray(made.buffer())
        data[:8] = self.base.to_bytes(8, "big")  # a broker writes it there
        data[_ATTRIBUTES] |= self.attributes | (Layout.CONTROL_MASK if self.control else 0)
        # A compacted batch keeps its first and its last offset.
        data[Layout.ATTRIBUTES_OFFSET + 2 : Layout.ATTRIBUTES_OFFSET + 6] = (
            self.last - self.base
        ).to_bytes(4, "big")
        return bytes(data)


def data(base: int, *times: int, **more: Any) -> Batch:
    """Records one after the other."""
    records = tuple(enumerate(times, base))
    return Batch(base, base + len(times) - 1, records, **more)


def marker(offset: int, producer: int = 1, time: int = NOW - 1_000) -> Batch:
    """The end of a transaction."""
    return Batch(offset, offset, ((offset, time),), control=True, producer=producer)


class Partition:
    """A log, and what its leader answers."""

    def __init__(
        self,
        batches: Sequence[Batch],
        *,
        aborted: Sequence[tuple[int, int]] = (),
        stable: int | None = None,
    ):
        self.batches = batches
        self.end = batches[-1].last + 1
        self.aborted = [SimpleNamespace(producer_id=p, first_offset=at) for p, at in aborted]
        self.stable = self.end if stable is None else stable
        self.fetches: list[tuple[int, int]] = []

    def fetch(self, offsets, n_bytes, at_once):
        """Whole batches only, but the first one of a request for one partition."""
        (offset,) = offsets.values()
        self.fetches.append((offset, n_bytes))
        found = b""
        for batch in self.batches:
            if batch.last < offset or batch.base >= self.stable:
                continue
            if len(found) + len(batch.data) > n_bytes and (found or at_once > 1):
                break
            found += batch.data
        answer = SimpleNamespace(
            records=found, last_stable_offset=self.stable, aborted_transactions=self.aborted
        )
        return dict.fromkeys(offsets, answer)

    def ask(self, times):
        """By time, which knows no control record from another one."""
        records = [record for batch in self.batches for record in batch.records]
        newest: list[int] = []
        for _, time in records:
            newest.append(max(time, *newest[-1:], time))
        at = {place: bisect_left(newest, time) for place, time in times.items()}
        return {place: records[i] if i < len(records) else None for place, i in at.items()}

    def found(self, offset: int) -> FirstUnread:
        wanted = Wanted("t", 0, offset, self.end, NOW - 60_000)
        (found,) = first_unread([wanted], self.fetch, self.ask, NOW)
        return found


def exact(ms: int, has_unread: bool | None = True) -> FirstUnread:
    """The record's own time."""
    return FirstUnread(RecordTime(ms, True), has_unread)


OLD = NOW - 500_000


@pytest.mark.parametrize("n_markers", [1, 3, 40, 200])
def test_behind_nothing_but_markers_nothing_is_unread(n_markers):
    log = Partition([data(0, OLD), *(marker(1 + i) for i in range(n_markers))])
    assert log.found(1) == FirstUnread(None, False)
    assert log.found(0) == exact(OLD)
    assert FirstUnread(None, False).of_lag(NOW * 1000) == {
        "lag_seconds": 0.0,
        "lag_seconds_basis": None,
        "has_unread": False,
    }


def test_a_record_behind_markers_counts_with_its_own_time():
    log = Partition([data(0, OLD), marker(1), marker(2), data(3, NOW - 7_000)])
    assert log.found(1) == exact(NOW - 7_000)


def test_more_markers_than_are_looked_at_leave_it_open():
    log = Partition([marker(i) for i in range(5_000)])
    assert log.found(0).has_unread is None
    assert len(log.fetches) == module.LOOKS


def test_records_of_an_aborted_transaction_are_unread_for_some_and_for_others_not():
    log = Partition(
        [data(0, OLD), data(1, OLD + 5, OLD + 9, producer=1), marker(3)], aborted=[(1, 1)]
    )
    assert log.found(1) == exact(OLD + 5, None)
    assert log.found(2) == exact(OLD + 9, None)
    assert log.found(3) == FirstUnread(None, False)
    # The same producer goes on, and commits.
    log = Partition(
        [data(0, OLD, producer=1), marker(1), data(2, OLD + 7, producer=1), marker(3)],
        aborted=[(1, 0)],
    )
    assert log.found(0) == exact(OLD + 7)
    # Another producer's records stand between.
    log = Partition([data(0, OLD, producer=1), data(1, OLD + 3), marker(2)], aborted=[(1, 0)])
    assert log.found(0) == exact(OLD + 3)


def test_records_of_an_open_transaction_are_not_known_to_be_work():
    log = Partition([data(0, OLD), data(1, OLD + 5, producer=1)], stable=1)
    assert log.found(1).has_unread is None
    assert log.found(0) == exact(OLD)


def test_a_batch_that_is_larger_than_a_look_is_fetched_by_itself():
    log = Partition([data(0, OLD, OLD + 2_000, size=3_000), data(2, NOW - 5)])
    assert log.found(0) == exact(OLD)
    assert log.found(1) == exact(OLD + 2_000)
    assert log.fetches[:2] == [(0, module.LOOK_BYTES), (0, 1)]
    log = Partition(
        [data(0, OLD, size=3_000, producer=4), marker(1, 4), data(2, NOW - 9)], aborted=[(4, 0)]
    )
    assert log.found(0) == exact(NOW - 9)


def test_only_so_many_large_batches_are_fetched_and_the_others_have_a_bound():
    logs = [Partition([data(0, OLD + i, size=3_000)]) for i in range(MOST_ALONE + 5)]

    def each(ask, offsets):
        found = {}
        for place, value in offsets.items():
            found |= ask(logs[place[1]], {place: value})
        return found

    wanted = [Wanted("t", i, 0, 1 + i, NOW) for i in range(len(logs))]
    found = first_unread(
        wanted,
        lambda offsets, n_bytes, at_once: each(
            lambda log, one: log.fetch(one, n_bytes, at_once), offsets
        ),
        lambda times: each(lambda log, one: log.ask(one), times),
        NOW,
    )
    assert found[:MOST_ALONE] == [exact(OLD + i) for i in range(MOST_ALONE)]
    assert all(one.has_unread is None and one.time for one in found[MOST_ALONE:])


def test_the_time_of_a_record_is_its_own_whatever_times_stand_around_it():
    log = Partition([data(0, NOW + 86_400_000, NOW - 1_800_000, NOW - 86_400_000, NOW - 3)])
    assert log.found(1) == exact(NOW - 1_800_000)
    assert log.found(2) == exact(NOW - 86_400_000)
    assert log.found(0) == exact(NOW + 86_400_000)
    assert log.found(0).of_lag(NOW * 1000) == {"has_unread": True}, "no age, and never 0"
    assert log.found(1).of_lag(NOW * 1000)["lag_seconds"] == 1_800.0


def test_with_log_append_time_the_time_is_the_brokers():
    appended = Layout.TIMESTAMP_TYPE_MASK
    log = Partition([data(0, OLD, OLD + 50, attributes=appended)])
    assert log.found(0) == log.found(1) == exact(OLD + 50)


def test_of_a_compacted_batch_the_first_record_that_is_left_counts():
    holes = Batch(0, 9, ((4, OLD), (7, OLD + 30)), attributes=0)
    assert Partition([holes]).found(5) == exact(OLD + 30)
    empty = Batch(10, 19, ())
    log = Partition([holes, empty, data(20, NOW - 4)])
    assert log.found(8) == exact(NOW - 4), "the batch ends behind its last record"
    assert log.found(10) == exact(NOW - 4)
    assert Partition([holes, empty]).found(8) == FirstUnread(None, False)


def test_a_batch_with_a_delete_horizon_is_read():
    log = Partition([data(0, OLD, OLD + 1, attributes=0x40)])
    assert log.found(0) == exact(OLD)


def test_records_that_cannot_be_unpacked_here_have_a_bound():
    packed = data(0, OLD, OLD + 9, OLD + 20).data
    log = Partition([data(0, OLD, OLD + 9, OLD + 20)])
    lz4 = bytearray(packed)
    lz4[_ATTRIBUTES] |= Layout.CODEC_LZ4
    log.fetch = lambda offsets, *_: dict.fromkeys(
        offsets,
        SimpleNamespace(records=bytes(lz4), last_stable_offset=3, aborted_transactions=None),
    )
    assert log.found(0) == exact(OLD), "the header has it"
    assert log.found(1) == FirstUnread(RecordTime(OLD + 20, False), True)
    assert log.found(1).of_lag(NOW * 1000)["lag_seconds_basis"] == "at_least"


@pytest.mark.parametrize("refused", [lambda *_: {}, lambda offsets, *_: dict.fromkeys(offsets)])
def test_where_nothing_may_be_read_the_age_is_asked_for_by_time(refused):
    log = Partition([data(0, OLD), marker(1)])
    log.fetch = refused
    found = log.found(1)
    assert found.has_unread is None
    assert found.time == RecordTime(NOW - 1_000, True)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_damaged_batches_end_no_question(noise, at):
    whole = data(0, OLD, OLD + 1, producer=2).data + marker(2).data
    log = Partition([data(0, OLD, OLD + 1), marker(2)])
    log.fetch = lambda offsets, *_: dict.fromkeys(
        offsets,
        SimpleNamespace(
            records=whole[: 40 * at] + noise + whole[40 * at :],
            last_stable_offset=3,
            aborted_transactions=[],
        ),
    )
    assert log.found(0) is not None


def test_two_groups_ask_for_one_partition_and_nobody_for_none():
    log = Partition([data(0, OLD), marker(1)])
    wanted = [Wanted("t", 0, 0, 2, NOW), Wanted("t", 0, 1, 2, NOW)]
    assert first_unread(wanted, log.fetch, log.ask, NOW) == [
        exact(OLD),
        FirstUnread(None, False),
    ]
    assert first_unread([], log.fetch, log.ask, NOW) == []
    assert NOT_KNOWN.of_lag(NOW * 1000) == {"has_unread": None}
