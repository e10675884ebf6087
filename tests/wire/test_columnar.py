"""The lock-step reader against the scalar one, over schemas that Kafka might have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.records_twin import rows_of, structs

from holdfast.core.model.columns import starts
from holdfast.core.wire.layouts.offsets_records import _struct_reader, _struct_writer, default_of
from holdfast.core.wire.layouts.offsets_schemas import Field, Kind, layout
from holdfast.core.wire.many.columnar import FEW, read, skip, walk
from holdfast.core.wire.many.columns import ABSENT, Numbers, Slices, Text, spread
from holdfast.core.wire.many.programs import program_of
from holdfast.core.wire.many.ragged import Cursor, padded
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import WireError

NUMBERS = (Kind.INT8, Kind.INT16, Kind.UINT16, Kind.INT32, Kind.INT64)


@st.composite
def fields(draw, depth: int, flexible: bool) -> tuple[Field, ...]:
    """Fields of a struct; the first one is no tag, so that an element has a size."""
    out = []
    for index in range(draw(st.integers(1, 4))):
        kinds = [k for k in Kind if k is not Kind.STRUCT] + [Kind.STRUCT] * bool(depth)
        kind = draw(st.sampled_from(kinds))
        is_array = draw(st.booleans())
        lone_struct = kind is Kind.STRUCT and not is_array
        runs = is_array or kind in (Kind.STRING, Kind.BYTES)
        nullable = lone_struct or (runs and draw(st.booleans()))
        tag = index if flexible and index and draw(st.booleans()) else None
        default: object = 0
        if tag is not None and runs:
            nullable = nullable or kind is Kind.BYTES
            default = () if is_array else None if nullable else ""
        inner = draw(fields(depth - 1, flexible)) if kind is Kind.STRUCT else ()
        if lone_struct and tag is not None:
            inner = (
                Field(name="n", kind=Kind.INT32),
                Field(name="l", kind=Kind.INT8, is_array=True),
            )
            default = ()
        out.append(
            Field(
                name=f"f{index}",
                kind=kind,
                is_array=is_array,
                nullable=nullable,
                tag=tag,
                default=default,
                fields=inner,
            )
        )
    return tuple(out)


@st.composite
def messages(draw):
    """A schema, and messages that more or less follow it."""
    flexible = draw(st.booleans())
    schema = draw(fields(2, flexible))
    write = _struct_writer(layout(schema, 0, flexible), 0)
    blobs = []
    for value in draw(st.lists(structs(schema, 0, flexible), max_size=5)):
        writer = Writer("Any")
        write(writer, value)
        blob = writer.done()
        at = draw(st.integers(0, len(blob)))
        match draw(st.integers(0, 6)):
            case 0:
                blob = blob[:at]
            case 1:
                blob = blob[:at] + draw(st.binary(min_size=1, max_size=3)) + blob[at + 1 :]
            case 2:
                blob = blob[:at] + draw(st.sampled_from([b"\xff", b"\x80", b"\x00"])) + blob[at:]
            case 3:
                blob += draw(st.binary(min_size=1, max_size=4))
        blobs.append(blob)
    if draw(st.booleans()):
        blobs = blobs * (FEW // max(1, len(blobs)) + 1)  # enough for the lock step
    return schema, flexible, blobs


def cursor_over(blobs):
    start = starts(np.array([len(blob) for blob in blobs], np.int64))
    data = padded(np.frombuffer(b"".join(blobs), np.uint8))
    return Cursor(data, start[:-1].copy(), start[1:].copy()), start


def by_scalar(schema, flexible, blobs):
    """Value and length of each message, None where it is bad; unknown tags."""
    out = []
    for blob in blobs:
        reader = Reader(blob, "Any")
        try:
            value = _struct_reader(layout(schema, 0, flexible), 0)(reader)
        except WireError:
            out.append(None)
        else:
            out.append((value, reader.pos, reader.n_unknown_tags))
    return out


@given(messages())
def test_reads_as_the_scalar_form(case):
    schema, flexible, blobs = case
    expected = by_scalar(schema, flexible, blobs)
    plan = program_of(layout(schema, 0, flexible), 0)
    cursor, _ = cursor_over(blobs)
    read(plan, cursor)
    assert cursor.overrun().tolist() == [one is None for one in expected]
    good = [blob for blob, one in zip(blobs, expected, strict=True) if one is not None]
    kept = [one for one in expected if one is not None]
    cursor, start = cursor_over(good)
    rows = rows_of(read(plan, cursor))
    assert not cursor.overrun().any()
    assert rows == [value for value, _, _ in kept]
    assert (cursor.pos - start[:-1]).tolist() == [size for _, size, _ in kept]
    n_tags = cursor.n_unknown_tags
    assert ([0] * len(kept) if n_tags is None else n_tags.tolist()) == [n for _, _, n in kept]


@given(messages())
def test_skips_and_walks_as_far_as_it_reads(case):
    schema, flexible, blobs = case
    good = [
        (blob, one[1])
        for blob, one in zip(blobs, by_scalar(schema, flexible, blobs), strict=True)
        if one is not None
    ]
    plan = program_of(layout(schema, 0, flexible), 0)
    cursor, start = cursor_over([blob for blob, _ in good])
    ends = (start[:-1] + [size for _, size in good]).tolist()
    skip(plan, cursor)
    assert cursor.pos.tolist() == ends
    view = cursor.data.data
    for low, high, end in zip(start[:-1].tolist(), start[1:].tolist(), ends, strict=True):
        assert walk(plan, view, low, high) == end


@given(messages())
def test_a_walk_never_leaves_a_bad_message(case):
    schema, flexible, blobs = case
    plan = program_of(layout(schema, 0, flexible), 0)
    cursor, start = cursor_over(blobs)
    for low, high in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
        assert low <= walk(plan, cursor.data.data, low, high) <= high


def test_a_lone_struct_is_nullable():
    field = Field(name="s", kind=Kind.STRUCT, fields=(Field(name="n", kind=Kind.INT8),))
    with pytest.raises(AssertionError, match="lone struct"):
        program_of(layout((field,), 0, False), 0)


def test_spread_puts_defaults_between():
    index = np.array([ABSENT, 1, 0])
    numbers = Numbers(values=np.array([7, 8]))
    assert spread(numbers, index, -1).values.tolist() == [-1, 8, 7]
    text = Text(data=np.frombuffer(b"abc", np.uint8), start=np.array([0, 1, 3]), valid=None)
    for default, missing in ((None, None), ("", "")):
        assert rows_of({"t": spread(text, index, default)}) == [
            {"t": missing},
            {"t": "bc"},
            {"t": "a"},
        ]
    data = padded(np.frombuffer(b"abc", np.uint8))
    slices = Slices(
        data=data, begin=np.array([0, 1]), size=np.array([1, 2]), valid=np.array([True, True])
    )
    assert rows_of({"b": spread(slices, index, None)}) == [{"b": None}, {"b": b"bc"}, {"b": b"a"}]
    assert spread(numbers, np.array([0, 1]), 0) is numbers
    assert default_of(Field(name="n", kind=Kind.INT32, default=-1)) == -1
