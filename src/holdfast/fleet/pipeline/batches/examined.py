"""The step ``findings``: whole groups in, rows of the table ``findings`` out.

**Rules.** The findings of a batch are those that an examination of every group at its end would
have. The rows become visible with the rows that they were made of. A group in which anything but
its commits has changed is examined by all rules, from all of its rows. Of other groups, the
findings of most rules stay as they were; the rules of the lag run again, if a row of the lag is a
reason for it. A group whose past events were judged by its commits is examined by all rules in
every batch (:data:`FOLLOWED`).

**Strategy.** The input of the step are names of groups. A task reads the rows of its groups itself,
so no row passes through the JVM: the files of a batch are sorted by group, and only the row groups
that may hold one of the names are read. Which groups have to be examined is found in whole columns:
of the batch, of the lag, and of the findings so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.command_lines import NOT_KNOWN
from holdfast.core.model.columns import Mask
from holdfast.fleet.analysis.findings.examination import (
    FAILED,
    Examination,
    Examined,
    StoredFindings,
    all_rules,
    examine,
    examine_lag,
    finding_rows,
)
from holdfast.fleet.analysis.findings.finding import Lasts, Limits
from holdfast.fleet.analysis.findings.rules_lag import may_ail
from holdfast.fleet.analysis.group.group_history import read_groups
from holdfast.fleet.analysis.group.lag import JUDGED, NEVER, LagRows
from holdfast.fleet.analysis.group.rebalances import CommitTimes
from holdfast.fleet.columnar import (
    Batches,
    BatchTask,
    DecodedRows,
    codes,
    floats,
    replaced,
    times_ms,
)
from holdfast.fleet.pipeline.steps import InMemoryRows, Input, Step
from holdfast.fleet.tables.columns.schemas import arrow_schema, moment_text
from holdfast.fleet.tables.folder.delta_log import DataFile
from holdfast.fleet.tables.folder.files import FILES_SCHEMA, BatchWriter
from holdfast.fleet.tables.folder.snapshot import ListedFiles, SnapshotCache
from holdfast.fleet.tables.reading import GROUPS_AT_ONCE, Tables
from holdfast.fleet.tables.storage.paths import StoragePath, storage_path

FindingsFiles = Mapping[str, Sequence[DataFile]]

FOLLOWED: Final = "_followed"
"""State of a stream: groups whose past events were judged by their lag or commits."""

_NAMES: Final = arrow_schema("examined")
_GROUP_ROWS: Final = 200
"""An examination costs as much as so many records."""
_OF_EVENTS: Final = ("generations", "rebalances", "ownership_gaps", "anomalies")
_OF_LAG: Final = (
    *("lag", "has_unread", "current_offset", "log_end_offset", "log_start_offset"),
    *("commit_timestamp", "position_timestamp", "not_subscribed", "clamped"),
)
"""Columns of ``lag`` that :func:`may_ail` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedGroups:
    """Groups whose findings a batch may change.

    All rules examine the groups of ``whole``; the rules of the lag examine the others, ``lagging``.
    """

    whole: Sequence[str]
    lagging: Sequence[str] = ()


def listed_tables(root: StoragePath, files: FindingsFiles) -> Tables:
    """Return the tables of some files."""
    return Tables(root, ListedFiles(SnapshotCache(root), listed=files))


