"""Settings: the file under the environment under the flags; unknown words are refused."""

import ast
import json
import os
import re
from pathlib import Path
from typing import NoReturn

import click
import pytest
from tests.cli.running import run, write_tables
from tests.report.fleet import rolling_bounce, tables
from tests.source import TREES, trees

from holdfast.cli import app as cli_app
from holdfast.cli import settings
from holdfast.cli.options import shared_options
from holdfast.cli.settings import check_environment
from holdfast.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    (tmp_path / "tables").mkdir()
    write_tables(tables(rolling_bounce()), tmp_path / "tables")
    return tmp_path


def setting(option: str, **environment: str) -> tuple[object, str]:
    done = run("config", "show", "--command", "doctor", "--format", "json")
    row = next(r for r in done.rows() if r["option"] == option)
    return row["value"], row["source"]


def test_flags_win_over_the_environment_and_that_over_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = ("doctor", "--input", "tables", "-q")
    assert run(*doctor).code == 0
    assert setting("fail-on") == ("never", "default")
    (folder / "holdfast.toml").write_text('[doctor]\nfail-on = "warn"\n')
    assert run(*doctor).code == 1
    assert setting("fail-on") == ("warn", "holdfast.toml")
    monkeypatch.setenv("HOLDFAST_DOCTOR_FAIL_ON", "error")
    assert run(*doctor).code == 0
    assert setting("fail-on") == ("error", "HOLDFAST_DOCTOR_FAIL_ON")
    assert run(*doctor, "--fail-on", "info").code == 1


def test_the_section_for_all_reaches_every_command_that_has_the_option(folder: Path) -> None:
    (folder / "holdfast.toml").write_text('[defaults]\nformat = "json"\n[explain]\nformat="csv"\n')
    assert json.loads(run("doctor", "--input", "tables").out)["schema_version"] == 1
    assert run("explain").out.startswith("code,severity,name,what\n")


def test_a_value_that_a_command_does_not_take_is_reported_with_its_position(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "holdfast.toml").write_text('[defaults]\nformat = "xml"\n')
    done = run("explain")
    assert (done.code, done.out) == (2, "")
    assert "'--format': 'xml' is not one of" in done.err
    assert done.err.endswith("holdfast.toml says so\n")
    monkeypatch.setenv("HOLDFAST_EXPLAIN_FORMAT", "yaml")
    assert run("explain").err.endswith("HOLDFAST_EXPLAIN_FORMAT says so\n")
    assert "says so" not in run("explain", "--format", "yml").err


def test_the_named_file_counts_then_that_of_the_folder_then_the_users_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "own" / "holdfast").mkdir(parents=True)
    own = folder / "own" / "holdfast" / "holdfast.toml"
    own.write_text('[doctor]\nfail-on = "info"\n')
    assert setting("fail-on") == ("info", str(own))
    (folder / "holdfast.toml").write_text('[doctor]\nfail-on = "warn"\n')
    assert setting("fail-on") == ("warn", "holdfast.toml")
    named = folder / "other.toml"
    named.write_text('[doctor]\nfail-on = "error"\n')
    monkeypatch.setenv("HOLDFAST_CONFIG", str(named))
    assert setting("fail-on") == ("error", str(named))


def test_nothing_is_searched_upwards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "holdfast.toml").write_text("[nonsense]\n")
    below = folder / "a"
    below.mkdir()
    monkeypatch.chdir(below)
    assert setting("fail-on") == ("never", "default")
    assert run("explain", "HF104").code == 0


def test_a_command_below_a_command_has_a_section_and_variables(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> tuple[object, str]:
        done = run("config", "show", "--command", "tables", "--format", "json")
        rows = {(r["command"], r["option"]): r for r in done.rows()}
        row = rows["tables compact", "keep"]
        return row["value"], row["source"]

    assert kept() == ("all", "default")
    for text, words in (
        ("[tables]\nkeep = 1\n", "[tables] has no command 'keep'"),
        (
            "[tables.compact]\nkep = 1\n",
            "[tables.compact] has no option 'kep'; did you mean 'keep'?",
        ),
        ("[tables]\ncompact = 1\n", "tables.compact is a command; its options belong in a section"),
    ):
        (folder / "holdfast.toml").write_text(text)
        assert words in run("tables", "compact", "tables").err
    (folder / "holdfast.toml").write_text('[tables.compact]\nkeep = "9x"\n')
    assert kept() == ("9x", "holdfast.toml")
    assert "9x" in run("tables", "compact", "tables").err
    monkeypatch.setenv("HOLDFAST_TABLES_COMPACT_KEEP", "8x")
    assert kept() == ("8x", "HOLDFAST_TABLES_COMPACT_KEEP")
    assert "8x" in run("tables", "compact", "tables").err


def test_no_home_and_folders_closed_to_us_hold_no_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(error: Exception) -> NoReturn:
        raise error

    denied = PermissionError(13, "Permission denied", "/root/.config/holdfast/holdfast.toml")
    stat = os.stat
    monkeypatch.setattr(
        os,
        "stat",
        lambda path, **more: (
            refuse(denied) if str(path).endswith("holdfast.toml") else stat(path, **more)
        ),
    )
    monkeypatch.setattr(Path, "home", lambda: refuse(RuntimeError("no home directory")))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    (folder / "holdfast.toml").write_text("[nonsense]\n")
    assert run("explain", "HF104").code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[doctr]\n", "no command 'doctr'; did you mean 'doctor'?"),
        ("[doctor]\nfail_on = 1\n", "[doctor] has no option 'fail_on'; did you mean 'fail-on'?"),
        ("[defaults]\nquit = 1\n", "[defaults] has no option 'quit'; did you mean 'quiet'?"),
        ('format = "json"\n', "format is outside of a section"),
        ("[doctor\n", "holdfast.toml: "),
        ("[doctor]\nfail-on = 'bad'\n", "bad"),
        ("\xff", "holdfast.toml: "),
        pytest.param("a = " + "[" * 100_000, "holdfast.toml: ", id="deep"),
        pytest.param("a = " + "9" * 5_000, "holdfast.toml: ", id="long"),
    ],
)
def test_a_bad_file_is_one_clear_line(folder: Path, text: str, words: str) -> None:
    (folder / "holdfast.toml").write_bytes(text.encode("latin-1"))
    done = run("doctor", "--input", "tables", width=400)
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_named_file_that_is_not_there_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CONFIG", "/nowhere/holdfast.toml")
    done = run("explain")
    assert (done.code, done.out) == (2, "")
    assert "HOLDFAST_CONFIG" in done.err


