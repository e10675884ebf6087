"""Reading and writing one record of ``__consumer_offsets``.

The layouts and their versions are in :mod:`holdfast.core.wire.layouts.offsets_schemas`.

**Rules.**

* A byte left over after a key or a value is an error. An unknown version of a known type is an
  error. An unknown tag is skipped and counted (KIP-915). An unknown type has an error of its own,
  ``unknown-type``, so that a caller can count such records and continue.
* Fields have Kafka's names, and a value has exactly the fields of its version. A tagged field that
  was not written has Kafka's default: the topic id of a commit is then all zeros.
* Writing gives the bytes that Kafka 4.3.1 writes: tagged fields at their default are left out.

**Strategy.** Each layout is compiled once into a tuple of (name, reader of the value).

References: KIP-482 (flexible versions), KIP-848, KIP-915, KIP-932, KIP-1071, KAFKA-19141.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final
from uuid import UUID

from holdfast.core.wire.layouts.offsets_schemas import (
    RECORD_SCHEMAS,
    Field,
    Kind,
    Layout,
    Schema,
    element_min_size,
    layout,
    schema_layout,
)
from holdfast.core.wire.one.reader import Reader, Structs
from holdfast.core.wire.one.topic_ids import read_topic_id, topic_id_text
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import Reason

ZERO_ID: Final = UUID(int=0)
RECORD_KEY: Final = "CoordinatorRecordKey"  # where the type of a record is not known yet

Fields = dict[str, Any]
_Read = Callable[[Reader], Any]
_Write = Callable[[Writer, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of the offsets topic."""

    record_type: int  # first int16 of the key
    name: str  # Kafka's name of the record, such as ``OffsetCommit``
    key: Fields  # fields of the key by Kafka's names
    value_version: int | None = None  # first int16 of the value; None for a tombstone
    # Fields of the value; None for a tombstone. Bytes are ``bytes``, ids ``uuid.UUID``, arrays
    # tuples, structs dicts, arrays of structs :class:`Structs`.
    value: Fields | None = None
    n_unknown_tags: int = 0  # tagged fields that were skipped

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON can hold it: bytes as hex, ids as text, arrays as lists."""
        return {
            "record_type": self.record_type,
            "name": self.name,
            "value_version": self.value_version,
            "key": _jsonable(self.key),
            "value": _jsonable(self.value),
        }


def decode_key(key: bytes | None) -> Record:
    """Read the key of a record of the offsets topic; the result has no value.

    Raises
    ------
    WireError
        ``unknown-type`` for a type that this version of holdfast does not know; else the key
        does not follow its schema.
    """
    reader = Reader(b"" if key is None else key, RECORD_KEY)
    if key is None:
        reader.fail(Reason.UNEXPECTED_NULL, "type")
    number = reader.int16("type")
    schemas = RECORD_SCHEMAS.get(number)
    if schemas is None:
        reader.fail(Reason.UNKNOWN_TYPE, "type", 0, f"record type {number}")
    reader.schema = schemas.key.name
    fields = _struct_reader(schema_layout(schemas.key, 0), 0)(reader)
    reader.finish()
    return Record(record_type=number, name=schemas.name, key=fields)


def decode_record(key: bytes | None, value: bytes | None) -> Record:
    """Read a record from its key and its value; a value of None is a tombstone.

    Raises
    ------
    WireError
        As :func:`decode_key`; or the value has an unknown version, does not follow its schema,
        or has bytes left over.
    """
    record = decode_key(key)
    if value is None:
        return record
    schema = RECORD_SCHEMAS[record.record_type].value
    reader = Reader(value, schema.name)
    version = reader.int16("version")
    if not 0 <= version <= schema.max_version:
        reader.fail(Reason.BAD_VERSION, "version", 0, f"{version} is not 0 to {schema.max_version}")
    reader.version = version
    fields = _struct_reader(schema_layout(schema, version), version)(reader)
    reader.finish()
    return Record(
        record_type=record.record_type,
        name=record.name,
        key=record.key,
        value_version=version,
        value=fields,
        n_unknown_tags=reader.n_unknown_tags,
    )


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Write a record as Kafka does.

    Parameters
    ----------
    record : Record
        Bytes may also be given as hex and ids as text, as in :meth:`Record.to_dict`.

    Returns
    -------
    (key, value) : tuple of bytes and (bytes or None)
        A record without a value gives a tombstone.

    Raises
    ------
    WireError
        ``unknown-type``, or a field is missing, is not in this version, or does not fit.
    """
    schemas = RECORD_SCHEMAS.get(record.record_type)
    if schemas is None:
        Writer(RECORD_KEY).fail(Reason.UNKNOWN_TYPE, "type", f"record type {record.record_type}")
    return (
        _encode(schemas.key, record.key, prefix=schemas.record_type, version=0),
        None if record.value is None else _encode_value(schemas.value, record),
    )


