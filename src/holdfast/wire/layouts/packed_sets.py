"""Sets of partitions in few bits: the memory holds three copies of each.

**Rules.** A *packed set* has at least one partition. Its count stands in front of it, in a field of
the caller. The set itself is the highest partition as an uvarint, then for each other partition, in
ascending order, the gap to the one before less one. Let ``k`` be the whole part of the logarithm to
base 2 of (highest + 1) / count. For ``k`` below 7 a gap is an uvarint. From 7 on it is a Rice code:
``gap >> k`` bits 1, a bit 0, then ``k`` bits of the gap; the codes are filled up with bits 0 to
whole bytes. Example: {0, 2, 9} is 09 00 01.

Every partition but the highest takes at least 8 bits, so a count is checked against the bytes left
before anything is read, and at most 2 * count bits stand for quotients.

References: Rice, "Some Practical Universal Noiseless Coding Techniques" (1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from holdfast.model.limits import INT32_MAX
from holdfast.wire.one.reader import Reader
from holdfast.wire.one.reasons import Reason
from holdfast.wire.one.writer import Writer

RICE_FROM = 7
"""The first ``k`` for which gaps are Rice codes: from there on they are no longer than uvarints."""


def write_packed(writer: Writer, partitions: Sequence[int]) -> None:
    """Partitions, sorted, distinct and at least one; the caller writes their count."""
    highest = partitions[-1]
    if not 0 <= partitions[0] <= highest <= INT32_MAX:
        writer.fail(Reason.OUT_OF_RANGE, "partitions", f"{partitions[0]} to {highest}")
    writer.uvarint(highest, "partitions")
    gaps = [after - before - 1 for before, after in pairwise((-1, *partitions[:-1]))]
    k = _bits(highest, len(partitions))
    if k < RICE_FROM:
        for gap in gaps:
            writer.uvarint(gap, "partitions")
        return
    mask = (1 << k) - 1
    bits = "".join(f"{'1' * (gap >> k)}0{gap & mask:0{k}b}" for gap in gaps)
    size = -(-len(bits) // 8)
    writer.raw(int(bits.ljust(8 * size, "0") or "0", 2).to_bytes(size, "big"))


def read_packed(reader: Reader, count: int) -> tuple[int, ...]:
    """``count`` partitions (at least one), sorted.

    Raises
    ------
    WireError
        If the bytes cannot hold them, or they are not below the highest one.
    """
    start = reader.pos
    highest = reader.uvarint("partitions")
    if highest > INT32_MAX:
        reader.fail(Reason.OUT_OF_RANGE, "partitions", start, f"partition {highest}")
    if not 0 < count <= highest + 1 or count - 1 > reader.n_left:
        reader.fail(Reason.BAD_COUNT, "partitions", start, f"{count} up to {highest}")
    k = _bits(highest, count)
    others = _read_uvarints if k < RICE_FROM else _read_codes
    return (*others(reader, count - 1, highest, k), highest)


def _bits(highest: int, count: int) -> int:
    return ((highest + 1) // count).bit_length() - 1


def _read_uvarints(reader: Reader, count: int, highest: int, k: int) -> list[int]:
    found, last = [], -1
    for _ in range(count):
        start = reader.pos
        last += reader.uvarint("partitions") + 1
        if last >= highest:
            reader.fail(Reason.OUT_OF_RANGE, "partitions", start, f"{last} above {highest}")
        found.append(last)
    return found


def _read_codes(reader: Reader, count: int, highest: int, k: int) -> list[int]:
    start = reader.pos
    most = -(-(count * (k + 1) + (highest >> k)) // 8)
    data = reader.data[start : min(reader.end, start + most)]
    bits = f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}" if data else ""
    found, last, pos = [], -1, 0
    for _ in range(count):
        zero = bits.find("0", pos)
        after = zero + 1 + k
        if zero < 0 or after > len(bits):
            _fail_codes(reader, start, len(data) < most, last, highest)
        last += ((zero - pos) << k) + int(bits[zero + 1 : after], 2) + 1
        if last >= highest:
            _fail_codes(reader, start, False, last, highest)
        found.append(last)
        pos = after
    reader.pos = start + -(-pos // 8)
    return found


def _fail_codes(reader: Reader, start: int, truncated: bool, last: int, highest: int) -> None:
    if truncated:
        reader.fail(Reason.TRUNCATED, "partitions", start, "a set of partitions does not end")
    reader.fail(Reason.OUT_OF_RANGE, "partitions", start, f"{last} is not below {highest}")
