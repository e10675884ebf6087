"""Sources that are not what they should be: one clear line each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline import fleet

from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest import dump as dump_module
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.dump import _check_counts, _write_part, gathered, part_of
from holdfast.fleet.pipeline.ingest.offsets_topic import LogPart, kafka_options
from holdfast.fleet.pipeline.ingest.source import RECORDS, Dump, read_pieces
from holdfast.fleet.pipeline.session import _deepest, local_cores, parse_defaults
from holdfast.fleet.pipeline.steps import FrameRows, named, pieces
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.manifest import COMMITS, MANIFEST, Batch
from holdfast.fleet.tables.reading import Tables


@pytest.fixture
def dump(tmp_path):
    return fleet.write_dump(tmp_path / "dump", [("g", 1, fleet.commit("g", "t", 0, 1, at=1))])


def without_records(dump):
    for file in (dump / "records").iterdir():
        file.unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda dump: dump.rename(dump.with_name("away")), "no such folder"),
        (lambda dump: (dump.rename(dump.with_name("away")), dump.write_text("")), "not a folder"),
        (lambda dump: (dump / "dump.json").unlink(), r"not a dump: it has no dump\.json"),
        (without_records, r"no records/\*\.parquet"),
        (
            lambda dump: (dump / "records" / "1.parquet").write_bytes(b"PAR1 nonsense"),
            r"1\.parquet: not readable as Parquet",
        ),
        (
            lambda dump: pq.write_table(pa.table({"topic": ["t"]}), dump / "offsets" / "0.parquet"),
            "lacks the column",
        ),
    ],
)
def test_what_is_no_dump_is_refused(dump, spoil, said):
    spoil(dump)
    with pytest.raises(SourceError, match=said):
        Dump.open(dump)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"schema_version": 2}',
        '{"schema_version": 1, "groups": [NaN]}',
        "\x00",
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_document_that_says_nothing(dump, text):
    (dump / "dump.json").write_text(text)
    with pytest.raises(SourceError, match=r"dump\.json"):
        Dump.open(dump)


def test_a_number_that_is_no_partition(dump):
    (file,) = (dump / "records").iterdir()
    rows = pq.read_table(file)
    at = rows.schema.get_field_index("partition")
    pq.write_table(rows.set_column(at, "partition", pa.array([2**32 + 3])), file)
    with pytest.raises(SourceError, match=r"cannot be read: .*4294967299"):
        list(read_pieces([(str(file), 0)]))


def test_topics_and_offsets_may_be_missing(dump):
    for name in ("topics", "offsets"):
        for file in (dump / name).iterdir():
            file.unlink()
    opened = Dump.open(dump)
    assert opened.topics().num_rows == opened.offsets().num_rows == 0
    opened.check_read()


@pytest.mark.parametrize("link", ["records", "records/0.parquet", "topics/0.parquet"])
def test_a_dump_is_not_read_through_links(dump, tmp_path, link):
    (dump / link).rename(tmp_path / "away")
    (dump / link).symlink_to(tmp_path / "away")
    with pytest.raises(SourceError, match="is a link"):
        Dump.open(dump)


@pytest.mark.parametrize("link", ["records", "dump.json"])
def test_a_dump_is_not_written_through_links(dump, tmp_path, link):
    (dump / link).rename(tmp_path / "away")
    (dump / link).symlink_to(tmp_path / "away")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SourceError, match="is a link: a dump is not written"):
        dump_module.make_room(dump)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dump_is_on_the_disk_before_it_says_that_it_is_whole(tmp_path, monkeypatch):
    done, sync, rename = [], os.fsync, Path.replace

    def synced(fd):
        done.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        sync(fd)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(
        Path, "replace", lambda at, to: done.append(Path(to).name) or rename(at, to)
    )
    columns = {name: [] for name in arrow_schema("records").names}
    said = SimpleNamespace(cluster_id="c", taken_at="", topics=[], offsets=[], share_state=[])
    dump_module.write_log(tmp_path / "d", columns, said)
    parts = ["part-0.parquet"] * 3 + ["records", "topics", "offsets"]
    assert done[:7] == [*parts, "d"] and done[-2:] == ["dump.json", "d"]
    assert done.count("dump.json") == 1


def test_the_newest_record(dump):
    assert Dump.open(dump).newest_us() == 1_000_000


def test_tables_without_a_manifest(tmp_path):
    with pytest.raises(SourceError, match="holds no tables"):
        Tables(tmp_path).batches()


@pytest.mark.parametrize(
    "text",
    ["{", "{}", '{"schema_version": 9, "batches": []}', pytest.param("[" * 100_000, id="deep")],
)
def test_a_manifest_that_is_not_one(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(SourceError):
        Tables(tmp_path).batches()


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(SourceError, match="no table 'x'"):
        Tables(tmp_path).files("x")


def test_batches_are_replaced_by_id_and_leave_no_draft(tmp_path):
    tables = Tables(tmp_path)
    for batch in (
        Batch(id=0, files={}),
        Batch(id=1, files={}),
        Batch(id=0, files={}, notes={"a": 1}),
    ):
        tables.commit(batch)
    assert [(b.id, b.notes) for b in tables.batches()] == [(0, {"a": 1}), (1, {})]
    assert {p.name for p in tmp_path.iterdir()} == {COMMITS, MANIFEST, *TABLES}
    assert sorted(p.name for p in (tmp_path / COMMITS).iterdir()) == ["000000003.json"]
    assert json.loads((tmp_path / MANIFEST).read_text())["schema_version"] == 1
    assert tables.next_batch() == 2


def test_the_innermost_cause_is_reported():
    text = "o1.x\n: org.A: outer\n\tat a.b(C)\nCaused by: org.B: inner\n\tat d.e(F)"
    assert _deepest(text) == "org.B: inner"
    assert _deepest("only this\nand that") == "only this"
    assert _deepest("") == "no reason given"


def test_settings_of_others_are_read():
    text = "# note\n\nspark.a  1\nspark.b=two words \nspark.c\t=\tx=y\n"
    assert parse_defaults(text) == {"spark.a": "1", "spark.b": "two words", "spark.c": "x=y"}
    assert [local_cores(m) for m in ("local", "local[3]", "local[2,4]")] == [1, 3, 2]


def test_a_read_of_many_partitions_does_not_wait_at_each_end():
    """Half a second each, by Kafka's default; who sets another one has it."""
    plain = LiveCluster(bootstrap="h:1")
    assert int(kafka_options(plain, [0])["kafka.fetch.max.wait.ms"]) <= 20
    own = LiveCluster(bootstrap="h:1", config={"fetch.max.wait.ms": "300"})
    assert kafka_options(own, [0])["kafka.fetch.max.wait.ms"] == "300"


