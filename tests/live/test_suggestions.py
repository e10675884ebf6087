"""Suggested commands that need a broker: holdfast's, and those of Kafka's tools, each to exit 0."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest
from tests.cli.running import run
from tests.cli.suggested import fleet_of, parse, words_of
from tests.cli.test_suggestions import CASES_OF_ERRORS
from tests.live.clients import CLIENTS
from tests.live.kinds import Members, ask, tables_of
from tests.live.processes import create_topic
from tests.live.small_group import small_group
from tests.live.waiting import until
from tests.pipeline.kinds import printed
from tests.report.now import answers, seen
from tests.report.test_findings import CASES, OF_A_FOLDER, OF_NOW
from tests.suites import further

from holdfast.cluster.snapshot import JOINING
from holdfast.core.command_lines import FOLDER, SERVERS, GivenSource
from holdfast.core.kinds import CLASSIC, KINDS, GroupKind
from holdfast.fleet.analysis.findings.finding import RULES, Finding, to_cooperative
from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.analysis.times import NOT_UPDATED, Age, window_end_ms
from holdfast.fleet.tables.reading import read_tables

pytestmark = pytest.mark.broker
OLD = Age(seconds=1e6, is_updated=True)
GROUP = "it's $HOME of \\group\\ *[1]"
TOOLS = {
    "kafka-consumer-groups.sh": "consumer",
    "kafka-share-groups.sh": "share",
    "kafka-streams-groups.sh": "streams",
    "kafka-configs.sh": "configs",
}


def found(group: str, topic: str, kind: GroupKind, source: GivenSource) -> list[Finding]:
    """A finding of every code, about one group of a cluster."""
    findings = []
    for code, rule in RULES.items():
        script = code if code in CASES else next(iter(CASES))
        age = OLD if code in OF_A_FOLDER else NOT_UPDATED
        waits = seen(group, JOINING, ["a-1"])
        live = answers((0, [waits]), (20, [waits])).of(group) if code in OF_NOW else None
        tables = read_tables(fleet_of({script: group}, topic))
        end_ms = window_end_ms(tables)
        history = read_group(tables, group, end_ms, live=live, source=source, age=age)
        object.__setattr__(history, "kind", kind)
        findings += rule.find(history)
    return findings


def asked_of_kafka(bootstrap: str, findings: list[Finding]) -> set[str]:
    """Run every command of Kafka's tools; what they printed."""
    lines = {f.command for f in findings if not f.command.startswith("holdfast ")}
    said = set()
    for line in sorted(lines):
        tool, *words = words_of(line)
        at = words.index("--bootstrap-server")
        assert words[at + 1] == bootstrap
        text = ask(TOOLS[tool], bootstrap, *words[:at], *words[at + 2 :])
        assert "rror" not in text.splitlines()[0], (line, text)
        said.add(tool)
    return said


@pytest.mark.every
def test_tools_of_kafka_take_what_is_suggested(broker, tmp_path):
    bootstrap, given = broker.bootstrap, GivenSource(servers=broker.bootstrap)
    with small_group(bootstrap, GROUP) as (topic, _):
        findings = found(GROUP, topic, CLASSIC, given)
        assert (
            {f.code for f in findings}
            == RULES.keys() - {"HF133"}
            == {*CASES, *OF_A_FOLDER, *OF_NOW}
        )
        assert asked_of_kafka(bootstrap, findings) == {
            "kafka-consumer-groups.sh",
            "kafka-configs.sh",
        }


@pytest.mark.parametrize(("kind", "tool"), further([("share", "share"), ("streams", "streams")]))
@pytest.mark.every
def test_tools_of_other_kinds_take_what_is_suggested(broker, tmp_path, kind, tool):
    bootstrap, topic = broker.bootstrap, create_topic(broker.bootstrap, 1)
    group = f"{kind}-of-{topic}"
    own = ("--describe", "--group", group, "--members")
    with Members(bootstrap, tmp_path) as crew:
        if kind == "share":
            crew.share("a", group, topic)
        else:
            crew.streams("a", group, topic, group_protocol="streams")
        until(lambda: printed(ask(tool, bootstrap, *own)), f"{group} has a member")
        (row,) = (row for row in KINDS if row.name == kind)
        findings = found(group, topic, row, GivenSource(servers=bootstrap))
        assert f"kafka-{kind}-groups.sh" in asked_of_kafka(bootstrap, findings)


@pytest.mark.spark
def test_our_commands_run_on_the_cluster_that_was_given(broker, spark, tmp_path):
    bootstrap = broker.bootstrap
    with small_group(bootstrap, GROUP) as (topic, _):
        done = run("doctor", "-b", bootstrap, "--group", "it's*", "--format", "json")
        (group,) = json.loads(done.out)["groups"]
        assert group["group"] == GROUP
        findings = found(GROUP, topic, CLASSIC, GivenSource(servers=bootstrap))
        commands = {f.command for f in findings if f" -b {bootstrap} " in f.command}
        commands |= {f["command"] for f in group["findings"] if f["command"].startswith("hold")}
        unknown = run("doctor", "-b", bootstrap, "--group", "!")
        assert unknown.code == 3 and "no group '!' here; known: " in unknown.err
        assert "known: none" not in unknown.err
        of_each = {words[0]: words for words in map(parse, sorted(commands))}
        assert of_each.keys() == {"history", "lag", "plan", "replay"}
        for words in of_each.values():
            ended = run(*words).passed()
            assert "no record of a group" not in ended.err


