"""A shard of the leader state: what one member carries from one leader to the next.

=========  ========================================================================================
shard      version 1, in bits (:mod:`holdfast.core.wire.one.bits`)
=========  ========================================================================================
head       1: 0 if its member is in the ring by its location, else 1. 2: what waits (0 nothing, 1
           digest, 2 list). 2: count of neighbours. 1: whole. 1: paced. 1: After follows. 4: crowd.
           5: partition bits. Topics gamma, Longer gamma, UsualCount gamma, Generation uvarint,
           PaceMs uvarint if paced, OnlyTopic if it is the only one and members are named, Digest
           24 bits or Waiting, After identity, Names of what the neighbours own, Neighbours
neighbour  Identity, static 1 bit, Owned
identity   in the shard the first one as it is; each other one as a rice code of its distance from
           the one before it, with k = bits of an identity - crowd
waiting    Names, count gamma, of each: a bit 1 if its delay is that of the one before it, else a
           bit 0 and DelayMs uvarint; static 1 bit; the size of its identity: 1 as that of the
           others, 01 of 16 bits, 001 of none, 000 and 6 bits of one more than these say; the
           identity; Owned; and if it owns something, a bit 1 for an Away of None, else a bit 0 and
           AwayMs uvarint
owned      gamma. 1: one topic; 2: left out; 3: nothing; from 4 on: two topics and more, n - 2
           topic    its name as a rice code of the names between it and the one before, with k =
                    binary digits of the number of names - those of n; nothing where there is one
                    name. count, packed set of partition bits
names      nothing if OnlyTopic is present; else count + 1 gamma, the first one as it is, each
           other one as a rice code of its distance, with k = bits of a name - digits of count
count      gamma of 1 + 2 * d, if it is the usual count and d more; of 2 * d, if it is d less
=========  ========================================================================================

**Rules.**

* An *identity* is the beginning of a hash of the instance id of a static member, or of the location
  or member id of a dynamic one. A topic's *name* is the beginning of its hash, once in a shard or
  list. Both are texts of bits, as long as :data:`CHANCE_BITS` defines.
* A shard that has a 3 for what waits is of another version, or not a shard: it is refused.
* Nothing waits for an entry of the list that owns nothing: that member joined recently. An entry
  whose owned partitions are left out has left recently.
* A shard names at most three neighbours. A delay is the time that remains, in ms, 1 to 2**31 - 1.

**Strategy.** A leader writes each member's entry once and joins entries to shards. A member sends
its shard back in its next subscription, and reads only the head of the shard (:func:`holds_times`).
:mod:`holdfast.core.machine.leader.ring` defines the carrier of each part; packed sets are in
:mod:`holdfast.core.wire.one.bits`.

References: Incremental Cooperative Rebalancing, Design II, "Leader exits"; KIP-415, whose leader
forgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, NoReturn

from holdfast.core.model.constants import INT32_MAX
from holdfast.core.model.partitions import TopicPartitions, memoized, sort_partitions
from holdfast.core.wire.one.bits import (
    Bits,
    gamma,
    number,
    packed,
    read_packed,
    rice,
    to_bytes,
    uvarint,
)
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import Reason, WireError

STATE_SHARD = "HoldfastStateShard"
STATE_SHARD_VERSION = 1

COPIES = 3
"""Neighbours in a shard: each member's entry has that many holders."""

DIGEST_BYTES = 3
"""Size of a digest: two lists of a generation share one in one of 17 million cases."""

CHANCE_BITS = 19
"""Bits of a hash, and one more for each doubling of the members, or topics.

So a new member, or a new topic, has the hash of an existing one in two of a million cases at most.
"""

HASH_BITS = 64
"""Bits of a whole hash, from which a shorter one is cut."""

SHORT_BITS = 16
"""Bits of identities that joined or left, if no other member's identity begins the same."""

