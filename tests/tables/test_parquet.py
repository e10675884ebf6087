"""Parquet that unpacks to far more than its size: refused, or read in pieces; the rest as it is."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline import fleet
from tests.suites import further

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest.source import Dump, read_pieces
from holdfast.fleet.pipeline.steps import pieces
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.storage import parquet
from holdfast.fleet.tables.storage.parquet import (
    BATCH_BYTES,
    MOST_VALUE_BYTES,
    BoundedParquet,
    batches_of,
)

RECORDS = arrow_schema("records")


def records(values):
    n = len(values)
    columns = {
        "partition": pa.array([0] * n, pa.int32()),
        "offset": pa.array(range(n), pa.int64()),
        "timestamp": pa.array(range(n), pa.int64()).cast(RECORDS.field("timestamp").type),
        "key": pa.array([b"k"] * n, pa.binary()),
        "value": values,
    }
    return pa.table(columns)


def repeated(size, n):
    """One value of some bytes, in every row; as Arrow's own dictionary it costs nothing to make."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([b"x" * size]))


def read(file):
    listed = [piece for part in pieces([str(file)], 1) for piece in part]
    return read_pieces(listed)


@pytest.mark.parametrize("plain", further([False, True]))
def test_a_dictionary_is_unpacked_piece_by_piece_and_not_without_end(tmp_path, plain):
    """3,000 rows of one value of 300 kB, from 15 kB: at most SMALL_BYTES of them are unpacked."""
    values = repeated(300_000, 3_000)
    file = tmp_path / "bomb.parquet"
    pq.write_table(records(values.cast(pa.binary()) if plain else values), file)
    assert file.stat().st_size < 100_000
    before, got = pa.total_allocated_bytes(), []
    with pytest.raises(SourceError, match=r"bomb\.parquet has \d+ bytes and unpacks to"):
        got += [(rows.nbytes, pa.total_allocated_bytes() - before) for rows in read(file)]
    assert sum(size for size, _ in got) <= parquet.SMALL_BYTES
    assert max((at for _, at in got), default=0) <= 4 * BATCH_BYTES


def test_values_in_a_dictionary_are_read_whole_and_in_pieces(tmp_path):
    """Honest repetition: the same rows in the same order, of about BATCH_BYTES at a time."""
    values = [b"a" * 70_000, b"b" * 90_000, None, b"c"] * 100
    file = tmp_path / "0.parquet"
    table = records(pa.array(values, pa.binary()))
    pq.write_table(table, file, row_group_size=150)
    found = list(read(file))
    assert pa.Table.from_batches(found)["value"].to_pylist() == values
    assert pa.Table.from_batches(found)["offset"].to_pylist() == list(range(400))
    assert len(found) > 1 and max(rows.nbytes for rows in found) <= BATCH_BYTES + 200_000
    assert BoundedParquet(file).read(RECORDS.names).equals(pa.Table.from_batches(found))


def test_what_a_footer_says_is_enough_to_refuse(tmp_path):
    values = pa.array([bytes([i]) * 10_000_000 for i in range(20)], pa.binary())
    file = tmp_path / "zeros.parquet"
    pq.write_table(records(values), file, use_dictionary=False, compression="zstd")
    assert 1_000 * file.stat().st_size < 200_000_000
    for attempt in (lambda: BoundedParquet(file), lambda: next(read(file))):
        with pytest.raises(SourceError, match=r"unpacks to 200\d+ or more: refused"):
            attempt()


@pytest.mark.parametrize("part", further(["records", "topics", "offsets"]))
def test_a_dump_with_such_a_part_is_refused_when_it_is_opened(tmp_path, part):
    dump = fleet.write_dump(tmp_path / "dump", [("g", 1, fleet.commit("g", "t", 0, 1, at=1))])
    text = pa.array([chr(65 + i) * 10_000_000 for i in range(20)])
    columns = {f.name: pa.nulls(20, f.type) for f in arrow_schema(part)}
    columns["key" if part == "records" else "topic"] = text
    file = dump / part / "9.parquet"
    pq.write_table(pa.table(columns), file, use_dictionary=False, compression="zstd")
    with pytest.raises(SourceError, match=r"9\.parquet has \d+ bytes and unpacks"):
        Dump.open(dump)


def test_names_of_topics_in_a_dictionary_are_not_unpacked_without_end(tmp_path):
    dump = fleet.write_dump(tmp_path / "dump", [("g", 1, fleet.commit("g", "t", 0, 1, at=1))])
    names = repeated(300_000, 3_000).cast(pa.dictionary(pa.int32(), pa.string()))
    ids, counts = pa.array(["i"] * 3_000), pa.array([1] * 3_000, pa.int32())
    topics = pa.table({"topic_id": ids, "topic": names, "partitions": counts})
    pq.write_table(topics, dump / "topics" / "0.parquet")
    with pytest.raises(SourceError, match="unpacks to"):
        Dump.open(dump).topics()


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_value_that_no_broker_takes_is_refused(tmp_path, use_dictionary):
    file = tmp_path / "0.parquet"
    values = pa.array([b"small", bytes(MOST_VALUE_BYTES + 1)], pa.binary())
    pq.write_table(records(values), file, compression="none", use_dictionary=use_dictionary)
    with pytest.raises(SourceError, match=f"a value of {MOST_VALUE_BYTES + 1} bytes, expected at"):
        list(read(file))


def test_a_file_of_nothing_is_read(tmp_path):
    pq.write_table(records(pa.array([], pa.binary())), tmp_path / "0.parquet")
    assert list(batches_of(tmp_path / "0.parquet", ["key"])) == []
