"""Reasons why bytes cannot be read or a value cannot be written, and parts that both sides share.

**Rules.** The order of :class:`Reason` is fixed: the batch form writes it as a number per row.

References: Kafka protocol guide, "Protocol Primitive Types".
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from struct import Struct

from holdfast.errors import WireError

INT16_MAX = 0x7FFF

INT8, INT16, INT32, INT64 = (Struct(f) for f in (">b", ">h", ">i", ">q"))


@lru_cache(maxsize=1024)
def int32s_layout(count: int) -> Struct:
    """Return the layout of ``count`` int32."""
    return Struct(f">{count}i")


class Reason(StrEnum):
    """The reason why bytes could not be read or a value not written."""

    TRUNCATED = "truncated"  # the bytes end inside a field
    BAD_LENGTH = "bad-length"  # a length below -1, or a string or tagged field of a wrong size
    BAD_COUNT = "bad-count"  # a count below -1, or one that the bytes left cannot hold
    UNEXPECTED_NULL = "unexpected-null"  # null where the schema has none
    BAD_UTF8 = "bad-utf8"  # a string that is not UTF-8
    BAD_VARINT = "bad-varint"  # a varint that does not end, or exceeds its width
    BAD_VERSION = "bad-version"  # a version below 0, or one that this schema does not have
    TRAILING_BYTES = "trailing-bytes"  # bytes left over where none may be
    BAD_MAGIC = "bad-magic"  # a frame of other software
    OUT_OF_RANGE = "out-of-range"  # a value outside the range of its field
    UNKNOWN_TYPE = "unknown-type"  # a record type that is not known


REASONS = tuple(Reason)
"""Reasons by their code."""
_CODES = {reason: code for code, reason in enumerate(REASONS)}


def reason_code(error: WireError) -> int:
    """Return the number of an error's reason in the batch form."""
    return _CODES[Reason(error.reason)]


def within(outer: str, error: WireError) -> WireError:
    """Return the same error with ``outer`` in front of its field."""
    return WireError(
        error.reason,
        schema=error.schema,
        version=error.version,
        field=f"{outer}.{error.field}" if error.field else outer,
        position=error.position,
        detail=error.detail,
    )
