"""A position in each of many messages, which all advance together.

**Rules.** A message is marked bad if it is cut off, or if a size in it goes beyond its end. Such a
size is cut at the end, so nothing is ever read outside the padded bytes. The values read from a bad
message are meaningless.

References: KIP-482 (unsigned varints).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model.columns import I64, U8, Mask
from holdfast.core.wire.many.ragged import LONGEST_WINDOW, read_at, windows

_UINT32_MAX: Final = 0xFFFFFFFF


class Cursor:
    """A position in each of many messages.

    Parameters
    ----------
    data : uint8[n_bytes]
        Padded bytes of all messages.
    pos, end : int64[n]
        Where each message goes on, and where it ends. ``pos`` is the cursor's own. It may run past
        the end by a few fixed fields, which the padding allows; :meth:`skip` and
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
        """As :meth:`skip`, but a negative size counts as 0, and no message is marked bad."""
        self.pos = np.minimum(self.pos + np.maximum(size, 0), self.end)

    def overrun(self) -> Mask:
        """Messages that are bad, or whose fixed fields ran past the end."""
        past: Mask = self.here() > self.end
        return self.bad | past

    def unfinished(self) -> Mask:
        """Messages that are bad, or do not end here."""
        elsewhere: Mask = self.here() != self.end
        return self.bad | elsewhere

    def uvarint(self, first: NDArray[Any]) -> I64:
        """Go on with varints of at most 32 bits, of which the first byte is read already."""
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
