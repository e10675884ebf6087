"""The figures of many groups, one row a group: what a heading, an order and a sum need.

**Rules.** A figure is the one of :class:`~holdfast.fleet.analysis.group.group_history.GroupHistory`
under the same name, to the last bit (``tests/report/test_overview.py``). A row has some hundred
bytes, whatever the group has.

**Strategy.** Whole columns of :data:`~holdfast.fleet.tables.reading.GROUPS_AT_ONCE` groups are
computed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.core.kinds import GroupType
from holdfast.core.model.columns import F64, I64, Mask, distinct, starts
from holdfast.fleet.analysis.group.lag import NEVER
from holdfast.fleet.analysis.group.presence import Settlements, read_generations
from holdfast.fleet.analysis.group.rebalances import downtime_bounds_s
from holdfast.fleet.columnar import DecodedRows, GroupedTable
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.reading import SomeGroups

_LONG_SUM = 8
"""NumPy adds fewer numbers one after the other, as ``bincount`` does, and more in pairs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overview:
    """Figures of groups, one row a group."""

    # ``names``, ``state``, ``protocol`` (object[n]): state and protocol of the last generation:
    # ``unknown`` and empty without one.
    names: npt.NDArray[np.object_]
    state: npt.NDArray[np.object_]
    protocol: npt.NDArray[np.object_]
    group_type: npt.NDArray[np.object_]  # object[n]: tuples of types, sorted
    is_known: Mask  # bool[n]: whether there is a generation
    # ``generation``, ``n_members`` (int64[n]): of the last generation; 0 without one.
    generation: I64
    n_members: I64
    # ``first_ms``, ``settled_ms``, ``end_ms`` (int64[n]): first and last generation, 0 without one,
    # and end of the window, in UTC milliseconds.
    first_ms: I64
    settled_ms: I64
    end_ms: I64
    # ``n_partitions``, ``n_rows``, ``n_owned`` (int64[n]): partitions that ever had an owner or a
    # reader; those that had an owner; those that had one at once.
    n_partitions: I64
    n_rows: I64
    n_owned: I64
    # ``n_rebalances``, ``n_moved``, ``n_anomalies`` (int64[n]): in the window.
    n_rebalances: I64
    n_moved: I64
    n_anomalies: I64
    # ``downtime_lower_s``, ``downtime_upper_s``, ``idle_lower_s``, ``idle_upper_s`` (float64[n]):
    # partition-seconds in the window.
    downtime_lower_s: F64
    downtime_upper_s: F64
    idle_lower_s: F64
    idle_upper_s: F64
    lag: I64  # int64[n]: records behind, over all partitions with a known lag; -1 without one
    rebalances_ms: I64  # moments of the rebalances in the window of all groups with a generation

    def __len__(self) -> int:
        return len(self.names)

    @property
    def downtime_s(self) -> F64:
        """Best single estimate of the downtime, in seconds a partition."""
        return self.downtime_upper_s / np.maximum(self.n_owned, 1)

    def worst_first(self, ranks: I64) -> I64:
        """Return the groups in the order of the doctor, given the rank of each one's findings."""
        by_name = np.argsort(np.argsort(self.names))
        return np.lexsort((by_name, -self.downtime_s, -ranks))

    def at(self, order: I64) -> Overview:
        """Return the groups in another order."""
        names = (one.name for one in fields(self) if one.name != "rebalances_ms")
        columns: dict[str, Any] = {name: getattr(self, name)[order] for name in names}
        return replace(self, **columns)

    def downtimes_s(self, row: int) -> tuple[float, float]:
        """Return the bounds of a group's downtime, in seconds a partition."""
        n_owned = max(int(self.n_owned[row]), 1)
        bounds = self.downtime_lower_s[row], self.downtime_upper_s[row]
        lower, upper = (float(bound) / n_owned for bound in bounds)
        return lower, upper


def joined(parts: Iterable[Overview]) -> Overview:
    """Return the rows of several overviews."""
    found = list(parts) or [no_figures(())]
    columns: dict[str, Any] = {
        one.name: np.concatenate([getattr(part, one.name) for part in found])
        for one in fields(Overview)
    }
    return Overview(**columns)


def no_figures(groups: Sequence[str]) -> Overview:
    """Return the figures of groups of which nothing is known."""
    return overview(SomeGroups(groups, _no_rows), None)


