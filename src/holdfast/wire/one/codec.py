"""Kafka's primitive types: a reader that never leaves its bytes, a writer, the reasons of failure.

**Rules.**

* A failure is a :class:`WireError` with a :class:`Reason`, the schema, the version, the path of
  the field and the position at which the failing primitive *starts*.
* Errors name fields as Kafka's schemas do, in snake case: ``owned_partitions[2].topic``. Records of
  the offsets topic keep the names of their schemas.

**Strategy.** One door to :mod:`holdfast.wire.one.reader`, :mod:`holdfast.wire.one.writer` and
:mod:`holdfast.wire.one.reasons`; every layout imports from here.

References
----------
Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact types and tagged fields).
"""

from __future__ import annotations

from holdfast.wire.one.reader import (
    STRING_MIN,
    TOPIC_PARTITIONS_MIN,
    Reader,
    read_string,
    read_topic_partitions,
)
from holdfast.wire.one.reasons import INT16_MAX, INT32_MAX, Reason, Row, within
from holdfast.wire.one.writer import Writer, write_string, write_topic_partitions

__all__ = [
    "INT16_MAX",
    "INT32_MAX",
    "STRING_MIN",
    "TOPIC_PARTITIONS_MIN",
    "Reader",
    "Reason",
    "Row",
    "Writer",
    "read_string",
    "read_topic_partitions",
    "within",
    "write_string",
    "write_topic_partitions",
]
