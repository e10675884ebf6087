"""Messages as JSON and back, for ``holdfast decode`` and ``holdfast encode``.

**Rules.** Bytes are hex; partitions are a flat list of [topic, partition], tasks one of
[subtopology, partition], offset sums one of [subtopology, partition, sum], failed resources one of
[kind, error, number]. Keys are the names of the fields in :mod:`holdfast.core.wire`. Every error in
a line is a :class:`WireError`, so one bad line does not end a run. An unknown key is refused by
name.

**Strategy.** ``SCHEMAS`` is the only list of messages, ``READ_RECORD`` that of records. The type of
a field in the dataclass decides how the field looks in JSON, by the table ``_SHAPES``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from holdfast.core.model.designs import Design
from holdfast.core.model.partitions import TopicPartitions, grouped
from holdfast.core.wire.layouts import (
    connect,
    consumer_protocol,
    container,
    incremental,
    memory,
    share_state,
    sticky_user_data,
    streams_user_data,
)
from holdfast.core.wire.layouts.frames import Leaving
from holdfast.core.wire.layouts.offsets_records import Record, decode_record, encode_record
from holdfast.errors import WireError

T = TypeVar("T")

RECORD, SHARE_STATE = "record", "share-state"
READ_RECORD: Mapping[str, Callable[[bytes | None, bytes | None], dict[str, Any]]] = {
    RECORD: lambda key, value: decode_record(key, value).to_dict(),
    SHARE_STATE: lambda key, value: to_json(share_state.decode_share_state(key or b"", value)),
}
"""Schemas of records, which have a key and a value."""
BAD_HEX, BAD_JSON = "bad-hex", "bad-json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageKind:
    """One kind of message: its class, its reader and its writer (None: for reading only)."""

    kind: type[Any]
    decode: Callable[[bytes], Any]
    encode: Callable[[Any, int | None], bytes] | None = None


def _unversioned(write: Callable[[T], bytes], only: int) -> Callable[[T, int | None], bytes]:
    def encode(value: T, version: int | None) -> bytes:
        if version not in (None, only):
            detail, schema = f"{version} is not {only}", type(value).__name__
            raise WireError(
                "bad-version", schema=schema, version=version, field="version", detail=detail
            )
        return write(value)

    return encode


def _design(write: Callable[[T], bytes]) -> Callable[[T, int | None], bytes]:
    def encode(value: T, version: int | None) -> bytes:
        if version is None:
            return write(value)
        try:
            design = Design(version)
        except ValueError as error:
            detail = f"{version} is not 1 to 3"
            raise _bad_json(type(value).__name__, "version", detail) from error
        return write(replace(value, design=design))  # type: ignore[type-var] # a dataclass

    return encode


SCHEMAS: Mapping[str, MessageKind] = {
    "subscription": MessageKind(
        kind=consumer_protocol.Subscription,
        decode=consumer_protocol.SubscriptionDecoder().decode,
        encode=consumer_protocol.encode_subscription,
    ),
    "assignment": MessageKind(
        kind=consumer_protocol.AssignmentMessage,
        decode=consumer_protocol.decode_assignment,
        encode=consumer_protocol.encode_assignment,
    ),
    "sticky-user-data": MessageKind(
        kind=sticky_user_data.StickyUserData,
        decode=sticky_user_data.decode_sticky_user_data,
        encode=lambda value, version: sticky_user_data.encode_sticky_user_data(
            value, 1 if version is None else version
        ),
    ),
    "cooperative-sticky-user-data": MessageKind(
        kind=sticky_user_data.StickyUserData,
        decode=lambda data: sticky_user_data.StickyUserData(
            partitions=(), generation=sticky_user_data.decode_cooperative_user_data(data)
        ),
        encode=_unversioned(
            lambda value: sticky_user_data.encode_cooperative_user_data(value.generation), 0
        ),
    ),
    "design-subscription": MessageKind(
        kind=incremental.DesignSubscription,
        decode=incremental.decode_design_subscription,
        encode=_design(incremental.encode_design_subscription),
    ),
    "design-assignment": MessageKind(
        kind=incremental.DesignAssignment,
        decode=incremental.decode_design_assignment,
        encode=_design(incremental.encode_design_assignment),
    ),
    "claim": MessageKind(
        kind=container.MemberSubscription,
        decode=container.decode_member_subscription,
        encode=_unversioned(container.encode_member_subscription, 1),
    ),
    "verdict": MessageKind(
        kind=container.MemberAssignment,
        decode=container.decode_member_assignment,
        encode=_unversioned(container.encode_member_assignment, 1),
    ),
    "memory": MessageKind(
        kind=memory.Share,
        decode=memory.decode_share,
        encode=_unversioned(memory.encode_share, 1),
    ),
    "connect-metadata": MessageKind(
        kind=connect.ConnectMetadata, decode=connect.decode_connect_metadata
    ),
    "connect-assignment": MessageKind(
        kind=connect.ConnectAssignment, decode=connect.decode_connect_assignment
    ),
    "streams-subscription": MessageKind(
        kind=streams_user_data.StreamsSubscription,
        decode=streams_user_data.decode_streams_subscription,
    ),
    "streams-assignment": MessageKind(
        kind=streams_user_data.StreamsAssignment,
        decode=streams_user_data.decode_streams_assignment,
    ),
}


def decode_line(schema: str, line: str) -> dict[str, Any]:
    """One message in hex to JSON's types; a record is ``KEYHEX VALUEHEX`` or ``KEYHEX null``.

    Raises
    ------
    WireError
        If the line is no hex (``bad-hex``), or the bytes break their schema.
    """
    if schema not in READ_RECORD:
        return to_json(SCHEMAS[schema].decode(_from_hex(line.strip(), schema, "data")))
    key, _, value = line.strip().partition(" ")
    return decode_record_hex(schema, key, value.strip() or "null")


def decode_record_hex(schema: str, key: str, value: str) -> dict[str, Any]:
    """One record in hex to JSON's types; ``null`` is null."""
    return READ_RECORD[schema](
        None if key == "null" else _from_hex(key, schema, "key"),
        None if value == "null" else _from_hex(value, schema, "value"),
    )


