"""The batch decoder of the offsets topic: it says what the scalar one says, on every input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.wire.records_twin import batch, records, scalar

from holdfast.wire.offsets_records import encode_record


@given(st.lists(records(), max_size=12))
def test_valid_records(some):
    pairs = [encode_record(record) for record in some]
    assert scalar(pairs) == some
    assert batch(pairs) == some


@st.composite
def mutated(draw):
    pairs = [encode_record(r) for r in draw(st.lists(records(), min_size=1, max_size=8))]
    out = []
    for pair in pairs:
        sides = list(pair)
        for _ in range(draw(st.integers(0, 2))):
            side = draw(st.integers(0, 1))
            blob = bytearray(sides[side] or b"")
            how = draw(st.sampled_from(["cut", "flip", "insert", "append", "none", "null"]))
            at = draw(st.integers(0, max(0, len(blob) - 1)))
            byte = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xC3, 0xFF]) | st.integers(0, 255))
            if how == "cut":
                blob = blob[:at]
            elif how == "flip" and blob:
                blob[at] = byte
            elif how == "insert":
                blob.insert(at, byte)
            elif how == "append":
                blob.append(byte)
            sides[side] = None if how == "null" else bytes(blob)
        out.append(tuple(sides))
    return out


@given(mutated())
def test_mutated_records(pairs):
    assert batch(pairs) == scalar(pairs)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=60))))
def test_random_bytes(pairs):
    assert batch(pairs) == scalar(pairs)
