"""One reader for a folder of batches, a folder of plain files and columns in memory."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from holdfast.errors import ConfigError, SourceError
from holdfast.fleet.columnar import GroupedTable, times_ms
from holdfast.fleet.tables.columns.schemas import from_columns
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.delta_log import entry_name
from holdfast.fleet.tables.folder.files import BatchWriter, files_of
from holdfast.fleet.tables.folder.manifest import Batch, stamp
from holdfast.fleet.tables.reading import Tables, open_tables, read_tables

TIME_US = 1_700_000_000_123_456


def generations(*groups):
    n = len(groups)
    nulls = {c.name: [None] * n for c in TABLES["generations"].columns if c.nullable}
    return from_columns(
        "generations",
        {
            **nulls,
            "group": list(groups),
            "generation": range(n),
            "group_type": ["classic"] * n,
            "state": ["Stable"] * n,
            "protocol_type": ["consumer"] * n,
            "protocol": ["range"] * n,
            "n_members": [1] * n,
            "n_partitions": [1] * n,
            "timestamp": [TIME_US + row for row in range(n)],
            "log_partition": [0] * n,
            "log_offset": range(n),
        },
    )


def commit(root, batch, rows):
    writer = BatchWriter(str(root), batch)
    writer.write("generations", rows)
    Tables(root).commit(Batch(id=batch, files=files_of(writer.close())))


def test_a_folder_is_read_again_and_in_memory_tables_are_not(tmp_path):
    commit(tmp_path, 0, generations("a"))
    live, held = open_tables(tmp_path), read_tables(tmp_path)
    before = stamp(tmp_path)
    commit(tmp_path, 1, generations("b"))
    assert live.table("generations")["group"].to_pylist() == ["a", "b"]
    assert held.table("generations")["group"].to_pylist() == ["a"]
    assert held.load() is held and live.load().groups == live.groups == ("a", "b")
    assert stamp(tmp_path) != before
    assert "generations" in live and "lag" not in live and "lag" not in held
    assert live.stored("lag").num_rows == held.stored("lag").num_rows == 0


def test_batches_and_memory_say_the_same(tmp_path):
    rows = generations("b", "a", "b")
    commit(tmp_path, 0, rows)
    for source in (tmp_path, {"generations": rows}):
        tables = read_tables(source)
        assert tables.stored("generations").equals(rows)
        assert tables.of_group("b", "generations")["generation"].to_pylist() == [0, 2]
        assert tables.table("generations", groups=["a"])["generation"].to_pylist() == [1]


def test_times_keep_microseconds_and_are_shown_as_whole_milliseconds(tmp_path):
    commit(tmp_path, 0, generations("a"))
    rows = read_tables(tmp_path).stored("generations")
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [TIME_US]
    assert times_ms(rows, "timestamp").tolist() == [TIME_US // 1000]
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    columns["timestamp"] = [TIME_US // 1000]
    found = read_tables({"generations": columns}).stored("generations")
    assert times_ms(found, "timestamp").tolist() == [TIME_US // 1000]


@pytest.mark.parametrize("name", ["../generations.parquet", "/etc/generations.parquet"])
def test_a_manifest_names_no_file_outside_of_its_folder(tmp_path, name):
    commit(tmp_path, 0, generations("a"))
    entry = tmp_path / entry_name("generations", 0)
    (file,) = Tables(tmp_path).files("generations")
    inside = str(file.relative_to(tmp_path / "generations"))
    entry.write_text(entry.read_text().replace(inside, name), encoding="utf-8")
    for read in (read_tables, lambda root: open_tables(root).files("generations")):
        with pytest.raises(SourceError, match="outside of the folder"):
            read(tmp_path)


def test_a_column_that_is_missing_is_named(tmp_path):
    commit(tmp_path, 0, generations("a").drop_columns(["leader"]))
    assert read_tables(tmp_path).stored("generations")["leader"].to_pylist() == [None]
    commit(tmp_path, 0, generations("a").drop_columns(["state"]))
    with pytest.raises(SourceError, match="has no column state"):
        Tables(tmp_path).table("generations")


def test_groups_are_chosen_by_name_and_pattern(tmp_path):
    commit(tmp_path, 0, generations("etl", "web", "etl-2"))
    for tables in (open_tables(tmp_path), read_tables(tmp_path)):
        assert tables.choose(None) is None
        assert tables.choose(["web", "etl*", "web"]) == ("web", "etl", "etl-2")
        with pytest.raises(ConfigError, match="did you mean etl"):
            tables.choose(["elt"])
        with pytest.raises(ConfigError, match="etl, etl-2, web"):
            tables.choose(["x" * 20])


def test_a_group_that_waits_for_a_transaction_is_known(tmp_path):
    commit(tmp_path, 0, generations("etl"))
    tables = Tables(tmp_path)
    (batch,) = tables.batches()
    notes = {"open_transactions": [{"groups": ["waiting"]}]}
    tables.commit(replace(batch, id=1, files={}, notes=notes))
    assert tables.choose(["waiting", "etl"]) == ("etl",)
    assert tables.choose(["wait*", "etl"]) == ("etl",)
    with pytest.raises(ConfigError, match="'waiting' counts yet"):
        tables.choose(["waiting"])
    with pytest.raises(ConfigError, match="no group 'other'"):
        tables.choose(["other", "etl"])


def test_rows_of_a_group_keep_their_order():
    rows = pa.table({"group": ["b", "a", "b", "a"], "at": [3, 2, 1, 0]})
    cut = GroupedTable.of(rows)
    assert list(cut.bounds) == ["a", "b"]
    assert cut.of_group("b")["at"].to_pylist() == [3, 1]
    assert cut.of_group("a")["at"].to_pylist() == [2, 0]
    assert cut.of_group("c").num_rows == 0
    assert GroupedTable.of(rows.sort_by("group")).rows["at"].to_pylist() == [2, 0, 3, 1]


def test_counts_with_a_heading_stand_in_the_order_of_the_report():
    shown = [column.name for column in TABLES["rebalances"].headed_counts]
    assert shown.index("n_avoidable_moves") == shown.index("n_moved") + 1
    assert set(shown) < {column.name for column in TABLES["rebalances"].counts}
