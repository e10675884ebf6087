"""``holdfast simulate``: every scenario, every policy, every number, and the same run again."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import count, pairwise
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.cli.running import run, run_python
from tests.proof.rules import attached
from tests.suites import further

import holdfast
from holdfast.cli.commands import simulate
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment, decode_subscription
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.sim.scenarios import SCENARIOS, SIMULATED, Setup
from holdfast.sim.scenarios import simulate as simulate_scenario

SMALL = ("--members", 4, "--partitions", 8, "--format", "json")


@pytest.fixture
def checked(monkeypatch):
    """The command simulates under all rules, and fails if one is broken."""
    monkeypatch.setattr(simulate, "simulate", attached.simulate)


def simulated(*arguments: object) -> dict:
    done = run("simulate", *arguments, *SMALL).passed()
    return json.loads(done.out)


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_has_its_numbers(scenario):
    report = simulated("--scenario", scenario, "--seed", 3)
    assert (report["scenario"], report["seed"], report["violations"]) == (scenario, 3, [])
    assert report["schema_version"] == 1
    assert report["longest_stop_seconds"] > 0


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("policy", SIMULATED)
def test_every_policy_and_both_baselines(policy):
    report = simulated("--policy", policy)
    assert (report["policy"], report["violations"]) == (policy, [])
    assert report["partition_seconds_stopped"] > 0


def test_policies_are_compared_side_by_side_and_in_one_drawing(tmp_path):
    several = ("--policy", "simple, deferred,simple", "--picture", tmp_path / "a.svg")
    compared = simulated(*several)["compare"]
    assert compared == [simulated("--policy", one) for one in ("simple", "deferred")]
    drawn = ElementTree.parse(tmp_path / "a.svg").getroot()
    texts = ["".join(node.itertext()) for node in drawn.iter() if node.tag.endswith("text")]
    for one in compared:
        assert any(
            f"{one['policy']}: " in text and f"{one['moved']} moves" in text for text in texts
        )
    table = run("simulate", *several[:2], *SMALL[:4], "-q", width=100).out.splitlines()
    assert [line.split() for line in table][1:4:2] == [
        ["measure", "simple", "deferred"],
        ["moved", *(str(one["moved"]) for one in compared)],
    ]


@pytest.mark.parametrize("policy", ["deferred", "incremental", "kip848"])
def test_a_drawing_has_each_partition_with_at_most_one_owner_at_a_time(policy):
    report = simulate_scenario(Setup(policy=policy, timeline=True, members=4, partitions=8))
    rows: dict = defaultdict(list)
    for owned in report.timeline:
        assert report.begin_ms <= owned.begin_ms <= owned.ready_ms <= owned.end_ms
        rows[owned.resource].append(owned)
    assert len(rows) == 8
    length_ms = max(owned.end_ms for owned in report.timeline) - report.begin_ms
    for intervals in rows.values():
        assert all(a.end_ms <= b.begin_ms for a, b in pairwise(intervals))
    processed_ms = sum(o.end_ms - o.ready_ms for o in report.timeline)
    stopped_ms = 8 * length_ms - processed_ms
    assert stopped_ms == round(report.partition_seconds_stopped * 1000)


def test_a_dump_has_the_records_of_one_policy(tmp_path):
    done = run("simulate", "--policy", "simple,deferred", "--dump", tmp_path / "d")
    assert (done.code, "expected one --policy" in done.err) == (2, True)


FLAPS = [
    {"at": f"{4 * i + away}s", "do": do, "slot": 1}
    for i in range(5)
    for away, do in ((0, "crash"), (2, "start"))
]


def test_a_seed_replays_bit_for_bit_in_another_process(tmp_path):
    file = tmp_path / "flaps.json"
    file.write_text(json.dumps({"steps": FLAPS}))

    def played(hash_seed: str, seed: int) -> tuple[str, str]:
        words = ("--scenario", file, "--policy", "deferred", "--seed", seed, "--trace")
        done = run_python("-m", "holdfast", "simulate", *words, *SMALL, PYTHONHASHSEED=hash_seed)
        return done.passed().out, done.err

    first = played("1", 9)
    assert played("2", 9) == first
    assert played("1", 10) != first


def test_what_takes_long_shows_how_far_it_is(monkeypatch):
    passed = []

    def track(items, total, what, *, quiet):
        assert (total, what, quiet) == (3, "members bounced", False)
        for item in items:
            passed.append(item)
            yield item

    monkeypatch.setattr(simulate, "track", track)
    done = run("simulate", "--policy", "simple", "--members", "3", "--format", "json")
    assert done.code == 0
    assert len(passed) == 3


def test_costs_are_printed_and_each_can_be_set():
    done = run("simulate", "-v", *SMALL[:4], "--cost", "rebuild=0s", "--cost", "slow-members=0")
    assert done.code == 0
    assert "rebuild-ms = 0" in done.err
    assert "heartbeat-ms = 3000" in done.err
    assert "bytes per round" in done.out


@pytest.mark.usefixtures("checked")
def test_a_scenario_file_and_its_mistakes(tmp_path):
    file = tmp_path / "story.json"
    file.write_text(
        '{"steps": [{"at": "1s", "do": "crash", "slot": 2}, {"at": "PT9S", "do": '
        '"start", "slot": 2}]}'
    )
    assert simulated("--scenario", file)["violations"] == []
    file.write_text('{"steps": [{"at": "1s", "does": "crash"}]}')
    assert run("simulate", "--scenario", file).code == 2
    file.write_text('{"steps": 4}')
    assert run("simulate", "--scenario", file).code == 3


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("{}", 3, "no 'steps'"),
        ('{"steps": []}', 2, "expected at least one"),
        ('{"steps": [{"do": "crash"}]}', 3, "no 'at'"),
        ('{"steps": [{"at": "1s", "do": "dance"}]}', 2, "do: found 'dance'"),
        (
            '{"steps": [{"at": "1s", "do": "crash", "slot": 4}]}',
            2,
            "slot: found 4, expected 0 to 3",
        ),
        ('{"steps": [{"at": "1s", "do": "crash", "slot": "0"}]}', 2, "steps[0].slot: found '0'"),
        ('{"steps": [{"at": "1s", "do": "resize", "count": -1}]}', 2, "steps[0].count: found -1"),
        ('{"steps": [{"at": "99999999d", "do": "crash"}]}', 2, "expected at most"),
    ],
)
def test_steps_that_cannot_be_taken(tmp_path, text, code, words):
    file = tmp_path / "story.json"
    file.write_text(text)
    done = run("simulate", "--scenario", file, *SMALL, width=300)
    assert (done.code, words in done.err) == (code, True), done.err


def test_violations_are_a_list_in_json_lines():
    done = run("simulate", *SMALL[:4], "--format", "jsonl")
    assert json.loads(done.out)["violations"] == []


@pytest.mark.parametrize(
    ("words", "rule"),
    further(
        [
            (("--policy", "eager", "--assignor", f"{__name__}:uneven"), "L2"),
            (("--policy", "simple", "--assignor", f"{__name__}:turning"), "L1"),
            (("--policy", f"{__name__}:resting"), "L4"),
        ]
    ),
)
def test_a_broken_rule_is_exit_code_1(words, rule):
    """The rules that an assignor or a policy of the user can break."""
    done = run("simulate", *words, *SMALL)
    assert done.code == 1
    assert rule in {one["rule"] for one in json.loads(done.out)["violations"]}


OWN = "tests.live.own_policy:cooperative"


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize(
    "policy", ["eager", "simple", "holdfast-simple", "deferred", "incremental"]
)
def test_an_assignor_of_the_user_runs_under_every_policy(policy):
    report = simulated("--policy", policy, "--assignor", OWN, "--scenario", "process-death")
    assert (report["policy"], report["violations"]) == (policy, [])
    if policy in ("deferred", "incremental"):
        assert report["moved"] == 0


def test_a_registrys_assignor_stands_in_for_the_policys_own():
    named = simulated("--policy", "eager", "--assignor", "sticky")
    assert named["moved"] == simulated("--policy", "eager-sticky")["moved"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "kip848", "--assignor", "sticky"), "baseline"),
        (("--policy", "simple", "--assignor", "range"), "needs a cooperative one"),
        (("--policy", "deferred", "--assignor", "range"), "ignores what members claim"),
        (("--assignor", f"{__name__}:gives_nothing"), "assignor gives_nothing: gives topic-0 to"),
        (("--assignor", f"{__name__}:strangers"), "gives topic-0 to 'nobody', which is no member"),
        (("--assignor", f"{__name__}:raises"), "assignor raises: its function raised"),
        (("--policy", f"{__name__}:raises_too"), "policy raises_too: its function raised"),
    ],
)
def test_what_cannot_run_under_the_policy_exits_2(arguments, words):
    done = run("simulate", *arguments, *SMALL)
    assert done.code == 2
    assert words in done.err


def gives_nothing(members, topics, claims):
    return {}


def strangers(members, topics, claims):
    return dict.fromkeys(tps(topics), "nobody")


def raises(members, topics, claims):
    raise ValueError("no plan")


def raises_too(imbalance):
    raise ValueError("no resolution")


def to_the_first(members, topics, claims):
    return dict.fromkeys(tps(topics), min(members))


uneven = holdfast.assignor("uneven", to_the_first, laws=("balanced",))
"""It promises what it does not keep."""


TURNS = count()


def turning(members, topics, claims):
    """Each round gives every partition to another member."""
    turn, names = next(TURNS), sorted(members)
    return {tp: names[(n + turn) % len(names)] for n, tp in enumerate(tps(topics))}


def resting(imbalance):
    """Nothing may move, ever."""
    waits_ms = [0] * len(imbalance.departed)
    may_move = np.zeros(len(imbalance.moves(waits_ms).tp), bool)
    return holdfast.Resolution(waits_ms=waits_ms, may_move=may_move, pause_ms=1_000)


def tps(topics):
    return [(topic, partition) for topic, numbers in topics.items() for partition in numbers]


@pytest.mark.parametrize("policy", ["eager", "cooperative-sticky", "deferred", "incremental"])
def test_the_scalar_decoder_reads_every_record(policy, tmp_path):
    folder = tmp_path / "run"
    done = run(
        "simulate", "--scenario", "scale-down", "--policy", policy, "--members", "3",
        "--partitions", "6", "--dump", folder, "--format", "json",
    )  # fmt: skip
    assert done.code == 0, done.err
    dump = Dump.open(folder)
    rows = pq.read_table(folder / "records").to_pylist()
    assert f"{len(rows)} records in {folder}" in done.err.replace("\n", "")
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times)
    assert times[0].year == 2026
    generations, committed = [], {}
    for row in rows:
        record = decode_record(row["key"], row["value"])
        assert record.key["group"] == "group"
        if record.name == "OffsetCommit":
            place = (record.key["topic"], record.key["partition"])
            committed[place] = record.value["offset"]
            continue
        assert record.name == "GroupMetadata"
        generations.append(record.value["generation"])
        for member in record.value["members"]:
            assert decode_subscription(member["subscription"]).topics == ("topic",)
            if member["assignment"]:
                assert {t for t, _ in decode_assignment(member["assignment"]).partitions} <= {
                    "topic"
                }
    assert generations == sorted(set(generations))
    assert json.loads(done.out)["rounds"] < len(generations)
    ends = {(r["topic"], r["partition"]): r["end_offset"] for r in dump.offsets().to_pylist()}
    assert set(ends) == {("topic", p) for p in range(6)}
    assert committed
    assert all(0 < offset <= ends[place] for place, offset in committed.items())
    assert dump.topics()["partitions"].to_pylist() == [6]
    assert run("simulate", "--members", "2", "--dump", folder, "--quiet").code == 0
    assert Dump.open(folder).n_records() != len(rows)


def test_a_client_keeps_its_id_over_restarts_and_gets_a_new_member_id(tmp_path):
    folder = tmp_path / "run"
    assert run("simulate", "--members", "3", "--dump", folder, "--quiet").code == 0
    ids: dict[str, set[str]] = {}
    for row in pq.read_table(folder / "records").to_pylist():
        record = decode_record(row["key"], row["value"])
        for member in record.value["members"] if record.name == "GroupMetadata" else ():
            assert member["clientHost"] == "/" + member["clientId"]
            ids.setdefault(member["clientId"], set()).add(member["memberId"])
    assert {client: len(members) for client, members in ids.items()} == {
        "m0000": 2,
        "m0001": 2,
        "m0002": 2,
    }


def test_what_cannot_be_dumped_is_refused(tmp_path):
    (tmp_path / "diary.txt").write_text("dear diary")
    done = run("simulate", "--members", "2", "--dump", tmp_path)
    assert done.code == 3
    assert "already holds 'diary.txt'" in done.err
    done = run("simulate", "--policy", "kip848", "--dump", tmp_path / "new")
    assert done.code == 2
    assert "without a coordinator's log" in done.err
