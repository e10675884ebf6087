"""confluent-kafka's consumers with a member of holdfast's behind them: change one import.

``from holdfast.confluent import Consumer`` in place of ``from confluent_kafka import Consumer``;
``docs/clients.md`` has the keys, and what differs from the originals on purpose. A framework that
imports confluent-kafka's classes itself gets ours after :func:`install`; ``docs/frameworks.md`` has
the lines for each.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.adapters.drop_in.confluent.consumer import ConfluentConsumer as Consumer
from holdfast.adapters.drop_in.confluent.kinds import (
    ConfluentDeserializingConsumer as DeserializingConsumer,
)
from holdfast.adapters.drop_in.confluent.kinds import install

with suppress(ImportError):  # confluent-kafka has the original since 2.13
    from holdfast.adapters.drop_in.confluent.asynchronous import ConfluentAIOConsumer as AIOConsumer
with suppress(ImportError):  # since 2.16
    from holdfast.adapters.drop_in.confluent.asynchronous import (
        ConfluentAsyncDeserializingConsumer as AsyncDeserializingConsumer,
    )

__all__ = [
    "AIOConsumer",
    "AsyncDeserializingConsumer",
    "Consumer",
    "DeserializingConsumer",
    "install",
]
