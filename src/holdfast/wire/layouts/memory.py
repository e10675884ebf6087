"""A share of the leader's memory: what one member carries from one leader to the next.

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
========  =========================================================================================

**Rules.**

* An *identity* is the beginning of a hash of the instance id of a static member, or of the member
  id of a dynamic one. A topic stands as the beginning of a hash of its name, in hex.
* A share whose first bit is set is of a later version, or no share: it cannot be read.
* A share names at most three neighbours. A delay is the time that remains, in ms, 1 to 2**31 - 1.
* The digest is a hash of the bytes of the list of what waits.

**Strategy.** A leader writes each member's entry once and joins entries to shares. A member sends
its share back in its next subscription, unread; only a leader reads shares.
:mod:`holdfast.machine.leader.ring` says who carries what; packed sets stand in
:mod:`holdfast.wire.layouts.packed_sets`.

References: Incremental Cooperative Rebalancing, Design II, "Leader exits"; KIP-415, whose leader
forgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from holdfast.errors import WireError
from holdfast.model.limits import INT32_MAX
from holdfast.model.partitions import TopicPartitions, sort_partitions
from holdfast.model.remembered import remembered
from holdfast.wire.layouts.packed_sets import read_packed, write_packed
from holdfast.wire.one.reader import Reader
from holdfast.wire.one.reasons import Reason
from holdfast.wire.one.writer import Writer

MEMORY = "HoldfastMemory"
MEMORY_VERSION = 1

COPIES = 3
"""Neighbours in a share: each member's facts have so many holders."""

DIGEST_BYTES = 8
IDENTITY_BYTES = range(4, 9)
"""Sizes of an identity; a leader takes the smallest without two equal ones."""

TOPIC_BYTES = range(1, 5)
"""Sizes of a topic hash; a leader takes the smallest without two equal ones."""

