"""Recognition of members that left because their poll interval passed, by their last sign.

**Rules.** Java's client, librdkafka and kafka-python send ``max.poll.interval.ms`` as the rebalance
timeout that a group's record has, and leave their group when no poll comes for that time. aiokafka
has a rebalance timeout of its own: by default that of its session, while its
``max_poll_interval_ms`` is in no record. A static member does not announce that it leaves: its
session has to end, too.

A *sign* is a commit of a member's own partitions, or a round that it joined, which is a poll.

References: KIP-62; the consumers of kafka-clients, librdkafka, kafka-python and aiokafka.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.model.columns import F64, I64, Mask

AFTER_POLL_MS: Final = 10_000
AFTER_POLL_SHARE: Final = 1 / 6
"""A member goes so long after its last sign and its poll interval, in milliseconds or as a part of
it: it polled on for a while after its last commit, and the others of its group had to come to the
round."""
COMMIT_LATE_MS: Final = 5_500
"""Time after its last poll at which a client may still auto-commit, every five seconds, in ms."""
EARLY_MS: Final = 600
"""Time by which a round's record may be later than the first poll after it, in ms."""
DEFAULT_MS: Final = 300_000
"""``max.poll.interval.ms`` of a client that is not configured."""

_REASONS: Final = (
    "client reason: consumer poll timeout has expired",
    "client reason: max.poll.interval.ms passed without a poll",
)
"""Reasons of Java's clients and holdfast's members that leave without a poll (KIP-800)."""


def says_poll_timeout(words: str) -> bool:
    """Return whether a broker's text has the reason of a member that stopped polling."""
    return any(reason in words for reason in _REASONS)


def near_poll_timeout(unseen_ms: F64, poll_ms: I64, has_committed: Mask) -> Mask:
    """Return whether members left when their poll interval passed, by the time since a sign.

    Parameters
    ----------
    unseen_ms, poll_ms : float64[n], int64[n]
        Milliseconds from a member's last sign to the record without it, and its poll interval; NaN,
        and 0 or less, where that is not known.
    has_committed : bool[n]
        Whether the last sign is a commit, and not the round before: a client may commit later than
        it polled, and may poll on after it committed.

    Returns
    -------
    bool[n]
    """
    early_ms = np.where(has_committed, np.minimum(COMMIT_LATE_MS, poll_ms / 2), EARLY_MS)
    late_ms = np.maximum(AFTER_POLL_MS, AFTER_POLL_SHARE * poll_ms)
    found: Mask = (unseen_ms >= poll_ms - early_ms) & (unseen_ms <= poll_ms + late_ms)
    return found & (poll_ms > 0)
