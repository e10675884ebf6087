"""Counting records: produced = consumed + still unread, and how many were read twice.

**Rules.** The three numbers come from different sources, and none is computed from another one.
*Produced* are the records that the broker acknowledged to the producer. *Consumed* are the records
that the members' journals list. *Unread* are the records after the group's committed offset, by the
broker's end offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.cli.demo.journal import Entry
from holdfast.errors import AdapterError


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Counts of records over all partitions."""

    produced: int  # acknowledged by the broker
    consumed: int  # different records that some member read
    unread: int  # after the committed offsets
    read_twice: int  # reads beyond the first of a record
    skipped: int  # records before the committed offset that no member has read
    # Read, and at or after the committed offset: a next member would read them again.
    uncommitted: int
    end: int  # sum of the partitions' end offsets

    @property
    def adds_up(self) -> bool:
        """Whether no record is missing on either side."""
        return (
            self.produced == self.end
            and self.skipped == 0
            and self.produced == self.consumed + self.unread - self.uncommitted
        )

    def check(self) -> None:
        """Raise an AdapterError with all counts if they do not add up."""
        if not self.adds_up:
            raise AdapterError(
                f"records do not add up: produced {self.produced}, on the broker {self.end}, "
                f"consumed {self.consumed}, unread {self.unread}, skipped {self.skipped}, "
                f"read but not committed {self.uncommitted}"
            )


def settle(
    entries: Iterable[Entry],
    acknowledged: Mapping[int, int],
    end: Mapping[int, int],
    committed: Mapping[int, int],
) -> Account:
    """Account for every record.

    Parameters
    ----------
    acknowledged, end, committed : mapping of partition to int
        Records acknowledged to the producer; end offset; the group's committed offset (0 if none).
    """
    reads = {partition: np.zeros(size + 1, np.int64) for partition, size in end.items()}
    for entry in entries:
        if entry.event != "batch":
            continue
        (partition,) = entry.partitions
        if not 0 <= entry.first <= entry.last < len(reads[partition]) - 1:
            raise AdapterError(
                f"{entry.member} read offsets {entry.first} to {entry.last} of partition "
                f"{partition}, which ends at {end[partition]}"
            )
        reads[partition][entry.first] += 1
        reads[partition][entry.last + 1] -= 1
    counts = {partition: np.cumsum(steps)[:-1] for partition, steps in reads.items()}
    at = {partition: committed.get(partition, 0) for partition in end}
    return Account(
        produced=sum(acknowledged.values()),
        consumed=sum(int(np.count_nonzero(c)) for c in counts.values()),
        unread=sum(end[p] - at[p] for p in end),
        read_twice=sum(int((c[c > 1] - 1).sum()) for c in counts.values()),
        skipped=sum(int(np.count_nonzero(c[: at[p]] == 0)) for p, c in counts.items()),
        uncommitted=sum(int(np.count_nonzero(c[at[p] :])) for p, c in counts.items()),
        end=sum(end.values()),
    )
