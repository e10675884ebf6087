"""The command as a whole: exit codes, help, suggestions, completion, strangers' names."""

from __future__ import annotations

import csv
import errno
import fcntl
import inspect
import io
import json
import logging
import os
import re
import subprocess
import sys
import termios
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from tests.cli.running import run, run_program, run_python, write_tables
from tests.live.waiting import until
from tests.report.fleet import rolling_bounce, tables
from tools.site.pages import PUBLIC

from holdfast.cli import app as cli_app
from holdfast.cli import output
from holdfast.cli.app import COMMAND_GROUPS, COMMANDS, exit_code
from holdfast.cli.commands.lag import of_topics
from holdfast.cli.histories import check_groups
from holdfast.cli.output import Format, print_error, print_note, write_rows
from holdfast.cluster import cluster
from holdfast.core.names import harmless, visible
from holdfast.errors import (
    BrokerError,
    ConfigError,
    InfeasibleError,
    LocalProtocolError,
    ModelError,
    RemoteProtocolError,
    SourceError,
    WireError,
)
from holdfast.extras import BROUGHT
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.columns.stored import LAG

EVIL = [
    "=1+1",
    "@SUM(A1)",
    "+1",
    "\x1b]0;owned\x07",
    "a\u202eb",
    "x\r\ny",
    "-2+3|cmd",
    "\ttab",
    "\x9b2J\ud800",
]
TOO_LARGE = "error: too large for the memory of this machine"
ACTS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


