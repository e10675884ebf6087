"""Output of commands: formats, errors, a progress bar on stderr.

**Rules.** ``json``, ``jsonl`` and ``csv`` are for programs, ``table`` for people only. Names from
a cluster are untrusted: no format lets control sequences reach the terminal, or formulas a CSV.
``rich`` is imported by functions that draw, when they draw.

**Strategy.** A result may have many rows: a terminal shows the first :data:`MAX_ROWS`. In a file
or a pipe ``table``, ``jsonl`` and ``csv`` stream row by row; ``json`` is one document in memory.
The columns of a table in a file are as wide as its first :data:`MAX_ROWS` rows need. A table in a
file or a pipe has its first :data:`MAIN_COLUMNS` columns, unless all are requested.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from holdfast.core.names import harmless, shown_name, spreadsheet_text, visible, visible_json
from holdfast.fleet.tables.storage.file_system import open_private

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from holdfast.fleet.tables.columns.definition import Table as Definition

T = TypeVar("T")
BAR_AFTER_S = 2.0
REDRAW_S = 0.1
MAX_CELL = 60
MAX_ROWS = 1_000
"""Rows of a table on a terminal: people read no more, and each row takes 3 ms to draw."""
MAIN_COLUMNS = 10
"""Of a table in a file or a pipe: a row of all columns of some tables has 350 characters."""
_NUMBER = re.compile(r"(-?[\d,]+(\.\d+)?)?\Z")


@cache
def stderr_console() -> Console:
    """Return a console on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


class Format(StrEnum):
    """``--format``."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


NAMES = frozenset({"group", "topic"})
"""Columns whose empty values are names, and shown."""


def csv_cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula (a leading quote marks it as text).

    Hidden characters are shown as escapes: CSV is printed on terminals too, and read line by line.
    """
    return spreadsheet_text(visible(value)) if isinstance(value, str) else value


def print_error(message: str) -> None:
    """Print one clear line on stderr."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    in_colour = sys.stderr.isatty() and not plain
    head = click.style("error: ", fg="red", bold=True) if in_colour else "error: "
    print(head + harmless(message), file=sys.stderr)


def print_note(message: str) -> None:
    """Print one line of progress or advice on stderr."""
    print(harmless(message), file=sys.stderr)


def notes(quiet: bool) -> Callable[[str], None]:
    """Return a function that prints a command's notes on stderr, or drops them."""
    return (lambda message: None) if quiet else print_note


def _note_of_table(message: str) -> None:
    """Note what a table leaves out, unless the command that runs was given ``-q``."""
    context = click.get_current_context(silent=True)
    notes(context is not None and bool(context.params.get("quiet")))(message)


def track(items: Iterable[T], total: int | None, what: str, *, quiet: bool = False) -> Iterator[T]:
    """Pass items on, with a progress bar on stderr: count, speed and time left.

    Silent if stderr is not a terminal; shown after two seconds, removed at the end. ``what`` is a
    plural, such as ``groups``; ``total`` is None if unknown.
    """
    if quiet or not sys.stderr.isatty():
        yield from items
        return
    from rich import progress

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(f"{harmless(what)}  {{task.fields[speed]}}"),
        progress.TimeRemainingColumn(),
    )
    began = time.monotonic()
    draw_at = began + BAR_AFTER_S
    with progress.Progress(
        *columns, console=stderr_console(), transient=True, auto_refresh=False
    ) as bar:
        task = bar.add_task("", total=total, speed="", visible=False)
        for done, item in enumerate(items, 1):
            yield item
            now = time.monotonic()
            if now >= draw_at:
                speed = f"{done / (now - began):,.0f}/s"
                bar.update(task, completed=done, speed=speed, visible=True, refresh=True)
                draw_at = now + REDRAW_S


def write_json(value: Any, target: Path | None = None) -> None:
    """Write one JSON document to ``target`` or stdout."""
    write_text(_json(value, indent=2) + "\n", target)


def write_json_list(
    head: Mapping[str, Any], name: str, texts: Iterable[str], target: Path | None = None
) -> None:
    """Write a JSON document as :func:`write_json`, whose last value is a list.

    ``head`` has the values before the list, one at least; ``texts`` are the elements of the list
    ``name``, as :func:`json_element` writes them.
    """
    begin = _json(head, indent=2).removesuffix("\n}")
    with _opened(target) as out:
        out.write(f"{begin},\n  {json.dumps(name)}: [")
        separator = "\n    "
        for text in texts:
            out.write(separator + text)
            separator = ",\n    "
        out.write("]\n}\n" if separator == "\n    " else "\n  ]\n}\n")


