"""The jobs of the pipeline without Spark: the same tasks over the same records, in this process."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.pipeline.batches.jobs import STATE_TABLES, Job, remove_staged
from holdfast.pipeline.batches.state import STATE
from holdfast.pipeline.history.history import ends_of, topic_names
from holdfast.pipeline.ingest.selection import Selection
from holdfast.pipeline.ingest.source import Dump
from holdfast.tables.columns.schemas import arrow_schema
from holdfast.tables.folder.files import read_parquet
from holdfast.tables.folder.manifest import Batch
from holdfast.tables.reading import Tables


class LocalJob(Job):
    """A job whose first two steps run here; the others have little to do and run here anyway."""

    def work(self, rows, names, *, batch_rows, selection, state=()):
        records = iter(rows.combine_chunks().to_batches(max_chunksize=batch_rows))
        self.read_here(records, selection, names, state=state, batch_rows=batch_rows)


def records_of(dump):
    files = dump.record_files()
    return pa.concat_tables([pq.read_table(f).cast(arrow_schema("records")) for f in files])


def run(path, out_dir, *, batch_rows=7, reset="latest", selection=None, logs=()):
    """Tables of a dump."""
    dump, tables = Dump.open(path), Tables(out_dir.absolute())
    job = LocalJob(spark=None, tables=tables, batch=tables.next_batch())
    selection = selection or Selection(all_groups=True)
    names = topic_names(dump)
    job.work(records_of(dump), names, batch_rows=batch_rows, selection=selection)
    job.lag(ends_of(dump, selection, reset))
    job.pauses()
    job.restate(logs)
    notes = job.notes
    tables.commit(Batch(id=job.batch, files=job.files, notes=notes), replace=True)
    remove_staged(tables.root)
    return tables


def stream(path, out_dir, cuts, *, batch_rows=7, reset="latest", logs=()):
    """Tables of a dump that came in batches, cut at these times in the log; no Spark."""
    dump, tables = Dump.open(path), Tables(out_dir.absolute())
    rows = records_of(dump)
    times = rows["timestamp"].cast(pa.int64()).to_numpy()
    ends = ends_of(dump, Selection(all_groups=True), reset)
    past = {}
    for batch, (low, high) in enumerate(pairwise([-(2**62), *sorted(cuts), 2**62])):
        job = LocalJob(spark=None, tables=tables, batch=batch, keep_state=True, past=past)
        fresh = rows.filter(pa.array((times >= low) & (times < high), pa.bool_()))
        kept = [read_parquet(tables.root / f) for f, _ in past.get(STATE, [])]
        everything = Selection(all_groups=True)
        names = topic_names(dump)
        job.work(fresh, names, batch_rows=batch_rows, selection=everything, state=kept)
        job.lag(ends)
        job.pauses()
        job.restate(logs)
        past = {name: job.files.pop(name, []) for name in STATE_TABLES}
        job.amend()
        tables.commit(Batch(id=batch, files=job.files), anew=["lag"], without=job.amended)
        remove_staged(tables.root)
    return tables
