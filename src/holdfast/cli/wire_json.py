"""Messages as JSON, for ``holdfast decode``.

**Rules.** Bytes are hex; partitions are a flat list of [topic, partition], tasks one of
[subtopology, partition], offset sums one of [subtopology, partition, sum], failed resources one of
[kind, error, number]. Keys are the names of the fields in :mod:`holdfast.core.wire`. Every error in
a line is a :class:`WireError`, so one bad line does not end a run.

**Strategy.** ``SCHEMAS`` is the only list of messages, ``READ_RECORD`` that of records. The type of
a field in the dataclass decides how the field looks in JSON, by the table ``_SHAPES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, get_args, get_type_hints

from holdfast.core.model.designs import Design
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts import (
    connect,
    consumer_protocol,
    container,
    incremental,
    share_state,
    state_shard,
    sticky_user_data,
    streams_user_data,
)
from holdfast.core.wire.layouts.frames import Leaving
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.errors import WireError

RECORD, SHARE_STATE = "record", "share-state"
READ_RECORD: Mapping[str, Callable[[bytes | None, bytes | None], dict[str, Any]]] = {
    RECORD: lambda key, value: decode_record(key, value).to_dict(),
    SHARE_STATE: lambda key, value: to_json(share_state.decode_share_state(key or b"", value)),
}
"""Schemas of records, which have a key and a value."""
BAD_HEX = "bad-hex"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageKind:
    """One kind of message: its class and its reader."""

    kind: type[Any]
    decode: Callable[[bytes], Any]


SCHEMAS: Mapping[str, MessageKind] = {
    "subscription": MessageKind(
        kind=consumer_protocol.Subscription,
        decode=consumer_protocol.SubscriptionDecoder().decode,
    ),
    "assignment": MessageKind(
        kind=consumer_protocol.AssignmentMessage,
        decode=consumer_protocol.decode_assignment,
    ),
    "sticky-user-data": MessageKind(
        kind=sticky_user_data.StickyUserData,
        decode=sticky_user_data.decode_sticky_user_data,
    ),
    "cooperative-sticky-user-data": MessageKind(
        kind=sticky_user_data.StickyUserData,
        decode=lambda data: sticky_user_data.StickyUserData(
            partitions=(), generation=sticky_user_data.decode_cooperative_user_data(data)
        ),
    ),
    "design-subscription": MessageKind(
        kind=incremental.DesignSubscription,
        decode=incremental.decode_design_subscription,
    ),
    "design-assignment": MessageKind(
        kind=incremental.DesignAssignment,
        decode=incremental.decode_design_assignment,
    ),
    "claim": MessageKind(
        kind=container.MemberSubscription,
        decode=container.decode_member_subscription,
    ),
    "verdict": MessageKind(
        kind=container.MemberAssignment,
        decode=container.decode_member_assignment,
    ),
    "state-shard": MessageKind(
        kind=state_shard.StateShard,
        decode=state_shard.decode_shard,
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
    """Decode one message in hex to JSON types; a record is ``KEYHEX VALUEHEX`` or ``KEYHEX null``.

    Raises
    ------
    WireError
        The line is not hex (``bad-hex``), or the bytes break their schema.
    """
    if schema not in READ_RECORD:
        return to_json(SCHEMAS[schema].decode(_from_hex(line.strip(), schema, "data")))
    key, _, value = line.strip().partition(" ")
    return decode_record_hex(schema, key, value.strip() or "null")


def decode_record_hex(schema: str, key: str, value: str) -> dict[str, Any]:
    """Decode one record in hex to JSON types; ``null`` is null."""
    return READ_RECORD[schema](
        None if key == "null" else _from_hex(key, schema, "key"),
        None if value == "null" else _from_hex(value, schema, "value"),
    )


def error_json(error: WireError) -> dict[str, Any]:
    """Return the output line of a message that could not be read."""
    names = ("reason", "schema", "version", "field", "position")
    return {"error": {name: getattr(error, name) for name in names}}


def to_json(value: Any) -> dict[str, Any]:
    """Convert a message to JSON types."""
    shapes = _FIELDS[type(value)]
    return {name: write(getattr(value, name)) for name, write in shapes.items()}


def _from_hex(text: str, schema: str, field: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise WireError(BAD_HEX, schema=schema, field=field, detail=str(error)) from error


# JSON form of each field type


_Shape = Callable[[Any], Any]

_SHAPES: Mapping[object, _Shape] = {
    int: int,
    bool: bool,
    str: str,
    bytes: bytes.hex,
    tuple[str, ...]: list,
    TopicPartitions: lambda value: [[topic, n] for topic, numbers in value for n in numbers],
    tuple[container.FailedPartitions, ...]: lambda value: [
        [one.topic, one.error, number] for one in value for number in one.partitions
    ],
    Design: int,
    Leaving: int,
    tuple[state_shard.MemberEntry, ...]: lambda value: [to_json(member) for member in value],
    tuple[streams_user_data.Task, ...]: lambda value: [list(task) for task in value],
    tuple[tuple[streams_user_data.Task, int], ...]: lambda value: [
        [*task, offset] for task, offset in value
    ],
}


def _shape(hint: Any) -> _Shape:
    if not isinstance(hint, UnionType):
        return _SHAPES[hint]
    write = _SHAPES[get_args(hint)[0]]  # the other one is None
    return lambda value: None if value is None else write(value)


_FIELDS: Mapping[object, Mapping[str, _Shape]] = {
    kind: {name: _shape(hint) for name, hint in get_type_hints(kind).items()}
    for kind in (
        state_shard.MemberEntry,
        share_state.ShareState,
        *(message.kind for message in SCHEMAS.values()),
    )
}
"""JSON form of each field of each message, by its name."""
