"""Connections to fake brokers: ``send`` answers, on the thread that sends."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from tests.members.configured import settings_of


class FakeConnections:
    """What questions to a cluster need of :class:`holdfast.cluster.connections.Connections`."""

    settings = settings_of(retry_backoff_max_ms=0)
    timeout_ms = 1000

    async def again(self, attempt, most_s=None):
        return await attempt()

    def address(self, node):
        return f"broker {node} (h{node}:9092)"

    async def sleep(self, seconds):
        """Time does not pass."""

    def future(self, work):
        done = Future()
        try:
            done.set_result(asyncio.run(work()))
        except Exception as error:
            done.set_exception(error)
        return done
