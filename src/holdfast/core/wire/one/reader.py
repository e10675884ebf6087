"""Reading Kafka's primitive types: a position in bytes that never goes beyond their end.

**Rules.** A count or a length allocates nothing before it is checked: the bytes left must hold that
many elements of the smallest possible size. Example: 100 bytes left and a count of 30 strings is
allowed, because a string has at least two bytes; a count of 60 is refused.

**Strategy.** Nested readers are plain functions ``Reader -> T`` passed to :meth:`Reader.array`. The
path of a field is built only when something fails: each array puts its own name in front of the
error that its element raised.

References: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact types and tagged
fields).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from struct import Struct
from struct import error as StructError  # noqa: N812 - `error` is the name of too many things
from typing import Any, NoReturn, TypeVar, overload
from uuid import UUID

from holdfast.core.model.partitions import TopicPartitions
from holdfast.errors import Reason, WireError

T = TypeVar("T")
INT16_MAX = 0x7FFF
INT8, INT16, INT32, INT64 = (Struct(f) for f in (">b", ">h", ">i", ">q"))
STRING_MIN = 2
"""Bytes of the shortest string."""
TOPIC_PARTITIONS_MIN = 6
"""Bytes of the shortest ``Topic string, Partitions []int32``."""


@lru_cache(maxsize=1024)
def int32s_layout(count: int) -> Struct:
    """Return the layout of ``count`` int32."""
    return Struct(f">{count}i")


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
        """Skip ``n_bytes`` (not negative)."""
        if n_bytes > self.end - self.pos:
            self.fail(Reason.TRUNCATED, field, detail=f"{n_bytes} bytes expected")
        self.pos += n_bytes

    # Fixed size

    def int8(self, field: str) -> int:
        """Read one signed byte."""
        return self._fixed(INT8, field)

    def int16(self, field: str) -> int:
        """Read two bytes, signed, big endian."""
        return self._fixed(INT16, field)

    def int32(self, field: str) -> int:
        """Read four bytes, signed, big endian."""
        return self._fixed(INT32, field)

    def int64(self, field: str) -> int:
        """Read eight bytes, signed, big endian."""
        return self._fixed(INT64, field)

    def uuid(self, field: str) -> UUID:
        """Read sixteen bytes."""
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

    # Shared by several schemas

    def leading_version(self, highest: int, lowest: int = 0) -> int:
        """Read an int16 version: below ``lowest`` is refused, above ``highest`` is that one."""
        start = self.pos
        version = self.int16("version")
        if version < lowest:
            self.fail(Reason.BAD_VERSION, "version", start, f"{version} is below {lowest}")
        self.version = min(version, highest)
        return self.version

    def delay_ms(self, field: str) -> int:
        """Read an int32 of remaining ms; a negative one is refused."""
        start = self.pos
        time_ms = self.int32(field)
        if time_ms < 0:
            self.fail(Reason.OUT_OF_RANGE, field, start, f"{time_ms} ms is negative")
        return time_ms

    # Varints

    def uvarint(self, field: str) -> int:
        """Read an unsigned varint of at most 32 bits: 1 to 5 bytes, least significant first."""
        pos = self.pos
        if pos < self.end and (byte := self.data[pos]) < 0x80:  # mostly
            self.pos = pos + 1
            return byte
        return self._long_uvarint(field)

    def _long_uvarint(self, field: str) -> int:
        data, start, end = self.data, self.pos, self.end
        pos, shift, value = start, 0, 0
        while True:
            if pos == end:
                self.fail(Reason.TRUNCATED, field, start, "a varint does not end")
            byte = data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if value >> 32 or (byte & 0x80 and shift >= 32):
                self.fail(Reason.BAD_VARINT, field, start, "more than 32 bits")
            if byte < 0x80:
                self.pos = pos
                return value

    # Strings and bytes

    def string(self, field: str) -> str:
        """Read an int16 length and UTF-8."""
        start = self.pos
        return self._present(self.nullable_string(field), field, start)

    def nullable_string(self, field: str) -> str | None:
        """Read an int16 length (-1: null) and UTF-8."""
        start = self.pos
        return self._text(start, self.int16(field), field)

    def bytes_(self, field: str) -> bytes:
        """Read an int32 length and bytes."""
        start = self.pos
        return self._present(self.nullable_bytes(field), field, start)

    def nullable_bytes(self, field: str) -> bytes | None:
        """Read an int32 length (-1: null) and bytes."""
        start = self.pos
        return self._blob(start, self.int32(field), field)

    def compact_string(self, field: str) -> str:
        """Read an unsigned varint length + 1 and UTF-8."""
        start = self.pos
        return self._present(self.nullable_compact_string(field), field, start)

    def nullable_compact_string(self, field: str) -> str | None:
        """Read an unsigned varint length + 1 (0: null) and UTF-8."""
        start = self.pos
        size = self.uvarint(field) - 1
        if size > INT16_MAX:
            self.fail(Reason.BAD_LENGTH, field, start, f"string of {size} bytes")
        return self._text(start, size, field)

    def compact_bytes(self, field: str) -> bytes:
        """Read an unsigned varint length + 1 and bytes."""
        start = self.pos
        return self._present(self.nullable_compact_bytes(field), field, start)

    def nullable_compact_bytes(self, field: str) -> bytes | None:
        """Read an unsigned varint length + 1 (0: null) and bytes."""
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
        """Read an int32 count and that many elements, each of at least ``min_size`` bytes (> 0)."""
        start = self.pos
        return self._present(self.nullable_array(field, element, min_size), field, start)

    def nullable_array(
        self, field: str, element: Callable[[Reader], T], min_size: int
    ) -> tuple[T, ...] | None:
        """Read as :meth:`array`; a count of -1 is null."""
        count = self.count(field, min_size)
        return None if count is None else self._items(count, field, element)

    def compact_array(
        self, field: str, element: Callable[[Reader], T], min_size: int
    ) -> tuple[T, ...]:
        """Read an unsigned varint count + 1 and that many elements."""
        start = self.pos
        return self._present(self.nullable_compact_array(field, element, min_size), field, start)

    def nullable_compact_array(
        self, field: str, element: Callable[[Reader], T], min_size: int
    ) -> tuple[T, ...] | None:
        """Read as :meth:`compact_array`; 0 is null."""
        count = self.compact_count(field, min_size)
        return None if count is None else self._items(count, field, element)

    def structs(
        self,
        field: str,
        count: int,
        names: tuple[str, ...],
        fill: Callable[[Reader, list[Any]], None],
    ) -> Structs | tuple[()]:
        """Read ``count`` structs (see :meth:`count`), whose values ``fill`` appends."""
        values: list[Any] = []
        index = 0
        try:
            for index in range(count):  # noqa: B007 - the index names the failing one
                fill(self, values)
        except WireError as error:
            raise error.within(f"{field}[{index}]") from None
        return Structs(names, values) if count else ()

    def count(self, field: str, min_size: int) -> int | None:
        """Read an int32 count (-1: null) of elements of at least ``min_size`` bytes (> 0) each."""
        start = self.pos
        return self._count(start, self.int32(field), field, min_size)

    def compact_count(self, field: str, min_size: int) -> int | None:
        """Read as :meth:`count`, an unsigned varint count + 1 (0: null)."""
        start = self.pos
        return self._count(start, self.uvarint(field) - 1, field, min_size)

    def int32s(self, field: str) -> tuple[int, ...]:
        """Read an int32 count and that many int32."""
        start = self.pos
        return self._int32s(self._present(self.count(field, 4), field, start))

    def compact_int32s(self, field: str) -> tuple[int, ...]:
        """Read an unsigned varint count + 1 and that many int32."""
        start = self.pos
        return self._int32s(self._present(self.compact_count(field, 4), field, start))

    def _int32s(self, count: int) -> tuple[int, ...]:
        pos = self.pos
        self.pos = pos + 4 * count
        layout = int32s_layout(count)
        return layout.unpack_from(self.data, pos)

    def _count(self, start: int, count: int, field: str, min_size: int) -> int | None:
        if count < 0:
            if count < -1:
                self.fail(Reason.BAD_COUNT, field, start, f"count {count}")
            return None
        if count > (self.end - self.pos) // min_size:
            self.fail(Reason.BAD_COUNT, field, start, f"{count} elements in {self.n_left} bytes")
        return count

    def _items(self, count: int, field: str, element: Callable[[Reader], T]) -> tuple[T, ...]:
        items: list[T] = []
        try:
            for _ in range(count):
                items.append(element(self))  # noqa: PERF401 - the length names the failing one
        except WireError as error:
            raise error.within(f"{field}[{len(items)}]") from None
        return tuple(items)

    # The two arrays that messages are made of, without a call per element. On failure they are read
    # again element by element, to find where and why.

    def strings(self, field: str) -> tuple[str, ...]:
        """Read an int32 count and that many strings."""
        start, data, end = self.pos, self.data, self.end
        count = self._present(self.count(field, STRING_MIN), field, start)
        pos = self.pos
        values: list[str] = []
        try:
            for _ in range(count):
                after = pos + 2 + (data[pos] << 8 | data[pos + 1])
                if after > end or data[pos] > 0x7F:
                    break
                values.append(data[pos + 2 : after].decode())
                pos = after
        except (IndexError, UnicodeDecodeError):
            pass
        if len(values) < count:
            self.pos = start
            return self.array(field, read_string, STRING_MIN)
        self.pos = pos
        return tuple(values)

    def topic_partitions(self, field: str) -> TopicPartitions:
        """Read an int32 count and that many ``Topic string, Partitions []int32``."""
        start, data, end = self.pos, self.data, self.end
        count = self._present(self.count(field, TOPIC_PARTITIONS_MIN), field, start)
        pos = self.pos
        values: list[tuple[str, tuple[int, ...]]] = []
        try:
            for _ in range(count):
                at = pos + 2 + (data[pos] << 8 | data[pos + 1])
                n_partitions: int = INT32.unpack_from(data, at)[0]
                after = at + 4 + 4 * n_partitions
                if after > end or n_partitions < 0 or data[pos] > 0x7F:
                    break
                layout = int32s_layout(n_partitions)
                values.append((data[pos + 2 : at].decode(), layout.unpack_from(data, at + 4)))
                pos = after
        except (IndexError, StructError, UnicodeDecodeError):
            pass
        if len(values) < count:
            self.pos = start
            return self.array(field, read_topic_partitions, TOPIC_PARTITIONS_MIN)
        self.pos = pos
        return tuple(values)

    # Tagged fields

    def tagged(
        self, known: Mapping[int, tuple[str, Callable[[Reader], object]]] | None = None
    ) -> dict[int, object]:
        """Read the tagged fields at the end of a flexible struct.

        Parameters
        ----------
        known : mapping of tag to (field, reader), optional
            Tags to read. Others are skipped and counted in ``n_unknown_tags``.

        Returns
        -------
        dict of tag to value
            Only present tags. A tag written twice keeps its last value, as in Kafka.

        References: KIP-482; KIP-915 (unknown tags are skipped).
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
            raise error.within(field) from None
        if self.pos != self.end:
            self.fail(Reason.BAD_LENGTH, field, start, f"{self.n_left} bytes too many")
        self.end = outer_end
        return value


