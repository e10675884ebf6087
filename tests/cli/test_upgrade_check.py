"""``holdfast upgrade-check``: a safe step, unsafe ones with their reasons, input that is none."""

from __future__ import annotations

import json

import pytest
from tests.cli.running import run


def checked(*arguments: object) -> tuple[int, dict]:
    done = run("upgrade-check", *arguments, "--format", "json")
    return done.code, json.loads(done.out)


def test_kip_726s_two_bounces_are_safe():
    for start, goal in (
        ("range", "cooperative-sticky,range"),
        ("cooperative-sticky,range", "cooperative-sticky"),
        ("org.apache.kafka.clients.consumer.RangeAssignor", "cooperative-sticky,range"),
    ):
        code, found = checked("--from", start, "--to", goal)
        assert (code, found["safe"]) == (0, True)
    notes = checked("--from", "cooperative-sticky,range", "--to", "cooperative-sticky")[1]
    assert {f["verdict"] for f in notes["findings"]} == {"note"}


@pytest.mark.parametrize(
    ("start", "goal", "client", "rule"),
    [
        ("range", "cooperative-sticky", "holdfast", "no-common-assignor"),
        ("cooperative-sticky", "range", "holdfast", "no-common-assignor"),
        ("range", "holdfast-deferred,range", "java", "unknown-to-client"),
        ("range", "cooperative-sticky,range", "confluent", "cannot-start"),
        ("range", "cooperative-sticky,range", "aiokafka", "client-too-old"),
    ],
)
def test_an_unsafe_step_says_why_and_what_to_do(start, goal, client, rule):
    code, found = checked("--from", start, "--to", goal, "--client", client)
    assert (code, found["safe"]) == (1, False)
    reason = next(f for f in found["findings"] if f["rule"] == rule)
    assert reason["verdict"] == "unsafe"
    assert reason["text"]
    assert reason["advice"]


@pytest.mark.parametrize("goal", ["holdfast-simple", "holdfast-deferred", "holdfast-incremental"])
def test_a_plan_leads_to_each_design_and_back(goal):
    for start, end in (("range", goal), (goal, "range")):
        done = run("upgrade-check", "--from", start, "--to", end, "--plan", "--format", "json")
        assert (done.code, json.loads(done.out)["safe"]) == (0, True)
        assert " -> " in done.err
        assert checked("--from", start, "--to", end)[0] == 1


def members(*rows: dict) -> str:
    return json.dumps({"members": rows})


def test_members_in_a_file_are_taken_one_by_one(tmp_path):
    file = tmp_path / "members.json"
    both = ["cooperative-sticky", "range"]
    file.write_text(
        members(
            {"id": "a", "assignors": ["range"], "next": both}, {"id": "b", "assignors": ["range"]}
        )
    )
    assert checked(file)[0] == 0
    old = {"id": "a", "assignors": ["range"], "next": both, "client": "java", "version": "2.3"}
    file.write_text(members(old))
    code, found = checked(file)
    assert code == 1
    assert found["findings"][0]["rule"] == "client-too-old"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "--from"),
        (("--from", "rnage", "--to", "range"), 2, "unknown assignor"),
        (("nowhere.json",), 3, "nowhere.json"),
    ],
)
def test_bad_options(arguments, code, words):
    done = run("upgrade-check", *arguments)
    assert (done.code, words in done.err.replace("\n", " ")) == (code, True), done.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"members": 3}',
        '{"members": [{"id": "a"}]}',
        '{"members": [{"assignors": ["range"], "client": "pascal"}]}',
        '{"members": [{"assignors": ["range"], "nxet": ["cooperative-sticky"]}]}',
        '{"members": [{"assignors": "range"}]}',
        '{"members": [{"assignors": [5]}]}',
        '{"members": [{"assignors": ["range"], "client": "java", "version": "two"}]}',
    ],
)
def test_a_file_that_is_no_list_of_members(tmp_path, text):
    file = tmp_path / "bad.json"
    file.write_text(text)
    done = run("upgrade-check", file)
    assert done.code == 3
    assert "not a list of members" in done.err
