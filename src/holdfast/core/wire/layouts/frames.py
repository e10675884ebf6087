"""The parts of a frame of Designs I to III: magic, version, sets of partitions.

A *frame* is a magic of two bytes, then fields. The upper four bits of the second byte say what the
frame is, the lower four its version. A *PartitionSet* is a compact array of uvarints: the first
partition, then each gap less one.

=======  ==========================================================================================
version  magic
=======  ==========================================================================================
1        f4 c1 or f4 d1; the leader state at the end
=======  ==========================================================================================

**Rules.** A frame of another version is refused. The first bit of the magic is set. A foreign
reader that takes the frame for a generation or a count therefore reads a negative number, and finds
no claim.

References: KIP-482 (compact types).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import pairwise
from typing import NoReturn

from holdfast.core.model.limits import INT32_MAX
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.reasons import Reason, within
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import WireError

FRAME_VERSION = 1
"""The version of a frame."""

_VERSION_BITS = 0x0F  # of the second byte


class Leaving(IntEnum):
    """Whether a member announces that it stops, and whether it comes back."""

    STAYS = 0
    RETURNS = 1  # it stops, and means to come back: its partitions should wait
    FOR_GOOD = 2  # it stops for good: its partitions need not wait


LEAVING_BITS = 3
"""Flags of a claim frame that hold the member's announcement."""

LEAVING = {int(value): value for value in Leaving}
"""Announcements by their number."""


def open_frame(data: bytes, schema: str, magic: bytes) -> Reader:
    """Return a reader behind the magic."""
    reader = Reader(data, schema)
    if not data.startswith(magic):
        _refuse(reader, data, magic)
    reader.pos = len(magic)
    reader.version = FRAME_VERSION
    return reader


def _refuse(reader: Reader, data: bytes, magic: bytes) -> NoReturn:
    version = data[1] & _VERSION_BITS if len(data) > 1 else 0
    if data[:2] == bytes((magic[0], magic[1] & ~_VERSION_BITS | version)):
        detail = f"{version} is not {FRAME_VERSION}, the only version that is known"
        reader.fail(Reason.BAD_VERSION, "version", 1, detail)
    reader.fail(Reason.BAD_MAGIC, "magic", 0, f"{data[:2].hex()} is not {magic.hex()}")


def start_frame(schema: str, magic: bytes) -> Writer:
    """Return a writer with the magic written."""
    writer = Writer(schema, FRAME_VERSION)
    writer.raw(magic)
    return writer


def read_set(reader: Reader) -> tuple[int, ...]:
    """Read a PartitionSet, sorted."""
    start = reader.pos
    count = reader.compact_count("partitions", 1)
    if count is None:
        reader.fail(Reason.UNEXPECTED_NULL, "partitions", start)
    partitions = tuple(_partitions(reader, count))
    if partitions and partitions[-1] > INT32_MAX:
        reader.fail(Reason.OUT_OF_RANGE, "partitions", start, f"partition {partitions[-1]}")
    return partitions


def _partitions(reader: Reader, count: int) -> Iterator[int]:
    """Yield partitions one by one: a list of them would be far larger than their bytes."""
    index, last = 0, -1
    try:
        for index in range(count):  # noqa: B007 - the index names the failing one
            last += reader.uvarint("") + 1
            yield last
    except WireError as error:
        raise within(f"partitions[{index}]", error) from None


def write_set(writer: Writer, partitions: tuple[int, ...]) -> None:
    """Write a PartitionSet of sorted partitions."""
    if partitions and not 0 <= partitions[0] <= partitions[-1] <= INT32_MAX:
        writer.fail(Reason.OUT_OF_RANGE, "partitions", f"{partitions[0]} to {partitions[-1]}")
    distinct = sorted(set(partitions))
    gaps = [after - before - 1 for before, after in pairwise((-1, *distinct))]
    writer.compact_array(gaps, "partitions", _write_gap)


def _write_gap(writer: Writer, gap: int) -> None:
    writer.uvarint(gap, "")
