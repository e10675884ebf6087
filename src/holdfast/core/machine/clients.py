"""Client libraries of a group's members, recognised by the group's records.

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

References: KIP-881 (racks in subscriptions), KIP-511; kafka-clients, ``ConsumerConfig``'s
``maybeOverrideClientId``; the defaults of librdkafka, aiokafka, kafka-python, sarama, franz-go and
KafkaJS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from holdfast.core.machine.policy import policy_of_protocol
from holdfast.core.machine.upgrade import Client

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