def findings_step(
    root: StoragePath,
    batch: int,
    files: FindingsFiles,
    changed: ChangedGroups,
    windows: tuple[Examined | None, Examined],
) -> Step:
    """Return the step that examines groups and writes their findings.

    Of ``findings``, ``files`` are those of the batch before. ``windows`` are that of the findings
    so far, and the new one.
    """
    whole, lagging = sorted(changed.whole), sorted(changed.lagging)
    named = {"group": [*whole, *lagging], "is_whole": [True] * len(whole) + [False] * len(lagging)}
    rows = InMemoryRows(
        rows=pa.table(named, schema=_NAMES),
        cost_rows=_GROUP_ROWS * (len(whole) + len(lagging) // 2),
        task_rows=GROUPS_AT_ONCE,
        here_rows=GROUPS_AT_ONCE,
    )
    task = _task(str(root), batch, files, windows)
    return Step(what="groups", inputs=[Input(rows=rows, into=task)], schema=FILES_SCHEMA)


def _task(
    root: str, batch: int, files: FindingsFiles, windows: tuple[Examined | None, Examined]
) -> BatchTask:
    def run(batches: Batches) -> Batches:
        writer = BatchWriter(root, batch)
        stored = listed_tables(storage_path(root), files)
        for rows in batches:
            followed: list[str] = []
            for is_whole in (True, False):
                names = rows["group"].filter(pc.equal(rows["is_whole"], is_whole)).to_pylist()
                found = _examined(stored, names, windows, followed, is_whole=is_whole)
                writer.write("findings", finding_rows(found))
            writer.write(FOLLOWED, pa.table({"group": pa.array(followed, pa.string())}))
        yield from writer.close().to_batches()

    return run


def _examined(
    stored: Tables,
    names: Sequence[str],
    windows: tuple[Examined | None, Examined],
    followed: list[str],
    *,
    is_whole: bool,
) -> Iterator[Examination]:
    """Examine groups; add those whose past events were judged by their commits to a list."""
    if not names:
        return
    was, window = windows
    before = None if is_whole or was is None else _kept_of(stored, names, was, window)
    histories = read_groups(
        stored,
        names,
        last_ms=window.end_ms,
        since_ms=NEVER if window.since_ms is None else window.since_ms,
        commits=CommitTimes(stored, names),
        columns={"lag": JUDGED},
    )
    for history in histories:
        if before is None:
            yield examine(history)
            if history.uses_commits:
                followed.append(history.name)
        else:
            yield examine_lag(history, before.of_group(history.name))


def _kept_of(
    stored: Tables, groups: Sequence[str], was: Examined, window: Examined
) -> StoredFindings:
    """Return the findings so far of some groups, without those of the lag."""
    rows = stored.table("findings", groups=groups)
    kept = rows.filter(pa.array(~_is_in(rows["code"], _codes_of_lag())))
    return StoredFindings.of(_moved(kept, was, window), NOT_KNOWN)


def _codes_of_lag() -> list[str]:
    return [rule.code for rule in all_rules() if rule.of_lag]


def changed_groups(
    root: StoragePath,
    new: FindingsFiles,
    files: FindingsFiles,
    *,
    before: pa.Table,
    windows: tuple[Examined, Examined],
    followed: Iterable[str],
) -> ChangedGroups:
    """Return the groups whose findings a batch may change.

    ``new`` has the files of the batch, ``files`` those of all batches with it. ``before`` has the
    findings so far, ``windows`` their window and the new one, ``followed`` groups of
    :data:`FOLLOWED`.
    """
    was, window = windows
    if (was.since_ms is None) != (window.since_ms is None) or (was.since_ms or 0) > (
        window.since_ms or 0
    ):
        return ChangedGroups(whole=listed_tables(root, files).groups)
    rows = listed_tables(root, new)
    names = set(followed)
    for table in _OF_EVENTS:
        names.update(_distinct(rows.stored(table, columns=["group"])))
    names |= _aging(before, was, window)
    # Evidence that ends with the window so far counts as evidence of the present, unless an event
    # was at that very moment.
    names |= _with_events(root, files, was.end_ms, was.end_ms)
    if was.since_ms is not None and window.since_ms is not None and was.since_ms < window.since_ms:
        names |= _with_events(root, files, was.since_ms, window.since_ms)
    lagging = _lagging(rows.stored("lag", columns=["group", *_OF_LAG]), window.end_ms)
    return ChangedGroups(whole=sorted(names), lagging=sorted(lagging - names))


def _distinct(rows: pa.Table) -> list[str]:
    found: list[str] = pc.unique(rows["group"]).to_pylist()
    return found


def _aging(before: pa.Table, was: Examined, window: Examined) -> set[str]:
    """Return groups with a finding that time alone changes, other than those of the lag."""
    to_ms, ended_ms = (times_ms(before, name) for name in ("to_timestamp", "ended_timestamp"))
    is_old = window.end_ms - to_ms > Limits.recent_s * 1000
    lasting = [rule.code for rule in all_rules() if rule.lasts is Lasts.GENERATION]
    costs = (to_ms == was.end_ms) | _is_in(before["code"], lasting)
    costs &= floats(before, "cost_upper_seconds") > 0  # which may grow until the end
    aging = (to_ms < 0) | (to_ms > was.end_ms) | costs | (is_old & (to_ms < was.end_ms))
    aging |= _is_in(before["code"], [FAILED])
    aging &= (ended_ms < 0) & ~_is_in(before["code"], _codes_of_lag())
    if window.since_ms is not None:
        aging |= (ended_ms >= 0) & (ended_ms < window.since_ms)
    return set(_distinct(before.filter(pa.array(aging))))


def _moved(before: pa.Table, was: Examined, window: Examined) -> pa.Table:
    """Return findings with evidence of the present, which reaches to the end of the new window."""
    to_us = 1000 * times_ms(before, "to_timestamp")
    found = np.where(to_us == 1000 * was.end_ms, 1000 * window.end_ms, to_us)
    newest = pc.max_element_wise(before["timestamp"].cast(pa.int64()), 1000 * window.end_ms)
    moved = pa.array(found, mask=found < 0)
    return replaced(before, to_timestamp=moved, timestamp=newest)


def _is_in(column: pa.ChunkedArray, values: Iterable[str]) -> Mask:
    found: Mask = pc.is_in(column, pa.array(list(values), pa.string())).to_numpy()
    return found


def _with_events(root: StoragePath, files: FindingsFiles, first_ms: int, last_ms: int) -> set[str]:
    """Return groups with an event between two moments, in UTC milliseconds; both are included."""
    low, high = moment_text(1000 * first_ms), moment_text(1000 * last_ms + 999)
    names: set[str] = set()
    for table in ("generations", "rebalances", "anomalies"):
        some = [file for file in files[table] if file.may_reach("timestamp", low, high)]
        rows = listed_tables(root, {table: some}).stored(table, columns=["group", "timestamp"])
        at_ms = times_ms(rows, "timestamp")
        inside = (at_ms >= first_ms) & (at_ms <= last_ms)
        names.update(_distinct(rows.filter(pa.array(inside))))
    return names


def _lagging(lag: pa.Table, end_ms: int) -> set[str]:
    """Return groups whose lag is a reason to run the rules of the lag."""
    if not lag.num_rows:
        return set()
    rows = LagRows(DecodedRows.of(lag))
    group, names = codes(lag, "group")
    records = np.bincount(group, np.maximum(rows.lag, 0), len(names))
    ails = may_ail(rows, end_ms + 1) | (records >= Limits.lag_records)[group]
    return {names[i] for i in np.unique(group[ails]).tolist()}


def kept_findings(
    before: pa.Table, changed: ChangedGroups, windows: tuple[Examined, Examined]
) -> pa.Table:
    """Return the findings of groups that are not examined, in a new window.

    Nothing in their lag is a finding: those of the lag so far are left out.
    """
    gone = _is_in(before["group"], [*changed.whole, *changed.lagging])
    gone |= _is_in(before["code"], _codes_of_lag())
    kept = _moved(before.filter(pa.array(~gone)), *windows)
    kept = kept.sort_by([("group", "ascending"), ("number", "ascending")])
    group = codes(kept, "group")[0]
    number = np.arange(len(group)) - np.searchsorted(group, group)
    return replaced(kept, number=number)
