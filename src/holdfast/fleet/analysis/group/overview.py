"""The figures of many groups, one row a group: what a heading, an order and a sum need.

**Rules.** A figure is the one of :class:`~holdfast.fleet.analysis.group.group_history.GroupHistory`
under the same name, to the last bit (``tests/report/test_overview.py``). A row has some hundred
bytes, whatever the group has.

**Strategy.** Whole columns of :data:`~holdfast.fleet.tables.reading.GROUPS_AT_ONCE` groups are
computed together. The history of a group is read only if the group was deleted and came back, or
has anomalies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.core.kinds import GroupType
from holdfast.core.model.columns import F64, I64, Mask, distinct, starts
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import NEVER
from holdfast.fleet.analysis.group.rebalances import downtime_bounds_s
from holdfast.fleet.analysis.group.timeline import settled
from holdfast.fleet.columnar import DecodedRows, GroupedTable
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.reading import GroupTables, SomeGroups

_LONG_SUM = 8
"""NumPy adds fewer numbers one after the other, as ``bincount`` does, and more in pairs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overview:
    """Figures of groups, one row a group.

    Parameters
    ----------
    names, state, protocol : object[n]
        State and protocol of the last generation: ``unknown`` and empty without one.
    group_type : object[n]
        Tuples of types, sorted.
    is_known : bool[n]
        Whether there is a generation.
    generation, n_members : int64[n]
        Of the last generation; 0 without one.
    first_ms, end_ms : int64[n]
        First generation, 0 without one, and end of the window, in UTC milliseconds.
    n_partitions, n_rows, n_owned : int64[n]
        Partitions that ever had an owner or a reader; those that had an owner; those that had one
        at once.
    n_rebalances, n_moved, n_anomalies : int64[n]
        In the window.
    downtime_lower_s, downtime_upper_s, idle_lower_s, idle_upper_s : float64[n]
        Partition-seconds in the window.
    lag : int64[n]
        Records behind, over all partitions with a known lag; -1 without one.
    rebalances_ms : int64
        Moments of the rebalances in the window of all groups with a generation.
    """

    names: npt.NDArray[np.object_]
    state: npt.NDArray[np.object_]
    protocol: npt.NDArray[np.object_]
    group_type: npt.NDArray[np.object_]
    is_known: Mask
    generation: I64
    n_members: I64
    first_ms: I64
    end_ms: I64
    n_partitions: I64
    n_rows: I64
    n_owned: I64
    n_rebalances: I64
    n_moved: I64
    n_anomalies: I64
    downtime_lower_s: F64
    downtime_upper_s: F64
    idle_lower_s: F64
    idle_upper_s: F64
    lag: I64
    rebalances_ms: I64

    def __len__(self) -> int:
        return len(self.names)

    @property
    def downtime_s(self) -> F64:
        """Best single estimate of the downtime, in seconds a partition."""
        return self.downtime_upper_s / np.maximum(self.n_owned, 1)

    def downtimes_s(self, row: int) -> tuple[float, float]:
        """Return the bounds of a group's downtime, in seconds a partition."""
        n_owned = max(int(self.n_owned[row]), 1)
        bounds = self.downtime_lower_s[row], self.downtime_upper_s[row]
        lower, upper = (float(bound) / n_owned for bound in bounds)
        return lower, upper


def joined(parts: Iterable[Overview]) -> Overview:
    """Return the rows of several overviews."""
    found = list(parts) or [overview(SomeGroups((), _no_rows), None)]
    columns: dict[str, Any] = {
        one.name: np.concatenate([getattr(part, one.name) for part in found])
        for one in fields(Overview)
    }
    return Overview(**columns)


def _no_rows(table: str) -> GroupedTable:
    return GroupedTable.of(arrow_schema(table).empty_table())


