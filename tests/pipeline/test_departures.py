"""How members went, by the last signs of them: example by example."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline import fleet, local
from tests.pipeline.histories import COOPERATIVE, generation
from tests.report.fleet import examine_all

from holdfast.fleet.analysis.group.client_library import near_poll_timeout
from holdfast.fleet.pipeline.history.departures import AFTER_SESSION_MS, RESOLVED
from holdfast.fleet.pipeline.history.rebalances import CAUSES
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import read_tables

A, B, ALL = {"t": [0, 1]}, {"t": [2, 3]}, {"t": [0, 1, 2, 3]}
SESSION = 10  # seconds, in the records of these histories
SLACK = AFTER_SESSION_MS // 1000


def went(tmp_path, *commits, at=130, before=100, members=None, column="cause", **more):
    """Cause, or another column, of a rebalance at second ``at`` in which b went."""
    history = [
        generation("g", 1, members or {"a": A, "b": B}, at=before, **more),
        generation("g", 2, {"a": ALL}, at=at, **more),
    ]
    records = fleet.classics(history)
    records[1:1] = [
        ("g", second, fleet.commit("g", "t", partition, 5, at=second))
        for partition, second in commits
    ]
    tables = local.run(fleet.write_dump(tmp_path / "dump", records), tmp_path / "out")
    *_, row = tables.table("rebalances").to_pylist()
    assert row["cause_basis"] == "inferred"
    assert row["confidence"] == RESOLVED.get(row["cause"], row["confidence"])
    return row[column]


@pytest.mark.parametrize("protocol", ["range", COOPERATIVE])
@pytest.mark.parametrize(
    ("seconds", "cause"),
    [
        (0, "leave"),
        (SESSION - 0.001, "leave"),
        (SESSION, "session_timeout"),
        (SESSION + SLACK, "session_timeout"),
        (SESSION + SLACK + 0.001, "leave_or_timeout"),
    ],
)
def test_the_last_commit_decides(tmp_path, protocol, seconds, cause):
    """A session cannot end less than a session after a commit, and a member that commits falls
    silent little more than a session before its group notices."""
    assert went(tmp_path, (2, 105), (3, 130 - seconds), protocol=protocol) == cause


@pytest.mark.parametrize(
    ("seconds", "cause"), [(12.499, "session_timeout"), (12.5, "leave_or_timeout")]
)
def test_a_member_that_may_have_been_too_late_for_its_poll_or_a_round_proves_nothing(
    tmp_path, seconds, cause
):
    """Its client says goodbye, or its broker removes it, when that time is over."""
    members = {"a": A, "b": ({"rebalance_timeout_ms": 18_000}, B)}
    assert went(tmp_path, (2, 105), (3, 130 - seconds), members=members) == cause


@pytest.mark.parametrize(
    ("poll_s", "has_committed", "first_s", "last_s"),
    [
        (300, True, 294.5, 350),  # librdkafka commits after its last poll, Java's client before it
        (300, False, 299.4, 350),  # nobody can poll before the round that it has joined
        (8, True, 4, 18),
        (8, False, 7.4, 18),
    ],
)
def test_a_member_goes_when_its_poll_interval_is_over(poll_s, has_committed, first_s, last_s):
    unseen_ms = np.asarray([first_s - 0.01, first_s, last_s, last_s + 0.01]) * 1000
    poll_ms, committed = np.full(4, poll_s * 1000), np.full(4, has_committed)
    near = near_poll_timeout(unseen_ms, poll_ms, committed)
    assert near.tolist() == [False, True, True, False]


POLLS_RARELY = {"a": A, "b": ({"rebalance_timeout_ms": 60_000}, B)}


def test_a_member_that_polled_too_rarely_is_distinguished_from_one_that_died(tmp_path):
    """Its silence is as long as max.poll.interval.ms, and its session would have ended before."""
    members = POLLS_RARELY
    assert went(tmp_path / "late", (3, 170), at=230, members=members) == "poll_timeout"
    assert went(tmp_path / "never", at=161, members=members) == "poll_timeout"
    assert went(tmp_path / "died", (3, 170), at=185, members=members) == "session_timeout"
    quick = {"a": A, "b": ({"rebalance_timeout_ms": 8_000, "session_timeout_ms": 45_000}, B)}
    assert went(tmp_path / "quick", (3, 122), at=130, members=quick) == "poll_timeout"
    assert went(tmp_path / "left", (3, 129), at=130, members=quick) == "leave"


def test_of_several_members_that_went_each_has_its_time(tmp_path):
    members = {"c": {"t": [0]}, "b": {"t": [1]}, "a": {"t": [2, 3]}}
    went_c = went(tmp_path, (0, 118), (1, 125), members=members, column="unseen_ms")
    assert went_c == [5_000, 12_000]  # of b and c, whatever their order in the record


def test_the_time_since_a_members_last_evidence_is_in_its_rebalance(tmp_path):
    assert went(tmp_path / "commit", (3, 118), column="unseen_ms") == [12_000]
    assert went(tmp_path / "round", column="unseen_ms") == [30_000]


def test_nobodys_commit_and_a_commit_of_another_prove_nothing(tmp_path):
    assert went(tmp_path / "none") == "leave_or_timeout"
    assert went(tmp_path / "other", (0, 129)) == "leave_or_timeout"


def test_a_commit_before_the_last_round_proves_nothing(tmp_path):
    """b joined that round; whether it died a session before the next one, no commit says."""
    assert went(tmp_path, (3, 115), before=118) == "leave_or_timeout"


@pytest.mark.parametrize(("seconds", "cause"), [(7.9, "leave"), (8.1, "leave_or_timeout")])
def test_who_was_in_the_round_before_was_alive(tmp_path, seconds, cause):
    """The session begins anew with the join, a little before the record."""
    assert went(tmp_path, at=100 + seconds) == cause


def test_a_member_without_partitions_goes_too(tmp_path):
    members = {"a": ALL, "b": {}}
    assert went(tmp_path / "soon", members=members, at=101) == "leave"
    assert went(tmp_path / "late", members=members) == "leave_or_timeout"


@pytest.mark.parametrize(
    ("commits", "cause"),
    [
        (((1, 129), (3, 129)), "leave"),
        (((1, 118), (3, 118)), "session_timeout"),
        (((1, 129), (3, 118)), "leave_or_timeout"),
        (((1, 129),), "leave_or_timeout"),
    ],
)
def test_several_members_that_went_must_agree(tmp_path, commits, cause):
    members = {"a": {"t": [0]}, "b": {"t": [1]}, "c": {"t": [2, 3]}}
    assert went(tmp_path, *commits, members=members) == cause


def test_a_stream_has_the_commits_of_earlier_batches(tmp_path):
    history = [
        generation("g", 1, {"a": A, "b": B}, at=100),
        generation("g", 2, {"a": ALL}, at=130),
    ]
    records = fleet.classics(history)
    records.insert(1, ("g", 118, fleet.commit("g", "t", 3, 5, at=118)))
    dump = fleet.write_dump(tmp_path / "dump", records)
    assert Dump.open(dump).n_records() == 3
    tables = local.stream(dump, tmp_path / "out", [119_000_000, 120_000_000])
    assert [r["cause"] for r in tables.table("rebalances").to_pylist()][-1] == "session_timeout"


def test_the_session_of_a_kip_848_member_is_in_no_record(tmp_path):
    """Only a commit within the least session that brokers take tells a leave."""

    def epoch(number, *targets):
        return [
            *(fleet.consumer_target("g", member, topics) for member, topics in targets),
            fleet.consumer_epoch("g", number),
            fleet.assignment_epoch("g", number),
        ]

    def cause(name, second):
        first = [fleet.consumer_member("g", member, ["t"]) for member in ("a", "b")]
        first += epoch(1, ("a", A), ("b", B))
        then = [fleet.tombstone(5, "g", "b"), *epoch(2, ("a", ALL))]
        records = [("g", 100, record) for record in first]
        records.append(("g", second, fleet.commit("g", "t", 3, 5, at=second)))
        records += [("g", 130, record) for record in then]
        dump = fleet.write_dump(tmp_path / name, records, topics=[("t", 4)])
        tables = local.run(dump, tmp_path / f"{name}-out")
        return tables.table("rebalances").to_pylist()[-1]["cause"]

    assert cause("soon", 125) == "leave"
    assert cause("later", 123) == "leave_or_timeout"
    assert cause("long", 110) == "leave_or_timeout"


def test_the_confidences_are_those_that_were_measured():
    """docs/measured/causes.md has, of each cause, how many of how many were right in live runs."""
    page = Path(__file__).parents[2] / "docs" / "measured" / "causes.md"
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| (\d+) of (\d+) \| ([\d.]+) \|$", page.read_text("utf-8"), re.MULTILINE
    )
    measured = {cause: float(shown) for cause, _, _, shown in rows}
    assert (
        measured.items() <= (dict(CAUSES) | RESOLVED).items() and RESOLVED.keys() <= measured.keys()
    )
    for _, right, n, shown in rows:
        assert shown == f"{100 * (int(right) + 1) // (int(n) + 2) / 100:.2f}"


LEFT_S = 1_000
LAST_S = 680


def examined(folder, *, others_until=LEFT_S, read_on=True, stream=False):
    """The silence of a member that goes, and codes; of four members each has a partition."""
    members = {f"m{p}": {"t": [p]} for p in range(4)}
    rest = {f"m{p}": {"t": [p, 0] if p == 1 else [p]} for p in range(1, 4)}
    history = [generation("g", 1, members, at=100), generation("g", 2, rest, at=LEFT_S)]
    records = fleet.classics(history)
    ends = {0: LAST_S, **dict.fromkeys((1, 2, 3), others_until)}
    made = [(p, at) for p, end in ends.items() for at in range(110, end, 30)]
    made += [(0, at) for at in range(LEFT_S + 20, LEFT_S + 80, 30) if read_on]
    records += [("g", at, fleet.commit("g", "t", p, at, at=at)) for p, at in made]
    records.sort(key=lambda record: record[1])
    newest = {p: max(at for q, at in made if q == p) for p in range(4)}
    offsets = [("t", p, 0, newest[p]) for p in range(4)]
    taken = "1970-01-01T00:18:20+00:00"
    dump = fleet.write_dump(folder / "dump", records, offsets=offsets, taken_at=taken)
    out = folder / "tables"
    tables = local.stream(dump, out, [900_000_000]) if stream else local.run(dump, out)
    silent = [r["silent_seconds"] for r in tables.table("rebalances").to_pylist()]
    held = read_tables({name: tables.table(name, flat=False) for name in TABLES})
    (found,) = examine_all(held, last_ms=1_100_000)
    return silent[-1], [f for f in found.findings if f.code == "HF105"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_stuck_member_is_found_after_it_was_thrown_out(tmp_path, stream):
    silent, (finding,) = examined(tmp_path, stream=stream)
    assert silent == LEFT_S - max(range(110, LAST_S, 30))
    assert finding.evidence.members.shown == ("m0",)
    assert finding.evidence.partitions.shown == ("t-0",)
    assert finding.cost_upper_s == silent


def test_a_group_that_commits_rarely_has_no_silent_member(tmp_path):
    silent, findings = examined(tmp_path, others_until=LEFT_S - 150)
    assert silent is None and not findings


def test_a_member_without_work_was_not_stuck(tmp_path):
    silent, findings = examined(tmp_path, read_on=False)
    assert silent >= 240 and not findings
