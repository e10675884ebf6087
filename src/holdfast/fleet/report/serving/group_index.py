"""The index of a fleet: one row a group, found, sorted and cut into pages.

**Rules.** A number of a group is the one that its page and the doctor show
(:func:`holdfast.fleet.report.findings.doctor.summary`). What the doctor has not looked at yet is
not known, and is no zero. Rows that are equal in what they are sorted by stand in the order of
their names.

**Strategy.** The numbers come from whole columns of the tables, so they are there at once for every
group; findings need a group's whole story and come later, one group after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.core.model.columns import F64, I64, Mask
from holdfast.fleet.report.columns.history import stood_still_s
from holdfast.fleet.report.columns.timeline import last_time, settled
from holdfast.fleet.report.findings.examination import GroupVerdict
from holdfast.fleet.report.findings.finding import Severity
from holdfast.fleet.tables.columns.values import ArrowTable, codes, ints, times_ms, words
from holdfast.fleet.tables.reading import Tables

PAGE_ROWS = 100
NO_LAG = -1
SLICES = 24
"""Parts of the covered time that a small picture shows."""
NOT_EXAMINED = (-2, 0.0, 0)
SEVERITIES: tuple[str, ...] = tuple(Severity)


Verdicts = Mapping[str, GroupVerdict]
"""By group; a group that was not examined is not there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupIndex:
    """One row a group, by name.

    Parameters
    ----------
    names, state : tuple of str
        State as of the last generation; ``unknown`` where there is none.
    n_members, n_rebalances : int64[n]
        Members of the last generation; rebalances in the tables.
    cost_lower_s, cost_s : float64[n]
        Partition-seconds that stood still, at least and at most.
    lag : int64[n]
        Records behind, over all partitions whose lag is known; NO_LAG where none is.
    covered_ms : (int, int)
        UTC milliseconds of the first rebalance or generation and of the last record, commits
        included; 0 where there is none.
    lately : int64[n, SLICES]
        Rebalances in each of as many parts of the covered time.
    cause, cause_s : tuple of str, float64[n]
        The cause whose rebalances cost most for certain, and how many partition-seconds at least.
    lags : int64[n, m]
        ``lag`` of the last readings by this server, the newest last (:func:`followed`).
    has_history : bool
        False where only lags are known: what is 0 in the other columns is not known.
    """

    names: tuple[str, ...]
    state: tuple[str, ...]
    n_members: I64
    n_rebalances: I64
    cost_lower_s: F64
    cost_s: F64
    lag: I64
    covered_ms: tuple[int, int]
    lately: I64
    cause: tuple[str, ...]
    cause_s: F64
    lags: I64
    has_history: bool = True

    @property
    def states(self) -> tuple[str, ...]:
        """Every state that a group is in, sorted."""
        return tuple(sorted(set(self.state)))

    @property
    def costliest_first(self) -> I64:
        """Rows in the order of what rebalances cost: at least, then at most, then by name."""
        return np.lexsort((-self.cost_s, -self.cost_lower_s))


def read_index(tables: Tables) -> GroupIndex:
    """The index of all groups of some tables.

    Notes
    -----
    Cost: O(n log n) in rows of ``generations``, and one pass over ``rebalances`` and ``lag``.
    """
    names = tables.groups
    place = {name: i for i, name in enumerate(names)}
    last, members, states = _last_settlements(tables.stored("generations"), place)
    rebalances, lag_rows = tables.stored("rebalances"), tables.stored("lag")
    of = _group_of(rebalances, place)
    is_real = np.asarray([cause != "first_seen" for cause in rebalances["cause"].to_pylist()], bool)
    n_real = np.bincount(of[is_real], minlength=len(names)).astype(np.int64)
    stood_s = [np.nan_to_num(bound) for bound in stood_still_s(rebalances)]
    low_s, high_s = (
        np.bincount(of, weights=bound, minlength=len(names)).astype(np.float64) for bound in stood_s
    )
    lag = ints(lag_rows, "lag")
    behind = _group_of(lag_rows, place)[lag >= 0]
    total = np.zeros(len(names), np.int64)
    np.add.at(total, behind, lag[lag >= 0])
    total[np.bincount(behind, minlength=len(names)) == 0] = NO_LAG
    cause, cause_s = _costliest(rebalances, stood_s[0], of, len(names))
    covered, lately = _lately(tables, is_real, of, len(names))
    return GroupIndex(
        names=names,
        covered_ms=covered,
        lately=lately,
        cause=cause,
        cause_s=cause_s,
        lags=total[:, None],
        state=tuple(states[i] if i >= 0 else "unknown" for i in last),
        n_members=np.where(last >= 0, members[last], 0) if len(members) else last * 0,
        n_rebalances=n_real,
        cost_lower_s=low_s,
        cost_s=high_s,
        lag=total,
    )


