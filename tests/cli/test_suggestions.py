"""Every command line that the doctor, an error or a note suggests is provoked, parsed, and run.

A call that makes such a line is found by the syntax trees: a new one fails here until a case below
provokes it. What needs a broker runs in ``tests/live/test_suggestions.py``.
"""

from __future__ import annotations

import ast
import glob
import json
import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.running import Done, run, write_tables
from tests.cli.suggested import fleet_of, listening, parse, sites, words_of
from tests.pipeline.kinds import kind, tables_of
from tests.report import now
from tests.report.fleet import START_MS, rolling_bounce, tables
from tests.report.test_findings import CASES, MINUTES, bounce, nameless, of_protocol
from tests.report.test_turnover import deployment, found_in
from tests.source import TREES, trees

from holdfast.cli.app import COMMANDS
from holdfast.cluster.snapshot import JOINING
from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.command_lines import CLIENT, DUMP, FOLDER, SERVERS, GivenSource, holdfast_line
from holdfast.core.kinds import CLASSIC, KINDS, GroupKind
from holdfast.core.machine import codes
from holdfast.fleet.analysis.findings import examination
from holdfast.fleet.analysis.findings.finding import (
    RULES,
    Finding,
    Symptom,
    describe,
    to_cooperative,
)
from holdfast.fleet.analysis.group.group_history import GroupHistory, read_group
from holdfast.fleet.analysis.times import Age
from holdfast.fleet.tables.reading import read_tables

pytestmark = TREES

ODD = ("it's", "a b", "-x", "--group", "$HOME", "DOMAIN\\etl", "a*[1]", "\u202eltr", "=1+1", "é")
NAMES = {code: f"{ODD[i % len(ODD)]}{i}" for i, code in enumerate(CASES)}
CAPTURED = ("share", "streams", "streams_classic", "connect", "migrated", "worker")
TOOLS = {
    "kafka-consumer-groups.sh",
    "kafka-share-groups.sh",
    "kafka-streams-groups.sh",
    "kafka-configs.sh",
}


def of_tables(folder: Path) -> list[str]:
    """Commands of every finding, by the tables of odd names."""
    done = run("doctor", "--input", folder, "--format", "json")
    document = json.loads(done.out)
    return [f["command"] for group in document["groups"] for f in group["findings"]]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tables with a group for each code, in a folder with an odd name too."""
    folder = tmp_path_factory.mktemp("it's a fleet")
    return write_tables(fleet_of(NAMES), folder)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tables of a captured group of every kind."""
    made = tables_of(CAPTURED, tmp_path_factory.mktemp("kinds"))
    return {name: tables.root for name, tables in made.items()}


kept = cache(read_tables)
"""The tables of a folder that stays as it is, read once."""


def group_of(code: str, fleet: Path) -> GroupHistory:
    """History of the group of a code."""
    return read_group(kept(fleet), NAMES[code], source=GivenSource(path=str(fleet)))


def as_kind(fleet: Path, code: str, of: GroupKind) -> Any:
    """The same, as if the group were of another kind."""
    history = group_of(code, fleet)
    object.__setattr__(history, "kind", of)
    return history


def no_rows(path: Path) -> None:
    path.write_text("[1, 2]")


def watched_beside_a_dump(root: Path) -> None:
    """As a stream leaves its folder, and a dump in the folder named ``...-dump``."""
    a_dump(root.with_name(f"{root.name}-dump"))
    write_tables({}, root, query="q", state={})


def history_of(root: Path) -> None:
    """A folder with tables that no stream keeps."""
    write_tables({}, root)


def a_dump(root: Path) -> Path:
    """A captured dump: the suggested command reads it."""
    return kind(CAPTURED[0]).write_dump(root)


@dataclass(frozen=True)
class Case:
    """An error or a note that suggests a command: how it comes about, and its exit code."""

    arguments: tuple[Any, ...] = ()
    code: int = 3
    suggested: str = ""
    make: Any = field(default=None)

    def provoke(self, tmp_path: Path) -> Done:
        """Run what ends in the error."""
        if self.make is not None:
            self.make(tmp_path / "there")
        return run(*(str(a).replace("THERE", str(tmp_path / "there")) for a in self.arguments))