def _encode_value(schema: Schema, record: Record) -> bytes:
    version = record.value_version
    if version is None or not 0 <= version <= schema.max_version:
        Writer(schema.name).fail(
            Reason.BAD_VERSION, "version", f"{version} is not 0 to {schema.max_version}"
        )
    return encode_schema(schema, record.value, version)


def encode_schema(schema: Schema, fields: object, version: int) -> bytes:
    """Write a message that begins with its version: the value of a record, or an embedded one.

    Raises
    ------
    WireError
        A field is missing, is not in this version, or does not fit.
    """
    return _encode(schema, fields, prefix=version, version=version)


def _encode(schema: Schema, fields: object, *, prefix: int, version: int) -> bytes:
    writer = Writer(schema.name, version)
    writer.int16(prefix, "version")
    _struct_writer(schema_layout(schema, version), version)(writer, fields)
    return writer.done()


def _jsonable(value: Any) -> Any:
    match value:
        case dict():
            return {name: _jsonable(inner) for name, inner in value.items()}
        case tuple() | Structs():
            return [_jsonable(inner) for inner in value]
        case bytes():
            return value.hex()
        case UUID():
            return topic_id_text(value)  # every UUID of these schemas is a topic id
        case _:
            return value


# Reading


def _read_uint16(reader: Reader, field: str) -> int:
    return reader.int16(field) & 0xFFFF


_READ_FIXED: Mapping[Kind, Callable[[Reader, str], Any]] = {
    Kind.INT8: Reader.int8,
    Kind.INT16: Reader.int16,
    Kind.UINT16: _read_uint16,
    Kind.INT32: Reader.int32,
    Kind.INT64: Reader.int64,
    Kind.UUID: Reader.uuid,
}
_READ_SIZED: Mapping[tuple[Kind, bool, bool], Callable[[Reader, str], Any]] = {
    # (kind, flexible, nullable)
    (Kind.STRING, False, False): Reader.string,
    (Kind.STRING, False, True): Reader.nullable_string,
    (Kind.STRING, True, False): Reader.compact_string,
    (Kind.STRING, True, True): Reader.nullable_compact_string,
    (Kind.BYTES, False, False): Reader.bytes_,
    (Kind.BYTES, False, True): Reader.nullable_bytes,
    (Kind.BYTES, True, False): Reader.compact_bytes,
    (Kind.BYTES, True, True): Reader.nullable_compact_bytes,
}
_Fill = Callable[[Reader, list[Any]], None]
_READ_ARRAY: Mapping[tuple[bool, bool], Callable[[Reader, str, _Read, int], Any]] = {
    # (flexible, nullable)
    (False, False): Reader.array,
    (False, True): Reader.nullable_array,
    (True, False): Reader.compact_array,
    (True, True): Reader.nullable_compact_array,
}


@cache
def _struct_reader(struct: Layout, version: int) -> _Read:
    names, fill = _struct_filler(struct, version)

    def read(reader: Reader) -> Fields:
        values: list[Any] = []
        fill(reader, values)
        return dict(zip(names, values, strict=True))

    return read


