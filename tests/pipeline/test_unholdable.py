"""A record with a time or a partition that no table holds is a bad record, and stops no other."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.pipeline import fleet

from holdfast.fleet.pipeline.ingest.decode import Decoded, bad_table, placed, read_commits
from holdfast.fleet.tables.columns.holdable import FIRST_US, LAST_US
from holdfast.fleet.tables.columns.schemas import arrow_schema

RECORDS = arrow_schema("records")


def batch(records, times):
    n = len(records)
    columns = [[0] * n, range(n), times, *zip(*records, strict=True)]
    arrays = [
        pa.array(list(values), pa.int64()).cast(field.type)
        if field.name == "timestamp"
        else pa.array(list(values), field.type)
        for values, field in zip(columns, RECORDS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


@pytest.mark.parametrize("time", [LAST_US + 1, FIRST_US - 1, 2**62, -(2**62), None])
def test_a_time_that_no_table_holds_is_a_bad_record(time):
    good, bad = placed(batch([(b"k", b"v")] * 4, [0, time, LAST_US, FIRST_US]))
    assert good["offset"].to_pylist() == [0, 2, 3]
    (row,) = bad.to_pylist()
    assert (row["log_offset"], row["timestamp"], row["reason"]) == (1, None, "out-of-range")


def test_a_commit_of_a_partition_below_0_is_a_bad_record():
    found = [fleet.commit("g", "t", partition, 5, at=1) for partition in (0, -1, 1)]
    out = Decoded()
    read_commits(batch([(r[0], r[1]) for r in found], [0, 0, 0]), out)
    assert pa.Table.from_batches(out.commits)["partition"].to_pylist() == [0, 1]
    (row,) = bad_table(out).to_pylist()
    assert (row["log_offset"], row["reason"]) == (1, "out-of-range")
