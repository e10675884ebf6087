"""The step ``findings``: whole groups in, rows of the table ``findings`` out.

**Rules.** A group is examined from all of its rows: those of earlier batches, and those of the
batch in progress. The rows of the findings become visible with the rows that they were made of.
Groups that have not changed, and in which time alone changes nothing, keep their findings: in the
new window they would be the same.

**Strategy.** The input of the step are names of groups. A task reads the rows of its groups itself,
so no row passes through the JVM: the files of a batch are sorted by group, and only the row groups
that may hold one of the names are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.analysis.findings.stored import Examined, examined_rows
from holdfast.fleet.analysis.group.group_history import read_groups
from holdfast.fleet.analysis.group.lag import NEVER, LagRows
from holdfast.fleet.analysis.group.rebuilding import CommitTimes
from holdfast.fleet.columnar import Batches, BatchTask, DecodedRows
from holdfast.fleet.pipeline.steps import InMemoryRows, Input, Step
from holdfast.fleet.tables.columns.stored import NOT_LOADED
from holdfast.fleet.tables.folder.delta_log import DataFile
from holdfast.fleet.tables.folder.snapshot import ListedFiles, SnapshotCache
from holdfast.fleet.tables.folder.writing import FILES_SCHEMA, BatchWriter
from holdfast.fleet.tables.reading import GROUPS_AT_ONCE, Tables
from holdfast.fleet.tables.storage.paths import StoragePath, storage_path

FindingsFiles = Mapping[str, Sequence[DataFile]]

_NAMES: Final = pa.schema([("group", pa.string())])
_GROUP_ROWS: Final = 200
"""An examination costs as much as so many records."""
_OF_LAG: Final = (
    *("lag", "has_unread", "current_offset", "log_end_offset", "log_start_offset"),
    "clamped",
)
"""Columns of ``lag`` that say whether records wait, and whether a commit is outside of the log."""
_NOT_READ: Final = frozenset({*NOT_LOADED, "bad_records", "findings"})


def listed_tables(root: StoragePath, files: FindingsFiles) -> Tables:
    """Return the tables of some files."""
    return Tables(root, ListedFiles(SnapshotCache(root), listed=files))


def findings_step(
    root: StoragePath, batch: int, files: FindingsFiles, groups: Sequence[str], window: Examined
) -> Step:
    """Return the step that examines groups and writes their findings."""
    names = pa.table({"group": pa.array(sorted(groups), pa.string())})
    rows = InMemoryRows(
        rows=names,
        cost_rows=_GROUP_ROWS * len(groups),
        task_rows=GROUPS_AT_ONCE,
        here_rows=GROUPS_AT_ONCE,
    )
    task = _task(str(root), batch, files, window)
    return Step(what="groups", inputs=[Input(rows=rows, into=task)], schema=FILES_SCHEMA)


def _task(root: str, batch: int, files: FindingsFiles, window: Examined) -> BatchTask:
    def run(batches: Batches) -> Batches:
        writer = BatchWriter(root, batch)
        stored = listed_tables(storage_path(root), files)
        for rows in batches:
            names = rows["group"].to_pylist()
            tables = stored.load(names, without=_NOT_READ)
            since_ms = NEVER if window.since_ms is None else window.since_ms
            found = read_groups(
                tables,
                names,
                last_ms=window.end_ms,
                since_ms=since_ms,
                commits=CommitTimes(stored, names),
            )
            writer.write("findings", examined_rows(found))
        yield from writer.close().to_batches()

    return run


def changed_groups(new: Tables, before: pa.Table, *, is_open: bool) -> list[str]:
    """Return the groups whose findings a batch may change.

    Parameters
    ----------
    new : Tables
        Rows of the batch: records that wait become a finding by time alone, and log ends that were
        read again may leave a commit outside of the log.
    before : Table
        The findings so far: one that is active may end by time alone.
    is_open : bool
        Whether the window has no begin: else a past finding may leave it.
    """
    open_ones = before.filter(before["ended_timestamp"].is_null()) if is_open else before
    names = ("generations", "rebalances", "ownership_gaps", "anomalies", "offset_commits")
    found = [new.stored(name, columns=["group"])["group"] for name in names]
    found.append(open_ones["group"])
    lag = new.stored("lag", columns=["group", *_OF_LAG])
    rows = LagRows(DecodedRows.of(lag))
    waits = (rows.work > 0) | ((rows.committed < 0) & (rows.end > rows.begin))
    waits[rows.clamped("before_begin")] = True
    waits[rows.clamped("beyond_end")] = True
    found.append(lag["group"].filter(pa.array(waits)))
    chunks = [chunk for column in found for chunk in column.chunks]
    return sorted(pc.unique(pa.chunked_array(chunks, pa.string())).to_pylist())


def kept_findings(before: pa.Table, changed: Sequence[str], end_ms: int) -> pa.Table:
    """Return the findings of groups that have not changed, as of the end of a new window."""
    kept = before.filter(pc.invert(pc.is_in(before["group"], pa.array(changed, pa.string()))))
    at = kept.schema.get_field_index("timestamp")
    column = kept.schema.field(at)
    newest = pc.max_element_wise(kept["timestamp"].cast(pa.int64()), 1000 * end_ms)
    return kept.set_column(at, column, newest.cast(column.type))
