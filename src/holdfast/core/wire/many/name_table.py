"""Topic names in bytes to topic indices, many at once.

**Rules.** A name matches only if length and every byte agree; hashing only finds the candidate.

**Strategy.** Names are read as little-endian 8-byte words straight from the buffer, the last one
masked, so that a name of 11 bytes costs two reads. Names of one length that follow each other are
read without a position for each. A word mix picks a slot in a table eight times
as large as the names; the few names that lose their slot go to a next table with another mix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from holdfast.core.model.columns import I32, I64, U8, starts

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
                place = first * stride + 2 + at
                words: U64 = np.ndarray((len(part),), "<u8", buffer.data, place, (stride,))
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
