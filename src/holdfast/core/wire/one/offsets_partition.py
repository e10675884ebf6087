"""The partition of the offsets topic that holds a group's records.

**Rules.** Kafka takes the hash of the group's name as Java has it: over UTF-16 units, in 32 bits
with a sign. Its absolute value, and 0 for the one number that has none, is divided by the number of
partitions; the rest is the partition.

References: ``java.lang.String.hashCode``; ``GroupMetadataManager.partitionFor`` and
``org.apache.kafka.common.utils.Utils.abs``, Kafka 4.3.1.
"""

from __future__ import annotations

import struct


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
