"""Kafka's primitive types: a reader that never leaves its bytes, and a writer.

**Rules.**

* A failure is a :class:`WireError` with a :class:`Reason`, the schema, the version, the path of
  the field and the position at which the failing primitive *starts*.
* Nothing is allocated from a count or a length before the bytes left were seen to hold it: a count
  is compared with the bytes left divided by the smallest size of one element.
* Errors name fields as Kafka's schemas do, in snake case: ``owned_partitions[2].topic``.

**Strategy.** A :class:`Reader` is one ``bytes`` object, a position and an end. Nested readers are
plain functions ``Reader -> T`` passed to :meth:`Reader.array`. A path is built only when something
fails: an inner error passes through the array, which puts its own name in front.

References
----------
Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact types and tagged fields).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from struct import Struct
from struct import error as StructError  # noqa: N812 - `error` is the name of too many things
from typing import NoReturn, TypeVar
from uuid import UUID

from holdfast.errors import WireError

T = TypeVar("T")
TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]

INT16_MAX = 0x7FFF
INT32_MAX = 0x7FFFFFFF
UINT32_MAX = 0xFFFFFFFF

_INT8, _INT16, _INT32, _INT64, _FLOAT64 = (Struct(f) for f in (">b", ">h", ">i", ">q", ">d"))
_INT32S = tuple(Struct(f">{n}i") for n in range(64))


class Reason(StrEnum):
    """Why bytes could not be read or a value not written; the order is fixed (batch codes)."""

    TRUNCATED = "truncated"  # the bytes end inside a field
    BAD_LENGTH = "bad-length"  # a length below -1, or a string or tagged field of a wrong size
    BAD_COUNT = "bad-count"  # a count below -1, or one that the bytes left cannot hold
    UNEXPECTED_NULL = "unexpected-null"  # null where the schema has none
    BAD_UTF8 = "bad-utf8"  # a string that is not UTF-8
    BAD_VARINT = "bad-varint"  # a varint that does not end, or exceeds its width
    BAD_VERSION = "bad-version"  # a version below 0, or one that this schema does not have
    TRAILING_BYTES = "trailing-bytes"  # bytes left over where none may be
    BAD_MAGIC = "bad-magic"  # a frame that is not ours
    OUT_OF_RANGE = "out-of-range"  # a value outside what its field may hold
    UNKNOWN_TYPE = "unknown-type"  # a record type that is not known


class Reader:
    """A position in immutable bytes, for one schema.

    Parameters
    ----------
    data : bytes
        The whole input.
    schema : str
        Kafka's name of the schema, for errors.
    version : int, optional
        Version being read; may be set once it is known.
    """

    __slots__ = ("data", "end", "n_unknown_tags", "pos", "schema", "version")

    def __init__(self, data: bytes, schema: str, version: int | None = None):
        self.data = data
        self.end = len(data)
        self.pos = 0
        self.schema = schema
        self.version = version
        self.n_unknown_tags = 0

    def fail(
        self, reason: Reason, field: str, position: int | None = None, detail: str = ""
    ) -> NoReturn:
        """Raise a :class:`WireError` for ``field`` at ``position`` (default: here)."""
        raise WireError(
            reason,
            schema=self.schema,
            version=self.version,
            field=field,
            position=self.pos if position is None else position,
            detail=detail,
        )

    @property
    def n_left(self) -> int:
        """Bytes not yet read."""
        return self.end - self.pos

    def finish(self, field: str = "end") -> None:
        """Refuse bytes left over."""
        if self.pos != self.end:
            self.fail(Reason.TRAILING_BYTES, field, detail=f"{self.n_left} bytes left over")

    def skip(self, n_bytes: int, field: str) -> None:
        """Step over ``n_bytes`` (not negative)."""
        if n_bytes > self.end - self.pos:
            self.fail(Reason.TRUNCATED, field, detail=f"{n_bytes} bytes expected")
        self.pos += n_bytes

    # Fixed size

    def int8(self, field: str) -> int:
        """One signed byte."""
        return self._fixed(_INT8, field)

    def int16(self, field: str) -> int:
        """Two bytes, signed, big endian."""
        return self._fixed(_INT16, field)

    def int32(self, field: str) -> int:
        """Four bytes, signed, big endian."""
        return self._fixed(_INT32, field)

    def int64(self, field: str) -> int:
        """Eight bytes, signed, big endian."""
        return self._fixed(_INT64, field)

    def float64(self, field: str) -> float:
        """Eight bytes, IEEE 754, big endian."""
        pos = self.pos
        self.skip(8, field)
        value: float = _FLOAT64.unpack_from(self.data, pos)[0]
        return value

    def boolean(self, field: str) -> bool:
        """One byte; 0 is false and, as Kafka reads it, anything else is true."""
        return self._fixed(_INT8, field) != 0

    def uuid(self, field: str) -> UUID:
        """Sixteen bytes."""
        pos = self.pos
        self.skip(16, field)
        return UUID(bytes=self.data[pos : pos + 16])

    def _fixed(self, layout: Struct, field: str) -> int:
        pos = self.pos
        after = pos + layout.size
        if after > self.end:
            self.fail(Reason.TRUNCATED, field, detail=f"{layout.size} bytes expected")
        self.pos = after
        value: int = layout.unpack_from(self.data, pos)[0]
        return value

    # Varints

    def uvarint(self, field: str) -> int:
        """Unsigned varint of at most 32 bits: 1 to 5 bytes, least significant first."""
        return self._uvarint(field, 32)

    def uvarlong(self, field: str) -> int:
        """Unsigned varint of at most 64 bits: 1 to 10 bytes."""
        return self._uvarint(field, 64)

    def varint(self, field: str) -> int:
        """Signed (zigzag) varint of 32 bits."""
        value = self._uvarint(field, 32)
        return (value >> 1) ^ -(value & 1)

    def _uvarint(self, field: str, n_bits: int) -> int:
        data, start, end = self.data, self.pos, self.end
        pos, shift, value = start, 0, 0
        while True:
            if pos == end:
                self.fail(Reason.TRUNCATED, field, start, "a varint does not end")
            byte = data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if value >> n_bits or (byte & 0x80 and shift >= n_bits):
                self.fail(Reason.BAD_VARINT, field, start, f"more than {n_bits} bits")
            if byte < 0x80:
                self.pos = pos
                return value

    # Strings and bytes

    def string(self, field: str) -> str:
        """An int16 length and UTF-8."""
        start = self.pos
        return self._present(self.nullable_string(field), field, start)

    def nullable_string(self, field: str) -> str | None:
        """An int16 length (-1: null) and UTF-8."""
        start = self.pos
        return self._text(start, self.int16(field), field)

    def bytes_(self, field: str) -> bytes:
        """An int32 length and bytes."""
        start = self.pos
        return self._present(self.nullable_bytes(field), field, start)

    def nullable_bytes(self, field: str) -> bytes | None:
        """An int32 length (-1: null) and bytes."""
        start = self.pos
        return self._blob(start, self.int32(field), field)

    def compact_string(self, field: str) -> str:
        """An unsigned varint length + 1 and UTF-8."""
        start = self.pos
        return self._present(self.nullable_compact_string(field), field, start)

    def nullable_compact_string(self, field: str) -> str | None:
        """An unsigned varint length + 1 (0: null) and UTF-8."""
        start = self.pos
        size = self.uvarint(field) - 1
        if size > INT16_MAX:
            self.fail(Reason.BAD_LENGTH, field, start, f"string of {size} bytes")
        return self._text(start, size, field)

    def compact_bytes(self, field: str) -> bytes:
        """An unsigned varint length + 1 and bytes."""
        start = self.pos
        return self._present(self.nullable_compact_bytes(field), field, start)

    def nullable_compact_bytes(self, field: str) -> bytes | None:
        """An unsigned varint length + 1 (0: null) and bytes."""
        start = self.pos
        return self._blob(start, self.uvarint(field) - 1, field)

    def _present(self, value: T | None, field: str, start: int) -> T:
        if value is None:
            self.fail(Reason.UNEXPECTED_NULL, field, start)
        return value

    def _text(self, start: int, size: int, field: str) -> str | None:
        blob = self._blob(start, size, field)
        try:
            return None if blob is None else blob.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(Reason.BAD_UTF8, field, start, f"{error.reason} at byte {error.start} of it")

    def _blob(self, start: int, size: int, field: str) -> bytes | None:
        if size < 0:
            if size < -1:
                self.fail(Reason.BAD_LENGTH, field, start, f"length {size}")
            return None
        pos = self.pos
        if size > self.end - pos:
            self.fail(Reason.TRUNCATED, field, start, f"{size} bytes expected")
        self.pos = pos + size
        return self.data[pos : pos + size]

    # Arrays

    def array(self, field: str, element: Callable[[Reader], T], min_size: int) -> tuple[T, ...]:
        """An int32 count and that many elements, each of at least ``min_size`` bytes (> 0)."""
        start = self.pos
        return self._present(self.nullable_array(field, element, min_size), field, start)

    def nullable_array(
        self, field: str, element: Callable[[Reader], T], min_size: int
    ) -> tuple[T, ...] | None:
        """As :meth:`array`; a count of -1 is null."""
        start = self.pos
        return self._items(start, self.int32(field), field, element, min_size)

    def compact_array(
        self, field: str, element: Callable[[Reader], T], min_size: int
    ) -> tuple[T, ...]:
        """An unsigned varint count + 1 and that many elements."""
        start = self.pos
        return self._present(self.nullable_compact_array(field, element, min_size), field, start)

    def nullable_compact_array(
        self, field: str, element: Callable[[Reader], T], min_size: int
    ) -> tuple[T, ...] | None:
        """As :meth:`compact_array`; 0 is null."""
        start = self.pos
        return self._items(start, self.uvarint(field) - 1, field, element, min_size)

    def int32s(self, field: str) -> tuple[int, ...]:
        """An int32 count and that many int32."""
        start = self.pos
        count = self._count(start, self.int32(field), field, 4)
        return self._int32s(self._present(count, field, start))

    def compact_int32s(self, field: str) -> tuple[int, ...]:
        """An unsigned varint count + 1 and that many int32."""
        start = self.pos
        count = self._count(start, self.uvarint(field) - 1, field, 4)
        return self._int32s(self._present(count, field, start))

    def _int32s(self, count: int) -> tuple[int, ...]:
        pos = self.pos
        self.pos = pos + 4 * count
        layout = _INT32S[count] if count < 64 else Struct(f">{count}i")
        return layout.unpack_from(self.data, pos)

    def _count(self, start: int, count: int, field: str, min_size: int) -> int | None:
        if count < 0:
            if count < -1:
                self.fail(Reason.BAD_COUNT, field, start, f"count {count}")
            return None
        if count > (self.end - self.pos) // min_size:
            self.fail(Reason.BAD_COUNT, field, start, f"{count} elements in {self.n_left} bytes")
        return count

    def _items(
        self, start: int, count: int, field: str, element: Callable[[Reader], T], min_size: int
    ) -> tuple[T, ...] | None:
        if self._count(start, count, field, min_size) is None:
            return None
        items: list[T] = []
        try:
            for _ in range(count):
                items.append(element(self))  # noqa: PERF401 - the length names the failing one
        except WireError as error:
            raise within(f"{field}[{len(items)}]", error) from None
        return tuple(items)

    # Tagged fields

    def tagged(
        self, known: Mapping[int, tuple[str, Callable[[Reader], object]]] | None = None
    ) -> dict[int, object]:
        """Tagged fields at the end of a flexible struct.

        Parameters
        ----------
        known : mapping of tag to (field, reader), optional
            Tags to read. Others are stepped over and counted in ``n_unknown_tags``.

        Returns
        -------
        dict of tag to value
            Only tags that were there. A tag written twice keeps its last value, as in Kafka.

        References
        ----------
        KIP-482; KIP-915 (unknown tags are skipped).
        """
        values: dict[int, object] = {}
        for _ in range(self.uvarint("tagged_fields")):
            tag = self.uvarint("tagged_fields")
            start = self.pos
            size = self.uvarint("tagged_fields")
            if known is None or tag not in known:
                self._need(start, size, "tagged_fields")
                self.pos += size
                self.n_unknown_tags += 1
            else:
                field, element = known[tag]
                self._need(start, size, field)
                values[tag] = self._bounded(field, element, size)
        return values

    def _need(self, start: int, size: int, field: str) -> None:
        if size > self.end - self.pos:
            self.fail(Reason.TRUNCATED, field, start, f"{size} bytes expected")

    def _bounded(self, field: str, element: Callable[[Reader], T], size: int) -> T:
        start, outer_end = self.pos, self.end
        self.end = start + size
        try:
            value = element(self)
        except WireError as error:
            raise within(field, error) from None
        if self.pos != self.end:
            self.fail(Reason.BAD_LENGTH, field, start, f"{self.n_left} bytes too many")
        self.end = outer_end
        return value


def within(outer: str, error: WireError) -> WireError:
    """The same error with ``outer`` in front of its field."""
    return WireError(
        error.reason,
        schema=error.schema,
        version=error.version,
        field=f"{outer}.{error.field}" if error.field else outer,
        position=error.position,
        detail=error.detail,
    )


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
        """Everything written."""
        return bytes(self._out)

    def fail(self, reason: Reason, field: str, detail: str = "") -> NoReturn:
        """Raise a :class:`WireError` for ``field``."""
        raise WireError(
            reason, schema=self.schema, version=self.version, field=field, detail=detail
        )

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._out += data

    def int8(self, value: int, field: str) -> None:
        """One signed byte."""
        self._fixed(_INT8, value, field)

    def int16(self, value: int, field: str) -> None:
        """Two bytes."""
        self._fixed(_INT16, value, field)

    def int32(self, value: int, field: str) -> None:
        """Four bytes."""
        self._fixed(_INT32, value, field)

    def int64(self, value: int, field: str) -> None:
        """Eight bytes."""
        self._fixed(_INT64, value, field)

    def float64(self, value: float, field: str) -> None:
        """Eight bytes, IEEE 754."""
        self._fixed(_FLOAT64, value, field)

    def boolean(self, value: bool, field: str) -> None:
        """One byte, 0 or 1."""
        self._fixed(_INT8, int(value), field)

    def uuid(self, value: UUID) -> None:
        """Sixteen bytes."""
        self._out += value.bytes

    def _fixed(self, layout: Struct, value: float, field: str) -> None:
        try:
            self._out += layout.pack(value)
        except StructError as error:
            self.fail(Reason.OUT_OF_RANGE, field, f"{value!r}: {error}")

    def uvarint(self, value: int, field: str) -> None:
        """Unsigned varint of at most 32 bits."""
        self._uvarint(value, field, 32)

    def uvarlong(self, value: int, field: str) -> None:
        """Unsigned varint of at most 64 bits."""
        self._uvarint(value, field, 64)

    def varint(self, value: int, field: str) -> None:
        """Signed (zigzag) varint of 32 bits."""
        if value >> 31 not in (0, -1):
            self.fail(Reason.OUT_OF_RANGE, field, f"{value} is no int32")
        self._uvarint((value << 1) ^ (value >> 31), field, 32)

    def _uvarint(self, value: int, field: str, n_bits: int) -> None:
        if value < 0 or value >> n_bits:
            self.fail(Reason.OUT_OF_RANGE, field, f"{value} needs more than {n_bits} bits")
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)

    def string(self, value: str | None, field: str, *, nullable: bool = False) -> None:
        """An int16 length and UTF-8; null only where ``nullable``."""
        blob = self._encoded(value, field, nullable)
        self._out += _INT16.pack(-1 if blob is None else len(blob))
        self._out += blob or b""

    def bytes_(self, value: bytes | None, field: str, *, nullable: bool = False) -> None:
        """An int32 length and bytes."""
        self._require(value, field, nullable)
        self._out += _INT32.pack(-1 if value is None else len(value))
        self._out += value or b""

    def compact_string(self, value: str | None, field: str, *, nullable: bool = False) -> None:
        """An unsigned varint length + 1 and UTF-8."""
        blob = self._encoded(value, field, nullable)
        self.uvarint(0 if blob is None else len(blob) + 1, field)
        self._out += blob or b""

    def compact_bytes(self, value: bytes | None, field: str, *, nullable: bool = False) -> None:
        """An unsigned varint length + 1 and bytes."""
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
        """An int32 count and the elements."""
        self._require(values, field, nullable)
        self._out += _INT32.pack(-1 if values is None else len(values))
        self._items(values or (), field, element)

    def compact_array(
        self,
        values: Sequence[T] | None,
        field: str,
        element: Callable[[Writer, T], None],
        *,
        nullable: bool = False,
    ) -> None:
        """An unsigned varint count + 1 and the elements."""
        self._require(values, field, nullable)
        self.uvarint(0 if values is None else len(values) + 1, field)
        self._items(values or (), field, element)

    def _items(self, values: Iterable[T], field: str, element: Callable[[Writer, T], None]) -> None:
        index = 0
        try:
            for index, value in enumerate(values):  # noqa: B007 - the index names the failing one
                element(self, value)
        except WireError as error:
            raise within(f"{field}[{index}]", error) from None

    def int32s(self, values: Sequence[int], field: str) -> None:
        """An int32 count and that many int32."""
        self._out += _INT32.pack(len(values))
        self._int32s(values, field)

    def compact_int32s(self, values: Sequence[int], field: str) -> None:
        """An unsigned varint count + 1 and that many int32."""
        self.uvarint(len(values) + 1, field)
        self._int32s(values, field)

    def _int32s(self, values: Sequence[int], field: str) -> None:
        count = len(values)
        layout = _INT32S[count] if count < 64 else Struct(f">{count}i")
        try:
            self._out += layout.pack(*values)
        except StructError:  # name the first one that does not fit
            for index, value in enumerate(values):
                self._fixed(_INT32, value, f"{field}[{index}]")

    def tagged(self, fields: Sequence[tuple[int, str, Callable[[Writer], None]]] = ()) -> None:
        """Tagged fields, by ascending tag: (tag, field, what writes it)."""
        self.uvarint(len(fields), "tagged_fields")
        for tag, field, write in sorted(fields, key=lambda entry: entry[0]):
            inner = Writer(self.schema, self.version)
            try:
                write(inner)
            except WireError as error:
                raise within(field, error) from None
            self.uvarint(tag, "tagged_fields")
            self.uvarint(len(inner._out), field)
            self._out += inner._out


# What both Kafka's consumer protocol and the Designs are made of: (Topic, Partitions)


def read_topic_partitions(reader: Reader) -> tuple[str, tuple[int, ...]]:
    """One ``Topic string, Partitions []int32``; at least :data:`TOPIC_PARTITIONS_MIN` bytes."""
    return reader.string("topic"), reader.int32s("partitions")


def write_topic_partitions(writer: Writer, value: tuple[str, tuple[int, ...]]) -> None:
    """Write what :func:`read_topic_partitions` reads."""
    writer.string(value[0], "topic")
    writer.int32s(value[1], "partitions")


def read_string(reader: Reader) -> str:
    """A string as an array's element."""
    return reader.string("")


def write_string(writer: Writer, value: str) -> None:
    """A string as an array's element."""
    writer.string(value, "")


TOPIC_PARTITIONS_MIN = 6
STRING_MIN = 2
