"""The messages of Designs I, II and III, as the document prints them."""

from __future__ import annotations

import pytest

from holdfast.core.model.designs import Design
from holdfast.core.wire.layouts.incremental import (
    DesignAssignment,
    DesignSubscription,
    decode_design_assignment,
    decode_design_subscription,
    encode_design_assignment,
    encode_design_subscription,
)
from holdfast.errors import WireError

T1, T4 = (("T", (1,)),), (("T", (4,)),)


@pytest.mark.parametrize("design", Design)
def test_a_subscription_byte_by_byte(design: Design) -> None:
    value = DesignSubscription(design=design, topics=("T",), assignor_data=b"\x09", assigned=T1)
    expected = f"000{design:d}" + "00000001 0001 54" + "00000001 09"
    expected += "00000001 0001 54 00000001 00000001"
    assert encode_design_subscription(value) == bytes.fromhex(expected)


def test_assignments_byte_by_byte() -> None:
    lists = "00000001 0001 54 00000001 00000001" + "00000001 0001 54 00000001 00000004"
    simple = DesignAssignment(design=Design.SIMPLE, assigned=T1, revoked=T4)
    assert encode_design_assignment(simple) == bytes.fromhex("0001" + lists)
    for design in (Design.DEFERRED, Design.INCREMENTAL):
        value = DesignAssignment(design=design, assigned=T1, revoked=T4, timeout_ms=300_000)
        expected = bytes.fromhex(f"000{design:d}" + lists + "000493e0")
        assert encode_design_assignment(value) == expected


def test_null_and_empty_lists_differ() -> None:
    for revoked, tail in ((None, "ffffffff"), ((), "00000000")):
        value = DesignAssignment(design=Design.SIMPLE, revoked=revoked)
        data = encode_design_assignment(value)
        assert data.hex() == "000100000000" + tail
        assert decode_design_assignment(data).revoked == revoked
    for assigned in (None, ()):
        new = DesignSubscription(design=Design.SIMPLE, topics=(), assigned=assigned)
        assert decode_design_subscription(encode_design_subscription(new)).assigned == assigned


@pytest.mark.parametrize("timeout_ms", [-1, -(2**31), 2**31])
def test_a_timeout_out_of_range_is_neither_written_nor_read(timeout_ms: int) -> None:
    with pytest.raises(WireError) as caught:
        encode_design_assignment(DesignAssignment(design=Design.DEFERRED, timeout_ms=timeout_ms))
    assert caught.value.reason == "out-of-range"
    assert caught.value.field == "scheduled_rebalance_timeout"
    if timeout_ms < 0:
        data = bytes.fromhex("0002 00000000 00000000") + timeout_ms.to_bytes(4, "big", signed=True)
        with pytest.raises(WireError) as caught:
            decode_design_assignment(data)
        assert (caught.value.reason, caught.value.position) == ("out-of-range", 10)


def test_design_i_has_no_timeout() -> None:
    with pytest.raises(WireError, match="Design I has none"):
        encode_design_assignment(DesignAssignment(design=Design.SIMPLE, timeout_ms=1))


def test_versions_above_3_are_read_as_3_and_below_1_refused() -> None:
    body = encode_design_assignment(DesignAssignment(design=Design.INCREMENTAL, timeout_ms=8))[2:]
    for version in (3, 4, 0x7FFF):
        read = decode_design_assignment(version.to_bytes(2, "big") + body + b"more")
        assert (read.design, read.timeout_ms) == (Design.INCREMENTAL, 8)
    for version in ("0000", "ffff"):
        for decode in (decode_design_assignment, decode_design_subscription):
            with pytest.raises(WireError) as caught:
                decode(bytes.fromhex(version) + body)
            assert (caught.value.reason, caught.value.position) == ("bad-version", 0)


def test_an_error_knows_the_design() -> None:
    with pytest.raises(WireError) as caught:
        decode_design_subscription(bytes.fromhex("0002 00000001"))
    assert (caught.value.schema, caught.value.version) == ("DesignSubscription", 2)
    assert caught.value.field == "subscribe_topics"
