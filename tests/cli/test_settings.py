"""Settings: the file under the environment under the flags; unknown words are refused."""

import json
from pathlib import Path
from typing import NoReturn

import pytest
from tests.cli.running import run, write_tables
from tests.report.fleet import rolling_bounce, tables

from holdfast.report.findings.doctor import schema_text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    (tmp_path / "tables").mkdir()
    write_tables(tables(rolling_bounce()), tmp_path / "tables")
    return tmp_path


def setting(option: str, **environment: str) -> tuple[object, str]:
    done = run("config", "show", "--command", "doctor", "--format", "json")
    row = next(r for r in json.loads(done.out)["rows"] if r["option"] == option)
    return row["value"], row["source"]


def test_flags_win_over_the_environment_and_that_over_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = ("doctor", "--input", "tables", "-q")
    assert run(*doctor).code == 0
    assert setting("fail-on") == ("never", "default")
    (folder / "holdfast.toml").write_text('[doctor]\nfail-on = "warn"\n')
    assert run(*doctor).code == 1
    assert setting("fail-on") == ("warn", str(folder / "holdfast.toml"))
    monkeypatch.setenv("HOLDFAST_DOCTOR_FAIL_ON", "error")
    assert run(*doctor).code == 0
    assert setting("fail-on") == ("error", "HOLDFAST_DOCTOR_FAIL_ON")
    assert run(*doctor, "--fail-on", "info").code == 1


def test_the_section_for_all_reaches_every_command_that_has_the_option(folder: Path) -> None:
    (folder / "holdfast.toml").write_text('[defaults]\nformat = "json"\n[explain]\nformat="csv"\n')
    assert json.loads(run("doctor", "--input", "tables").out)["schema_version"] == 1
    assert run("explain").out.startswith("code,severity,name,what\n")


def test_the_section_for_all_passes_by_commands_that_do_not_take_a_value(folder: Path) -> None:
    (folder / "holdfast.toml").write_text('[defaults]\nformat = "table"\n')
    assert run("decode", "subscription", "00000000000100017400000000").code == 0
    (folder / "holdfast.toml").write_text('[defaults]\nformat = "xml"\n')
    done = run("explain")
    assert done.code == 2
    assert "no command takes 'xml'" in done.err


def test_the_nearest_file_upwards_counts_then_the_users_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "own" / "holdfast").mkdir(parents=True)
    own = folder / "own" / "holdfast" / "holdfast.toml"
    own.write_text('[doctor]\nfail-on = "info"\n')
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert setting("fail-on") == ("info", str(own))
    (folder / "a" / "holdfast.toml").write_text('[doctor]\nfail-on = "warn"\n')
    assert setting("fail-on") == ("warn", str(folder / "a" / "holdfast.toml"))
    named = folder / "other.toml"
    named.write_text('[doctor]\nfail-on = "error"\n')
    monkeypatch.setenv("HOLDFAST_CONFIG", str(named))
    assert setting("fail-on") == ("error", str(named))


def test_no_home_and_folders_closed_to_us_hold_no_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(error: Exception) -> NoReturn:
        raise error

    denied = PermissionError(13, "Permission denied", "/root/.config/holdfast/holdfast.toml")
    monkeypatch.setattr(Path, "is_file", lambda _: refuse(denied))
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
        ('format = "json"\n', "format stands outside of a section"),
        ("[doctor\n", "holdfast.toml: "),
        ("[doctor]\nfail-on = 'bad'\n", "bad"),
        ("\xff", "holdfast.toml: "),
    ],
)
def test_a_bad_file_is_one_clear_line(folder: Path, text: str, words: str) -> None:
    (folder / "holdfast.toml").write_bytes(text.encode("latin-1"))
    done = run("doctor", "--input", "tables", width=400)
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_named_file_that_is_not_there_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CONFIG", "/nowhere/holdfast.toml")
    done = run("doctor", "--schema")
    assert (done.code, done.out) == (2, "")
    assert "HOLDFAST_CONFIG" in done.err


def test_changed_shows_only_what_differs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(run("config", "show", "--changed", "--format", "json").out)["rows"]
    assert rows == []
    monkeypatch.setenv("HOLDFAST_REPORT_TITLE", "Ours")
    rows = json.loads(run("config", "show", "--changed", "--format", "json").out)["rows"]
    assert [(r["command"], r["option"], r["value"]) for r in rows] == [("report", "title", "Ours")]


def test_show_refuses_an_unknown_command(folder: Path) -> None:
    assert run("config", "show", "--command", "nothing").code == 2
    assert schema_text()


def test_help_shows_the_sections_of_a_settings_file() -> None:
    lines = [line.strip() for line in run("config", "show", "--help").out.splitlines()]
    at = lines.index("[defaults]")
    assert lines[at + 1 : at + 3] == ['bootstrap-server = "localhost:9092"', "[doctor]"]
