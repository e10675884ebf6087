"""Blocks of topics: the first part of a subscription, which is often the same for many members.

**Rules.** A block is read as
:func:`holdfast.core.wire.layouts.consumer_protocol.decode_subscription` reads it. Names that are
not in the table of known topics are checked and left out.

**Strategy.** A block that was read before is recognised by comparing bytes. If members have
different blocks, the blocks are read together: as one table if all names are alike in length, else
in lock step (:mod:`~holdfast.core.wire.many.name_arrays`).

References: KIP-429: ``ConsumerProtocolSubscription``, ``Topics``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error

import numpy as np

from holdfast.core.model.columns import I32, I64, distinct, starts
from holdfast.core.model.reported import Subscriptions
from holdfast.core.wire.many.name_arrays import join, walk
from holdfast.core.wire.many.name_table import NameTable

NO_BLOCK = b"\xff\xff\xff\xff"
"""A block that no readable message has: its number of topics is -1."""
PREFIX = 48
"""Bytes of a message by which a block met before is looked up."""
SLOW = 2
"""Blocks read one by one before the rest is read in lock step."""
WORTH = 16
"""For every so many members with a known block, one more new block is read one by one."""

Found = tuple[I64, I32, list[bool], list[int]]
"""Blocks of many messages: CSR starts of their names, the topic of each name, whether each block is
readable, and where it ends."""

_INT32 = Struct(">i").unpack_from
_INT16 = Struct(">h").unpack_from


def named_topics(messages: Sequence[bytes]) -> list[str]:
    """Topics that stand in the subscriptions, each once; equal blocks are read once."""
    ends = TopicBlocks(NameTable(())).read(messages)
    blocks = dict.fromkeys(data[2:end] for data, end in zip(messages, ends, strict=True) if end)
    names: dict[bytes, None] = {}
    for block in blocks:
        end = 4
        for _ in range(*_INT32(block)):
            first = end + 2
            end = first + _INT16(block, end)[0]
            names[block[first:end]] = None
    return [name.decode() for name in names]


class TopicBlocks:
    """Blocks of topics, each read once. ``row`` of a member is -1 where its block is unreadable."""

    def __init__(self, table: NameTable):
        self.table = table
        self.rows: dict[bytes, int] = {}  # sorted topics, as int32 bytes: row of the set table
        self.row: list[int] = []

    def read(self, messages: Sequence[bytes]) -> list[int]:
        """Find the end of every member's topics, and fill ``row``."""
        known: dict[bytes, list[tuple[bytes, int]]] = {}
        block, row = NO_BLOCK, -1
        ends, self.row = [0] * len(messages), [-1] * len(messages)
        late: list[int] = []
        n_slow = 0
        for member, data in enumerate(messages):
            if not data.startswith(block, 2):
                for pair in known.get(data[2:PREFIX], ()):
                    if data.startswith(pair[0], 2):
                        block, row = pair
                        break
                else:
                    if n_slow >= SLOW + (member - n_slow - len(late)) // WORTH:
                        late.append(member)
                        continue
                    n_slow += 1
                    end, row = self._read_one(data)
                    block = data[2:end] if end else NO_BLOCK
                    if not end:
                        continue
                    known.setdefault(data[2:PREFIX], []).append((block, row))
            ends[member], self.row[member] = 2 + len(block), row
        if late:
            self._read_late([messages[member] for member in late], late, ends)
        return ends

    def add(self, topics: bytes) -> int:
        """Row of ``topics`` (sorted, unique, int32) in the table of distinct subscriptions."""
        return self.rows.setdefault(topics, len(self.rows))

    def _read_one(self, data: bytes) -> tuple[int, int]:
        """End of the block and its row, or (0, -1) if it cannot be read."""
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

    def _read_late(self, messages: list[bytes], late: list[int], ends: list[int]) -> None:
        """Read many different blocks together."""
        start, topic, readable, end = self._alike(messages) or self._in_lock_step(messages)
        member = np.repeat(np.arange(len(late), dtype=np.int64) << 32, np.diff(start))
        ours = topic >= 0
        key = member | topic if ours.all() else (member | topic)[ours]
        if not (key[1:] > key[:-1]).all():  # names mostly stand in their order
            key = distinct(key)
        bounds = (4 * np.searchsorted(key, np.arange(len(late) + 1) << 32)).tolist()
        rows = (key & 0x7FFFFFFF).astype(np.int32).tobytes()
        unknown = np.flatnonzero(~ours)
        odd = set((np.searchsorted(start, unknown, side="right") - 1).tolist())
        for i, place in enumerate(late):
            if i in odd or not readable[i]:  # check the names that are not ours, too
                ends[place], self.row[place] = self._read_one(messages[i])
            else:
                ends[place] = end[i]
                self.row[place] = self.add(rows[bounds[i] : bounds[i + 1]])

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
        buffer, first, last = join(messages, [0] * len(messages), self.table.n_pad)
        names = walk(buffer, first + 2, last, np.ones(len(first), np.bool_), partitions=False)
        topic = self.table.find(buffer, names.name_at, names.name_length)
        return names.start, topic, names.good.tolist(), (names.end - first).tolist()

    def subscriptions(self, row: I32) -> Subscriptions:
        """The members' subscriptions, from the row of each member, numbered in the order met."""
        used, first, inverse = np.unique(row, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        every = list(self.rows)
        rows = [every[old] for old in used[order].tolist()]
        start = starts(np.array([len(one) // 4 for one in rows], np.int64))
        topic = np.frombuffer(b"".join(rows), np.int32).copy()
        return Subscriptions(start, topic, place[inverse])