CASES_OF_ERRORS = {
    "no folder": Case(("doctor", "--input", "THERE"), 3, "holdfast history -b HOST:PORT -o THERE"),
    "no folder to serve": Case(
        ("serve", "--input", "THERE"), 3, "holdfast history -b HOST:PORT -o THERE"
    ),
    "no tables": Case(
        ("doctor", "--input", "THERE"), 3, "holdfast history -b HOST:PORT -o DIR", Path.mkdir
    ),
    "no dump": Case(
        ("merge", "THERE", "THERE", "-o", "made"),
        3,
        "holdfast dump -b HOST:PORT -o DIR",
        Path.mkdir,
    ),
    "logs beside tables": Case(
        ("doctor", "--input", "THERE", "--broker-log", "a b.log"),
        2,
        "holdfast history -b HOST:PORT --broker-log 'a b.log' -o DIR",
        Path.mkdir,
    ),
    "a folder that a stream keeps": Case(
        ("history", "--input", "THERE-dump", "-o", "THERE"),
        2,
        "holdfast watch -b HOST:PORT -o THERE",
        watched_beside_a_dump,
    ),
    "a folder of a history": Case(
        ("watch", "-b", "127.0.0.1:1", "-o", "THERE"),
        3,
        "holdfast watch -b HOST:PORT -o DIR",
        history_of,
    ),
    "nothing to serve": Case(("serve",), 2, "holdfast watch -b HOST:PORT -o DIR"),
    "a dump to serve": Case(
        ("serve", "--input", "THERE"), 2, "holdfast history --input THERE -o DIR", a_dump
    ),
    "a code that is none": Case(("explain", "zzz"), 2, "holdfast explain"),
    "a command that is none": Case(("config", "show", "--command", "zzz"), 2, "holdfast --help"),
    "no list of members": Case(
        ("upgrade-check", "THERE"), 3, "holdfast upgrade-check --help", no_rows
    ),
    "no rows of replay": Case(
        ("report", "--replay", "THERE", "--input", "x"),
        3,
        "holdfast replay --input DUMP --format json -o THERE",
        no_rows,
    ),
}


@pytest.mark.parametrize("name", CASES_OF_ERRORS)
def test_an_error_suggests_a_command_that_runs(name: str, tmp_path: Path, fleet: Path) -> None:
    case = CASES_OF_ERRORS[name]
    with listening() as made:
        done = case.provoke(tmp_path)
    assert done.code == case.code, done.err
    (line,) = set(made.lines)
    assert line == case.suggested.replace("THERE", str(tmp_path / "there"))
    assert line in " ".join(done.err.replace("\n", " ").split())
    words = parse(line)
    starts_spark = name == "a dump to serve"  # the tutorial of a fleet runs the same line
    if SERVERS not in words and not starts_spark:
        given = {DUMP: str(fleet), FOLDER: str(tmp_path / "made")}
        assert run(*(given.get(word, word) for word in words)).code == 0


@pytest.mark.parametrize("code", CASES)
def test_a_finding_suggests_a_command_that_reads_the_given_source(code: str, fleet: Path) -> None:
    done = run(
        "doctor", "--input", fleet, f"--group={glob.escape(NAMES[code])}", "--format", "json"
    )
    (group,) = json.loads(done.out)["groups"]
    commands = {f["command"] for f in group["findings"]}
    assert code in {f["code"] for f in group["findings"]}
    for command in commands:
        words = words_of(command)
        if words[0] != "holdfast":
            assert words[0] in TOOLS
            continue
        words = parse(command)
        assert "DUMP" not in words
        reads = words[0] not in ("upgrade-check", "simulate")
        assert (str(fleet) in words) is reads
        name = glob.escape(NAMES[code])
        assert (name in words or f"--group={name}" in words) is reads
        run(*chosen(words)).passed()


def chosen(words: list[str]) -> list[str]:
    """A command line whose reader has chosen a client; ``test_upgrade_steps.py`` tries each."""
    return [word.split("|")[0] for word in words]


@pytest.mark.parametrize("name", CAPTURED)
def test_a_finding_about_any_kind_of_group(name: str, kinds: dict[str, Path]) -> None:
    for command in of_tables(kinds[name]):
        words = words_of(command)
        assert words[0] in {"holdfast", *TOOLS}
        if words[0] == "holdfast":
            assert run(*chosen(parse(command))).code == 0


def findings_of_every_kind(fleet: Path) -> Iterator[Finding]:
    """What each rule finds in its group, as if the group were of another kind."""
    for of in (row for row in KINDS if not row.takes_assignors):
        for code in CASES:
            yield from RULES[code].find(as_kind(fleet, code, of))


