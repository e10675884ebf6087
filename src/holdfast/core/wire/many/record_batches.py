"""Record batches of a log, as in a Fetch answer, to columns of records.

**Rules.**

* Batches of format 2 are read, which brokers have written since Kafka 0.11. A batch of an older
  format is a WireError.
* A Fetch answer may cut its last batch off. Such a batch is left for the next answer.
* A batch that the cleaner has compacted keeps its first and last offset and has fewer records, so
  every offset without a record is detected.
* Nothing is read beyond a batch: a length that goes further is a WireError, and so are bytes left.

**Strategy.** One loop steps from batch to batch, and one from record to record, by the lengths in
front of them. All other fields are read of all records at once. Compressed records are decompressed
behind the bytes of the answer, so that all records are in one buffer.

References: KIP-98 (format 2, control records), KIP-534 (a cleaned batch with a delete horizon
counts its times from the horizon); ``DefaultRecordBatch`` and ``DefaultRecord`` of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model.columns import I64, U8, Mask, starts
from holdfast.core.wire.many.columns import Slices
from holdfast.core.wire.many.ragged import padded, read_at
from holdfast.errors import Reason, WireError

SCHEMA: Final = "RecordBatch"
NO_PRODUCER: Final = -1
"""Producer id of a batch that no idempotent producer wrote."""
DATA, ABORT, COMMIT, OTHER = -1, 0, 1, 2
"""Values of ``marker``: data, the two ends of a transaction, another control record."""

Unpack = Callable[[int, bytes], bytes]
"""Takes the number of a codec and compressed records, and returns the records."""

_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("n_records", ">i4"),
    ]
)
_HEADER_SIZE: Final = _HEADER.itemsize
_LENGTH_AT, _LENGTH_END, _MAGIC_AT = 8, 12, 16  # a batch's length counts what is behind it
_LENGTH_AND_MAGIC: Final = Struct(">8xi4xb")
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_SMALLEST_RECORD: Final = 7  # one byte a field
_NULL: Final = -1
_MOST_VARINT: Final = 63  # bits before the last byte of a varint of 64 bits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogRecords:
    """The records of whole batches of one partition, in the order of the log."""

    offset: I64
    timestamp_ms: I64
    producer_id: I64  # NO_PRODUCER for none
    transactional: Mask  # written in a transaction, ends of transactions included
    marker: I64  # DATA, ABORT, COMMIT or OTHER
    key: Slices
    value: Slices
    next_offset: int  # behind the last whole batch; the start of the read if there is none
    missing_until: int  # behind the last offset that has no record; -1: none is missing

    def __len__(self) -> int:
        return len(self.offset)

    def before(self, end: int) -> LogRecords:
        """Return the records before an offset; ``next_offset`` and ``missing_until`` stay."""
        n = int(np.searchsorted(self.offset, end))
        if n == len(self):
            return self
        rows = np.arange(n)
        return replace(
            self,
            offset=self.offset[:n],
            timestamp_ms=self.timestamp_ms[:n],
            producer_id=self.producer_id[:n],
            transactional=self.transactional[:n],
            marker=self.marker[:n],
            key=self.key.take(rows),
            value=self.value.take(rows),
        )


def read_batches(data: bytes, start: int, unpack: Unpack) -> LogRecords:
    """Read the whole batches of one partition in a Fetch answer.

    Parameters
    ----------
    data : bytes
        ``Records`` of the answer.
    start : int
        The offset that was requested; records before it, of its own batch, are left out.
    unpack : callable
        Decompresses the records of a batch.

    Raises
    ------
    WireError
        A batch or a record does not parse, or a batch has an older format.

    Notes
    -----
    Cost: two short loops in Python, one step a batch and one a record of a batch that has several;
    the rest is O(bytes) in NumPy.
    """
    at = _batch_positions(data)
    buffer = padded(np.frombuffer(data, np.uint8))
    header = read_at(buffer, at, _HEADER)
    old = np.flatnonzero(header["magic"] != 2)
    if len(old):
        raise WireError(
            Reason.BAD_VERSION,
            schema=SCHEMA,
            version=int(header["magic"][old[0]]),
            field="magic",
            position=int(at[old[0]]) + _MAGIC_AT,
            detail="format 2 is read, which brokers write since Kafka 0.11",
        )
    base = header["base_offset"].astype(np.int64)
    last = base + header["last_delta"]
    n_records = header["n_records"].astype(np.int64)
    whole, begin, end = _unpacked(data, at, header, unpack)
    if whole is not data:
        buffer = padded(np.frombuffer(whole, np.uint8))
    record, batch = _record_positions(whole, begin, end, n_records)
    read = _read_records(buffer, record, end[batch])
    offset = base[batch] + read.offset_delta
    attributes = header["attributes"][batch]
    appended = (attributes & _APPEND_TIME) != 0
    timestamp = header["base_timestamp"][batch] + read.timestamp_delta
    keep = np.flatnonzero(offset >= start)
    return LogRecords(
        offset=offset[keep],
        timestamp_ms=np.where(appended, header["max_timestamp"][batch], timestamp)[keep],
        producer_id=header["producer_id"].astype(np.int64)[batch][keep],
        transactional=((attributes & _TRANSACTIONAL) != 0)[keep],
        marker=_markers(read.key, (attributes & _CONTROL) != 0)[keep],
        key=read.key.take(keep),
        value=read.value.take(keep),
        next_offset=max(int(last[-1]) + 1, start) if len(last) else start,
        missing_until=_missing_until(start, base, last, n_records),
    )


def _batch_positions(data: bytes) -> I64:
    """Return where each whole batch begins, int64[n]."""
    read, size, found = _LENGTH_AND_MAGIC.unpack_from, len(data), []
    at, last = 0, size - _HEADER_SIZE
    while at <= last:
        length, magic = read(data, at)
        after = at + _LENGTH_END + length
        if after > size:
            break
        found.append(at)
        if magic != 2:
            break  # read_batches refuses it; its layout is another one
        if length < _HEADER_SIZE - _LENGTH_END:
            _refuse(Reason.BAD_LENGTH, "length", at + _LENGTH_AT)
        at = after
    return np.array(found, np.int64)


def _missing_until(start: int, base: I64, last: I64, n_records: I64) -> int:
    """Return the position behind the last offset from ``start`` without a record; -1 for none.

    A cleaned batch does not say which of its records were removed, so all of it may be missing.
    """
    if not len(base):
        return -1
    before = np.append(start - 1, last[:-1])
    gap = base > before + 1
    thin = n_records != last - base + 1
    behind = np.where(thin, last + 1, np.where(gap, base, -1))
    return int(behind.max())


def _unpacked(data: bytes, at: I64, header: NDArray[Any], unpack: Unpack) -> tuple[bytes, I64, I64]:
    """Return the bytes with all records, and where those of each batch begin and end."""
    begin = at + _HEADER_SIZE
    end = at + _LENGTH_END + header["length"]
    codec = header["attributes"] & _CODEC
    packed = np.flatnonzero(codec)
    if not len(packed):
        return data, begin, end
    parts, size = [data], len(data)
    for one in packed.tolist():
        parts.append(unpack(int(codec[one]), data[begin[one] : end[one]]))
        begin[one], size = size, size + len(parts[-1])
        end[one] = size
    return b"".join(parts), begin, end


def _record_positions(data: bytes, begin: I64, end: I64, n_records: I64) -> tuple[I64, I64]:
    """Return where each record begins, and its batch; both int64[n]."""
    wrong = np.flatnonzero((n_records < 0) | (n_records * _SMALLEST_RECORD > end - begin))
    if len(wrong):
        _refuse(Reason.BAD_COUNT, "records", int(begin[wrong[0]]) - 4)
    first = starts(n_records)
    positions = np.repeat(begin, n_records)
    for one in np.flatnonzero(n_records > 1).tolist():
        low, high = int(first[one]), int(first[one + 1])
        positions[low:high] = _hop(data, int(begin[one]), int(end[one]), high - low)
    return positions, np.repeat(np.arange(len(begin)), n_records)


def _hop(data: bytes, at: int, end: int, n_records: int) -> list[int]:
    """Return where each record of a batch begins: the length before a record gives its end."""
    found = []
    for _ in range(n_records):
        found.append(at)
        if at >= end:
            _refuse(Reason.TRUNCATED, "records", at)
        byte = data[at]
        size, shift, at = byte & 0x7F, 7, at + 1
        while byte & 0x80 and at < end and shift <= _MOST_VARINT:
            byte = data[at]
            size, shift, at = size | (byte & 0x7F) << shift, shift + 7, at + 1
        if size & 1:
            _refuse(Reason.BAD_LENGTH, "records", found[-1])  # below 0, in zigzag form
        at += size >> 1
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Read:
    offset_delta: I64
    timestamp_delta: I64
    key: Slices
    value: Slices


def _read_records(data: U8, at: I64, batch_end: I64) -> _Read:
    """Read every record at the positions ``at``."""
    size, pos = _varints(data, at, batch_end, "length")
    end = pos + size
    # A record ends where the next one of its batch begins, and the last one with its batch.
    behind = np.append(at[1:], 0)
    same = np.append(batch_end[1:] == batch_end[:-1], False)
    wrong = np.flatnonzero((size < 0) | (end != np.where(same, behind, batch_end)))
    if len(wrong):
        _refuse(Reason.BAD_LENGTH, "length", int(at[wrong[0]]))
    timestamp_delta, pos = _varints(data, pos + 1, end, "timestampDelta")
    offset_delta, pos = _varints(data, pos, end, "offsetDelta")
    key, pos = _runs(data, pos, end, "key")
    value, pos = _runs(data, pos, end, "value")
    return _Read(offset_delta=offset_delta, timestamp_delta=timestamp_delta, key=key, value=value)


def _runs(data: U8, pos: I64, end: I64, field: str) -> tuple[Slices, I64]:
    """Return bytes with their length in front of them, and the positions behind them."""
    size, pos = _varints(data, pos, end, field)
    null = size == _NULL
    size = np.where(null, 0, size)
    wrong = np.flatnonzero((size < 0) | (size > end - pos))
    if len(wrong):
        _refuse(Reason.BAD_LENGTH, field, int(pos[wrong[0]]))
    valid = ~null if null.any() else None
    return Slices(data=data, begin=pos, size=size, valid=valid), pos + size


def _varints(data: U8, pos: I64, end: I64, field: str) -> tuple[I64, I64]:
    """Return a number in zigzag form at each position, and the positions behind them."""
    byte = data.take(np.minimum(pos, len(data) - 1))
    value = (byte & 0x7F).astype(np.uint64)
    pos = pos + 1
    rows, shift = np.flatnonzero(byte > 0x7F), 7
    while len(rows):
        byte = data.take(np.minimum(pos[rows], len(data) - 1))
        value[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        pos[rows] += 1
        rows, shift = rows[byte > 0x7F], shift + 7
        if shift > _MOST_VARINT and len(rows):
            _refuse(Reason.BAD_VARINT, field, int(pos[rows[0]]))
    over = np.flatnonzero(pos > end)
    if len(over):
        _refuse(Reason.TRUNCATED, field, int(pos[over[0]]) - 1)
    half, sign = (value >> np.uint64(1)).astype(np.int64), (value & np.uint64(1)).astype(np.int64)
    return half ^ -sign, pos


def _markers(key: Slices, control: Mask) -> I64:
    """Return each transaction end's kind, by the keys of control records: version, type, int16."""
    found = np.full(len(key), DATA, np.int64)
    rows = np.flatnonzero(control)
    if len(rows):
        short = rows[key.size[rows] < 4]
        if len(short):
            _refuse(Reason.TRUNCATED, "controlRecordType", int(key.begin[short[0]]))
        said = read_at(key.data, key.begin[rows] + 2, np.dtype(">i2")).astype(np.int64)
        found[rows] = np.where((said == ABORT) | (said == COMMIT), said, OTHER)
    return found


def _refuse(reason: Reason, field: str, position: int) -> NoReturn:
    raise WireError(reason, schema=SCHEMA, version=2, field=field, position=position)
