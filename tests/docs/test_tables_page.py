"""The questions of docs/tables.md are answered by DuckDB and by Spark, as the page says."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from tests.suites import further
from tests.tables.test_maintenance import committed, filled

from holdfast.fleet.tables.reading import Tables

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^### ([^\n]+)\n\n```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NAMES = (
    "rebalances",
    "movements",
    "assignments",
    "members",
    "ownership_gaps",
    "lag",
    "lag_history",
    "anomalies",
)


CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two rows in each table."""
    made = tmp_path_factory.mktemp("tables")
    tables = Tables(made)
    with tables.writing():
        committed(tables, 0, **{name: filled(name, 2) for name in NAMES})
    return str(made)


@pytest.fixture(scope="module")
def opened(folder):
    """The page's own lines.

    DuckDB is imported here: what it makes at collection is frozen, and its report of leaks at the
    end of the process would follow pytest's summary.
    """
    import duckdb

    (code,) = [c for c in CODE if "duckdb" in c]
    names = {"DIR": folder, "duckdb": duckdb}
    exec(compile(code, "docs/tables.md", "exec"), names)
    return names["database"]


def test_there_are_eleven_questions():
    assert len(QUERIES) == 11


@pytest.mark.parametrize(("asked", "query"), QUERIES, ids=[asked for asked, _ in QUERIES])
def test_a_question_is_answered(opened, asked, query):
    answer = opened.sql(query)
    assert answer.columns, asked
    answer.fetchall()


def test_a_wrong_column_is_reported(opened):
    import duckdb

    with pytest.raises(duckdb.BinderException):
        opened.sql(QUERIES[0][1].replace("gap_upper_seconds", "gap_seconds")).fetchall()


def plain(value):
    """A value as both engines have it: a number, a moment in seconds, or text."""
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if isinstance(value, int | float | Decimal) else value


@pytest.fixture(scope="module")
def shown(folder, spark):
    """The page's own lines, in the run's session."""
    (code,) = [c for c in CODE if "holdfast.spark" in c]
    exec(compile(code, "docs/tables.md", "exec"), {"DIR": folder, "spark": spark})
    return spark


@pytest.mark.spark
@pytest.mark.parametrize(("asked", "query"), further(QUERIES), ids=[asked for asked, _ in QUERIES])
def test_spark_answers_the_same(opened, shown, asked, query):
    """With backticks for the double quotes, as the page says."""
    assert "wants backticks" in PAGE
    answer, known = shown.sql(query.replace('"', "`")), opened.sql(query)
    assert answer.columns == known.columns
    rows = [
        sorted(tuple(map(plain, row)) for row in told)
        for told in (answer.collect(), known.fetchall())
    ]
    assert rows[0] == rows[1]
    assert rows[0] or (asked, query) != QUERIES[0]
