"""The jobs of the pipeline without Spark: the same tasks over the same records, in this process."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from tests.pipeline.fleet import write_dump

from holdfast.fleet.pipeline import steps
from holdfast.fleet.pipeline.batches.history import ends_of, topic_names
from holdfast.fleet.pipeline.batches.jobs import STATE_TABLES, Job, remove_staged
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.maintenance import COARSEST_S
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables


@dataclass(slots=True)
class LocalJob(Job):
    """A job whose steps run here, whatever their size, with small batches."""

    batch_rows: int = 20

    def _run(self, step, on_spark=None):
        self.collect(steps.run_here(step, batch_rows=self.batch_rows))

    def make(self, dump, rows, selection, reset, logs):
        held = steps.InMemoryRows(rows=rows, cost_rows=None, here_rows=self.batch_rows)
        ends = ends_of(dump, selection, reset)
        self.tables_of(held, selection, topic_names(dump), ends, logs=logs)


def records_of(dump):
    """Records of a dump, and tombstones that a merge has found."""
    return pa.Table.from_batches(dump.rows().here(), arrow_schema("records"))


def run(path, out_dir, *, batch_rows=20, reset="latest", selection=None, logs=(), about=()):
    """Tables of a dump, and more notes about its reading."""
    dump, tables = Dump.open(path), Tables(out_dir.absolute())
    job = LocalJob(session=None, tables=tables, batch=tables.next_batch(), batch_rows=batch_rows)
    job.resolution_s = COARSEST_S
    job.make(dump, records_of(dump), selection or Selection(all_groups=True), reset, logs)
    notes = {"taken_at": dump.taken_at, **job.notes, **dict(about)}
    notes |= job.examine(notes, replaces=True)
    tables.commit(Batch(id=job.batch, files=job.files, notes=notes), replace=True)
    remove_staged(tables.root)
    return tables


def made(folder, records, *, batch_rows=20, **dump):
    """Tables of a dump of these records."""
    return run(write_dump(folder / "dump", records, **dump), folder / "out", batch_rows=batch_rows)


def rows(tables, name, *columns):
    return [tuple(row[c] for c in columns) for row in tables.table(name).to_pylist()]


def everything(tables, but=()):
    """Every row of every table, without some columns and tables."""
    found = {n: tables.table(n) for n in TABLES if n not in but}
    found = {n: t.drop_columns([c for c in but if c in t.column_names]) for n, t in found.items()}
    return {n: sorted(map(repr, t.to_pylist())) for n, t in found.items()}


def stream(path, out_dir, cuts, *, batch_rows=20, reset="latest", logs=()):
    """Tables of a dump that came in batches, cut at these times in the log; no Spark."""
    dump, tables = Dump.open(path), Tables(out_dir.absolute())
    rows = records_of(dump)
    times = rows["timestamp"].cast(pa.int64()).to_numpy()
    past = {}
    for batch, (low, high) in enumerate(pairwise([-(2**62), *sorted(cuts), 2**62])):
        job = LocalJob(session=None, tables=tables, batch=batch, keep_state=True, past=past)
        job.batch_rows = batch_rows
        job.resolution_s = COARSEST_S if high == 2**62 else None  # the others leave records
        fresh = rows.filter(pa.array((times >= low) & (times < high), pa.bool_()))
        job.make(dump, fresh, Selection(all_groups=True), reset, logs)
        job.amend()
        notes = job.examine({"taken_at": dump.taken_at})
        past = {name: job.files.pop(name, []) for name in STATE_TABLES}
        done = Batch(id=batch, files=job.files, notes=notes)
        tables.commit(done, anew=["lag", "findings"], without=job.amended)
        remove_staged(tables.root)
    return tables