@cache
def _struct_filler(struct: Layout, version: int) -> tuple[tuple[str, ...], _Fill]:
    """Return names of a struct's fields, and a function that appends their values to a list."""
    readers = tuple(_field_reader(field, version, struct.flexible) for field in struct.plain)
    tags = {
        field.tag: (field.name, _field_reader(field, version, struct.flexible, name=""))
        for field in struct.tagged
        if field.tag is not None
    }
    defaults = tuple(
        (field.tag, default_of(field)) for field in struct.tagged if field.tag is not None
    )

    def fill(reader: Reader, values: list[Any]) -> None:
        for read_value in readers:
            values.append(read_value(reader))  # noqa: PERF401 - all go to one list
        if struct.flexible:
            found = reader.tagged(tags)
            for tag, default in defaults:
                values.append(found.get(tag, default))

    return tuple(field.name for field in (*struct.plain, *struct.tagged)), fill


def default_of(field: Field) -> Any:
    """Return the value of a tagged field that was not written."""
    if field.is_array:
        return field.default
    if field.kind is Kind.UUID:
        return ZERO_ID
    if field.kind is Kind.STRUCT:
        return {inner.name: () if inner.is_array else 0 for inner in field.fields}
    return field.default


def _field_reader(field: Field, version: int, flexible: bool, name: str | None = None) -> _Read:
    name = field.name if name is None else name
    if not field.is_array:
        return _value_reader(field, version, flexible, name)
    if field.kind is Kind.INT32 and not field.nullable:
        read_ints = Reader.compact_int32s if flexible else Reader.int32s
        return lambda reader: read_ints(reader, name)
    size = element_min_size(field, version, flexible)
    if field.kind is Kind.STRUCT:
        return _structs_reader(field, version, flexible, name, size)
    read_array = _READ_ARRAY[flexible, field.nullable]
    element = _value_reader(field, version, flexible, "")
    return lambda reader: read_array(reader, name, element, size)


def _value_reader(field: Field, version: int, flexible: bool, name: str) -> _Read:
    if field.kind is Kind.STRUCT:
        return _nested_reader(field, version, flexible, name)
    read = _READ_FIXED.get(field.kind)
    if read is None:
        read = _READ_SIZED[field.kind, flexible, field.nullable and not field.is_array]
    return lambda reader: read(reader, name)


def _structs_reader(field: Field, version: int, flexible: bool, name: str, size: int) -> _Read:
    names, fill = _struct_filler(layout(field.fields, version, flexible), version)
    read_count = Reader.compact_count if flexible else Reader.count

    def read(reader: Reader) -> Structs | tuple[()] | None:
        start = reader.pos
        count = read_count(reader, name, size)
        if count is None and not field.nullable:
            reader.fail(Reason.UNEXPECTED_NULL, name, start)
        return None if count is None else reader.structs(name, count, names, fill)

    return read


def _nested_reader(field: Field, version: int, flexible: bool, name: str) -> _Read:
    read = _struct_reader(layout(field.fields, version, flexible), version)
    if not field.nullable:
        return read
    if field.tag is not None:  # an unsigned varint says whether the struct is there
        return lambda reader: read(reader) if reader.uvarint(name) else None
    return lambda reader: None if reader.int8(name) < 0 else read(reader)


# Writing


def _write_uint16(writer: Writer, value: int, field: str) -> None:
    if not 0 <= value <= 0xFFFF:
        writer.fail(Reason.OUT_OF_RANGE, field, f"{value} is no uint16")
    writer.int16(value - 0x10000 if value > 0x7FFF else value, field)


def _write_uuid(writer: Writer, value: UUID | str, field: str) -> None:
    try:
        writer.uuid(read_topic_id(value) if isinstance(value, str) else value)
    except ValueError:
        writer.fail(Reason.OUT_OF_RANGE, field, f"{value!r} is no topic id")


