"""What follows from the members' event logs: owners, and records read, unread and read twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.demo.event_log import (
    Account,
    Entry,
    EventLogReader,
    Interval,
    count_moves,
    count_records,
    holdings,
    intervals,
    overlaps,
    unowned_seconds,
)
from holdfast.errors import ProcessError


def entry(time_seconds: float, member: str, event: str, *partitions: int, **offsets: int) -> Entry:
    return Entry(
        time_seconds=time_seconds, member=member, event=event, partitions=partitions, **offsets
    )


def handovers(moves: list[tuple[int, int]]) -> list[Entry]:
    """One partition handed from member to member; each move is (pause, member)."""
    entries, now, owner = [], 0.0, None
    for pause, member in moves:
        if owner is not None:
            entries.append(entry(now, owner, "revoked", 0))
        now += pause
        owner = f"m{member}"
        entries.append(entry(now, owner, "assigned", 0))
        now += 1
    return entries


MOVES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=12)


@given(MOVES)
def test_revocations_leave_no_overlap_and_every_gap_is_counted(moves):
    found = intervals(handovers(moves), end_seconds=1e6)
    assert overlaps(found) == []
    total = sum(pause for pause, _ in moves)
    end = total + len(moves)
    assert abs(unowned_seconds(found, 1, 0.0, end)[0] - total) < 1e-6


@given(MOVES, st.integers(0, 11))
def test_an_owner_too_early_is_an_overlap(moves, where):
    """Somebody else owns the partition within an owner's time."""
    where %= len(moves)
    entries = handovers(moves)
    taken = [e for e in entries if e.event == "assigned"][where]
    entries.append(entry(taken.time_seconds + 0.5, "thief", "assigned", 0))
    entries.append(entry(taken.time_seconds + 0.6, "thief", "revoked", 0))
    entries.sort(key=lambda e: e.time_seconds)
    pairs = overlaps(intervals(entries, end_seconds=1e6))
    assert {pair[1].member for pair in pairs} == {"thief"}


def test_end_closes_what_was_owned_and_ends_the_process():
    entries = [
        entry(1, "a", "assigned", 0, 1),
        entry(2, "b", "assigned", 2),
        entry(3, "a", "revoked", 1),
        entry(4, "a", "end"),
        entry(5, "b", "assigned", 0, 1),
    ]
    assert holdings(entries[:2]) == {"a": {0, 1}, "b": {2}}
    assert holdings(entries) == {"b": {0, 1, 2}}
    found = intervals(entries, end_seconds=9)
    assert [(i.partition, i.member, i.start, i.stop) for i in found] == [
        (0, "a", 1, 4),
        (0, "b", 5, 9),
        (1, "a", 1, 3),
        (1, "b", 5, 9),
        (2, "b", 2, 9),
    ]
    assert unowned_seconds(found, 4, 2, 9) == [1, 2, 0, 7]


def test_a_member_that_comes_back_to_its_partition_has_not_moved_it():
    spans = [("m0.0", 0, 10), ("m0.1", 12, 20), ("m1.0", 20, 30), ("m0.1", 31, 40)]
    found = [
        Interval(partition=0, member=member, start=start, stop=stop)
        for member, start, stop in spans
    ]
    assert [count_moves(found, *window) for window in ((0, 40), (0, 15), (25, 40))] == [2, 0, 1]


def test_reader_takes_whole_lines_as_they_come(tmp_path):
    reader = EventLogReader(tmp_path)
    assert reader.read() == []
    first, second = entry(1, "a", "assigned", 3), entry(0.5, "b", "batch", 1, first=4, last=9)
    line = first.to_line() + "\n"
    with (tmp_path / "a.jsonl").open("w") as file:
        file.write(line[:7])
        file.flush()
        assert reader.read() == []
        file.write(line[7:])
        file.flush()
    assert reader.read() == [first]
    (tmp_path / "b.jsonl").write_text(second.to_line() + "\n")
    assert reader.read() == [second, first]
    assert reader.read() == [second, first]


def batch(partition: int, first: int, last: int) -> Entry:
    return entry(0.0, "m", "batch", partition, first=first, last=last)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 19), st.integers(0, 19)).map(
            lambda t: (t[0], min(t[1:]), max(t[1:]))
        ),
        max_size=20,
    ),
)
def test_agrees_with_counting_record_by_record(batches):
    reads = [[0] * 20 for _ in range(3)]
    for partition, first, last in batches:
        for offset in range(first, last + 1):
            reads[partition][offset] += 1
    account = count_records([batch(*b) for b in batches], dict.fromkeys(range(3), 20))
    flat = [n for row in reads for n in row]
    assert account.produced == 60
    assert account.read == sum(n > 0 for n in flat)
    assert account.unread == sum(n == 0 for n in flat)
    assert account.read_twice == sum(n - 1 for n in flat if n > 1)


def test_a_record_that_was_skipped_is_unread_and_one_that_came_again_read_twice():
    account = count_records([batch(0, 0, 6), batch(0, 5, 8)], {0: 10})
    assert account == Account(produced=10, read=9, read_twice=2)
    assert account.unread == 1


def test_reading_what_is_not_there_is_an_error():
    with pytest.raises(ProcessError, match="read offsets 5 to 10 of partition 0, which ends at 10"):
        count_records([batch(0, 5, 10)], {0: 10})