def read_topic_partitions(reader: Reader) -> tuple[str, tuple[int, ...]]:
    """Read one ``Topic string, Partitions []int32``."""
    return reader.string("topic"), reader.int32s("partitions")


def read_string(reader: Reader) -> str:
    """Read a string as an array's element."""
    return reader.string("")


# An array of structs, kept as one flat list of values; a struct becomes a dict on request.
#
# The array compares, iterates and is sliced like the tuple of its dicts. It cannot be hashed,
# because dicts cannot. A caller may change a dict that it received: the array does not change.
#
# A dict takes about 200 bytes, while the smallest struct on the wire takes three. A hostile message
# must not fill the memory at that rate. In the flat list a value takes eight bytes for its slot,
# and its own size, which is 0 for an empty value.
#
# References: KIP-482 (compact types: an empty string, array or set of tags is one byte).


class Structs(Sequence[dict[str, Any]]):
    """Structs of one array.

    Parameters
    ----------
    names : tuple of str
        Fields of each struct, at least one.
    values : list
        Values of the first struct, then of the second, and so on; the object takes over the list.
    """

    __slots__ = ("_names", "_values")

    def __init__(self, names: tuple[str, ...], values: list[Any]):
        assert len(values) % len(names) == 0
        self._names = names
        self._values = values

    def __len__(self) -> int:
        return len(self._values) // len(self._names)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        values, width = iter(self._values), len(self._names)
        for _ in range(len(self)):
            yield dict(zip(self._names, islice(values, width), strict=True))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[dict[str, Any], ...]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | tuple[dict[str, Any], ...]:
        found = range(len(self))[index]
        return self._one(found) if isinstance(found, int) else tuple(map(self._one, found))

    def _one(self, index: int) -> dict[str, Any]:
        width = len(self._names)
        values = self._values[index * width : (index + 1) * width]
        return dict(zip(self._names, values, strict=True))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Structs) and self._names == other._names:
            return self._values == other._values
        if not isinstance(other, Structs | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment] # as of a tuple of dicts

    def __repr__(self) -> str:
        return repr(tuple(self))
