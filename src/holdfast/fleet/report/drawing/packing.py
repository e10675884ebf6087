"""Columns as text a page can carry: byte planes, gzip, 13 bits in two characters.

**Rules.** The text holds ``DIGITS`` alone, so nothing in it can end a script element, and the same
columns give the same text. Values are integers, 0 <= value < 2**53 after the stated transform.

**Strategy.** One payload is ``length, JSON head, planes``. The head lists the columns in order
(name, count, width in bytes, whether they are deltas) beside any JSON values (strings live there).
A column of width w is written as w planes: first the lowest byte of every value, then the next
byte. Bytes of one plane have similar values but hardly ever repeat as sequences. So each plane is a
block with its own Huffman codes, and only long matches are used (``Z_FILTERED``).
``page/loader.js`` unpacks a payload and ``page/columns.js`` reads its columns.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

DIGITS = "".join(chr(c) for c in range(ord("#"), ord("~") + 1) if chr(c) != "<")  # 91 of them
_CODES = np.frombuffer(DIGITS.encode("ascii"), np.uint8)
_WEIGHTS = 1 << np.arange(13)
_WIDTHS = (1, 2, 4, 8)
MAX_VALUE = 2**53


def pack(columns: Mapping[str, npt.ArrayLike], values: Mapping[str, Any] | None = None) -> str:
    """Pack integer columns and a few JSON values into text.

    Parameters
    ----------
    columns : mapping of str to int[n]
        Columns may differ in length. A name ending in ``+`` is ascending and stored as deltas.
    values : mapping, optional
        JSON values that travel in the head.

    Returns
    -------
    str
        Gzip in ``DIGITS``.

    Raises
    ------
    ValueError
        If a value is negative or 2**53 and more.
    """
    head: list[list[object]] = []
    planes: list[bytes] = []
    for name, column in columns.items():
        ascending = name.endswith("+")
        numbers = np.asarray(column, dtype=np.int64)
        stored = np.diff(numbers, prepend=np.int64(0)) if ascending else numbers
        width, data = _planes(name, stored)
        head.append([name.rstrip("+"), len(numbers), width, int(ascending)])
        planes += data
    text = json.dumps({"columns": head, "values": dict(values or {})}, separators=(",", ":"))
    packed = text.encode("ascii")
    return _compressed([len(packed).to_bytes(4, "little") + packed, *planes])


def pack_text(text: str) -> str:
    """Text, packed."""
    return to_digits(gzip.compress(text.encode(), 9, mtime=0))


def _compressed(parts: Sequence[bytes]) -> str:
    """One gzip stream, each part in blocks of its own."""
    stream = zlib.compressobj(9, zlib.DEFLATED, 31, 8, zlib.Z_FILTERED)
    done = b"".join(stream.compress(part) + stream.flush(zlib.Z_BLOCK) for part in parts)
    return to_digits(done + stream.flush())


def pack_values(values: Mapping[str, Any]) -> str:
    """A few JSON values, not compressed: read at once, before the first column."""
    return to_digits(json.dumps(dict(values)).encode("ascii"))


def to_digits(data: bytes) -> str:
    """Bytes as text: 8 bits take 1.23 characters, where base64 takes 1.33.

    13 bits, the lowest first, are a number of two digits. An odd last digit says that the last
    byte is of filling bits alone.
    """
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    filled = np.concatenate([bits, np.zeros(-len(bits) % 13, np.uint8)]).reshape(-1, 13)
    pairs = np.stack(np.divmod(filled @ _WEIGHTS, 91), axis=1)
    odd = DIGITS[0] if filled.size - len(bits) >= 8 else ""
    return str(_CODES[pairs].tobytes(), "ascii") + odd


def _planes(name: str, numbers: npt.NDArray[np.int64]) -> tuple[int, list[bytes]]:
    if len(numbers) == 0:
        return 1, []
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= MAX_VALUE:
        raise ValueError(f"column {name}: values {low} to {high}, expected 0 to 2**53 - 1")
    width = next(w for w in _WIDTHS if high < 1 << (8 * w))
    bytes_of = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    return width, [bytes_of[:, plane].tobytes() for plane in range(width)]
