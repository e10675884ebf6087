"""A position in each of many messages, which all advance together.

**Rules.** A message that is cut off, or whose sizes exceed it, is marked bad, and its sizes are cut
at its end, so that nothing is ever read outside the padded bytes. What was read of a bad message
means nothing.

References
----------
KIP-482 (unsigned varints).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.wire.ragged import I64, U8, Mask, windows

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
    """

    __slots__ = ("bad", "data", "end", "n_unknown_tags", "pos")

    def __init__(self, data: U8, pos: I64, end: I64):
        self.data = data
        self.pos = pos
        self.end = end
        self.bad: Mask = np.zeros(len(pos), np.bool_)
        self.n_unknown_tags: I64 | None = None

    def take(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Read one element of each message, and step over it."""
        raw = windows(self.data, dtype.itemsize)[self.pos]
        self.pos = self.pos + dtype.itemsize
        return raw.view(dtype)

    def skip(self, size: I64) -> I64:
        """Step over ``size`` bytes (not negative); return the sizes as far as there is room."""
        after = self.pos + size
        over = after > self.end
        if np.count_nonzero(over):
            self.bad |= over
            size = np.clip(self.end - self.pos, 0, size)
            after = self.pos + size
        self.pos = after
        return size

    def hop(self, size: I64) -> None:
        """As :meth:`skip`, of negative sizes too, for the position alone."""
        self.pos = np.minimum(self.pos + np.maximum(size, 0), self.end)

    def overrun(self) -> Mask:
        """Messages that are bad, or whose fixed fields ran past the end."""
        return self.bad | (self.pos > self.end)

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
        """Take over what was found in parts of the messages; ``parent`` is int64[n_parts]."""
        bad = child.overrun()
        if bad.any():
            self.bad[parent[bad]] = True
        if child.n_unknown_tags is not None:
            self.count_unknown(np.repeat(parent, child.n_unknown_tags))

    def count_unknown(self, rows: I64) -> None:
        """Count one unknown tag for each entry of ``rows``."""
        if len(rows):
            self.add_unknown_tags(np.bincount(rows, minlength=len(self.pos)))

    def add_unknown_tags(self, n_tags: I64 | None) -> None:
        """Count unknown tags, int64[n]; None: none at all."""
        if n_tags is not None:
            before = self.n_unknown_tags
            self.n_unknown_tags = n_tags if before is None else before + n_tags