def test_what_is_suggested_for_a_kind_that_no_assignor_serves(fleet: Path) -> None:
    run_before = set()
    for finding in findings_of_every_kind(fleet):
        words = words_of(finding.command)
        assert words[0] in {"holdfast", *TOOLS}
        assert not {"--assignor", "--policy"}.intersection(words), finding
        if words[0] == "holdfast" and finding.command not in run_before:
            run_before.add(finding.command)
            assert run(*parse(finding.command)).code == 0


@pytest.mark.parametrize("table", ["rebalances", "members", "assignments", "anomalies", "lag"])
def test_tables_are_printed_as_they_are(table: str, fleet: Path) -> None:
    done = run("history", "--input", fleet, "--table", table, "--format", "json")
    rows = done.rows()
    assert len(rows) == read_tables(fleet).table(table).num_rows
    if table == "lag":
        told = run("lag", "--input", fleet, "--format", "json").rows()
        assert sorted(told, key=str) == sorted(rows, key=str)
        known = [row["lag"] for row in told if row["lag"] is not None]
        assert known == sorted(known, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("history", "-o", "x"), "-o is for the tables of a dump or a cluster"),
        (("lag", "-o", "x"), "-o is for the tables of a dump or a cluster"),
        (("lag", "--auto-offset-reset", "earliest"), "omit --auto-offset-reset"),
        (("history", "--broker-log", "x"), "whose causes are settled"),
        (("history", "--group", "nobody"), "no group 'nobody' in these tables"),
    ],
)
def test_what_tables_cannot_show_any_more(
    arguments: tuple[str, ...], words: str, fleet: Path
) -> None:
    done = run(*arguments, "--input", fleet)
    assert done.code == 2
    assert words in " ".join(done.err.split())


def test_the_way_to_cooperative_from_whatever_a_group_may_have_run(fleet: Path) -> None:
    history = group_of("HF110", fleet)
    names = [*ASSIGNORS, "stream", "uniform", "compatible", "my,own 'name'"]
    pairs = [pair for pair in permutations(sorted(names), 2) if "cooperative-sticky" in pair]
    for seen in [*permutations(names, 1), *pairs]:
        words = parse(to_cooperative(history, seen))
        if words[0] == "upgrade-check":
            at = words.index("--client") + 1
            for client in words[at].split("|"):
                done = run(*words[:at], client, *words[at + 1 :])
                assert done.code == 0, (seen, done.err)


def test_a_cluster_that_was_given_stands_in_every_command(fleet: Path) -> None:
    given = GivenSource(servers="kafka-1:9092,kafka-2:9092", command_config="my client.properties")
    tables = read_tables(fleet)
    for code in CASES:
        for finding in RULES[code].find(read_group(tables, NAMES[code], source=given)):
            words = words_of(finding.command)
            if words[1] in ("upgrade-check", "simulate"):
                continue
            assert {"kafka-1:9092,kafka-2:9092", "my client.properties"} <= set(words)
            assert not {"DUMP", SERVERS, "--input"}.intersection(words)
            if words[0] == "holdfast":
                parse(finding.command)


def test_a_word_that_looks_like_an_option_keeps_its_position() -> None:
    history: Any = SimpleNamespace(kind=CLASSIC, name="--all-groups", source=GivenSource())
    assert "--group=--all-groups" in words_of(describe(history))
    assert holdfast_line("lag", "--group", "it's") == "holdfast lag --group 'it'\"'\"'s'"


def thrown_out(root: Path) -> list[Finding]:
    """A member that was silent when its group lost it."""
    script = rolling_bounce("slow")
    script.lag(dict.fromkeys(script.owners, 500))
    for row in script.rows["rebalances"]:
        row["silent_seconds"] = 300.0 if row["n_left"] else None
    folder = write_tables(tables(script), root)
    history = read_group(read_tables(folder), "slow", source=GivenSource(path=str(folder)))
    return [f for f in RULES["HF105"].find(history) if "probably for exceeding" in f.text]


def test_what_is_suggested_for_a_member_that_was_thrown_out(tmp_path: Path) -> None:
    found = thrown_out(tmp_path)
    assert found
    for finding in found:
        run(*parse(finding.command)).passed()


def without_members(root: Path) -> list[Finding]:
    """Groups that no record names a member of: nobody commits any more, or an hour behind."""
    old = {"lag_seconds": 4_000.0, "lag_seconds_basis": "record"}
    found = []
    for name, script in (
        ("silent", nameless({0: 7_200, 1: 7_200})),
        ("slow", nameless({0: 60, 1: 60}, **old)),
    ):
        folder = write_tables(tables(script), root / name)
        end_ms = START_MS + 20 * MINUTES
        source = GivenSource(path=str(folder))
        history = read_group(read_tables(folder), "g", end_ms, source=source)
        for code in ("HF115", "HF126"):
            found += RULES[code].find(history)
    return found


