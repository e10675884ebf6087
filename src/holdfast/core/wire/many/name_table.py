"""Topic names in bytes to topic indices, many at once; arrays of names in many messages.

**Rules.** A name matches only if length and every byte agree; hashing only finds the candidate.

**Strategy.** Names are read as little-endian 8-byte words straight from the buffer, the last one
masked, so that a name of 11 bytes costs two reads. Names of one length that follow each other are
read without a position for each. A word mix picks a slot in a table eight times
as large as the names; the few names that lose their slot go to a next table with another mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.core.model.columns import I32, I64, U8, Mask, row_sizes, starts, within

U64 = npt.NDArray[np.uint64]

UNKNOWN = -1
CHUNK = 1 << 16
"""Names looked up at a time, so that temporaries stay in the cache."""

_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93)


def words_at(buffer: U8) -> U64:
    """Return overlapping little-endian words: element ``i`` is the bytes ``i`` to ``i + 7``."""
    n = max(len(buffer) - 7, 0)
    return np.ndarray((n,), "<u8", buffer.data, strides=(1,))


def int32_at(buffer: U8) -> npt.NDArray[np.int32]:
    """Return overlapping big-endian int32: element ``i`` is the bytes ``i`` to ``i + 3``."""
    n = max(len(buffer) - 3, 0)
    return np.ndarray((n,), ">i4", buffer.data, strides=(1,))


def int16_at(buffer: U8) -> npt.NDArray[np.int16]:
    """Return overlapping big-endian int16: element ``i`` is the bytes ``i`` and ``i + 1``."""
    n = max(len(buffer) - 1, 0)
    return np.ndarray((n,), ">i2", buffer.data, strides=(1,))


class NameTable:
    """Names of topics, ready to be found."""

    def __init__(self, names: Sequence[str]):
        self.encoded = list(map(str.encode, names))
        self.index = dict(zip(self.encoded, range(len(names)), strict=True))
        self.length = np.fromiter(map(len, self.encoded), np.int32, len(names))
        self.length_of_all = int(self.length[0]) if len(set(self.length.tolist())) == 1 else None
        self.n_words = (int(self.length.max(initial=1)) + 7) // 8
        self.n_pad = 8 * self.n_words + 8  # bytes a buffer needs behind its last name
        start = starts(self.length)
        buffer = np.frombuffer(b"".join(self.encoded) + b"\0" * self.n_pad, np.uint8)
        self.words = self._read(words_at(buffer), start[:-1], self.length)
        self.tables = self._build()

    def find(self, buffer: U8, position: I64, length: I32) -> I32:
        """Return the topic of each name in ``buffer``, or UNKNOWN.

        Parameters
        ----------
        buffer : uint8[n_bytes]
            Ends in ``n_pad`` bytes that belong to no name.
        """
        result = np.full(len(position), UNKNOWN, np.int32)
        words = words_at(buffer)
        for first in range(0, len(position) if self.encoded else 0, CHUNK):
            part = slice(first, first + CHUNK)
            rows = self._read(words, position[part], length[part])
            result[part] = self._find(rows, length[part])
        return result

    def find_alike(self, buffer: U8, n_names: int, length: int) -> I32:
        """Return the topic of each name, or UNKNOWN, in a buffer of names of one length.

        Parameters
        ----------
        buffer : uint8[n_bytes]
            The names, an int16 before each, and ``n_pad`` bytes that belong to no name.
        """
        result = np.full(n_names, UNKNOWN, np.int32)
        stride = length + 2
        for first in range(0, n_names if self.encoded else 0, CHUNK):
            part = result[first : first + CHUNK]
            rows = []
            for at in range(0, 8 * self.n_words, 8):
                position = first * stride + 2 + at
                words: U64 = np.ndarray((len(part),), "<u8", buffer.data, position, (stride,))
                rows.append(words & _MASKS[min(max(length - at, 0), 8)])
            part[:] = self._find(rows, length)
        return result

    def _find(self, rows: list[U64], length: I32 | int) -> I64:
        """Return the topic of each name by its words; ``length`` of each name or of all."""
        left = found = np.empty(0, np.int64)
        for level, (slots, shift) in enumerate(self.tables):
            topic = slots[_mix(rows, level, shift)]
            same = topic >= 0
            if not (isinstance(length, int) and length == self.length_of_all):
                same &= self.length[topic] == length
            for word, known in zip(rows, self.words, strict=True):
                same &= known[topic] == word
            if level == 0:
                found = topic
            else:
                found[left] = topic
            lost = (~same).nonzero()[0]
            if not len(lost):
                return found
            left, rows = lost if level == 0 else left[lost], [word[lost] for word in rows]
            length = length if isinstance(length, int) else length[lost]
        found[left] = UNKNOWN
        return found

    def _read(self, words: U64, position: I64, length: I32) -> list[U64]:
        """Return words of each name, zero behind its end; names longer than any topic are cut."""
        longest = int(length.max(initial=0))
        uniform = longest == int(length.min(initial=longest))
        rows = []
        for first in range(0, 8 * self.n_words, 8):
            n_bytes = min(max(longest - first, 0), 8) if uniform else np.clip(length - first, 0, 8)
            rows.append(words[position + first] & _MASKS[n_bytes])
        return rows

    def _build(self) -> list[tuple[I64, np.uint64]]:
        """Build tables of topic indices: a name whose slot is taken goes to the next table."""
        tables: list[tuple[I64, np.uint64]] = []
        left = np.arange(len(self.encoded))
        while len(left):
            bits = max(int(8 * len(left)).bit_length(), 4)
            shift = np.uint64(64 - bits)
            slots = np.full(1 << bits, UNKNOWN, np.int64)
            slot = _mix([word[left] for word in self.words], len(tables), shift)
            slots[slot[::-1]] = left[::-1]  # the first of several keeps it
            left = left[slots[slot] != left]
            tables.append((slots, shift))
        return tables


def _mix(words: list[U64], level: int, shift: np.uint64) -> npt.NDArray[np.int64]:
    """Return the slot of each name from its words; another mix on every level."""
    total = words[0] * np.uint64(_ODD[level % 4])
    for at, word in enumerate(words[1:], 1):
        total ^= total >> np.uint64(29)
        total += word
        total *= np.uint64(_ODD[(at + level) % 4] + 2 * level)
    total ^= total >> np.uint64(32)
    total *= np.uint64(_ODD[(level + 1) % 4] ^ (level << 1))
    slot: npt.NDArray[np.int64] = (total >> shift).astype(np.int64)
    return slot


# Arrays of names in many messages at once; an array of int32 may follow each name.
#
# Nothing is read outside the buffer. Every count is checked against the bytes left before anything
# is allocated. A member whose array does not fit gets an empty row.
#
# Columnar steps: step ``j`` reads the position of the ``j``-th name of every member that has so
# many names, as columns over members. A wrong length or count moves the position beyond the end,
# where it stays. One check after the last step finds it. If all names of an array are as long as
# its first name, their positions are computed without any step.
#
# References: KIP-429: ``ConsumerProtocolSubscription``, ``Topics`` and ``OwnedPartitions``.


FEW = 4
PATIENCE = 64
"""Bound on the steps for at most FEW members with names left.

