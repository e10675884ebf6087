"""Many messages in one buffer: a position in each of them, runs gathered at once, UTF-8 checked.

**Rules.** A message is marked bad if it is cut off, or if a size in it goes beyond its end. Such a
size is cut at the end, so nothing is ever read outside the padded bytes. The values read from a bad
message are meaningless. A *padded* buffer has :data:`PAD` readable bytes after its last meaningful
one, so that a window may be read at every position up to and including the end. No Python loop per
row: the only loop runs over runs longer than :data:`LONGEST_WINDOW`, of which the input holds few.

**Strategy.** A window is one element of a void dtype laid over every byte position, so NumPy
copies it as a block; its cost hardly depends on its width. Runs of different lengths are copied by
windows as wide as the longest one, in ascending order: what a window writes beyond its run
is overwritten by the next. Memory is bounded by capping the width at a few times the mean;
longer runs follow in classes of doubling length, two overlapping windows each.

References: KIP-482 (unsigned varints).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model.columns import I64, U8, Mask, starts

PAD: Final = 1024
LONGEST_WINDOW: Final = 512
_MANY: Final = 1000  # rows from which two bytes are read faster than one block of two
_ASCII_END: Final = 0x80
_LARGEST_MMAP_THRESHOLD: Final = 31 << 20
_UINT32_MAX: Final = 0xFFFFFFFF


@cache
def keep_freed_memory() -> None:
    """Make glibc reuse the memory of columns that were freed; a second call does nothing.

    When a block above a threshold is freed, glibc gives it back to the kernel. The threshold begins
    at 128 kB and rises to the size of the largest block freed so far. A chunk of records has
    columns of about that size, so without this call they are mapped, zeroed and unmapped again for
    each chunk. For 200,000 commits that is 1,000 page faults, and a fifth of the time. The columns
    of a large group's subscriptions gain as well. Freeing one block of 31 MB raises the threshold.
    Nothing is written into the block, so it takes no memory.
    """
    np.empty(_LARGEST_MMAP_THRESHOLD, np.uint8)


def padded(data: U8) -> U8:
    """Return a copy of ``data`` (uint8[n_bytes]) with :data:`PAD` zero bytes after it."""
    copy = np.empty(len(data) + PAD, np.uint8)
    copy[: len(data)] = data
    copy[len(data) :] = 0
    return copy


def windows(data: U8, width: int) -> NDArray[Any]:
    """Return a window of ``width`` bytes at every position of ``data`` that has room for one.

    Parameters
    ----------
    data : uint8[n_bytes]
        Contiguous.
    width : int
        Bytes, 1 <= width <= n_bytes.

    Returns
    -------
    V{width}[n_bytes - width + 1]
        A view; its elements overlap. A plain void, since NumPy copies a dtype with fields field by
        field and a number with care for its alignment.
    """
    return np.ndarray((len(data) - width + 1,), _block(width), data, strides=(1,))


def read_at(data: U8, begin: I64, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return one element at each of many positions.

    Parameters
    ----------
    data : uint8[n_bytes]
        Padded.
    begin : int64[n]
        Positions, in any order.

    Returns
    -------
    dtype[n]
        A copy. One and two bytes are taken byte by byte: for many rows that is a third of the cost
        of a block.
    """
    if dtype.itemsize == 1:
        return data.take(begin).view(dtype)
    if dtype.itemsize > 2 or len(begin) < _MANY:
        return windows(data, dtype.itemsize)[begin].view(dtype)
    pairs = np.empty((len(begin), 2), np.uint8)
    pairs[:, 0] = data.take(begin)
    pairs[:, 1] = data[1:].take(begin)
    return pairs.reshape(-1).view(dtype)


@lru_cache(1024)
def _block(width: int) -> np.dtype[Any]:
    return np.dtype(f"V{width}")


