"""What aiokafka's fetcher finds in an assignment that changes while it works."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from aiokafka.consumer.fetcher import Fetcher, OffsetResetStrategy
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.adapters.drop_in.aiokafka.state import KeepingAssignment

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
STEPS = 20  # turns of the loop; nothing here waits for anything else


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(STEPS):
        await asyncio.sleep(0)


def looking_up(assignment: KeepingAssignment) -> asyncio.Task[bool]:
    """The fetcher asks for the committed offsets of both partitions."""
    fetcher = SimpleNamespace(_default_reset_strategy=OffsetResetStrategy.EARLIEST)
    return asyncio.create_task(Fetcher._update_fetch_positions(fetcher, assignment, 1, [A, B]))


def test_a_fetcher_that_looks_for_a_start_waits_for_nothing_that_is_gone():
    async def scene() -> None:
        assignment = KeepingAssignment([A, B])
        task = looking_up(assignment)
        await turns()
        assert assignment.requesting_committed() == [A]
        assignment.remove([A, B])  # the broker was killed, and the member lost everything
        await turns()
        assert task.done(), "all that this broker leads would never be fetched again"
        assert not assignment.state_value(A).has_valid_position
        assert not assignment.state_value(B).has_valid_position

    asyncio.run(scene())


def test_a_fetcher_goes_on_with_what_is_left():
    async def scene() -> None:
        assignment = KeepingAssignment([A, B])
        task = looking_up(assignment)
        await turns()
        assignment.remove([A])
        await turns()
        assert assignment.requesting_committed() == [B]
        assignment.state_value(B).update_committed(OffsetAndMetadata(7, ""))
        await turns()
        assert task.done()
        assert assignment.state_value(B).position == 7

    asyncio.run(scene())
