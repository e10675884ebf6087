"""Records of the offsets topic from the JSON of Kafka's tools, since Kafka 3.9.

**Rules.** Fields have Kafka's names. Bytes are base64 and ids their 22 characters. A tagged field
that is absent has its default. ``kafka-dump-log`` prints subscriptions and assignments of
consumers as objects, without their version: the lowest version with all of their fields is
written. A type unknown to the tool is printed without its fields: a record of it has no bytes
here.

References: Kafka's generated ``JsonConverter`` classes; ``OffsetsMessageParser`` of
``DumpLogSegments``; ``CoordinatorRecordMessageFormatter``.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from holdfast.core.wire.layouts.offsets_records import Record, encode_record, encode_schema
from holdfast.core.wire.layouts.offsets_schemas import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    RECORD_SCHEMAS,
    Field,
    Kind,
    Schema,
    schema_layout,
)
from holdfast.errors import WireError

_EMBEDDED: Final[Mapping[str, Schema]] = {
    "subscription": CONSUMER_SUBSCRIPTION,
    "assignment": CONSUMER_ASSIGNMENT,
}
_NUMBERS: Final = frozenset({Kind.INT8, Kind.INT16, Kind.UINT16, Kind.INT32, Kind.INT64})


class UnknownTypeError(Exception):
    """The tool knew no fields of a record of this type."""


def record_of_json(key: Any, value: Any) -> tuple[bytes, bytes | None]:
    """Return key and value of a record; a value of None is a tombstone.

    Raises
    ------
    UnknownTypeError
        The tool did not know the type of the record.
    ValueError
        The JSON is not a record; the text says why.
    """
    try:
        number = int(key["type"] if "type" in key else key["version"])
        fields = key["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the key {key!r:.60} has no type and data") from error
    schemas = RECORD_SCHEMAS.get(number)
    if schemas is None or not isinstance(fields, dict):
        raise UnknownTypeError(number)
    version, own = _versioned(value)
    if value is not None and not isinstance(own, dict):
        raise UnknownTypeError(number)
    try:
        record = Record(
            record_type=number,
            name=schemas.name,
            key=_struct(schemas.key, 0, fields),
            value_version=version,
            value=None if own is None else _struct(schemas.value, version or 0, own),
        )
        return encode_record(record)
    except (WireError, binascii.Error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{schemas.name}: {error}") from error


def _versioned(value: Any) -> tuple[int | None, Any]:
    if value is None:
        return None, None
    try:
        return int(value["version"]), value["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the value {value!r:.60} has no version and data") from error


def _struct(schema: Schema, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    parts = schema_layout(schema, version)
    return _fields((*parts.plain, *parts.tagged), fields)


def _fields(known: tuple[Field, ...], fields: Mapping[str, Any]) -> dict[str, Any]:
    by_name = {field.name: field for field in known}
    return {
        name: _value(by_name[name], value) if name in by_name else value
        for name, value in fields.items()
    }


def _value(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_one(field, element) for element in value]
    return _one(field, value)


def _one(field: Field, value: Any) -> Any:
    if field.kind is Kind.STRUCT:
        return None if value is None else _fields(field.fields, value)
    if field.kind is Kind.BYTES:
        return _bytes(field.name, value)
    if field.kind in _NUMBERS and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"{field.name}: {value!r:.60} is not a whole number")
    if field.kind is Kind.STRING and not isinstance(value, str):
        raise TypeError(f"{field.name}: {value!r:.60} is not a string")
    return value


def _bytes(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return b64decode(value, validate=True)
    schema = _EMBEDDED[name]
    version = max((field.since for field in schema.fields if field.name in value), default=0)
    return encode_schema(schema, _struct(schema, version, value), version)
