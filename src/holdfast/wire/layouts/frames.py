"""The parts of a frame of Designs I to III: magic, version, sets of partitions.

A *frame* is a magic, a version, then fields. A *PartitionSet* is a compact array of uvarints: the
first partition, then each gap less one.

=======  ==========================================================================================
version  magic and version
=======  ==========================================================================================
1        four bytes, then an int16; tagged fields at the end
2        three bytes, then an int8; tagged fields at the end
3        two bytes, which are the version too; the leader's memory at the end
=======  ==========================================================================================

**Rules.** A reader takes the magic of a version that it does not know for no frame. Only versions 1
and 2 have numbers of their own: such a number above 2 is read as 2, bytes after the last known
field are ignored, and unknown tags are skipped. The first bit of the magic is set. A foreign reader
that takes the frame for a generation or a count therefore reads a negative number, and finds no
claim.

References: KIP-482 (compact types and tagged fields).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import pairwise

from holdfast.errors import WireError
from holdfast.model.limits import INT32_MAX
from holdfast.wire.one.reader import Reader
from holdfast.wire.one.reasons import Reason, within
from holdfast.wire.one.writer import Writer

FRAME_VERSION = 3
"""The highest version of a frame."""

VERSION_OF_MAGIC = {4: 1, 3: 2, 2: 3}
"""Version of a frame by the bytes of its magic."""


class Leaving(IntEnum):
    """Whether a member announces that it stops, and whether it comes back."""

    STAYS = 0
    RETURNS = 1  # it stops, and means to come back: its partitions should wait
    FOR_GOOD = 2  # it stops for good: its partitions need not wait


LEAVING = {int(value): value for value in Leaving}
"""Announcements by their number."""


def open_frame(data: bytes, schema: str, magic: bytes) -> Reader:
    """A reader behind the magic and the version."""
    reader = Reader(data, schema)
    if not data.startswith(magic):
        reader.fail(Reason.BAD_MAGIC, "magic", 0, f"{data[:4].hex()} is not {magic.hex()}")
    start = reader.pos = len(magic)
    known = VERSION_OF_MAGIC[len(magic)]
    if known == 1:
        reader.leading_version(1, lowest=1)
        return reader
    if known == 2 and (version := reader.int8("version")) < 2:
        reader.fail(Reason.BAD_VERSION, "version", start, f"{version} is below 2")
    reader.version = known
    return reader


def start_frame(schema: str, magic: bytes) -> Writer:
    """A writer with magic and version written."""
    version = VERSION_OF_MAGIC[len(magic)]
    writer = Writer(schema, version)
    writer.raw(magic)
    if version == 1:
        writer.int16(version, "version")
    elif version == 2:
        writer.int8(version, "version")
    return writer


def read_leaving(reader: Reader) -> Leaving:
    """An int8 that is one of the announcements."""
    start = reader.pos
    value = reader.int8("leaving")
    if value not in LEAVING:
        reader.fail(Reason.OUT_OF_RANGE, "leaving", start, f"{value} is not 0 to 2")
    return LEAVING[value]


def read_set(reader: Reader) -> tuple[int, ...]:
    """A PartitionSet, sorted."""
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
    """A PartitionSet of sorted partitions."""
    if partitions and not 0 <= partitions[0] <= partitions[-1] <= INT32_MAX:
        writer.fail(Reason.OUT_OF_RANGE, "partitions", f"{partitions[0]} to {partitions[-1]}")
    distinct = sorted(set(partitions))
    gaps = [after - before - 1 for before, after in pairwise((-1, *distinct))]
    writer.compact_array(gaps, "partitions", _write_gap)


def _write_gap(writer: Writer, gap: int) -> None:
    writer.uvarint(gap, "")
