"""One group of a large fleet: its rows are found by bounds, and little else is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.running import write_tables
from tests.report.fleet import tables as columns_of
from tests.report.served import bounced, quiet
from tests.tables.compacted import ROWS, bytes_read, compacted_fleet, folder_bytes

from holdfast.fleet.analysis.times import window_end_ms
from holdfast.fleet.pipeline.plan import fleet_rows, topics_of
from holdfast.fleet.report.drawing.writing import render
from holdfast.fleet.tables.columns.stored import NOT_LOADED
from holdfast.fleet.tables.reading import Tables, open_tables, read_tables

GROUP = "group-01471"


def read_for(answer: Callable[[Tables], Any], tables: Tables) -> int:
    """Bytes that an answer reads, from opening the folder on."""
    answer(open_tables(tables.root).at_snapshot())  # what is read once in the life of a process
    before = bytes_read()
    answer(open_tables(tables.root).at_snapshot())
    return bytes_read() - before


def shown(tables: Tables) -> Tables:
    """What ``report``, ``doctor`` read."""
    held = tables.load(tables.choose([GROUP]), without=NOT_LOADED)
    assert window_end_ms(held)
    return held


@pytest.mark.parametrize(
    ("n_groups", "part"),
    [(1_500, 0.10), pytest.param(10_000, 0.02, marks=pytest.mark.slow)],
)
def test_one_group_of_a_fleet_is_read_without_the_others(tmp_path, n_groups, part):
    """A file has at least 64 kB that are read, so a small fleet has a larger part."""
    tables = compacted_fleet(tmp_path, n_groups)
    limit = part * folder_bytes(tables)
    assert read_for(shown, tables) <= limit
    for name in ROWS:
        one = read_for(
            lambda kept, name=name: kept.table(name, groups=kept.choose([GROUP])), tables
        )
        assert one <= limit / 2, name
    held = shown(open_tables(tmp_path).at_snapshot())
    for name, n_rows in ROWS.items():
        assert held.stored(name).num_rows == (n_rows if name not in NOT_LOADED else 0), name
        assert tables.stored(name, groups=[GROUP]).num_rows == n_rows, name
    assert tables.files("lag", groups=["h"]) == []
    topics = {f"topic-{i}": 3 for i in range(20)}

    def planned(kept: Tables) -> Any:
        return fleet_rows(kept, topics, groups=[GROUP])

    assert read_for(planned, tables) <= limit


def test_a_page_is_the_same_whether_or_not_the_others_were_read(tmp_path):
    write_tables(columns_of(bounced("a"), bounced("b", lag=7), quiet("c")), tmp_path)
    whole, kept = read_tables(tmp_path), open_tables(tmp_path).at_snapshot()
    for groups in (["b"], ["c", "a"], ["[ab]"]):
        chosen = kept.choose(groups)
        assert chosen == whole.choose(groups)
        restricted = kept.load(chosen, without=NOT_LOADED)
        assert "offset_commits" not in restricted
        assert render(restricted, "t", chosen) == render(whole, "t", chosen)


def test_a_plan_of_one_group_is_the_one_that_it_has_among_all(tmp_path):
    write_tables(columns_of(bounced("a"), bounced("b", lag=7), quiet("c")), tmp_path)
    kept = open_tables(tmp_path).at_snapshot()
    topics = topics_of(kept)
    every = fleet_rows(kept, topics).to_pylist()
    assert [row["group"] for row in every] == ["a", "b", "c"]
    assert fleet_rows(kept, topics, groups=["b"]).to_pylist() == every[1:2]


def test_tables_loaded_for_some_groups_know_the_last_time_of_all():
    held = read_tables(columns_of(bounced("a"), quiet("c")))
    last = window_end_ms(held)
    one = held.load(["c"], without=["generations"])
    assert window_end_ms(one) == last and one.groups == ("c",)
