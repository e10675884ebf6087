"""What the fuzzer calls: bytes in, an assertion or an unexpected exception out.

The first byte of an input chooses the decoder, so that one run covers them all.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from tests.fuzz import folders
from tests.wire import codecs, records_twin
from tests.wire.codecs import Codec

from holdfast.core.wire.layouts.consumer_protocol import decode_subscription
from holdfast.core.wire.layouts.offsets_records import decode_record, encode_record
from holdfast.core.wire.many.member_messages import NO_TOPICS, claims_of, decode_subscriptions
from holdfast.core.wire.many.name_table import NameTable
from holdfast.core.wire.many.offsets_batch import REASONS, decode_batch
from holdfast.errors import WireError

NULL_SIZE = 0xFFFF


def split(data: bytes) -> tuple[bytes, bytes | None]:
    """A key and a value out of one input: two bytes are the size of the key."""
    size = int.from_bytes(data[:2], "big")
    value = data[2 + size :]
    return data[2 : 2 + size], None if value == b"null" else value


def join(key: bytes, value: bytes | None) -> bytes:
    """The way back of :func:`split`."""
    return len(key).to_bytes(2, "big") + key + (b"null" if value is None else value)


def _encode_pair(record: Any) -> bytes:
    return join(*encode_record(record))


CODECS: tuple[Codec, ...] = (
    Codec(lambda data: decode_record(*split(data)), _encode_pair),
    codecs.CODECS["subscription"],
    codecs.CODECS["assignment"],
    codecs.CODECS["subscription"],  # again: committed inputs name codecs by their position
    *(codecs.CODECS[name] for name in [*codecs.CODECS][2:]),
)


def scalar(data: bytes) -> None:
    """A value that can be written and read again, or a WireError that says all it should."""
    if not data:
        return
    # A first byte beyond the list means records, which have the most layouts.
    codec = CODECS[data[0]] if data[0] < len(CODECS) else CODECS[0]
    try:
        value = codec.decode(data[1:])
    except WireError as error:
        assert error.reason in REASONS
        assert error.schema
        assert error.field
        assert 0 <= error.position < len(data)
        return
    if codec.encode is None:
        return
    written = codec.encode(value)
    assert codec.encode(codec.decode(written)) == written


def records_in(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    """Many records: size of key, key, size of value, value; two bytes a size, all ones: null."""
    pairs: list[tuple[bytes | None, bytes | None]] = []
    at = 0
    while at < len(data) and len(pairs) < 64:
        key, at = _sized(data, at)
        value, at = _sized(data, at)
        pairs.append((key, value))
    return pairs


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size = int.from_bytes(data[at : at + 2], "big")
    at += 2
    return (None, at) if size == NULL_SIZE else (data[at : at + size], at + size)


def records_out(pairs: list[tuple[bytes | None, bytes | None]]) -> bytes:
    """The way back of :func:`records_in`."""
    out = bytearray()
    for blob in (blob for pair in pairs for blob in pair):
        size = NULL_SIZE if blob is None else len(blob)
        out += size.to_bytes(2, "big") + (blob or b"")
    return bytes(out)


def messages_in(data: bytes) -> list[bytes]:
    """Many messages, each after its size in two bytes."""
    found: list[bytes] = []
    at = 0
    while at < len(data) and len(found) < 64:
        size = int.from_bytes(data[at : at + 2], "big")
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def messages_out(messages: list[bytes]) -> bytes:
    """The way back of :func:`messages_in`."""
    return b"".join(len(message).to_bytes(2, "big") + message for message in messages)


NAMES = NameTable(sorted({"clicks", "orders", "a", *(f"topic-{i}" for i in range(50))}))


def columns(data: bytes) -> None:
    """A group's subscriptions as columns say what each of them says alone; the first byte: how."""
    cooperative, messages = bool(data[:1] > b"\x7f"), messages_in(data[1:])
    read = decode_subscriptions(messages, NAMES, cooperative=cooperative)
    claims = zip(
        read.claims.member.tolist(),
        read.claims.topic.tolist(),
        read.claims.partition.tolist(),
        [read.claims.names[claim] for claim in range(len(read.claims.member))],
        strict=True,
    )
    sets = read.subscriptions
    rows = [
        sets.topic[sets.start[row] : sets.start[row + 1]].tolist()
        for row in sets.of_member.tolist()
    ]
    found = (rows, list(claims), read.generation.tolist(), list(read.racks))
    assert found == _columns_by_member(messages, cooperative)


def _columns_by_member(messages: list[bytes], cooperative: bool) -> tuple[list[Any], ...]:
    rows, claims, generations, racks = [], [], [], []
    for member, message in enumerate(messages):
        try:
            value = decode_subscription(message)
        except WireError:
            value = NO_TOPICS
        known = {NAMES.index.get(topic.encode(), -1) for topic in value.topics} - {-1}
        claim = claims_of(value, cooperative=cooperative)
        rows.append(sorted(known))
        generations.append(claim.generation)
        racks.append(value.rack or None)
        claims += [
            (member, NAMES.index.get(topic.encode(), -1), partition, topic)
            for topic, partitions in claim.partitions
            for partition in partitions
        ]
    return rows, claims, generations, racks


def batch(data: bytes) -> None:
    """The batch form tells of every record what the scalar form tells.

    What is good and what is bad, why and where, is compared always; values, which cost as much to
    compare as to read, for one input in eight.
    """
    pairs = records_in(data)
    if crc32(data) % 8 == 0:
        assert records_twin.batch(pairs) == records_twin.scalar(pairs)
        return
    keys = records_twin.binary([key for key, _ in pairs])
    values = records_twin.binary([value for _, value in pairs])
    bad: dict[int, tuple[str, int, bool]] = {}
    good: set[int] = set()
    for chunk in decode_batch(keys, values):
        bad |= dict.fromkeys(chunk.unknown.tolist(), ("unknown-type", 0, True))
        for row, reason, position, in_key in zip(
            chunk.bad.rows.tolist(),
            chunk.bad.reason.tolist(),
            chunk.bad.position.tolist(),
            chunk.bad.in_key.tolist(),
            strict=True,
        ):
            bad[row] = (str(REASONS[reason]), position, in_key)
        for family in chunk.families:
            good.update(family.rows.tolist())
    expected = records_twin.scalar(pairs)
    assert bad == {row: told for row, told in enumerate(expected) if isinstance(told, tuple)}
    assert good == set(range(len(pairs))) - set(bad)


def folder(data: bytes) -> None:
    """A folder of tables with one strange file is read, or refused by an error of ours.

    It is written to for one input in eight: that takes as long as all else.
    """
    if data:
        kind, writes = folders.KINDS[data[0] % len(folders.KINDS)], crc32(data) % 8 == 0
        folders.read_and_written(kind, data[1:], writes=writes)
