"""What every command prints with: formats, errors, a progress display on stderr.

**Rules.** ``json``, ``jsonl`` and ``csv`` are for programs, ``table`` for people only. Names from a
cluster are data from strangers: control sequences never reach the terminal, formulas never a CSV.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.report.names import spreadsheet_text, visible

stderr = Console(stderr=True, highlight=False)


class Format(StrEnum):
    """``--format``."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


def printable(value: object) -> str:
    """Text that is safe on a terminal: control and bidi characters are shown as escapes."""
    return visible(value)


def csv_cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula (a leading quote marks it as text)."""
    return spreadsheet_text(value) if isinstance(value, str) else value


def print_error(message: str) -> None:
    """Print one clear line on stderr."""
    stderr.print(Text("error: ", style="bold red") + Text(printable(message)), soft_wrap=True)


def print_note(message: str) -> None:
    """Print one line of progress or advice on stderr."""
    stderr.print(Text(printable(message)), soft_wrap=True)


def write_json(value: Any, target: Path | None = None) -> None:
    """Write one JSON document to ``target`` or stdout."""
    _write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n", target)


def write_text(text: str, target: Path | None = None) -> None:
    """Write text that is ours (a schema, a script) to ``target`` or stdout."""
    _write(text if text.endswith("\n") else text + "\n", target)


def write_rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    fmt: Format,
    target: Path | None = None,
    *,
    title: str = "",
) -> None:
    """Write rows as a table, one JSON document, JSON lines or CSV.

    Parameters
    ----------
    rows : iterable of mapping
        Every mapping has the keys in ``columns``.
    columns : sequence of str
        Order of the columns.
    fmt : Format
        JSON is ``{"schema_version": 1, "rows": [...]}``.
    target : Path, optional
        A file; stdout by default.
    title : str
        Heading of a table for people.
    """
    if fmt is Format.TABLE:
        _write_table(rows, columns, target, title)
    elif fmt is Format.JSON:
        write_json({"schema_version": 1, "rows": [dict(row) for row in rows]}, target)
    elif fmt is Format.JSONL:
        lines = (json.dumps(dict(row), ensure_ascii=False, default=str) + "\n" for row in rows)
        _write("".join(lines), target)
    else:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([csv_cell(row[c]) for c in columns] for row in rows)
        _write(out.getvalue(), target)


def _write_table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], target: Path | None, title: str
) -> None:
    table = Table(title=printable(title) or None, title_justify="left", header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        cells = ("" if row[c] is None else printable(row[c]) for c in columns)
        table.add_row(*(Text(cell) for cell in cells))
    if target is None:
        Console(highlight=False).print(table)
    else:
        with target.open("w", encoding="utf-8") as file:
            Console(file=file, highlight=False, width=200).print(table)


def _write(text: str, target: Path | None) -> None:
    if target is not None:
        target.write_text(text, encoding="utf-8")
        return
    stream: IO[str] = sys.stdout
    stream.write(text)
    stream.flush()
