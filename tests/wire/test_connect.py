"""Connect's messages: missing trailing fields, nulls, versions."""

from __future__ import annotations

import pytest

from holdfast.core.wire.layouts.other_protocols import (
    ConnectAssignment,
    ConnectMetadata,
    decode_connect_assignment,
    decode_connect_metadata,
)
from holdfast.errors import WireError

HEAD = "0001 0001 6c 0001 75 0000000000000007"  # error 1, leader l, url u, offset 7
ONE = "00000001 0001 63 00000002 ffffffff 00000000"  # connector c and its task 0
METADATA = "0001 75 0000000000000007"


def assignment(version: int, **more) -> ConnectAssignment:
    return ConnectAssignment(
        version=version, error=1, leader="l", leader_url="u", config_offset=7, **more
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("0000" + HEAD + ONE, assignment(0, assignment=(("c", (-1, 0)),))),
        ("0001" + HEAD, assignment(1, assignment=None)),
        ("0001" + HEAD + "ffffffff ffffffff", assignment(1, assignment=None)),
        ("0001" + HEAD + ONE, assignment(1, assignment=(("c", (-1, 0)),))),
        ("0002" + HEAD + "00000000" + ONE, assignment(2, assignment=(), revoked=(("c", (-1, 0)),))),
        (
            "0002" + HEAD + "ffffffff 00000000 000493e0",
            assignment(2, assignment=None, revoked=(), delay_ms=300_000),
        ),
        (
            "0009" + HEAD + "ffffffff" * 2 + "00000005 ff",
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
        ("ffff" + HEAD, "bad-version", "version"),
        ("0000" + HEAD, "truncated", "assignment"),
        ("0000" + HEAD + "ffffffff", "unexpected-null", "assignment"),
        ("0001" + HEAD + "0000", "truncated", "assignment"),
        ("0001" + HEAD + "ffffffff ffffffff 0000", "truncated", "delay"),
        ("0001" + HEAD + "ffffffff ffffffff ffffffff", "out-of-range", "delay"),
        ("0001" + HEAD + "00000001 0001 63 00000001", "bad-count", "assignment[0].tasks"),
    ],
)
def test_bad_assignments(data: str, reason: str, field: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_connect_assignment(bytes.fromhex(data))
    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert caught.value.schema == "ConnectAssignment"