@pytest.mark.parametrize(("n_parts", "expected"), [(1, 1), (4, 4), (99, 12)])
def test_a_dump_is_read_in_even_parts(tmp_path, n_parts, expected):
    """Every row group once and in order, and what is read is what stands there."""
    rows = some_records(36)
    files = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    for i, file in enumerate(files):
        pq.write_table(rows.slice(18 * i, 18), file, row_group_size=3)
    parts = pieces(files, n_parts)
    sizes = [len(part) for part in parts]
    assert len(sizes) == expected and max(sizes) - min(sizes) <= 2
    every = [piece for part in parts for piece in part]
    assert every == [(file, i) for file in files for i in range(6)]
    assert pa.Table.from_batches(read_pieces(every)).equals(rows)
    asked = pa.RecordBatch.from_pydict({"id": [len(parts) - 1]})
    assert named(iter([asked]), parts) == parts[-1]


def some_records(n):
    return part_of("records", [(i % 3, i, i, b"k%d" % i, None) for i in range(n)])


def test_row_groups_of_a_dump_are_large(monkeypatch):
    rows = some_records(50)
    batches = rows.to_batches(max_chunksize=7)
    monkeypatch.setattr(dump_module, "BATCH_BYTES", 2 * batches[0].nbytes)
    found = list(gathered(batches))
    assert [part.num_rows for part in found] == [14, 14, 14, 8]
    assert pa.concat_tables(found).equals(rows)
    assert list(gathered([])) == []


def test_spark_must_plan_every_partition_that_holds_records():
    ends, said = {0: (0, 5), 1: (2, 2), 2: (0, 1), 3: (7, 9)}, []
    _check_counts(ends, 3, {0: 5, 3: 1}, said.append)
    assert said == ["1 of 3 partitions of __consumer_offsets gave no record"]
    with pytest.raises(SourceError, match="planned 2 of the 3 partitions"):
        _check_counts(ends, 2, {0: 5, 3: 1}, said.append)
    for n_planned in (0, 3):
        with pytest.raises(SourceError, match="Spark read no record"):
            _check_counts(ends, n_planned, {}, said.append)


EVERY_GROUP = Selection(all_groups=True)


@pytest.mark.spark
def test_tasks_without_a_record_are_counted_too(spark, tmp_path):
    columns = (
        "cast(id as int) as partition",
        "id as offset",
        "timestamp_micros(id) as timestamp",
        "cast('k' as binary) as key",
        "cast('v' as binary) as value",
    )
    frame = spark.range(0, 4, 1, 4).where("id < 2").selectExpr(*columns)

    def written(frame, folder):
        part = LogPart(rows=FrameRows(frame=frame, schema=RECORDS, cost_rows=4), upto={})
        return _write_part(part, lambda: spark, folder, EVERY_GROUP)

    _, rows, n_tasks = written(frame, tmp_path)
    assert (n_tasks, rows) == (4, {0: 1, 1: 1})
    assert sum(pq.read_metadata(f).num_rows for f in tmp_path.glob("*.parquet")) == 2
    (tmp_path / "none").mkdir()
    assert written(frame.where("offset > 7"), tmp_path / "none") == ([], {}, 4)
