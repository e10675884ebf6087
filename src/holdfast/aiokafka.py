"""aiokafka's consumer over holdfast's membership: change the import, and nothing else.

::

    from holdfast.aiokafka import AIOKafkaConsumer

``docs/clients.md`` says what differs; :func:`install` is for a framework that makes the consumer.
The assignors are for programs that keep aiokafka's own consumer: they are eager, and imported on
first use. Every other public name, such as ``AIOKafkaProducer``, is aiokafka's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.extras import needed

with needed("members"):
    import aiokafka
    from aiokafka import ConsumerRebalanceListener, TopicPartition

from holdfast.members.clients.aiokafka.consumer import AIOKafkaConsumer, install
from holdfast.members.clients.drop_in import module_attribute

if TYPE_CHECKING:
    from holdfast.members.clients.aiokafka.assignors import Range, RoundRobin, Sticky, assignor

__all__ = [
    "AIOKafkaConsumer",
    "ConsumerRebalanceListener",
    "Range",
    "RoundRobin",
    "Sticky",
    "TopicPartition",
    "assignor",
    "install",
]


_LATE = {
    name: f"holdfast.members.clients.aiokafka.assignors:{name}"
    for name in ("Range", "RoundRobin", "Sticky", "assignor")
}


def __getattr__(name: str) -> Any:
    return module_attribute(__name__, name, _LATE, aiokafka)
