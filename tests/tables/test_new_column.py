"""A new column is one row in its definition and the one line that computes it."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEW_ROW = """        Column("n_swaps", _L, "partitions counted anew", "swaps", heading="Swaps"),
"""
AFTER_ROW = """        Column("leader_changed", """
LINE = """        "leader_changed": """
NEW_LINE = """        "n_swaps": 7 * moved,
"""

SHOW = """
import json, sys
from pathlib import Path

from holdfast.cli.output import Format, write_rows, write_table
from holdfast.fleet.tables.columns.schemas import ddl_of
from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.report.drawing.sections import rebalance_section
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.stored import TABLES
from tests.pipeline import local
from tools.pages.columns import columns_part

dump, out = map(Path, sys.argv[1:])
tables = local.run(dump, out / "tables")
rows = tables.table("rebalances").to_pylist()
columns = TABLES["rebalances"].flat_names
write_rows(rows, columns, Format.CSV, out / "rebalances.csv")
write_rows(rows, columns, Format.JSON, out / "rebalances.json")
shown = (read_group(tables, group).recorded for group in tables.groups)
(out / "report.html").write_text("".join(map(rebalance_section, shown)))
short = [{**row, "timestamp": str(row["timestamp"])} for row in rows]
write_table(TABLES["rebalances"], short, Format.TABLE, out / "rebalances.txt")
(out / "columns.md").write_text(columns_part())
(out / "spark.ddl").write_text(ddl_of(arrow_schema("rebalances")))
"""


def insert(file: Path, before: str, new: str) -> None:
    """Write ``new`` in front of the one line of a file that starts with ``before``."""
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    file.write_text(text.replace(before, new + before), encoding="utf-8")


def test_a_row_and_a_line_show_a_column_everywhere(tmp_path):
    shutil.copytree(ROOT / "src" / "holdfast", tmp_path / "src" / "holdfast")
    insert(tmp_path / "src/holdfast/fleet/tables/columns/stored.py", AFTER_ROW, NEW_ROW)
    insert(tmp_path / "src/holdfast/fleet/pipeline/history/rebalances.py", LINE, NEW_LINE)
    dump = ROOT / "tests" / "pipeline" / "captured" / "dump"
    out = tmp_path / "out"
    out.mkdir()
    paths = os.pathsep.join([str(tmp_path / "src"), str(ROOT)])
    subprocess.run(
        [sys.executable, "-c", SHOW, str(dump), str(out)],
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "600"},
        check=True,
    )
    with (out / "rebalances.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert any(int(row["n_moved"]) for row in rows)
    assert all(int(row["n_swaps"]) == 7 * int(row["n_moved"]) for row in rows)
    printed = json.loads((out / "rebalances.json").read_text(encoding="utf-8"))
    assert [str(row["n_swaps"]) for row in printed["rows"]] == [row["n_swaps"] for row in rows]
    assert "n_swaps" in (out / "rebalances.txt").read_text(encoding="utf-8")
    assert ">Swaps<" in (out / "report.html").read_text(encoding="utf-8")
    assert "`n_swaps` long" in (out / "spark.ddl").read_text(encoding="utf-8")
    page = (out / "columns.md").read_text(encoding="utf-8")
    assert "| `n_swaps` | int64 | swaps | partitions counted anew | Swaps |" in page
