"""Rebalances of one group as columns, for the tables and figures of the page.

**Rules.** Numbers come from the table ``rebalances``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import F64, I64
from holdfast.fleet.columnar import ArrowTable, codes, floats, ints, times_ms
from holdfast.fleet.tables.columns.stored import REBALANCES
from holdfast.fleet.tables.reading import Tables

_BOUNDS = ("lower", "upper")
_COUNTS = tuple(column.name for column in REBALANCES.counts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rebalances:
    """Rebalances of one group in time order.

    Parameters
    ----------
    cause : tuple of str
        Inferred or stated reason; "" where unknown.
    confidence : float64[n]
        0 to 1; NaN where unknown.
    stated : tuple of str or None
        The broker's words if a log states the cause; None for an inferred one.
    counts : dict of str to int64[n]
        Columns of the table that start with ``n_``, and ``eager`` (1, 0); -1 where unknown.
    downtime_lower_s, downtime_upper_s : float64[n]
        Partition-seconds of downtime: without an owner, except ``idle_*``; NaN where unknown.
    idle_lower_s, idle_upper_s : float64[n]
        Partition-seconds without an owner in which, as is known, no record waited; else 0.
    silent_s : float64[n]
        Longest time without a commit of a departed member, while most others committed; NaN
        without one.
    unseen_ms : tuple of (sequence of int or None)
        Time since the last evidence of each departed member, in the order of their ids: -1 without
        evidence; None if unknown.
    stated_reasons : tuple of str
        The broker's words where a log has some, whether they state the cause or not; else "".
    """

    generation: I64
    at_ms: I64
    cause: tuple[str, ...]
    confidence: F64
    stated: tuple[str | None, ...]
    counts: dict[str, I64]
    downtime_lower_s: F64
    downtime_upper_s: F64
    idle_lower_s: F64
    idle_upper_s: F64
    silent_s: F64
    unseen_ms: tuple[Sequence[int] | None, ...]
    stated_reasons: tuple[str, ...]

    def since(self, at_ms: int) -> Rebalances:
        """Return rebalances since a moment, in UTC milliseconds."""
        first = int(np.searchsorted(self.at_ms, at_ms))
        if not first:
            return self
        cut = {
            one.name: getattr(self, one.name)[first:]
            for one in fields(self)
            if one.name != "counts"
        }
        return Rebalances(**cut, counts={name: n[first:] for name, n in self.counts.items()})

    def caused_by(self, name: str) -> npt.NDArray[np.bool_]:
        """Return which rebalances have a cause."""
        found: npt.NDArray[np.bool_] = np.asarray(self.cause, dtype=object) == name
        return found

    def total(self, name: str) -> int | None:
        """Return the sum of a count; None if no rebalance has it."""
        column = self.counts[name]
        known = column >= 0
        return int(column[known].sum()) if known.any() else None

    @property
    def total_downtime_s(self) -> tuple[float, float]:
        """Partition-seconds of downtime in all of them, at least and at most."""
        return float(np.nansum(self.downtime_lower_s)), float(np.nansum(self.downtime_upper_s))

    @property
    def idle_s(self) -> tuple[float, float]:
        """Partition-seconds without an owner in which no record waited, at least and at most."""
        return float(self.idle_lower_s.sum()), float(self.idle_upper_s.sum())

    @property
    def n_moved(self) -> int | None:
        """Partitions that moved, also through a gap; None if no rebalance has the count."""
        moved = self.total("n_moved")
        return None if moved is None else moved + (self.total("n_moved_through_gap") or 0)


def read_rebalances(tables: Tables, group: str) -> Rebalances:
    """Read the rebalances of one group."""
    table = tables.of_group(group, "rebalances")
    at = times_ms(table, "timestamp")
    order = np.lexsort((ints(table, "generation"), at))
    cause, causes = codes(table, "cause")
    idle_lower, idle_upper = (floats(table, f"idle_{b}_seconds", 0.0)[order] for b in _BOUNDS)
    lower, upper = downtime_bounds_s(table)
    return Rebalances(
        generation=ints(table, "generation")[order],
        at_ms=at[order],
        cause=tuple(np.asarray([*causes, ""], dtype=object)[cause[order]].tolist()),
        confidence=floats(table, "confidence")[order],
        stated=_stated(table, order),
        counts={
            **{name: ints(table, name)[order] for name in _COUNTS},
            "eager": 1 - ints(table, "cooperative")[order],
        },
        downtime_lower_s=lower[order],
        downtime_upper_s=upper[order],
        idle_lower_s=idle_lower,
        idle_upper_s=idle_upper,
        silent_s=floats(table, "silent_seconds")[order],
        unseen_ms=tuple(table["unseen_ms"].take(pa.array(order)).to_pylist()),
        stated_reasons=tuple(
            pc.fill_null(table["stated_reason"], "").take(pa.array(order)).to_pylist()
        ),
    )


def downtime_bounds_s(rebalances: ArrowTable) -> tuple[F64, F64]:
    """Return the partition-seconds of downtime of each rebalance, at least and at most.

    Downtime is the time without an owner, except of partitions without a waiting record.
    """
    lower, upper = (
        np.maximum(
            floats(rebalances, f"gap_{b}_seconds") - floats(rebalances, f"idle_{b}_seconds", 0.0),
            0.0,
        )
        for b in _BOUNDS
    )
    return lower, upper


def _stated(table: ArrowTable, order: I64) -> tuple[str | None, ...]:
    is_stated = pc.fill_null(pc.equal(table["cause_basis"], "stated"), False)
    reason = pc.fill_null(table["stated_reason"], "")
    found = pc.if_else(is_stated, reason, pa.scalar(None, pa.string()))
    return tuple(found.take(pa.array(order)).to_pylist())