def encode_line(schema: str, line: str, version: int | None) -> str:
    """One JSON document to hex, the way back of :func:`decode_line`.

    Raises
    ------
    WireError
        If the line is no JSON of this schema (``bad-json``), or a value does not fit its field.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad_json(schema, "document", str(error)) from error
    if not isinstance(document, dict):
        raise _bad_json(schema, "document", "an object is expected")
    if schema == RECORD:
        return _encode_record(document, version)
    message = SCHEMAS.get(schema)
    if message is None or message.encode is None:
        raise _bad_json(schema, "document", "this schema is for reading only")
    return message.encode(from_json(message.kind, document, schema), version).hex()


def error_json(error: WireError) -> dict[str, Any]:
    """What stands in the line of a message that could not be read or written."""
    names = ("reason", "schema", "version", "field", "position")
    return {"error": {name: getattr(error, name) for name in names}}


def to_json(value: Any) -> dict[str, Any]:
    """A message as JSON's types."""
    shapes = _FIELDS[type(value)]
    return {name: write(getattr(value, name)) for name, (write, _) in shapes.items()}


def from_json(kind: type[T], document: Mapping[str, Any], schema: str) -> T:
    """A message from JSON's types; a missing field has its default.

    Raises
    ------
    WireError
        ``bad-json``, with the field.
    """
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type] # a dataclass
    for name in document:
        if name not in known:
            raise _bad_json(schema, name, f"unknown key, known are {', '.join(known)}")
    for name, f in known.items():
        if name not in document and f.default is MISSING:
            raise _bad_json(schema, name, "this key is missing")
    read = {}
    for name, value in document.items():
        try:
            read[name] = _FIELDS[kind][name][1](value)
        except (TypeError, ValueError) as error:
            raise _bad_json(schema, name, str(error)) from error
    return kind(**read)


