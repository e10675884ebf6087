"""A stream over a topic in memory that is written, deleted and cleaned meanwhile. No Spark.

After every look the tables have the positions that the coordinator has, whatever happened.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pyarrow.parquet as pq
from hypothesis import example, given
from hypothesis import strategies as st
from tests.pipeline import fleet, local
from tests.pipeline.fleet import classic
from tests.pipeline.histories import generation
from tests.pipeline.local import everything
from tests.pipeline.test_offsets_topic import play
from tests.pipeline.topic_in_memory import OffsetsLog
from tests.suites import dear

from holdfast.fleet.pipeline.batches.watch import Stream, follow
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.tables.folder.manifest import COMPLETE_AT
from holdfast.fleet.tables.reading import Tables

GROUPS = st.sampled_from(["a", "b", "cc"])
WRITES = st.tuples(
    st.sampled_from(["commit", "commit", "begin", "end", "abort"]),
    GROUPS,
    st.integers(0, 1),
    st.integers(0, 9),
)
DELETES = st.tuples(
    st.sampled_from(["delete", "clean", "wipe"]), GROUPS, st.integers(0, 1), st.integers(0, 9)
)
REBALANCES = st.tuples(st.just("round"), GROUPS, st.integers(0, 1), st.integers(0, 2))


READERS = st.sampled_from(["python", "spark"])
SINCE = ("position_timestamp", "lag_seconds", "lag_per_second", "catch_up_seconds", "lag_history")
"""Of a position that was left in a transaction, and taken again before the transaction ended, a
stream does not know since when it stands."""
NARROWED = ("last_seen", "gap_upper_seconds")
"""A commit in a transaction that is open while the next generation is read narrows no gap of it in
a stream: the bound is the wider one of the generation before."""


def between_looks(ops):
    """What happens between looks, and for each the records of a batch and the reader."""
    look = st.tuples(st.lists(ops, max_size=12), st.integers(1, 9), READERS)
    return st.lists(look, max_size=3)


class Watched:
    """A topic, and a folder of tables that follows it."""

    def __init__(self, folder, **options):
        self.log, self.folder, self.options = OffsetsLog(), folder, options
        self.rounds = count(1)
        self.log.commit("a", "t", 0, 0)  # a topic without a record makes no tables

    @property
    def tables(self):
        return Tables(self.folder)

    def stream(self, most=None):
        return Stream(
            tables=self.tables,
            snapshot=self.log.snapshot,
            selection=Selection(all_groups=True),
            max_records=most,
            **self.options,
        )

    def look(self, most=None, reader="python"):
        """What ``watch`` does that is started anew, and ends."""
        follow(self.log.feed(reader), self.stream(most))

    def play(self, op):
        what, group, _, offset = op
        if what == "round":
            members = {f"m-{i}": {"t": [i]} for i in range(offset)}
            at = self.log.now_s
            self.log.append(group, *classic(generation(group, next(self.rounds), members, at=at)))
        else:
            play(self.log, op)

    def play_all(self, parts):
        for ops, most, reader in parts:
            for op in ops:
                self.play(op)
            self.look(most, reader)
            self.check()

    def positions(self):
        return {
            (row["group"], row["topic"], row["partition"]): row["current_offset"]
            for row in self.tables.table("lag").to_pylist()
            if row["status"] == "committed"
        }

    def check(self):
        told = {at: offset for at, (offset, _) in self.log.positions.items()}
        assert self.positions() == told
        commits = self.tables.table("offset_commits")
        places = list(
            zip(
                *(commits[name].to_pylist() for name in ("log_partition", "log_offset")),
                commits["is_tombstone"].to_pylist(),
                strict=True,
            )
        )
        assert len(places) == len({*places})


def whole_run(watched, folder, but):
    """Tables of one run over everything that counts, cleaned or not, when the stream ended."""
    log = watched.log
    about = {COMPLETE_AT: watched.tables.newest_notes()[COMPLETE_AT]}
    dump = fleet.write_dump(folder / "dump", [], taken_at=log.snapshot().taken_at)
    pq.write_table(log.rows(), dump / "records" / "0.parquet")
    fleet.write_part(dump, "offsets", log.snapshot().offsets)
    return everything(local.run(dump, folder / "whole", about=about), but)


@dear
@given(between_looks(WRITES | REBALANCES))
@example(  # a generation is read before the transaction has ended whose commit narrows its gap
    [
        ([("round", "a", 1, 1), ("begin", "a", 0, 9), ("round", "a", 0, 2)], 1, "spark"),
        ([("end", "cc", 0, 0)], 8, "python"),
    ]
)
@example(  # Spark reads one partition while a transaction is open in another one
    [
        ([("begin", "b", 1, 8)], 9, "python"),
        ([("round", "a", 1, 2)], 8, "spark"),
        ([("end", "b", 1, 0)], 6, "python"),
    ]
)
@example(  # the last event of a group is at the end of the window of the first batch
    [
        (
            [
                *[("commit", "a", 0, 0)] * 3,
                ("round", "cc", 0, 0),
                ("round", "a", 0, 0),
                ("commit", "a", 0, 0),
                *[("round", "a", 0, 0)] * 2,
                ("round", "cc", 0, 0),
            ],
            1,
            "python",
        )
    ]
)
@example(  # two groups are amended, the later name first
    [
        (
            [
                ("round", "a", 0, 2),
                ("commit", "a", 0, 0),
                ("round", "b", 0, 2),
                ("commit", "a", 0, 0),
                ("begin", "b", 0, 0),
            ],
            1,
            "spark",
        ),
        (
            [
                ("round", "a", 0, 0),
                *[("commit", group, 0, 0) for group in "ab"],
                ("round", "b", 0, 0),
                *[("commit", "a", 0, 0)] * 2,
            ],
            2,
            "spark",
        ),
    ]
)
def test_a_stream_has_the_tables_of_one_run_whatever_was_open_between_its_batches(
    new_folder, parts
):
    base = new_folder()
    watched = Watched(base / "stream")
    watched.play_all([*parts, ([], 9, "python")])
    unknown = (*SINCE, *NARROWED)
    assert everything(watched.tables, unknown) == whole_run(watched, base, unknown)


@dear
@given(between_looks(WRITES | WRITES | DELETES | REBALANCES))
@example(  # a commit that waited for its transaction is older than the one that was deleted
    [
        ([("begin", "cc", 1, 6), ("commit", "cc", 1, 2)], 9, "python"),
        ([("delete", "cc", 1, 3), ("end", "cc", 1, 1), ("wipe", "b", 1, 0)], 9, "python"),
    ]
)
def test_what_is_deleted_is_gone_though_its_tombstones_are(new_folder, parts):
    """Every look compares positions; groups whose record is gone are dead, all others are not."""
    base = new_folder()
    watched = Watched(base / "stream")
    watched.play_all([*parts, ([], 9, "python")])
    log, last = watched.log, {}
    for _, entry, _ in log.written:
        if entry.key.startswith(b"\0\2"):
            last[entry.key] = entry.value is None
    generations = watched.tables.table("generations").sort_by([("log_offset", "ascending")])
    state = {row["group"]: row["state"] for row in generations.to_pylist()}
    for key, is_deleted in last.items():
        group = key[4:].decode()
        assert group in state or is_deleted  # deleted before any look
        assert (state.get(group, "Dead") == "Dead") == is_deleted


@dear
@given(
    between_looks(WRITES | DELETES),
    st.lists(st.lists(WRITES | st.just(("clean", "a", 0, 0)), max_size=5), max_size=8),
    READERS,
)
def test_no_position_is_lost_where_the_topic_is_cleaned_under_the_eyes_of_a_look(
    new_folder, parts, meanwhile, reader
):
    base = new_folder()
    watched = Watched(base / "stream")
    watched.play_all(parts)
    there = {*watched.log.positions}
    for some in meanwhile:
        watched.log.on_fetch.append(lambda some=some: [watched.play(op) for op in some])
    watched.look(reader=reader)
    watched.log.on_fetch.clear()
    assert there <= watched.positions().keys()
    watched.look()
    watched.check()


def test_log_ends_alone_show_a_commit_beyond_the_end(tmp_path):
    watched = Watched(tmp_path)
    watched.log.commit("a", "t", 0, 1000)
    watched.look()
    assert not watched.tables.table("findings").num_rows
    recreated = watched.log.snapshot()
    recreated.offsets = [("t", 0, 0, 7)]
    replace(watched.stream(), snapshot=lambda: recreated).look()
    assert watched.tables.table("findings")["code"].to_pylist() == ["HF120"]
