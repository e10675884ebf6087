"""A new kind of group is a row, its reader and its words: decoding, history and report follow."""

from __future__ import annotations

import json
import re

import pytest
from tests.pipeline import fleet, local
from tests.report.fleet import examine_all

from holdfast.core import kinds
from holdfast.core.kinds import ACTIVE, Given, GroupKind, GroupType, Words, lists_of
from holdfast.errors import WireError
from holdfast.fleet.analysis.findings.finding import describe
from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.pipeline.plan import plan
from holdfast.fleet.pipeline.replay.trace_builder import traces
from holdfast.fleet.report.drawing.sections import group_figures
from holdfast.fleet.report.metrics import exposition

QUEUES = "this group divides jobs of queues"


def read_jobs(subscription: bytes, assignment: bytes) -> Given:
    """Jobs of a member, which its messages name in JSON."""
    try:
        had, now = json.loads(subscription), json.loads(assignment)
    except ValueError:
        raise WireError("malformed", schema="Jobs", field="", position=0) from None
    jobs = [(queue, number) for queue, numbers in now.items() for number in numbers]
    return Given(owned=lists_of(ACTIVE, jobs), n_claimed=sum(map(len, had.values())))


@pytest.fixture(autouse=True)
def row(monkeypatch):
    """The one row."""
    kind = GroupKind(
        name="jobs",
        group_type=GroupType.CLASSIC,
        protocol_type="queue-runner",
        cooperative=frozenset(["gentle"]),
        words=Words(things="jobs", thing="job", parent="queue", joint=":"),
        own_assignment=QUEUES,
        resource_kind=lambda queue, _: queue,
        tool="",
        read=read_jobs,
    )
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, kind))


def generation(number: int, members: dict[str, tuple[dict, dict | None]], protocol: str):
    """A record of a group of runners: by member, what it had and what it is given."""
    found = []
    for name, (had, now) in members.items():
        given = b"{" if now is None else json.dumps(now).encode()
        found.append(fleet.member(name, json.dumps(had).encode(), given))
    kind = {"protocolType": "queue-runner", "protocol": protocol}
    return fleet.record(2, 3, {"group": "runners"}, fleet.generation_value(number, found, **kind))


@pytest.fixture(params=["gentle", "hard"])
def made(request, tmp_path):
    """A group whose second member takes a job over; the protocol, and the tables."""
    whole = {"mail": [0, 1], "print": [0]}
    rounds = [
        generation(1, {"a": ({}, whole)}, request.param),
        generation(
            2, {"a": (whole, {"mail": [0], "print": [0]}), "b": ({}, {"mail": [1]})}, request.param
        ),
    ]
    records = [("runners", 10 * at, record) for at, record in enumerate(rounds)]
    dump = fleet.write_dump(tmp_path / "dump", records)
    return request.param, local.run(dump, tmp_path / "tables")


def test_its_messages_are_decoded(made):
    found = {
        (row["generation"], row["member_id"], row["topic"], row["partition"])
        for row in made[1].table("assignments").to_pylist()
    }
    assert {one for one in found if one[0] == 2} == {
        (2, "a", "mail", 0),
        (2, "a", "print", 0),
        (2, "b", "mail", 1),
    }
    assert [row["n_claimed"] for row in made[1].table("members").to_pylist()] == [0, 3, 0]
    assert not made[1].rows("anomalies") and not made[1].rows("lag")


def test_bytes_that_its_reader_refuses_are_an_anomaly(tmp_path):
    broken = generation(1, {"a": ({}, {"mail": [0]}), "b": ({}, None)}, "gentle")
    dump = fleet.write_dump(tmp_path / "dump", [("runners", 0, broken)])
    tables = local.run(dump, tmp_path / "tables")
    (row,) = tables.table("anomalies").to_pylist()
    assert (row["kind"], row["member_ids"]) == ("unreadable_assignment", ["b"])
    (kept,) = tables.table("assignments").to_pylist()
    assert (kept["member_id"], kept["topic"]) == ("a", "mail")


def test_its_history_says_what_moved_and_who_stopped(made):
    protocol, tables = made
    _, row = tables.table("rebalances").to_pylist()
    assert (row["n_partitions"], row["n_kept"], row["n_moved"], row["n_joined"]) == (3, 2, 1, 1)
    assert row["cooperative"] is (protocol == "gentle")
    assert row["n_needed_moves"] is None  # what is best is known of partitions of topics alone


def test_a_plan_is_refused_in_its_words_and_a_replay_moves_its_jobs(made):
    (refused,) = plan(None, made[1], {"mail": 2, "print": 1}, "range").to_pylist()
    assert refused["refused"] == QUEUES
    (trace,) = traces(made[1])
    assert (trace.workers, trace.n_partitions, trace.moved) == (True, 3, 1)
    assert trace.sessions[0].partitions == {"mail": 2, "print": 1}
    assert trace.cooperative is (made[0] == "gentle")


def test_the_report_has_its_words(made):
    history = read_group(made[1], "runners")
    shown = re.findall(r">([^<]+)<", str(group_figures(history)))
    assert shown[:3] == ["Jobs", "3", "2 queues"] and "Jobs moved" in shown
    assert history.partition_name(0) == "mail:0"
    assert describe(history).startswith("holdfast history")
    assert not history.kind.takes_assignors
    assert 'kind="jobs"' in exposition(made[1], examine_all(made[1]))


def test_the_command_does_not_call_it_unread():
    assert kinds.is_read("queue-runner") and not kinds.is_read("sr")
