"""User data of the sticky assignors: the order of falling back, and what counts as no claim."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import INT32, any_topic_partitions

from holdfast.core.wire.layouts.consumer_protocol import (
    NO_CLAIMS,
    StickyUserData,
    Subscription,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    read_claims,
)
from holdfast.errors import WireError

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
