"""confluent-kafka's consumers with a member of holdfast's behind them: change one import.

``from holdfast.confluent import Consumer`` in place of ``from confluent_kafka import Consumer``.
``docs/clients.md`` has the keys, and what differs from the originals on purpose.
"""

from __future__ import annotations

from holdfast.adapters.facade.consumer import ConfluentConsumer as Consumer

__all__ = ["Consumer"]
