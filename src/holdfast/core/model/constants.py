"""Numbers and names of Kafka's messages, and of the three designs; importing them needs no NumPy.

References: Incremental Cooperative Rebalancing, Designs I, II and III.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

INT32_MAX = 2**31 - 1
"""The largest int32: no count, index or duration in Kafka's messages is larger."""

NO_GENERATION = -1
"""Generation of a member that has none."""

MOST_PARTITIONS = 2**22
"""Topic-partitions of one group or snapshot if the caller names no limit.

A partition takes some 200 bytes in an assignor; whole clusters hold fewer.
"""


class Design(IntEnum):
    """The three designs of the document; the number is the version on the wire."""

    SIMPLE = 1
    DEFERRED = 2
    INCREMENTAL = 3


DESIGN_NAMES: Mapping[Design, str] = {
    Design.SIMPLE: "holdfast-simple",
    Design.DEFERRED: "holdfast-deferred",
    Design.INCREMENTAL: "holdfast-incremental",
}
"""Protocol names of the designs."""


def believed_size(n_said: int, n_seen: int) -> int:
    """Return how many partitions to count in a topic, by the highest number and those seen.

    A partition number is untrusted and never decides alone how much is allocated: where numbers are
    sparse, the partitions that were seen are counted instead.

    Parameters
    ----------
    n_said : int
        The highest number that was seen, plus one.
    n_seen : int
        Different numbers that were seen.
    """
    return n_said if n_said <= 4 * n_seen + 1024 else n_seen
