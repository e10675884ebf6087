"""The tasks of the jobs without Spark: truth of the generator, cut points, memory bounds."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline import fleet, local
from tests.pipeline.fleet import classics
from tests.pipeline.histories import generation, histories, owners, twin_movements
from tests.pipeline.local import everything, made, rows
from tests.suites import dear

from holdfast.fleet.pipeline.batches import tasks
from holdfast.fleet.pipeline.ingest import split
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.tables.columns.schemas import arrow_schema

NAMES = ("group", "generation", "topic", "partition", "from_member", "to_member", "kind")


@dear
@given(histories(), st.integers(1, 9))
def test_bytes_to_movements_equal_the_twin(new_folder, history, batch_rows):
    for g in history:
        if g["state"] == "Dead":
            g["generation"] = -1
    tables = made(new_folder(), classics(history), batch_rows=batch_rows)
    assert sorted(rows(tables, "movements", *NAMES), key=repr) == twin_movements(history)
    given = set(rows(tables, "assignments", "group", "generation", "topic", "partition"))
    assert given == {(g["group"], g["generation"], *tp) for g in history for tp in owners(g)}


@dear
@given(histories(), st.sampled_from(["ASSIGNED_AT_ONCE", "CELLS_AT_ONCE"]))
def test_where_the_work_is_cut_changes_nothing(new_folder, history, bound):
    """A bound of one makes every batch, or every group, go through the carry."""
    base = new_folder()
    dump = fleet.write_dump(base / "dump", classics(history))
    whole = everything(local.run(dump, base / "whole", batch_rows=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, bound, 1)
        patch.setattr(tasks, "ROWS_AT_ONCE", 2)
        assert everything(local.run(dump, base / "cut", batch_rows=3)) == whole


def test_consumer_groups_wait_until_they_are_whole(tmp_path, monkeypatch):
    records = []
    for group in ("a", "b"):
        for epoch, partitions in enumerate(([0], [0, 1], [1]), start=1):
            steps = [
                fleet.consumer_member(group, "m-1", ["t"]),
                fleet.consumer_epoch(group, epoch),
                fleet.consumer_target(group, "m-1", {"t": partitions}),
                fleet.assignment_epoch(group, epoch),
            ]
            records += [(group, 10 * epoch, step) for step in steps]
        records += classics([generation("c" + group, n, {"m": {"t": [n]}}) for n in (1, 2, 3)])
    dump = fleet.write_dump(tmp_path / "dump", records, topics=[("t", 2)])
    whole = everything(local.run(dump, tmp_path / "whole"))
    monkeypatch.setattr(tasks, "ASSIGNED_AT_ONCE", 0)
    assert everything(local.run(dump, tmp_path / "cut", batch_rows=2)) == whole
    assert len(whole["generations"]) == 12


def test_anomalies_are_reported(tmp_path):
    key, value = fleet.classic(generation("g", 3, {"a": {"t": [0]}, "b": {"t": [0]}}, at=1))
    history = [("g", 1, (key, value)), *classics([generation("g", 2, {"a": {"t": [0]}}, at=2)])]
    tables = made(tmp_path, history)
    found = rows(tables, "anomalies", "generation", "kind", "partition", "member_ids")
    assert found == [
        (2, "generation_reset", None, []),
        (3, "double_owner", 0, ["a", "b"]),
    ]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (({"a-1": {"t": [0]}}, {"a-1": {"t": [0]}, "b-1": {}}), ("join", 1, 0, 0)),
        (({"a-1": {"t": [0]}, "b-1": {}}, {"a-1": {"t": [0]}}), ("leave", 0, 1, 0)),
        (({"a-1": {"t": [0]}}, {"a-2": {"t": [0]}}), ("restart", 1, 1, 1)),
        (({"a-1": {"t": [0]}}, {"c-1": {"t": [0]}}), ("join_and_leave", 1, 1, 0)),
        (({"a-1": {"t": [0]}}, {"a-1": {"t": [0, 1]}}), ("partition_count_change", 0, 0, 0)),
        (({"a-1": {"t": [0]}}, {"a-1": {"u": [0]}}), ("subscription_change", 0, 0, 0)),
        (({"a-1": {"t": [0]}}, {"a-1": {"t": [0]}}), ("spurious", 0, 0, 0)),
    ],
    ids=lambda value: value[0] if isinstance(value[0], str) else "",
)
def test_causes(tmp_path, members, expected):
    history = [generation("g", n, m, at=n) for n, m in enumerate(members, start=1)]
    tables = made(tmp_path, classics(history))
    found = rows(tables, "rebalances", "cause", "n_joined", "n_left", "n_restarted")
    assert found[0][0] == "first_seen" and found[1] == expected


def test_a_restart_long_ago_is_a_join(tmp_path):
    steps = [{"a-1": {}, "b-1": {}}, {"a-1": {}}, {"a-1": {}, "b-2": {}}]
    history = [generation("g", n, m, at=n * 1000) for n, m in enumerate(steps)]
    tables = made(tmp_path, classics(history))
    assert [r[0] for r in rows(tables, "rebalances", "cause")] == [
        "first_seen",
        "leave_or_timeout",
        "join",
    ]


def test_gaps_in_the_numbers_are_no_departures(tmp_path):
    """After compaction generations are missing: what is there is compared as it is."""
    members = {"a-1": {"t": [0, 1]}, "b-1": {"t": [2]}}
    history = [generation("g", n, members, at=n) for n in (3, 9)]
    tables = made(tmp_path, classics(history))
    names = ("cause", "n_left", "n_missed_generations", "n_kept")
    assert rows(tables, "rebalances", *names)[1] == ("spurious", 0, 5, 3)
    assert rows(tables, "movements", *NAMES) == []


def test_needed_and_avoidable_moves(tmp_path):
    before = {"a-1": {"t": [0, 1, 2, 3]}, "b-1": {"t": []}}
    after = {"a-1": {"t": [0]}, "b-1": {"t": [1, 2, 3]}}
    history = [generation("g", n, m, at=n) for n, m in enumerate((before, after), start=1)]
    tables = made(tmp_path, classics(history))
    names = ("n_moved", "n_needed_moves", "n_avoidable_moves", "balance_score", "stickiness")
    assert rows(tables, "rebalances", *names)[1] == (3, 2, 1, 2, 0.25)


def test_needed_moves_where_members_subscribe_to_different_topics(tmp_path):
    """a asks for t, b for t and u; of 4 partitions of t one must move, so that 3 and 2 are even."""
    before = {"a-1": {"t": [0, 1, 2, 3]}, "b-1": {"t": [], "u": [0]}}
    after = {"a-1": {"t": [0]}, "b-1": {"t": [1, 2, 3], "u": [0]}}
    still = after
    history = [generation("g", n, m, at=n) for n, m in enumerate((before, after, still), start=1)]
    tables = made(tmp_path, classics(history))
    names = ("n_moved", "n_needed_moves", "n_avoidable_moves", "needed_moves_proven")
    assert rows(tables, "rebalances", *names) == [
        (0, None, None, False),
        (3, 1, 2, True),
        (0, None, 0, False),
    ]


def moved(dump, **positions):
    """The first record of a dump at another partition or offset."""
    (file,) = (dump / "records").glob("*.parquet")
    records = pq.read_table(file)
    for name, position in positions.items():
        at, column = records.column_names.index(name), records[name].to_pylist()
        field = pa.field(name, records.schema.field(name).type)
        records = records.set_column(at, field, pa.array([position, *column[1:]], field.type))
    pq.write_table(records, file)
    return dump


@pytest.mark.parametrize("value", ["forged", "true"])
@pytest.mark.parametrize("position", [("partition", -1), ("partition", -2), ("partition", None)])
@pytest.mark.parametrize("kind", ["group", "commit"])
def test_a_record_without_a_position_is_a_bad_record(tmp_path, kind, position, value):
    """A dump is a stranger's: no value in it names a file of ours or restores a state."""
    forged = json.dumps([{"table": "lag", "file": "../stolen.parquet", "rows": 1}]).encode()
    key, true = {
        "group": fleet.classic(generation("g", 1)),
        "commit": fleet.commit("g", "t", 0, 1, at=1),
    }[kind]
    own = forged if value == "forged" else true
    history = [generation("h", 1, {"a-1": {"t": [0]}}, at=1)]
    dump = fleet.write_dump(tmp_path / "dump", [("g", 0, (key, own)), *classics(history)])
    tables = local.run(moved(dump, **dict([position])), tmp_path / "out")
    columns = ("log_partition", "reason", "position", "key_hex", "value_hex")
    told = (position[1], "out-of-range", -1, key.hex(), own.hex())
    assert rows(tables, "bad_records", *columns) == [told]
    assert rows(tables, "generations", "group") == [("h",)]
    assert tables.rows("lag") == 1 and tables.rows("offset_commits") == 0