_WRITE_FIXED: Mapping[Kind, Callable[[Writer, Any, str], None]] = {
    Kind.INT8: Writer.int8,
    Kind.INT16: Writer.int16,
    Kind.UINT16: _write_uint16,
    Kind.INT32: Writer.int32,
    Kind.INT64: Writer.int64,
    Kind.UUID: _write_uuid,
}


@cache
def _struct_writer(struct: Layout, version: int) -> _Write:
    plain = tuple((f, _field_writer(f, version, struct.flexible)) for f in struct.plain)
    tagged = tuple(
        (f, _field_writer(f, version, struct.flexible, name=""), _plain(default_of(f)))
        for f in struct.tagged
    )
    names = {field.name for field in (*struct.plain, *struct.tagged)}

    def write(writer: Writer, fields: Mapping[str, Any]) -> None:
        if not names.issuperset(fields):
            name = min(set(fields) - names)
            writer.fail(Reason.BAD_VERSION, name, "no such field in this version")
        for field, write_value in plain:
            if field.name not in fields:
                writer.fail(Reason.UNEXPECTED_NULL, field.name, "the field is missing")
            write_value(writer, fields[field.name])
        if struct.flexible:
            writer.tagged(_tags_to_write(tagged, fields))

    return write


def _tags_to_write(
    tagged: tuple[tuple[Field, _Write, Any], ...], fields: Mapping[str, Any]
) -> list[tuple[int, str, Callable[[Writer], None]]]:
    entries: list[tuple[int, str, Callable[[Writer], None]]] = []
    for field, write_value, default in tagged:
        if field.tag is None or field.name not in fields:
            continue
        value = fields[field.name]
        if _plain(value) != default:
            entries.append((field.tag, field.name, partial(_write_late, write_value, value)))
    return entries


def _write_late(write_value: _Write, value: Any, writer: Writer) -> None:
    write_value(writer, value)


def _plain(value: Any) -> Any:
    """Return a value in its comparable form: a list as a tuple, an id as its text."""
    return _jsonable(tuple(value) if isinstance(value, list) else value)


def _field_writer(field: Field, version: int, flexible: bool, name: str | None = None) -> _Write:
    name = field.name if name is None else name
    if not field.is_array:
        return _value_writer(field, version, flexible, name)
    write_array = Writer.compact_array if flexible else Writer.array
    element = _value_writer(field, version, flexible, "")
    return lambda writer, values: write_array(
        writer, values, name, element, nullable=field.nullable
    )


def _value_writer(field: Field, version: int, flexible: bool, name: str) -> _Write:
    if field.kind is Kind.STRUCT:
        return _nested_writer(field, version, flexible, name)
    write = _WRITE_FIXED.get(field.kind)
    if write is not None:
        return lambda writer, value: write(writer, value, name)
    nullable = field.nullable and not field.is_array
    if field.kind is Kind.STRING:
        write_text = Writer.compact_string if flexible else Writer.string
        return lambda writer, value: write_text(writer, value, name, nullable=nullable)
    write_bytes = Writer.compact_bytes if flexible else Writer.bytes_
    return lambda writer, value: write_bytes(
        writer, _as_bytes(writer, value, name), name, nullable=nullable
    )


def _as_bytes(writer: Writer, value: bytes | str | None, field: str) -> bytes | None:
    if not isinstance(value, str):
        return value
    try:
        return bytes.fromhex(value)
    except ValueError:
        writer.fail(Reason.OUT_OF_RANGE, field, "not hex")


def _nested_writer(field: Field, version: int, flexible: bool, name: str) -> _Write:
    write = _struct_writer(layout(field.fields, version, flexible), version)
    if field.is_array or not field.nullable:
        return write
    absent, present = (b"\x00", b"\x01") if field.tag is not None else (b"\xff", b"\x01")

    def write_nullable(writer: Writer, value: Any) -> None:
        writer.raw(absent if value is None else present)
        if value is not None:
            write(writer, value)

    return write_nullable