def json_element(value: Any) -> str:
    """Return an element of the list of :func:`write_json_list`, indented."""
    encode = json.encoder.encode_basestring_ascii if _is_ascii() else json.encoder.encode_basestring
    return visible_json(_indented(value, "\n    ", encode))


def _indented(value: Any, line: str, encode: Callable[[str], str]) -> str:
    """Return JSON as ``json.dumps`` with an indent, in a third of the time.

    ``line`` begins a line at the level of the value.
    """
    if isinstance(value, str):
        return encode(value)
    if type(value) is int or (type(value) is float and isfinite(value)):
        return repr(value)
    if not isinstance(value, dict | list | tuple):
        return json.dumps(value, default=str)
    deeper, separator = line + "  ", "," + line + "  "
    if isinstance(value, dict):
        pairs = [f"{encode(key)}: {_indented(v, deeper, encode)}" for key, v in value.items()]
        return f"{{{deeper}{separator.join(pairs)}{line}}}" if pairs else "{}"
    found = [_indented(one, deeper, encode) for one in value]
    return f"[{deeper}{separator.join(found)}{line}]" if found else "[]"


def write_texts(texts: Iterable[str], target: Path | None = None) -> None:
    """Write texts that are ours one after the other to ``target`` or stdout."""
    with _opened(target) as out:
        out.writelines(texts)


def rows_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], fmt: Format) -> str:
    """Return rows as lines of JSONL or CSV, without a head."""
    if fmt is Format.JSONL:
        return "".join(_json(dict(row)) + "\n" for row in rows)
    return _csv_text([csv_cell(row[c]) for c in columns] for row in rows)


def csv_head(columns: Sequence[str]) -> str:
    """Return the first line of a CSV file."""
    return _csv_text([columns])


def _csv_text(rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def write_text(text: str, target: Path | None = None) -> None:
    """Write text that is ours to ``target`` or stdout."""
    write_texts([text], target)


def write_rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    fmt: Format,
    target: Path | None = None,
    *,
    title: str = "",
    every_column: bool = True,
) -> None:
    """Write rows as a table, one JSON document, JSON lines or CSV.

    Parameters
    ----------
    columns : sequence of str
        Order of the columns; a terminal shows as many of them as fit its width.
    target : Path, optional
        A file; stdout by default.
    title : str
        Heading of a table for people.
    every_column : bool
        Whether a table in a file or a pipe has all columns; otherwise a note names the others.
    """
    if fmt is Format.TABLE:
        _write_for_people(rows, columns, target, title, every_column=every_column)
    elif fmt is Format.JSON:
        write_json({"schema_version": 1, "rows": [dict(row) for row in rows]}, target)
    else:
        head = [csv_head(columns)] if fmt is Format.CSV else []
        write_texts(chain(head, (rows_text([row], columns, fmt) for row in rows)), target)


def write_table(
    table: Definition,
    rows: Iterable[Mapping[str, Any]],
    fmt: Format,
    target: Path | None = None,
    *,
    title: str = "",
    every_column: bool = True,
) -> None:
    """Write rows of a table in its flat view, times as ISO 8601 text.

    People get the columns first that its definition puts first, and times to the second; programs
    get every column in the order of :mod:`holdfast.fleet.tables.columns.stored`.
    """
    columns: Sequence[str] = table.flat_names
    if fmt is Format.TABLE:
        columns = (*table.first, *(name for name in columns if name not in table.first))
        times = [c.name for c in table.columns if c.dtype == "timestamp"]
        rows = ({**row, **{t: _short(row[t]) for t in times}} for row in rows)
    write_rows(rows, columns, fmt, target, title=title, every_column=every_column)


def _short(time: str | None) -> str | None:
    """Cut a time to the second: ``2026-01-31 12:00:00``."""
    return time and time[:19].replace("T", " ")


