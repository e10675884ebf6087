"""The columns of every table that people can see, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from tools.pages.tables import table

from holdfast.fleet.tables.columns.definition import Column, Table
from holdfast.fleet.tables.columns.steps import DUMP_TABLES, PLAN, REPLAY
from holdfast.fleet.tables.columns.stored import TABLES

HEAD = ("column", "type", "unit", "says", "heading in the report")


def columns_part() -> str:
    """Return one heading and one table for each definition."""
    definitions = (*TABLES.values(), PLAN, REPLAY, *DUMP_TABLES.values())
    return "\n".join(line for definition in definitions for line in _lines(definition))


def _lines(definition: Table) -> Iterator[str]:
    yield from ("", f"### `{definition.name}`", definition.doc)
    if definition.explode:
        yield (
            f"The list `{definition.explode}` is printed as one row per element, "
            f"in a column `{definition.flat_name}`."
        )
    yield ""
    yield from table(HEAD, map(_row, definition.columns))


def _row(column: Column) -> tuple[str, ...]:
    dtype = f"{column.dtype} or null" if column.nullable else str(column.dtype)
    return (f"`{column.name}`", dtype, column.unit, column.doc, column.heading)
