"""Small files become large ones and old rows go: nothing is lost that counts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.tables.test_reading import TIME_US, generations

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.schemas import arrow_schema, from_columns
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder import commits
from holdfast.fleet.tables.folder.delta_log import LOG, DataFile, entry_name
from holdfast.fleet.tables.folder.files import BatchWriter, files_of
from holdfast.fleet.tables.folder.maintenance import (
    MERGE_FILES,
    drop_before,
    due_files,
    maintain,
    merge,
)
from holdfast.fleet.tables.folder.manifest import Batch, read_manifest
from holdfast.fleet.tables.reading import Tables, read_tables

DAY_US = 86_400_000_000


def committed(tables, batch, **rows):
    out = BatchWriter(str(tables.root), batch)
    for name, part in rows.items():
        out.write(name, part)
    tables.commit(Batch(id=batch, files=files_of(out.close())), anew=["lag"])


def filled(name, n_rows, **columns):
    """Rows of a table with these columns, and something in all others."""
    fill = {"string": "x", "bool": False, "double": 0.5}
    made = {}
    for field in arrow_schema(name):
        given = columns.get(field.name)
        if given is None:
            is_list = pa.types.is_list(field.type)
            given = [[] if is_list else fill.get(str(field.type), 1)] * n_rows
        made[field.name] = given
    return from_columns(name, made)


def sorted_rows(tables, name):
    return sorted(map(repr, tables.table(name).to_pylist()))


def delta(tables, name, version=None):
    """The same table as Delta's own library reads it."""
    return DeltaTable(str(tables.root / name), version=version)


def test_merged_files_hold_the_same_rows_and_others_read_them(tmp_path, monkeypatch):
    """Also by delta-rs, from a checkpoint of ours, at the newest version and at an older one."""
    monkeypatch.setattr(commits, "CHECKPOINT_EVERY", 10)
    tables, n = Tables(tmp_path), 25
    with tables.writing():
        for batch in range(n):
            committed(tables, batch, generations=generations(f"g{batch % 7}"))
        before, old = sorted_rows(tables, "generations"), tables.files("generations")
        version = read_manifest(tmp_path).tables["generations"].version
        assert merge(tables.folder).merged == 0  # not yet due
        done = merge(tables.folder, everything=True)
    assert (done.merged, done.written) == (n, 1) and len(tables.files("generations")) == 1
    assert sorted_rows(tables, "generations") == sorted_rows(Tables(tmp_path), "generations")
    assert sorted_rows(tables, "generations") == before and all(f.exists() for f in old)
    for table in (delta(tables, "generations"), delta(tables, "generations", version)):
        rows = table.to_pyarrow_table().cast(arrow_schema("generations"))
        assert sorted(map(repr, rows.to_pylist())) == before
    assert [b.id for b in tables.batches()] == list(range(n))[-20:]
    assert tables.next_batch() == n


def test_a_row_is_merged_once_for_each_power(tmp_path):
    """Merged files of few rows are no larger than those of a batch, and are left alone the same."""
    tables, n, merged = Tables(tmp_path), 2 * MERGE_FILES, []
    with tables.writing():
        for batch in range(n):
            committed(tables, batch, generations=generations(*"abcde"))
            merged.append(merge(tables.folder).merged)
    due = [MERGE_FILES - 1, n - 1]
    assert [batch for batch, n_files in enumerate(merged) if n_files] == due


def files_of_rows(*rows):
    name = "generations/batch-{:09d}/{:032x}.parquet"
    return [
        DataFile(name=name.format(i, i), rows=n, size=4_000, written_ms=0)
        for i, n in enumerate(rows)
    ]


def test_a_few_small_files_do_not_keep_larger_ones_from_being_merged():
    """The small ones go along; what is larger still waits."""
    small, middle, large = [5] * 7, [500] * MERGE_FILES, [30_000] * 31
    due = due_files(files_of_rows(*small, *middle, *large))
    assert sorted(file.rows for file in due) == sorted(small + middle)
    assert due_files(files_of_rows(*small, *middle[1:], *large)) == []


def test_a_commit_after_a_merge_keeps_what_was_merged(tmp_path):
    """Merged files are of no batch, so a batch that is done again does not take them with it."""
    tables = Tables(tmp_path)
    with tables.writing():
        for batch in range(3):
            committed(tables, batch, generations=generations(f"g{batch}"))
        merge(tables.folder, everything=True)
        committed(tables, 2, generations=generations("again"))
    assert {row["group"] for row in tables.table("generations").to_pylist()} == {
        *("g0", "g1", "g2", "again")
    }


def test_a_merge_under_a_batch_that_brought_nothing_brings_it_nothing(tmp_path):
    tables = Tables(tmp_path)
    with tables.writing():
        for batch in range(3):
            committed(tables, batch, bad_records=filled("bad_records", 2))
        committed(tables, 3)
        assert merge(tables.folder, everything=True).merged == 3
    assert [batch.rows for batch in tables.batches()] == [{"bad_records": 2}] * 3 + [{}]


