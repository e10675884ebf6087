"""Rebalances of one group as columns, for the tables and figures of the page.

**Rules.** Numbers come from the table ``rebalances``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from holdfast.core.model.columns import F64, I64
from holdfast.fleet.columnar import DecodedRows
from holdfast.fleet.tables.columns.stored import REBALANCES

_COUNTS = tuple(column.name for column in REBALANCES.counts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rebalances:
    """Rebalances of one group in time order."""

    generation: I64
    at_ms: I64
    cause: tuple[str, ...]  # inferred or stated reason; "" where unknown
    confidence: F64  # float64[n]: 0 to 1; NaN where unknown
    # The broker's words if a log states the cause; None for an inferred one.
    stated: tuple[str | None, ...]
    # Columns of the table that start with ``n_``, and ``eager`` (1, 0), int64[n] each; -1
    # where unknown.
    counts: dict[str, I64]
    # ``downtime_lower_s``, ``downtime_upper_s`` (float64[n]): partition-seconds of downtime:
    # without an owner, except ``idle_*``; NaN where unknown.
    downtime_lower_s: F64
    downtime_upper_s: F64
    # ``idle_lower_s``, ``idle_upper_s`` (float64[n]): partition-seconds without an owner in which,
    # as is known, no record waited; else 0.
    idle_lower_s: F64
    idle_upper_s: F64
    # float64[n]: longest time without a commit of a departed member, while most others committed;
    # NaN without one.
    silent_s: F64
    # Time since the last evidence of each departed member, in the order of their ids: -1 without
    # evidence; empty if unknown.
    unseen_ms: tuple[I64, ...]
    # The broker's words where a log has some, whether they state the cause or not; else "".
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


def read_rebalances(rows: DecodedRows) -> Rebalances:
    """Read the rebalances of one group."""
    at = rows.times_ms("timestamp")
    order = np.lexsort((rows.ints("generation"), at))
    lower, upper = downtime_bounds_s(rows)
    reasons = rows.texts("stated_reason", "", order)
    stated = np.asarray(reasons, object)
    stated[~rows.equal("cause_basis", "stated")[order]] = None
    return Rebalances(
        generation=rows.ints("generation")[order],
        at_ms=at[order],
        cause=tuple(rows.texts("cause", "", order)),
        confidence=rows.floats("confidence")[order],
        stated=tuple(stated.tolist()),
        counts={
            **{name: rows.ints(name)[order] for name in _COUNTS},
            "eager": 1 - rows.ints("cooperative")[order],
        },
        downtime_lower_s=lower[order],
        downtime_upper_s=upper[order],
        idle_lower_s=rows.floats("idle_lower_seconds", 0.0)[order],
        idle_upper_s=rows.floats("idle_upper_seconds", 0.0)[order],
        silent_s=rows.floats("silent_seconds")[order],
        unseen_ms=rows.each_list("unseen_ms", order),
        stated_reasons=tuple(reasons),
    )


def downtime_bounds_s(rows: DecodedRows) -> tuple[F64, F64]:
    """Return the partition-seconds of downtime of each rebalance, at least and at most.

    Downtime is the time without an owner, except of partitions without a waiting record.
    """
    lower, upper = (
        np.maximum(rows.floats(f"gap_{b}_seconds") - rows.floats(f"idle_{b}_seconds", 0.0), 0.0)
        for b in ("lower", "upper")
    )
    return lower, upper