LONGER = range(HASH_BITS - CHANCE_BITS - 15 + 1)
"""Bits by which all hashes of a round are longer, because two of them begin the same."""

TOPICS = range(16)
"""Logarithms of the number of topics: 0 for one topic, and for none."""

PARTITION_BITS = range(32)
"""Sizes of a highest partition; a leader takes the smallest that is enough."""

CROWDS = range(16)
"""Logarithms of the number of members in the ring."""

COUNTS = range(1, 1 << 31)
"""Usual counts of partitions."""

_TIMES = 0x62  # in the first byte: something waits, or paced
_NOTHING, _DIGEST, _LIST = range(3)
_SIZE_BITS = 6
_ONE_TOPIC, _LEFT_OUT, _OWNS_NOTHING, _TOPICS = range(1, 5)


class Sizes(NamedTuple):
    """Sizes of the fields in all shards of a round."""

    # The approximate numbers of members in the ring and of topics: logarithms to base 2, rounded
    # up. An identity is written as the distance from the one before it, which is the shorter the
    # more there are.
    crowd: int = 0
    topics: int = 1
    longer: int = 0  # bits that hashes have beyond :data:`CHANCE_BITS` and these
    partition_bits: int = PARTITION_BITS[-1]  # of the highest partition of the group
    usual_count: int = 1  # of partitions of a topic that a member owns
    # The hash of the only topic, where there is one and members are named.
    only_topic: str = ""

    @property
    def identity_bits(self) -> int:
        """Bits of the identities of members."""
        return CHANCE_BITS + self.crowd + self.longer

    @property
    def topic_bits(self) -> int:
        """Bits of the hashes of topics."""
        return CHANCE_BITS + self.topics + self.longer

    @property
    def distance_bits(self) -> int:
        """The ``k`` of distances between identities: about as long as they are."""
        return CHANCE_BITS + self.longer


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEntry:
    """One member in the leader state."""

    # The beginning of a hash of its instance id, or else of its location or its member id, in bits;
    # empty for an unknown owner.
    identity: str
    static: bool = False  # whether it has an instance id
    delay_ms: int = 0  # how long its partitions still wait; 0 for a member of that round
    # Partitions owned after that round; for a departed member, the partitions that wait. None: left
    # out, because the record would have been too large.
    owned: TopicPartitions | None = ()
    # How long it has been absent. None: for the longest delay of the policy, less ``delay_ms``.
    away_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShard:
    """One member's part of the leader state of a round."""

    generation: int  # generation in which it was written
    # Time from writing the shard to the next batch of Design III; 0 for none.
    pace_ms: int = 0
    whole: bool = False  # whether ``neighbours`` are all other members of that round
    # In a shard that is not whole, ``neighbours`` are all members behind this identity up to the
    # member itself, in the order of identities. Empty if the shard is whole, or names no member.
    after: str = ""
    # At most three. Neighbours that own nothing and have no location are left out.
    neighbours: tuple[MemberEntry, ...] = ()
    # Departed members whose partitions wait, at a member that carries the list.
    waiting: tuple[MemberEntry, ...] = ()
    digest: bytes = b""  # of the list of what waits; empty if nothing waits
    located: bool = False  # whether its member is in the ring by its location
    sizes: Sizes = field(default_factory=Sizes)


@memoized(4096, largest=1_024, size=lambda data: 0 if data is None else len(data))
def read_shard(data: bytes | None) -> StateShard | None:
    """Return the shard in the bytes, or None if they hold no readable shard."""
    try:
        return None if data is None else decode_shard(data)
    except WireError:
        return None


def holds_times(data: bytes) -> bool:
    """Return whether a shard may hold times, so that its age counts; a settled group's has none."""
    return len(data) > 0 and data[0] & _TIMES != 0


