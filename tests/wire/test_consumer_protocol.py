"""The consumer protocol and its sticky user data: versions, order, what is ignored; also by kio."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription import v0, v1, v2, v3
from kio.serial import entity_reader, entity_writer
from tests import strategies as wire
from tests.strategies import INT32, any_topic_partitions

from holdfast.core.wire.layouts.consumer_protocol import (
    NO_CLAIMS,
    AssignmentMessage,
    StickyUserData,
    Subscription,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
    read_claims,
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


OWNED = (("orders", (0, 4)),)
V0 = bytes.fromhex("00000001 0006 6f7264657273 00000002 00000000 00000004")
V1 = V0 + bytes.fromhex("00000007")


def test_both_versions_byte_by_byte() -> None:
    value = StickyUserData(partitions=OWNED, generation=7)
    assert encode_sticky_user_data(value, 0) == V0
    assert encode_sticky_user_data(value) == V1
    assert decode_sticky_user_data(V1) == value
    assert decode_sticky_user_data(V0) == StickyUserData(partitions=OWNED, generation=-1)


@pytest.mark.parametrize("n_bytes", [1, 2, 3])
def test_a_cut_generation_falls_back_to_version_0(n_bytes: int) -> None:
    assert decode_sticky_user_data(V1[:-n_bytes]).generation == -1


def test_what_follows_is_ignored() -> None:
    assert decode_sticky_user_data(V1 + b"more").generation == 7
    assert decode_cooperative_user_data(bytes.fromhex("00000007ff")) == 7


def test_what_is_neither_version_is_refused() -> None:
    with pytest.raises(WireError) as caught:
        decode_sticky_user_data(V0[:-1])
    error = caught.value
    assert (error.schema, error.version) == ("StickyAssignorUserData", 0)
    assert (error.field, error.position) == ("previous_assignment[0].partitions", 12)
    with pytest.raises(WireError):
        decode_cooperative_user_data(b"\x00\x00\x00")


def test_only_versions_that_exist_and_values_that_fit_are_written() -> None:
    with pytest.raises(WireError, match="bad-version"):
        encode_sticky_user_data(NO_CLAIMS, 2)
    with pytest.raises(WireError, match="out-of-range"):
        encode_cooperative_user_data(2**31)


def subscription(user_data: bytes | None, generation: int = -1) -> Subscription:
    return Subscription(topics=("orders",), user_data=user_data, owned=OWNED, generation=generation)


@pytest.mark.parametrize("user_data", [None, b"", b"\x01", V0[:-1], b"\xff\xff\xff\xff"])
def test_eager_members_with_no_or_unreadable_user_data_claim_nothing(user_data) -> None:
    assert read_claims(subscription(user_data), cooperative=False) == NO_CLAIMS


def test_eager_members_claim_what_their_user_data_say() -> None:
    read = read_claims(subscription(V1, generation=30), cooperative=False)
    assert read == StickyUserData(partitions=OWNED, generation=7)
    negative = encode_sticky_user_data(StickyUserData(partitions=OWNED, generation=-9))
    assert read_claims(subscription(negative), cooperative=False).generation == -1


@pytest.mark.parametrize(
    ("generation", "user_data", "expected"),
    [
        (5, None, 5),
        (5, bytes.fromhex("00000007"), 5),
        (-1, bytes.fromhex("00000007"), 7),
        (-1, bytes.fromhex("fffffff0"), -1),
        (-1, None, -1),
        (-1, b"", -1),
        (-1, b"\x00\x00", -1),
        (-7, None, -1),
    ],
)
def test_cooperative_members_claim_what_they_own(generation, user_data, expected) -> None:
    read = read_claims(subscription(user_data, generation), cooperative=True)
    assert read == StickyUserData(partitions=OWNED, generation=expected)


@given(st.none() | st.binary(max_size=40), INT32, any_topic_partitions(), st.booleans())
def test_claims_never_fail(user_data, generation, owned, cooperative) -> None:
    message = Subscription(topics=(), user_data=user_data, owned=owned, generation=generation)
    assert read_claims(message, cooperative=cooperative).generation >= -1