def doctored(folder) -> list[dict[str, str]]:
    """What the doctor finds in tables about ``GROUP``."""
    done = run("doctor", "--input", folder, "--group", "it's*", "--format", "json")
    (group,) = json.loads(done.out)["groups"]
    return group["findings"]


@pytest.mark.spark
def test_what_a_dead_watch_is_started_with_goes_on_until_ctrl_c(
    broker, spark, tmp_path, monkeypatch, default_signals
):
    folder, two_days_ns = tmp_path / "it's kept", 2 * 86_400 * 10**9
    with small_group(broker.bootstrap, GROUP):
        assert run("watch", "-b", broker.bootstrap, "-o", folder).code == 0
    assert "HF123" not in {f["code"] for f in doctored(folder)}
    with monkeypatch.context() as patch:
        real = time.time_ns
        patch.setattr(time, "time_ns", lambda: real() + two_days_ns)
        (line,) = {f["command"] for f in doctored(folder) if f["code"] == "HF123"}
    given = {SERVERS: broker.bootstrap}
    words = [given.get(word, word) for word in parse(line)]
    assert str(folder) in words
    before = read_tables(folder).newest_notes()

    def end() -> None:
        try:
            until(
                lambda: read_tables(folder).newest_notes()["taken_at"] > before["taken_at"],
                "log ends are read anew",
            )
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    ending = threading.Thread(target=end)
    ending.start()
    ended = run(*words)
    ending.join()
    assert ended.code == 130, ended.err  # as of every command that runs until Ctrl-C
    after = read_tables(folder).newest_notes()
    assert after["query"] == before["query"]
    assert (before["every_seconds"], after["every_seconds"]) == (None, 30)


@pytest.mark.spark
def test_commands_of_errors_run_on_a_cluster(broker, spark, tmp_path, monkeypatch):
    lines = {case.suggested for case in CASES_OF_ERRORS.values() if SERVERS in case.suggested}
    assert {line.split()[1] for line in lines} == {"dump", "history", "watch"}
    (tmp_path / "a b.log").write_text("")
    monkeypatch.chdir(tmp_path)
    for number, line in enumerate(sorted(lines)):
        folder = str(tmp_path / f"made {number}")
        given = {SERVERS: broker.bootstrap, FOLDER: folder, "THERE": folder}
        ended = run(*(given.get(word, word) for word in parse(line)))
        assert ended.code == 0, (line, ended.err)


OURS_IS = {"confluent": "holdfast"}
"""A drop-in whose ids are not those of its original: both take every plan."""


def ran(tables, group: str) -> str:
    """The plan that a finding suggests for a group under ``range``."""
    words = parse(to_cooperative(read_group(tables, group), ["range"]))
    return words[words.index("--client") + 1]


@pytest.mark.parametrize("name", further(sorted(CLIENTS)))
def test_the_client_of_real_members_is_reported_by_their_ids(broker, tmp_path, name):
    """Those of the original, also where a person chose the id, if its library sends more."""
    bootstrap, topic = broker.bootstrap, create_topic(broker.bootstrap, 1)
    theirs = {"kafka": "kafka-python"}.get(name, name)
    expected = {
        f"{name}-{topic}": (theirs, {}, True),
        f"ours-{name}-{topic}": (OURS_IS.get(name, theirs), {}, False),
    }
    if name == "confluent":
        expected[f"named-{topic}"] = (theirs, {"client.id": "payments"}, True)
    if name == "consumer":
        expected = {f"ours-{topic}": ("holdfast", {}, False)}
    running = []
    try:
        for group, (_, more, is_original) in expected.items():
            config = {"bootstrap.servers": bootstrap, "group.id": group, **more}
            running.append(CLIENTS[name](topic, config, is_original=is_original))
            running[-1].subscribe([topic])
        for client in running:
            until(lambda one=client: one.poll() or one.owns(), lambda one=client: one.seen())
        tables = tables_of(bootstrap, tmp_path, *expected)
        assert {group: ran(tables, group) for group in expected} == {
            group: client for group, (client, *_) in expected.items()
        }
    finally:
        for client in running:
            client.close()


@pytest.mark.every
def test_the_client_of_a_java_member_is_reported_by_its_id(broker, tmp_path):
    bootstrap, topic = broker.bootstrap, create_topic(broker.bootstrap, 1)
    group = f"java-{topic}"
    with Members(bootstrap, tmp_path) as crew:
        crew.consumer("a", group, topic, group_protocol="classic", client_id="")  # its default
        until(
            lambda: printed(ask("consumer", bootstrap, "--describe", "--group", group)),
            f"{group} has a member",
        )
        assert ran(tables_of(bootstrap, tmp_path, group), group) == "java"