def decode_shard(data: bytes) -> StateShard:
    """Read a shard."""
    reader = Reader(data, STATE_SHARD)
    bits = Bits(reader)
    located = not bits.flag("head")
    waits, count = bits.number(2, "head"), bits.number(2, "head")
    if waits > _LIST:
        detail = f"not of version {STATE_SHARD_VERSION}, the only one that is known"
        reader.fail(Reason.BAD_VERSION, "head", 0, detail)
    reader.version = STATE_SHARD_VERSION
    whole, paced, has_after = bits.flag("head"), bits.flag("head"), bits.flag("head")
    sizes = _read_sizes(bits)
    if whole and has_after:
        bits.fail(Reason.OUT_OF_RANGE, "head", 0, "whole, and begins behind an identity")
    start = bits.at
    generation = bits.uvarint("generation")
    if generation > INT32_MAX:
        bits.fail(Reason.OUT_OF_RANGE, "generation", start, f"{generation} is not an int32")
    pace_ms = _read_ms(bits, "pace_ms") if paced else 0
    if not sizes.topics and (count or waits == _LIST):
        sizes = sizes._replace(only_topic=bits.take(sizes.topic_bits, "topic"))
    digest = b""
    waiting: tuple[MemberEntry, ...] = ()
    if waits == _DIGEST:
        digest = bits.number(8 * DIGEST_BYTES, "digest").to_bytes(DIGEST_BYTES, "big")
    elif waits == _LIST:
        start = bits.at
        waiting = _read_waiting(bits, sizes)
        digest = digest_of(bits.text[start : bits.at])
    after = _read_identity(bits, sizes, "", "after") if has_after else ""
    names = _read_names(bits, sizes) if count else ()
    last, neighbours = after, []
    for _ in range(count):
        last = _read_identity(bits, sizes, last, "identity")
        static = bits.flag("static")
        owned = _read_owned(bits, sizes, names)
        neighbours.append(MemberEntry(identity=last, static=static, owned=owned))
    return StateShard(
        generation=generation,
        pace_ms=pace_ms,
        whole=whole,
        after=after,
        neighbours=tuple(neighbours),
        waiting=waiting,
        digest=digest,
        located=located,
        sizes=sizes,
    )


def encode_shard(value: StateShard) -> bytes:
    """Write a shard; partitions come out sorted, members in the order given.

    References: As :func:`decode_shard`.
    """
    sizes = value.sizes
    return join_shard(
        sizes,
        generation=value.generation,
        pace_ms=value.pace_ms,
        whole=value.whole,
        after=value.after,
        neighbours=[(n.identity, encode_neighbour(n, sizes)) for n in value.neighbours],
        waiting=encode_waiting(value.waiting, sizes) if value.waiting else None,
        digest=value.digest,
        located=value.located,
    )


def join_shard(
    sizes: Sizes,
    *,
    generation: int,
    pace_ms: int,
    whole: bool,
    after: str,
    neighbours: Sequence[tuple[str, MemberBits]],
    waiting: str | None,
    digest: bytes,
    located: bool = False,
) -> bytes:
    """Return a shard of encoded entries; ``waiting`` counts before ``digest``."""
    waits = _LIST if waiting is not None else _DIGEST if digest else _NOTHING
    if len(neighbours) > COPIES:
        _refuse(Reason.BAD_COUNT, "neighbours", f"{len(neighbours)} neighbours")
    if not 0 <= generation <= INT32_MAX:
        _refuse(Reason.OUT_OF_RANGE, "generation", f"{generation} is not a generation")
    if after and whole:
        _refuse(Reason.BAD_LENGTH, "after", f"{after} in a shard that is whole")
    if waits == _DIGEST and len(digest) != DIGEST_BYTES:
        _refuse(Reason.BAD_LENGTH, "digest", f"{digest.hex()} is not {DIGEST_BYTES} bytes")
    text = [
        f"{not located:b}{waits:02b}{len(neighbours):02b}{whole:b}{pace_ms != 0:b}{after != '':b}",
        _sizes_text(sizes),
        uvarint(generation),
        _ms_text(pace_ms, "pace_ms") if pace_ms else "",
        _only_topic_text(sizes) if neighbours or waits == _LIST else "",
        waiting or "".join(f"{byte:08b}" for byte in digest),
        _identity_text(after, "", sizes) if after else "",
    ]
    names = _names_of((entry for _, entry in neighbours), sizes)
    if neighbours:
        text.append(_names_text(names, sizes))
    last = after
    for identity, entry in neighbours:
        text += [_identity_text(identity, last, sizes), _entry_text(entry, names)]
        last = identity
    return to_bytes("".join(text))