def history_of(days):
    """A group with a generation on each of these days, one rebalance each."""
    times = [TIME_US + day * DAY_US for day in days]
    base = {"group": ["g"] * len(days), "generation": list(range(len(days))), "timestamp": times}
    return {
        name: filled(name, len(days), **base)
        for name in ("generations", "members", "assignments", "rebalances")
    } | {"lag": filled("lag", 1, group=["g"], topic=["t"], partition=[0])}


def left(tables, name):
    return sorted(tables.stored(name)["generation"].to_pylist())


def test_old_rows_go_but_what_is_current(tmp_path):
    tables = Tables(tmp_path)
    with tables.writing():
        committed(tables, 0, **history_of([0, 1, 2]))
        done = drop_before(tables.folder, TIME_US + DAY_US)
        assert done.dropped == dict.fromkeys(
            ("generations", "members", "assignments", "rebalances"), 1
        )
        drop_before(tables.folder, TIME_US + 90 * DAY_US)
        assert not drop_before(tables.folder, TIME_US + 90 * DAY_US).dropped
    for name in ("generations", "members", "assignments", "rebalances"):
        assert left(tables, name) == [2]
    assert tables.rows("lag") == 1 and tables.rows("rebalances") == 1


def test_a_rebalance_whose_gap_is_open_stays(tmp_path):
    tables = Tables(tmp_path)
    lost = filled(
        "movements",
        2,
        group=["g", "g"],
        generation=[0, 1],
        topic=["t", "u"],
        kind=["lost", "lost"],
        to_member=[None, None],
        timestamp=[TIME_US, TIME_US + DAY_US],
    )
    again = filled(
        "movements", 1, group=["g"], generation=[2], topic=["u"], timestamp=[TIME_US + 2 * DAY_US]
    )
    moved = pa.concat_tables([lost, again])
    with tables.writing():
        committed(tables, 0, **history_of([0, 1, 2]), movements=moved)
        maintain(tables.folder, retention_days=90, now_us=TIME_US + 95 * DAY_US)
    assert left(tables, "rebalances") == left(tables, "movements") == [0, 2]


def test_readers_keep_the_snapshot_that_they_read(tmp_path, monkeypatch):
    """Files stay until their version is old; then the entries and they go."""
    monkeypatch.setattr(commits, "TIDY_EVERY", 1)
    monkeypatch.setattr(commits, "KEPT_VERSIONS", 6)
    monkeypatch.setattr(commits, "CLOCKS_MS", 0)
    monkeypatch.setattr(commits, "CHECKPOINT_EVERY", 10)
    tables = Tables(tmp_path)
    with tables.writing():
        committed(tables, 0, lag=filled("lag", 1, group=["g"]))
        told = tables.files("lag")
        for batch in range(1, 28):
            committed(tables, batch, lag=filled("lag", 1, group=["g"]))
            if batch == 5:
                assert told[0].exists()
    assert not told[0].exists()
    assert len(list((tmp_path / "lag").glob("batch-*/*"))) <= 20
    first = min(int(p.name[:20]) for p in (tmp_path / "lag" / LOG).glob("*.json"))
    assert first == 19
    assert Tables(tmp_path).rows("lag") == delta(tables, "lag").to_pyarrow_table().num_rows == 1


def test_what_a_dead_writer_left_is_taken_back(tmp_path, monkeypatch):
    """Killed between two entries: the table has a version that no manifest names."""
    tables = Tables(tmp_path)
    with tables.writing():
        committed(tables, 0, generations=generations("a"))
        with monkeypatch.context() as patch:
            patch.setattr(commits, "commit_manifest", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                committed(tables, 1, generations=generations("half"))
        assert len(delta(tables, "generations").to_pyarrow_table()) == 2
        assert len(read_tables(tmp_path).stored("generations")) == 1
        committed(tables, 1, lag=filled("lag", 1))
    assert len(delta(tables, "generations").to_pyarrow_table()) == 1
    assert len(Tables(tmp_path).stored("generations")) == 1


def test_a_foreign_delta_table_is_not_written_to_and_not_read(tmp_path):
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "lag"), filled("lag", 1))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SourceError, match="that holdfast did not write"):
        Tables(tmp_path).commit(Batch(id=0))
    with pytest.raises(SourceError, match="no tables here"):
        read_tables(tmp_path)
    assert [p for p in before if not p.exists()] == []


def test_an_entry_that_does_not_parse_is_refused(tmp_path):
    with Tables(tmp_path).writing():
        committed(Tables(tmp_path), 0, generations=generations("a"))
    entry = tmp_path / entry_name("generations", 0)
    entry.write_text("{")
    with pytest.raises(SourceError, match="not an entry of a table's log"):
        read_tables(tmp_path)


def test_every_table_is_a_delta_table_from_the_first_commit_on(tmp_path):
    tables = Tables(tmp_path)
    tables.commit(Batch(id=0))
    for name in TABLES:
        found = delta(tables, name)
        assert found.to_pyarrow_table().num_rows == 0
        assert [field.name for field in found.schema().fields] == list(TABLES[name].names)
