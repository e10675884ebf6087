"""The messages of Designs I, II and III, as the document prints them."""

from __future__ import annotations

import pytest

from holdfast.core.model.constants import Design
from holdfast.core.wire.layouts.other_protocols import (
    DesignAssignment,
    DesignSubscription,
    decode_design_assignment,
    decode_design_subscription,
)
from holdfast.errors import WireError

T1, T4 = (("T", (1,)),), (("T", (4,)),)
ONE, FOUR = "00000001 0001 54 00000001 00000001", "00000001 0001 54 00000001 00000004"
NONE, NULL, MINUTES = "00000000", "ffffffff", "000493e0"
SIMPLE, DEFERRED, INCREMENTAL = Design

SUBSCRIPTIONS = {
    **{
        f"000{design:d} 00000001 0001 54 00000001 09 {ONE}": DesignSubscription(
            design=design, topics=("T",), assignor_data=b"\x09", assigned=T1
        )
        for design in Design
    },
    f"0001 {NONE} {NULL} {NULL}": DesignSubscription(design=SIMPLE, topics=(), assigned=None),
    f"0001 {NONE} {NULL} {NONE}": DesignSubscription(design=SIMPLE, topics=(), assigned=()),
}
ASSIGNMENTS = {
    f"0001 {ONE} {FOUR}": DesignAssignment(design=SIMPLE, assigned=T1, revoked=T4),
    f"0001 {NONE} {NULL}": DesignAssignment(design=SIMPLE, revoked=None),
    f"0001 {NULL} {NONE}": DesignAssignment(design=SIMPLE, assigned=None, revoked=()),
    **{
        f"{version} {ONE} {FOUR} {MINUTES}": DesignAssignment(
            design=design, assigned=T1, revoked=T4, timeout_ms=300_000
        )
        for version, design in (
            ("0002", DEFERRED),
            ("0003", INCREMENTAL),
            ("0004", INCREMENTAL),  # a version above 3 is read as 3
            ("7fff", INCREMENTAL),
        )
    },
}


@pytest.mark.parametrize(("data", "expected"), SUBSCRIPTIONS.items())
def test_a_subscription_byte_by_byte(data: str, expected: DesignSubscription) -> None:
    assert decode_design_subscription(bytes.fromhex(data)) == expected


@pytest.mark.parametrize(("data", "expected"), ASSIGNMENTS.items())
def test_an_assignment_byte_by_byte(data: str, expected: DesignAssignment) -> None:
    assert decode_design_assignment(bytes.fromhex(data) + b"more") == expected


@pytest.mark.parametrize("version", ["0000", "ffff"])
@pytest.mark.parametrize("decode", [decode_design_assignment, decode_design_subscription])
def test_a_version_below_1_is_refused(decode, version: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(bytes.fromhex(f"{version} {ONE} {FOUR}"))
    assert (caught.value.reason, caught.value.position) == ("bad-version", 0)


@pytest.mark.parametrize("timeout_ms", [-1, -(2**31)])
def test_a_timeout_below_0_is_refused(timeout_ms: int) -> None:
    data = bytes.fromhex(f"0002 {NONE} {NONE}") + timeout_ms.to_bytes(4, "big", signed=True)
    with pytest.raises(WireError) as caught:
        decode_design_assignment(data)
    assert (caught.value.reason, caught.value.position) == ("out-of-range", 10)
    assert caught.value.field == "scheduled_rebalance_timeout"


def test_an_error_knows_the_design() -> None:
    with pytest.raises(WireError) as caught:
        decode_design_subscription(bytes.fromhex("0002 00000001"))
    assert (caught.value.schema, caught.value.version) == ("DesignSubscription", 2)
    assert caught.value.field == "subscribe_topics"
