"""A stream over a folder of records that kills itself at one stage of one batch: run by a test.

``python stream_that_dies.py DUMP OUT [STAGE BATCH]``. SIGKILL cannot be caught: nothing of the
process runs after it.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import reduce
from operator import or_
from pathlib import Path

import pyarrow as pa
from pyarrow.compute import field as F  # noqa: N812

from holdfast.cluster.cluster import PartitionEnds
from holdfast.fleet.pipeline.batches.jobs import Job
from holdfast.fleet.pipeline.batches.watch import Stream, follow
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import LogPart
from holdfast.fleet.pipeline.ingest.source import RECORDS, Dump
from holdfast.fleet.pipeline.steps import InMemoryRows
from holdfast.fleet.tables.folder.delta_log import LOG
from holdfast.fleet.tables.folder.manifest import COMMITS, MANIFEST
from holdfast.fleet.tables.reading import Tables

THIRD = 11
"""Offsets of a batch: a third of those of the dump."""


class FixedSnapshot:
    """What a cluster says, as the dump has it."""

    def __init__(self, dump):
        self.cluster_id, self.taken_at = dump.cluster_id, dump.taken_at
        self.topics = [tuple(row.values()) for row in dump.topics().to_pylist()]
        self.offsets = [tuple(row.values()) for row in dump.offsets().to_pylist()]
        self.share_state = [tuple(row.values()) for row in dump.share_state().to_pylist()]


class DumpFeed:
    """The records of a dump, whose offsets begin with 0 in each partition."""

    session = None

    def __init__(self, dump):
        self.dump = dump

    def ends(self):
        rows = self.dump.offsets().to_pylist()
        own = [row for row in rows if row["topic"] == "__consumer_offsets"]
        return {
            row["partition"]: PartitionEnds(
                row["begin_offset"], row["end_offset"], row["end_offset"]
            )
            for row in own
        }

    def here(self, span, waiting):
        rows = pa.Table.from_batches(self.dump.rows().here(), RECORDS)
        inside = [
            (F("partition") == p) & (F("offset") >= begin) & (F("offset") < end)
            for p, (begin, end) in span.items()
        ]
        rows = rows.filter(reduce(or_, inside))
        held = InMemoryRows(rows=rows, cost_rows=rows.num_rows)
        return LogPart(rows=held, upto={p: end for p, (_, end) in span.items()})


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(stage, batch, into):
    """Die in ``batch``: before anything is written, between tables or entries, or around."""
    process, rename, link = Stream.process, Path.replace, Path.hardlink_to
    names = {f"rebalances/{LOG}": "between-entries", COMMITS: "before-commit"}
    now = []

    def processed(self, part, session):
        now[:] = [self.tables.next_batch()]
        if stage == "before-write" and now == [batch]:
            die()
        return process(self, part, session)

    def renamed(self, target):
        if stage == "before-rename" and now == [batch] and Path(target).name == MANIFEST:
            die()
        done = rename(self, target)
        if stage == "after-rename" and now == [batch] and Path(target).name == MANIFEST:
            die()
        return done

    def linked(self, target):
        at = str(self.parent.relative_to(into))
        if stage == names.get(at) and now == [batch] and self.stem.isdigit():
            die()
        link(self, target)

    lag = Job.lag

    def between(self, ends, times=None):
        if stage == "between-tables" and now == [batch]:
            die()
        lag(self, ends, times)

    Stream.process, Path.replace, Job.lag = processed, renamed, between
    Path.hardlink_to = linked


def main():
    dump, out = Dump.open(sys.argv[1]), Path(sys.argv[2])
    if len(sys.argv) > 3:
        arrange(sys.argv[3], int(sys.argv[4]), out)
    snapshot = FixedSnapshot(dump)
    into = Stream(
        tables=Tables(out),
        snapshot=lambda: snapshot,
        selection=Selection(),
        max_records=THIRD,
    )
    follow(DumpFeed(dump), into)


if __name__ == "__main__":
    main()
