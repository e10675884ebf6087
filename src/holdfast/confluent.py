"""confluent-kafka's consumers with a member of holdfast's behind them: change one import.

``from holdfast.confluent import Consumer`` in place of ``from confluent_kafka import Consumer``;
``docs/clients.md`` has the keys, and what differs from the originals on purpose. A framework that
imports confluent-kafka's classes itself gets ours after :func:`install`; ``docs/frameworks.md`` has
the lines for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.members.drop_in.confluent.consumer import ConfluentConsumer as Consumer
from holdfast.members.drop_in.confluent.kinds import (
    ConfluentDeserializingConsumer as DeserializingConsumer,
)
from holdfast.members.drop_in.confluent.kinds import install

if TYPE_CHECKING:
    from holdfast.members.drop_in.confluent.asynchronous import ConfluentAIOConsumer as AIOConsumer
    from holdfast.members.drop_in.confluent.asynchronous import (
        ConfluentAsyncDeserializingConsumer as AsyncDeserializingConsumer,
    )

__all__ = [
    "AIOConsumer",
    "AsyncDeserializingConsumer",
    "Consumer",
    "DeserializingConsumer",
    "install",
]

_ASYNCIO = {  # confluent-kafka has the first one since 2.13, the other one since 2.16
    "AIOConsumer": "ConfluentAIOConsumer",
    "AsyncDeserializingConsumer": "ConfluentAsyncDeserializingConsumer",
}


def __getattr__(name: str) -> Any:
    """Import the asyncio classes when they are asked for, as confluent-kafka does."""
    if name in _ASYNCIO:
        try:
            from holdfast.members.drop_in.confluent import asynchronous

            return getattr(asynchronous, _ASYNCIO[name])
        except (ImportError, AttributeError):
            pass
    raise AttributeError(f"module 'holdfast.confluent' has no attribute {name!r}")