_NOTHING, _DIGEST, _LIST = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedMember:
    """One member in the leader's memory.

    Parameters
    ----------
    identity : bytes
        The beginning of a hash of its instance id, or else of its member id.
    static : bool
        Whether it has an instance id.
    delay_ms : int
        How long its partitions still wait; 0 for a member of that round.
    owned : tuple of (topic hash, partitions), or None
        Partitions owned after that round; for a departed member, the partitions that wait. None:
        left out, because the record would have been too large.
    """

    identity: bytes
    static: bool = False
    delay_ms: int = 0
    owned: TopicPartitions | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One member's part of the memory of a round.

    Parameters
    ----------
    generation : int
        Generation in which it was written.
    pace_ms : int
        How long it then was until the next batch of Design III, 0 for no such time.
    whole : bool
        Whether its neighbours are all other members of that round.
    after : bytes
        Else its neighbours are all members behind this identity up to the member itself, in the
        order of identities. Empty if it is whole, or speaks about no member.
    neighbours : tuple of RememberedMember
        At most three. Those that own nothing are left out.
    waiting : tuple of RememberedMember
        Departed members whose partitions wait, at a member that carries the list.
    digest : bytes
        Of the list of what waits, 8 bytes; empty if nothing waits.
    identity_bytes, topic_bytes : int
        Sizes of the hashes.
    """

    generation: int
    pace_ms: int = 0
    whole: bool = False
    after: bytes = b""
    neighbours: tuple[RememberedMember, ...] = ()
    waiting: tuple[RememberedMember, ...] = ()
    digest: bytes = b""
    identity_bytes: int = IDENTITY_BYTES[0]
    topic_bytes: int = TOPIC_BYTES[0]


@remembered(4096, largest=1_024, size=lambda data: 0 if data is None else len(data))
def read_share(data: bytes | None) -> Share | None:
    """A share, or None where there is nothing that can be read; checkers read the same ones."""
    try:
        return None if data is None else decode_share(data)
    except WireError:
        return None


def decode_share(data: bytes) -> Share:
    """Read a share.

    Raises
    ------
    WireError
        If the bytes are not a share.

    References: Incremental Cooperative Rebalancing, Design II, "Leader exits".
    """
    reader = Reader(data, MEMORY)
    head = _byte(reader, "head")
    if head & 0x80:
        reader.fail(Reason.BAD_VERSION, "head", 0, "of a later version")
    reader.version = MEMORY_VERSION
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
    waiting: tuple[RememberedMember, ...] = ()
    if waits == _DIGEST:
        digest = _take(reader, DIGEST_BYTES, "digest")
    elif waits == _LIST:
        waiting, digest = _read_waiting(reader)
    after = _take(reader, size, "after") if more & 16 else b""
    neighbours = []
    for _ in range(more & 3):
        identity = _take(reader, size, "identity")
        static, owned = _read_owned(reader, topic_size)
        neighbours.append(RememberedMember(identity=identity, static=static, owned=owned))
    return Share(
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


def encode_share(value: Share) -> bytes:
    """Write a share; partitions come out sorted, members in the order given.

    Raises
    ------
    WireError
        If a value does not fit its field.

    References: As :func:`decode_share`.
    """
    waiting = None
    if value.waiting:
        waiting = encode_waiting(value.waiting, value.topic_bytes)
    return join_share(
        generation=value.generation,
        pace_ms=value.pace_ms,
        whole=value.whole,
        after=value.after,
        neighbours=[encode_neighbour(n, value.topic_bytes) for n in value.neighbours],
        waiting=waiting,
        digest=value.digest,
        identity_bytes=value.identity_bytes,
        topic_bytes=value.topic_bytes,
    )


def join_share(
    *,
    generation: int,
    pace_ms: int,
    whole: bool,
    after: bytes,
    neighbours: Sequence[bytes],
    waiting: bytes | None,
    digest: bytes,
    identity_bytes: int,
    topic_bytes: int,
) -> bytes:
    """A share of entries that are written already; ``waiting`` counts before ``digest``."""
    writer = Writer(MEMORY, MEMORY_VERSION)
    waits = _LIST if waiting is not None else _DIGEST if digest else _NOTHING
    if identity_bytes not in IDENTITY_BYTES or topic_bytes not in TOPIC_BYTES:
        writer.fail(Reason.OUT_OF_RANGE, "head", f"hashes of {identity_bytes}, {topic_bytes} bytes")
    if len(neighbours) > COPIES:
        writer.fail(Reason.BAD_COUNT, "neighbours", f"{len(neighbours)} neighbours")
    if not 0 <= generation <= INT32_MAX:
        writer.fail(Reason.OUT_OF_RANGE, "generation", f"{generation} is no generation")
    if after and (whole or len(after) != identity_bytes):
        writer.fail(Reason.BAD_LENGTH, "after", f"{after.hex()} in a share that is whole: {whole}")
    more = len(neighbours) | whole << 2 | (pace_ms != 0) << 3 | bool(after) << 4
    writer.raw(bytes((identity_bytes - 4 << 4 | topic_bytes - 1 << 2 | waits, more)))
    writer.uvarint(generation, "generation")
    if pace_ms:
        _write_delay_ms(writer, pace_ms, "pace_ms")
    if waiting is not None:
        writer.compact_bytes(waiting, "waiting")
    elif digest:
        writer.raw(digest)
    writer.raw(after)
    for neighbour in neighbours:
        writer.raw(neighbour)
    return writer.done()


def encode_neighbour(member: RememberedMember, topic_bytes: int) -> bytes:
    """The entry of a neighbour."""
    writer = Writer(MEMORY, MEMORY_VERSION)
    writer.raw(member.identity)
    _write_owned(writer, member, topic_bytes)
    return writer.done()


def encode_waiting(members: Sequence[RememberedMember], topic_bytes: int) -> bytes:
    """The list of what waits."""
    writer = Writer(MEMORY, MEMORY_VERSION)
    writer.int8(topic_bytes - 1, "waiting")
    writer.uvarint(len(members), "waiting")
    for member in members:
        writer.int8(len(member.identity), "identity")
        writer.raw(member.identity)
        _write_delay_ms(writer, member.delay_ms, "delay_ms")
        _write_owned(writer, member, topic_bytes)
    return writer.done()


def digest_of(waiting: bytes) -> bytes:
    """The digest of a list of what waits."""
    return blake2b(waiting, digest_size=DIGEST_BYTES).digest()


# Fields

_WAITING_MIN = 3
_TOPIC_MIN = 3


def _read_waiting(reader: Reader) -> tuple[tuple[RememberedMember, ...], bytes]:
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
        members.append(
            RememberedMember(identity=identity, static=static, delay_ms=delay_ms, owned=owned)
        )
    if reader.n_left:
        reader.fail(Reason.BAD_LENGTH, "waiting", start, f"{reader.n_left} bytes too many")
    reader.end = end
    return tuple(members), digest_of(data)


def _read_owned(reader: Reader, topic_size: int) -> tuple[bool, TopicPartitions | None]:
    value = reader.uvarint("owned")
    static, n = bool(value & 1), value >> 1
    if n == 0:
        return static, None
    if n == 2:
        return static, ()
    if n > 2:
        topic = _take(reader, topic_size, "topic").hex()
        return static, ((topic, read_packed(reader, n - 2)),)
    start = reader.pos
    count = reader.uvarint("owned")
    if not 1 < count <= reader.n_left // _TOPIC_MIN:
        reader.fail(Reason.BAD_COUNT, "owned", start, f"{count} topics in {reader.n_left} bytes")
    topics: dict[str, tuple[int, ...]] = {}
    for _ in range(count):
        start = reader.pos
        topic = _take(reader, topic_size, "topic").hex()
        if topics and topic <= next(reversed(topics)):
            reader.fail(Reason.OUT_OF_RANGE, "topic", start, "topics are not in order")
        topics[topic] = read_packed(reader, reader.uvarint("partitions"))
    return static, tuple(topics.items())


def _write_owned(writer: Writer, member: RememberedMember, topic_bytes: int) -> None:
    owned = None if member.owned is None else sort_partitions(member.owned)
    sets = [(_topic(writer, topic, topic_bytes), sorted(set(p))) for topic, p in owned or ()]
    n = 0 if owned is None else 2 if not sets else 1 if len(sets) > 1 else 2 + len(sets[0][1])
    writer.uvarint(n << 1 | member.static, "owned")
    if n == 1:
        writer.uvarint(len(sets), "owned")
    for topic, partitions in sets:
        writer.raw(topic)
        if n == 1:
            writer.uvarint(len(partitions), "partitions")
        write_packed(writer, partitions)


def _topic(writer: Writer, topic: str, topic_bytes: int) -> bytes:
    try:
        found = bytes.fromhex(topic)
    except ValueError:
        found = b""
    if len(found) != topic_bytes:
        writer.fail(Reason.BAD_LENGTH, "topic", f"{topic!r} is no hash of {topic_bytes} bytes")
    return found


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


def _write_delay_ms(writer: Writer, delay_ms: int, field: str) -> None:
    if not 0 < delay_ms <= INT32_MAX:
        writer.fail(Reason.OUT_OF_RANGE, field, f"{delay_ms} ms is not 1 to {INT32_MAX}")
    writer.uvarint(delay_ms, field)
