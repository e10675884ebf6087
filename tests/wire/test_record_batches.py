"""Record batches of a log to columns: as a slow writer wrote them, and as kafka-python writes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.wire.log_twin import Batch, end_of_transaction, logs, unpack

from holdfast.core.wire.many.record_batches import COMMIT, DATA, LogRecords, read_batches
from holdfast.errors import WireError


def values(column):
    return [
        None
        if column.valid is not None and not column.valid[i]
        else column.data[begin : begin + size].tobytes()
        for i, (begin, size) in enumerate(zip(column.begin, column.size, strict=True))
    ]


def rows(found: LogRecords):
    numbers = (found.offset, found.timestamp_ms, found.producer_id)
    columns = [column.tolist() for column in (*numbers, found.transactional, found.marker)]
    return list(zip(*columns, values(found.key), values(found.value), strict=True))


def encoded(batches):
    return b"".join(batch.encode() for batch in batches)


def twin_missing_until(batches, start):
    """Behind the last offset that is in no whole batch, or in a batch that lacks some."""
    found, at = -1, start
    for batch in batches:
        if batch.base > at:
            found = max(found, batch.base)
        if len(batch.records) != batch.last - batch.base + 1:
            found = max(found, batch.last + 1)
        at = batch.last + 1
    return found


@given(logs())
def test_every_record_of_every_batch(batches):
    start = batches[0].base if batches else 5
    found = read_batches(encoded(batches), start, unpack)
    assert rows(found) == [row for batch in batches for row in batch.rows()]
    assert found.next_offset == (batches[-1].last + 1 if batches else start)
    assert found.missing_until == twin_missing_until(batches, start)


@given(logs(), st.integers(0, 400))
def test_a_read_begins_in_a_batch_or_before_it(batches, start):
    batches = [batch for batch in batches if batch.last >= start]
    found = read_batches(encoded(batches), start, unpack)
    told = [row for batch in batches for row in batch.rows() if row[0] >= start]
    assert rows(found) == told
    assert found.next_offset >= start


@given(logs(), st.data())
def test_a_batch_that_the_answer_cuts_off_is_left_for_the_next_one(batches, data):
    whole = encoded(batches)
    cut = data.draw(st.integers(0, len(whole)))
    found = read_batches(whole[:cut], 0, unpack)
    left = [b for b in batches if b.base >= found.next_offset]
    done = batches[: len(batches) - len(left)]
    assert rows(found) == [row for batch in done for row in batch.rows()]
    assert len(encoded(done)) <= cut
    assert not left or cut < len(encoded(done)) + len(left[0].encode())


@given(logs(most=3), st.data())
def test_spoiled_bytes_are_refused_or_read_and_never_left(batches, data):
    """Whatever a byte becomes, what is read lies inside, and an error is a WireError."""
    blob = bytearray(encoded(batches))
    for _ in range(data.draw(st.integers(1, 3)) if blob else 0):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_batches(bytes(blob), 0, lambda _, packed: packed)
    except WireError as error:
        assert error.schema == "RecordBatch" and error.position >= 0
        return
    for column in (found.key, found.value):
        assert ((column.begin >= 0) & (column.begin + column.size <= len(blob) * 2)).all()


def test_what_another_writer_wrote():
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=True,
        producer_id=4001,
        producer_epoch=2,
        base_sequence=7,
        batch_size=1 << 20,
    )
    for i in range(300):
        assert builder.append(
            i, 1_700_000_000_000 + i, b"k%d" % i, None if i % 7 == 0 else b"v", []
        )
    found = read_batches(bytes(builder.build()), 0, unpack)
    assert rows(found) == [
        (i, 1_700_000_000_000 + i, 4001, True, DATA, b"k%d" % i, None if i % 7 == 0 else b"v")
        for i in range(300)
    ]
    assert (found.next_offset, found.missing_until) == (300, -1)


def test_the_end_of_a_transaction_says_which_one():
    found = read_batches(encoded([end_of_transaction(8, 17, COMMIT)]), 8, unpack)
    assert (found.producer_id.tolist(), found.marker.tolist()) == ([17], [COMMIT])


ONE = Batch(base=0, last=1, records=[(0, 5, b"k", b"v"), (1, 6, b"", None)])


@pytest.mark.parametrize(
    ("spoil", "reason", "field"),
    [
        (lambda b: ONE.encode(magic=1), "bad-version", "magic"),
        (lambda b: b[:57] + struct.pack(">i", -1) + b[61:], "bad-count", "records"),
        (lambda b: b[:57] + struct.pack(">i", 1000) + b[61:], "bad-count", "records"),
        (lambda b: b[:57] + struct.pack(">i", 1) + b[61:], "bad-length", "length"),
        (lambda b: b[:8] + struct.pack(">i", 3) + b[12:], "bad-length", "length"),
        (lambda b: b[:61] + b"\x01" + b[62:], "bad-length", "records"),
        (lambda b: b[:63] + b"\x80" * 7 + b[70:], "truncated", "timestampDelta"),
        (lambda b: b[:65] + b"\x40" + b[66:], "bad-length", "key"),
        (lambda b: b[:57] + b"\0\0\0\1" + b"\xff" * (len(b) - 61), "bad-varint", "length"),
    ],
)
def test_bad_bytes(spoil, reason, field):
    with pytest.raises(WireError) as caught:
        read_batches(spoil(ONE.encode()), 0, unpack)
    assert (caught.value.reason, caught.value.field) == (reason, field)


def test_control_records_without_a_type_are_refused():
    batch = Batch(base=0, last=0, records=[(0, 0, b"\0\0", b"")], control=True)
    with pytest.raises(WireError, match="controlRecordType"):
        read_batches(batch.encode(), 0, unpack)