def overview(some: SomeGroups, last_ms: int | None, since_ms: int = NEVER) -> Overview:
    """Return the figures of some groups in a window of UTC milliseconds."""
    generations, of_generation = rows_of(some, "generations")
    n = len(some.groups)
    at, first, last = first_and_last(generations, of_generation, n)
    at_ms = generations.times_ms("timestamp")
    is_known = last >= 0
    known = last[is_known]
    owned, shared = _most_partitions(generations, of_generation, n)
    n_rows, n_anomalies = _counted(some, generations, of_generation, at, since_ms)
    first_ms = values_at(at_ms, first)
    end_ms = np.full(n, 1, np.int64)
    end_ms[is_known] = at_ms[known] + 1
    return Overview(
        names=_objects(some.groups),
        state=texts_at(generations, "state", last, "unknown"),
        protocol=texts_at(generations, "protocol", last, ""),
        group_type=_types(generations, of_generation, n),
        is_known=is_known,
        generation=values_at(generations.ints("generation"), last),
        n_members=values_at(generations.ints("n_members"), last),
        first_ms=first_ms,
        end_ms=np.maximum(end_ms, last_ms or 0),
        n_partitions=np.maximum(n_rows, shared),
        n_rows=n_rows,
        n_owned=owned,
        n_anomalies=n_anomalies,
        lag=lag_of(some),
        **_rebalances(some, since_ms, first_ms != 0),
    )


def first_and_last(generations: DecodedRows, of: I64, n: int) -> tuple[I64, I64, I64]:
    """Return the rows of all settlements, and those of each group's first and last, or -1."""
    order, kept = settled(generations, of)
    at = order[kept]
    first, last = (np.full(n, -1, np.int64) for _ in "ab")
    last[of[at]] = at  # of several the last one stays
    first[of[at[::-1]]] = at[::-1]
    return at, first, last


def rows_of(some: SomeGroups, table: str) -> tuple[DecodedRows, I64]:
    """Return the rows of a table, and the index of each row's group."""
    grouped = some.table(table)
    bounds = [grouped.bounds.get(group, (0, 0)) for group in some.groups]
    sizes = np.asarray([high - low for low, high in bounds], np.int64)
    rows = DecodedRows(grouped.rows, 0, grouped.rows.num_rows, grouped.decoded)
    return rows, np.repeat(np.arange(len(sizes)), sizes)


def _objects(values: Sequence[object]) -> npt.NDArray[np.object_]:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def texts_at(rows: DecodedRows, name: str, at: I64, missing: str) -> npt.NDArray[np.object_]:
    """Return the values of some rows in a string column; ``missing`` at -1."""
    found = np.full(len(at), missing, object)
    found[at >= 0] = rows.texts(name, "", at[at >= 0])
    return found


def values_at(values: I64, at: I64) -> I64:
    """Return the values of some rows; 0 at -1."""
    found = np.zeros(len(at), np.int64)
    found[at >= 0] = values[at[at >= 0]]
    return found


def _most_partitions(rows: DecodedRows, of: I64, n: int) -> tuple[I64, I64]:
    """Return the partitions with an owner at once, at most, and those of share groups."""
    owned, shared = (np.zeros(n, np.int64) for _ in "ab")
    np.maximum.at(owned, of, rows.ints("n_partitions", 0))
    is_shared = rows.equal("group_type", GroupType.SHARE)
    np.maximum.at(shared, of[is_shared], rows.ints("n_partitions")[is_shared])
    return owned, shared


def _types(rows: DecodedRows, of: I64, n: int) -> npt.NDArray[np.object_]:
    code, names = rows.codes("group_type")
    found: list[tuple[str, ...]] = [()] * n
    for key in distinct((of * (len(names) + 1) + code)[code >= 0]).tolist():
        group, number = divmod(key, len(names) + 1)
        found[group] = (*found[group], names[number])
    return _objects(found)


def _counted(
    some: SomeGroups, generations: DecodedRows, of: I64, kept: I64, since_ms: int
) -> tuple[I64, I64]:
    """Return the partitions that ever had an owner, and the anomalies in the window."""
    n = len(some.groups)
    numbers = generations.ints("generation")[kept]
    n_rows = owned_partitions(some, group_keys(of[kept], numbers))
    n_anomalies = np.zeros(n, np.int64)
    returned = returned_groups(generations, of, kept)
    odd = np.unique(rows_of(some, "anomalies")[1])
    for i in np.union1d(returned, odd).tolist():
        stored = GroupTables(some.groups[i], some.table)
        history = GroupHistory(stored=stored, since_ms=since_ms)
        n_rows[i] = len(history.flat_assignments.row_partition)
        n_anomalies[i] = history.anomalies.num_rows
    return n_rows, n_anomalies