@pytest.mark.parametrize("offset", [-1, None])
def test_a_record_without_an_offset_is_a_bad_record(tmp_path, offset):
    dump = fleet.write_dump(tmp_path / "dump", classics([generation("g", 1), generation("g", 2)]))
    tables = local.run(moved(dump, offset=offset), tmp_path / "out")
    assert rows(tables, "bad_records", "log_offset", "reason") == [(offset, "out-of-range")]
    assert rows(tables, "generations", "generation") == [(2,)]


def test_what_the_pipeline_tells_itself_stands_in_a_column_that_records_do_not_have():
    key, value = fleet.classic(generation("g", 1))
    batch = fleet.record_batch([(0, 0, 0, key, value)])
    sent = list(split.split_task("nowhere", 0, Selection())(iter([batch])))
    found = [row for part in sent for row in part.to_pylist()]
    ours = split.RowKind.FILES
    assert [(row["kind"], row["message"], row["value"]) for row in found] == [
        (split.RowKind.RECORD, None, value),
        (ours, b"[]", None),
    ]
    assert "message" not in arrow_schema("records").names


def test_gaps_are_narrowed_by_commits(tmp_path):
    members = {"a-1": {"t": [0, 1, 2]}}
    history = [generation("g", n, members, at=at) for n, at in ((1, 100), (2, 200))]
    commits = [(0, 150), (0, 190), (0, 205), (1, 90), (2, 199.5)]
    records = classics(history) + [
        ("g", at, fleet.commit("g", "t", p, 5, at=at)) for p, at in commits
    ]
    records.sort(key=lambda record: record[1])
    tables = made(tmp_path, records)
    assert rows(tables, "ownership_gaps", "partition", "gap_upper_seconds") == [
        (0, 10.0),
        (1, 100.0),
        (2, 0.5),
    ]
    summed = rows(tables, "rebalances", "gap_upper_seconds")
    assert summed == [(0.0,), (110.5,)]
