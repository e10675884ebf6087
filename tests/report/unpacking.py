"""Reads what ``drawing/payload.py`` of the report writes: the twin of the reader in the page."""

import gzip
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.fleet.report.drawing.payload import DIGITS

_CODES = np.frombuffer(DIGITS.encode("ascii"), np.uint8)
_WEIGHTS = 1 << np.arange(13)


def of_digits(text: str) -> bytes:
    """Bytes of a text of digits."""
    places = np.searchsorted(_CODES, np.frombuffer(text.encode("ascii"), np.uint8))
    odd = len(places) % 2
    numbers = places[: len(places) - odd].reshape(-1, 2) @ np.array([91, 1])
    bits = (numbers[:, None] & _WEIGHTS).astype(bool).reshape(-1)
    return np.packbits(bits[: (len(bits) // 8 - odd) * 8], bitorder="little").tobytes()


def unpack(text: str) -> tuple[dict[str, npt.NDArray[np.int64]], dict[str, Any]]:
    """Columns and values of a payload."""
    payload = gzip.decompress(of_digits(text))
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