def _write_for_people(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    target: Path | None,
    title: str,
    *,
    every_column: bool,
) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    is_drawn = target is None and console.is_terminal
    if not is_drawn and not every_column and len(columns) > MAIN_COLUMNS:
        _note_of_table(
            f"left out: {', '.join(columns[MAIN_COLUMNS:])} (--columns all has every column)"
        )
        columns = columns[:MAIN_COLUMNS]
    cells = ([_name(row[c]) if c in NAMES else _cell(row[c]) for c in columns] for row in rows)
    first = list(islice(cells, MAX_ROWS))
    if is_drawn:
        _draw_table(first, columns, title, console)
        n_left = sum(1 for _ in cells)
        if n_left:
            n_rows = n_left + len(first)
            _note_of_table(
                f"{n_left:,} of {n_rows:,} rows are not shown (--format csv has every row)"
            )
        return
    with _opened(target) as out:
        out.writelines(_plain_lines(first, cells, columns, title))


def _draw_table(
    cells: Sequence[Sequence[str]], columns: Sequence[str], title: str, console: Console
) -> None:
    """Draw as many columns as the terminal is wide, and name the others."""
    held = _widths(cells, len(columns))
    heads = [_heading(c, n) for n, c in zip(held, columns, strict=True)]
    widths = [
        min(MAX_CELL, max(n, *map(len, head.split("\n"))))
        for n, head in zip(held, heads, strict=True)
    ]
    n_shown = _columns_that_fit(widths, console.width)
    console.print(_people_table(heads[:n_shown], cells, title))
    if n_shown < len(columns):
        hidden = ", ".join(columns[n_shown:])
        _note_of_table(f"too wide for this terminal: {hidden} (--format csv has every column)")


def _plain_lines(
    first: Sequence[Sequence[str]],
    others: Iterable[Sequence[str]],
    columns: Sequence[str],
    title: str,
) -> Iterator[str]:
    """Yield the lines of a frameless table, numbers to the right; an empty cell is a dash."""
    from rich.cells import cell_len

    held = _widths(first, len(columns))
    widths = [min(MAX_CELL, max(n, len(c))) for n, c in zip(held, columns, strict=True)]
    numeric = [_is_numeric([row[i] for row in first]) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded: list[str] = []
        for cell, width, right in zip(cells, widths, numeric, strict=True):
            text = cell or "-"
            blank = " " * (width - (len(text) if text.isascii() else cell_len(text)))
            padded.append(blank + text if right else text + blank)
        return "  ".join(padded).rstrip() + "\n"

    if title:
        yield harmless(title) + "\n"
    yield line(columns)
    yield from map(line, first)
    yield from map(line, others)


def _widths(cells: Sequence[Sequence[str]], n_columns: int) -> list[int]:
    """Return the width of each column's widest cell."""
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(*cells, strict=True)] or [0] * n_columns


def _is_numeric(column: Sequence[str]) -> bool:
    return any(column) and all(map(_NUMBER.match, column))


def _name(value: object) -> str:
    return "" if value is None else shown_name(value)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return visible(value)


def _heading(name: str, width: int) -> str:
    """Break a column's name into lines no wider than needed: ``n_moved`` stays whole."""
    lines = [""]
    for word in name.split("_"):
        longer = f"{lines[-1]}_{word}" if lines[-1] else word
        if len(lines[-1]) > 2 and len(longer) > max(width, 9):
            lines[-1] += "_"
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def _columns_that_fit(widths: Sequence[int], width: int) -> int:
    """Return how many columns fit side by side in ``width`` characters; at least one."""
    used = 1
    for i, column in enumerate(widths):
        used += column + 3
        if used > width and i > 0:
            return i
    return len(widths)


def _people_table(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=harmless(title) or None, title_justify="left", header_style="bold")
    for i, name in enumerate(columns):
        numeric = _is_numeric([row[i] for row in cells])
        table.add_column(name, overflow="fold", justify="right" if numeric else "left")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row[: len(columns)]))
    return table


def _json(value: Any, indent: int | None = None) -> str:
    """Return one JSON document that is the same on a terminal as in a file.

    Where stdout does not encode Unicode, characters beyond ASCII are written as JSON escapes.
    """
    text = json.dumps(value, ensure_ascii=_is_ascii(), indent=indent, default=str)
    return visible_json(text)


def _is_ascii() -> bool:
    """Return whether stdout does not encode Unicode."""
    return "utf" not in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()


@contextmanager
def _opened(target: Path | None) -> Iterator[IO[str]]:
    """Open a new file that only its owner can read, or stdout, flushed at the end."""
    if target is None:
        yield sys.stdout
        sys.stdout.flush()
    else:
        with open_private(target) as file:
            yield file