class MemberBits(NamedTuple):
    """A member in bits, without the names of topics, which depend on the rest of the shard."""

    head: str
    topics: tuple[tuple[str, str], ...]  # name, and the bits behind it


def encode_neighbour(member: MemberEntry, sizes: Sizes) -> MemberBits:
    """Return the bits of a neighbour behind its identity."""
    kind, topics = _owned_parts(member, sizes)
    return MemberBits(f"{member.static:b}{kind}", topics)


def encode_waiting(members: Sequence[MemberEntry], sizes: Sizes) -> str:
    """Return the bits of the list of what waits."""
    parts = [_owned_parts(member, sizes) for member in members]
    names = _names_of((MemberBits(*part) for part in parts), sizes)
    text, last_ms = [_names_text(names, sizes), gamma(len(members))], 0
    for member, part in zip(members, parts, strict=True):
        text += [
            "1" if member.delay_ms == last_ms != 0 else f"0{_ms_text(member.delay_ms, 'delay_ms')}",
            f"{member.static:b}",
            _size_text(member.identity, sizes),
            member.identity,
            _entry_text(MemberBits(*part), names),
            _away_text(member) if member.owned else "",
        ]
        last_ms = member.delay_ms
    return "".join(text)


def digest_of(waiting: str) -> bytes:
    """Return the digest of a list of what waits."""
    return blake2b(waiting.encode(), digest_size=DIGEST_BYTES).digest()


# Fields

_WAITING_MIN = 8  # bits: as the one before, not static, no identity, and what it owned
_TOPIC_MIN = 2  # bits: a count, and a partition of no bits


def _read_sizes(bits: Bits) -> Sizes:
    crowd, partition_bits = bits.number(4, "head"), bits.number(5, "head")
    topics = _read_in(TOPICS, bits, "topics")
    longer = _read_in(LONGER, bits, "longer")
    usual = _read_in(COUNTS, bits, "usual count")
    return Sizes(crowd, topics, longer, partition_bits, usual)


def _read_in(values: range, bits: Bits, what: str) -> int:
    start = bits.at
    value = bits.gamma("head") + values.start - 1
    if value not in values:
        bits.fail(Reason.OUT_OF_RANGE, "head", start, f"{what} of {value}")
    return value


def _sizes_text(sizes: Sizes) -> str:
    limits = (CROWDS, TOPICS, LONGER, PARTITION_BITS, COUNTS)
    for value, values in zip(sizes, limits, strict=False):
        if value not in values:
            _refuse(Reason.OUT_OF_RANGE, "head", f"{sizes}")
    return (
        f"{sizes.crowd:04b}{sizes.partition_bits:05b}{gamma(sizes.topics + 1)}"
        f"{gamma(sizes.longer + 1)}{gamma(sizes.usual_count)}"
    )


def _only_topic_text(sizes: Sizes) -> str:
    if (len(sizes.only_topic) == sizes.topic_bits) == (sizes.topics > 0):
        _refuse(Reason.BAD_LENGTH, "topic", f"{sizes}")
    return sizes.only_topic


def _read_identity(bits: Bits, sizes: Sizes, last: str, field: str) -> str:
    start, width = bits.at, sizes.identity_bits
    if not last:
        return bits.take(width, field)
    distance = bits.rice(sizes.distance_bits, field)
    if distance >> width:
        bits.fail(Reason.OUT_OF_RANGE, field, start, f"{distance} around the ring")
    return number((int(last, 2) + distance) % (1 << width), width)


