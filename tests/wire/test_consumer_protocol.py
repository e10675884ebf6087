"""The consumer protocol: versions, order, what is ignored, and a second reading by kio."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription import v0, v1, v2, v3
from kio.serial import entity_reader, entity_writer
from tests import strategies as wire

from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.errors import WireError

FULL = Subscription(
    version=3,
    topics=("clicks", "orders"),
    user_data=b"\x07",
    owned=(("clicks", (0, 2)), ("orders", (1,))),
    generation=9,
    rack="a",
)
KIO = {n: module.data.ConsumerProtocolSubscription for n, module in enumerate((v0, v1, v2, v3))}


@pytest.mark.parametrize("version", [4, 5, 0x7FFF])
def test_a_newer_version_is_read_as_3_and_what_follows_is_ignored(version: int) -> None:
    data = version.to_bytes(2, "big") + encode_subscription(FULL)[2:] + b"more"
    assert decode_subscription(data) == FULL
    assignment = AssignmentMessage(partitions=FULL.owned, user_data=b"")
    data = version.to_bytes(2, "big") + encode_assignment(assignment)[2:] + b"more"
    assert decode_assignment(data) == assignment


@pytest.mark.parametrize("version", ["ffff", "8000"])
def test_a_version_below_0_is_refused(version: str) -> None:
    data = bytes.fromhex(version) + encode_subscription(FULL)[2:]
    for decode in (decode_subscription, decode_assignment):
        with pytest.raises(WireError) as caught:
            decode(data)
        assert (caught.value.reason, caught.value.field) == ("bad-version", "version")
        assert (caught.value.position, caught.value.version) == (0, None)


@pytest.mark.parametrize("version", [-1, 4])
def test_only_versions_that_exist_are_written(version: int) -> None:
    for call in (
        lambda: encode_subscription(FULL, version),
        lambda: encode_assignment(AssignmentMessage(partitions=()), version),
    ):
        with pytest.raises(WireError) as caught:
            call()
        assert caught.value.reason == "bad-version"


@pytest.mark.parametrize(
    ("data", "field", "position"),
    [
        ("", "version", 0),
        ("0001 00000001", "topics", 2),
        ("0001 00000001 ffff", "topics[0]", 6),
        ("0001 00000000 00000002 ab", "user_data", 6),
        ("0001 00000000 ffffffff", "owned_partitions", 10),
        ("0001 00000000 ffffffff ffffffff", "owned_partitions", 10),
        ("0001 00000000 ffffffff 00000001 000161 00000001", "owned_partitions[0].partitions", 17),
        ("0002 00000000 ffffffff 00000000 0000", "generation_id", 14),
        ("0003 00000000 ffffffff 00000000 00000000 0005", "rack_id", 18),
    ],
)
def test_an_error_names_schema_version_field_and_position(data, field, position) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(WireError) as caught:
        decode_subscription(raw)
    error = caught.value
    assert error.schema == "ConsumerProtocolSubscription"
    assert (error.field, error.position) == (field, position)
    assert error.version == (None if len(raw) < 2 else raw[1])


@given(wire.subscriptions())
def test_kio_reads_what_we_write_and_writes_what_we_read(value: Subscription) -> None:
    data = encode_subscription(value)
    kind = KIO[value.version]
    read, size = entity_reader(kind)(data, 2)
    assert size == len(data) - 2
    assert (read.topics, read.user_data) == (value.topics, value.user_data)
    if value.version >= 1:
        owned = tuple((entry.topic, entry.partitions) for entry in read.owned_partitions)
        assert owned == value.owned
    if value.version >= 2:
        assert read.generation_id == value.generation
    if value.version >= 3:
        assert read.rack_id == value.rack
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, read)
    assert data[2:] == buffer.getvalue()


@given(wire.assignment_messages())
def test_kio_reads_our_assignments(value: AssignmentMessage) -> None:
    read, _ = entity_reader(ConsumerProtocolAssignment)(encode_assignment(value), 2)
    partitions = tuple((entry.topic, entry.partitions) for entry in read.assigned_partitions)
    assert (partitions, read.user_data) == (value.partitions, value.user_data)


@pytest.mark.parametrize("generation", [-1, -2, -(2**31)])
def test_a_negative_generation_is_written_as_none(generation):
    """Java's Subscription holds no negative generation, and ConsumerProtocol writes -1 for none."""
    written = encode_subscription(Subscription(topics=("t",), version=3, generation=generation))
    assert written == encode_subscription(Subscription(topics=("t",), version=3, generation=-1))
    assert decode_subscription(written).generation == -1
