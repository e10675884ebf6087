"""Dumps that are merged: what compaction took from the later one comes from the earlier one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.running import run as command

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest import merge as merging
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.fleet.pipeline.ingest.merge import merge_dumps
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def record(partition, offset, value=b"v"):
    return partition, offset, 1_000 * offset, f"{partition}/{offset}".encode(), value


def write(folder, records, *, hour, cluster="one", end=100, share=(), groups=()):
    """A dump of records of two partitions, taken ``hour`` hours after noon."""
    snapshot = ClusterSnapshot(
        cluster_id=cluster,
        taken_at=(NOON + timedelta(hours=hour)).isoformat(),
        topics=[("A" * 22, f"topic-{hour}", 1)],
        offsets=[(OFFSETS_TOPIC, partition, hour, end) for partition in (0, 1)],
        share_state=share,
    )
    names = ("partition", "offset", "timestamp", "key", "value")
    columns = dict(zip(names, zip(*records, strict=True), strict=True))
    write_log(folder, columns, snapshot)
    if groups:
        about = folder / "dump.json"
        about.write_text(json.dumps({**json.loads(about.read_text()), "groups": groups}))
    return folder


def records_of(dump):
    rows = pa.concat_tables(pq.read_table(file) for file in dump.record_files())
    micros = rows["timestamp"].cast(pa.int64())
    return list(zip(*(c.to_pylist() for c in rows.set_column(2, "timestamp", micros)), strict=True))


OLD = [record(p, offset) for p in (0, 1) for offset in range(10)]
NEW = [record(p, offset) for p in (1, 0) for offset in (2, 8, 9, 10, 11)]


@pytest.mark.parametrize("window", [merging.WINDOW_BYTES, 1])
def test_every_record_counts_once_whatever_the_order_of_the_dumps(tmp_path, monkeypatch, window):
    monkeypatch.setattr(merging, "WINDOW_BYTES", window)
    later = write(tmp_path / "later", NEW, hour=5, share=[record(3, 7), record(3, 8, None)])
    sooner = write(tmp_path / "sooner", OLD, hour=1, share=[record(3, 7)])
    between = write(tmp_path / "between", [record(1, 10)], hour=3)
    merged = merge_dumps([later, sooner, between], tmp_path / "out")
    assert records_of(merged) == sorted({*OLD, *NEW})
    assert merged.topics()["topic"].to_pylist() == ["topic-5"]
    assert merged.offsets()["begin_offset"].to_pylist() == [5, 5]
    assert merged.share_state()["offset"].to_pylist() == [7, 8]
    assert (merged.cluster_id, merged.taken_at) == ("one", "2026-11-22T17:00:00+00:00")
    assert merge_dumps([merged.path, sooner], tmp_path / "again").n_records() == len({*OLD, *NEW})


def test_windows_divide_row_groups_that_lie_behind_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "WINDOW_BYTES", 1)
    parts = [
        write(tmp_path / f"{first}", [record(0, first + i) for i in range(4)], hour=first)
        for first in range(0, 20, 2)
    ]
    read = []
    once = merging.once
    monkeypatch.setattr(
        merging, "once", lambda rows, topic: read.append(len(rows)) or once(rows, topic)
    )
    merged = merge_dumps(parts, tmp_path / "out")
    assert [offset for _, offset, *_ in records_of(merged)] == list(range(22))
    assert max(read) <= 6 and len(read) > 9  # of 40 records


def test_dumps_of_two_clusters_are_refused(tmp_path):
    one = write(tmp_path / "a", OLD, hour=1)
    two = write(tmp_path / "b", NEW, hour=2, cluster="two")
    unnamed = write(tmp_path / "c", NEW, hour=3, cluster="")
    with pytest.raises(SourceError, match=r"a is a dump of cluster one, \S+b of cluster two"):
        merge_dumps([one, two], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert merge_dumps([unnamed, one], tmp_path / "out").cluster_id == "one"


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ({"records": [record(0, 3, b"other")]}, "two records with offset 3"),
        ({"records": [record(0, 3, None)]}, "two records with offset 3"),
        ({"records": [record(0, 3)], "end": 5}, "offset 9, but ended at 5"),
    ],
)
def test_a_topic_that_was_made_anew_is_refused(tmp_path, later, told):
    one = write(tmp_path / "a", OLD, hour=1)
    two = write(tmp_path / "b", later["records"], hour=2, end=later.get("end", 100))
    with pytest.raises(SourceError, match=f"{told}.*recreated"):
        merge_dumps([one, two], tmp_path / "out")
    assert not (tmp_path / "out" / "dump.json").exists()


def test_bad_records_of_other_writers_are_kept(tmp_path):
    one, two = (write(tmp_path / name, OLD, hour=1) for name in ("a", "b"))
    (file,) = (one / "records").iterdir()
    rows = pq.read_table(file)
    holes = rows.slice(0, 2).set_column(1, "offset", pa.array([None, 5], pa.int64()))
    pq.write_table(pa.concat_tables([rows.slice(2), holes.slice(0, 1)]), file)
    merged = records_of(merge_dumps([one, two], tmp_path / "out"))
    assert merged[:-1] == OLD
    assert merged[-1][1] is None


def test_groups_that_were_requested(tmp_path):
    some = write(tmp_path / "a", OLD, hour=1, groups=["g"])
    others = write(tmp_path / "b", NEW, hour=2, groups=["f", "g"])
    whole = write(tmp_path / "c", NEW, hour=3)
    assert merge_dumps([some, others], tmp_path / "out").groups == ("f", "g")
    assert merge_dumps([some, whole], tmp_path / "out").groups == ()


def test_the_command(tmp_path):
    one, two = write(tmp_path / "a", OLD, hour=1), write(tmp_path / "b", NEW, hour=2)

    def call(*words):
        done = command("merge", *words)
        return done.code, done.err.strip()

    code, said = call(one, two, "-o", tmp_path / "out")
    assert (code, said) == (0, f"24 records of 2 dumps in {tmp_path / 'out'}")
    (tmp_path / "link").symlink_to(two)
    assert call(one, two, "-o", two)[0] == call(one, two, "-o", tmp_path / "link")[0] == 3
    assert call(one, two, "-o", two)[0] == call(one, tmp_path, "-o", tmp_path / "x")[0] == 3
    assert call(one, "-o", tmp_path / "x")[0] == 2
    assert len(records_of(merging.Dump.open(two))) == len(NEW)