def _identity_text(identity: str, last: str, sizes: Sizes) -> str:
    width = sizes.identity_bits
    if len(identity) != width or identity.strip("01"):
        _refuse(Reason.BAD_LENGTH, "identity", f"{identity!r} is not {width} bits")
    if not last:
        return identity
    return rice((int(identity, 2) - int(last, 2)) % (1 << width), sizes.distance_bits)


def _read_size(bits: Bits, sizes: Sizes) -> int:
    """Read the size of an identity of the list, in bits."""
    for size in (sizes.identity_bits, SHORT_BITS, 0):
        if bits.flag("identity"):
            return size
    return 1 + bits.number(_SIZE_BITS, "identity")


def _size_text(identity: str, sizes: Sizes) -> str:
    length = len(identity)
    if length > HASH_BITS or identity.strip("01"):
        _refuse(Reason.BAD_LENGTH, "identity", f"{identity!r}")
    for text, size in (("1", sizes.identity_bits), ("01", SHORT_BITS), ("001", 0)):
        if length == size:
            return text
    return f"000{number(length - 1, _SIZE_BITS)}"


def _read_waiting(bits: Bits, sizes: Sizes) -> tuple[MemberEntry, ...]:
    names, start = _read_names(bits, sizes), bits.at
    count = bits.gamma("waiting")
    if count > bits.n_left // _WAITING_MIN:
        bits.fail(Reason.BAD_COUNT, "waiting", start, f"{count} in {bits.n_left} bits")
    members: list[MemberEntry] = []
    delay_ms = 0
    for _ in range(count):
        start = bits.at
        if not bits.flag("delay_ms"):
            delay_ms = _read_ms(bits, "delay_ms")
        elif not delay_ms:
            bits.fail(Reason.OUT_OF_RANGE, "delay_ms", start, "as none before it")
        static = bits.flag("static")
        identity = bits.take(_read_size(bits, sizes), "identity")
        owned, away_ms = _read_owned(bits, sizes, names), None
        if owned and not bits.flag("away_ms"):
            away_ms = _read_ms(bits, "away_ms", least=0)
        members.append(
            MemberEntry(
                identity=identity, static=static, delay_ms=delay_ms, owned=owned, away_ms=away_ms
            )
        )
    return tuple(members)


def _read_names(bits: Bits, sizes: Sizes) -> tuple[str, ...]:
    """Read names of topics, in order."""
    if sizes.only_topic:
        return (sizes.only_topic,)
    start, width = bits.at, sizes.topic_bits
    count = bits.gamma("names") - 1
    k = _bits_a_name(count, width)
    if count > bits.n_left // (k + 1):
        bits.fail(Reason.BAD_COUNT, "names", start, f"{count} names in {bits.n_left} bits")
    found: list[str] = []
    last = -1
    for _ in range(count):
        start = bits.at
        last += 1 + (bits.rice(k, "names") if found else bits.number(width, "names"))
        if last >> width:
            bits.fail(Reason.OUT_OF_RANGE, "names", start, f"{last} has more than {width} bits")
        found.append(number(last, width))
    return tuple(found)


def _names_of(entries: Iterable[MemberBits], sizes: Sizes) -> Mapping[str, int]:
    """Return the names of the topics of entries, in order, with their positions."""
    if sizes.only_topic:
        return {sizes.only_topic: 0}
    found = {name for entry in entries for name, _ in entry.topics}
    return {name: position for position, name in enumerate(sorted(found))}


def _names_text(names: Mapping[str, int], sizes: Sizes) -> str:
    if sizes.only_topic:
        return ""
    k, last = _bits_a_name(len(names), sizes.topic_bits), -1
    text = [gamma(len(names) + 1)]
    for name in names:
        position = int(name, 2)
        text.append(name if last < 0 else rice(position - last - 1, k))
        last = position
    return "".join(text)


