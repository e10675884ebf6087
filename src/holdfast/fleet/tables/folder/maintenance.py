"""Maintenance of a folder of tables: merge small files, delete old rows, and thin lag over time.

**Rules.** A merge changes no row. Retention deletes a row when its time is before the horizon, and
keeps what a later batch or a reader still needs. It keeps everything of a group's last generation,
which is current, and everything of a generation with an open ownership gap, whose gaps are still to
be added. ``lag`` is a snapshot and is not changed. Merge and retention are commits
like any other: a reader sees all of it or nothing, and the snapshot before stays readable for a
while.

**Strategy.** MERGE_FILES files of a table with about as many rows become one file that is sorted
by group (size-tiered merging, as in log-structured trees): a row is rewritten once for each power
of MERGE_FILES, so the cost of a batch does not grow. Rows are counted and not bytes: of a small
file most bytes are its footer, so 32 of them merged are hardly larger than one, and would be
merged again with every 31 that follow. A large merge is written as several files of many row
groups, so that the rows of one group are found by bounds in the log and in one footer, and read
without the others.

Of ``lag_history`` the older a reading, the fewer stay (:data:`KEPT_S`): of each period of N
seconds, the first one. All rows of a reading have the same moment, so whether it is the first of a
period is known when it is written: ``resolution_seconds`` says so, and every file has one
resolution. So thinning takes whole files out of the table, in the commit of a batch, and rewrites
none, however many groups there are. Each resolution lasts for less than 32 merges of 32 readings at
a poll interval of 5 s or more, so a row is rewritten once.

References: Thanos and RRDtool keep resolutions (``raw``, ``5m``, ``1h``) in the same way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.tables.columns.definition import Table
from holdfast.fleet.tables.columns.schemas import to_us
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.commits import Folder
from holdfast.fleet.tables.folder.delta_log import DataFile
from holdfast.fleet.tables.folder.files import checked_files, run_of, write_merged
from holdfast.fleet.tables.folder.manifest import Batch, Files, Manifest
from holdfast.fleet.tables.folder.snapshot import FolderSnapshot, conform
from holdfast.fleet.tables.storage.parquet import BoundedParquet
from holdfast.fleet.tables.storage.paths import StoragePath

MERGE_FILES: Final = 32
"""So many files of about one size are merged."""
SMALL_ROWS: Final = 32
"""Files of up to so many rows count as equal."""
LARGE_BYTES: Final = 256 << 20
"""A file of this size is merged no more."""
RETENTION_DAYS: Final = 90
"""Days for which ``watch`` retains rows by default."""
MAINTENANCE_EVERY: Final = 8
"""Batches, or polls, between two maintenance runs of ``watch``."""
DROPPED: Final = "dropped_before"
"""Note of a batch: rows before this moment were dropped, in microseconds since 1970."""
DAY_US: Final = 86_400_000_000
RETAINED: Final = tuple(name for name in TABLES if name != "lag")

MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400

KEPT_S: Final = {
    0: 75 * MINUTE_S,
    MINUTE_S: 8 * HOUR_S,
    5 * MINUTE_S: 2 * DAY_S,
    HOUR_S: 14 * DAY_S,
    6 * HOUR_S: None,
}
"""How long a reading stays that is the first of so many seconds; None: like rows of other tables.

