"""Runs the command line in this process, as a shell would see it."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.cli import app as cli_app
from holdfast.fleet.tables.reading import read_tables


class _Kept(io.StringIO):
    """Stays readable when the command closes it, as it does on a broken pipe."""

    def close(self) -> None:
        self.flush()


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


def run(*arguments: Any, width: int = 100, stdin: str = "") -> Done:
    """Run ``holdfast ARGUMENTS`` and return exit code and output."""
    out, err = _Kept(), _Kept()
    before = dict(os.environ)
    os.environ |= {"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "dumb"}
    code: Any = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli_app.main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        os.environ.clear()
        os.environ.update(before)
    return Done(code=int(code), out=out.getvalue(), err=err.getvalue())


def write_tables(tables: dict[str, Any], folder: Path) -> Path:
    """Tables in memory as a folder of Parquet."""
    arrow = read_tables(tables)
    for name in tables:
        (folder / name).mkdir()
        pq.write_table(arrow.stored(name), folder / name / "part.parquet")
    return folder
