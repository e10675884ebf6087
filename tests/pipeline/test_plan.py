"""Plans from tables: what moves, what it gains, and groups that are refused. No Spark."""

from __future__ import annotations

import json

from tests.pipeline import fleet, local
from tests.pipeline.histories import generation

from holdfast.pipeline.plan import plan, snapshots


def tables(tmp_path, history, commits=(), ends=()):
    records = [(g["group"], g["timestamp"], fleet.classic(g)) for g in history]
    records += [(g, at, fleet.commit(g, t, p, o, at=at)) for g, t, p, o, at in commits]
    fleet.write_dump(tmp_path / "dump", records, offsets=ends, topics=[("t", 4), ("u", 1)])
    return local.run(tmp_path / "dump", tmp_path / "out", reset="earliest")


TOPICS = {"t": 4, "u": 1}


def test_a_crooked_group_is_evened_out(tmp_path):
    owned = {"a-1": {"t": [0, 1, 2, 3]}, "b-1": {"t": []}}
    made = tables(tmp_path, [generation("g", 7, owned), generation("empty", 1, {})])
    (row,) = plan(None, made, TOPICS, "sticky").to_pylist()
    assert row["group"] == "g" and row["refused"] is None and row["optimal"]
    assert (row["n_kept"], row["n_moved"]) == (2, 2)
    assert (row["balance_score_before"], row["balance_score"]) == (4, 0)
    moves = json.loads(row["moves"])
    assert [m[2:] for m in moves] == [["a-1", "b-1"]] * 2


def test_an_even_group_has_nothing_to_move(tmp_path):
    owned = {"a-1": {"t": [0, 1]}, "b-1": {"t": [2, 3]}}
    (row,) = plan(None, tables(tmp_path, [generation("g", 7, owned)]), TOPICS, "sticky").to_pylist()
    assert (row["n_kept"], row["n_moved"], row["moves"]) == (4, 0, "[]")


def test_lag_comes_from_the_tables(tmp_path):
    owned = {"a-1": {"t": [0, 1]}, "b-1": {"t": [2, 3]}}
    commits = [("g", "t", p, 10, 1) for p in range(4)]
    ends = [("t", p, 0, end) for p, end in enumerate((110, 60, 10, 10))]
    made = tables(tmp_path, [generation("g", 7, owned)], commits, ends)
    assert snapshots(made, TOPICS)["g"]["lags"] == {"t": [100, 50, 0, 0]}
    (row,) = plan(None, made, TOPICS, "lag").to_pylist()
    assert (row["largest_lag_before"], row["largest_lag"]) == (150, 100)


def test_a_refused_group_is_a_row_and_stops_no_other(tmp_path):
    uneven = {"a-1": {"t": [0]}, "b-1": {"u": [0]}}
    even = {"a-1": {"t": [0, 1]}, "b-1": {"t": [2, 3]}}
    made = tables(tmp_path, [generation("x", 1, uneven), generation("y", 1, even)])
    rows = plan(None, made, TOPICS, "constrained-sticky").to_pylist()
    assert rows[0]["refused"] and rows[0]["n_moved"] is None
    assert rows[1]["refused"] is None and rows[1]["n_moved"] == 0


def test_nothing_to_plan(tmp_path):
    assert plan(None, tables(tmp_path, []), TOPICS, "sticky").num_rows == 0


def test_only_the_last_generation_counts(tmp_path):
    history = [
        generation("g", 1, {"a-1": {"t": [0, 1, 2, 3]}}, at=1),
        generation("g", 2, {"b-1": {"t": [0, 1, 2, 3]}}, at=2),
    ]
    found = snapshots(tables(tmp_path, history), TOPICS)
    assert [m["id"] for m in found["g"]["members"]] == ["b-1"]
    assert sorted(found["g"]["members"][0]["owned"]) == [["t", p] for p in range(4)]
