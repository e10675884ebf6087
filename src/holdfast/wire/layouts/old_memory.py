"""Shares of version 1 of the leader's memory, which are read and not written any more.

========  =========================================================================================
share     version 1
========  =========================================================================================
head      one byte: version - 1 (bit 7), identity bytes - 4 (bits 4 to 6), topic bytes - 1 (bits 2
          and 3), what waits (bits 0 and 1: nothing, digest, list)
head      one byte: count of neighbours (bits 0 and 1), whole (bit 2), paced (bit 3), After is
          there (bit 4)
          Generation uvarint, PaceMs uvarint if paced, Digest 8 bytes or Waiting compact bytes,
          After identity, Neighbours
neighbour Identity, Owned
waiting   topic bytes - 1 int8, count uvarint, of each: identity bytes int8, Identity, DelayMs
          uvarint, Owned
owned     uvarint: bit 0 static, the other bits n. 0: left out; 1: several topics, count uvarint,
          of each topic hash, count uvarint, packed set; 2: nothing; above: topic hash, packed set
          of n - 2 partitions
packed    the highest partition uvarint, then the gap of each other one to the one before it, less
set       one. Let k be the whole part of the logarithm to base 2 of (highest + 1) / count. For k
          below 7 a gap is an uvarint, from 7 on it is a Rice code of k; the codes are filled up
          with bits 0 to whole bytes
========  =========================================================================================

**Rules.** A topic stands as the beginning of a hash of its name, here in bits as in version 2. The
digest is a hash of the bytes of the list of what waits.

**Strategy.** A leader that follows one of version 1 reads the deadlines and owners that it left.

References: :mod:`holdfast.wire.layouts.memory`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from holdfast.model.limits import INT32_MAX
from holdfast.model.partitions import TopicPartitions
from holdfast.wire.one.reader import Reader
from holdfast.wire.one.reasons import Reason

DIGEST_BYTES = 8
IDENTITY_BYTES = range(4, 9)
TOPIC_BYTES = range(1, 5)

MOST_TOPIC_BITS = 31

RICE_FROM = 7
"""The first ``k`` for which gaps are Rice codes."""

_NOTHING, _DIGEST, _LIST = range(3)


class OldMember(NamedTuple):
    """A neighbour, or a member that is waited for."""

    identity: bytes
    static: bool
    delay_ms: int
    owned: TopicPartitions | None


class OldShare(NamedTuple):
    """The fields of a share."""

    generation: int
    pace_ms: int
    whole: bool
    after: bytes
    neighbours: tuple[OldMember, ...]
    waiting: tuple[OldMember, ...]
    digest: bytes
    identity_bytes: int
    topic_bytes: int


def decode_old_share(reader: Reader) -> OldShare:
    """Read a share of version 1 from its first byte on.

    Raises
    ------
    WireError
        If the bytes are not a share of this version.

    References: Incremental Cooperative Rebalancing, Design II, "Leader exits".
    """
    head = _byte(reader, "head")
    size, topic_size, waits = 4 + (head >> 4), 1 + (head >> 2 & 3), head & 3
    if size not in IDENTITY_BYTES or waits > _LIST:
        reader.fail(Reason.OUT_OF_RANGE, "head", 0, f"{head:02x}")
    more = _byte(reader, "head")
    if more >> 5 or more & 20 == 20:
        reader.fail(Reason.OUT_OF_RANGE, "head", 1, f"{more:02x}")
    start = reader.pos
    generation = reader.uvarint("generation")
    if generation > INT32_MAX:
        reader.fail(Reason.OUT_OF_RANGE, "generation", start, f"{generation} is no int32")
    pace_ms = _delay_ms(reader, "pace_ms") if more & 8 else 0
    digest = b""
    waiting: tuple[OldMember, ...] = ()
    if waits == _DIGEST:
        digest = _take(reader, DIGEST_BYTES, "digest")
    elif waits == _LIST:
        waiting, digest = _read_waiting(reader)
    after = _take(reader, size, "after") if more & 16 else b""
    neighbours = []
    for _ in range(more & 3):
        identity = _take(reader, size, "identity")
        static, owned = _read_owned(reader, topic_size)
        neighbours.append(OldMember(identity, static, 0, owned))
    return OldShare(
        generation=generation,
        pace_ms=pace_ms,
        whole=bool(more & 4),
        after=after,
        neighbours=tuple(neighbours),
        waiting=waiting,
        digest=digest,
        identity_bytes=size,
        topic_bytes=topic_size,
    )


# Fields

_WAITING_MIN = 3
_TOPIC_MIN = 3


def _read_waiting(reader: Reader) -> tuple[tuple[OldMember, ...], bytes]:
    start, end = reader.pos, reader.end
    data = reader.compact_bytes("waiting")
    reader.pos, reader.end = reader.pos - len(data), reader.pos
    head = reader.pos
    topic_size = 1 + _byte(reader, "waiting")
    if topic_size not in TOPIC_BYTES:
        reader.fail(Reason.OUT_OF_RANGE, "waiting", head, f"topic hashes of {topic_size} bytes")
    head = reader.pos
    count = reader.uvarint("waiting")
    if not 0 < count <= reader.n_left // _WAITING_MIN:
        reader.fail(Reason.BAD_COUNT, "waiting", head, f"{count} in {reader.n_left} bytes")
    members = []
    for _ in range(count):
        head = reader.pos
        size = _byte(reader, "identity")
        if size > IDENTITY_BYTES[-1]:
            reader.fail(Reason.OUT_OF_RANGE, "identity", head, f"{size} bytes")
        identity = _take(reader, size, "identity")
        delay_ms = _delay_ms(reader, "delay_ms")
        static, owned = _read_owned(reader, topic_size)
        members.append(OldMember(identity, static, delay_ms, owned))
    if reader.n_left:
        reader.fail(Reason.BAD_LENGTH, "waiting", start, f"{reader.n_left} bytes too many")
    reader.end = end
    return tuple(members), blake2b(data, digest_size=DIGEST_BYTES).digest()


def _read_owned(reader: Reader, topic_size: int) -> tuple[bool, TopicPartitions | None]:
    value = reader.uvarint("owned")
    static, n = bool(value & 1), value >> 1
    if n == 0:
        return static, None
    if n == 2:
        return static, ()
    if n > 2:
        topic = _topic(reader, topic_size)
        return static, ((topic, _read_packed(reader, n - 2)),)
    start = reader.pos
    count = reader.uvarint("owned")
    if not 1 < count <= reader.n_left // _TOPIC_MIN:
        reader.fail(Reason.BAD_COUNT, "owned", start, f"{count} topics in {reader.n_left} bytes")
    topics: dict[str, tuple[int, ...]] = {}
    for _ in range(count):
        start = reader.pos
        topic = _topic(reader, topic_size)
        if topics and topic <= next(reversed(topics)):
            reader.fail(Reason.OUT_OF_RANGE, "topic", start, "topics are not in order")
        topics[topic] = _read_packed(reader, reader.uvarint("partitions"))
    return static, tuple(topics.items())


def _topic(reader: Reader, topic_size: int) -> str:
    """A topic as the bits of its hash, as many as version 2 can say."""
    return "".join(f"{byte:08b}" for byte in _take(reader, topic_size, "topic"))[:MOST_TOPIC_BITS]


def _byte(reader: Reader, field: str) -> int:
    return _take(reader, 1, field)[0]


def _take(reader: Reader, size: int, field: str) -> bytes:
    start = reader.pos
    reader.skip(size, field)
    return reader.data[start : reader.pos]


def _delay_ms(reader: Reader, field: str) -> int:
    start = reader.pos
    delay_ms = reader.uvarint(field)
    if not 0 < delay_ms <= INT32_MAX:
        reader.fail(Reason.OUT_OF_RANGE, field, start, f"{delay_ms} ms is not 1 to {INT32_MAX}")
    return delay_ms


def _read_packed(reader: Reader, count: int) -> tuple[int, ...]:
    """``count`` partitions (at least one), sorted."""
    start = reader.pos
    highest = reader.uvarint("partitions")
    if highest > INT32_MAX:
        reader.fail(Reason.OUT_OF_RANGE, "partitions", start, f"partition {highest}")
    if not 0 < count <= highest + 1 or count - 1 > reader.n_left:
        reader.fail(Reason.BAD_COUNT, "partitions", start, f"{count} up to {highest}")
    k = ((highest + 1) // count).bit_length() - 1
    others = _read_uvarints if k < RICE_FROM else _read_codes
    return (*others(reader, count - 1, highest, k), highest)


def _read_uvarints(reader: Reader, count: int, highest: int, k: int) -> list[int]:
    found, last = [], -1
    for _ in range(count):
        start = reader.pos
        last += reader.uvarint("partitions") + 1
        if last >= highest:
            reader.fail(Reason.OUT_OF_RANGE, "partitions", start, f"{last} above {highest}")
        found.append(last)
    return found


def _read_codes(reader: Reader, count: int, highest: int, k: int) -> list[int]:
    start = reader.pos
    most = -(-(count * (k + 1) + (highest >> k)) // 8)
    data = reader.data[start : min(reader.end, start + most)]
    bits = f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}" if data else ""
    found, last, pos = [], -1, 0
    for _ in range(count):
        zero = bits.find("0", pos)
        after = zero + 1 + k
        if zero < 0 or after > len(bits):
            _fail_codes(reader, start, len(data) < most, last, highest)
        last += ((zero - pos) << k) + int(bits[zero + 1 : after], 2) + 1
        if last >= highest:
            _fail_codes(reader, start, False, last, highest)
        found.append(last)
        pos = after
    reader.pos = start + -(-pos // 8)
    return found


def _fail_codes(reader: Reader, start: int, truncated: bool, last: int, highest: int) -> None:
    if truncated:
        reader.fail(Reason.TRUNCATED, "partitions", start, "a set of partitions does not end")
    reader.fail(Reason.OUT_OF_RANGE, "partitions", start, f"{last} is not below {highest}")
