"""kafka-python's consumer over holdfast's membership: change the import, and nothing else.

::

    from holdfast.kafka import KafkaConsumer

``docs/clients.md`` says what differs; :func:`install` is for a framework that makes the consumer.
Assignors for kafka-python's own consumer are in :mod:`holdfast.members.kafka_python`.
"""

from __future__ import annotations

from holdfast.members.drop_in.kafka.consumer import KafkaConsumer, install

__all__ = ["KafkaConsumer", "install"]
