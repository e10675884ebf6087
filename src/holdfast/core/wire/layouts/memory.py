"""A share of the leader's memory: what one member carries from one leader to the next.

=========  ========================================================================================
share      version 1, in bits (:mod:`holdfast.core.wire.one.bits`)
=========  ========================================================================================
head       1: 0 if its member stands in the ring by its place, else 1. 2: what waits (0 nothing, 1
           digest, 2 list). 2: count of neighbours. 1: whole. 1: paced. 1: After is there. 3:
           identity bytes - 3. 4: crowd. 5: topic bits. 5: partition bits. UsualCount gamma
           Generation uvarint, PaceMs uvarint if paced, Digest 32 bits or Waiting, After identity,
           Neighbours
neighbour  Identity, static 1 bit, Owned
identity   in the share the first one as it is; each other one as a rice code of its distance from
           the one before it, with k = bits of an identity - crowd
waiting    count gamma, of each: a bit 1 if its delay is that of the one before it, else a bit 0 and
           DelayMs uvarint; static 1 bit; a bit 1 if its identity is as long as the others, else a
           bit 0 and its bytes in 4 bits; the identity; Owned
owned      gamma. 1: one topic; 2: left out; 3: nothing; from 4 on: two topics and more, n - 2
           topic    hash of topic bits, count, packed set of partition bits
count      gamma of 1 + 2 * d, if it is the usual count and d more; of 2 * d, if it is d less
=========  ========================================================================================

**Rules.**

* An *identity* is the beginning of a hash of the instance id of a static member, or of the place or
  member id of a dynamic one. A topic stands as the beginning of a hash of its name, a text of bits;
  in a group with one topic, of none.
* A share that has a 3 for what waits is of another version, or no share: it is refused.
* An entry of what waits that owns nothing is not waited for: that member came lately. One of which
  it is left out what it owns has left lately.
* A share names at most three neighbours. A delay is the time that remains, in ms, 1 to 2**31 - 1.
* The digest is a hash of the bits of the list of what waits.

**Strategy.** A leader writes each member's entry once and joins entries to shares. A member sends
its share back in its next subscription, and looks at nothing but the head of the share
(:func:`holds_times`). :mod:`holdfast.core.machine.leader.ring` says who carries what; packed sets
stand in :mod:`holdfast.core.wire.layouts.packed_sets`.

References: Incremental Cooperative Rebalancing, Design II, "Leader exits"; KIP-415, whose leader
forgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, NoReturn

from holdfast.core.model.limits import INT32_MAX
from holdfast.core.model.partitions import TopicPartitions, sort_partitions
from holdfast.core.model.remembered import remembered
from holdfast.core.wire.layouts.packed_sets import packed, read_packed
from holdfast.core.wire.one.bits import Bits, gamma, number, rice, to_bytes, uvarint
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.reasons import Reason
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import WireError

MEMORY = "HoldfastMemory"
MEMORY_VERSION = 1

COPIES = 3
"""Neighbours in a share: each member's facts have so many holders."""

DIGEST_BYTES = 4
"""A forged list with the digest of the true one is outvoted by those that carry the true one."""

IDENTITY_BYTES = range(3, 9)
"""Sizes of an identity."""

TOPIC_BITS = range(32)
"""Sizes of a topic hash; a leader takes the smallest without two equal ones."""

PARTITION_BITS = range(32)
"""Sizes of a highest partition; a leader takes the smallest that is enough."""

CROWDS = range(16)
"""Logarithms of how many members stand in the ring."""

COUNTS = range(1, 1 << 31)
"""Usual counts."""

_TIMES = 0x62  # in the first byte: something waits, or paced
_NOTHING, _DIGEST, _LIST = range(3)
_ONE_TOPIC, _LEFT_OUT, _OWNS_NOTHING, _TOPICS = range(1, 5)


