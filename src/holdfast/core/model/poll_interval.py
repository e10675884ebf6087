"""Whether a member went because its poll interval was over, by the time since a sign of it.

**Rules.** Java's client, librdkafka and kafka-python send ``max.poll.interval.ms`` as the rebalance
timeout that a group's record has, and leave their group when no poll came for so long. aiokafka has
a rebalance timeout of its own: by default that of its session, while its ``max_poll_interval_ms``
stands in no record. A static member does not say that it leaves: its session has to end, too.

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
"""A client that commits by itself, every five seconds, may do so that long after its last poll."""
EARLY_MS: Final = 600
"""By so much a record of a round may be later than the first poll after it."""
DEFAULT_MS: Final = 300_000
"""``max.poll.interval.ms`` of a client that is not configured."""

_REASONS: Final = (
    "client reason: consumer poll timeout has expired",
    "client reason: max.poll.interval.ms passed without a poll",
)
"""What Java's clients and holdfast's members say when they leave without a poll (KIP-800)."""


def says_poll_timeout(words: str) -> bool:
    """Whether a broker's words have the reason of a member that left since no poll came."""
    return any(reason in words for reason in _REASONS)


def near_poll_timeout(unseen_ms: F64, poll_ms: I64, has_committed: Mask) -> Mask:
    """Tell whether members went when their poll interval was over, by the time since a sign.

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
