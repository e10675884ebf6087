"""Sets of partitions in few bits: the leader state holds three copies of each.

**Rules.** A *packed set* has at least one partition, all below 2**width. Its count and the width
precede it, in fields of the caller. The set itself is, for each partition in ascending order, the
gap to the one before less one, as a Rice code. Its ``k`` is the width less the count's binary
digits, at least 7, and never more than the width. Example: {0, 2, 9} with a width of 4 is 00000
00001 00110.

A code takes at least 8 bits, or the partitions are below 128: a count is checked against that
before anything is read. At most 2 * count + 1 bits are quotients, whatever the partitions are.

References: :mod:`holdfast.core.wire.one.bits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from holdfast.core.wire.one.bits import Bits, rice
from holdfast.core.wire.one.reasons import Reason

LEAST_BITS = 7
"""The smallest ``k`` of wider sets."""


def packed(partitions: Sequence[int], width: int) -> str:
    """Return the bits of partitions below 2**width, sorted and distinct, at least one."""
    k = _bits_a_gap(len(partitions), width)
    gaps = [after - before - 1 for before, after in pairwise((-1, *partitions))]
    return "".join(rice(gap, k) for gap in gaps)


def read_packed(bits: Bits, count: int, width: int, field: str) -> tuple[int, ...]:
    """Read ``count`` partitions (at least one) below 2**width, sorted."""
    start, k = bits.at, _bits_a_gap(count, width)
    if count > min(1 << width, bits.n_left // (k + 1)):
        bits.fail(Reason.BAD_COUNT, field, start, f"{count} of {width} bits")
    found, last = [], -1
    for _ in range(count):
        at = bits.at
        last += 1 + bits.rice(k, field)
        if last >> width:
            bits.fail(Reason.OUT_OF_RANGE, field, at, f"{last} has more than {width} bits")
        found.append(last)
    return tuple(found)


def _bits_a_gap(count: int, width: int) -> int:
    return min(width, max(LEAST_BITS, width - count.bit_length()))
