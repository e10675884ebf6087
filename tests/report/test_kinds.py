"""The doctor on captured groups of every kind: no finding that is false, no advice that is none."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.pipeline import local
from tests.pipeline.kinds import kind, printed, tables_of
from tests.pipeline.test_kinds import said_partitions, said_tasks
from tests.report.browser import Opened
from tests.report.fleet import examine_all
from tests.suites import further

from holdfast.fleet.analysis.findings.examination import examine
from holdfast.fleet.analysis.findings.finding import describe
from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.report.drawing.sections import group_figures
from holdfast.fleet.report.drawing.writing import render, write
from holdfast.fleet.report.metrics import exposition

TOOLS = {
    "share": ("share", "kafka-share-groups.sh"),
    "streams": ("streams", "kafka-streams-groups.sh"),
    "streams_classic": ("stream", "kafka-consumer-groups.sh"),
    "migrated": ("consumer", "kafka-consumer-groups.sh"),
    "connect": ("connect", "holdfast history --input DUMP"),
    "worker": ("worker", "holdfast history --input DUMP"),
}


@pytest.fixture(params=TOOLS, scope="module")
def made(request, tmp_path_factory):
    ((name, tables),) = tables_of([request.param], tmp_path_factory.mktemp("kinds")).items()
    return name, tables, kind(name).group


@pytest.fixture(scope="module")
def captured(made):
    name, tables, group = made
    return name, read_group(tables, group)


def test_only_what_is_true_is_found(captured):
    name, history = captured
    codes = {finding.code for finding in examine(history).findings}
    # A capture is short: a dozen rebalances within minutes is a storm, and range stops everybody.
    assert codes <= ({"HF101", "HF119"} if name == "migrated" else {"HF101"})
    commands = " ".join(finding.command for finding in examine(history).findings)
    assert "--from stream" not in commands
    assert "--assignor" not in commands


def test_a_group_is_shown_by_a_tool_that_takes_it(captured):
    name, history = captured
    assert history.kind.name == TOOLS[name][0]
    assert describe(history).startswith(TOOLS[name][1])
    assert history.kind.takes_assignors is (name == "migrated")


def test_the_heading_counts_what_the_group_divides_or_shares(captured):
    name, history = captured
    wanted = {
        "share": 2,
        "streams": 8,
        "streams_classic": 8,
        "migrated": 6,
        "connect": 7,
        "worker": 8,
    }
    assert history.n_partitions == wanted[name]


def test_the_page_counts_rows_by_their_own_word(captured):
    name, history = captured
    tasks = ["Tasks", "8", "2 subtopologies", "Tasks moved"]
    wanted = {
        "share": ["Partitions", "2", "Members now", "Partitions moved"],
        "streams": tasks,
        "streams_classic": tasks,
        "migrated": ["Partitions", "6", "1 topic", "Partitions moved"],
        "connect": ["Connectors and tasks", "7", "2 connectors", "Connectors and tasks moved"],
        "worker": ["Resources", "8", "2 kinds", "Resources moved"],
    }[name]
    shown = re.findall(r">([^<]+)<", str(group_figures(history)))
    assert (shown[:3], wanted[3] in shown) == (wanted[:3], True)


def test_rows_are_what_one_member_alone_owns(captured):
    name, history = captured
    timeline = history.timeline
    owned = {history.partition_name(row) for row in range(len(timeline.row_partition))}
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


@pytest.mark.browser
@pytest.mark.parametrize("made", further(name for name in TOOLS if name != "share"), indirect=True)
def test_the_page_names_rows_as_the_groups_own_tools_do(made, captured, chromium, tmp_path):
    """Nobody owns a row of a share group alone, so nothing of it is drawn."""
    (_, tables, _), (_, history) = made, captured
    page = write(tables, tmp_path / "report.html")
    wanted = [history.partition_name(row) for row in range(len(history.timeline.row_partition))]
    opened = Opened(chromium, page)
    opened.page.click("#moment-box summary")
    names = opened.page.eval_on_selector_all(
        "#moment tbody tr", "rows => rows.map((row) => row.querySelector('bdi').textContent)"
    )
    assert (names, opened.said) == (wanted, [])
    opened.close()


def at_moment(name, what, folder):
    """Tables of a capture as of a moment, and the moment."""
    captured = kind(name)
    (moment,) = [moment for moment in captured.moments if moment["what"] == what]
    dump = captured.write_dump(folder / "dump", moment["at_ms"])
    return local.run(dump, folder / "out").load(), moment


def exported(tables):
    """{(metric, values of its labels but the group's): value}."""
    text = exposition(tables, examine_all(tables))
    return {
        (s.name, *(s.labels[k] for k in ("role", "kind", "topic", "partition") if k in s.labels)): (
            int(s.value)
        )
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_a_share_group_is_exported_and_its_readers_are_in_the_report(tmp_path):
    tables, moment = at_moment("share", "c runs", tmp_path)
    readers = {}  # of each partition, as ShareGroupCommand said
    for row in printed(moment["members"]):
        for tp in said_partitions(row["ASSIGNMENT"]):
            readers.setdefault(tp, set()).add(row["CONSUMER-ID"])
    said = exported(tables)
    assert said["holdfast_group_kind", "share"] == 1
    assert said["kafka_consumergroup_members",] == 3
    assert said["holdfast_group_assigned", "shared"] == sum(map(len, readers.values())) == 4
    for row in tables.table("lag").to_pylist():
        place = (row["topic"], str(row["partition"]))
        assert said["holdfast_share_group_delivered", *place] == row["delivered"]
        assert said["kafka_consumergroup_lag", *place] == row["lag"]
    page = render(tables, "share")
    section = page[page.index("<h3>Readers") : page.index("<h3>Rebalances")]
    assert "3 members read 2 partitions, 4 pairs." in section
    found = re.findall(r">(pair-\d)</bdi><td[^>]*>(\d)<.*?<td><bdi[^>]*>([^<]*)<", section)
    assert {(name, int(n), frozenset(names.split(", "))) for name, n, names in found} == {
        (f"{topic}-{n}", len(of), frozenset(of)) for (topic, n), of in readers.items()
    }
    assert "<caption>Partitions of" not in page  # no reader owns a lag


def test_tasks_of_a_streams_group_are_exported_by_role(tmp_path):
    tables, moment = at_moment("streams", "a and c", tmp_path)
    wanted = {}
    for row in printed(moment["members"]):
        for role, tasks in said_tasks(row["ASSIGNMENTS"]).items():
            wanted[role] = wanted.get(role, 0) + len(tasks)
    said = exported(tables)
    found = {key[1]: n for key, n in said.items() if key[0] == "holdfast_group_assigned"}
    assert found == wanted == {"active": 8, "standby": 4}
    assert said["holdfast_group_kind", "streams"] == 1
    epoch = int(printed(moment["members"])[0]["TARGET-ASSIGNMENT-EPOCH"])
    assert said["holdfast_group_generation",] == epoch


def test_warm_up_tasks_are_exported(tmp_path):
    tables, _ = at_moment("streams_classic", "b warms up", tmp_path)
    said = exported(tables)
    found = {key[1]: n for key, n in said.items() if key[0] == "holdfast_group_assigned"}
    assert found == {"active": 8, "warmup": 2}
