"""Writing Kafka's primitive types.

**Rules.** A value that does not fit its field is refused, and never shortened.

**Strategy.** As in :mod:`holdfast.core.wire.one.reader`: nested writers are plain functions, and
the path of a field is built only when something fails.

References: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact types and tagged
fields).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - `error` is the name of too many things
from typing import NoReturn, TypeVar
from uuid import UUID

from holdfast.core.wire.one.reader import INT8, INT16, INT16_MAX, INT32, INT64, int32s_layout
from holdfast.errors import Reason, WireError

T = TypeVar("T")


class Writer:
    """Bytes being written, for one schema; every method returns nothing.

    Parameters
    ----------
    schema : str
        Kafka's name of the schema, for errors.
    version : int, optional
        Version being written.
    """

    __slots__ = ("_out", "schema", "version")

    def __init__(self, schema: str, version: int | None = None):
        self._out = bytearray()
        self.schema = schema
        self.version = version

    def done(self) -> bytes:
        """Return everything written."""
        return bytes(self._out)

    def fail(self, reason: Reason, field: str, detail: str = "") -> NoReturn:
        """Raise a :class:`WireError` for ``field``."""
        raise WireError(
            reason, schema=self.schema, version=self.version, field=field, detail=detail
        )

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged."""
        self._out += data

    def int8(self, value: int, field: str) -> None:
        """Write one signed byte."""
        self._fixed(INT8, value, field)

    def int16(self, value: int, field: str) -> None:
        """Write two bytes."""
        self._fixed(INT16, value, field)

    def int32(self, value: int, field: str) -> None:
        """Write four bytes."""
        self._fixed(INT32, value, field)

    def int64(self, value: int, field: str) -> None:
        """Write eight bytes."""
        self._fixed(INT64, value, field)

    def uuid(self, value: UUID) -> None:
        """Write sixteen bytes."""
        self._out += value.bytes

    def _fixed(self, layout: Struct, value: int, field: str) -> None:
        try:
            self._out += layout.pack(value)
        except StructError as error:
            self.fail(Reason.OUT_OF_RANGE, field, f"{value!r}: {error}")

    def uvarint(self, value: int, field: str) -> None:
        """Write an unsigned varint of at most 32 bits."""
        if 0 <= value < 0x80:  # mostly
            self._out.append(value)
            return
        if value < 0 or value >> 32:
            self.fail(Reason.OUT_OF_RANGE, field, f"{value} needs more than 32 bits")
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)

    def string(self, value: str | None, field: str, *, nullable: bool = False) -> None:
        """Write an int16 length and UTF-8; null only where ``nullable``."""
        blob = self._encoded(value, field, nullable)
        self._out += INT16.pack(-1 if blob is None else len(blob))
        self._out += blob or b""

    def bytes_(self, value: bytes | None, field: str, *, nullable: bool = False) -> None:
        """Write an int32 length and bytes."""
        self._require(value, field, nullable)
        self._out += INT32.pack(-1 if value is None else len(value))
        self._out += value or b""

    def compact_string(self, value: str | None, field: str, *, nullable: bool = False) -> None:
        """Write an unsigned varint length + 1 and UTF-8."""
        blob = self._encoded(value, field, nullable)
        self.uvarint(0 if blob is None else len(blob) + 1, field)
        self._out += blob or b""

    def compact_bytes(self, value: bytes | None, field: str, *, nullable: bool = False) -> None:
        """Write an unsigned varint length + 1 and bytes."""
        self._require(value, field, nullable)
        self.uvarint(0 if value is None else len(value) + 1, field)
        self._out += value or b""

    def _require(self, value: object, field: str, nullable: bool) -> None:
        if value is None and not nullable:
            self.fail(Reason.UNEXPECTED_NULL, field)

    def _encoded(self, value: str | None, field: str, nullable: bool) -> bytes | None:
        self._require(value, field, nullable)
        if value is None:
            return None
        try:
            blob = value.encode("utf-8")
        except UnicodeEncodeError as error:
            self.fail(Reason.BAD_UTF8, field, error.reason)
        if len(blob) > INT16_MAX:
            self.fail(Reason.BAD_LENGTH, field, f"string of {len(blob)} bytes")
        return blob

    def array(
        self,
        values: Sequence[T] | None,
        field: str,
        element: Callable[[Writer, T], None],
        *,
        nullable: bool = False,
    ) -> None:
        """Write an int32 count and the elements."""
        self._require(values, field, nullable)
        self._out += INT32.pack(-1 if values is None else len(values))
        self._items(values or (), field, element)

    def compact_array(
        self,
        values: Sequence[T] | None,
        field: str,
        element: Callable[[Writer, T], None],
        *,
        nullable: bool = False,
    ) -> None:
        """Write an unsigned varint count + 1 and the elements."""
        self._require(values, field, nullable)
        self.uvarint(0 if values is None else len(values) + 1, field)
        self._items(values or (), field, element)

    def _items(self, values: Iterable[T], field: str, element: Callable[[Writer, T], None]) -> None:
        index = 0
        try:
            for index, value in enumerate(values):  # noqa: B007 - the index names the failing one
                element(self, value)
        except WireError as error:
            raise error.within(f"{field}[{index}]") from None

    def int32s(self, values: Sequence[int], field: str) -> None:
        """Write an int32 count and that many int32."""
        layout = int32s_layout(len(values))
        self._out += INT32.pack(len(values))
        try:
            self._out += layout.pack(*values)
        except StructError as error:
            index = next(i for i, value in enumerate(values) if not _is_int32(value))
            self.fail(Reason.OUT_OF_RANGE, f"{field}[{index}]", f"{values[index]!r}: {error}")

    def tagged(self, fields: Sequence[tuple[int, str, Callable[[Writer], None]]] = ()) -> None:
        """Write tagged fields, by ascending tag: (tag, field, function that writes it)."""
        self.uvarint(len(fields), "tagged_fields")
        for tag, field, write in sorted(fields, key=lambda entry: entry[0]):
            inner = Writer(self.schema, self.version)
            try:
                write(inner)
            except WireError as error:
                raise error.within(field) from None
            self.uvarint(tag, "tagged_fields")
            self.uvarint(len(inner._out), field)
            self._out += inner._out


def _is_int32(value: int) -> bool:
    try:
        INT32.pack(value)
    except StructError:
        return False
    return True


def write_topic_partitions(writer: Writer, value: tuple[str, tuple[int, ...]]) -> None:
    """Write one ``Topic string, Partitions []int32``."""
    writer.string(value[0], "topic")
    writer.int32s(value[1], "partitions")


def write_string(writer: Writer, value: str) -> None:
    """Write a string as an array's element."""
    writer.string(value, "")
