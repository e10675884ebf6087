"""Texts that Java classes log: a reader of class files, as far as that needs it.

**Strategy.** A call of a logger begins with the field that holds it; the first string loaded after
that is the text, and the method called at last is the level.

References: The Java Virtual Machine Specification, chapters 4 and 6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

LOGGER = "org/slf4j/Logger"
_POOL_BYTES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2}
_POOL_BYTES |= {17: 4, 18: 4, 19: 2, 20: 2}
_OPERANDS = {
    **dict.fromkeys((0x10, 0x12, *range(0x15, 0x1A), *range(0x36, 0x3B), 0xA9, 0xBC), 1),
    **dict.fromkeys((0x11, 0x13, 0x14, 0x84, *range(0x99, 0xA9), *range(0xB2, 0xB9)), 2),
    **dict.fromkeys((0xBB, 0xBD, 0xC0, 0xC1, 0xC6, 0xC7), 2),
    0xC5: 3,
    **dict.fromkeys((0xB9, 0xBA, 0xC8, 0xC9), 4),
}
_LDC, _LDC_W, _TABLE, _LOOKUP, _WIDE, _IINC = 0x12, 0x13, 0xAA, 0xAB, 0xC4, 0x84
_FIELDS = (0xB2, 0xB4)
_INTERFACE_CALL = 0xB9


class ClassFile:
    """The constants and the code of one class."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 8
        self.pool: dict[int, tuple[int, bytes]] = {}
        n, index = self._u2(), 1
        while index < n:
            tag = self._u1()
            size = self._u2() if tag == 1 else _POOL_BYTES[tag]
            self.pool[index] = tag, self.data[self.at : self.at + size]
            self.at += size
            index += 2 if tag in (5, 6) else 1
        self.after_pool = self.at

    def strings(self) -> list[str]:
        """All constants that are strings."""
        return [self.text(i) for i, (tag, _) in self.pool.items() if tag == 8]

    def logged(self) -> Iterator[tuple[str, str]]:
        """Level and text of each call of a logger."""
        for code in self._codes():
            text = None
            for op, operand in _instructions(code):
                if op in _FIELDS and self._member(operand)[2] == f"L{LOGGER};":
                    text = None
                elif op in (_LDC, _LDC_W) and text is None and self.pool[operand][0] == 8:
                    text = self.text(operand)
                elif op == _INTERFACE_CALL and text is not None:
                    owner, level, _ = self._member(operand)
                    if owner == LOGGER:
                        yield level, text
                        text = None

    def text(self, index: int) -> str:
        """A constant's text: of UTF-8, of a string, or a class's name."""
        tag, value = self.pool[index]
        if tag == 1:
            return value.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return self.text(struct.unpack(">H", value)[0])

    def _member(self, index: int) -> tuple[str, str, str]:
        """Class, name and type of a field or method."""
        owner, pair = struct.unpack(">HH", self.pool[index][1])
        name, kind = struct.unpack(">HH", self.pool[pair][1])
        return self.text(owner), self.text(name), self.text(kind)

    def _codes(self) -> Iterator[bytes]:
        self.at = self.after_pool + 6
        n_interfaces = self._u2()
        self.at += 2 * n_interfaces
        for _ in range(self._u2()):
            self.at += 6
            for _ in self._attributes():
                pass
        for _ in range(self._u2()):
            self.at += 6
            for name, begin in self._attributes():
                if name == "Code":
                    size = struct.unpack_from(">I", self.data, begin + 4)[0]
                    yield self.data[begin + 8 : begin + 8 + size]

    def _attributes(self) -> Iterator[tuple[str, int]]:
        for _ in range(self._u2()):
            name = self.text(self._u2())
            size = struct.unpack_from(">I", self.data, self.at)[0]
            begin = self.at + 4
            self.at = begin + size
            yield name, begin

    def _u1(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _u2(self) -> int:
        self.at += 2
        found: int = struct.unpack_from(">H", self.data, self.at - 2)[0]
        return found


def _instructions(code: bytes) -> Iterator[tuple[int, int]]:
    """Each instruction and, where it names a constant, the number of that."""
    at = 0
    while at < len(code):
        op = code[at]
        if op in (_TABLE, _LOOKUP):
            begin = (at + 4) & ~3
            first = struct.unpack_from(">i", code, begin + 4)[0]
            if op == _TABLE:
                last = struct.unpack_from(">i", code, begin + 8)[0]
                at = begin + 12 + 4 * (last - first + 1)
            else:
                at = begin + 8 + 8 * first
            continue
        if op == _WIDE:
            at += 6 if code[at + 1] == _IINC else 4
            continue
        size = _OPERANDS.get(op, 0)
        yield op, code[at + 1] if size == 1 else int.from_bytes(code[at + 1 : at + 3])
        at += 1 + size


def classes(jar: Path) -> Iterator[ClassFile]:
    """The classes of a jar that have a logger."""
    with ZipFile(jar) as packed:
        for name in packed.namelist():
            data = packed.read(name) if name.endswith(".class") else b""
            if LOGGER.encode() in data:
                yield ClassFile(data)