def returned_groups(generations: DecodedRows, of: I64, kept: I64) -> I64:
    """Return the groups that were deleted and came back: one number may name two generations."""
    number, gone = generations.ints("generation")[kept], generations.equal("state", "Dead")[kept]
    same = of[kept][1:] == of[kept][:-1]
    return np.unique(of[kept][1:][same & (gone[:-1] | (number[1:] < number[:-1]))])


def group_keys(of: I64, number: I64) -> I64:
    """Return one number for each pair of a group's index and a generation."""
    return of << np.int64(32) | (number + 1)


def owned_partitions(some: SomeGroups, known: I64) -> I64:
    """Return the partitions of each group that a generation of ``known`` gives an owner."""
    rows, of = rows_of(some, "assignments")
    role, roles = rows.codes("role")
    is_alone = np.asarray([*(name in ("active", "") for name in roles), True], np.bool_)[role]
    given = group_keys(of, rows.ints("generation"))
    topic, topics = rows.codes("topic")
    parent, partition = rows.lists("partitions")
    counts = (is_alone & np.isin(given, known))[parent]
    parent, partition = parent[counts], partition[counts]
    pair = of[parent] * max(len(topics), 1) + topic[parent]
    pairs, number = np.unique(pair, return_inverse=True)
    found = distinct(number.astype(np.int64) << np.int64(32) | (partition + 1)) >> np.int64(32)
    group = pairs[found] // max(len(topics), 1)
    return np.bincount(group, minlength=len(some.groups)).astype(np.int64)


def _rebalances(some: SomeGroups, since_ms: int, is_known: Mask) -> dict[str, Any]:
    """Return the columns of an overview about rebalances."""
    rows, of = rows_of(some, "rebalances")
    n, at_ms = len(some.groups), rows.times_ms("timestamp")
    order = np.lexsort((rows.ints("generation"), at_ms, of))
    order = order[at_ms[order] >= since_ms]
    of = of[order]
    is_real = ~rows.equal("cause", "first_seen")[order]
    moved = rows.ints("n_moved")[order]
    lower, upper = (np.nan_to_num(bound[order], nan=0.0) for bound in downtime_bounds_s(rows))
    idle = [rows.floats(f"idle_{bound}_seconds", 0.0)[order] for bound in ("lower", "upper")]
    n_moved = np.zeros(n, np.int64)
    np.add.at(n_moved, of, np.maximum(moved, 0))
    sums = [group_sums(of, column, n) for column in (lower, upper, *idle)]
    return {
        "n_rebalances": np.bincount(of[is_real], minlength=n).astype(np.int64),
        "n_moved": n_moved,
        "downtime_lower_s": sums[0],
        "downtime_upper_s": sums[1],
        "idle_lower_s": sums[2],
        "idle_upper_s": sums[3],
        "rebalances_ms": at_ms[order][is_real & is_known[of]],
    }


def group_sums(of: I64, values: F64, n: int) -> F64:
    """Return the sum of each group's values; rows are sorted by group."""
    sums: F64 = np.bincount(of, weights=values, minlength=n).astype(np.float64)
    sizes = np.bincount(of, minlength=n)
    start = starts(sizes)
    for i in np.flatnonzero(sizes >= _LONG_SUM).tolist():
        sums[i] = values[start[i] : start[i + 1]].sum()
    return sums


def lag_of(some: SomeGroups) -> I64:
    """Return the records behind of each group, over partitions with a known lag; else -1."""
    rows, of = rows_of(some, "lag")
    lag = rows.ints("lag")
    found = np.zeros(len(some.groups), np.int64)
    np.add.at(found, of[lag >= 0], lag[lag >= 0])
    found[np.bincount(of[lag >= 0], minlength=len(found)) == 0] = -1
    return found
