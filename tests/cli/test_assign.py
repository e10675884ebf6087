"""``holdfast assign`` from the outside: what goes in, what comes out, and the exit codes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.assignors.groups import snapshot

from holdfast.cli import app
from holdfast.cli.commands.replay import settings_from
from holdfast.cli.commands.simulate import _known_policy
from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.sim.scenarios import Setup

Capture = pytest.CaptureFixture[str]

GROUP = snapshot(
    {"orders": 3, "clicks": 2}, ["C0", "C1"], owned={"C0": {"orders": [0, 1, 2], "clicks": [0]}}
)
UNEQUAL = snapshot({"orders": 2, "clicks": 2}, {"C0": ["orders"], "C1": ["orders", "clicks"]})


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        app.main(["assign", *arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.fixture
def group(tmp_path: Path) -> str:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUP), encoding="utf-8")
    return str(path)


def answer(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert command(*arguments, "--format", "json") == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_json_is_the_stated_shape(group: str, capsys: Capture) -> None:
    document = answer(capsys, group, "--assignor", "sticky")
    assert list(document) == ["schema_version", "assignor", "assignment", "withheld", "quality"]
    assert document["schema_version"] == 1
    assert document["assignor"] == "sticky"
    assert document["assignment"]["C1"] == {"clicks": [1], "orders": [2]}
    assert document["withheld"] == {}
    quality = document["quality"]
    assert quality["balance_score"] == 1
    assert quality["loads"] == {"C0": 3, "C1": 2}
    assert (quality["kept"], quality["moved"], quality["optimal"]) == (3, 1, True)


def test_a_cooperative_round_names_what_it_withholds_and_for_whom(
    group: str, capsys: Capture
) -> None:
    document = answer(capsys, group, "-a", "cooperative-sticky")
    assert document["withheld"] == {"orders-2": "C1"}
    assert document["assignment"]["C1"] == {"clicks": [1]}
    assert document["quality"]["withheld"] == 1


def test_all_rounds_follow_until_nothing_is_withheld(group: str, capsys: Capture) -> None:
    document = answer(capsys, group, "-a", "cooperative-sticky", "--all-rounds")
    assert document["withheld"] == {}
    assert document["rounds"] == 2
    assert document["assignment"]["C1"] == {"clicks": [1], "orders": [2]}
    assert (document["quality"]["kept"], document["quality"]["moved"]) == (3, 1)
    assert document["quality"]["optimal"] is True
    eager = answer(capsys, group, "--all-rounds")
    assert (eager["rounds"], eager["quality"]["moved"]) == (1, 1)


def test_a_dash_reads_stdin(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(GROUP)))
    assert answer(capsys, "-")["assignor"] == "sticky"


def test_options_reach_the_assignor(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(snapshot({"t": 4}, ["C0", "C1"])))
    arguments = (str(path), "-a", "lag-sticky", "--option", 'weights={"C0": 3}')
    assert answer(capsys, *arguments)["quality"]["loads"] == {"C0": 3, "C1": 1}
    assert answer(capsys, str(path), "-a", "lag", "--option", "group-id=etl")["assignor"] == "lag"


def test_the_table_is_for_people(group: str, capsys: Capture) -> None:
    assert command(group, "-a", "cooperative-sticky") == 0
    out = capsys.readouterr().out
    for text in ("cooperative-sticky", "withheld", "orders: 0-1", "orders-2", "waits for"):
        assert text in out
    assert command(group, "-a", "cooperative-sticky", "--all-rounds") == 0
    assert "2 rounds" in capsys.readouterr().out


def test_the_table_writes_runs_of_partitions_and_lag(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "group.json"
    owned = {"C0": {"t": [0, 1, 3]}}
    lags = {"t": [7, 7, 7, 7]}
    path.write_text(json.dumps(snapshot({"t": 4}, ["C0"], owned=owned, lags=lags)))
    assert command(str(path), "-a", "range") == 0
    assert "t: 0-3" in (out := capsys.readouterr().out)
    assert "28" in out
    two = snapshot({"t": 4}, ["C0", "C1"], owned=owned)
    path.write_text(json.dumps(two))
    assert command(str(path), "-a", "fairest-sticky") == 0
    assert "t: 0-1 3" in capsys.readouterr().out


def test_rows_for_programs(group: str, capsys: Capture, tmp_path: Path) -> None:
    assert command(group, "-a", "cooperative-sticky", "--format", "jsonl") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["state"] for row in rows} == {"assigned", "withheld"}
    assert rows[-1] == {
        "assignor": "cooperative-sticky",
        "member_id": "C1",
        "topic": "orders",
        "partition": 2,
        "state": "withheld",
    }
    target = tmp_path / "out.csv"
    assert command(group, "--format", "csv", "-o", str(target)) == 0
    assert target.read_text().splitlines()[0] == "assignor,member_id,topic,partition,state"
    assert len(target.read_text().splitlines()) == 6


def test_compare_shows_several_side_by_side(group: str, capsys: Capture) -> None:
    document = answer(capsys, group, "--compare", "range, sticky,sticky")
    assert [each["assignor"] for each in document["compare"]] == ["range", "sticky"]
    assert command(group, "--compare", "range,sticky") == 0
    out = capsys.readouterr().out
    assert "balance score" in out
    assert "needed moves" in out
    assert command(group, "--compare", "range,sticky", "--format", "csv") == 0
    assert len(capsys.readouterr().out.splitlines()) == 11


def test_javas_classes_are_assignors_too(group: str, capsys: Capture) -> None:
    sticky, ranges = (f"org.apache.kafka.clients.consumer.{n}Assignor" for n in ("Sticky", "Range"))
    assert answer(capsys, group, "--assignor", sticky) == answer(
        capsys, group, "--assignor", "sticky"
    )
    document = answer(capsys, group, "--compare", f"{sticky},sticky,{ranges}")
    assert [each["assignor"] for each in document["compare"]] == ["sticky", "range"]
    (made,) = settings_from(["holdfast-simple"], [sticky], [0])
    assert made.assignor == "sticky"
    (made,) = settings_from(["org.apache.kafka.clients.consumer.RangeAssignor"], [], [0])
    assert (made.policy, made.assignor) == ("eager", "range")
    assert Setup(policy=_known_policy(sticky)).policy == "sticky"


def test_compare_shows_who_cannot_answer(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(dict(UNEQUAL, lags={"orders": [5, 5]})))
    names = "constrained-sticky,lag-sticky"
    first, second = answer(capsys, str(path), "--compare", names)["compare"]
    assert "same topics" in first["error"]
    assert "error" not in second
    assert command(str(path), "--compare", names) == 0
    assert "do not" in capsys.readouterr().out
    arguments = (str(path), "--compare", names, "--option", "max_skew=1")
    assert len(answer(capsys, *arguments)["compare"]) == 2
    assert command(str(path), "--compare", names, "--option", "max_skw=1") == 2
    assert "did you mean max_skew?" in capsys.readouterr().err
    assert command(str(path), "--compare", "range,sticky", "--option", "x=1") == 2
    assert "they take none" in capsys.readouterr().err
    assert command(str(path), "--compare", "constrained-sticky") == 0


def test_dropped_claims_are_named_on_stderr_unless_quiet(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(snapshot({"t": 1}, ["C0"], owned={"C0": {"t": [0, 9], "u": [1]}})))
    assert command(str(path)) == 0
    assert "1 no-such-partition, 1 unknown-topic" in capsys.readouterr().err
    assert command(str(path), "-q") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--assignor", "stikcy"], 2, "did you mean sticky"),
        (["--compare", "sticky,rnge"], 2, "did you mean range"),
        (["--compare", " , "], 2, "expected names of assignors"),
        (["--option", "max_skew"], 2, "expected NAME=VALUE"),
        (["-a", "lag-sticky", "--option", "hystersis=1"], 2, "did you mean hysteresis?"),
        (["-a", "lag-sticky", "--option", "max_skew=-1"], 2, "expected an integer of 0 or more"),
        (["--format", "yaml"], 2, "yaml"),
    ],
)
def test_wrong_usage(
    group: str, capsys: Capture, arguments: list[str], code: int, text: str
) -> None:
    assert command(group, *arguments) == code
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        ("{", 3, "is not JSON"),
        pytest.param("[" * 100_000, 3, "is not JSON", id="deep"),
        pytest.param("9" * 5_000, 3, "too many digits", id="long"),
        ("\udc80", 3, "expected a JSON snapshot"),
        ("[]", 2, "expected an object"),
        ('{"partitions": {}}', 2, "members: missing"),
        ('{"partitions": {"t": 1, "t": 2}, "members": []}', 2, "'t' stands twice"),
        ('{"partitions": {"t": 1}, "members": [], "lags": {"t": [-1]}}', 2, "lags.t[0]"),
        ('{"partitions": {"t": 1}, "members": [], "lags": {"t": [0.5]}}', 2, "lags.t[0]"),
        ('{"partitions": {}, "members": [], "colour": 1}', 2, "colour"),
    ],
)
def test_bad_snapshots(tmp_path: Path, capsys: Capture, content: str, code: int, text: str) -> None:
    path = tmp_path / "group.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert command(str(path)) == code
    assert text in capsys.readouterr().err.replace("\n", " ")


def test_a_missing_file_and_an_infeasible_group(tmp_path: Path, capsys: Capture) -> None:
    assert command(str(tmp_path / "none.json")) == 3
    assert "No such file" in capsys.readouterr().err
    path = tmp_path / "group.json"
    path.write_text(json.dumps(UNEQUAL))
    assert command(str(path), "-a", "constrained-sticky") == 4
    assert "'clicks'" in capsys.readouterr().err


def test_help_names_every_assignor_and_shows_examples(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert command("--help") == 0
    out = capsys.readouterr().out
    assert "holdfast assign - --compare" in out
    assert all(name in out for name in ASSIGNORS)


OWN = """
import holdfast