def _bits_a_name(count: int, width: int) -> int:
    return max(0, width - count.bit_length())


def _bits_a_position(topics: int, names: int) -> int:
    return max(0, names.bit_length() - topics.bit_length())


def _read_owned(bits: Bits, sizes: Sizes, names: Sequence[str]) -> TopicPartitions | None:
    start = bits.at
    kind = bits.gamma("owned")
    if kind == _LEFT_OUT:
        return None
    if kind == _OWNS_NOTHING:
        return ()
    n_topics = 1 if kind == _ONE_TOPIC else kind - 2
    if n_topics > min(len(names), bits.n_left // _TOPIC_MIN):
        bits.fail(Reason.BAD_COUNT, "owned", start, f"{n_topics} topics of {len(names)}")
    k, position = _bits_a_position(n_topics, len(names)), -1
    topics: dict[str, tuple[int, ...]] = {}
    for _ in range(n_topics):
        start = bits.at
        position += 1 + (bits.rice(k, "topic") if len(names) > 1 else 0)
        if position >= len(names):
            bits.fail(Reason.OUT_OF_RANGE, "topic", start, f"{position} of {len(names)} names")
        count = _read_count(bits, sizes.usual_count)
        topics[names[position]] = read_packed(bits, count, sizes.partition_bits, "partitions")
    return tuple(topics.items())


def _owned_parts(member: MemberEntry, sizes: Sizes) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return how much a member owns, and each topic in order with the bits of its partitions."""
    if member.owned is None:
        return gamma(_LEFT_OUT), ()
    topics = [(topic, sorted(set(p))) for topic, p in sort_partitions(member.owned)]
    if not topics:
        return gamma(_OWNS_NOTHING), ()
    parts = []
    for topic, numbers in topics:
        is_name = len(topic) == sizes.topic_bits and not topic.strip("01")
        if not is_name or topic != (sizes.only_topic or topic):
            _refuse(Reason.BAD_LENGTH, "topic", f"{topic!r} is not {sizes.topic_bits} bits")
        if not numbers or not 0 <= numbers[0] <= numbers[-1] < 1 << sizes.partition_bits:
            _refuse(Reason.OUT_OF_RANGE, "partitions", f"{numbers[:1]} to {numbers[-1:]}")
        count = _count_text(len(numbers), sizes.usual_count)
        parts.append((topic, f"{count}{packed(numbers, sizes.partition_bits)}"))
    return gamma(_ONE_TOPIC if len(topics) == 1 else len(topics) + 2), tuple(parts)


def _entry_text(entry: MemberBits, names: Mapping[str, int]) -> str:
    text, last = [entry.head], -1
    k = _bits_a_position(len(entry.topics), len(names))
    for name, partitions in entry.topics:
        position = names[name]
        text += [rice(position - last - 1, k) if len(names) > 1 else "", partitions]
        last = position
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


def _away_text(member: MemberEntry) -> str:
    if member.away_ms is None:
        return "1"
    return f"0{_ms_text(member.away_ms, 'away_ms', least=0)}"


def _read_ms(bits: Bits, field: str, *, least: int = 1) -> int:
    start = bits.at
    time_ms = bits.uvarint(field)
    if not least <= time_ms <= INT32_MAX:
        bits.fail(Reason.OUT_OF_RANGE, field, start, f"{time_ms} ms is not {least} to {INT32_MAX}")
    return time_ms


def _ms_text(time_ms: int, field: str, *, least: int = 1) -> str:
    if not least <= time_ms <= INT32_MAX:
        _refuse(Reason.OUT_OF_RANGE, field, f"{time_ms} ms is not {least} to {INT32_MAX}")
    return uvarint(time_ms)


def _refuse(reason: Reason, field: str, detail: str) -> NoReturn:
    Writer(STATE_SHARD, STATE_SHARD_VERSION).fail(reason, field, detail)
