"""Settings: the file under the environment under the flags; unknown words are refused."""

import ast
import grp
import json
import os
import pwd
import re
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, get_args, get_type_hints

import pytest
import typer
from tests.cli.running import run, write_tables
from tests.report.fleet import rolling_bounce, tables

from holdfast.cli import app as cli_app
from holdfast.cli import strict
from holdfast.cli.settings_files import GUARDED
from holdfast.cli.strict import check_environment
from holdfast.errors import ConfigError
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


@pytest.fixture
def below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, two below the one with the settings file."""
    (folder / "own" / "holdfast").mkdir(parents=True)
    here = folder / "a" / "b"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    return here


def owned_by(monkeypatch: pytest.MonkeyPatch, strange: Path, uid: int) -> None:
    """Let the system say that a file or folder belongs to another user."""
    real = os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        held = real(path, **more)
        return os.stat_result((*held[:4], uid, *held[5:])) if path == strange else held

    monkeypatch.setattr(os, "stat", stat)


STRANGER = next(u for u in (12_345, 54_321) if u != os.geteuid())


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_of_another_user_is_passed_by_and_told(
    folder: Path, below: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "a" / "holdfast.toml"
    file.write_text('[doctor]\nfail-on = "warn"\n')
    (folder / "holdfast.toml").write_text('[doctor]\nfail-on = "info"\n')
    strange = file if what == "file" else file.parent
    owned_by(monkeypatch, strange, STRANGER)
    assert setting("fail-on") == ("info", str(folder / "holdfast.toml"))
    said = run("explain", "HF104").err
    assert said.count("ignored") == 1
    assert f"ignored {file}: {strange} belongs to user {STRANGER}; take it over (`chown" in said
    assert f"or name it: HOLDFAST_CONFIG={file}" in said
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    assert setting("fail-on") == ("warn", str(file))
    assert "ignored" not in run("explain", "HF104").err


def test_a_file_of_root_counts(folder: Path, below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "holdfast.toml"
    file.write_text('[doctor]\nfail-on = "warn"\n')
    owned_by(monkeypatch, file, 0)
    assert setting("fail-on") == ("warn", str(file))


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "told"),
    [
        (0o644, 0o755, None),
        (0o600, 0o1777, None),  # nobody replaces a file of another user in such a folder
        (0o646, 0o755, "anybody can write {file}; close it (`chmod go-w {file}`)"),
        (0o646, 0o1777, "anybody can write {file}; close it (`chmod go-w {file}`)"),
        (0o644, 0o757, "anybody can write {folder}; close it (`chmod go-w {folder}`)"),
        (0o664, 0o755, "group other can write {file}; close it (`chmod g-w {file}`)"),
        (0o644, 0o775, "group other can write {folder}; close it (`chmod g-w {folder}`)"),
    ],
)
def test_a_file_that_others_can_write_is_passed_by_and_told(
    folder: Path,
    below: Path,
    file_mode: int,
    folder_mode: int,
    told: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = folder / "a"
    file = shared / "holdfast.toml"
    file.write_text('[doctor]\nfail-on = "warn"\n')
    group = grp.struct_group(("other", "x", os.getgid(), ["somebody"]))
    monkeypatch.setattr(grp, "getgrgid", lambda _: group)
    file.chmod(file_mode)
    shared.chmod(folder_mode)
    counts = ("warn", str(file)) if told is None else ("never", "default")
    assert setting("fail-on") == counts
    said = run("explain", "HF104").err
    assert ("ignored" in said) == (told is not None)
    assert (told or "").format(file=file, folder=shared) in said


def test_the_users_own_group_is_nobody_else(
    folder: Path, below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = pwd.getpwuid(os.geteuid())
    alone = grp.struct_group((owner.pw_name, "x", owner.pw_gid, []))
    monkeypatch.setattr(grp, "getgrgid", lambda _: alone)
    file = folder / "holdfast.toml"
    file.write_text('[doctor]\nfail-on = "warn"\n')
    file.chmod(0o664)
    assert setting("fail-on") == ("warn", str(file))


def test_a_link_counts_where_the_file_behind_it_does(folder: Path, below: Path) -> None:
    shared = folder / "shared"
    shared.mkdir()
    real = shared / "x.toml"
    real.write_text('[doctor]\nfail-on = "warn"\n')
    (folder / "holdfast.toml").symlink_to(real)
    assert setting("fail-on") == ("warn", str(folder / "holdfast.toml"))
    shared.chmod(0o777)
    assert setting("fail-on") == ("never", "default")


ABOVE = '[report]\noutput = "{victim}"\nquiet = true\n'


@pytest.mark.parametrize("mark", [None, ".git", "pyproject.toml"])
def test_a_file_above_the_project_sets_no_output_in_silence(
    folder: Path, below: Path, mark: str | None
) -> None:
    victim = folder / "report.html"
    file = folder / "holdfast.toml"
    file.write_text(ABOVE.format(victim=victim))
    if mark:
        (below.parent / mark).mkdir()
    report = ("report", "--input", folder / "tables")
    project = below.parent if mark else below
    told = f"{file}, above the project {project}, sets an output (--output {victim})\n"
    assert run(*report).err == told
    assert victim.is_file()
    assert told not in run(*report, "-o", folder / "x.html").err
    assert f"settings file: {file}, above the project {project}\n" in run("config", "show").err


def test_a_file_in_the_project_sets_an_output_without_a_word(folder: Path, below: Path) -> None:
    (folder / ".git").mkdir()
    (folder / "holdfast.toml").write_text(ABOVE.format(victim=folder / "report.html"))
    assert run("report", "--input", folder / "tables").err == ""


def test_a_file_above_the_project_sets_no_server_and_no_credentials_in_silence(
    folder: Path, below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "holdfast.toml"
    file.write_text('[defaults]\nbootstrap-server = "nowhere"\ncommand-config = "c"\n')
    said = run("lag").err
    assert "sets the server (--bootstrap-server nowhere) and the credentials (--comm" in said
    monkeypatch.setenv("HOLDFAST_LAG_BOOTSTRAP_SERVER", "here")
    assert "sets the credentials (--command-config c)\n" in run("lag").err


READ_ONLY = {"input", "broker-log", "journal", "replay", "scenario"}
"""Options with a path that a command reads, and that name no place to write to."""


def test_every_option_that_names_a_file_is_guarded_or_read_only() -> None:
    paths: set[str] = set()
    for name in cli_app.COMMANDS:
        run_it = getattr(import_module(f"holdfast.cli.commands.{name}"), "run", None)
        for hint in get_type_hints(run_it, include_extras=True).values() if run_it else ():
            if "pathlib.Path" in str(get_args(hint)[:1]):
                told = get_args(hint)[1]  # Typer keeps the first flag as a default
                words = (str(told.default), *(told.param_decls or ()))
                paths |= {word.removeprefix("--") for word in words if word.startswith("--")}
    assert paths - READ_ONLY - GUARDED.keys() == set()
    assert {"command-config", "output", "metrics", "trace"} <= paths


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
        assert f"{variable} is no option of any command; did you mean {meant}?" in done.err


@pytest.mark.parametrize(
    "variable",
    ["HOLDFAST_LAG_FORMAT", "HOLDFAST_CACHE", "HOLDFASTER", "OTHER"],
)
def test_a_variable_of_something_else_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "json")
    assert run("simulate", "--members", "2", "--partitions", "2", "-q").code == 0


def test_every_variable_that_the_code_reads_by_name_is_known() -> None:
    source = Path(strict.__file__).parents[1]
    read = {
        node.value
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"HOLDFAST_[A-Z_]+", node.value)
    }
    assert "HOLDFAST_CLASS_ARCHIVE" in read
    assert read <= strict.OTHERS


def test_a_variable_of_a_command_that_is_not_loaded_is_left_to_it() -> None:
    cli_app.register_all()
    every = typer.main.get_command(cli_app.app).commands

    def check(variable: str, *loaded: str) -> None:
        given = {name: every[name] for name in loaded}
        check_environment(given, sorted(every), {variable: "x"}, list)

    check("HOLDFAST_SIMULATE_SEARCH_X", "simulate")
    for variable, loaded in (
        ("HOLDFAST_SIMULATE_SEARCH_X", "simulate-search"),
        ("HOLDFAST_SIMULATE_X", "simulate"),
        ("HOLDFAST_NOTHING_X", "simulate"),
    ):
        with pytest.raises(ConfigError, match=variable):
            check(variable, loaded)


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


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (("doctor", "--input", "tables", "--input", "tables"), "--input"),
        (("lag", "-b", "x:1", "--bootstrap-server=y:1"), "--bootstrap-server"),
        (("explain", "--format", "json", "--format=csv"), "--format"),
        (("tables", "compact", "tables", "--keep", "1d", "--keep", "2d"), "--keep"),
        (("config", "show", "--command", "lag", "--command", "doctor"), "--command"),
    ],
)
def test_an_option_of_which_one_counts_is_refused_twice(
    folder: Path, arguments: tuple[str, ...], flag: str
) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert f"{flag} is given 2 times, and only one of them would count" in done.err


def test_a_list_and_a_flag_may_be_given_twice(folder: Path) -> None:
    done = run("doctor", "--input", "tables", "-q", "-q", "--group", "etl*", "--group", "*")
    assert done.code == 0, done.err


def test_a_value_that_is_none_of_a_list_is_told_in_plain_words() -> None:
    done = run("doctor", "--fail-on", "critical")
    assert done.code == 2
    assert "'--fail-on': 'critical' is not one of 'never', 'info'" in " ".join(done.err.split())
