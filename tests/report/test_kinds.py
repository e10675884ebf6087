"""The doctor on captured groups of every kind: no finding that is false, no advice that is none."""

from __future__ import annotations

import pytest
from tests.pipeline import local
from tests.pipeline.kinds import kind

from holdfast.report.findings.doctor import summary
from holdfast.report.findings.examination import examine
from holdfast.report.findings.facts import read_facts
from holdfast.report.findings.finding import describe

TOOLS = {
    "share": ("share", "kafka-share-groups.sh"),
    "streams": ("streams", "kafka-streams-groups.sh"),
    "streams_classic": ("stream", "kafka-consumer-groups.sh"),
    "migrated": ("consumer", "kafka-consumer-groups.sh"),
    "connect": ("connect", "holdfast history --input DUMP"),
    "worker": ("worker", "holdfast history --input DUMP"),
}


@pytest.fixture(params=TOOLS, scope="module")
def captured(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    made = kind(request.param)
    tables = local.run(made.write_dump(folder / "dump"), folder / "out")
    return request.param, read_facts(tables, made.group)


def test_only_what_is_true_is_found(captured):
    name, facts = captured
    codes = {finding.code for finding in examine(facts).findings}
    # A capture is short: a dozen rebalances within minutes is a storm, and range stops everybody.
    assert codes <= ({"HF101", "HF119"} if name == "migrated" else {"HF101"})
    commands = " ".join(finding.command for finding in examine(facts).findings)
    assert "--from stream" not in commands
    assert "--assignor" not in commands


def test_a_group_is_shown_by_a_tool_that_takes_it(captured):
    name, facts = captured
    assert facts.kind == TOOLS[name][0]
    assert describe(facts).startswith(TOOLS[name][1])
    assert facts.takes_assignors is (name == "migrated")


def test_the_heading_counts_what_the_group_divides_or_shares(captured):
    name, facts = captured
    wanted = {
        "share": 2,
        "streams": 8,
        "streams_classic": 8,
        "migrated": 6,
        "connect": 7,
        "worker": 8,
    }
    assert summary(facts)["partitions"] == wanted[name]


def test_rows_are_what_one_member_alone_owns(captured):
    name, facts = captured
    timeline = facts.timeline
    owned = {facts.partition_name(row) for row in range(len(timeline.row_partition))}
    tasks = {f"{place}_{number}" for place in "01" for number in range(4)}
    sinks = {"sink", *(f"sink-{number}" for number in range(4))}
    assert (
        owned
        == {
            "share": set(),
            "streams": tasks,
            "streams_classic": tasks,
            "migrated": {f"few-{number}" for number in range(6)},
            "connect": sinks | {"source", "source-0"},
            "worker": {*(f"connector-{n}" for n in range(2)), *(f"task-{n}" for n in range(6))},
        }[name]
    )
