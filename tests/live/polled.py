"""A member of any client, original or holdfast's, polled by a thread of its own.

A join of kafka-python's own consumer that ends between two calls of ``poll`` is discarded, and the
client joins again (kafka-python 3.0.12, ``join_group_async``: a task that is done is replaced, and
its answer is lost). Two clients that one loop polls alternately may thus rebalance for ever. The
thread is in ``poll`` all the time.
"""

from __future__ import annotations

from typing import Any, Self

from tests.live.clients import CLIENTS
from tests.live.crew import PollingThread


class Polled(PollingThread):
    """A member from ``with`` or :meth:`start` on; ``config`` has a ``_`` for each point."""

    def __init__(
        self, name: str, bootstrap: str, group: str, topic: str, *, is_original: bool, **config: Any
    ):
        super().__init__()
        keys = {key.replace("_", "."): value for key, value in config.items()}
        at = {"bootstrap.servers": bootstrap, "group.id": group}
        self.client = CLIENTS[name](topic, {**at, **keys}, is_original=is_original)
        self.client.subscribe([topic])
        self.owned: set[int] = set()
        self._poll_s = 1.0 if name == "kafka" else 0.05

    def poll_once(self) -> None:
        self.client.poll(self._poll_s)
        self.owned = self.client.owns()

    def close(self) -> None:
        self.client.close()

    @property
    def owns(self) -> list[int]:
        """Its partitions; an error of its thread is raised here."""
        if self.error is not None:
            raise self.error
        return sorted(self.owned)

    def hold(self) -> None:
        super().hold()
        assert self.is_held.wait(60)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class StockMember(Polled):
    """confluent-kafka's own consumer under a client id, which commits as it reads."""

    def __init__(self, bootstrap: str, group: str, topic: str, client_id: str, **config: Any):
        own = {"client_id": client_id, "max_poll_interval_ms": 120_000, **config}
        super().__init__("confluent", bootstrap, group, topic, is_original=True, **own)


class Stock(Polled):
    """kafka-python's own consumer with an assignor of holdfast; it commits nothing."""

    def __init__(self, bootstrap: str, group: str, topic: str, assignor: Any, **config: Any):
        own = {"partition_assignment_strategy": [assignor], "enable_auto_commit": False, **config}
        super().__init__("kafka", bootstrap, group, topic, is_original=True, **own)
