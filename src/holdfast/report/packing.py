"""Columns as text a page can carry: byte planes, gzip, base64.

**Rules.** The text is base64 alone, so nothing in it can end a script element, and the same
columns give the same text. Values are integers, 0 <= value < 2**53 after the stated transform.

**Strategy.** One payload is ``length, JSON head, planes``. The head lists the columns in order
(name, count, width in bytes, whether they are deltas) beside any JSON values (strings live there).
A column of width w is written as w planes, all lowest bytes first: neighbours are alike within a
plane, which is what gzip likes. ``page/columns.js`` is the reader.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_WIDTHS = (1, 2, 4, 8)
MAX_VALUE = 2**53


def pack(columns: Mapping[str, npt.ArrayLike], values: Mapping[str, Any] | None = None) -> str:
    """Pack integer columns and a few JSON values into base64 text.

    Parameters
    ----------
    columns : mapping of str to int[n]
        Columns may differ in length. A name ending in ``+`` is ascending and stored as deltas.
    values : mapping, optional
        JSON values that travel in the head.

    Returns
    -------
    str
        Base64 of gzip; the characters ``A-Z a-z 0-9 + / =`` only.

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
        planes.append(data)
    text = json.dumps({"columns": head, "values": dict(values or {})}, separators=(",", ":"))
    packed = text.encode("ascii")
    payload = len(packed).to_bytes(4, "little") + packed + b"".join(planes)
    return base64.b64encode(gzip.compress(payload, 9, mtime=0)).decode("ascii")


def pack_values(values: Mapping[str, Any]) -> str:
    """A few JSON values as base64, not compressed: read at once, before the first column."""
    return base64.b64encode(json.dumps(dict(values)).encode("ascii")).decode("ascii")


def unpack(text: str) -> tuple[dict[str, npt.NDArray[np.int64]], dict[str, Any]]:
    """Read a payload back: the twin of the reader in the page."""
    payload = gzip.decompress(base64.b64decode(text))
    at = 4 + int.from_bytes(payload[:4], "little")
    head = json.loads(payload[4:at])
    columns: dict[str, npt.NDArray[np.int64]] = {}
    for name, count, width, ascending in head["columns"]:
        planes = np.frombuffer(payload, np.uint8, count * width, at).reshape(width, count)
        at += count * width
        weights = (1 << (8 * np.arange(width, dtype=np.int64)))[:, None]
        numbers = (planes.astype(np.int64) * weights).sum(axis=0, dtype=np.int64)
        columns[name] = np.cumsum(numbers, dtype=np.int64) if ascending else numbers
    return columns, head["values"]


def _planes(name: str, numbers: npt.NDArray[np.int64]) -> tuple[int, bytes]:
    if len(numbers) == 0:
        return 1, b""
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= MAX_VALUE:
        raise ValueError(f"column {name}: values {low} to {high}, expected 0 to 2**53 - 1")
    width = next(w for w in _WIDTHS if high < 1 << (8 * w))
    return width, numbers.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