class Sizes(NamedTuple):
    """Sizes of the fields in all shares of a round; see :class:`Share`."""

    identity_bytes: int = 4
    topic_bits: int = 8
    partition_bits: int = PARTITION_BITS[-1]
    crowd: int = 0
    usual_count: int = 1

    @property
    def distance_bits(self) -> int:
        """The ``k`` of distances between identities: about as long as they are."""
        return 8 * self.identity_bytes - self.crowd


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedMember:
    """One member in the leader's memory."""

    # The beginning of a hash of its instance id, or else of its place or its member id.
    identity: bytes
    static: bool = False  # whether it has an instance id
    delay_ms: int = 0  # how long its partitions still wait; 0 for a member of that round
    # Partitions owned after that round; for a departed member, the partitions that wait. None: left
    # out, because the record would have been too large.
    owned: TopicPartitions | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One member's part of the memory of a round."""

    generation: int  # generation in which it was written
    # How long it was, when the share was written, until the next batch of Design III; 0 for no such
    # time.
    pace_ms: int = 0
    whole: bool = False  # whether ``neighbours`` are all other members of that round
    # In a share that is not whole, ``neighbours`` are all members behind this identity up to the
    # member itself, in the order of identities. Empty if the share is whole, or speaks about no
    # member.
    after: bytes = b""
    # At most three. Neighbours that own nothing and have no place are left out.
    neighbours: tuple[RememberedMember, ...] = ()
    # Departed members whose partitions wait, at a member that carries the list.
    waiting: tuple[RememberedMember, ...] = ()
    digest: bytes = b""  # of the list of what waits; empty if nothing waits
    placed: bool = False  # whether its member stands in the ring by its place
    # Sizes of the hashes.
    identity_bytes: int = 4
    topic_bits: int = 8
    partition_bits: int = PARTITION_BITS[-1]  # of the highest partition of the group
    # About how many members stand in the ring: the logarithm to base 2, rounded up. An identity is
    # written as the distance from the one before it, which is the shorter the more there are.
    crowd: int = 0
    usual_count: int = 1  # of partitions of a topic that a member owns


@remembered(4096, largest=1_024, size=lambda data: 0 if data is None else len(data))
def read_share(data: bytes | None) -> Share | None:
    """The share in the bytes, or None where the bytes hold no share that can be read."""
    try:
        return None if data is None else decode_share(data)
    except WireError:
        return None


def holds_times(data: bytes) -> bool:
    """Whether a share may hold times, so that its age counts; a settled group's has none."""
    return len(data) > 0 and data[0] & _TIMES != 0


def decode_share(data: bytes) -> Share:
    """Read a share."""
    reader = Reader(data, MEMORY)
    bits = Bits(reader)
    placed = not bits.flag("head")
    waits, count = bits.number(2, "head"), bits.number(2, "head")
    if waits > _LIST:
        detail = f"not of version {MEMORY_VERSION}, the only one that is known"
        reader.fail(Reason.BAD_VERSION, "head", 0, detail)
    reader.version = MEMORY_VERSION
    whole, paced, has_after = bits.flag("head"), bits.flag("head"), bits.flag("head")
    sizes = _read_sizes(bits)
    if whole and has_after:
        bits.fail(Reason.OUT_OF_RANGE, "head", 0, "whole, and begins behind an identity")
    start = bits.at
    generation = bits.uvarint("generation")
    if generation > INT32_MAX:
        bits.fail(Reason.OUT_OF_RANGE, "generation", start, f"{generation} is no int32")
    pace_ms = _read_ms(bits, "pace_ms") if paced else 0
    digest = b""
    waiting: tuple[RememberedMember, ...] = ()
    if waits == _DIGEST:
        digest = bits.number(8 * DIGEST_BYTES, "digest").to_bytes(DIGEST_BYTES, "big")
    elif waits == _LIST:
        start = bits.at
        waiting = _read_waiting(bits, sizes)
        digest = digest_of(bits.text[start : bits.at])
    after = _read_identity(bits, sizes, b"", "after") if has_after else b""
    last, neighbours = after, []
    for _ in range(count):
        last = _read_identity(bits, sizes, last, "identity")
        static = bits.flag("static")
        owned = _read_owned(bits, sizes)
        neighbours.append(RememberedMember(identity=last, static=static, owned=owned))
    return Share(
        generation=generation,
        pace_ms=pace_ms,
        whole=whole,
        after=after,
        neighbours=tuple(neighbours),
        waiting=waiting,
        digest=digest,
        placed=placed,
        **sizes._asdict(),
    )


def encode_share(value: Share) -> bytes:
    """Write a share; partitions come out sorted, members in the order given.

    References: As :func:`decode_share`.
    """
    sizes = Sizes(*(getattr(value, name) for name in Sizes._fields))
    return join_share(
        sizes,
        generation=value.generation,
        pace_ms=value.pace_ms,
        whole=value.whole,
        after=value.after,
        neighbours=[(n.identity, encode_neighbour(n, sizes)) for n in value.neighbours],
        waiting=encode_waiting(value.waiting, sizes) if value.waiting else None,
        digest=value.digest,
        placed=value.placed,
    )