def test_help_shows_the_sections_of_a_settings_file() -> None:
    lines = [line.strip() for line in run("config", "show", "--help").out.splitlines()]
    at = lines.index("[defaults]")
    assert lines[at + 1 : at + 3] == ['bootstrap-server = "localhost:9092"', "[doctor]"]


def test_what_commands_share_may_stand_in_the_section_for_all() -> None:
    assert {"bootstrap-server", "command-config", "format", "quiet", "timeout"} <= {
        *shared_options()
    }
    owners: dict[str, set[str]] = {}
    for module in cli_app.COMMANDS:
        for variable in settings.variables_of("", cli_app.load(module)):
            owners.setdefault(variable.removeprefix("HOLDFAST__").lower(), set()).add(module)
    assert [o for o in shared_options() if not owners[o.replace("-", "_")]] == []


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("HOLDFAST_DOCTOR_FAILON", "HOLDFAST_DOCTOR_FAIL_ON"),
        ("HOLDFAST_DOCTR_FAIL_ON", "HOLDFAST_DOCTOR_FAIL_ON"),
        ("HOLDFAST_CONFG", "HOLDFAST_CONFIG"),
        ("HOLDFAST_CACHES", "HOLDFAST_CACHE"),
    ],
)
def test_a_variable_that_names_nothing_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, meant: str
) -> None:
    """A gate in CI that never fails is worse than none."""
    monkeypatch.setenv(variable, "warn")
    for command in (("doctor", "--input", "tables", "-q"), ("config", "show")):
        done = run(*command)
        assert (done.code, done.out) == (2, "")
        assert f"{variable} is not an option of any command; did you mean {meant}?" in done.err


@pytest.mark.parametrize(
    "variable",
    ["HOLDFAST_LAG_FORMAT", "HOLDFAST_CACHE", "HOLDFASTER", "OTHER"],
)
def test_a_variable_of_something_else_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "json")
    assert run("simulate", "--members", "2", "--partitions", "2", "-q").code == 0


@TREES
def test_every_variable_that_the_code_reads_by_name_is_known() -> None:
    read = {
        node.value
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"HOLDFAST_[A-Z_]+", node.value)
    }
    assert "HOLDFAST_JARS" in read
    assert read <= settings.OTHERS


def test_a_variable_of_a_command_that_does_not_run_is_left_to_it() -> None:
    names = ["tables", "tables-compact"]

    def check(variable: str, name: str) -> None:
        check_environment(name, click.Command(name), names, {variable: "x"}, list)

    check("HOLDFAST_TABLES_COMPACT_X", "tables")
    for variable, name in (
        ("HOLDFAST_TABLES_COMPACT_X", "tables-compact"),
        ("HOLDFAST_TABLES_X", "tables"),
        ("HOLDFAST_NOTHING_X", "tables"),
    ):
        with pytest.raises(ConfigError, match=variable):
            check(variable, name)


def test_a_word_of_a_command_that_does_not_run_is_left_to_it(folder: Path) -> None:
    (folder / "holdfast.toml").write_text("[doctor]\nfail_on = 1\n")
    assert run("explain", "HF104").code == 0
    assert "'fail_on'; did you mean 'fail-on'?" in run("config", "show").err


def test_what_kubernetes_sets_for_a_service_of_this_name_is_no_setting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in ("HOLDFAST", "HOLDFAST_EXPORT", "HOLDFAST_DOCTOR_NIGHTLY"):
        monkeypatch.setenv(f"{service}_SERVICE_HOST", "10.0.0.7")
        monkeypatch.setenv(f"{service}_SERVICE_PORT", "9308")
        monkeypatch.setenv(f"{service}_SERVICE_PORT_HTTP", "9308")
        monkeypatch.setenv(f"{service}_PORT", "tcp://10.0.0.7:9308")
        for end in ("", "_PROTO", "_PORT", "_ADDR"):
            monkeypatch.setenv(f"{service}_PORT_9308_TCP{end}", "9308")
    assert run("doctor", "--input", "tables", "-q").code == 0
    monkeypatch.setenv("HOLDFAST_PORT", "9308")
    assert run("doctor", "--input", "tables", "-q").code == 2


def test_a_list_and_a_flag_may_be_given_twice(folder: Path) -> None:
    run("doctor", "--input", "tables", "-q", "-q", "--group", "etl*", "--group", "*").passed()
