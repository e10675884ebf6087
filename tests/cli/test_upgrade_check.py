"""``holdfast upgrade-check``: a safe step, unsafe ones with their reasons, input that is none."""

from __future__ import annotations

import json

import pytest
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from tests.cli.running import run

from holdfast.members.clients.kafka.assignors import assignor


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
        told = run("upgrade-check", "--from", start, "--to", end, "--plan").out
        assert "bounce 2, after: holdfast: partition.assignment.strategy=" in told
        assert checked("--from", start, "--to", end)[0] == 1


def test_the_plan_and_its_verdict_are_on_stdout_in_every_format(tmp_path):
    way = ("upgrade-check", "--from", "range", "--to", "cooperative-sticky", "--plan")
    for fmt in ("table", "jsonl", "csv"):
        done = run(*way, "--format", fmt)
        assert (done.code, done.err) == (0, "")
        assert "bounce 2, after" in done.out and "mixed-modes" in done.out
        run(*way, "--format", fmt, "-o", tmp_path / fmt)
        assert (tmp_path / fmt).read_text() == done.out
    assert "\nsafe\n" in run(*way).out
    assert run(*way[:-1]).out.startswith("unsafe\nunsafe no-common-assignor: ")


@pytest.fixture
def listed(tmp_path):
    """Writes a list of members to a file; its path."""

    def write(*rows: dict):
        file = tmp_path / "members.json"
        file.write_text(json.dumps({"members": rows}))
        return file

    return write


def test_members_in_a_file_are_taken_one_by_one(listed):
    both = ["cooperative-sticky", "range"]
    file = listed(
        {"id": "a", "assignors": ["range"], "next": both}, {"id": "b", "assignors": ["range"]}
    )
    assert checked(file)[0] == 0
    old = {"id": "a", "assignors": ["range"], "next": both, "client": "java", "version": "2.3"}
    file = listed(old)
    code, found = checked(file)
    assert code == 1
    assert found["findings"][0]["rule"] == "client-too-old"


def planned(file, *arguments: str) -> dict:
    code, found = checked(file, "--plan", *arguments)
    assert (code, found["safe"]) == (0, True)
    return {
        name: [step["setting"] for step in way["steps"]]
        for way in found["bounces"]
        for name in way["members"]
    }


def test_the_goal_of_the_command_line_is_that_of_members_without_one(listed):
    file = listed(*({"id": i, "assignors": ["range"]} for i in "abcd"))
    assert checked(file)[0] == 0
    assert checked(file, "--to", "cooperative-sticky")[0] == 1
    assert checked(file, "--to", "cooperative-sticky,range")[0] == 0
    bounces = planned(file, "--to", "cooperative-sticky")
    assert bounces.keys() == {*"abcd"}
    assert all(len(steps) == 2 for steps in bounces.values())
    done = run("upgrade-check", file, "--from", "sticky", "--to", "cooperative-sticky")
    assert (done.code, "--from" in done.err) == (2, True)


def test_a_plan_names_the_bounces_of_every_client(listed):
    java = "org.apache.kafka.clients.consumer."
    both = f"{java}CooperativeStickyAssignor,{java}RangeAssignor"
    file = listed(
        {"id": "a", "assignors": ["range"], "next": ["range"]},
        {"id": "b", "assignors": ["range"], "client": "kafka-python"},
        {"id": "c", "assignors": ["range"], "client": "java", "next": both.split(",")},
    )
    # a stays with range, and b leaves it.
    assert checked(file, "--to", "cooperative-sticky", "--plan")[0] == 1
    file = listed(
        {"id": "a", "assignors": ["range", "cooperative-sticky"], "next": ["range"]},
        {"id": "c", "assignors": ["range"], "client": "java", "next": both.split(",")},
        {"id": "d", "assignors": ["range"], "client": "java", "next": ["range"]},
    )
    assert planned(file) == {
        "a": ["partition.assignment.strategy=range"],
        "c": [f"partition.assignment.strategy={both}"],
        "d": [],
    }
    done = run("upgrade-check", file, "--plan")
    assert f"bounce 1 of c, before: java: partition.assignment.strategy={java}Range" in done.out
    assert f"bounce 1 of c, after: java: partition.assignment.strategy={both}" in done.out
    assert "bounces of d: none needed" in done.out


def test_kafka_python_takes_the_first_bounce_with_holdfasts_assignors():
    way = "--from", "range", "--to", "cooperative-sticky", "--client", "kafka-python"
    assert checked(*way)[0] == 1
    code, found = checked(*way, "--plan")
    assert code == 0
    (all_members,) = found["bounces"]
    assert [step["client"] for step in all_members["steps"]] == [
        "kafka-python-holdfast",
        "kafka-python",
    ]
    first, last = (step["setting"] for step in all_members["steps"])
    made = eval(first.partition("=")[2], {"assignor": assignor})
    common = set.intersection(*(set(one.supported_protocols()) for one in made))
    assert common == {RebalanceProtocol.EAGER}  # kafka-python refuses a list without a common one
    assert last == "partition_assignment_strategy=[CooperativeStickyAssignor]"


