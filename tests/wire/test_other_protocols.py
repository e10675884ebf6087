"""Messages that are only read: Connect's, and those of the document's designs."""

from __future__ import annotations

import pytest

from holdfast.core.model.constants import Design
from holdfast.core.wire.layouts.other_protocols import (
    ConnectAssignment,
    ConnectMetadata,
    DesignAssignment,
    DesignSubscription,
    decode_connect_assignment,
    decode_connect_metadata,
    decode_design_assignment,
    decode_design_subscription,
)
from holdfast.errors import WireError

ASSIGNMENT_HEAD = "0001 0001 6c 0001 75 0000000000000007"  # error 1, leader l, url u, offset 7
CONNECTOR = "00000001 0001 63 00000002 ffffffff 00000000"  # connector c and its task 0
METADATA = "0001 75 0000000000000007"


def assignment(version: int, **more) -> ConnectAssignment:
    return ConnectAssignment(
        version=version, error=1, leader="l", leader_url="u", config_offset=7, **more
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("0000" + ASSIGNMENT_HEAD + CONNECTOR, assignment(0, assignment=(("c", (-1, 0)),))),
        ("0001" + ASSIGNMENT_HEAD, assignment(1, assignment=None)),
        ("0001" + ASSIGNMENT_HEAD + "ffffffff ffffffff", assignment(1, assignment=None)),
        ("0001" + ASSIGNMENT_HEAD + CONNECTOR, assignment(1, assignment=(("c", (-1, 0)),))),
        (
            "0002" + ASSIGNMENT_HEAD + "00000000" + CONNECTOR,
            assignment(2, assignment=(), revoked=(("c", (-1, 0)),)),
        ),
        (
            "0002" + ASSIGNMENT_HEAD + "ffffffff 00000000 000493e0",
            assignment(2, assignment=None, revoked=(), delay_ms=300_000),
        ),
        (
            "0009" + ASSIGNMENT_HEAD + "ffffffff" * 2 + "00000005 ff",
            assignment(2, assignment=None, delay_ms=5),
        ),
    ],
)
def test_assignments(data: str, expected: ConnectAssignment) -> None:
    assert decode_connect_assignment(bytes.fromhex(data)) == expected


@pytest.mark.parametrize(
    ("data", "version", "allocation"),
    [
        ("0000" + METADATA, 0, None),
        ("0000" + METADATA + "00000001 ff", 0, None),
        ("0001" + METADATA, 1, None),
        ("0001" + METADATA + "ffffffff", 1, None),
        ("0001" + METADATA + "00000000", 1, b""),
        ("0002" + METADATA + "00000001 ff", 2, b"\xff"),
        ("0003" + METADATA + "00000001 ff ff", 2, b"\xff"),
    ],
)
def test_metadata(data: str, version: int, allocation: bytes | None) -> None:
    expected = ConnectMetadata(version=version, url="u", config_offset=7, allocation=allocation)
    assert decode_connect_metadata(bytes.fromhex(data)) == expected


@pytest.mark.parametrize(
    ("data", "reason", "field"),
    [
        ("ffff" + ASSIGNMENT_HEAD, "bad-version", "version"),
        ("0000" + ASSIGNMENT_HEAD, "truncated", "assignment"),
        ("0000" + ASSIGNMENT_HEAD + "ffffffff", "unexpected-null", "assignment"),
        ("0001" + ASSIGNMENT_HEAD + "0000", "truncated", "assignment"),
        ("0001" + ASSIGNMENT_HEAD + "ffffffff ffffffff 0000", "truncated", "delay"),
        ("0001" + ASSIGNMENT_HEAD + "ffffffff ffffffff ffffffff", "out-of-range", "delay"),
        (
            "0001" + ASSIGNMENT_HEAD + "00000001 0001 63 00000001",
            "bad-count",
            "assignment[0].tasks",
        ),
    ],
)
def test_bad_assignments(data: str, reason: str, field: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_connect_assignment(bytes.fromhex(data))
    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert caught.value.schema == "ConnectAssignment"


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
