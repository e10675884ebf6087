"""Runs the command line in this process, as a shell would see it; other programs to their end."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.cli import app as cli_app
from holdfast.fleet.tables.folder.files import BatchWriter, files_of
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables, read_tables


class _Kept(io.StringIO):
    """Stays readable when the command closes it, as it does on a broken pipe."""

    def close(self) -> None:
        self.flush()


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def passed(self) -> Done:
        assert self.code == 0, self.err or self.out
        return self

    def document(self) -> dict[str, Any]:
        """What it printed as JSON; it must have passed."""
        return json.loads(self.passed().out)

    def rows(self) -> list[dict[str, Any]]:
        return self.document()["rows"]


def run(*arguments: Any, width: int = 100, stdin: bytes | None = None) -> Done:
    """Run ``holdfast ARGUMENTS`` and return exit code and output."""
    out, err = _Kept(), _Kept()
    before, read = dict(os.environ), sys.stdin
    if stdin is not None:
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    os.environ |= {"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "dumb"}
    code: Any = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli_app.main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.stdin = read
        os.environ.clear()
        os.environ.update(before)
    return Done(code=int(code), out=out.getvalue(), err=err.getvalue())


def run_program(
    *command: Any, stdin: str | None = None, cwd: Path | None = None, **environment: str
) -> Done:
    """Run a program in a process of its own to its end."""
    done = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_python(*words: Any, stdin: str | None = None, cwd: Path | None = None, **env: str) -> Done:
    """Run this Python in a process of its own to its end."""
    return run_program(sys.executable, *words, stdin=stdin, cwd=cwd, **env)


def write_tables(tables: dict[str, Any], folder: Path, **notes: Any) -> Path:
    """Tables in memory as a folder of tables, in one more batch of it."""
    arrow, kept = read_tables(tables), Tables(folder)
    writer = BatchWriter(str(folder), kept.next_batch())
    for name in tables:
        writer.write(name, arrow.stored(name))
    kept.commit(Batch(id=writer.batch, files=files_of(writer.close()), notes=notes))
    return folder