def test_a_member_may_change_more_than_its_assignors_in_one_bounce(listed):
    """KIP-726: the first bounce exchanges the byte code and the list."""
    both = {"assignors": ["cooperative-sticky", "range"]}
    row = {"id": "a", "assignors": ["range"], "client": "java", "version": "2.3"}
    file = listed(row | {"next": both})
    assert checked(file)[1]["findings"][0]["rule"] == "client-too-old"
    file = listed(row | {"next": both | {"version": "2.4"}})
    assert checked(file)[0] == 0
    plain = {"id": "b", "assignors": ["range"], "client": "kafka-python"}
    file = listed(plain | {"next": both})
    assert checked(file)[0] == 1
    file = listed(plain | {"next": both | {"client": "kafka-python-holdfast"}})
    assert checked(file)[0] == 0


def test_a_member_without_a_list_has_its_clients_default(listed):
    (ways,) = checked("--client", "confluent", "--to", "holdfast-deferred", "--plan")[1]["bounces"]
    assert ways["from"]["assignors"] == ["range", "roundrobin"]
    assert [step["client"] for step in ways["steps"]] == ["holdfast.confluent"] * 2
    file = listed({"id": "a", "client": "java", "version": "2.2"})
    assert checked(file, "--to", "cooperative-sticky")[0] == 1
    told = run("upgrade-check", file, "--to", "cooperative-sticky", "--plan").out
    assert "bounce 1, before: java 2.2: partition.assignment.strategy=" in told
    assert "bounce 2, after: java 2.4: partition.assignment.strategy=" in told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"members": 3}',
        '{"members": [{"assignors": ["range"], "client": "pascal"}]}',
        '{"members": [{"assignors": ["range"], "nxet": ["cooperative-sticky"]}]}',
        '{"members": [{"assignors": "range"}]}',
        '{"members": [{"assignors": [5]}]}',
        '{"members": []}',
        '{"members": [{"assignors": ["range"], "next": {"nexxt": ["range"]}}]}',
        '{"members": [{"assignors": ["range"], "client": "java", "version": "two"}]}',
    ],
)
def test_a_file_that_is_no_list_of_members(tmp_path, text):
    file = tmp_path / "bad.json"
    file.write_text(text)
    done = run("upgrade-check", file)
    assert done.code == 3
    assert "not a list of members" in done.err


@pytest.mark.parametrize(
    ("client", "policy"),
    [
        ("holdfast", "holdfast.policy=failback"),
        ("confluent", "holdfast.policy=failback"),
        ("aiokafka", "holdfast_policy='failback'"),
        ("holdfast-worker", "holdfast.policy=failback"),
    ],
)
def test_a_plan_leads_to_a_policy_under_the_protocol_of_another_and_back(client, policy):
    way = ("--client", client, "--plan")
    code, found = checked("--to", "failback", *way)
    assert (code, found["safe"]) == (0, True)
    (group,) = found["bounces"]
    assert policy not in group["from"]["setting"]
    assert all(policy in step["setting"] for step in group["steps"])
    first = group["from"]["assignors"]
    code, found = checked("--from", "failback", "--to", ",".join(first), *way)
    assert (code, found["safe"]) == (0, True)
    (back,) = found["bounces"]
    *between, last = [step["setting"] for step in back["steps"]]
    assert all(policy in setting for setting in between) and policy not in last


def test_a_bounce_between_two_policies_of_one_protocol_is_one():
    code, found = checked("--from", "holdfast-deferred", "--to", "failback", "--plan")
    (group,) = found["bounces"]
    assert (code, len(group["steps"])) == (0, 1)
    assert group["steps"][0]["setting"].endswith("=holdfast-deferred, holdfast.policy=failback")


OWN = """
import holdfast

def by_size(members, topics, claims):
    return {}

def plain():
    return holdfast.assignor("plain", lambda members, topics: {})
"""


def test_an_assignor_of_the_user_is_known_by_its_name_and_modes(tmp_path, monkeypatch, listed):
    (tmp_path / "shop_rebalancing.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    name = "shop_rebalancing:by_size"
    code, found = checked("--from", "range", "--to", name, "--plan")
    assert (code, found["safe"]) == (0, True)
    (group,) = found["bounces"]
    settings = [step["setting"].partition("=")[2] for step in group["steps"]]
    assert settings == [f"{name},range", name]
    assert checked("--from", "range", "--to", name)[0] == 1
    file = listed({"id": "a", "assignors": ["range"], "next": [name, "range"]})
    assert checked(file)[0] == 0
    code, found = checked("--from", "range", "--to", f"{name},range", "--client", "java")
    assert (code, found["findings"][0]["rule"]) == (1, "unknown-to-client")
    done = run("upgrade-check", "--to", "shop_rebalancing:missing")
    assert (done.code, "shop_rebalancing:missing" in done.err) == (2, True)
