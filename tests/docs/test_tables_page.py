"""The questions of docs/tables.md are answered by DuckDB, as the page opens the tables."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from tests.tables.test_upkeep import committed, filled

from holdfast.fleet.tables.reading import Tables

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^### ([^\n]+)\n\n```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NAMES = ("rebalances", "movements", "assignments", "members", "pauses", "lag", "anomalies")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The page's own lines, over a folder with a row or more in each table."""
    folder = tmp_path_factory.mktemp("tables")
    tables = Tables(folder)
    with tables.writing():
        committed(tables, 0, **{name: filled(name, 1) for name in NAMES})
    (code,) = [c for c in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "duckdb" in c]
    names = {"DIR": str(folder), "duckdb": duckdb}
    exec(compile(code, "docs/tables.md", "exec"), names)
    return names["database"]


def test_there_are_ten_questions():
    assert len(QUERIES) == 10


@pytest.mark.parametrize(("asked", "query"), QUERIES, ids=[asked for asked, _ in QUERIES])
def test_a_question_is_answered(opened, asked, query):
    answer = opened.sql(query)
    assert answer.columns, asked
    answer.fetchall()


def test_a_wrong_column_is_told(opened):
    with pytest.raises(duckdb.BinderException):
        opened.sql(QUERIES[0][1].replace("pause_upper_seconds", "pause_seconds")).fetchall()
