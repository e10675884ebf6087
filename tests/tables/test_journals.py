"""Bounds of pauses by members' journals: what they show, what they leave, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.running import run, write_tables

from holdfast.errors import SourceError
from holdfast.model.journal import Entry, gaps, intervals
from holdfast.tables.columns.schemas import arrow_schema
from holdfast.tables.folder.manifest import Batch
from holdfast.tables.journals import SLACK_SECONDS, corrected, journaled, read_journals
from holdfast.tables.reading import Tables, read_tables
from holdfast.tables.window import within


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def pause(end, last_seen, *partitions, lower=0.0, group="g", topic="t"):
    return {
        "group": group,
        "generation": round(end),
        "topic": topic,
        "partitions": list(partitions),
        "pause_lower_seconds": lower,
        "pause_upper_seconds": round(end - last_seen, 6),
        "unowned_since": None,
        "last_seen": at(last_seen),
        "timestamp": at(end),
        "basis": "handover",
    }


def pauses(*rows):
    return pa.Table.from_pylist(list(rows), schema=arrow_schema("pauses"))


def line(seconds, member, event, *partitions, group="g", topic="t"):
    return Entry(
        time_seconds=seconds,
        member=member,
        event=event,
        partitions=partitions,
        group=group,
        topic=topic,
    )


def bounds(table):
    """{(end, partition): (lower, upper)} of pauses that a journal shows, and of the others."""
    found, others = {}, {}
    for row in table.to_pylist():
        for partition in row["partitions"]:
            place = row["timestamp"].timestamp(), partition
            value = row["pause_lower_seconds"], row["pause_upper_seconds"]
            (found if row["is_journaled"] else others)[place] = value
    return found, others


HANDED_OVER = [
    line(1.0, "a", "assigned", 0, 1),
    line(9.1, "a", "revoked", 0),
    line(10.2, "b", "assigned", 0),
]


def test_a_hand_over_is_as_long_as_the_callbacks_say_even_outside_of_what_the_broker_saw():
    table, change, n = corrected(pauses(pause(10.0, 9.2, 0, 1)), HANDED_OVER)
    assert bounds(table) == ({(10.0, 0): (1.1, 1.1)}, {(10.0, 1): (0.0, 0.8)})
    assert n == 1
    (row,) = change.to_pylist()
    assert row["pause_lower_seconds"] == pytest.approx(1.1)
    assert row["pause_upper_seconds"] == pytest.approx(0.3)


def test_owners_that_overlap_leave_no_pause():
    lines = [line(1.0, "a", "assigned", 0), line(9.9, "b", "assigned", 0), line(11, "a", "lost", 0)]
    table, _, _ = corrected(pauses(pause(10.0, 9.2, 0)), lines)
    assert bounds(table)[0] == {(10.0, 0): (0.0, 0.0)}


def test_the_last_line_of_a_member_that_was_killed_is_a_sign_of_it():
    """It was seen at 4 s by the broker and at 5 s by its journal; the successor begins at 10.5."""
    lines = [line(1, "a", "assigned", 0), line(5, "a", "batch", 7), line(10.5, "b", "assigned", 0)]
    table, _, _ = corrected(pauses(pause(10.0, 4.0, 0, lower=1.0)), lines)
    assert bounds(table)[0] == {(10.0, 0): (1.5, 5.5)}
    # its last commit may also be the later sign
    table, _, _ = corrected(pauses(pause(10.0, 6.0, 0, lower=1.0)), lines)
    assert bounds(table)[0] == {(10.0, 0): (1.5, 4.5)}


def test_each_pause_has_the_gap_that_is_nearest_and_no_other():
    """The second new owner, c, keeps no journal: the gap of the first one is not taken for its."""
    lines = [*HANDED_OVER, line(20.0, "b", "revoked", 0)]
    table, _, _ = corrected(pauses(pause(10.0, 9.2, 0), pause(20.3, 19.9, 0)), lines)
    assert bounds(table) == ({(10.0, 0): (1.1, 1.1)}, {(20.3, 0): (0.0, 0.4)})
    only = pauses(pause(20.3, 19.9, 0))
    assert bounds(corrected(only, lines)[0])[0] == {}


MOMENTS = st.lists(st.integers(1, 60), min_size=1, max_size=12, unique=True)


@given(MOMENTS, MOMENTS, st.randoms(use_true_random=False))
def test_gaps_and_pauses_are_matched_as_by_looking_at_all_of_them(ends, starts, random):
    """Each gap against each pause, at seconds of which no two are equally far from a third."""
    shown = [pause(t, t - random.choice([0.1, 0.9, 5]), 0) for t in (m + 0.37 for m in ends)]
    lines = []
    for number, start in enumerate(sorted(starts)):
        lines.append(line(start, f"m{number}", "assigned", 0))
        lines.append(line(start + random.choice([0.2, 0.7]), f"m{number}", "revoked", 0))
    between = gaps(intervals(lines)).get(0, [])

    def far(row, gap):
        return abs(row["timestamp"].timestamp() - gap.end)

    def belongs(row, gap):
        first = row["last_seen"].timestamp() - SLACK_SECONDS
        last = row["timestamp"].timestamp() + SLACK_SECONDS
        return gap.end >= first and gap.start <= last

    expected = set()
    for gap in between:
        row = min(shown, key=lambda r: far(r, gap))
        own = [g for g in between if belongs(row, g)]
        if gap in own and gap == min(own, key=lambda g: far(row, g)):
            expected.add((row["timestamp"].timestamp(), round(gap.end - gap.start, 6)))
    found = bounds(corrected(pauses(*shown), lines)[0])[0]
    assert {(time, upper) for (time, _), (_, upper) in found.items()} == expected


def test_what_a_job_noted_is_still_known(tmp_path):
    """When log ends were read, for one: lags of a stream that died are no lags of now."""
    kept = Tables(tmp_path)
    kept.commit(Batch(id=0, notes={"taken_at": "2025-11-21T09:00:00+00:00"}))
    for changed in (journaled(kept, HANDED_OVER).tables, within(kept, 0, None)):
        assert changed.newest_notes() == kept.newest_notes() != {}


@pytest.mark.parametrize("other", [{"group": "h"}, {"topic": "u"}])
def test_journals_of_other_groups_and_topics_tell_nothing(other):
    table, change, n = corrected(pauses(pause(10.0, 9.2, 0, **other)), HANDED_OVER)
    assert bounds(table) == ({}, {(10.0, 0): (0.0, 0.8)})
    assert (change.num_rows, n) == (0, 0)


def test_sums_of_rebalances_allow_for_journals_too():
    tables = read_tables({"pauses": pauses(pause(10.0, 9.2, 0, 1)), "rebalances": REBALANCES})
    done = journaled(tables, HANDED_OVER)
    assert (done.n_journaled, done.n_pauses) == (1, 2)
    (row,) = done.tables.table("rebalances").to_pylist()
    assert row["pause_lower_seconds"] == pytest.approx(1.1)
    assert row["pause_upper_seconds"] == pytest.approx(0.8 + 1.1)


REBALANCES = pa.Table.from_pylist(
    [
        {
            **dict.fromkeys(arrow_schema("rebalances").names),
            "group": "g",
            "generation": 10,
            "timestamp": at(10.0),
            "pause_lower_seconds": 0.0,
            "pause_upper_seconds": 1.6,
        }
    ],
    schema=arrow_schema("rebalances"),
)


GENERATIONS = pa.Table.from_pylist(
    [
        {
            **dict.fromkeys(arrow_schema("generations").names),
            "group": "g",
            "generation": 10,
            "timestamp": at(10.0),
        }
    ],
    schema=arrow_schema("generations"),
)


def write(folder, lines, name="a.jsonl"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(one.to_line() + "\n" for one in lines))
    return folder


def test_journals_are_read_from_folders_and_files_by_time(tmp_path):
    folder = write(tmp_path / "j", HANDED_OVER[1:])
    write(folder, HANDED_OVER[:1], "b.jsonl")
    with (folder / "b.jsonl").open("a") as file:
        file.write('{"time": 99, "mem')  # it is being written
    assert read_journals([folder]) == HANDED_OVER
    assert read_journals([folder / "b.jsonl"]) == HANDED_OVER[:1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2]", "found list"),
        ("{", "not JSON"),
        ('{"time": "x", "member": "a", "event": "end"}', "time: found 'x'"),
        ('{"time": 1, "event": "end"}', "member: found None"),
        ('{"time": 1, "member": "a", "event": "end", "partitions": [true]}', "partitions: found"),
        ('{"time": 1, "member": "a", "event": "batch", "first": "x"}', "first: found 'x'"),
        ('{"time": 1, "member": "a", "event": "end"}', "expected a group and a topic"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, text, said):
    file = tmp_path / "a.jsonl"
    file.write_text(HANDED_OVER[0].to_line() + "\n\n" + text + "\n")
    with pytest.raises(SourceError, match=r"a\.jsonl, line 3: ") as caught:
        read_journals([file])
    assert said in str(caught.value)


def test_a_folder_without_journals_is_refused(tmp_path):
    with pytest.raises(SourceError, match="no file"):
        read_journals([tmp_path])
    with pytest.raises(SourceError, match="cannot be read"):
        read_journals([tmp_path / "none.jsonl"])


def test_history_doctor_and_report_take_journals(tmp_path):
    """The tables stay as they are; what is printed allows for the journal."""
    held = {"pauses": pauses(pause(10.0, 9.2, 0, 1)), "rebalances": REBALANCES}
    held["generations"] = GENERATIONS
    (tmp_path / "tables").mkdir()
    tables = write_tables(held, tmp_path / "tables")
    folder = write(tmp_path / "j", HANDED_OVER)
    words = ("history", "--input", tables, "--table", "pauses")
    before = run(*words, "--format", "json")
    done = run(*words, "--journal", folder, "--format", "json")
    assert done.code == 0, done.err
    assert "journals show 1 of 2 pauses" in done.err
    found = {row["partition"]: row for row in json.loads(done.out)["rows"]}
    assert (found[0]["pause_upper_seconds"], found[1]["pause_upper_seconds"]) == (1.1, 0.8)
    assert (found[0]["is_journaled"], found[1]["is_journaled"]) == (True, None)
    assert run(*words, "--format", "json").out == before.out
    people = run(*words, "--journal", folder)
    assert "as the broker and journals saw them" in people.out
    for command in (("doctor",), ("report", "-o", tmp_path / "report.html")):
        done = run(*command, "--input", tables, "--journal", folder)
        assert (done.code, "journals show 1 of 2" in done.err) == (0, True), done.err
    assert "as the broker and journals saw it" in (tmp_path / "report.html").read_text()
    for more, seen in (
        ((), "the broker saw"),
        (("--journal", folder), "the broker and journals saw"),
    ):
        assert seen in " ".join(run("doctor", "--input", tables, *more).out.split())
    refused = run("history", "--input", tables, "--journal", folder, "-o", tmp_path / "new")
    assert refused.code == 2
    assert "-o keeps what the broker saw" in refused.err