def join_share(
    sizes: Sizes,
    *,
    generation: int,
    pace_ms: int,
    whole: bool,
    after: bytes,
    neighbours: Sequence[tuple[bytes, str]],
    waiting: str | None,
    digest: bytes,
    placed: bool = False,
) -> bytes:
    """A share of entries that are written already; ``waiting`` counts before ``digest``."""
    waits = _LIST if waiting is not None else _DIGEST if digest else _NOTHING
    if len(neighbours) > COPIES:
        _refuse(Reason.BAD_COUNT, "neighbours", f"{len(neighbours)} neighbours")
    if not 0 <= generation <= INT32_MAX:
        _refuse(Reason.OUT_OF_RANGE, "generation", f"{generation} is no generation")
    if after and whole:
        _refuse(Reason.BAD_LENGTH, "after", f"{after.hex()} in a share that is whole")
    if waits == _DIGEST and len(digest) != DIGEST_BYTES:
        _refuse(Reason.BAD_LENGTH, "digest", f"{digest.hex()} is not {DIGEST_BYTES} bytes")
    text = [
        f"{not placed:b}{waits:02b}{len(neighbours):02b}{whole:b}{pace_ms != 0:b}{after != b'':b}",
        _sizes_text(sizes),
        uvarint(generation),
        _ms_text(pace_ms, "pace_ms") if pace_ms else "",
        waiting or "".join(f"{byte:08b}" for byte in digest),
        _identity_text(after, b"", sizes) if after else "",
    ]
    last = after
    for identity, entry in neighbours:
        text += [_identity_text(identity, last, sizes), entry]
        last = identity
    return to_bytes("".join(text))


def encode_neighbour(member: RememberedMember, sizes: Sizes) -> str:
    """The bits of a neighbour behind its identity."""
    return f"{member.static:b}{_owned_text(member, sizes)}"


def encode_waiting(members: Sequence[RememberedMember], sizes: Sizes) -> str:
    """The bits of the list of what waits."""
    text, last_ms = [gamma(len(members))], 0
    for member in members:
        length = len(member.identity)
        if length > IDENTITY_BYTES[-1]:
            _refuse(Reason.BAD_LENGTH, "identity", f"{member.identity.hex()}")
        text += [
            "1" if member.delay_ms == last_ms != 0 else f"0{_ms_text(member.delay_ms, 'delay_ms')}",
            f"{member.static:b}",
            "1" if length == sizes.identity_bytes else f"0{length:04b}",
            number(int.from_bytes(member.identity, "big"), 8 * length),
            _owned_text(member, sizes),
        ]
        last_ms = member.delay_ms
    return "".join(text)


def digest_of(waiting: str) -> bytes:
    """The digest of a list of what waits."""
    return blake2b(waiting.encode(), digest_size=DIGEST_BYTES).digest()


# Fields

_WAITING_MIN = 10  # bits: as the one before, not static, no identity, and what it owned
_TOPIC_MIN = 2  # bits: a count, and a partition of no bits


def _read_sizes(bits: Bits) -> Sizes:
    start = bits.at
    size, crowd = IDENTITY_BYTES[0] + bits.number(3, "head"), bits.number(4, "head")
    if size not in IDENTITY_BYTES:
        bits.fail(Reason.OUT_OF_RANGE, "head", start, f"identities of {size} bytes")
    topic_bits, partition_bits = bits.number(5, "head"), bits.number(5, "head")
    usual = bits.gamma("head")
    if usual not in COUNTS:
        bits.fail(Reason.OUT_OF_RANGE, "head", start, f"a usual count of {usual}")
    return Sizes(size, topic_bits, partition_bits, crowd, usual)


def _sizes_text(sizes: Sizes) -> str:
    limits = (IDENTITY_BYTES, TOPIC_BITS, PARTITION_BITS, CROWDS, COUNTS)
    for value, values in zip(sizes, limits, strict=True):
        if value not in values:
            _refuse(Reason.OUT_OF_RANGE, "head", f"{sizes}")
    size, topic_bits, partition_bits, crowd, usual = sizes
    return (
        f"{size - IDENTITY_BYTES[0]:03b}{crowd:04b}{topic_bits:05b}{partition_bits:05b}"
        f"{gamma(usual)}"
    )


def _read_identity(bits: Bits, sizes: Sizes, last: bytes, field: str) -> bytes:
    start, width = bits.at, 8 * sizes.identity_bytes
    if not last:
        return bits.number(width, field).to_bytes(sizes.identity_bytes, "big")
    distance = bits.rice(sizes.distance_bits, field)
    if distance >> width:
        bits.fail(Reason.OUT_OF_RANGE, field, start, f"{distance} around the ring")
    place = (int.from_bytes(last, "big") + distance) % (1 << width)
    return place.to_bytes(sizes.identity_bytes, "big")


def _identity_text(identity: bytes, last: bytes, sizes: Sizes) -> str:
    if len(identity) != sizes.identity_bytes:
        detail = f"{identity.hex()} is not {sizes.identity_bytes} bytes"
        _refuse(Reason.BAD_LENGTH, "identity", detail)
    width, place = 8 * len(identity), int.from_bytes(identity, "big")
    if not last:
        return number(place, width)
    return rice((place - int.from_bytes(last, "big")) % (1 << width), sizes.distance_bits)


