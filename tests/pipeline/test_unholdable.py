"""A record with a value that no table holds is a bad record, and stops no other."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.pipeline import fleet
from tests.pipeline.histories import generation

from holdfast.fleet.pipeline.batches.tasks import Decoded, read_groups
from holdfast.fleet.pipeline.ingest.decode import Selection, placed
from holdfast.fleet.pipeline.ingest.split import share_positions
from holdfast.fleet.tables.columns.schemas import FIRST_US, LAST_US


def batch(records, times):
    pairs = zip(records, times, strict=True)
    return fleet.record_batch([(0, n, at, *pair) for n, (pair, at) in enumerate(pairs)])


@pytest.mark.parametrize("time", [LAST_US + 1, FIRST_US - 1, 2**62, -(2**62), None])
def test_a_time_that_no_table_holds_is_a_bad_record(time):
    good, bad = placed(batch([(b"k", b"v")] * 4, [0, time, LAST_US, FIRST_US]))
    assert good["offset"].to_pylist() == [0, 2, 3]
    (row,) = bad.to_pylist()
    assert (row["log_offset"], row["timestamp"], row["reason"]) == (1, None, "out-of-range")


@pytest.mark.parametrize(
    "strange",
    [
        fleet.consumer_target("g", "m-1", {"t": [0, -1]}),
        fleet.consumer_current("g", "m-1", 1, {}, pending={"t": [-5]}),
        fleet.assignment_epoch("g", -2),
        fleet.consumer_epoch("g", -(2**31)),
        fleet.classic(generation("g", -1, {"m-1": {"t": [0]}})),
    ],
)
def test_a_record_of_a_group_with_a_number_below_0_is_a_bad_record(strange):
    out = Decoded()
    good = fleet.consumer_epoch("g", 1), fleet.consumer_target("g", "m-2", {"t": [1]})
    read_groups(batch([good[0], strange, good[1]], [0, 0, 0]), out)
    assert [event["log_offset"] for event in out.consumer] == [0, 2] and not out.generations
    (row,) = pa.Table.from_batches(out.bad).to_pylist()
    assert (row["log_offset"], row["reason"]) == (1, "out-of-range")


def test_what_a_share_group_says_of_no_partition_or_at_no_time_is_counted():
    def state(partition):
        key = bytes(2) + b"\x00\x01g" + bytes(16) + partition.to_bytes(4, "big", signed=True)
        return key, bytes(14) + (5).to_bytes(8, "big") + bytes(16) + b"\x01\x00"

    rows = batch([state(0), state(-1), state(1), state(2)], [0, 0, LAST_US + 1, None])
    found, n_bad = share_positions(pa.Table.from_batches([rows]), {}, Selection())
    assert (found["partition"].to_pylist(), n_bad) == ([0], 3)
