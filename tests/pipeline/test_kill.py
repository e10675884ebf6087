"""A stream is killed with SIGKILL in every stage of a batch, and goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation
from tests.pipeline.local import everything
from tests.pipeline.test_stream import consumer_records

from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.manifest import COMPLETE_AT
from holdfast.fleet.tables.reading import Tables

SCRIPT = Path(__file__).with_name("stream_that_dies.py")


def lived(folder):
    """A dump in three files, in the order in which they were written."""
    records = consumer_records("new")
    for n, members in enumerate(({"a-1": [0, 1]}, {"a-1": [0], "b-1": [1]}, {"b-1": [0, 1]})):
        owned = {m: {"t": p} for m, p in members.items()}
        at = 101 + 8 * n
        records.append(("old", at, fleet.classic(generation("old", n, owned, at=at))))
        records.append(("old", at + 2, fleet.commit("old", "t", 0, n, at=at + 2)))
    records.append(("old", 109, (b"\x00\x02", b"")))
    records.sort(key=lambda record: record[1])
    ends = [("t", 0, 0, 9), ("t", 1, 0, 9)]
    fleet.write_dump(folder, records, topics=[("t", 2)], offsets=ends, files=3)
    for i in range(3):  # the source takes files in the order of their times
        os.utime(folder / "records" / f"{i}.parquet", (1_000_000 + i, 1_000_000 + i))
    return folder


def start(dump, out, *stage):
    """Run the stream to its end or its death; its exit code."""
    command = [sys.executable, str(SCRIPT), str(dump), str(out), *map(str, stage)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr[-3000:]
    return ended.returncode


@pytest.mark.slow
def test_killed_in_every_stage_it_resumes_to_the_tables_of_one_run(tmp_path):
    dump, out = lived(tmp_path / "dump"), tmp_path / "out"
    ids = []
    for stage, batch in (
        ("before-write", 0),
        ("between-tables", 1),
        ("between-entries", 1),
        ("before-commit", 1),
        ("before-rename", 1),
        ("after-rename", 2),
    ):
        assert start(dump, out, stage, batch) == -signal.SIGKILL
        ids.append([b.id for b in Tables(out).committed()])
    assert ids == [[], [0], [0], [0], [0, 1], [0, 1, 2]]
    assert start(dump, out) == 0
    read_at = {COMPLETE_AT: Tables(out).newest_notes()[COMPLETE_AT]}  # the end of the window
    whole = local.run(dump, tmp_path / "whole", about=read_at)
    assert everything(Tables(out)) == everything(whole)
    assert [b.id for b in Tables(out).batches()] == [0, 1, 2]
    named = {str(f.relative_to(out)) for name in TABLES for f in Tables(out).files(name)}
    found = {str(f.relative_to(out)) for f in out.glob("[a-z]*/batch-*/*.parquet")}
    # What the last kill left unswept is named by nothing, and goes with the next commit.
    assert named <= found
