"""State of a stream that is not what a batch wrote: refused, and never read outside of itself."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline import fleet
from tests.pipeline.histories import generation

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches import state
from holdfast.fleet.pipeline.ingest.decode_classic import generations
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


@pytest.mark.parametrize(
    ("table", "spoil"),
    [
        *(
            ("head", partial(with_column, name="group", array=beyond(offset)))
            for offset in (10, 1_000_000)
        ),
        ("head", lambda head: head.drop_columns(["state"])),
        *(
            ("members", partial(with_column, name="row", array=pa.array([0, row], pa.int32())))
            for row in (-1, 2, 2**31 - 1)
        ),
    ],
)
def test_tables_that_no_batch_wrote_are_refused(table, spoil):
    """A string ends behind its buffer, a column is missing, a member is of no generation."""
    gens = some()
    said = "a missing row" if table == "members" else "state that an earlier batch left cannot be"
    with pytest.raises(SourceError, match=said):
        read(packed(gens, **{table: spoil(getattr(gens, table))}))


@pytest.mark.parametrize("message", [b"", b"\xff" * 9, b"\x00" * 24, bytes(7) + b"\x03abc" * 4])
def test_bytes_that_are_no_state_are_refused(message):
    with pytest.raises(SourceError, match="cannot be read"):
        read(message)


def test_the_state_of_another_version_is_refused(monkeypatch):
    value = packed(some())
    monkeypatch.setattr(state, "LAYOUT", b"another.")
    with pytest.raises(SourceError, match="found other columns than those of this version"):
        read(value)
