"""What the pages of a Parquet file unpack to, by their headers: before any of them is unpacked.

**Rules.** Nothing is taken from the footer that a page's header can contradict. Every header and
every dictionary is read within a bound. A page that cannot be bounded (its values are made of
earlier ones, DELTA_BYTE_ARRAY) is refused.

**Strategy.** A footer counts a dictionary once, however often its values are used, and a run of
equal values or of nulls as nothing; it may lie, too. So the headers of the pages that are to be
read are walked through. A number is as wide as its type. A value of bytes is as long as the page
holds bytes, or as the longest value of the dictionary.

References: Apache Parquet, "parquet.thrift" (``PageHeader``); Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, TypeAlias

import pyarrow as pa

Header: TypeAlias = dict[int, Any]
"""Fields of a struct by their ids; a field of bytes is not kept."""

_HEADER_BYTES: Final = 1 << 10
_MOST_HEADER_BYTES: Final = 1 << 20
_DEEPEST: Final = 8
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BY_DICTIONARY: Final = frozenset({2, 8})
_OF_EARLIER_VALUES: Final = 7
"""DELTA_BYTE_ARRAY."""
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_OFFSET_BYTES: Final = 4
_SIZE: Final = Struct("<I")
"""What stands before a value of bytes."""


class BadPageError(ValueError):
    """A page without a header that can be read, or one that is not read by us."""


@dataclass(slots=True)
class Unpacked:
    """What row groups of a file unpack to.

    Parameters
    ----------
    n_bytes : int
        Without the values that stand in dictionaries of columns of bytes.
    most_bytes : int
        With them, if every one were the longest of its dictionary.
    longest : dict of str to int
        Longest value in the dictionaries of each column of bytes that has some.
    """

    n_bytes: int = 0
    most_bytes: int = 0
    longest: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    kind: int
    size: int
    packed: int
    n_values: int
    encoding: int
    begin: int


def unpacked_size(
    file: Any, about: Any, row_groups: Sequence[int], columns: Collection[str] | None, limit: int
) -> Unpacked:
    """Look at the pages of some row groups and columns.

    Parameters
    ----------
    limit : int
        It stops as soon as ``n_bytes`` is above it, and unpacks no dictionary that is.

    Raises
    ------
    BadPageError
        A page is not one, or none that we read.
    """
    found = Unpacked()
    names = [about.schema.column(i) for i in range(about.num_columns)]
    wanted = [
        i for i, one in enumerate(names) if columns is None or one.path.split(".")[0] in columns
    ]
    for group in row_groups:
        row_group = about.row_group(group)
        for i in wanted:
            if found.n_bytes > limit:
                return found
            is_nested = bool(names[i].max_repetition_level) or "." in names[i].path
            width = _WIDTHS.get(names[i].physical_type) or int(names[i].length or 0)
            is_bytes = names[i].physical_type == "BYTE_ARRAY"
            chunk = row_group.column(i)
            width = 0 if is_bytes else max(width, 1)
            _add_chunk(found, file, chunk, width=width, is_nested=is_nested, limit=limit)
    return found


def _add_chunk(
    found: Unpacked, file: Any, chunk: Any, *, width: int, is_nested: bool, limit: int
) -> None:
    """Count a chunk of a column; ``width`` is 0 where its values are bytes."""
    longest = 0
    for page in _pages(file, chunk):
        if page.size > limit:
            found.n_bytes = max(found.n_bytes, page.size)
            return
        n_bytes = most = max(page.size, page.n_values * (width or _OFFSET_BYTES))
        if page.kind == _DICTIONARY:
            n_bytes = most = page.size
            longest = max(longest, page.size if width else _longest(file, chunk, page))
        elif not width and page.encoding == _OF_EARLIER_VALUES:
            raise BadPageError("its values are made of earlier ones (DELTA_BYTE_ARRAY)")
        elif not width and page.encoding in _BY_DICTIONARY:
            most = max(n_bytes, page.n_values * (longest + _OFFSET_BYTES))
        elif not width:
            n_bytes = most = page.size + page.n_values * _OFFSET_BYTES
        # Arrow reads no list of a dictionary's values as such, so those are unpacked at once.
        found.n_bytes += most if is_nested else n_bytes
        found.most_bytes += most
    if not width and longest and not is_nested:
        name = chunk.path_in_schema
        found.longest[name] = max(found.longest.get(name, 0), longest)


def _longest(file: Any, chunk: Any, page: _Page) -> int:
    """Bytes of the longest value in a dictionary; what cannot be, is as long as the page."""
    if page.n_values <= 1 or page.size <= 4 * page.n_values:
        return page.size
    rest = page.size - 4 * page.n_values
    if chunk.num_values * rest <= 1 << 20:  # the bound is good enough
        return rest
    file.seek(page.begin)
    packed = file.read(page.packed)
    data = packed
    if chunk.compression != "UNCOMPRESSED":
        codec = pa.Codec(chunk.compression.lower())
        data = codec.decompress(packed, decompressed_size=page.size, asbytes=True)
    longest = at = 0
    size_at, last = _SIZE.unpack_from, len(data) - _SIZE.size
    for _ in range(page.n_values):
        if at > last:
            break
        (size,) = size_at(data, at)
        at += _SIZE.size + size
        if size > longest:  # noqa: PLR1730 (a call would cost as much as all else here)
            longest = size
    else:
        if at <= len(data):
            return longest
    raise BadPageError("its dictionary is cut")


def _pages(file: Any, chunk: Any) -> Iterator[_Page]:
    """The pages of a chunk as Arrow goes through them: until it has as many values as it wants."""
    begin, first = chunk.data_page_offset, chunk.dictionary_page_offset
    at = first if first is not None and 0 < first < begin else begin
    end, seen = at + chunk.total_compressed_size, 0
    while at < end and seen < chunk.num_values:
        page = _page_at(file, at)
        at = page.begin + page.packed
        if page.kind != _DICTIONARY:
            seen += page.n_values
        yield page


def _page_at(file: Any, at: int) -> _Page:
    n_bytes = _HEADER_BYTES
    while True:
        file.seek(at)
        data = file.read(n_bytes)
        try:
            reader = Compact(data)
            header = reader.struct()
            break
        except IndexError:
            if len(data) < n_bytes or n_bytes >= _MOST_HEADER_BYTES:
                raise BadPageError(f"there is no page at byte {at}") from None
            n_bytes *= 32
    kind, size, packed = (_number(header, i) for i in (1, 2, 3))
    about = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind, 0))
    if not isinstance(about, dict):
        about = {1: 0, 2: 0, 4: 0}  # an index: without values
    n_values, encoding = _number(about, 1), _number(about, 4 if kind == _DATA_V2 else 2)
    return _Page(
        kind=kind,
        size=size,
        packed=packed,
        n_values=n_values,
        encoding=encoding,
        begin=at + reader.at,
    )


def _number(fields: Header, number: int) -> int:
    found = fields.get(number)
    if not isinstance(found, int) or found < 0:
        raise BadPageError("a page's header says no size")
    return found


class Compact:
    """Reads a struct of Thrift's compact protocol; IndexError where the bytes end too early."""

    def __init__(self, data: bytes):
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> Header:
        """Read a struct up to its end."""
        if depth > _DEEPEST:
            raise BadPageError("a page's header is too deep")
        found: Header = {}
        number = 0
        while kind := self._byte():
            if kind >> 4:
                number += kind >> 4
            else:
                number = self._signed()
            found[number] = self._value(kind & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            self._skip(8)
        elif kind == 8:
            self._skip(self._varint())
        elif kind == 9:
            return self._list(depth)
        elif kind == 12:
            return self.struct(depth + 1)
        else:  # no set or map is in a header or a footer
            raise BadPageError("a page's header has a field that no header has")
        return None

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size = head >> 4 if head >> 4 < 15 else self._varint()
        if size > len(self._data) - self.at:
            raise BadPageError("a list has more elements than bytes")
        kind = head & 15
        if kind in (1, 2):  # a byte each, where a field has its value in its kind
            return [self._byte() == 1 for _ in range(size)]
        return [self._value(kind, depth) for _ in range(size)]

    def _signed(self) -> int:
        found = self._varint()
        return found >> 1 ^ -(found & 1)

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found
            if shift > 63:
                raise BadPageError("a page's header has a number that is too large")

    def _byte(self) -> int:
        byte = self._data[self.at]
        self.at += 1
        return byte

    def _skip(self, n_bytes: int) -> None:
        self.at += n_bytes
        if self.at > len(self._data):
            raise IndexError