def to_last(members, topics, claims):
    return {(t, p): max(members) for t, numbers in topics.items() for p in numbers}

def to_nobody(members, topics, claims):
    return {}

cooperative = holdfast.assignor("to-last", to_last, cooperative=True)
NOTHING = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user in the current folder, under a name that no other test imports."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


def test_a_function_of_the_user_is_an_assignor(
    group: str, capsys: Capture, own_module: str
) -> None:
    document = answer(capsys, group, "--assignor", f"{own_module}:to_last")
    assert document["assignor"] == "to_last"
    assert document["assignment"] == {"C0": {}, "C1": {"clicks": [0, 1], "orders": [0, 1, 2]}}
    document = answer(capsys, group, "--assignor", f"{own_module}:cooperative", "--all-rounds")
    assert (document["assignor"], document["rounds"]) == ("to-last", 2)
    asked = f"sticky,{own_module}:to_nobody,{own_module}:to_last"
    sticky, nobody, last = answer(capsys, group, "--compare", asked)["compare"]
    assert sticky["assignor"] == "sticky"
    assert nobody["error"].startswith("assignor to_nobody: gives clicks-0 to nobody")
    assert last["quality"]["loads"] == {"C0": 0, "C1": 5}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("to_nobody", "assignor to_nobody: gives clicks-0 to nobody"),
        ("absent", "has no attribute 'absent'"),
        ("NOTHING", "int has no name, modes"),
    ],
)
def test_what_the_user_names_and_is_no_assignor_exits_2(
    group: str, capsys: Capture, own_module: str, asked: str, words: str
) -> None:
    assert command(group, "--assignor", f"{own_module}:{asked}") == 2
    assert words in capsys.readouterr().err
