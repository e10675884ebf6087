"""Records of a topic: read, unread and read twice, by the journals of members."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.demo.event_log import Entry
from holdfast.cli.demo.ownership import Account, count_records
from holdfast.errors import ProcessError


def batch(partition: int, first: int, last: int) -> Entry:
    return Entry(
        time_seconds=0.0,
        member="m",
        event="batch",
        partitions=(partition,),
        first=first,
        last=last,
    )


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