Beyond it, columnar steps cost more than they save: the arrays of these members are not read here.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NameArrays:
    """Positions of arrays of names in a buffer, one array a member, as CSR over members."""

    start: I64  # int64[n_members + 1]: rows of the columns below
    # int64[...], int32[...]: first byte of each name, and its bytes.
    name_at: I64
    name_length: I32
    count: I32  # int32[...]: partitions behind each name; 0 in arrays without
    end: I64  # int64[n_members]: first byte behind each array
    good: Mask  # bool[n_members]: members whose array lies inside its bounds, or was not wanted


def join(messages: Sequence[bytes], ends: I64, n_pad: int) -> tuple[U8, I64, I64]:
    """Return one buffer of what follows ``ends`` in each message; where each begins and ends.

    Messages are copied whole where that takes at most twice the bytes, else they are cut first.
    """
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    if 2 * ends.sum() > sizes.sum():
        messages = [data[end:] for data, end in zip(messages, ends.tolist(), strict=True)]
        sizes, ends = sizes - ends, np.zeros_like(ends)
    bounds = starts(sizes)
    buffer = np.frombuffer(b"".join((*messages, b"\0" * (n_pad + 16))), np.uint8)
    return buffer, bounds[:-1] + ends, bounds[1:]


def walk(buffer: U8, first: I64, last: I64, wanted: Mask, *, partitions: bool) -> NameArrays:
    """Walk one array for each member.

    Parameters
    ----------
    buffer : uint8[n_bytes]
        Ends in at least 16 bytes of 0 behind the largest of ``last``.
    first, last : int64[n]
        Where the array begins, and the end of the bytes it may use. The entries of members that are
        not wanted are not read.
    wanted : bool[n]
        Members to read; the others get an empty row and an ``end`` of ``first``.
    partitions : bool
        Whether an array of int32 follows each name.
    """
    n_names = np.zeros(len(first), np.int64)
    room = last - first - 4
    good = wanted & (room >= 0)
    n_names[good] = int32_at(buffer)[first[good]]
    good &= (n_names >= 0) & (n_names * (6 if partitions else 2) <= room)
    n_names[~good] = 0
    stop = int(last.max(initial=0, where=wanted)) + 1  # the others may end anywhere
    found = None if partitions else _alike(buffer, first + 4, n_names, stop)
    if found is None:
        at = _walked(buffer, first + 4, n_names, good, stop, partitions=partitions)
        found = at, int16_at(buffer)[at].astype(np.int32)
    end = np.where(wanted, first + 4, first)
    good |= ~wanted
    return _columns(
        buffer, *found, starts(n_names), end=end, last=last, good=good, partitions=partitions
    )


