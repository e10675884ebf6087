"""State of a stream that is not what a batch wrote: refused, and never read outside of itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline import fleet
from tests.pipeline.histories import generation

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches import state
from holdfast.fleet.pipeline.ingest.decode_groups import generations
from holdfast.fleet.pipeline.ingest.generations import Generations
from holdfast.fleet.pipeline.ingest.split import RowKind, split_rows


def some():
    """Two generations of a group, one member each, which owns a partition."""
    records = [fleet.classic(generation("g", n, {"a": {"t": [0]}})) for n in (1, 2)]
    batch = fleet.record_batch([(0, n, n, *pair) for n, pair in enumerate(records)])
    (found,) = generations(batch)
    return found


def read(message):
    out = state.CarriedState()
    column = {"message": pa.array([message], pa.binary())}
    state.read_state(split_rows(RowKind.STATE, column, 1), out)
    return out


def packed(gens, **changed):
    tables = {name: changed.get(name, getattr(gens, name)) for name in ("head", "members", "owned")}
    return state._pack(Generations(**tables), [])


def with_column(table, name, array):
    return table.set_column(table.column_names.index(name), table.schema.field(name), array)


def beyond(offset):
    """Two strings, the first of which ends behind its buffer; the last offset is a true one."""
    ends = pa.py_buffer(np.array([0, offset, 3], np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"abc")])


def test_what_a_batch_wrote_is_read_back():
    gens = some()
    (found,) = read(packed(gens)).past
    assert found.head.equals(gens.head) and found.owned.equals(gens.owned)


@pytest.mark.parametrize("offset", [10, 1_000_000])
def test_a_string_that_ends_behind_its_buffer_is_refused(offset):
    gens = some()
    head = with_column(gens.head, "group", beyond(offset))
    with pytest.raises(SourceError, match="state that an earlier batch left cannot be read"):
        read(packed(gens, head=head))


@pytest.mark.parametrize("row", [-1, 2, 2**31 - 1])
def test_a_member_of_a_generation_that_is_not_there_is_refused(row):
    gens = some()
    members = with_column(gens.members, "row", pa.array([0, row], pa.int32()))
    with pytest.raises(SourceError, match="a missing row"):
        read(packed(gens, members=members))


@pytest.mark.parametrize("message", [b"", b"\xff" * 9, b"\x00" * 24, bytes(7) + b"\x03abc" * 4])
def test_bytes_that_are_no_state_are_refused(message):
    with pytest.raises(SourceError, match="cannot be read"):
        read(message)


def test_other_columns_are_refused():
    gens = some()
    with pytest.raises(SourceError, match="cannot be read"):
        read(packed(gens, head=gens.head.drop_columns(["state"])))


def test_the_state_of_another_version_is_refused(monkeypatch):
    value = packed(some())
    monkeypatch.setattr(state, "LAYOUT", b"another.")
    with pytest.raises(SourceError, match="found other columns than those of this version"):
        read(value)
