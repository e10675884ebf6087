"""Footers of Parquet that lie: every number of one, one after the other, as another number."""

from __future__ import annotations

from collections.abc import Iterator

LIES = (-1, 0, 1, 7, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))


def varint(number: int) -> bytes:
    """A number as Thrift's compact protocol writes it, without its sign."""
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


class Numbers:
    """Where the numbers of a struct of the compact protocol begin and end."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0
        self.places: list[tuple[int, int]] = []
        self.struct()

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    def struct(self) -> None:
        while kind := self.byte():
            if not kind >> 4:
                self.number()
            self.value(kind & 15)

    def value(self, kind: int, *, in_list: bool = False) -> None:
        begin = self.at
        if kind == 12:
            self.struct()
        elif kind == 9:
            head = self.byte()
            size = head >> 4 if head >> 4 < 15 else self.number()
            for _ in range(size):
                self.value(head & 15, in_list=True)
        elif kind == 8:
            size = self.number()
            self.at += size
        elif kind in (4, 5, 6):
            self.number()
            self.places.append((begin, self.at))
        else:
            self.at += {1: in_list, 2: in_list, 3: 1, 7: 8}[kind]


def forged(file: bytes) -> Iterator[bytes]:
    """A file under each of its footers that lie."""
    size = int.from_bytes(file[-8:-4], "little")
    rows, footer = file[: -8 - size], file[-8 - size : -8]
    for begin, end in Numbers(footer).places:
        for lie in LIES:
            number = varint((lie << 1 ^ lie >> 63) & 2**64 - 1)
            other = footer[:begin] + number + footer[end:]
            yield rows + other + len(other).to_bytes(4, "little") + file[-4:]
    for other_size in (0, 1, size - 1, size + 1, 2**31 - 1, 2**32 - 1):
        yield file[:-8] + other_size.to_bytes(4, "little") + file[-4:]
