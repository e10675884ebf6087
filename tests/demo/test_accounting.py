"""Records: produced = consumed + still unread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.demo.accounting import settle
from holdfast.cli.demo.journal import Entry
from holdfast.errors import AdapterError


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
    st.lists(st.integers(0, 20), min_size=3, max_size=3),
)
def test_agrees_with_counting_record_by_record(batches, committed):
    reads = [[0] * 20 for _ in range(3)]
    for partition, first, last in batches:
        for offset in range(first, last + 1):
            reads[partition][offset] += 1
    account = settle(
        [batch(*b) for b in batches],
        dict.fromkeys(range(3), 20),
        dict.fromkeys(range(3), 20),
        dict(enumerate(committed)),
    )
    flat = [n for row in reads for n in row]
    assert account.produced == account.end == 60
    assert account.consumed == sum(n > 0 for n in flat)
    assert account.read_twice == sum(n - 1 for n in flat if n > 1)
    assert account.unread == sum(20 - at for at in committed)
    pairs = [(row[o], o, at) for row, at in zip(reads, committed, strict=True) for o in range(20)]
    assert account.skipped == sum(n == 0 and o < at for n, o, at in pairs)
    assert account.uncommitted == sum(n > 0 and o >= at for n, o, at in pairs)
    if account.skipped == 0:
        assert account.adds_up


def test_clean_run_adds_up():
    entries = [batch(0, 0, 4), batch(0, 5, 9), batch(1, 0, 3)]
    account = settle(entries, {0: 10, 1: 6}, {0: 10, 1: 6}, {0: 10, 1: 4})
    assert account.adds_up
    assert (account.consumed, account.unread, account.read_twice) == (14, 2, 0)
    account.check()


@pytest.mark.parametrize(
    ("entries", "acknowledged", "committed"),
    [
        ([batch(0, 0, 3)], 10, 10),  # four read, ten committed: six skipped
        ([batch(0, 0, 9)], 9, 10),  # one more on the broker than was acknowledged
        ([batch(0, 0, 9)], 11, 10),  # an acknowledged one is gone
    ],
    ids=["skipped", "unexpected", "lost"],
)
def test_what_does_not_add_up_is_an_error(entries, acknowledged, committed):
    account = settle(entries, {0: acknowledged}, {0: 10}, {0: committed})
    with pytest.raises(AdapterError, match="records do not add up: produced"):
        account.check()


def test_reading_what_is_not_there_is_an_error():
    with pytest.raises(AdapterError, match="read offsets 5 to 10 of partition 0, which ends at 10"):
        settle([batch(0, 5, 10)], {0: 10}, {0: 10}, {})
