"""Fields of single bits, and sets of partitions in few bits, for a state shard.

A text of the characters 0 and 1 becomes bytes at the end.

==================  ================================================================================
field               bits
==================  ================================================================================
number              of a width that the reader knows, the highest bit first
uvarint             as in bytes: seven bits of the number after a bit that says whether more follow
gamma(n), n > 0     one 0 fewer than n has binary digits, then the digits: 1 is 1, 2 is 010, 5 is
                    00101
rice(n, k)          n >> k bits 1, a bit 0, then the last k bits of n
==================  ================================================================================

**Rules.** The last byte is filled up with bits 0. A reader reads no bit beyond the end, and a
length that it reads allocates nothing.

**Strategy.** A text of bits is sliced and searched in C. Written fields are texts, so what many
messages have in common is written once and joined.

References: Elias, "Universal Codeword Sets and Representations of the Integers" (1975); Rice, "Some
Practical Universal Noiseless Coding Techniques" (1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

from holdfast.core.wire.one.reader import Reader
from holdfast.errors import Reason

_LONGEST_GAMMA = 40
_LONGEST_UVARINT = 5


def number(value: int, width: int) -> str:
    """Return the bits of a number of 0 to 2**width - 1."""
    return f"{value:0{width}b}" if width else ""


def uvarint(value: int) -> str:
    """Return the bits of a number from 0 on, in groups of eight bits."""
    groups = []
    while value > 0x7F:
        groups.append(f"{value & 0x7F | 0x80:08b}")
        value >>= 7
    groups.append(f"{value:08b}")
    return "".join(groups)


def gamma(value: int) -> str:
    """Return the bits of a number from 1 on; small numbers are short."""
    digits = f"{value:b}"
    return "0" * (len(digits) - 1) + digits


def rice(value: int, k: int) -> str:
    """Return the bits of a number from 0 on that is about 2**k."""
    return f"{'1' * (value >> k)}0{number(value & (1 << k) - 1, k)}"


def to_bytes(text: str) -> bytes:
    """Return the text as bytes, filled up with bits 0."""
    size = -(-len(text) // 8)
    return int(text.ljust(8 * size, "0") or "0", 2).to_bytes(size, "big")


class Bits:
    """A position in the bits of a reader's bytes."""

    __slots__ = ("at", "reader", "text")

    def __init__(self, reader: Reader):
        data = reader.data[: reader.end]
        self.reader = reader
        self.text = f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}" if data else ""
        self.at = 8 * reader.pos

    @property
    def n_left(self) -> int:
        """Bits not yet read."""
        return len(self.text) - self.at

    def fail(self, reason: Reason, field: str, at: int, detail: str = "") -> NoReturn:
        """Raise a ``WireError`` for the field that starts at this bit."""
        self.reader.fail(reason, field, min(at, len(self.text)) // 8, detail)

    def take(self, width: int, field: str) -> str:
        """Read the next bits."""
        start = self.at
        if width > len(self.text) - start:
            self.fail(Reason.TRUNCATED, field, start, f"{width} bits expected")
        self.at = start + width
        return self.text[start : self.at]

    def number(self, width: int, field: str) -> int:
        """Read a number of ``width`` bits."""
        return int(self.take(width, field), 2) if width else 0

    def flag(self, field: str) -> bool:
        """Read one bit."""
        return self.take(1, field) == "1"

    def uvarint(self, field: str) -> int:
        """Read a number in groups of eight bits."""
        start, value, group = self.at, 0, 0x80
        for shift in range(0, 7 * _LONGEST_UVARINT, 7):
            if group < 0x80:
                break
            group = self.number(8, field)
            value |= (group & 0x7F) << shift
        if group >= 0x80:
            self.fail(Reason.BAD_VARINT, field, start, "does not end")
        return value

    def gamma(self, field: str) -> int:
        """Read a number from 1 on."""
        start = self.at
        one = self.text.find("1", start, start + _LONGEST_GAMMA)
        if one < 0:
            long = self.n_left >= _LONGEST_GAMMA
            self.fail(Reason.BAD_VARINT if long else Reason.TRUNCATED, field, start)
        self.at = one
        return self.number(one - start + 1, field)

    def rice(self, k: int, field: str) -> int:
        """Read a number that is about 2**k."""
        start = self.at
        zero = self.text.find("0", start)
        if zero < 0:
            self.fail(Reason.TRUNCATED, field, start, "no bit 0")
        self.at = zero + 1
        return (zero - start) << k | self.number(k, field)


# Sets of partitions in few bits: the leader state holds three copies of each.
#
# A *packed set* has at least one partition, all below 2**width. Its count and the width precede it,
# in fields of the caller. The set itself is, for each partition in ascending order, the gap to the
# one before less one, as a Rice code. Its ``k`` is the width less the count's binary digits, at
# least 7, and never more than the width. Example: {0, 2, 9} with a width of 4 is 00000 00001 00110.
#
# A code takes at least 8 bits, or the partitions are below 128: a count is checked against that
# before anything is read. At most 2 * count + 1 bits are quotients, whatever the partitions are.
#
# References: ``bits``.


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
