"""Ids as Kafka writes them: topic ids in base64url, and the partition that a group id hashes to.

**Rules.** A topic id is 16 bytes. It is written as 22 characters without padding
(``AAAAAAAAAAAAAAAAAAAAAQ``), and read in that form or as a UUID with dashes
(``00000000-0000-0000-0000-000000000001``), which other tools have.

**Strategy.** :func:`topic_id_text` for one id; the pipeline writes whole columns of them
(:mod:`holdfast.fleet.pipeline.ingest.decode`).

References: KIP-516; ``org.apache.kafka.common.Uuid.toString``.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterable
from uuid import UUID

TEXT_LENGTH = 22


def topic_id_text(topic_id: UUID) -> str:
    """Return the id as Kafka's tools write it."""
    return base64.urlsafe_b64encode(topic_id.bytes)[:TEXT_LENGTH].decode("ascii")


def read_topic_id(text: str) -> UUID:
    """Return the id of a text in either form.

    Raises
    ------
    ValueError
        The text is neither 22 characters of base64url nor a UUID.
    """
    if len(text) != TEXT_LENGTH:
        return UUID(text)
    try:
        data = base64.b64decode(f"{text}==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is no topic id: {error}") from error
    return UUID(bytes=data)


def names_by_id(topics: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return names of topics by their ids, under both forms of each id.

    Parameters
    ----------
    topics : iterable of (str, str)
        Topic id and name; ids that have neither form are kept unchanged. The id 0 is left out: a
        cluster before Kafka 2.8 gives it to every topic.
    """
    names: dict[str, str] = {}
    for text, name in topics:
        names[text] = name
        try:
            topic_id = read_topic_id(text)
        except ValueError:
            continue
        # the id of every topic in a cluster without ids, which identifies none
        if not topic_id.int:
            del names[text]
            continue
        names[topic_id_text(topic_id)] = names[str(topic_id)] = name
    return names


# The partition of the offsets topic that holds a group's records.
#
# Kafka takes the hash of the group's name as Java has it: over UTF-16 units, in 32 bits with a
# sign. Its absolute value, and 0 for the one number that has none, is divided by the number of
# partitions; the rest is the partition.
#
# References: ``java.lang.String.hashCode``; ``GroupMetadataManager.partitionFor`` and
# ``org.apache.kafka.common.utils.Utils.abs``, Kafka 4.3.1.


def string_hash(text: str) -> int:
    """Return Java's ``hashCode`` of a string.

    Returns
    -------
    int
        -2**31 <= hash < 2**31.

    References: ``java.lang.String.hashCode``.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for (unit,) in struct.iter_unpack(">H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def offsets_partition(group: str, n_partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that holds every record of a group.

    Parameters
    ----------
    n_partitions : int
        Partitions of the topic; 50 unless ``offsets.topic.num.partitions`` differs.

    References: ``GroupMetadataManager.partitionFor``, Kafka 4.3.1.
    """
    code = string_hash(group)
    return (0 if code == -(1 << 31) else abs(code)) % n_partitions
