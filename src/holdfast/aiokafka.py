"""aiokafka's consumer over holdfast's membership: change the import, and nothing else.

::

    from holdfast.aiokafka import AIOKafkaConsumer

``docs/clients.md`` says what differs; :func:`install` is for a framework that makes the consumer.
"""

from __future__ import annotations

from holdfast.members.drop_in.aiokafka.consumer import AIOKafkaConsumer, install

__all__ = ["AIOKafkaConsumer", "install"]