def _read_waiting(bits: Bits, sizes: Sizes) -> tuple[RememberedMember, ...]:
    start = bits.at
    count = bits.gamma("waiting")
    if count > bits.n_left // _WAITING_MIN:
        bits.fail(Reason.BAD_COUNT, "waiting", start, f"{count} in {bits.n_left} bits")
    members: list[RememberedMember] = []
    delay_ms = 0
    for _ in range(count):
        start = bits.at
        if not bits.flag("delay_ms"):
            delay_ms = _read_ms(bits, "delay_ms")
        elif not delay_ms:
            bits.fail(Reason.OUT_OF_RANGE, "delay_ms", start, "as none before it")
        static, start = bits.flag("static"), bits.at
        size = sizes.identity_bytes if bits.flag("identity") else bits.number(4, "identity")
        if size > IDENTITY_BYTES[-1]:
            bits.fail(Reason.OUT_OF_RANGE, "identity", start, f"{size} bytes")
        identity = bits.number(8 * size, "identity").to_bytes(size, "big")
        owned = _read_owned(bits, sizes)
        members.append(
            RememberedMember(identity=identity, static=static, delay_ms=delay_ms, owned=owned)
        )
    return tuple(members)


def _read_owned(bits: Bits, sizes: Sizes) -> TopicPartitions | None:
    start = bits.at
    kind = bits.gamma("owned")
    if kind == _LEFT_OUT:
        return None
    if kind == _OWNS_NOTHING:
        return ()
    n_topics = 1 if kind == _ONE_TOPIC else kind - 2
    if n_topics > bits.n_left // _TOPIC_MIN:
        bits.fail(Reason.BAD_COUNT, "owned", start, f"{n_topics} topics in {bits.n_left} bits")
    topics: dict[str, tuple[int, ...]] = {}
    for _ in range(n_topics):
        start = bits.at
        topic = bits.take(sizes.topic_bits, "topic")
        if topics and topic <= next(reversed(topics)):
            bits.fail(Reason.OUT_OF_RANGE, "topic", start, "topics are not in order")
        count = _read_count(bits, sizes.usual_count)
        topics[topic] = read_packed(bits, count, sizes.partition_bits, "partitions")
    return tuple(topics.items())


def _owned_text(member: RememberedMember, sizes: Sizes) -> str:
    if member.owned is None:
        return gamma(_LEFT_OUT)
    topics = [(topic, sorted(set(p))) for topic, p in sort_partitions(member.owned)]
    if not topics:
        return gamma(_OWNS_NOTHING)
    text = [gamma(_ONE_TOPIC if len(topics) == 1 else len(topics) + 2)]
    for topic, numbers in topics:
        if len(topic) != sizes.topic_bits or topic.strip("01"):
            _refuse(Reason.BAD_LENGTH, "topic", f"{topic!r} is not {sizes.topic_bits} bits")
        if not numbers or not 0 <= numbers[0] <= numbers[-1] < 1 << sizes.partition_bits:
            _refuse(Reason.OUT_OF_RANGE, "partitions", f"{numbers[:1]} to {numbers[-1:]}")
        count = _count_text(len(numbers), sizes.usual_count)
        text += [topic, count, packed(numbers, sizes.partition_bits)]
    return "".join(text)


def _read_count(bits: Bits, usual: int) -> int:
    start = bits.at
    code = bits.gamma("partitions")
    count = usual + (code >> 1 if code & 1 else -(code >> 1))
    if count < 1:
        bits.fail(Reason.BAD_COUNT, "partitions", start, f"{count} partitions")
    return count


def _count_text(count: int, usual: int) -> str:
    more = count - usual
    return gamma(1 + 2 * more if more >= 0 else -2 * more)


def _read_ms(bits: Bits, field: str) -> int:
    start = bits.at
    time_ms = bits.uvarint(field)
    if not 0 < time_ms <= INT32_MAX:
        bits.fail(Reason.OUT_OF_RANGE, field, start, f"{time_ms} ms is not 1 to {INT32_MAX}")
    return time_ms


def _ms_text(time_ms: int, field: str) -> str:
    if not 0 < time_ms <= INT32_MAX:
        _refuse(Reason.OUT_OF_RANGE, field, f"{time_ms} ms is not 1 to {INT32_MAX}")
    return uvarint(time_ms)


def _refuse(reason: Reason, field: str, detail: str) -> NoReturn:
    Writer(MEMORY, MEMORY_VERSION).fail(reason, field, detail)