The ranges of a page decide: 1 h has every reading, 6 h one a minute (360 points), 24 h one in 5
minutes (288), 7 d one an hour (168), and the 90 days of ``watch`` one in 6 hours (360), each with a
quarter more, so that the oldest part of a picture is not empty.
"""
COARSEST_S: Final = max(KEPT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceResult:
    """Result of maintenance."""

    merged: int = 0  # files that were merged
    written: int = 0  # files that replace them
    # Rows before the horizon that were deleted, by table.
    dropped: Mapping[str, int] = field(default_factory=dict)


def merge(folder: Folder, *, everything: bool = False) -> MaintenanceResult:
    """Merge small files of every table, where enough (or, with ``everything``, two) are due."""
    now = folder.newest()
    alike = [(n, some) for n in now.manifest.tables for some in _alike(now.data_files(n))]
    found = [(name, due_files(some, everything=everything)) for name, some in alike]
    due = [(name, some) for name, some in found if some]
    if not due:
        return MaintenanceResult()
    files: dict[str, list[tuple[str, int]]] = {}
    for name, some in due:
        parts = [_read(folder.root, name, file) for file in some]
        files.setdefault(name, []).extend(write_merged(folder.root, name, parts))
    gone = [file.name for _, some in due for file in some]
    _commit(folder, now.manifest, files, gone, operation="OPTIMIZE")
    return MaintenanceResult(merged=len(gone), written=sum(map(len, files.values())))


def drop_before(folder: Folder, horizon_us: int) -> MaintenanceResult:
    """Delete rows before a moment, except those still needed; one commit, or none."""
    now = folder.newest()
    old = {n: [f for f in now.data_files(n) if _reaches(f, horizon_us)] for n in RETAINED}
    if not any(old.values()):
        _commit(folder, now.manifest, {}, (), operation="DELETE", horizon_us=horizon_us)
        return MaintenanceResult()
    current = _current(now)
    files: dict[str, list[tuple[str, int]]] = {}
    gone: list[str] = []
    dropped: dict[str, int] = {}
    for name, found in old.items():
        for file in found:
            rows = _read(folder.root, name, file)
            keep = _retained(rows, TABLES[name], horizon_us, current)
            if keep.all():
                continue
            gone.append(file.name)
            dropped[name] = dropped.get(name, 0) + int(np.count_nonzero(~keep))
            left = rows.filter(pa.array(keep))
            files.setdefault(name, []).extend(write_merged(folder.root, name, [left]))
    _commit(folder, now.manifest, files, gone, operation="DELETE", horizon_us=horizon_us)
    return MaintenanceResult(
        dropped=dropped, merged=len(gone), written=sum(map(len, files.values()))
    )


def maintain(
    folder: Folder, *, retention_days: float | None, now_us: int | None = None
) -> MaintenanceResult:
    """Merge files for ``watch``, and drop rows that are older than ``retention_days``.

    The horizon is the beginning of a day, UTC, so rows are dropped once a day.
    """
    merged = merge(folder)
    base = folder.newest().manifest
    if retention_days is None or not base.batches:
        return merged
    now = time.time_ns() // 1_000 if now_us is None else now_us
    horizon = (now - round(retention_days * DAY_US)) // DAY_US * DAY_US
    if base.batches[-1].notes.get(DROPPED) == horizon:
        return merged
    return replace(merged, dropped=drop_before(folder, horizon).dropped)


def _commit(
    folder: Folder,
    base: Manifest,
    files: Mapping[str, Files],
    gone: Sequence[str],
    *,
    operation: str,
    horizon_us: int | None = None,
) -> None:
    """Commit files that replace others, under the newest batch and with its notes."""
    last = base.batches[-1]
    notes = last.notes if horizon_us is None else {**last.notes, DROPPED: horizon_us}
    batch = Batch(id=last.id, files=dict(files), notes=notes, rows=last.rows)
    folder.commit(batch, without=gone, made_from=base, operation=operation)


def _alike(files: Iterable[DataFile]) -> Iterable[list[DataFile]]:
    """Split files of one table by the resolution of their rows, in which thinning removes them."""
    found: dict[Any, list[DataFile]] = {}
    for file in files:
        found.setdefault(file.highest.get("resolution_seconds"), []).append(file)
    return found.values()


def due_files(files: Iterable[DataFile], *, everything: bool = False) -> list[DataFile]:
    """Return files of one table that are due for merging: of the largest due size, and smaller.

    A size is due if MERGE_FILES files have it. The files of one merge count as one.
    """
    runs: dict[str, list[DataFile]] = {}
    for file in files:
        runs.setdefault(run_of(file.name), []).append(file)
    by_size: dict[int, list[list[DataFile]]] = {}
    for run in runs.values():
        if sum(file.size for file in run) < LARGE_BYTES:
            n_rows = sum(file.rows for file in run)
            by_size.setdefault(0 if everything else _size_class(n_rows), []).append(run)
    least = 2 if everything else MERGE_FILES
    largest = max((size for size, found in by_size.items() if len(found) >= least), default=-1)
    due = [run for size in sorted(by_size) if size <= largest for run in by_size[size]]
    return [file for run in due for file in run]


def _size_class(n_rows: int) -> int:
    return math.ceil(math.log(max(n_rows / SMALL_ROWS, 1), MERGE_FILES))


def _read(root: StoragePath, name: str, file: DataFile) -> pa.Table:
    (path,) = checked_files(root, [file.name])
    return conform(BoundedParquet(path).read(), TABLES[name], str(path))


def _reaches(file: DataFile, horizon_us: int) -> bool:
    """Return whether a file may contain rows before the horizon."""
    low_us = to_us(file.lowest.get("timestamp", ""))
    return low_us is None or low_us < horizon_us


def _current(now: FolderSnapshot) -> pa.Table:
    """Return pairs of a group and a generation whose rows stay, whatever their time."""
    rows = now.read("generations").select(["group", "generation", "timestamp"])
    last = rows.group_by("group").aggregate([("timestamp", "max")])
    joined = rows.join(last, "group").filter(pc.field("timestamp") == pc.field("timestamp_max"))
    pairs = [one.select(["group", "generation"]) for one in (joined, _open(now.read("movements")))]
    return pa.concat_tables(pairs)


def _open(movements: pa.Table) -> pa.Table:
    """Return movements of partitions that still have no owner."""
    lost = movements.filter(pc.field("kind") == "lost")
    owned = movements.filter(pc.field("to_member").is_valid())
    keys = ["group", "topic", "partition"]
    again = owned.group_by(keys).aggregate([("timestamp", "max")])
    open_ = lost.join(again, keys, join_type="left outer")
    later = pc.fill_null(pc.greater(open_["timestamp_max"], open_["timestamp"]), False)
    return open_.filter(pc.invert(later))


def _retained(rows: pa.Table, definition: Table, horizon_us: int, current: pa.Table) -> Any:
    """Return which rows stay: bool[rows]."""
    time_us = pc.fill_null(rows["timestamp"].cast(pa.int64()), horizon_us)
    keep = np.array(pc.greater_equal(time_us, horizon_us))
    if {"group", "generation"} <= set(definition.names):
        pairs = rows.select(current.column_names)
        numbered = pairs.append_column("_row", pa.array(np.arange(rows.num_rows)))
        kept_rows = numbered.join(current, current.column_names, join_type="left semi")
        keep[kept_rows["_row"].to_numpy()] = True
    return keep


def resolution_s(taken_at_us: int, newest_us: int | None) -> int:
    """Return the longest period of :data:`KEPT_S` of which a reading is the first, in seconds.

    ``newest_us`` is the moment of the newest reading in the table.
    """
    if newest_us is None:
        return COARSEST_S
    firsts = [s for s in KEPT_S if s and taken_at_us // (s * 10**6) != newest_us // (s * 10**6)]
    return max(firsts, default=0)


def expired(files: Sequence[DataFile], now_us: int) -> list[str]:
    """Return the names of files of ``lag_history`` whose readings have all stayed long enough."""
    names = []
    for file in files:
        kept_s = KEPT_S.get(file.highest.get("resolution_seconds", COARSEST_S))
        newest_us = to_us(str(file.highest.get("timestamp")))
        if kept_s and newest_us is not None and newest_us < now_us - kept_s * 10**6:
            names.append(file.name)
    return names
