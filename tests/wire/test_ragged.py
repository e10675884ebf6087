"""Gathering runs of bytes, and UTF-8, against slices and Python's own decoder."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.peak import peak_bytes

from holdfast.core.model.columns import starts
from holdfast.core.wire.many.ragged import gather, invalid_utf8, padded

lengths = (
    st.integers(0, 3)
    | st.integers(0, 40)
    | st.sampled_from([64, 65, 127, 128, 511, 512, 513, 2000])
)


@given(st.lists(st.tuples(st.integers(0, 3000), lengths), max_size=40))
@example([(0, 0)] * 30 + [(5, 2000)] + [(9, 1)] * 30)
@example([(0, 513), (1, 512), (2, 1025), (3, 1)] + [(4, 0)] * 60)
def test_gather_is_slicing(runs):
    rng = np.random.default_rng(1)
    data = rng.integers(0, 256, 3000 + 2000).astype(np.uint8)
    begin = np.array([b for b, _ in runs], np.int64)
    size = np.array([s for _, s in runs], np.int64)
    out, start = gather(padded(data), begin, size)
    assert out.dtype == np.uint8
    assert out.tobytes() == b"".join(data[b : b + s].tobytes() for b, s in runs)
    assert start.tolist() == [0, *np.cumsum(size).tolist()]


def test_gather_bounds_its_temporaries():
    size = np.ones(10_000, np.int64)
    size[5_000] = 100_000
    data = padded((np.arange(200_000) % 251).astype(np.uint8))
    out, _ = gather(data, np.arange(10_000), size)
    peak = peak_bytes(lambda: gather(data, np.arange(10_000), size))
    assert out[5_000:105_000].tobytes() == data[5_000:105_000].tobytes()
    assert peak < 40 * 10_000 + 6 * len(out)  # a window as wide as the longest run takes 1 GB


def invalid_by_python(runs):
    out = []
    for run in runs:
        try:
            run.decode("utf-8")
            out.append(False)
        except UnicodeDecodeError:
            out.append(True)
    return out


def check_utf8(runs):
    data = np.frombuffer(b"".join(runs), np.uint8)
    start = starts(np.array([len(run) for run in runs], np.int64))
    found = invalid_utf8(data, start)
    expected = invalid_by_python(runs)
    assert (found is not None) == any(expected)
    if found is not None:
        assert found.tolist() == expected


VALID = [c.encode() for c in "a\u00e9\u6f22\U0001f600\U0010ffff\u07ff\u0800\ud7ff\ue000"]
INVALID = [
    bytes.fromhex(text)
    for text in [
        "80",
        "bf",
        "c080",
        "c1bf",
        "e09fbf",
        "eda080",
        "f08fbfbf",
        "f4908080",
        "f5808080",
        "ff",
        "c3",
        "e6bc",
        "f09f98",
    ]
]
pieces = st.lists(st.sampled_from(VALID + INVALID) | st.binary(max_size=3), max_size=4).map(
    b"".join
)


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


def test_an_import_allocates_nothing_big():
    lines = (
        "import tracemalloc, numpy",
        "tracemalloc.start()",
        "import holdfast.core.wire.many.offsets_batch",
        "print(tracemalloc.get_traced_memory()[1])",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 8 << 20