def gather(data: U8, begin: I64, size: I64) -> tuple[U8, I64]:
    """Copy runs of bytes behind each other.

    Parameters
    ----------
    data : uint8[n_bytes]
        Padded.
    begin, size : int64[n]
        Where each run begins and how long it is; all within the unpadded part.

    Returns
    -------
    (bytes, start) : tuple of uint8[sum(size)] and int64[n + 1]
        Run ``i`` is ``bytes[start[i]:start[i + 1]]``.

    Notes
    -----
    Cost: two block copies a run; temporaries of at most ``16 n + 4 sum(size)`` bytes.
    """
    start = starts(size)
    total = int(start[-1])
    if total == 0:
        return np.empty(0, np.uint8), start
    longest = int(size.max())
    if longest * len(size) == total:
        return windows(data, longest)[begin].view(np.uint8), start
    width = min(longest, LONGEST_WINDOW, 16 + 4 * (total // len(size)))
    out = np.empty(total + width, np.uint8)
    windows(out, width)[start[:-1]] = windows(data, width)[begin]
    if longest > width:
        rows = np.flatnonzero(size > width)
        _copy_longer((data, begin[rows]), (out, start[rows]), size[rows], width)
    return out[:total], start


def _copy_longer(source: tuple[U8, I64], target: tuple[U8, I64], size: I64, width: int) -> None:
    """Copy runs, all longer than ``width``, from their begin to their destination."""
    (data, begin), (out, start) = source, target
    while len(size) and width < LONGEST_WINDOW:
        fits = size <= 2 * width
        read, write = windows(data, width), windows(out, width)
        low, high, shift = begin[fits], start[fits], size[fits] - width
        write[high] = read[low]
        write[high + shift] = read[low + shift]
        begin, start, size = begin[~fits], start[~fits], size[~fits]
        width *= 2
    for low, high, n_bytes in zip(begin.tolist(), start.tolist(), size.tolist(), strict=True):
        out[high : high + n_bytes] = data[low : low + n_bytes]


def invalid_utf8(data: U8, start: I64) -> Mask | None:
    """Find the runs that are not UTF-8.

    Parameters
    ----------
    data : uint8[n_bytes]
        Runs behind each other.
    start : int64[n + 1]
        Where each run begins, and the end.

    Returns
    -------
    bool[n] or None
        True for each run that Python's strict decoder refuses; None when there is none, which
        a buffer of ASCII shows by its largest byte.

    Notes
    -----
    Each leading byte must have its continuation bytes inside its run; then a run is valid
    if it has no continuation byte beyond those. Overlong forms, surrogates and code points above
    U+10FFFF show in the byte after the leading one.
    """
    if len(data) == 0 or data.max() < _ASCII_END:
        return None
    high = np.flatnonzero(data >= _ASCII_END)
    row = np.searchsorted(start, high, side="right") - 1
    byte = data[high]
    is_lead = byte >= 0xC0
    lead, lead_row, first = high[is_lead], row[is_lead], byte[is_lead]
    need = 1 + (first >= 0xE0).astype(np.int64) + (first >= 0xF0)
    bad_lead = (first < 0xC2) | (first > 0xF4) | (lead + need >= start[lead_row + 1])
    suffix = np.zeros(len(data) + 3, np.uint8)
    suffix[: len(data)] = data
    low, top = _second_byte_range(first)
    second = suffix[lead + 1]
    bad_lead |= (second < low) | (second > top)
    for nth in (2, 3):
        bad_lead |= (need >= nth) & (suffix[lead + nth] & 0xC0 != _ASCII_END)
    n_rows = len(start) - 1
    surplus = np.bincount(row[~is_lead], minlength=n_rows)
    surplus = surplus - np.bincount(lead_row, need, minlength=n_rows).astype(np.int64)
    bad = surplus != 0
    bad[lead_row[bad_lead]] = True
    return bad if bad.any() else None


def _second_byte_range(first: U8) -> tuple[U8, U8]:
    low = np.full(len(first), 0x80, np.uint8)
    top = np.full(len(first), 0xBF, np.uint8)
    low[first == 0xE0] = 0xA0
    low[first == 0xF0] = 0x90
    top[first == 0xED] = 0x9F
    top[first == 0xF4] = 0x8F
    return low, top


class Cursor:
    """A position in each of many messages.

    Parameters
    ----------
    pos, end : int64[n]
        Where each message continues, and where it ends. ``pos`` belongs to the cursor. It may run
        past the end by a few fixed fields, which the padding allows; :meth:`skip` and
        :meth:`overrun` notice.

    Notes
    -----
    Messages of one length can be copied side by side once (:meth:`align`). As long as they advance
    alike, fields are then strided views of that block, and nothing is gathered.
    """

    __slots__ = ("_at", "_block", "_pos", "_width", "bad", "data", "end", "n_unknown_tags")

    def __init__(self, data: U8, pos: I64, end: I64):
        self.data = data
        self.end = end
        self.bad: Mask = np.zeros(len(pos), np.bool_)
        self.n_unknown_tags: I64 | None = None
        self._pos = pos
        self._block: U8 | None = None  # messages side by side, each _width bytes, read up to _at
        self._width = self._at = 0

    @property
    def pos(self) -> I64:
        """Position of each message; it may be written to, so the messages may part from here on."""
        if self._block is not None:
            self._pos = self._pos + self._at
            self._block = None
        return self._pos

    @pos.setter
    def pos(self, pos: I64) -> None:
        self._block = None
        self._pos = pos

    def align(self) -> None:
        """Copy the messages side by side if they are of one length."""
        size = self.end - self._pos
        width = int(size[0]) if len(size) else 0
        if 0 < width <= LONGEST_WINDOW and not np.count_nonzero(size != width):
            self._block = windows(self.data, width)[self._pos].view(np.uint8)
            self._width, self._at = width, 0

    def here(self) -> I64:
        """Position of each message, to be read only."""
        return self._pos if self._block is None else self._pos + self._at

    def n_left(self) -> I64 | int:
        """Bytes left in each message."""
        return self.end - self._pos if self._block is None else self._width - self._at

    def peek(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Read one element of each message."""
        if self._block is not None and self._at + dtype.itemsize <= self._width:
            shape = (len(self._pos),)
            return np.ndarray(shape, dtype, self._block, self._at, (self._width,))
        return read_at(self.data, self.pos, dtype)

    def take(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Read one element of each message, and step over it."""
        raw = self.peek(dtype)
        if self._block is None:
            self._pos = self._pos + dtype.itemsize
        else:
            self._at += dtype.itemsize
        return raw

    def skip(self, size: I64) -> I64:
        """Step over ``size`` bytes (not negative); return the sizes as far as there is room."""
        if self._block is not None:
            first = int(size[0])
            if self._at + first <= self._width and not np.count_nonzero(size != first):
                self._at += first
                return size
        after = self.pos + size
        over = after > self.end
        if np.count_nonzero(over):
            self.bad |= over
            size = np.clip(self.end - self.pos, 0, size)
            after = self.pos + size
        self.pos = after
        return size

    def hop(self, size: I64) -> None:
        """Skip as :meth:`skip`, but a negative size counts as 0, and no message is marked bad."""
        self.pos = np.minimum(self.pos + np.maximum(size, 0), self.end)

    def overrun(self) -> Mask:
        """Return messages that are bad, or whose fixed fields ran past the end."""
        past: Mask = self.here() > self.end
        return self.bad | past

    def unfinished(self) -> Mask:
        """Return messages that are bad, or do not end here."""
        elsewhere: Mask = self.here() != self.end
        return self.bad | elsewhere

    def uvarint(self, first: NDArray[Any]) -> I64:
        """Read on in varints of at most 32 bits, of which the first byte is read already."""
        value = first.astype(np.int64)
        if not len(value) or value.max() <= 0x7F:
            return value
        rows = np.flatnonzero(value > 0x7F)
        value[rows] &= 0x7F
        for shift in (7, 14, 21, 28):
            if not len(rows):
                return value
            pos = self.pos[rows]
            over = pos >= self.end[rows]
            byte = self.data[pos].astype(np.int64)
            value[rows] |= (byte & 0x7F) << shift
            self.bad[rows] |= over | (value[rows] > _UINT32_MAX)
            self.pos[rows] = np.minimum(pos + 1, self.end[rows])
            rows = rows[(byte > 0x7F) & ~over]
        self.bad[rows] = True
        return value

    def absorb(self, child: Cursor, parent: I64) -> None:
        """Add bad messages and unknown tags of parts; ``parent`` is int64[n_parts]."""
        bad = child.overrun()
        if bad.any():
            self.bad[parent[bad]] = True
        if child.n_unknown_tags is not None:
            self.count_unknown(np.repeat(parent, child.n_unknown_tags))

    def count_unknown(self, rows: I64) -> None:
        """Count one unknown tag for each entry of ``rows``."""
        self.add_unknown_tags(np.bincount(rows, minlength=len(self.bad)))

    def add_unknown_tags(self, n_tags: I64 | None) -> None:
        """Count unknown tags, int64[n]; None: none at all."""
        if n_tags is not None:
            before = self.n_unknown_tags
            self.n_unknown_tags = n_tags if before is None else before + n_tags
