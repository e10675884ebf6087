"""Records of ``__share_group_state``: those of a real broker, and what is not one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.core.wire.layouts.share_state import decode_share_state
from holdfast.errors import WireError

LINES = (Path(__file__).parent / "captured/share.jsonl").read_text("utf-8").splitlines()
PAIRS = [
    (bytes.fromhex(row["key"]), bytes.fromhex(row["value"]))
    for row in map(json.loads, LINES)
    if "topic" in row
]


def test_what_a_broker_wrote():
    states = [decode_share_state(*pair) for pair in PAIRS]
    assert {state.group for state in states} == {"group-share"}
    assert {state.partition for state in states} == {0, 1}
    is_update = [key[:2] == b"\x00\x01" for key, _ in PAIRS]
    assert [state.is_update for state in states] == is_update
    assert {*is_update} == {False, True}
    first = states[0]
    assert (first.start_offset, first.n_delivered) == (-1, -1)  # not known yet
    for partition in (0, 1):
        starts = [s.start_offset for s in states if s.partition == partition]
        assert starts == sorted(starts)


def test_a_tombstone_has_no_start():
    assert decode_share_state(PAIRS[0][0], None).start_offset is None


@pytest.mark.parametrize("pair", PAIRS[:4])
def test_what_ends_early_is_refused(pair):
    key, value = pair
    for end in range(len(key)):
        with pytest.raises(WireError):
            decode_share_state(key[:end], value)
    for end in range(len(value)):
        with pytest.raises(WireError):
            decode_share_state(key, value[:end])


@pytest.mark.parametrize("change", [(0, b"\x00\x02", None), (1, None, b"\x00\x01")])
def test_another_type_or_version_is_refused(change):
    _, head, version = change
    key, value = PAIRS[0]
    with pytest.raises(WireError, match=r"unknown-type|bad-version"):
        decode_share_state((head or key[:2]) + key[2:], (version or value[:2]) + value[2:])
