"""Records in, tables out: against what the generator knows."""

from __future__ import annotations

import pytest
from tests.pipeline import fleet
from tests.pipeline.fleet import classics
from tests.pipeline.histories import generation
from tests.pipeline.local import rows

from holdfast.fleet.pipeline import steps
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.manifest import COMMITS, MANIFEST
from holdfast.fleet.tables.reading import sort_rows
from holdfast.spark import TableFrames

STRANGE = [
    "../x",
    "a/b",
    "",
    "é\u202e",
    "a\x00\n\t\x1b[31m",
    "n" * 10_000,
    "=1+1",
    "😀",
    "batch=1",
    "%2e",
]


def bounce(group="g", *, protocol="range", topic="t"):
    """Two members, one of which leaves and comes back: four generations, ten seconds apart."""
    both = {"a-1": {topic: [0, 1]}, "b-1": {topic: [2, 3]}}
    alone = {"a-1": {topic: [0, 1, 2, 3]}}
    back = {"a-1": {topic: [0, 1]}, "b-2": {topic: [2, 3]}}
    return [
        generation(group, 1, both, at=100, protocol=protocol),
        generation(group, 2, alone, at=110, protocol=protocol),
        generation(group, 3, back, at=120, protocol=protocol),
        generation(group, 4, {}, at=130),
    ]


def test_a_bounce(tmp_path):
    commits = [("g", 108, fleet.commit("g", "t", 2, 7, at=108))]
    records = sorted(classics(bounce()) + commits, key=lambda record: record[1])
    dump = fleet.write_dump(tmp_path / "dump", records)
    out = run(None, dump, tmp_path / "out")
    assert rows(out, "generations", "generation", "state", "n_members", "n_partitions") == [
        (1, "Stable", 2, 4),
        (2, "Stable", 1, 4),
        (3, "Stable", 2, 4),
        (4, "Empty", 0, 0),
    ]
    assert rows(out, "movements", "generation", "partition", "from_member", "to_member", "kind")[
        :4
    ] == [
        (2, 2, "b-1", "a-1", "moved"),
        (2, 3, "b-1", "a-1", "moved"),
        (3, 2, "a-1", "b-2", "moved"),
        (3, 3, "a-1", "b-2", "moved"),
    ]
    assert rows(
        out, "rebalances", "generation", "cause", "n_kept", "n_moved", "n_needed_moves"
    ) == [
        (1, "first_seen", 0, 0, None),
        (2, "leave", 2, 2, 2),
        (3, "restart", 2, 2, 2),
        (4, "leave_or_timeout", 0, 0, 0),
    ]
    # b's partition 2 was committed at 108; the others were last seen in the record at 100.
    upper = {
        r[:2]: r[2]
        for r in rows(out, "ownership_gaps", "generation", "partition", "gap_upper_seconds")
    }
    assert {p: upper[2, p] for p in range(4)} == {0: 10.0, 1: 10.0, 2: 2.0, 3: 10.0}
    summed = {r[0]: r[1] for r in rows(out, "rebalances", "generation", "gap_upper_seconds")}
    assert summed[2] == 32.0
    assert out.dump.n_records() == 5


@pytest.mark.spark
@pytest.mark.every
def test_no_name_breaks_anything(spark, tmp_path, monkeypatch):
    """Every step runs in tasks of Spark."""
    monkeypatch.setattr(steps, "HERE_ROWS", -1)
    records = []
    for name in STRANGE:
        records += classics(bounce(name, topic=name or "t"))
        records.append((name, 105, fleet.commit(name, name or "t", 0, 1, at=105)))
    folder = tmp_path / "du mp[1]*{a,b}"
    out = run(lambda: spark, fleet.write_dump(folder, records), tmp_path / "o?t {x}")
    pairs = {(name, name or "t") for name in STRANGE}
    for table in ("assignments", "movements", "ownership_gaps", "offset_commits", "lag"):
        assert set(rows(out, table, "group", "topic")) == pairs
    assert {r[0] for r in rows(out, "rebalances", "group")} == set(STRANGE)
    TableFrames(spark, out.tables).register()
    for table in ("assignments", "ownership_gaps", "lag", "bad_records"):
        seen = spark.sql(f"select * from {table}").toArrow()
        assert sort_rows(seen, TABLES[table]).to_pylist() == out.table(table).to_pylist()
        spark.catalog.dropTempView(table)
    inside = {p.name for p in out.tables.root.iterdir()}
    assert inside <= {MANIFEST, COMMITS, *TABLES}
    chosen = run(
        lambda: spark, folder, tmp_path / "chosen", selection=Selection(groups=STRANGE[:4])
    )
    assert {r[0] for r in rows(chosen, "rebalances", "group")} == set(STRANGE[:4])


def test_bad_records_are_kept_whole_and_fail_nothing(tmp_path):
    key, value = fleet.classic(bounce()[0])
    bad_key, commit_value = fleet.commit("g", "t", 0, 1, at=1)
    records = [
        *classics(bounce()),
        ("g", 1, (key, value[:-3])),
        ("g", 2, (key[:3], value)),
        ("g", 3, (bad_key, commit_value[:5])),
        ("g", 4, (b"\x00", None)),
        ("g", 5, (None, b"x")),
        ("g", 6, (b"\x7f\xff\x00\x01g", b"\x00\x00")),
    ]
    out = run(None, fleet.write_dump(tmp_path / "dump", records), tmp_path / "out")
    found = rows(out, "bad_records", "log_offset", "key_hex", "value_hex", "reason", "position")
    assert [r[0] for r in found] == [4, 5, 6, 7, 8]
    assert found[0][1:3] == (key.hex(), value[:-3].hex())
    assert all(reason and position >= -1 for *_, reason, position in found)
    assert out.tables.newest_notes()["n_unknown"] == 1
    assert out.tables.rows("generations") == 4


def test_an_empty_dump_is_an_empty_report(tmp_path):
    out = run(None, fleet.write_dump(tmp_path / "dump", []), tmp_path / "out")
    assert out.dump.n_records() == 0 and out.table("rebalances").num_rows == 0


def test_a_second_run_replaces_the_first(tmp_path):
    dump = fleet.write_dump(tmp_path / "dump", classics(bounce()))
    first = run(None, dump, tmp_path / "out")
    before = first.table("movements")
    second = run(None, dump, tmp_path / "out")
    assert [batch.id for batch in second.tables.batches()] == [1]
    assert second.table("movements").equals(before)
    (file,) = second.tables.files("movements")
    assert file.parent.name == "batch-000000001"  # the first one's stay for who reads them now
    assert len(list((tmp_path / "out" / "movements").glob("batch-*"))) == 2
