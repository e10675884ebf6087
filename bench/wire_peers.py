"""The peers of ``bench.wire_records``: a loop of ``struct``, and kafka-python's own codec.

Both get the same records. The loops check nothing and read only the assignments of a group.
kafka-python's types (``kafka.protocol.old``), arranged in Kafka's schemas, read the whole record of
a group; its consumer protocol reads the assignment and the subscription of each member.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.protocol.old.types import (
    Array,
    Bytes,
    CompactArray,
    CompactBytes,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

Pairs = list[tuple[bytes, bytes | None]]
Peers = dict[str, Callable[[Pairs], Any]]

# Loops of struct


def classic_text(blob: bytes, at: int) -> tuple[str, int]:
    """A string with an int16 length; null is empty."""
    size = max(struct.unpack_from(">h", blob, at)[0], 0)
    return blob[at + 2 : at + 2 + size].decode(), at + 2 + size


def uvarint(blob: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint."""
    value = shift = 0
    while True:
        byte = blob[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def compact_text(blob: bytes, at: int) -> tuple[str, int]:
    """A string with a varint length; null is empty."""
    size, at = uvarint(blob, at)
    after = at + max(size - 1, 0)
    return blob[at:after].decode(), after


def struct_commits(pairs: Pairs, *, flexible: bool) -> list[tuple[Any, ...]]:
    """Commits of version 3, or of version 4 with nothing but the topic's id tagged."""
    unpack, text = struct.unpack_from, compact_text if flexible else classic_text
    out: list[tuple[Any, ...]] = []
    for k, v in pairs:
        if v is None:
            continue
        group, at = classic_text(k, 2)
        topic, at = classic_text(k, at)
        offset, epoch = unpack(">qi", v, 2)
        metadata, after = text(v, 14)
        time_ms = unpack(">q", v, after)[0]
        topic_id = v[after + 11 : after + 27] if flexible and v[after + 8] else None
        out.append(
            (group, topic, unpack(">i", k, at)[0], offset, epoch, metadata, time_ms, topic_id)
        )
    return out


def struct_groups(pairs: Pairs, *, flexible: bool) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """Group records of version 3 or 4: the assignments alone."""
    unpack, text = struct.unpack_from, compact_text if flexible else classic_text
    out: list[tuple[str, str, str, tuple[int, ...]]] = []

    def size_at(blob: bytes, at: int) -> tuple[int, int]:
        if not flexible:
            return unpack(">i", blob, at)[0], at + 4
        size, at = uvarint(blob, at)
        return size - 1, at

    for k, v in pairs:
        assert v is not None
        group, _ = classic_text(k, 2)
        _, at = text(v, 2)
        _, at = text(v, at + 4)
        _, at = text(v, at)
        n_members, at = size_at(v, at + 8)
        for _ in range(n_members):
            member, at = text(v, at)
            for _ in range(3):
                _, at = text(v, at)
            size, at = size_at(v, at + 8)
            size, inner = size_at(v, at + size)
            at = inner + size + flexible
            inner += 6
            for _ in range(unpack(">i", v, inner - 4)[0]):
                topic, inner = classic_text(v, inner)
                n_partitions = unpack(">i", v, inner)[0]
                partitions = unpack(f">{n_partitions}i", v, inner + 4)
                inner += 4 + 4 * n_partitions
                out.append((group, member, topic, partitions))
    return out


# kafka-python

TEXT, COMPACT = String("utf-8"), CompactString("utf-8")
COMMIT_KEY = Schema(("type", Int16), ("group", TEXT), ("topic", TEXT), ("partition", Int32))
GROUP_KEY = Schema(("type", Int16), ("group", TEXT))


def commit_schema(*, flexible: bool) -> Schema:
    """A value of version 3 or 4."""
    tail = [("tags", TaggedFields)] * flexible
    text = COMPACT if flexible else TEXT
    head = [("version", Int16), ("offset", Int64), ("leader_epoch", Int32)]
    return Schema(*head, ("metadata", text), ("commit_timestamp", Int64), *tail)


def group_schema(*, flexible: bool) -> Schema:
    """A value of version 3 or 4."""
    tail = [("tags", TaggedFields)] * flexible
    text, blob = (COMPACT, CompactBytes) if flexible else (TEXT, Bytes)
    members = (CompactArray if flexible else Array)(
        ("member_id", text),
        ("group_instance_id", text),
        ("client_id", text),
        ("client_host", text),
        ("rebalance_timeout", Int32),
        ("session_timeout", Int32),
        ("subscription", blob),
        ("assignment", blob),
        *tail,
    )
    head = [("version", Int16), ("protocol_type", text), ("generation", Int32)]
    more = [("protocol", text), ("leader", text), ("current_state_timestamp", Int64)]
    return Schema(*head, *more, ("members", members), *tail)


def kafka_python_commits(pairs: Pairs, *, schema: Schema) -> list[tuple[Any, Any]]:
    """Keys and values."""
    return [
        (COMMIT_KEY.decode(BytesIO(k)), schema.decode(BytesIO(v)))
        for k, v in pairs
        if v is not None
    ]


def kafka_python_groups(pairs: Pairs, *, schema: Schema) -> int:
    """Read keys, values and both messages of each member; return the number of rows."""
    n_rows = 0
    for k, v in pairs:
        assert v is not None
        GROUP_KEY.decode(BytesIO(k))
        for member in schema.decode(BytesIO(v))[6]:
            ConsumerProtocolSubscription.decode(member[6])
            assignment = ConsumerProtocolAssignment.decode(member[7])
            n_rows += sum(len(topic.partitions) for topic in assignment.assigned_partitions)
    return n_rows


def _peers(version: int, loop: Callable[..., Any], codec: Callable[..., Any], schema: Any) -> Peers:
    flexible = version == 4
    return {
        "struct loop": partial(loop, flexible=flexible),
        "kafka-python": partial(codec, schema=schema(flexible=flexible)),
    }


COMMITS = {v: _peers(v, struct_commits, kafka_python_commits, commit_schema) for v in (3, 4)}
GROUPS = {v: _peers(v, struct_groups, kafka_python_groups, group_schema) for v in (3, 4)}
