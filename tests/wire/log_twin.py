"""A slow and obvious writer of record batches, and what a reader of them must find."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

from hypothesis import strategies as st

TIMESTAMPS = st.integers(-(2**40), 2**42)


def zigzag(value: int) -> bytes:
    """A varint of 64 bits."""
    left = (value << 1 ^ value >> 63) & (2**64 - 1)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def sized(value: bytes | None) -> bytes:
    return zigzag(-1) if value is None else zigzag(len(value)) + value


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch: ``records`` are (offset, time, key, value); ``last`` is kept by a cleaned one."""

    base: int
    last: int
    records: list[tuple[int, int, bytes | None, bytes | None]]
    producer_id: int = -1
    transactional: bool = False
    control: bool = False
    codec: int = 0
    append_time: int | None = None
    base_time: int = 0
    headers: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def encode(self, magic: int = 2) -> bytes:
        payload = b"".join(map(self._record, self.records))
        if self.codec:
            payload = zlib.compress(payload)
        attributes = self.codec | 0x08 * (self.append_time is not None)
        attributes |= 0x10 * self.transactional | 0x20 * self.control
        latest = max((time for _, time, _, _ in self.records), default=-1)
        head = struct.pack(
            ">ibIhiqqqhii",
            7,
            magic,
            0,
            attributes,
            self.last - self.base,
            self.base_time,
            latest if self.append_time is None else self.append_time,
            self.producer_id,
            3,
            9,
            len(self.records),
        )
        return struct.pack(">qi", self.base, len(head) + len(payload)) + head + payload

    def _record(self, record: tuple[int, int, bytes | None, bytes | None]) -> bytes:
        offset, time, key, value = record
        body = b"\0" + zigzag(time - self.base_time) + zigzag(offset - self.base)
        body += sized(key) + sized(value) + zigzag(len(self.headers))
        body += b"".join(sized(name) + sized(said) for name, said in self.headers)
        return zigzag(len(body)) + body

    def rows(self):
        """(offset, time, producer id, transactional, marker, key, value) of each record."""
        for offset, time, key, value in self.records:
            at = time if self.append_time is None else self.append_time
            marker = min(key[3], 2) if self.control else -1
            yield offset, at, self.producer_id, self.transactional, marker, key, value


def unpack(codec: int, data: bytes) -> bytes:
    assert codec == 3
    return zlib.decompress(data)


def end_of_transaction(offset: int, producer_id: int, kind: int, time: int = 0) -> Batch:
    """A control batch: ``kind`` 0 aborts, 1 commits, 2 is another control record."""
    key = struct.pack(">hh", 0, kind)
    records = [(offset, time, key, b"\0\0\0\0\0\0")]
    said = {"producer_id": producer_id, "transactional": True, "control": True}
    return Batch(base=offset, last=offset, records=records, **said)


@st.composite
def logs(draw, *, most: int = 6) -> list[Batch]:
    """Batches of one partition, with holes between them and in them."""
    batches, at = [], draw(st.integers(0, 300))
    for _ in range(draw(st.integers(0, most))):
        at += draw(st.sampled_from([0, 0, 0, 1, 70_000]))
        if draw(st.integers(0, 3)) == 0:
            kind = draw(st.integers(0, 2))
            batches.append(end_of_transaction(at, draw(st.integers(0, 2)), kind))
            at += 1
            continue
        offsets = [at + i for i in range(draw(st.integers(1, 4)))]
        kept = [o for o in offsets if draw(st.integers(0, 5))]
        blobs = st.none() | st.binary(max_size=9) | st.just(b"x" * 200)
        records = [(o, draw(TIMESTAMPS), draw(blobs), draw(blobs)) for o in kept]
        transactional = draw(st.booleans())
        batches.append(
            Batch(
                base=at,
                last=offsets[-1],
                records=records,
                producer_id=draw(st.integers(0, 2)) if transactional else -1,
                transactional=transactional,
                codec=draw(st.sampled_from([0, 0, 3])),
                append_time=draw(st.none() | TIMESTAMPS),
                base_time=draw(TIMESTAMPS),
                headers=draw(st.sampled_from([[], [(b"h", None), (b"i", b"v")]])),
            )
        )
        at = offsets[-1] + 1
    return batches