def _costliest(rebalances: ArrowTable, low_s: F64, of: I64, n: int) -> tuple[tuple[str, ...], F64]:
    """Of each group the cause whose rebalances cost most, at least, and what they cost."""
    rank, causes = codes(rebalances, "cause")
    k = max(len(causes), 1)
    cost_s = np.bincount(of * k + rank % k, weights=low_s, minlength=n * k).reshape(n, k)
    top = cost_s.argmax(axis=1)
    return tuple((*causes, "")[i] for i in top), cost_s.max(axis=1, initial=0.0)


def _lately(tables: Tables, is_real: Mask, of: I64, n: int) -> tuple[tuple[int, int], I64]:
    """The covered time, and the rebalances of each group in each part of it."""
    settled = times_ms(tables.stored("generations"), "timestamp")
    at = times_ms(tables.stored("rebalances"), "timestamp")
    known = np.concatenate([settled[settled > 0], at[at > 0]])
    last = last_time(tables)
    if not len(known) or last is None:
        return (0, 0), np.zeros((n, SLICES), np.int64)
    first = int(known.min())
    part = np.clip((at - first) * SLICES // max(last - first, 1), 0, SLICES - 1)
    counted = np.bincount((of * SLICES + part)[is_real], minlength=n * SLICES)
    return (first, last), counted.reshape(n, SLICES).astype(np.int64)


def followed(old: GroupIndex, new: GroupIndex) -> GroupIndex:
    """The new index with the lags of the readings before it."""
    place = {name: i for i, name in enumerate(old.names)}
    at = np.asarray([place.get(name, -1) for name in new.names], np.int64)
    before = np.full((len(at), old.lags.shape[1]), NO_LAG, np.int64)
    before[at >= 0] = old.lags[at[at >= 0]]
    return replace(new, lags=np.column_stack([before, new.lag])[:, -SLICES:])


def _group_of(rows: ArrowTable, place: Mapping[str, int]) -> I64:
    """Place of each row's group."""
    rank, names = codes(rows, "group")
    places = np.asarray([place[name] for name in names], np.int64)
    return places[rank] if len(names) else np.zeros(0, np.int64)


def _last_settlements(
    rows: ArrowTable, place: Mapping[str, int]
) -> tuple[I64, I64, tuple[str, ...]]:
    """The row of each group's last settlement, or -1; members and states of all rows."""
    of = _group_of(rows, place)
    order, kept = settled(rows, of)
    last = np.full(len(place), -1, np.int64)
    last[of[order[kept]]] = order[kept]  # the last one of a group stays
    return last, ints(rows, "n_members"), words(rows, "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexView:
    """What somebody wants to see of an index.

    Parameters
    ----------
    find : str
        Part of a group's name, or a finding's code; capitals are not told apart.
    state : str
        Only groups in this state; empty for any.
    least : str
        Only groups with a finding this bad or worse; empty for any.
    sort : str
        A column of the index.
    falls : bool
        The greatest first.
    page : int
        Counted from 1; behind the last page stands the last one.
    """

    find: str = ""
    state: str = ""
    least: str = ""
    sort: str = "cost"
    falls: bool = True
    page: int = 1


def select(index: GroupIndex, verdicts: Verdicts, view: IndexView) -> I64:
    """Rows of the index that a view asks for, in its order, on all of its pages."""
    known = [verdicts[n].badness if n in verdicts else NOT_EXAMINED for n in index.names]
    badness = np.asarray(known, np.float64).reshape(-1, 3)
    hit = np.ones(len(index.names), bool)
    if view.state:
        hit &= np.asarray([state == view.state for state in index.state], bool)
    if view.least in SEVERITIES:
        hit &= badness[:, 0] >= SEVERITIES.index(view.least)
    if view.find:
        hit &= np.asarray(_found(index.names, verdicts, view.find.casefold()), bool)
    keys = _sort_keys(index, badness, view.sort)
    if view.falls:
        keys = [-key for key in keys]
    order = np.lexsort((np.arange(len(index.names)), *reversed(keys)))
    return order[hit[order]]


def cut(rows: I64, page: int) -> tuple[I64, int, int]:
    """Rows of one page, the number of this page, and how many pages there are."""
    n_pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(max(page, 1), n_pages)
    return rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], page, n_pages


def _found(names: Sequence[str], verdicts: Verdicts, text: str) -> list[bool]:
    return [
        text in name.casefold()
        or (name in verdicts and any(text == code.casefold() for code, _ in verdicts[name].codes))
        for name in names
    ]


def _sort_keys(index: GroupIndex, badness: F64, sort: str) -> list[F64]:
    """What rows are sorted by, first the most important one."""
    if sort == "findings":
        return [badness[:, 0], badness[:, 1], badness[:, 2], index.cost_s]
    if sort == "cost":  # what is known before what may be
        return [index.cost_lower_s, index.cost_s, badness[:, 0], badness[:, 1]]
    rank = {state: i for i, state in enumerate(index.states)}
    columns = {
        "group": np.arange(len(index.names)),
        "state": np.asarray([rank[state] for state in index.state], np.int64),
        "members": index.n_members,
        "rebalances": index.n_rebalances,
        "lag": index.lag,
    }
    return [columns[sort].astype(np.float64)]
