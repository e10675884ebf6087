"""Gathering runs of bytes, and UTF-8, against slices and Python's own decoder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.wire.ragged import gather, invalid_utf8, padded, starts

sizes = (
    st.integers(0, 3)
    | st.integers(0, 40)
    | st.sampled_from(INVALID)
    | st.binary(max_size=3),
    max_size=4,
).map(b"".join)


@given(st.lists(pieces, max_size=8))
def test_utf8_is_what_python_takes_for_it(runs):
    check_utf8(runs)


@pytest.mark.parametrize("n_bytes", [1, 2])
def test_every_short_byte_string(n_bytes):
    check_utf8([n.to_bytes(n_bytes, "big") for n in range(256**n_bytes)])


@pytest.mark.parametrize("lead", [0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5])
def test_every_second_and_third_byte(lead):
    check_utf8(
        [bytes([lead, b, c]) for b in range(0x70, 0xD0) for c in (0x00, 0x7F, 0x80, 0xBF, 0xC0)]
    )
    check_utf8(
        [
            bytes([lead, b, 0x80, d])
            for b in range(0x70, 0xD0)
            for d in (0x00, 0x7F, 0x80, 0xBF, 0xC0)
        ]
    )


def test_a_character_does_not_reach_into_the_next_run():
    check_utf8([b"\xc3", b"\xa9", "é".encode()])
    check_utf8([b"\xe6\xbc", b"\xa2"])
