"""docs/spark.md: its calls are calls of ``holdfast.spark``; no session is needed to see it.

``tests/pipeline/test_spark_module.py`` runs the example that the page leads to in a session.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import holdfast.spark
from holdfast.fleet.tables.columns.stored import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LISTED = re.findall(
    r"^\| (`.*`) \|", PAGE.split("## Functions\n")[1].split("\n\n")[0], re.MULTILINE
)


def calls(code: str) -> list[tuple[str, int, list[str]]]:
    """Name, number of arguments and keywords of each call; ``...`` stands for none."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).removeprefix("hs.")
            if name.isidentifier():
                arguments = [each for each in node.args if ast.unparse(each) != "..."]
                keywords = [word.arg for word in node.keywords if word.arg]
                found.append((name, len(arguments), keywords))
    return found


def test_every_call_is_one_that_the_module_takes() -> None:
    written = [code for cell in LISTED for code in re.findall(r"`([^`]+)`", cell)]
    seen = [call for code in [BLOCK, *written] for call in calls(code)]
    assert len(seen) > 12
    for name, n_arguments, keywords in seen:
        signature = inspect.signature(getattr(holdfast.spark, name))
        signature.bind(*[None] * n_arguments, **dict.fromkeys(keywords))


def test_the_table_lists_every_function_of_the_module() -> None:
    listed = {name for cell in LISTED for name in re.findall(r"`(\w+)\(", cell)}
    public = {
        name for name in holdfast.spark.__all__ if inspect.isfunction(getattr(holdfast.spark, name))
    }
    assert listed == public


def test_the_tables_and_columns_of_the_first_program_exist() -> None:
    ((table, columns),) = re.findall(r'tables\["(\w+)"\]\.groupBy\((.*?)\)', BLOCK)
    assert {name.strip('" ') for name in columns.split(",")} <= set(TABLES[table].flat_names)