def test_what_is_suggested_for_a_group_that_no_record_names_a_member_of(tmp_path: Path) -> None:
    silent, slow = without_members(tmp_path)
    assert words_of(silent.command)[0] == "kafka-consumer-groups.sh"
    assert run(*parse(slow.command)).code == 0


def restarted_eagerly() -> list[Finding]:
    """Members of an eager group were restarted."""
    script = of_protocol(bounce(away_s=12, visits=True), "range")
    history = read_group(read_tables(tables(script)), "g", START_MS + 20 * MINUTES)
    return [f for code in ("HF102", "HF111") for f in RULES[code].find(history)]


def test_an_eager_group_whose_members_restart_is_shown_the_way_to_cooperative() -> None:
    found = restarted_eagerly()
    assert len(found) == 2
    for finding in found:
        assert run(*chosen(parse(finding.command))).code == 0


def raises(history: GroupHistory) -> Iterator[Symptom]:
    """A rule with a defect."""
    raise ZeroDivisionError


def test_every_call_that_suggests_a_command_is_among_the_cases(
    fleet: Path, kinds: dict[str, Path], tmp_path: Path
) -> None:
    with listening() as made:
        of_tables(fleet)
        for folder in kinds.values():
            of_tables(folder)
        for number, case in enumerate(CASES_OF_ERRORS.values()):
            (tmp_path / str(number)).mkdir()
            case.provoke(tmp_path / str(number))
        list(findings_of_every_kind(fleet))
        list(
            RULES["HF123"].find(
                replace(group_of("HF101", fleet), age=Age(seconds=1e6, is_updated=True))
            )
        )
        history = group_of("HF101", fleet)
        waits = now.seen(history.name, JOINING, ["a-1"])
        live = now.answers((0, [waits]), (20, [waits])).of(history.name)
        list(RULES["HF128"].find(replace(history, live=live)))
        (failed,) = examination._find(replace(RULES["HF101"], look=raises), history)
        assert failed.code == "HF133"
        to_cooperative(as_kind(fleet, "HF110", CLASSIC), ["cooperative-sticky"])
        read_reads(tmp_path / "reads")
        thrown_out(tmp_path / "out")
        without_members(tmp_path / "without")
        restarted_eagerly()
        assert found_in(deployment())[0].code == "HF102"
        runpy.run_path(codes.__file__, run_name=codes.__name__)
    made_here = sites()
    assert made_here
    assert [site for site in sorted(made_here) if not made.passed(site)] == []


def test_a_refused_member_is_shown_a_command_that_runs() -> None:
    advice = codes.FATAL[codes.ErrorCode.INCONSISTENT_GROUP_PROTOCOL].advice
    words = parse(advice.split("`")[1])
    given = {"THEIRS": "range", "YOURS": "cooperative-sticky", CLIENT: "holdfast"}
    assert run(*(given.get(word, word) for word in words)).code == 0


def read_reads(tmp_path: Path) -> None:
    """Errors of the library that no command reaches first."""
    with pytest.raises(Exception, match="no such folder"):
        read_tables(tmp_path / "nowhere")


def test_no_text_holds_a_command_line_of_its_own() -> None:
    """Outside of help, examples and docstrings each command line comes from one place."""
    names = "|".join(name.replace("_", "-") for name in COMMANDS)
    pattern = re.compile(rf"\bholdfast (?:{names}|--?\w+)\b|\bkafka-[\w-]+\.sh .*--")
    found = [
        f"{file}:{line}: {text[:60]}"
        for file, tree in trees().items()
        for line, text in texts(tree)
        if pattern.search(text)
    ]
    assert found == []
    assert pattern.search("holdfast lag") and pattern.search("kafka-configs.sh --describe")


def texts(tree: ast.Module) -> list[tuple[int, str]]:
    """Texts of a module that document neither the code nor the command line: (line, text)."""
    documentation: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()) | ast.keyword(arg="help"):
                documentation.append(node.value)
            case ast.Assign(targets=[ast.Name(id=name)]) if name in DOCUMENTATION:
                documentation.append(node.value)
    known = {id(part) for whole in documentation for part in ast.walk(whole)}
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in known
    ]


DOCUMENTATION = ("EXAMPLES", "_INTRODUCTION")
"""Names of texts that are documentation: examples of ``--help``, and the head of a page."""
