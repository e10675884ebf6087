"""kafka-python's consumer over holdfast's membership: change the import, and nothing else.

::

    from holdfast.kafka import KafkaConsumer

``docs/clients.md`` says what differs; :func:`install` is for a framework that makes the consumer.
The assignors are for programs that keep kafka-python's own consumer; they are imported on first
use. Every other public name, such as ``KafkaProducer``, is kafka-python's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.extras import needed

with needed("members"):
    import kafka
    from kafka import ConsumerRebalanceListener, TopicPartition

from holdfast.members.clients.drop_in import module_attribute
from holdfast.members.clients.kafka.consumer import KafkaConsumer, install

if TYPE_CHECKING:
    from holdfast.members.clients.kafka.assignors import (
        CooperativeSticky,
        Range,
        RoundRobin,
        Sticky,
        assignor,
    )

__all__ = [
    "ConsumerRebalanceListener",
    "CooperativeSticky",
    "KafkaConsumer",
    "Range",
    "RoundRobin",
    "Sticky",
    "TopicPartition",
    "assignor",
    "install",
]


_LATE = {
    name: f"holdfast.members.clients.kafka.assignors:{name}"
    for name in ("CooperativeSticky", "Range", "RoundRobin", "Sticky", "assignor")
}


def __getattr__(name: str) -> Any:
    return module_attribute(__name__, name, _LATE, kafka)
