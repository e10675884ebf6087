"""The first step of a batch: write commits where they are read, send other records to their groups.

**Rules.** Every record is looked at once. A record of a commit's type becomes a row of
``offset_commits`` or of ``bad_records``; every other record goes on, as bytes, with its group
beside it. A record whose partition or offset is below 0 or null has no place in a log: it becomes a
bad record. Each row that goes on says in ``kind`` what it is (:class:`RowKind`), and what the
pipeline tells itself stands in ``message``, a column that no record has: so nothing that a record
holds can be taken for a row of ours. A task also sends the names of its files on, as a row.
So the names reach the driver exactly when the task's output counts, and the files of a task that
ran twice are named once.

**Strategy.** Records come from Spark, or the task opens the files of a dump itself: Arrow reads
them at a fifth of what the way through the JVM costs, and nine records out of ten are commits.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.core.model.columns import Mask
from holdfast.fleet.pipeline.arrow_types import Arrays, Batches, BatchTask
from holdfast.fleet.pipeline.ingest.arrow_columns import binary_column, constant, filled_batch
from holdfast.fleet.pipeline.ingest.decode import (
    COMMIT_TYPES,
    Decoded,
    bad_table,
    key_types,
    placed,
    read_commits,
)
from holdfast.fleet.pipeline.ingest.pieces import RECORDS
from holdfast.fleet.pipeline.ingest.positions import POSITIONS, from_commits, reduced
from holdfast.fleet.pipeline.ingest.selection import Selection, group_names
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.folder.writing import BatchWriter
from holdfast.fleet.tables.storage.parquet import BATCH_BYTES


class RowKind(IntEnum):
    """What a row on its way to its group is. The rows of a group are sorted by it."""

    FILES = 0
    """``message`` names the files that a task of this step wrote, as JSON; no group."""
    STATE = 1
    """``message`` is what the batch before kept of the group."""
    RECORD = 2
    """A record of the group, as it stands in the topic."""


SPLIT: Final = arrow_schema("split")
SPLIT_ORDER: Final = ("group", "kind", "partition", "offset")
"""How the rows come to the task of their group."""

_REDUCE_ROWS: Final = 250_000


def split_task(root: str, batch: int, selection: Selection) -> BatchTask:
    """Records as Spark has them to ``offset_commits`` and rows of :data:`SPLIT`."""

    def run(batches: Batches) -> Batches:
        step = _Split(BatchWriter(root, batch), selection)
        for rows in batches:
            yield from step.take(rows)
        yield step.files()

    return run


class _Split:
    """One task's work."""

    def __init__(self, writer: BatchWriter, selection: Selection):
        self.writer = writer
        self.selection = selection
        self.waiting: list[pa.Table] = []
        self.n_waiting = 0

    def take(self, rows: pa.RecordBatch) -> Batches:
        keep = self.selection.keep(rows["key"])
        if keep is not None and not keep.all():
            rows = rows.filter(pa.array(keep))
        rows, misplaced = placed(rows)
        if misplaced is not None:
            self.writer.write("bad_records", pa.Table.from_batches([misplaced]))
        commit = is_commit(rows["key"])
        n_commits = int(np.count_nonzero(commit))
        if n_commits:
            self._commits(rows if n_commits == rows.num_rows else rows.filter(pa.array(commit)))
        if n_commits < rows.num_rows:
            rest = rows if not n_commits else rows.filter(pa.array(~commit))
            yield from _with_group(rest)

    def _commits(self, rows: pa.RecordBatch) -> None:
        out = Decoded()
        read_commits(rows, out)
        commits = pa.Table.from_batches(out.commits, arrow_schema("offset_commits"))
        self.writer.write("offset_commits", commits)
        self.writer.write("bad_records", bad_table(out))
        self.writer.unknown += out.unknown
        self.waiting.append(from_commits(commits))
        self.n_waiting += commits.num_rows
        if self.n_waiting >= _REDUCE_ROWS:
            self._reduce()

    def _reduce(self) -> None:
        if self.waiting:
            self.writer.write(POSITIONS, reduced(pa.concat_tables(self.waiting)))
        self.waiting, self.n_waiting = [], 0

    def files(self) -> pa.RecordBatch:
        """One row that names the files of this task."""
        self._reduce()
        files = json.dumps(self.writer.close().to_pylist())
        columns = {
            "group": pa.array([b""], pa.binary()),
            "message": pa.array([files], pa.binary()),
        }
        return split_rows(RowKind.FILES, columns, 1)


def split_rows(kind: RowKind, columns: Arrays, n_rows: int) -> pa.RecordBatch:
    """Rows of :data:`SPLIT`; columns that are not given are null."""
    kinds = {"kind": constant(int(kind), pa.int32(), n_rows)}
    return filled_batch(columns | kinds, SPLIT, n_rows)


def _with_group(rows: pa.RecordBatch) -> Batches:
    """Records with their group, in batches of bounded size."""
    columns = {field.name: rows[field.name].cast(field.type, safe=False) for field in RECORDS}
    columns["group"] = group_names(binary_column(rows["key"]))
    whole = split_rows(RowKind.RECORD, columns, rows.num_rows)
    step = max(1, whole.num_rows * BATCH_BYTES // max(whole.nbytes, 1))
    for start in range(0, whole.num_rows, step):
        yield whole.slice(start, step)


def is_commit(keys: pa.Array) -> Mask:
    """Whether each record is an offset commit by its key's type; False for a key without one."""
    found, types = key_types(keys)
    found[found] = np.isin(types, COMMIT_TYPES)
    return found


def by_kind(batch: pa.RecordBatch) -> list[tuple[RowKind, pa.RecordBatch]]:
    """Rows of :data:`SPLIT`, sorted as Spark sorts them, by what they are: records last."""
    kind = batch["kind"].to_numpy()
    if bool((kind == RowKind.RECORD).all()):
        return [(RowKind.RECORD, batch)]
    found = [(one, kind == one) for one in RowKind]
    return [(one, batch.filter(pa.array(rows))) for one, rows in found if rows.any()]


def file_names(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """What rows of kind FILES hold, as rows of the table ``files``."""
    return [file for value in batch["message"].to_pylist() for file in json.loads(value)]
