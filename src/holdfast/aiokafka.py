"""aiokafka's consumer over holdfast's membership: change the import, and nothing else.

::

    from holdfast.aiokafka import AIOKafkaConsumer

``docs/clients.md`` says what differs; :func:`install` is for a framework that makes the consumer.
The assignors are for aiokafka's own consumer, where that one has to stay: they are eager, and
imported on first use. ``TopicPartition`` and ``ConsumerRebalanceListener`` are aiokafka's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aiokafka import ConsumerRebalanceListener, TopicPartition

from holdfast.members.drop_in.aiokafka.consumer import AIOKafkaConsumer, install

if TYPE_CHECKING:
    from holdfast.members.aiokafka_assignor import Range, RoundRobin, Sticky, assignor

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


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("holdfast.members.aiokafka_assignor"), name)
    raise AttributeError(f"module 'holdfast.aiokafka' has no attribute {name!r}")