def _alike(buffer: U8, begin: I64, n_names: I64, stop: int) -> tuple[I64, I32] | None:
    """Return where names begin and their lengths, if each array has one length; else None."""
    lengths = int16_at(buffer).view(">u2")
    stride = lengths[np.minimum(begin, stop)].astype(np.int64) + 2
    second = np.where(n_names > 1, begin + stride, begin)
    if (lengths[np.minimum(second, stop)] + 2 != stride).any():
        return None
    strides = np.repeat(stride, n_names)
    at = np.repeat(begin, n_names) + within(n_names) * strides
    np.minimum(at, stop, out=at)
    length = int16_at(buffer)[at].astype(np.int32)  # a negative length never counts as equal
    return (at, length) if (length + 2 == strides).all() else None


def _walked(
    buffer: U8, begin: I64, n_names: I64, good: Mask, stop: int, *, partitions: bool
) -> I64:
    """Return where each name begins, step by step; too long arrays become empty and not good."""
    order = np.argsort(-n_names, kind="stable")
    n_active = np.searchsorted(-n_names[order], -np.arange(1, n_names.max(initial=0) + 1), "right")
    steps = _steps(buffer, begin[order], n_active, stop, partitions=partitions)
    if len(steps) < len(n_active):  # the longest are left: they come first
        long = int(n_active[len(steps)])
        good[order[:long]], n_names[order[:long]] = False, 0
        steps, order, n_active = [at[long:] for at in steps], order[long:], n_active - long
    start = starts(n_names)
    at = np.empty(int(start[-1]), np.int64)
    if steps:
        active = n_active[: len(steps)]
        row = start[:-1][order][within(active)]
        at[row + np.repeat(np.arange(len(steps)), active)] = np.concatenate(steps)
    return at


def _columns(
    buffer: U8,
    at: I64,
    length: I32,
    start: I64,
    *,
    end: I64,
    last: I64,
    good: Mask,
    partitions: bool,
) -> NameArrays:
    """Return counts at the names found; rows with a wrong count or length are emptied."""
    n_names = row_sizes(start)
    limit = np.repeat(last, n_names)
    behind = at + 2 + length
    wrong, count = length < 0, np.zeros(len(at), np.int32)
    if partitions:
        count = int32_at(buffer)[np.minimum(np.maximum(behind, 0), limit)].astype(np.int32)
        wrong |= count < 0
        behind += 4 + 4 * count.astype(np.int64)
    wrong |= behind > limit
    full = np.flatnonzero(n_names)
    end[full] = behind[start[full + 1] - 1]
    columns = (at + 2, length, count)
    if wrong.any():
        bad = np.zeros(len(n_names), np.bool_)
        bad[np.repeat(np.arange(len(n_names)), n_names)[wrong]] = True
        stays = np.repeat(~bad, n_names)
        columns = (columns[0][stays], columns[1][stays], columns[2][stays])
        start, good = starts(np.where(bad, 0, n_names)), good & ~bad
    return NameArrays(
        start=start,
        name_at=columns[0],
        name_length=columns[1],
        count=columns[2],
        end=end,
        good=good,
    )


def _steps(buffer: U8, cursor: I64, n_active: I64, stop: int, *, partitions: bool) -> list[I64]:
    """Return where the names of each step begin, up to the step with only a few long arrays left.

    Parameters
    ----------
    cursor : int64[n]
        First name of each member, those with the most names first.
    n_active : int64[n_steps]
        Members that have a name in each step.
    stop : int
        Where a cursor stays that ran over the end.
    """
    # Read as unsigned, a negative length or count only ever leads forward, behind the end.
    int32, int16 = int32_at(buffer).view(">u4"), int16_at(buffer).view(">u2")
    steps = []
    for step, active in enumerate(n_active.tolist()):
        if active <= FEW and len(n_active) - step > PATIENCE:
            break
        at = cursor[:active]
        steps.append(at)
        cursor = at + int16[at]
        cursor += 2
        if partitions:
            np.minimum(cursor, stop, out=cursor)
            cursor += 4 * int32[cursor].astype(np.int64)
            cursor += 4
        np.minimum(cursor, stop, out=cursor)
    return steps
