"""kafka-python's consumer over holdfast's membership: change the import, and nothing else.

::

    from holdfast.kafka import KafkaConsumer

``docs/clients.md`` says what differs; :func:`install` is for a framework that makes the consumer.
The assignors are for kafka-python's own consumer, where that one has to stay: they are imported on
first use. ``TopicPartition`` and ``ConsumerRebalanceListener`` are kafka-python's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kafka import ConsumerRebalanceListener, TopicPartition

from holdfast.members.drop_in.kafka.consumer import KafkaConsumer, install

if TYPE_CHECKING:
    from holdfast.members.kafka_python import (
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


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("holdfast.members.kafka_python"), name)
    raise AttributeError(f"module 'holdfast.kafka' has no attribute {name!r}")
