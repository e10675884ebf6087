"""Connections to fake brokers: ``send`` answers, on the thread that sends."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace as Answer

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


class GroupBrokers(FakeConnections):
    """Two brokers with groups of (kind, node) or (kind, node, state), and what they are asked."""

    def __init__(self, groups):
        self.connections, self.groups, self.asked = self, groups, []

    async def send(self, request, node=None):
        name = type(request).__name__.removesuffix("Request")
        if name == "Metadata":
            return Answer(brokers=[Answer(node_id=1), Answer(node_id=2)])
        return self.answered(name, node, request)

    def listed(self, node):
        listed = [
            Answer(group_id=group, group_type=kind, group_state="".join(state))
            for group, (kind, at, *state) in self.groups.items()
            if at == node
        ]
        return Answer(error_code=0, groups=listed)
