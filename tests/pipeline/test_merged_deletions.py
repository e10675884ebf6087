"""What was deleted between dumps stays deleted in their merge, and keeps its history. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline import fleet, local
from tests.pipeline.fleet import classic
from tests.pipeline.histories import generation
from tests.pipeline.test_offsets_topic import play
from tests.pipeline.test_stream_of_log import DELETES, REBALANCES, WRITES
from tests.pipeline.topic_in_memory import OffsetsLog, write_dump
from tests.suites import dear

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest.merge import merge_dumps
from holdfast.fleet.pipeline.ingest.source import Dump

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def hour(n):
    return (NOON + timedelta(hours=n)).isoformat()


def positions(tables):
    return {
        (row["group"], row["topic"], row["partition"]): row["current_offset"]
        for row in tables.table("lag").to_pylist()
        if row["status"] == "committed"
    }


def told(log):
    return {at: offset for at, (offset, _) in log.positions.items()}


class Dumped:
    """A topic that is dumped again and again."""

    def __init__(self, folder):
        self.folder, self.log, self.dumps, self.rounds = folder, OffsetsLog(), [], count(1)
        self.log.commit("a", "t", 0, 0)

    def play(self, ops):
        for what, group, number, offset in ops:
            if what == "round":
                members = {f"m-{i}": {"t": [i]} for i in range(offset)}
                made = generation(group, next(self.rounds), members, at=self.log.now_s)
                self.log.append(group, *classic(made))
            else:
                play(self.log, (what, group, number, offset))

    def dump(self, **options):
        n = len(self.dumps)
        self.dumps.append(write_dump(self.log, self.folder / f"d{n}", taken_at=hour(n), **options))

    def merge(self, name, *dumps):
        return merge_dumps([*dumps], self.folder / name)


PARTS = st.lists(st.lists(WRITES | DELETES | REBALANCES, max_size=12), min_size=2, max_size=4)


@dear
@given(PARTS, st.randoms(), st.booleans())
def test_a_merge_has_the_positions_of_its_newest_dump_and_every_record(
    new_folder, parts, random, says_read
):
    base = new_folder()
    dumped = Dumped(base)
    for ops in parts:
        dumped.play(ops)
        dumped.dump(says_read=says_read)
    order = [*dumped.dumps]
    random.shuffle(order)
    merged = dumped.merge("all", *order)
    found = positions(local.run(merged.path, base / "tables"))
    if says_read:
        assert found == told(dumped.log)
    else:  # what a stranger has read behind its last record, nobody knows
        assert told(dumped.log).items() <= found.items()
    held = {place for dump in dumped.dumps for place in places(Dump.open(dump))}
    assert places(merged) == sorted(held)
    # Merging some of them first changes nothing.
    cut = random.randint(1, len(order) - 1)
    first = dumped.merge("first", *order[:cut], order[0]) if cut > 1 else Dump.open(order[0])
    again = dumped.merge("again", first.path, *order[cut:])
    assert places(again) == places(merged)
    if says_read:
        assert positions(local.run(again.path, base / "again-tables")) == told(dumped.log)


def places(dump):
    rows = pa.concat_tables([pq.read_table(file) for file in dump.record_files()])
    return sorted(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def lived(folder, *, between=lambda log: None):
    """A group that was deleted between two dumps, its tombstones gone, beside one that stays."""
    dumped = Dumped(folder)
    dumped.log = log = OffsetsLog(n_partitions=1)
    members = {"m-0": {"t": [0, 1]}}
    log.append("gone", *classic(generation("gone", 1, members, at=log.now_s)))
    log.commit("gone", "t", 0, 5)
    log.commit("gone", "t", 1, 6)
    log.commit("stays", "t", 0, 5)
    dumped.dump()
    log.delete("gone")
    between(log)
    for offset in (7, 8):
        log.commit("stays", "t", 0, offset)
    log.clean(tombstones=True)
    dumped.dump()
    return dumped


def test_a_deleted_group_keeps_its_history_and_has_no_present(tmp_path):
    dumped = lived(tmp_path)
    merged = dumped.merge("days", *dumped.dumps)
    tables = local.run(merged.path, tmp_path / "tables")
    assert positions(tables) == {("stays", "t", 0): 8}
    states = [
        (row["generation"], row["state"], row["timestamp"].isoformat())
        for row in tables.table("generations").to_pylist()
        if row["group"] == "gone"
    ]
    assert states[0][:2] == (1, "Stable") and states[1] == (-1, "Dead", hour(1))
    lost = [row["kind"] for row in tables.table("movements").to_pylist()]
    assert lost == []  # nothing is told of a group that is deleted, as of one with a tombstone
    commits = [row for row in tables.table("offset_commits").to_pylist() if row["group"] == "gone"]
    assert [row["offset"] for row in commits] == [5, 6, None, None]
    # Its tombstones stand behind the first dump; those of commits have places of their own.
    deleted = merged.deleted().to_pylist()
    assert [(row["key"][1], row["offset"]) for row in deleted] == [(1, 4), (2, 4), (1, 5)]
    assert merged.read == {0: (0, 9)}
    assert {row["timestamp"].isoformat() for row in deleted} == {hour(1)}


def test_a_group_that_came_back_is_there(tmp_path):
    def again(log):
        members = {"n-0": {"t": [0]}}
        log.append("gone", *classic(generation("gone", 1, members, at=log.now_s)))
        log.commit("gone", "t", 0, 1)

    dumped = lived(tmp_path, between=again)
    merged = dumped.merge("days", *dumped.dumps)
    tables = local.run(merged.path, tmp_path / "tables")
    # Of its first life the commit of partition 1 is gone; partition 0 and the group are back.
    assert positions(tables) == {("stays", "t", 0): 8, ("gone", "t", 0): 1}
    assert [row["key"] for row in merged.deleted().to_pylist()] == [
        fleet.commit("gone", "t", 1, None, at=0)[0]
    ]


def test_a_member_that_left_between_the_dumps_is_gone_though_its_group_is_not(tmp_path):
    log = OffsetsLog(n_partitions=1)
    dumped = Dumped(tmp_path)
    dumped.log = log

    def of(member, partitions):
        yield fleet.consumer_member("g", member, ["t"])
        yield fleet.consumer_target("g", member, {"t": partitions})
        yield fleet.consumer_current("g", member, 1, {"t": partitions})

    def epoch(n):
        yield fleet.consumer_epoch("g", n)
        yield fleet.assignment_epoch("g", n)

    for record in (*of("a-1", [0]), *of("b-1", [1]), *epoch(1)):
        log.append("g", *record)
    dumped.dump()
    for record in (*(fleet.tombstone(n, "g", "b-1") for n in (8, 7, 5)), *of("a-1", [0, 1])):
        log.append("g", *record)
    for record in epoch(2):
        log.append("g", *record)
    log.clean(tombstones=True)
    dumped.dump()
    merged = dumped.merge("days", *dumped.dumps)
    tables = local.run(merged.path, tmp_path / "tables")
    rows = [(r["generation"], r["member_id"]) for r in tables.table("members").to_pylist()]
    assert rows == [(1, "a-1"), (1, "b-1"), (2, "a-1")]
    assert [row["key"][1] for row in merged.deleted().to_pylist()] == [8, 7, 5]


def test_a_commit_that_was_open_in_a_dump_was_not_deleted(tmp_path):
    dumped = Dumped(tmp_path)
    log = dumped.log
    log.commit("g", "t", 0, 3, producer=1)
    dumped.dump()
    log.end(1)
    dumped.dump()
    log.commit("g", "t", 0, 4, producer=1)
    dumped.dump()
    merged = dumped.merge("days", *dumped.dumps)
    assert not merged.deleted().num_rows
    assert positions(local.run(merged.path, tmp_path / "tables"))["g", "t", 0] == 3


def test_a_dump_of_some_groups_proves_nothing_of_others(tmp_path):
    dumped = lived(tmp_path)
    about = dumped.dumps[1] / "dump.json"
    about.write_text(about.read_text().replace('"records"', '"groups": ["stays"], "records"'))
    merged = dumped.merge("days", *dumped.dumps)
    assert not merged.deleted().num_rows and merged.read == {0: (0, 4)}
    about.write_text(about.read_text().replace('["stays"]', '["go*"]'))
    assert dumped.merge("other", *dumped.dumps).deleted().num_rows == 3


def test_a_later_dump_that_has_the_group_again_moves_its_end(tmp_path):
    """Monday and Friday are merged first, then Wednesday, in which it still lived."""
    dumped = lived(tmp_path)
    monday, friday = dumped.dumps
    dumped.log.log[0] = []
    log = OffsetsLog(n_partitions=1)
    log.ends[0] = 4
    log.commit("gone", "t", 0, 9)  # offset 4, which tombstones of the merge have taken
    between = write_dump(log, tmp_path / "wednesday", taken_at=hour(0.5))
    first = dumped.merge("first", monday, friday)
    whole = dumped.merge("whole", first.path, between)
    assert positions(local.run(whole.path, tmp_path / "tables")) == {("stays", "t", 0): 8}
    rows = whole.deleted().to_pylist()
    assert min(row["offset"] for row in rows if row["key"][1] == 1) > 4


@pytest.mark.parametrize(
    "said",
    ['{"0": [5, 4]}', '{"0": [0]}', '{"x": [0, 1]}', "[1]", '{"0": [0, 1e99]}', '{"0": [-1, 2]}'],
)
def test_what_a_stranger_says_it_has_read_is_checked(tmp_path, said):
    dumped = lived(tmp_path)
    about = dumped.dumps[0] / "dump.json"
    about.write_text(about.read_text().replace('"read": {', f'"read": {said}, "other": {{'))
    with pytest.raises(SourceError, match="`read` has no"):
        Dump.open(dumped.dumps[0])


def test_share_groups_are_those_of_the_newest_dump(tmp_path):
    """All of their topic is read each time, so an older dump has nothing to add."""
    dumped = lived(tmp_path)
    fleet.write_part(dumped.dumps[0], "share_state", [(0, 1, 1, b"k", b"v")])
    merged = dumped.merge("days", *dumped.dumps)
    assert not merged.share_state().num_rows