def _no_rows(table: str) -> GroupedTable:
    return GroupedTable.of(arrow_schema(table).empty_table())


def overview(some: SomeGroups, last_ms: int | None, since_ms: int = NEVER) -> Overview:
    """Return the figures of some groups in a window of UTC milliseconds."""
    n = len(some.groups)
    rows, of = some.rows("generations")
    settled = read_generations(rows, of)
    first, last = settled.first_and_last(n)
    first_ms, settled_ms = (values_at(settled.at_ms, at) for at in (first, last))
    n_partitions = rows.ints("n_partitions", 0)
    is_shared = rows.equal("group_type", GroupType.SHARE)
    n_shared = _most(n_partitions[is_shared], of[is_shared], n)
    n_rows = owned_partitions(some, settled.of_rows(*some.rows("assignments")) >= 0)
    return Overview(
        names=_objects(some.groups),
        state=settled.texts("state", last, "unknown"),
        protocol=settled.texts("protocol", last, ""),
        group_type=_types(rows, of, n),
        is_known=last >= 0,
        generation=values_at(settled.number, last),
        n_members=values_at(settled.n_members, last),
        first_ms=first_ms,
        settled_ms=settled_ms,
        end_ms=np.maximum(settled_ms + 1, last_ms or 0),
        n_partitions=np.maximum(n_rows, n_shared),
        n_rows=n_rows,
        n_owned=_most(n_partitions, of, n),
        n_anomalies=_anomalies(some, settled, last, since_ms),
        lag=_lag(some),
        **_rebalances(some, since_ms, first_ms != 0),
    )


def values_at(values: I64, at: I64) -> I64:
    """Return the values of some rows; 0 at -1."""
    return np.append(values, 0)[at]


def _objects(values: Sequence[object]) -> npt.NDArray[np.object_]:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _most(values: I64, of: I64, n: int) -> I64:
    """Return the greatest value of each group, at least 0."""
    found = np.zeros(n, np.int64)
    np.maximum.at(found, of, values)
    return found


def _types(rows: DecodedRows, of: I64, n: int) -> npt.NDArray[np.object_]:
    code, names = rows.codes("group_type")
    found: list[tuple[str, ...]] = [()] * n
    for key in distinct((of * (len(names) + 1) + code)[code >= 0]).tolist():
        group, number = divmod(key, len(names) + 1)
        found[group] = (*found[group], names[number])
    return _objects(found)


def owned_partitions(some: SomeGroups, counted: Mask) -> I64:
    """Return the partitions of each group that some rows of ``assignments`` give an owner."""
    rows, of = some.rows("assignments")
    role, roles = rows.codes("role")
    is_alone = np.asarray([*(name in ("active", "") for name in roles), True], np.bool_)[role]
    topic, topics = rows.codes("topic")
    parent, partition = rows.lists("partitions")
    kept = (is_alone & counted)[parent]
    parent, partition = parent[kept], partition[kept]
    pair = of[parent] * max(len(topics), 1) + topic[parent]
    pairs, number = np.unique(pair, return_inverse=True)
    found = distinct(number.astype(np.int64) << np.int64(32) | (partition + 1)) >> np.int64(32)
    group = pairs[found] // max(len(topics), 1)
    return np.bincount(group, minlength=len(some.groups)).astype(np.int64)


def _anomalies(some: SomeGroups, settled: Settlements, last: I64, since_ms: int) -> I64:
    """Count the anomalies of the window, and those of the last generation."""
    rows, of = some.rows("anomalies")
    is_of_last = settled.of_rows(rows, of) == last[of]
    kept = is_of_last | (rows.times_ms("timestamp") >= since_ms)
    return np.bincount(of[kept], minlength=len(last)).astype(np.int64)


def _rebalances(some: SomeGroups, since_ms: int, is_known: Mask) -> dict[str, Any]:
    """Return the columns of an overview about rebalances."""
    rows, of = some.rows("rebalances")
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


def _lag(some: SomeGroups) -> I64:
    """Return the records behind of each group, over partitions with a known lag; else -1."""
    rows, of = some.rows("lag")
    lag = rows.ints("lag")
    found = np.zeros(len(some.groups), np.int64)
    np.add.at(found, of[lag >= 0], lag[lag >= 0])
    found[np.bincount(of[lag >= 0], minlength=len(found)) == 0] = -1
    return found
