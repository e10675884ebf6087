"""Lag of each partition of a group at the end of the window, and sums of lags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import F64, I32, I64, Mask
from holdfast.fleet.columnar import ArrowTable, DecodedRows

NEVER = -1

JUDGED: Final = (
    *("group", "topic", "partition", "member_id", "lag", "has_unread", "current_offset"),
    *("log_end_offset", "log_start_offset", "commit_timestamp", "position_timestamp"),
    *("lag_seconds", "lag_seconds_basis", "not_subscribed", "clamped"),
)
"""Columns of ``lag`` that rules read; pages read all."""


def lag_sums(rows: ArrowTable, by: Sequence[str]) -> pa.Table:
    """Return the lag of each group, or of each group and topic: one row each, in no order.

    Parameters
    ----------
    rows : Table
        Rows of the table ``lag``.
    by : sequence of str
        Columns that name a sum.

    Returns
    -------
    Table
        ``by``; ``lag``, the sum of known lags, or null; ``lag_seconds``, the largest one of topics
        that members subscribe to, or null, also for a 0 that may be wrong; ``n_partitions``, and
        ``n_unknown``, those whose lag is not known.
    """
    counts = pc.invert(pc.fill_null(rows["not_subscribed"], False))
    age = pc.if_else(counts, rows["lag_seconds"], None)
    waits = pc.and_(pc.and_(counts, age.is_null()), pc.greater(pc.fill_null(rows["lag"], 0), 0))
    columns = {name: rows[name] for name in (*by, "lag")}
    summed = pa.table({**columns, "age": age, "waits": waits}).group_by([*by], use_threads=False)
    found = summed.aggregate(
        [("lag", "sum"), ("age", "max"), ("waits", "any"), ("lag", "count"), ([], "count_all")]
    )
    wrong = pc.and_(pc.equal(found["age_max"], 0), found["waits_any"])
    return pa.table(
        {
            **{name: found[name] for name in by},
            "lag": found["lag_sum"],
            "lag_seconds": pc.if_else(wrong, None, found["age_max"]),
            "n_partitions": found["count_all"],
            "n_unknown": pc.subtract(found["count_all"], found["lag_count"]),
        }
    )


def _ints(name: str) -> cached_property[I64]:
    return cached_property(lambda lag: lag.rows.ints(name))


def _times_ms(name: str) -> cached_property[I64]:
    return cached_property(lambda lag: lag.rows.times_ms(name))


def _codes(name: str) -> cached_property[tuple[I32, tuple[str, ...]]]:
    return cached_property(lambda lag: lag.rows.codes(name))


@dataclass(frozen=True, eq=False)  # no slots: columns are cached
class LagRows:
    """Lag of each partition: a column is decoded when it is used first.

    Integers are -1 if unknown or missing.
    """

    rows: DecodedRows

    partition = _ints("partition")
    lag = _ints("lag")  # records between the committed offset and the end of the log
    committed = _ints("current_offset")
    begin = _ints("log_start_offset")
    end = _ints("log_end_offset")
    has_unread = _ints("has_unread")  # 0 if at most control records of transactions are unread
    commit_ms = _times_ms("commit_timestamp")  # time of the last commit
    position_ms = _times_ms("position_timestamp")  # when the group reached ``committed``
    # Topic, and member id of the owner in the last generation, as an index into the sorted names.
    topic_codes = _codes("topic")
    owner_codes = _codes("member_id")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def stored(self) -> ArrowTable:
        """The rows as they are stored."""
        return self.rows.arrow

    @cached_property
    def topic(self) -> list[str]:
        """Topic of each row."""
        return self.rows.texts("topic", "")

    @cached_property
    def member(self) -> list[str | None]:
        """Member id of the owner in the last generation."""
        return self.rows.texts("member_id")

    def partition_name(self, row: int) -> str:
        """Return ``topic-partition`` of a row."""
        return f"{self.rows.text('topic', row) or ''}-{self.partition[row]}"

    @cached_property
    def age_s(self) -> F64:
        """Age of the first unread record by its own time, or a lower bound; NaN if unknown."""
        of_record = self.rows.equal("lag_seconds_basis", "record")
        of_record |= self.rows.equal("lag_seconds_basis", "at_least")
        return np.where(of_record, self.seconds, np.nan)

    @cached_property
    def seconds(self) -> F64:
        """Time lag in seconds, on any basis; NaN if unknown."""
        return self.rows.floats("lag_seconds")

    @cached_property
    def not_subscribed(self) -> Mask:
        """Whether a commit is of a topic that no member subscribes to."""
        return self.rows.flags("not_subscribed")

    def clamped(self, where: str) -> I64:
        """Return the rows whose commit is outside of the log: before_begin or beyond_end."""
        return np.flatnonzero(self.rows.equal("clamped", where))

    @cached_property
    def work(self) -> I64:
        """Lag of each partition that may be records: 0 if no record is unread."""
        return np.where(self.has_unread == 0, np.minimum(self.lag, 0), self.lag)

    @cached_property
    def waits(self) -> Mask:
        """Whether records wait for the group."""
        found: Mask = self.work > 0
        return found

    @cached_property
    def waits_for_owner(self) -> Mask:
        """Whether records wait for a member of the last generation, which owns the partition."""
        return self.waits & (self.owner_codes[0] >= 0)

    def waiting_since(self, end_ms: int) -> I64:
        """Return when each partition was last committed, or when its records came if later; ms."""
        came_ms = end_ms - 1000 * np.nan_to_num(self.age_s, nan=end_ms / 1000)
        return np.maximum(self.commit_ms, came_ms.astype(np.int64))