def broken_by(first: BaseException, then: BaseException) -> BaseException:
    """An error that breaks out while another one is on its way."""
    then.__context__ = first
    return then


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InfeasibleError("-"), 4),
        (ModelError("-"), 2),
        (ConfigError("-"), 2),
        (SourceError("-"), 3),
        (BrokerError("-"), 3),
        (RemoteProtocolError("-"), 3),
        (WireError("truncated", schema="S"), 3),
        (LocalProtocolError("-"), 70),
        (KeyboardInterrupt(), 130),
        (broken_by(KeyboardInterrupt(), ConnectionRefusedError(111, "refused")), 130),
        (broken_by(KeyboardInterrupt(), SourceError("Spark could not read")), 130),
        (ValueError(), 70),
        (MemoryError(), 3),
        (OSError(28, "No space left on device", "r.html"), 3),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (SourceError("no broker at x:1"), 3, "error: no broker at x:1"),
        (KeyboardInterrupt(), 130, ""),
        (broken_by(KeyboardInterrupt(), ConnectionRefusedError(111, "refused")), 130, ""),
        (broken_by(KeyboardInterrupt(), SourceError("Spark could not read")), 130, ""),
        (broken_by(KeyError("x"), SourceError("no broker at x:1")), 3, "error: no broker at x:1"),
        (ZeroDivisionError("oops"), 70, "error: a bug in holdfast: ZeroDivisionError: oops"),
        (
            RuntimeError("\nTraceback:\n  File x\nKeyError: 'y'\n"),
            70,
            "error: a bug in holdfast: RuntimeError: KeyError: 'y'",
        ),
        (AssertionError(), 70, "error: a bug in holdfast: AssertionError"),
        (BrokenPipeError(), 0, ""),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 0, ""),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            3,
            "error: cannot read or write the output: No space left on device",
        ),
        (
            PermissionError(13, "Permission denied", "/ro/r.html"),
            3,
            "error: cannot read or write /ro/r.html: Permission denied",
        ),
        (MemoryError("no 16 GiB"), 3, f"{TOO_LARGE}: no 16 GiB"),
        (MemoryError(), 3, f"{TOO_LARGE}: allocation failed"),
        (OSError("odd"), 70, "error: a bug in holdfast: OSError: odd"),
        (
            ModuleNotFoundError("No module named 'pyarrow.parquet'", name="pyarrow.parquet"),
            3,
            "error: pyarrow is not installed: pip install 'kafka-holdfast[fleet]'",
        ),
        (
            ModuleNotFoundError("No module named 'holdfast.x'", name="holdfast.x"),
            70,
            "error: a bug in holdfast: ModuleNotFoundError: No module named 'holdfast.x'",
        ),
    ],
)
def test_what_reaches_the_top_is_one_line(
    raised: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("holdfast.fleet.analysis.findings.examination.all_rules", fail)
    done = run("explain", width=200)
    assert done.code == code
    assert done.err.strip() == words + (" (--debug shows where)" if code == 70 else "")
    if code == 70:
        assert "Traceback" in run("--debug", "explain").err
        assert "Traceback" in run("explain", "--debug").err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_with_2_for_an_option_it_does_not_have(name: str) -> None:
    done = run(name.replace("_", "-"), "--nonsense")
    assert (done.code, done.out) == (2, "")
    assert "--nonsense" in done.err


NOWHERE = {"-b": "127.0.0.1:1", "--input": "nowhere"}
TOLD = {"-b": r"error: .*nothing listens at 127\.0\.0\.1:1.*\n", "--input": r"error: .*nowhere.*\n"}
READERS = [
    *((name, source, ()) for name in ("history", "lag", "replay", "doctor") for source in NOWHERE),
    *(("plan", source, ("--assignor", "sticky")) for source in NOWHERE),
    *(("report", source, ("-o", "out")) for source in NOWHERE),
    ("dump", "-b", ("-o", "out")),
    ("watch", "-b", ("-o", "out")),
    *(("serve", source, ()) for source in NOWHERE),
]


@pytest.mark.parametrize(("name", "source", "others"), READERS)
def test_every_reader_ends_with_3_where_nothing_is(
    name: str,
    source: str,
    others: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "BOOTSTRAP_TIMEOUT_MS", 200)
    done = run(name, source, NOWHERE[source], *others, width=300)
    assert (done.code, done.out) == (3, "")
    assert re.fullmatch(TOLD[source], done.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_use_the_command_and_its_options(name: str) -> None:
    called = {"config": "config show"}.get(name, name.replace("_", "-"))
    text = run(*called.split(), "--help", width=200).out
    examples = text.split("Examples:")[1]
    assert re.search(rf"holdfast {called}\b", examples)
    known = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", text.split("Examples:")[0]))
    for line in re.findall(rf"holdfast {called}\b[^&|>#\n]*", examples):
        assert {w for w in line.split() if re.fullmatch(r"--?[a-z][a-z-]*", w)} <= known, line


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_fit_on_80_columns(name: str) -> None:
    called = {"config": "config show"}.get(name, name.replace("_", "-")).split()
    narrow, wide = (
        [line.rstrip() for line in run(*called, "--help", width=w).out.split("Examples:")[1:]]
        for w in (80, 300)
    )
    assert [re.sub(r" +\n", "\n", text) for text in narrow] == [
        re.sub(r" +\n", "\n", text) for text in wide
    ]


@pytest.mark.parametrize(
    ("given", "level"),
    [
        (("explain", "HF104"), None),
        (("explain", "HF104", "-v"), logging.INFO),
        (("--verbose", "explain", "HF104"), logging.INFO),
        (("simulate", "--members", "2", "--partitions", "2", "-v"), None),
    ],
)
def test_verbose_shows_logs_wherever_it_stands(
    given: tuple[str, ...], level: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up: list[Any] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **how: set_up.append(how["level"]))
    assert run(*given).code == 0
    assert set_up == ([] if level is None else [level])


def test_python_m_and_completion_work_as_a_shell_would() -> None:
    assert run_python("-m", "holdfast", "--version").passed().out.startswith("holdfast 0.")
    asked = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast doc", "COMP_CWORD": "1"}
    assert run_python("-m", "holdfast", **asked).passed().out.split() == ["plain,doctor"]


def test_no_command_prints_help_and_ends_with_2() -> None:
    done = run()
    assert done.code == 2
    assert "doctor" in done.out + done.err


@pytest.mark.parametrize("name", EVIL)
def test_names_do_nothing_on_a_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows([{"group": name}], ["group"], Format.TABLE, title=name)
    shown = capsys.readouterr().out
    assert not ACTS.search(shown)
    assert harmless(name) in shown


def test_errors_do_nothing_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("no group \x1b[2Jx\u202e [bold]y[/bold]")
    print_note("no group \x1b[2Jx\u202e [bold]y[/bold]")
    assert capsys.readouterr().err.count("\\u001b[2Jx\\u202e [bold]y[/bold]") == 2


@pytest.mark.parametrize("name", EVIL)
def test_a_progress_bar_shows_no_name_that_acts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _Terminal()
    console = Console(file=file, force_terminal=True, width=100)
    monkeypatch.setattr(output, "stderr_console", lambda: console)
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(output, "BAR_AFTER_S", 0.0)
    assert list(output.track([1], 1, name)) == [1]
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert not ACTS.search(text.replace("\r", ""))


@pytest.mark.parametrize("name", EVIL)
def test_names_are_no_formula_in_csv(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows([{"group": name, "lag": -5}], ["group", "lag"], Format.CSV)
    cells = list(csv.reader(io.StringIO(capsys.readouterr().out)))[1]
    assert cells[0][0] not in "=+-@|%\t\r\n"
    assert visible(name) in cells[0]
    assert not ACTS.search(cells[0])
    assert cells[1] == "-5"


@pytest.mark.parametrize("fmt", [Format.JSON, Format.JSONL])
def test_json_keeps_names_and_does_nothing_on_a_terminal(
    fmt: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows([{"group": name} for name in EVIL], ["group"], fmt)
    out = capsys.readouterr().out
    assert not ACTS.search(out)
    rows = json.loads(out)["rows"] if fmt is Format.JSON else map(json.loads, out.splitlines())
    assert [row["group"] for row in rows] == EVIL


def test_report_from_a_folder_of_tables(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    write_tables(tables(rolling_bounce()), folder)
    page = tmp_path / "r.html"
    done = run("report", "--input", folder, "-o", page, width=300)
    assert (done.code, done.out) == (0, "")
    assert f"wrote {page}" in done.err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run("report", "--input", folder, "-o", page, "-q").err == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_some_rows_and_says_how_many_are_left(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(output, "MAX_ROWS", 2)
    monkeypatch.setattr(sys, "stdout", file)
    write_rows([{"group": f"g{i}"} for i in range(5)], ["group"], Format.TABLE)
    shown = ["g0", "g1", *([] if terminal else ["g2", "g3", "g4"])]
    assert re.findall(r"g\d", file.getvalue()) == shown
    left = "3 of 5 rows are not shown (--format csv has every row)\n"
    assert capsys.readouterr().err == (left if terminal else "")


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, or those of a group, by their words."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from leaves(f"{name} {word}", inner)
    if not getattr(command, "commands", {}):
        yield name, command


def test_every_command_that_has_notes_can_be_quiet() -> None:
    found = [
        leaf for name in COMMANDS for leaf in leaves(name, cli_app.app.get_command(None, name))
    ]
    silent = {name for name, one in found if not any("-q" in p.opts for p in one.params)}
    assert silent == {"upgrade_check", "config check"}  # they print what was asked for
    assert "config show" in dict(found)


@pytest.mark.parametrize("words", [("explain",), ("config", "show")])
def test_quiet_keeps_every_note_back(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cli.running._Kept.isatty", lambda _: True)
    monkeypatch.setattr(output, "MAX_ROWS", 2)
    loud, quiet = run(*words, width=30), run(*words, "-q", width=30)
    assert "rows are not shown" in loud.err and "too wide for this terminal" in loud.err
    assert (quiet.code, quiet.err, quiet.out) == (0, "", loud.out)


@pytest.mark.parametrize("fmt", [Format.TABLE, Format.JSONL, Format.CSV])
def test_rows_go_to_a_file_as_they_come(fmt: Format, tmp_path: Path) -> None:
    file, most = tmp_path / "rows", output.MAX_ROWS
    sizes: list[int] = []

    def rows() -> Iterator[dict[str, object]]:
        for i in range(10 * most):
            if i % most == 0:
                sizes.append(file.stat().st_size if file.exists() else 0)
            yield {"group": f"group-{i:09}", "lag": i}

    write_rows(rows(), ["group", "lag"], fmt, file)
    grown = [big - small for small, big in pairwise(sizes[2:])]
    assert min(grown) > 0
    assert len(file.read_text("utf-8").splitlines()) == 10 * most + (fmt is not Format.JSONL)


def test_a_table_in_a_file_has_a_line_a_row_and_a_dash_for_nothing(tmp_path: Path) -> None:
    rows = [
        {"group": "etl", "topic": "orders", "lag": 12},
        {"group": "\u7fa4\u7d44", "topic": None, "lag": 1234},
    ]
    write_rows(rows, list(rows[0]), Format.TABLE, tmp_path / "lag", title="lag")
    assert (tmp_path / "lag").read_text("utf-8").splitlines() == [
        "lag",
        "group  topic    lag",
        "etl    orders    12",
        "\u7fa4\u7d44   -       1234",
    ]


@pytest.mark.parametrize(
    ("terminal", "quiet", "after_s", "shown"),
    [
        (True, False, 0.0, True),
        (True, False, 60.0, False),
        (True, True, 0.0, False),
        (False, False, 0.0, False),
    ],
)
def test_progress_shows_speed_and_is_silent_without_a_terminal_or_when_quick(
    terminal: bool, quiet: bool, after_s: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _Terminal() if terminal else io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=file, force_terminal=terminal or None, width=100)
    monkeypatch.setattr(output, "stderr_console", lambda: console)
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(output, "BAR_AFTER_S", after_s)
    monkeypatch.setattr(output, "REDRAW_S", 0.0)
    assert list(output.track(range(3), 3, "groups", quiet=quiet)) == [0, 1, 2]
    text = file.getvalue()
    assert ("groups" in text) is shown
    assert (
        bool(re.search(r"3/3 groups\s+[\d,]+/s", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)))
        is shown
    )


def holdfast(*arguments: str, cwd: Path | None = None, **more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, **more},
    )


@pytest.mark.parametrize("fmt", ["table", "json", "csv"])
def test_a_reader_that_has_seen_enough_is_no_finding(fmt: str) -> None:
    with holdfast("config", "show", "--format", fmt) as process:
        process.stdout.close()
        assert process.wait() == 0
        assert b"error" not in process.stderr.read()


@pytest.mark.parametrize(
    ("closed", "code", "words"), [(">&-", 0, ""), ("<&-", 3, "stdin is empty"), ("2>&-", 3, "")]
)
def test_streams_that_the_caller_closed(closed: str, code: int, words: str) -> None:
    command = f"exec {sys.executable} -m holdfast"
    command += " explain HF104" if code == 0 else " assign -"
    done = run_program("bash", "-c", f"{command} {closed}", stdin="")
    assert (done.code, words in done.err) == (code, True), done.err


@pytest.mark.parametrize("fmt", ["table", "json", "csv"])
def test_names_that_the_terminal_cannot_spell_are_escaped(fmt: str, tmp_path: Path) -> None:
    snapshot = tmp_path / "s.json"
    snapshot.write_text(
        '{"partitions": {"漢😀": 1}, "members": [{"id": "漢", "topics": ["漢😀"]}]}'
    )
    with holdfast("assign", str(snapshot), "--format", fmt, PYTHONIOENCODING="ascii") as process:
        out, err = process.communicate()
        assert (process.returncode, err) == (0, b"")
    assert b"\\u6f22" in out
    if fmt == "json":
        assert json.loads(out)["assignment"] == {"漢": {"漢😀": [0]}}


def test_commands_run_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && exec {sys.executable} -P -m holdfast explain HF104"
    done = run_program("bash", "-c", command)
    assert (done.code, done.err) == (0, "")


def test_every_extra_that_a_command_may_miss_is_one_of_the_package() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert {extra for _, extra in BROUGHT.values()} <= set(extras)


OF_AN_EXTRA = [
    ("import holdfast.confluent", "members"),
    ("import holdfast.aiokafka", "members"),
    ("import holdfast.kafka", "members"),
    ("import holdfast.metrics; holdfast.metrics.prometheus_text()", "members"),
    ("import holdfast.spark", "spark"),
    ("import holdfast.tables", "fleet"),
    *((f"from holdfast import {name}", "members") for name in ("Consumer", "Worker", "BrokerLags")),
]
WITH_NUMPY_ALONE = [("import holdfast.errors, holdfast", ""), ("from holdfast import assign", "")]


def test_a_missing_extra_is_named_by_every_public_module() -> None:
    """One process, in which no package of an extra can be imported; one line for each door."""
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({sorted(BROUGHT)!r}))\n"
        f"for code in {[code for code, _ in OF_AN_EXTRA + WITH_NUMPY_ALONE]!r}:\n"
        "    try:\n        exec(code)\n        print()\n"
        "    except ImportError as error:\n        print(error)\n"
    )
    told = run_python("-c", code).passed().out.splitlines()
    wanted = [extra for _, extra in OF_AN_EXTRA + WITH_NUMPY_ALONE]
    named = [re.findall(r"pip install 'kafka-holdfast\[(\w+)\]'$", line) for line in told]
    assert named == [[extra] if extra else [] for extra in wanted], told
    doors = {module for module in PUBLIC if any(module in code for code, _ in OF_AN_EXTRA)}
    assert doors | {"holdfast.errors"} == set(PUBLIC)


def test_a_value_in_a_help_text_is_named_by_what_it_is() -> None:
    for name in cli_app.app.list_commands(None):
        found = cli_app.app.get_command(None, name)
        for command in getattr(found, "commands", {name: found}).values():
            shown = command.get_help(click.Context(command, info_name=name))
            assert re.findall(r"\b(?:TEXT|INTEGER|FLOAT|RANGE|DIR|OBJECT)\b|docs/", shown) == [], (
                name
            )


def test_ctrl_c_while_commands_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_app, "load", interrupted)
    monkeypatch.setattr(cli_app.app, "commands", {})
    done = run("explain")
    assert (done.code, done.out, done.err) == (130, "", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_all_has_the_first_sentence_of_each(name: str) -> None:
    first = inspect.cleandoc(cli_app.load(name).help or "").split("\n\n")[0]
    assert COMMANDS[name] == " ".join(first.split()).replace("``", "`")


def test_every_file_of_commands_is_a_command() -> None:
    files = Path(cli_app.__file__).parent.joinpath("commands").glob("[!_]*.py")
    assert {file.stem for file in files} == set(COMMANDS)


def test_the_help_lists_commands_below_what_people_want_first_things_first() -> None:
    listed = run("--help", width=100).out.split("Look at a cluster:")
    names = re.findall(r"^  ([a-z-]+)", listed[1], re.M)
    assert names == [name.replace("_", "-") for name in COMMANDS]
    assert names[:3] == ["serve", "doctor", "lag"]
    assert all(f"\n{group}:\n" in run("--help").out for group in COMMAND_GROUPS)


def test_a_wide_table_that_is_piped_holds_the_ten_columns_that_matter_or_all(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    row = {f"column_{i}": f"value {i}" for i in range(12)}
    for target in (None, tmp_path / "table"):
        write_rows([row], list(row), Format.TABLE, target, every_column=False)
        out, err = capsys.readouterr()
        text = out if target is None else target.read_text()
        assert len(text.splitlines()[0].split()) == 10
        assert "value 9" in text and "value 10" not in text
        assert err == "left out: column_10, column_11 (--columns all has every column)\n"
    for fmt in (Format.JSON, Format.JSONL, Format.CSV):
        write_rows([row], list(row), fmt, every_column=False)
        out, err = capsys.readouterr()
        assert "column_11" in out and err == ""
    ten = {name: row[name] for name in list(row)[:10]}
    write_rows([ten], list(ten), Format.TABLE, every_column=False)
    assert capsys.readouterr().err == ""


WIDE = ("history", "lag", "plan", "replay")
"""Commands that print tables of more than ten columns."""


@pytest.mark.parametrize("name", WIDE)
def test_a_command_with_wide_tables_prints_ten_columns_and_all_on_request(
    name: str, tmp_path: Path
) -> None:
    folder = write_tables(tables(rolling_bounce().lag({("orders", 0): 5})), tmp_path / "t")
    more = ("--assignor", "cooperative-sticky") if name in ("plan", "replay") else ()
    head, every = (
        run(name, "--input", folder, *more, "-q", *columns).out.splitlines()[1].split()
        for columns in ((), ("--columns", "all"))
    )
    assert len(head) == 10 < len(every) and every[:10] == head
    told = run(name, "--input", folder, *more, "--format", "csv", "-q").out.splitlines()[0]
    assert {*every} - {"low"} <= {*told.split(",")}
    assert "left out: " in run(name, "--input", folder, *more).err


def test_a_narrow_terminal_shows_whole_columns_and_names_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console
    monkeypatch.setattr("rich.console.Console", lambda **more: console(force_terminal=True, **more))
    monkeypatch.setenv("COLUMNS", "60")
    row = {f"column_{i}": f"value {i}" for i in range(9)}
    write_rows([row], list(row), Format.TABLE)
    out, err = capsys.readouterr()
    assert "value 4" in out and "value 5" not in out
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 60 for line in out.splitlines())
    assert "column_5, column_6, column_7, column_8 (--format csv" in err.replace("\n", " ")


def test_a_topic_that_nobody_reads_is_reported_with_the_nearest() -> None:
    rows = [{"topic": "orders"}, {"topic": "clicks"}]
    assert of_topics(rows, ["orders"]) == rows[:1] and of_topics(rows, []) == rows
    with pytest.raises(
        ConfigError, match=r"no group reads a topic 'ordres'; did you mean orders\?"
    ):
        of_topics(rows, ["orders", "ordres"])


def _behind(group: str, partition: int, lag: int | None, seconds: float | None) -> dict[str, Any]:
    row = dict.fromkeys(LAG.flat_names)
    known = {"group": group, "topic": "t", "partition": partition, "clamped": "none"}
    return {**row, **known, "lag": lag, "lag_seconds": seconds}


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ((), ["c 0 7", "a 1 5", "a 0 2", "b 0 "]),
        (("--min-lag", "5"), ["c 0 7", "a 1 5"]),
        (("--total",), ["a  7", "c  7", "b  "]),
        (("--total", "--min-lag", "7"), ["a  7", "c  7"]),
    ],
)
def test_lag_is_by_partition_or_by_group_and_leaves_out_what_is_less(
    flags: tuple[str, ...], printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        _behind("a", 0, 2, 30.0),
        _behind("a", 1, 5, None),
        _behind("b", 0, None, None),
        _behind("c", 0, 7, 1.5),
    ]
    monkeypatch.setattr("holdfast.cli.live_groups.live_lag", lambda *_, **__: rows)
    done = run("lag", "-b", "localhost:1", "--format", "jsonl", *flags)
    found = [json.loads(line) for line in done.out.splitlines()]
    shown = [
        f"{r['group']} {r.get('partition', '')} {'' if r['lag'] is None else r['lag']}"
        for r in found
    ]
    assert shown == printed
    if "--total" in flags:
        counts = {"n_partitions": 2, "n_unknown": 0, "catch_up_seconds": None}
        assert found[0] == {"group": "a", "lag": 7, "lag_seconds": 30.0, **counts}
        unknown = {row["group"]: row["n_unknown"] for row in found}
        assert unknown == {"a": 0, "c": 0, **({} if "--min-lag" in flags else {"b": 1})}
        assert ("lags of 1 partitions of 1 groups are unknown" in done.err) is ("b" in unknown)


@pytest.mark.parametrize(
    ("others", "seconds"),
    [
        ([(0, 0.0, None)], 0.0),
        ([(0, 0.0, None), (5, None, None)], None),  # unread, and nobody knows how old
        ([(0, 0.0, None), (5, None, True)], 0.0),  # nobody reads that topic
        ([(5, 90_000.0, True), (5, 3.0, False)], 3.0),
    ],
)
def test_the_time_of_a_group_is_that_of_what_its_members_read(
    others: list[Any], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {**_behind("a", p, lag, age), "not_subscribed": left}
        for p, (lag, age, left) in enumerate(others)
    ]
    monkeypatch.setattr("holdfast.cli.live_groups.live_lag", lambda *_, **__: rows)
    (found,) = run("lag", "-b", "h:1", "--total", "--format", "json").rows()
    assert found["lag_seconds"] == seconds
    assert found["lag"] == sum(lag for lag, *_ in others)


def test_a_group_without_a_record_is_reported() -> None:
    found = SimpleNamespace(
        table=lambda name: pa.table({"group": ["etl", "web", "etl"]}),
        tables=SimpleNamespace(newest_notes=dict),
    )
    told: list[str] = []
    check_groups(found, ["etl", "w*"], told.append)
    assert told == []
    check_groups(found, ["elt", "web"], told.append)
    assert told == ["no record of a group 'elt': did you mean etl?"]
    check_groups(found, ["batch"], told.append, lambda: {"batch"})
    assert told[1:] == ["no record of a group 'batch' yet"]


def test_where_no_group_is_there_those_that_are_known_are_listed() -> None:
    found = SimpleNamespace(
        table=lambda name: pa.table({"group": ["etl", "web"]}),
        tables=SimpleNamespace(newest_notes=dict),
    )
    told: list[str] = []
    with pytest.raises(SourceError, match=r"^no group 'q\*' here; known: batch, etl, web$"):
        check_groups(found, ["q*"], told.append, lambda: {"batch"})
    with pytest.raises(SourceError, match=r"^no group 'batsh' here; did you mean batch\?$"):
        check_groups(found, ["batsh", "nobody"], told.append, lambda: {"batch"})
    assert told == []


def test_a_dump_knows_its_groups_by_the_keys_alone(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    keys = [
        bytes.fromhex(head) + b"etl" + tail
        for head, tail in (("00020003", b""), ("00010003", b"\0"))
    ]
    for name, column in (("a", [*keys, None]), ("b", [b"\0\x02\0\x03web", b"\0"])):
        file = tmp_path / "records" / f"{name}.parquet"
        pq.write_table(pa.table({"key": pa.array(column, pa.binary())}), file)
    assert Dump(path=tmp_path, cluster_id="", taken_at="").group_names() == {"etl", "web"}


HEAVY = {
    *("aiokafka", "confluent_kafka", "kafka", "pandas", "pyarrow", "pyspark", "werkzeug"),
    *("asyncio", "http", "multiprocessing", "subprocess", "xml"),
}
SNAPSHOT = '{"partitions": {"t": 2}, "members": [{"id": "a", "topics": ["t"]}]}'


@pytest.mark.parametrize(
    ("words", "also"),
    [
        (("--help",), {"numpy", "rich"}),
        (("--version",), {"numpy", "rich"}),
        (("decode", "subscription", "00000000000100017400000000"), {"numpy", "rich"}),
        (("assign", "-"), set()),
        (("assign", "-", "--format", "json"), {"rich"}),
    ],
)
def test_a_call_imports_what_it_needs_and_nothing_heavy(
    words: tuple[str, ...], also: set[str], tmp_path: Path
) -> None:
    code = (
        "import sys\nfrom holdfast.cli.app import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sys.modules)"
    )
    (tmp_path / "holdfast.toml").write_text("[defaults]\nquiet = true\n")
    done = run_python("-c", code, *words, stdin=SNAPSHOT, cwd=tmp_path).passed()
    modules = set(done.out.splitlines()[-1].split())
    assert "holdfast.cli.app" in modules
    assert not {name.split(".")[0] for name in modules} & (HEAVY | also)
    loaded = {m.rpartition(".")[2] for m in modules if m.startswith("holdfast.cli.commands.")}
    assert loaded == set(words[:1]) & set(COMMANDS)


def test_an_older_click_is_refused_by_name_and_members_need_none():
    """A framework such as Faust holds Click down; its members are ours all the same."""
    old = "import sys, click; click.ParamType = type('ParamType', (), {})"
    done = run_python("-c", f"{old}; import holdfast.cli.app")
    said = "error: the holdfast command needs Click 8.5 or newer: pip install -U click\n"
    assert (done.code, done.err) == (2, said)
    members = "import holdfast.aiokafka, holdfast.confluent, holdfast.kafka, sys"
    run_python("-c", f"import sys; sys.modules['click'] = None; {members}").passed()


HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
N_LINES = 5_000
DECODE = [HOLDFAST, "decode", "subscription", "-", "--quiet"]


@pytest.fixture
def lines(tmp_path):
    made = tmp_path / "lines"
    made.write_text("00000000000100017400000000\n" * N_LINES)
    return made


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def environment(request):
    return {**os.environ, "PYTHONUNBUFFERED": request.param}


def waiting_in(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_pipe_that_does_not_wait_and_a_slow_reader(lines, environment):
    """Another program has made the pipe non-blocking, as Node does with what it shares."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    size = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)
    with lines.open() as given:
        process = subprocess.Popen(DECODE, stdin=given, stdout=writer, env=environment)
    os.close(writer)
    until(lambda: waiting_in(reader) > size - 8_192 or process.poll() is not None, "a full pipe")
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    assert (process.wait(), told.count(b"\n")) == (0, N_LINES)


def test_a_file_that_can_take_only_a_part_is_an_error(environment, tmp_path):
    """A full disk is alike: a part of a write is taken, and the next one refused."""
    snapshot, target = tmp_path / "snapshot.json", tmp_path / "out"
    group = {"partitions": {"t": 2_000}, "members": [{"id": "C0", "topics": ["t"]}]}
    snapshot.write_text(json.dumps(group))
    command = f"ulimit -f 4; exec {HOLDFAST} assign {snapshot} --format csv > {target}"
    done = run_program("bash", "-c", command, **environment)
    assert done.code != 0
    assert "File too large" in done.err
