"""Windows end when a source was read: a group that stands still as a whole is found.

Every dump is taken at :data:`TAKEN` unless a test says otherwise. Group ``etl`` has two members,
each with one partition of ``t``, 5,000 records behind, whose last commits are 30 minutes old.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import run
from tests.pipeline import fleet
from tests.pipeline.histories import generation

from holdfast.cluster.cluster import PartitionEnds
from holdfast.fleet.analysis.times import window_end_ms
from holdfast.fleet.pipeline.batches.watch import Stream, follow
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import LogPart
from holdfast.fleet.pipeline.ingest.source import RECORDS, Dump
from holdfast.fleet.pipeline.steps import InMemoryRows
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables

TAKEN = 1_790_000_000
HALF_AN_HOUR = 1_800


def iso(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def stalled(group: str = "etl", *, static: str = "", age_s: float = HALF_AN_HOUR) -> list[Any]:
    """Records of a group; ``static`` names the members that have a static id."""
    members = {}
    for p, name in enumerate(("a-1", "b-1")):
        extra = {"group_instance_id": name.upper()} if name[0] in static else {}
        members[name] = (extra, {"t": [p]})
    records = fleet.classics([generation(group, 3, members, at=TAKEN - 3_600)])
    at = TAKEN - age_s
    return records + [(group, at, fleet.commit(group, "t", p, 100, at=at)) for p in (0, 1)]


def committing(group: str = "other", age_s: float = 1) -> list[Any]:
    """One commit of a group, by nobody who is known."""
    return [(group, TAKEN - age_s, fleet.commit(group, "u", 0, 7, at=TAKEN - age_s))]


def dump_of(
    folder: Path, records: list[Any], taken_at: str | None = iso(TAKEN), **said: str
) -> Path:
    ends = [("t", 0, 0, 5_100), ("t", 1, 0, 5_100), ("u", 0, 0, 7)]
    fleet.write_dump(folder, sorted(records, key=lambda r: r[1]), offsets=ends, taken_at=taken_at)
    document = json.loads((folder / "dump.json").read_text())
    document |= said
    if taken_at is None:
        del document["taken_at"]
    (folder / "dump.json").write_text(json.dumps(document))
    return folder


def found(source: Path, *words: str) -> dict[str, list[str]]:
    """Codes of each group that are active."""
    done = run("doctor", "--input", source, "--format", "json", *words).passed()
    groups = json.loads(done.out)["groups"]
    return {g["group"]: [f["code"] for f in g["findings"] if f["active"]] for g in groups}


@pytest.mark.parametrize("beside", [[], committing()], ids=["alone", "beside"])
@pytest.mark.parametrize("chosen", [(), ("--group", "etl")], ids=["all", "chosen"])
def test_a_group_that_stands_as_a_whole_is_found_whatever_else_was_read(
    tmp_path: Path, beside: list[Any], chosen: tuple[str, ...]
) -> None:
    dump = dump_of(tmp_path / "dump", [*stalled(), *beside])
    assert found(dump, *chosen)["etl"] == ["HF105"]


def test_where_all_groups_stand_each_is_found(tmp_path: Path) -> None:
    dump = dump_of(tmp_path / "dump", stalled("a") + stalled("b", age_s=900))
    assert found(dump) == {"a": ["HF105"], "b": ["HF105"]}


@pytest.mark.parametrize(("static", "codes"), [("a", {"HF105", "HF109"}), ("ab", {"HF109"})])
def test_static_members_that_stand_are_found_alike(
    tmp_path: Path, static: str, codes: set[str]
) -> None:
    dump = dump_of(tmp_path / "dump", stalled(static=static))
    assert set(found(dump, "--group", "etl")["etl"]) == codes


def test_tables_of_a_dump_keep_its_clock(tmp_path: Path) -> None:
    dump = dump_of(tmp_path / "dump", stalled())
    assert run("history", "--input", dump, "-o", tmp_path / "tables").code == 0
    assert found(tmp_path / "tables") == {"etl": ["HF105"]}
    assert window_end_ms(Tables(tmp_path / "tables")) == TAKEN * 1000


def test_merged_dumps_have_the_clock_of_the_one_that_was_taken_last(tmp_path: Path) -> None:
    early = dump_of(tmp_path / "early", stalled(), iso(TAKEN - HALF_AN_HOUR + 10))
    late = dump_of(tmp_path / "late", stalled())
    for order in ((early, late), (late, early)):
        assert run("merge", *order, "-o", tmp_path / "both").code == 0
        assert found(tmp_path / "both") == {"etl": ["HF105"]}
    assert found(early) == {"etl": []}


def test_a_clock_that_ran_behind_the_brokers_ends_no_window_before_its_records(
    tmp_path: Path,
) -> None:
    dump = dump_of(tmp_path / "dump", stalled() + committing(), iso(TAKEN - 7_200))
    assert found(dump)["etl"] == ["HF105"]


@pytest.mark.parametrize("taken_at", [None, "soon"])
def test_a_dump_without_a_clock_has_that_of_its_newest_record_of_any_group(
    tmp_path: Path, taken_at: str | None
) -> None:
    dump = dump_of(tmp_path / "dump", stalled() + committing(), taken_at)
    assert found(dump, "--group", "etl") == {"etl": ["HF105"]}


def test_members_are_not_stuck_because_a_topic_took_long_to_read(tmp_path: Path) -> None:
    """Log ends are read behind the records: what was committed meanwhile is not there."""
    dump = dump_of(tmp_path / "dump", stalled(age_s=1_201), complete_at=iso(TAKEN - 1_200))
    assert found(dump) == {"etl": []}
    assert found(dump_of(tmp_path / "quick", stalled(age_s=1_201))) == {"etl": ["HF105"]}


class Growing:
    """A feed that has twenty records, and then no more; its third look ends the test."""

    session = None

    def __init__(self) -> None:
        self.looks = 0

    def ends(self) -> dict[int, PartitionEnds]:
        self.looks += 1
        if self.looks == 4:
            raise KeyboardInterrupt
        return {0: PartitionEnds(0, 20, 20)}

    def here(self, span: dict[int, tuple[int, int]], waiting: object) -> LogPart:
        upto = {p: end for p, (_, end) in span.items()}
        return LogPart(rows=InMemoryRows(rows=RECORDS.empty_table(), cost_rows=0), upto=upto)


def test_a_stream_says_up_to_when_it_has_every_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it still reads what is there, the newest record is the end; then its last look."""
    moments, said = iter(range(1_000, 9_000, 1_000)), list[int | None]()

    def take(self: Stream, part: LogPart, _: object) -> int:
        said.append(self.complete_us)
        notes = {"query": "q", "offsets": {str(p): o for p, o in part.upto.items()}, "state": {}}
        number = self.tables.next_batch()
        self.tables.commit(Batch(id=number, files={}, notes=notes))
        return number

    monkeypatch.setattr(Stream, "process", take)
    monkeypatch.setattr(Stream, "look", lambda self, _: said.append(self.complete_us) or True)
    monkeypatch.setattr("holdfast.fleet.pipeline.batches.watch._now_us", lambda: next(moments))
    into = Stream(
        Tables(tmp_path / "T"),
        snapshot=lambda: None,
        selection=Selection(),
        every_seconds=30,
        max_records=10,
    )
    with pytest.raises(KeyboardInterrupt):
        follow(Growing(), into, wait=lambda _: None)
    assert said == [None, 1_000, 2_000, 3_000]


@pytest.mark.parametrize(
    ("notes", "end_s"),
    [
        ({"taken_at": iso(TAKEN)}, TAKEN),
        ({"taken_at": iso(TAKEN), "complete_at": iso(TAKEN - 5)}, TAKEN - 5),
        ({"taken_at": iso(TAKEN), "complete_at": ""}, 0),  # it has not read all that is there
        ({}, 0),
    ],
)
def test_the_notes_of_the_newest_batch_say_when_it_was_read(
    tmp_path: Path, notes: dict[str, str], end_s: int
) -> None:
    tables = Tables(tmp_path)
    tables.commit(Batch(id=0, notes=notes))
    assert (window_end_ms(tables) or 0) == end_s * 1000


def test_the_last_hour_is_that_before_a_source_was_read(tmp_path: Path) -> None:
    dump = dump_of(tmp_path / "dump", stalled())
    for words, n_rows in ((("--since", "2h"), 2), (("--since", "20m"), 0)):
        said = ("history", "--input", dump, "--table", "offset_commits", "--format", "json", *words)
        assert len(run(*said).rows()) == n_rows
    assert Dump.open(dump).complete_at == ""
