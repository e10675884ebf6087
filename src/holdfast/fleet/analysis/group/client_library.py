"""The client library of a group's members, and what its poll interval shows, by the records.

**Rules.** A coordinator records a member's client id, its member id, which begins with the client
id, and its subscription. Software names and versions (KIP-511) are in no record and in no answer
about a group, so the ids decide:

- A member of one of holdfast's own protocols runs holdfast.
- librdkafka sends an empty rack, whatever its client id; other clients send none.
- Otherwise the client id counts, if it is a library's default. An id that a person chose says
  nothing.
- A drop-in of holdfast has the ids of its original, and is taken for the original: a plan for the
  original suits the drop-in, too.

For example, ``consumer-etl-1`` in the group ``etl`` is Java's, and in another group it is no
member's.

Java's client, librdkafka and kafka-python send ``max.poll.interval.ms`` as the rebalance timeout
that a group's record has, and leave their group when no poll comes for that time. aiokafka has a
rebalance timeout of its own: by default that of its session, while its ``max_poll_interval_ms`` is
in no record. A static member does not announce that it leaves: its session has to end, too. A
*sign* is a commit of a member's own partitions, or a round that it joined, which is a poll.

References: KIP-881 (racks in subscriptions), KIP-511; KIP-62; kafka-clients, ``ConsumerConfig``'s
``maybeOverrideClientId``; the consumers and defaults of librdkafka, aiokafka, kafka-python, sarama,
franz-go and KafkaJS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from holdfast.core.machine.policy import policy_of_protocol
from holdfast.core.machine.upgrade import Client
from holdfast.core.model.columns import F64, I64, Mask

_DEFAULT_IDS: Final = (
    (re.compile(r"rdkafka"), Client.CONFLUENT),
    (re.compile(r"aiokafka-\d.*"), Client.AIOKAFKA),
    (re.compile(r"kafka-python-\d.*"), Client.KAFKA_PYTHON),
    (re.compile(r"holdfast"), Client.HOLDFAST),
)
_OTHERS: Final = {"sarama": "sarama", "kgo": "franz-go", "kafkajs": "KafkaJS"}
"""Default client ids of libraries for which holdfast has no plan -> their names."""

PLANNED: Final = (
    *(Client.CONFLUENT, Client.JAVA, Client.KAFKA_PYTHON, Client.AIOKAFKA),
    Client.HOLDFAST,
)
"""Clients that members of a group may run, for a person to choose from."""

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


def client_of(
    group: str, protocol: str | None, client_id: str, rack: str | None
) -> Client | str | None:
    """Return the library that a member runs.

    Parameters
    ----------
    protocol : str or None
        The protocol of the member's generation.
    client_id, rack : str, and str or None
        The member's ids in the group's record.

    Returns
    -------
    Client, str or None
        A name where holdfast has no plan for the library; None where the records do not show it.
    """
    policy = policy_of_protocol(protocol or "")
    if policy is not None and policy.design is not None:
        return Client.HOLDFAST
    if rack == "":
        return Client.CONFLUENT
    if client_id.startswith(f"consumer-{group}-"):
        return Client.JAVA
    found = (client for pattern, client in _DEFAULT_IDS if pattern.fullmatch(client_id))
    return next(found, _OTHERS.get(client_id))


def clients_of(
    group: str, protocol: str | None, members: Iterable[tuple[str, str | None]]
) -> frozenset[Client | str | None]:
    """Return the libraries that a group's members run; ``members`` are client ids and racks."""
    return frozenset(client_of(group, protocol, *member) for member in members)


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
