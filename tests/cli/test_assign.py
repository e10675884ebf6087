"""``holdfast assign`` from the outside: what goes in, what comes out, and the exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.assignors.groups import snapshot
from tests.cli.running import run

from holdfast.cli.commands.replay import settings_from
from holdfast.cli.commands.simulate import _known_policy
from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.sim.scenarios import Setup

GROUP = snapshot(
    {"orders": 3, "clicks": 2}, ["C0", "C1"], owned={"C0": {"orders": [0, 1, 2], "clicks": [0]}}
)
UNEQUAL = snapshot({"orders": 2, "clicks": 2}, {"C0": ["orders"], "C1": ["orders", "clicks"]})


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any], str]:
    """Writes a snapshot to a file; its path."""

    def write(document: Any) -> str:
        path = tmp_path / "group.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def group(written: Callable[[Any], str]) -> str:
    return written(GROUP)


def printed(*arguments: str) -> str:
    done = run("assign", *arguments).passed()
    return done.out


def answer(*arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(printed(*arguments, "--format", "json"))
    return document


def test_json_is_the_stated_shape(group: str) -> None:
    document = answer(group, "--assignor", "sticky")
    assert list(document) == ["schema_version", "assignor", "assignment", "withheld", "quality"]
    assert document["schema_version"] == 1
    assert document["assignor"] == "sticky"
    assert document["assignment"]["C1"] == {"clicks": [1], "orders": [2]}
    assert document["withheld"] == {}
    quality = document["quality"]
    assert quality["balance_score"] == 1
    assert quality["loads"] == {"C0": 3, "C1": 2}
    assert (quality["kept"], quality["moved"], quality["optimal"]) == (3, 1, True)


def test_a_cooperative_round_names_what_it_withholds_and_for_whom(group: str) -> None:
    document = answer(group, "-a", "cooperative-sticky")
    assert document["withheld"] == {"orders-2": "C1"}
    assert document["assignment"]["C1"] == {"clicks": [1]}
    assert document["quality"]["withheld"] == 1


def test_all_rounds_follow_until_nothing_is_withheld(group: str) -> None:
    document = answer(group, "-a", "cooperative-sticky", "--all-rounds")
    assert document["withheld"] == {}
    assert document["rounds"] == 2
    assert document["assignment"]["C1"] == {"clicks": [1], "orders": [2]}
    assert (document["quality"]["kept"], document["quality"]["moved"]) == (3, 1)
    assert document["quality"]["optimal"] is True
    eager = answer(group, "--all-rounds")
    assert (eager["rounds"], eager["quality"]["moved"]) == (1, 1)


def test_a_dash_reads_stdin() -> None:
    done = run("assign", "-", "--format", "json", stdin=json.dumps(GROUP).encode())
    assert json.loads(done.out)["assignor"] == "sticky"


def test_options_reach_the_assignor(written: Callable[[Any], str]) -> None:
    path = written(snapshot({"t": 4}, ["C0", "C1"]))
    arguments = (path, "-a", "lag-sticky", "--option", 'weights={"C0": 3}')
    assert answer(*arguments)["quality"]["loads"] == {"C0": 3, "C1": 1}
    assert answer(path, "-a", "lag", "--option", "group-id=etl")["assignor"] == "lag"


def test_the_table_is_for_people(group: str) -> None:
    out = printed(group, "-a", "cooperative-sticky")
    for text in ("cooperative-sticky", "pending", "orders: 0-1", "orders-2", "waits for"):
        assert text in out
    assert "2 rounds" in printed(group, "-a", "cooperative-sticky", "--all-rounds")


def test_the_table_writes_runs_of_partitions_and_lag(written: Callable[[Any], str]) -> None:
    owned = {"C0": {"t": [0, 1, 3]}}
    one = snapshot({"t": 4}, ["C0"], owned=owned, lags={"t": [7, 7, 7, 7]})
    out = printed(written(one), "-a", "range")
    assert "t: 0-3" in out
    assert "28" in out
    two = snapshot({"t": 4}, ["C0", "C1"], owned=owned)
    assert "t: 0-1 3" in printed(written(two), "-a", "fairest-sticky")


def test_rows_for_programs(group: str, tmp_path: Path) -> None:
    lines = printed(group, "-a", "cooperative-sticky", "--format", "jsonl").splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["state"] for row in rows} == {"assigned", "withheld"}
    assert rows[-1] == {
        "assignor": "cooperative-sticky",
        "member_id": "C1",
        "topic": "orders",
        "partition": 2,
        "state": "withheld",
    }
    target = tmp_path / "out.csv"
    printed(group, "--format", "csv", "-o", str(target))
    assert target.read_text().splitlines()[0] == "assignor,member_id,topic,partition,state"
    assert len(target.read_text().splitlines()) == 6


def test_compare_shows_several_side_by_side(group: str) -> None:
    document = answer(group, "--compare", "range, sticky,sticky")
    assert [each["assignor"] for each in document["compare"]] == ["range", "sticky"]
    out = printed(group, "--compare", "range,sticky")
    assert "balance score" in out
    assert "needed moves" in out
    rows = printed(group, "--compare", "range,sticky", "--format", "csv").splitlines()
    assert len(rows) == 11


def test_javas_classes_are_assignors_too(group: str) -> None:
    sticky, ranges = (f"org.apache.kafka.clients.consumer.{n}Assignor" for n in ("Sticky", "Range"))
    assert answer(group, "--assignor", sticky) == answer(group, "--assignor", "sticky")
    document = answer(group, "--compare", f"{sticky},sticky,{ranges}")
    assert [each["assignor"] for each in document["compare"]] == ["sticky", "range"]
    (made,) = settings_from(["holdfast-simple"], [sticky], [0])
    assert made.assignor == "sticky"
    (made,) = settings_from(["org.apache.kafka.clients.consumer.RangeAssignor"], [], [0])
    assert (made.policy, made.assignor) == ("eager", "range")
    assert Setup(policy=_known_policy(sticky)).policy == "sticky"


def test_compare_shows_who_cannot_answer(written: Callable[[Any], str]) -> None:
    path = written(dict(UNEQUAL, lags={"orders": [5, 5]}))
    names = "constrained-sticky,lag-sticky"
    first, second = answer(path, "--compare", names)["compare"]
    assert "same topics" in first["error"]
    assert "error" not in second
    assert "do not" in printed(path, "--compare", names)
    assert len(answer(path, "--compare", names, "--option", "max_skew=1")["compare"]) == 2
    printed(path, "--compare", "constrained-sticky")


def test_dropped_claims_are_named_on_stderr_unless_quiet(written: Callable[[Any], str]) -> None:
    path = written(snapshot({"t": 1}, ["C0"], owned={"C0": {"t": [0, 9], "u": [1]}}))
    loud, quiet = run("assign", path), run("assign", path, "-q")
    assert "1 no-such-partition, 1 unknown-topic" in loud.err
    assert (loud.code, quiet.code, quiet.err) == (0, 0, "")


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        ("{", 3, "is not JSON"),
        pytest.param("[" * 100_000, 3, "is not JSON", id="deep"),
        pytest.param("9" * 5_000, 3, "too many digits", id="long"),
        ("\udc80", 3, "expected a JSON snapshot"),
        ("[]", 2, "expected an object"),
        ('{"partitions": {}}', 2, "members: missing"),
        ('{"partitions": {"t": 1, "t": 2}, "members": []}', 2, "'t' occurs twice"),
        ('{"partitions": {"t": 1}, "members": [], "lags": {"t": [-1]}}', 2, "lags.t[0]"),
        ('{"partitions": {"t": 1}, "members": [], "lags": {"t": [0.5]}}', 2, "lags.t[0]"),
        ('{"partitions": {}, "members": [], "colour": 1}', 2, "colour"),
    ],
)
def test_bad_snapshots(tmp_path: Path, content: str, code: int, text: str) -> None:
    path = tmp_path / "group.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    done = run("assign", path)
    assert done.code == code
    assert text in done.err.replace("\n", " ")


def test_an_infeasible_group_exits_4(written: Callable[[Any], str]) -> None:
    done = run("assign", written(UNEQUAL), "-a", "constrained-sticky")
    assert (done.code, "'clicks'" in done.err) == (4, True), done.err


def test_help_names_every_assignor_and_shows_examples() -> None:
    out = run("assign", "--help", width=300).out
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


def test_a_function_of_the_user_is_an_assignor(group: str, own_module: str) -> None:
    document = answer(group, "--assignor", f"{own_module}:to_last")
    assert document["assignor"] == "to_last"
    assert document["assignment"] == {"C0": {}, "C1": {"clicks": [0, 1], "orders": [0, 1, 2]}}
    document = answer(group, "--assignor", f"{own_module}:cooperative", "--all-rounds")
    assert (document["assignor"], document["rounds"]) == ("to-last", 2)
    requested = f"sticky,{own_module}:to_nobody,{own_module}:to_last"
    sticky, nobody, last = answer(group, "--compare", requested)["compare"]
    assert sticky["assignor"] == "sticky"
    assert nobody["error"].startswith("assignor to_nobody: gives clicks-0 to nobody")
    assert last["quality"]["loads"] == {"C0": 0, "C1": 5}


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        ("to_nobody", "assignor to_nobody: gives clicks-0 to nobody"),
        ("absent", "has no attribute 'absent'"),
        ("NOTHING", "int has no name, rebalance_protocols"),
    ],
)
def test_what_the_user_names_and_is_no_assignor_exits_2(
    group: str, own_module: str, requested: str, words: str
) -> None:
    done = run("assign", group, "--assignor", f"{own_module}:{requested}")
    assert (done.code, words in done.err) == (2, True), done.err
