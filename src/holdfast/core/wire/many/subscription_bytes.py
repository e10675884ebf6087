"""Subscriptions of a group before they are columns: their topics, and what of them is kept.

**Rules.**

- A *block of topics* is the first part of a subscription, which is often the same for many members.
  It is read as :func:`holdfast.core.wire.layouts.consumer_protocol.decode_subscription` reads it.
  Names that are not in the table of known topics are checked and left out.
- :func:`trim_subscription` leaves out topics and partitions that do not exist. Topics and claims of
  topics that are not wanted are skipped. Each remaining claim occurs once. Of claims of partitions
  that a topic does not have, the :data:`MOST_BEYOND` lowest are kept, because the leader has to ask
  their member to revoke them.
- A message with more topics, or more lists of claims, than ``most_topics`` cannot be trimmed. Nor
  can one that ``decode_subscription`` cannot read, except that skipped names need not be UTF-8.
- User data of more bytes than ``most_user_data`` are ignored, and so is a rack of more than
  :data:`LONGEST_RACK` bytes.

**Strategy.** A head, which is a version and a block, that was read before is recognised by
comparing bytes. If members have different heads, the blocks are read together: as one table if all
names are equal in length, else in columnar steps (:mod:`~holdfast.core.wire.many.name_table`).

Trimming builds no message first: it is one loop over topics and one over lists of claims, on
offsets. Numbers are taken in pieces, so that time is linear in the message and memory in what is
left.

References: KIP-429 (v1), KAFKA-13715 (v2), KIP-881 (v3): ``ConsumerProtocolSubscription``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from struct import Struct, error

import numpy as np

from holdfast.core.model.columns import I32, I64, distinct, row_sizes, starts
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.model.reported import Subscriptions
from holdfast.core.wire.layouts.consumer_protocol import (
    HIGHEST_VERSION,
    SUBSCRIPTION,
    Subscription,
    encode_subscription,
)
from holdfast.core.wire.many.name_table import NameTable, join, walk
from holdfast.core.wire.one.reader import STRING_MIN, TOPIC_PARTITIONS_MIN, Reader
from holdfast.errors import Reason, WireError

NO_HEAD = b"\xff\xff"
"""The head of a message that cannot be read: its version is -1."""
PREFIX = 48
"""Bytes of a message by which a head read before is looked up."""
SLOW = 2
"""Heads read one by one before the rest is read in columns."""
WORTH = 16
"""Members with a known head for which one more new head is read one by one."""

LONGEST_RACK = 255
MOST_BEYOND = 256
PIECE_BYTES = 1 << 14
UNREADABLE = b""
"""A message that no reader can read: a member without topics and without claims."""

Found = tuple[I64, I32, list[bool], list[int]]
"""Blocks of many messages: CSR starts of their names, the topic of each name, whether each block is
readable, and where it ends."""

_INT32 = Struct(">i").unpack_from
_INT16 = Struct(">h").unpack_from


def named_topics(messages: Sequence[bytes]) -> list[str]:
    """Return the topics of the subscriptions, each once; equal blocks are read once."""
    ends = TopicBlocks(NameTable(())).read(messages)
    pairs = zip(messages, ends.tolist(), strict=True)
    blocks = dict.fromkeys(data[2:end] for data, end in pairs if end)
    names: dict[bytes, None] = {}
    for block in blocks:
        end = 4
        for _ in range(*_INT32(block)):
            first = end + 2
            end = first + _INT16(block, end)[0]
            names[block[first:end]] = None
    return [name.decode() for name in names]


class TopicBlocks:
    """Blocks of topics, each read once.

    After :meth:`read`, ``version`` has the version of each message, 3 for every higher one, and
    ``row`` the row of its topics. Both are -1 where the block cannot be read.
    """

    def __init__(self, table: NameTable):
        self.table = table
        self.rows: dict[bytes, int] = {}  # sorted topics, as int32 bytes: row of the set table
        self.version = self.row = np.empty(0, np.int32)

    def read(self, messages: Sequence[bytes]) -> I64:
        """Find the end of every member's topics, and fill ``version`` and ``row``."""
        known: dict[bytes, list[tuple[bytes, int]]] = {}
        head, row = NO_HEAD, -1
        first, runs = [0], [(0, -1, -1)]  # members from which on messages have another head
        late: list[int] = []
        n_slow = 0
        for member, data in enumerate(messages):
            if data.startswith(head):
                continue
            for pair in known.get(data[:PREFIX], ()):
                if data.startswith(pair[0]):
                    head, row = pair
                    break
            else:
                if n_slow >= SLOW + (member - n_slow - len(late)) // WORTH:
                    late.append(member)
                    continue
                n_slow += 1
                end, row = self._read_one(data)
                head = data[:end] or NO_HEAD
                if end:
                    known.setdefault(data[:PREFIX], []).append((head, row))
            first.append(member)
            runs.append((len(head) if row >= 0 else 0, row, *_INT16(head)))
        sizes = np.diff(np.array([*first, len(messages)]))
        heads = np.repeat(np.array(runs, np.int64), sizes, axis=0)
        if late:
            heads[late] = self._read_late([messages[member] for member in late])
        self.row = heads[:, 1].astype(np.int32)
        self.version = np.minimum(heads[:, 2], 3).astype(np.int32)
        ends: I64 = heads[:, 0]
        return ends

    def add(self, topics: bytes) -> int:
        """Return the row of ``topics`` (sorted, unique, int32) among distinct subscriptions."""
        return self.rows.setdefault(topics, len(self.rows))

    def _read_one(self, data: bytes) -> tuple[int, int]:
        """Return the end of the block and its row, or (0, -1) if it cannot be read."""
        index, found = self.table.index, set()
        try:
            (n_topics,) = _INT32(data, 2)
            end = 6
            if not 0 <= n_topics <= (len(data) - end) // 2 or data[0] > 127:
                return 0, -1
            for _ in range(n_topics):
                first = end + 2
                size = _INT16(data, end)[0]
                end = first + size
                if size < 0 or end > len(data):
                    return 0, -1
                topic = index.get(data[first:end])
                if topic is None:
                    data[first:end].decode()
                else:
                    found.add(topic)
        except (error, IndexError, UnicodeDecodeError):
            return 0, -1
        return end, self.add(np.array(sorted(found), np.int32).tobytes())

    def _read_late(self, messages: list[bytes]) -> I64:
        """Read many different blocks together: end, row and version of each, int64[n, 3]."""
        start, topic, readable, end = self._alike(messages) or self._in_lock_step(messages)
        member = np.repeat(np.arange(len(messages), dtype=np.int64) << 32, row_sizes(start))
        ours = topic >= 0
        key = member | topic if ours.all() else (member | topic)[ours]
        if not (key[1:] > key[:-1]).all():  # names are mostly in their order
            key = distinct(key)
        bounds = (4 * np.searchsorted(key, np.arange(len(messages) + 1) << 32)).tolist()
        rows = (key & 0x7FFFFFFF).astype(np.int32).tobytes()
        row = [self.add(rows[low:high]) for low, high in pairwise(bounds)]
        unknown = np.flatnonzero(~ours)
        odd = set((np.searchsorted(start, unknown, side="right") - 1).tolist())
        odd.update(i for i, good in enumerate(readable) if not good)
        for i in odd:  # check unknown names, too
            end[i], row[i] = self._read_one(messages[i])
        version = [_INT16(data)[0] if at else -1 for data, at in zip(messages, end, strict=True)]
        return np.array((end, row, version), np.int64).T

    def _alike(self, messages: list[bytes]) -> Found | None:
        """Read blocks in which every name is as long as the very first; None if others are."""
        try:
            (length,) = _INT16(messages[0], 6)
            counts = [_INT32(data, 2)[0] for data in messages]
        except error:
            return None
        if length < 1 or min(counts) < 0:
            return None
        ends = [6 + (length + 2) * count for count in counts]
        names = [data[6:end] for data, end in zip(messages, ends, strict=True)]
        buffer = np.frombuffer(b"".join((*names, bytes(self.table.n_pad))), np.uint8)
        start = starts(np.array(counts, np.int64))
        n_names = int(start[-1])
        if len(buffer) != n_names * (length + 2) + self.table.n_pad:  # a message is too short
            return None
        if (np.ndarray((n_names,), ">i2", buffer.data, 0, (length + 2,)) != length).any():
            return None
        return start, self.table.find_alike(buffer, n_names, length), [True] * len(ends), ends

    def _in_lock_step(self, messages: list[bytes]) -> Found:
        """Read blocks of any names."""
        buffer, first, last = join(messages, np.zeros(len(messages), np.int64), self.table.n_pad)
        names = walk(buffer, first + 2, last, np.ones(len(first), np.bool_), partitions=False)
        topic = self.table.find(buffer, names.name_at, names.name_length)
        return names.start, topic, names.good.tolist(), (names.end - first).tolist()

    def subscriptions(self, row: I32) -> Subscriptions:
        """Return the members' subscriptions, from each member's row, numbered in the order met."""
        first = np.full(len(self.rows), len(row))
        first[row[::-1]] = np.arange(len(row))[::-1]  # the first member of a row is written last
        used = np.argsort(first)[: np.count_nonzero(first < len(row))]
        position = np.empty(len(first), np.int32)
        position[used] = np.arange(len(used))
        every = list(self.rows)
        rows = [every[old] for old in used.tolist()]
        start = starts(np.array([len(one) // 4 for one in rows], np.int64))
        topic = np.frombuffer(b"".join(rows), np.int32).copy()
        return Subscriptions(start, topic, position[row])


def trim_subscription(
    data: bytes, partitions: Mapping[str, int], *, most_topics: int, most_user_data: int
) -> bytes:
    """Return the same message, with only the topics and claims that exist.

    Parameters
    ----------
    data : bytes
        A ConsumerProtocolSubscription.
    partitions : mapping of str to int
        Partition count of each topic that exists.
    most_topics : int
        Topics, and lists of claims, that the message may have.
    most_user_data : int
        Bytes of user data that are kept.
    """
    try:
        return _trimmed(Reader(data, SUBSCRIPTION), partitions, most_topics, most_user_data)
    except (WireError, UnicodeDecodeError):
        return UNREADABLE


def _trimmed(
    reader: Reader, partitions: Mapping[str, int], most_topics: int, most_user_data: int
) -> bytes:
    version = reader.leading_version(HIGHEST_VERSION)
    wanted = {t.encode(): n for t, n in partitions.items()}
    topics = _topics(reader, wanted, most_topics)
    start = reader.pos + 4
    size = reader.int32("user_data")
    reader.skip(max(0, size), "user_data")
    owned: TopicPartitions = ()
    if version >= 1:
        owned = _owned(reader, wanted, most_topics)
    generation = reader.int32("generation_id") if version >= 2 else -1
    rack = reader.nullable_string("rack_id") if version >= 3 else None
    kept = 0 <= size <= most_user_data
    return encode_subscription(
        Subscription(
            topics=topics,
            user_data=reader.data[start : start + size] if kept else None,
            owned=owned,
            generation=generation,
            rack=rack if rack is not None and len(rack) <= LONGEST_RACK else None,
        ),
        version,
    )


def _count(reader: Reader, field: str, min_size: int, most: int) -> int:
    start = reader.pos
    count = reader.count(field, min_size)
    if count is None or count > most:
        reader.fail(Reason.BAD_COUNT, field, start, f"{count} of at most {most}")
    return count


def _topics(reader: Reader, wanted: Mapping[bytes, int], most: int) -> tuple[str, ...]:
    count = _count(reader, "topics", STRING_MIN, most)
    data, pos, end = reader.data, reader.pos, reader.end
    found: dict[bytes, None] = {}
    for _ in range(count):
        first = pos + 2
        if first > end:
            reader.fail(Reason.TRUNCATED, "topics", pos)
        pos = first + (data[pos] << 8 | data[pos + 1])
        if pos > end or data[first - 2] > 0x7F:
            reader.fail(Reason.TRUNCATED, "topics", first)
        name = data[first:pos]
        if name in wanted:
            found[name] = None
    reader.pos = pos
    return tuple(name.decode() for name in found)


def _owned(reader: Reader, wanted: Mapping[bytes, int], most: int) -> TopicPartitions:
    count = _count(reader, "owned_partitions", TOPIC_PARTITIONS_MIN, most)
    data, pos, end = reader.data, reader.pos, reader.end
    found: dict[bytes, bytearray] = {}
    for _ in range(count):
        first = pos + 2
        if first > end:
            reader.fail(Reason.TRUNCATED, "owned_partitions", pos)
        at = first + (data[pos] << 8 | data[pos + 1]) + 4
        if at > end or data[pos] > 0x7F:
            reader.fail(Reason.TRUNCATED, "owned_partitions", pos)
        n = data[at - 4] << 24 | data[at - 3] << 16 | data[at - 2] << 8 | data[at - 1]
        pos = at + 4 * n
        if pos > end:
            reader.fail(Reason.TRUNCATED, "owned_partitions", at)
        name = data[first : at - 4]
        if name not in wanted:
            continue
        if name not in found:
            found[name] = bytearray()
        numbers = found[name]
        for piece in range(at, pos, PIECE_BYTES):
            numbers += data[piece : min(pos, piece + PIECE_BYTES)]
            if len(numbers) > PIECE_BYTES + 8 * (wanted[name] + MOST_BEYOND):
                numbers[:] = _existing(numbers, wanted[name])
    reader.pos = pos
    return tuple(
        (name.decode(), tuple(np.frombuffer(_existing(numbers, wanted[name]), ">i4").tolist()))
        for name, numbers in found.items()
    )


def _existing(numbers: bytearray, count: int) -> bytes:
    """Return the existing partitions and the lowest of the others, each once and sorted."""
    column = np.frombuffer(bytes(numbers), ">i4")
    found = np.unique(column[column >= 0])
    return found[: np.searchsorted(found, count) + MOST_BEYOND].tobytes()