def _encode_record(document: Mapping[str, Any], version: int | None) -> str:
    names = ("record_type", "name", "value_version", "key", "value")
    for name in document:
        if name not in names:
            raise _bad_json(RECORD, name, f"unknown key, known are {', '.join(names)}")
    value = document.get("value")
    try:
        record = Record(
            record_type=_as(int, document["record_type"]),
            name=str(document.get("name", "")),
            key=_as(dict, document["key"]),
            value_version=version if version is not None else document.get("value_version"),
            value=None if value is None else _as(dict, value),
        )
        blobs = encode_record(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad_json(RECORD, "document", f"{type(error).__name__}: {error}") from error
    return " ".join("null" if blob is None else blob.hex() for blob in blobs)


def _from_hex(text: str, schema: str, field: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise WireError(BAD_HEX, schema=schema, field=field, detail=str(error)) from error


def _bad_json(schema: str, field: str, detail: str) -> WireError:
    return WireError(BAD_JSON, schema=schema, field=field, detail=detail)


# How the type of a field looks in JSON


_Shape = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""To JSON and back; the second one raises TypeError or ValueError."""

_EXPECTED: Mapping[type, str] = {
    int: "no whole number",
    bool: "not true or false",
    str: "no string",
    dict: "no object",
    list: "no list",
}


def _as(kind: type[T], value: Any) -> T:
    """A value of JSON that is of this type; TypeError for any other."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is {_EXPECTED[kind]}")
    found: T = value
    return found


def _as_partitions(value: Any) -> TopicPartitions:
    pairs = []
    for item in _as(list, value):
        topic, partition = _as(list, item)
        pairs.append((_as(str, topic), _as(int, partition)))
    return grouped(pairs)  # neighbours only: a topic that is twice on the wire comes back twice


def _as_failed(value: Any) -> tuple[container.FailedPartitions, ...]:
    found: dict[tuple[str, str], list[int]] = {}
    for item in _as(list, value):
        topic, error, partition = _as(list, item)
        found.setdefault((_as(str, topic), _as(str, error)), []).append(_as(int, partition))
    return tuple(container.FailedPartitions(*key, tuple(own)) for key, own in found.items())


def _as_members(value: Any) -> tuple[memory.RememberedMember, ...]:
    rows = (_as(dict, item) for item in _as(list, value))
    return tuple(from_json(memory.RememberedMember, row, "memory") for row in rows)


def _for_reading_only(value: Any) -> Any:
    raise TypeError("this field is for reading only")


_SHAPES: Mapping[object, _Shape] = {
    **{kind: (kind, partial(_as, kind)) for kind in (int, bool, str)},
    bytes: (bytes.hex, lambda value: bytes.fromhex(_as(str, value))),
    tuple[str, ...]: (list, lambda value: tuple(_as(str, item) for item in _as(list, value))),
    TopicPartitions: (
        lambda value: [[topic, number] for topic, numbers in value for number in numbers],
        _as_partitions,
    ),
    tuple[container.FailedPartitions, ...]: (
        lambda value: [
            [one.topic, one.error, number] for one in value for number in one.partitions
        ],
        _as_failed,
    ),
    Design: (int, lambda value: Design(_as(int, value))),
    Leaving: (int, lambda value: Leaving(_as(int, value))),
    tuple[memory.RememberedMember, ...]: (
        lambda value: [to_json(member) for member in value],
        _as_members,
    ),
    tuple[streams_user_data.Task, ...]: (
        lambda value: [list(task) for task in value],
        _for_reading_only,
    ),
    tuple[tuple[streams_user_data.Task, int], ...]: (
        lambda value: [[*task, offset] for task, offset in value],
        _for_reading_only,
    ),
}


def _shape(hint: Any) -> _Shape:
    if not isinstance(hint, UnionType):
        return _SHAPES[hint]
    write, read = _SHAPES[get_args(hint)[0]]  # the other one is None
    return (
        lambda value: None if value is None else write(value),
        lambda value: None if value is None else read(value),
    )


_FIELDS: Mapping[object, Mapping[str, _Shape]] = {
    kind: {name: _shape(hint) for name, hint in get_type_hints(kind).items()}
    for kind in (
        memory.RememberedMember,
        share_state.ShareState,
        *(message.kind for message in SCHEMAS.values()),
    )
}
"""How each field of each message looks, by its name."""
