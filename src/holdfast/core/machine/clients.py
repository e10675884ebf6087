"""Which client library the members of a group run, by what a group's records say of them.

**Rules.** A coordinator writes down a member's client id, its member id, which begins with that,
and its subscription. Software names and versions (KIP-511) stand in no record and in no answer
about a group, so the ids decide:

- A member of one of holdfast's own protocols runs holdfast.
- librdkafka sends an empty rack, whatever its client id; other clients send none.
- Otherwise the client id counts, where it is the one that a library has by default. An id that a
  person chose tells nothing.
- A drop-in of holdfast has the ids of its original, and is taken for that: a plan for the original
  suits the drop-in, too.

For example, ``consumer-etl-1`` in the group ``etl`` is Java's, and in another group it is nobody's.

References: KIP-881 (racks in subscriptions), KIP-511; kafka-clients, ``ConsumerConfig``'s
``maybeOverrideClientId``; the defaults of librdkafka, aiokafka, kafka-python, sarama, franz-go and
KafkaJS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from holdfast.core.machine.policies import policy_of_protocol
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
    """Tell which library a member runs.

    Parameters
    ----------
    protocol : str or None
        The protocol of the member's generation.
    client_id, rack : str, and str or None
        As the group's record has them.

    Returns
    -------
    Client, str or None
        A name where holdfast has no plan for the library; None where the records do not tell it.
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
    """Tell which libraries the members of a group run; ``members`` are client ids and racks."""
    return frozenset(client_of(group, protocol, *member) for member in members)
