"""Count records: those that the topic holds, and those that the members of one group have read.

**Rules.** A record is *read* if a batch in a member's event log covers its offset, and *unread*
otherwise: committed offsets do not count as read.

Example: a topic ends at 10, and batches are 0 to 6 and 5 to 8. Of 10 records 9 are read, 2 of them
twice, and 1 is unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.cli.demo.event_log import Entry
from holdfast.errors import ProcessError


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Counts of records over all partitions."""

    produced: int  # sum of the partitions' end offsets
    read: int  # different records that some member read
    read_twice: int  # reads beyond the first of a record

    @property
    def unread(self) -> int:
        """Return the number of records that no member has read."""
        return self.produced - self.read


def count_records(entries: Iterable[Entry], end: Mapping[int, int]) -> Account:
    """Count the records of a topic that members have read.

    Parameters
    ----------
    entries : iterable of Entry
        The event logs of the members of one group.
    end : mapping of partition to int
        End offset of every partition; each begins at 0.

    Raises
    ------
    ProcessError
        A member read at or beyond the end of a partition.
    """
    steps = {partition: np.zeros(size + 1, np.int64) for partition, size in end.items()}
    for entry in entries:
        if entry.event != "batch":
            continue
        (partition,) = entry.partitions
        if not 0 <= entry.first <= entry.last < end[partition]:
            raise ProcessError(
                f"{entry.member} read offsets {entry.first} to {entry.last} of partition "
                f"{partition}, which ends at {end[partition]}"
            )
        steps[partition][entry.first] += 1
        steps[partition][entry.last + 1] -= 1
    reads = [np.cumsum(column)[:-1] for column in steps.values()]
    return Account(
        produced=sum(end.values()),
        read=sum(int(np.count_nonzero(n)) for n in reads),
        read_twice=sum(int((n[n > 1] - 1).sum()) for n in reads),
    )
