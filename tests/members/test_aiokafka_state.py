"""The fetcher of ``holdfast.aiokafka`` while the assignment changes, and an interrupted close."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.members.clients.aiokafka.adapter import MutableAssignment, MutableSubscriptions
from holdfast.members.clients.aiokafka.coordinator import MemberCoordinator
from holdfast.members.clients.aiokafka.fetcher import UnblockedFetcher
from holdfast.members.session.subscription_state import SubscriptionState

A, B, C = (TopicPartition("t", i) for i in range(3))
LEADER = 1
STEPS = 20  # turns of the loop; nothing here waits for anything else
END = 30


class Client:
    """A broker that answers every fetch with nothing, and every question for an end with one."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._metadata_max_age_ms = 1
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: LEADER)
        self.fetched: list[set[int]] = []

    async def send(self, node_id, request):
        assert node_id == LEADER
        await asyncio.sleep(0)
        if type(request).__name__ != "FetchRequest":
            ends = [(t, [(p, 0, -1, END) for p, _ in parts]) for t, parts in request._topics]
            return SimpleNamespace(API_VERSION=1, topics=ends)
        self.fetched.append({p for _, parts in request.topics for p, *_ in parts})
        nothing = [(t, [(p, 0, 9, 9, [], b"") for p, *_ in parts]) for t, parts in request.topics]
        return SimpleNamespace(API_VERSION=4, topics=nothing)


Harness = Callable[[Client, MutableSubscriptions, MutableAssignment], Awaitable[None]]


def play(harness: Harness, *first: TopicPartition, pattern: str = "") -> None:
    """Play a scene beside a fetcher whose member begins with these partitions.

    One with a pattern is eager, has found one topic, and begins with nothing.
    """

    async def run() -> None:
        client = Client()
        subscriptions = MutableSubscriptions(client._loop, cooperative=not pattern)
        if pattern:
            subscriptions.subscribe_pattern(re.compile(pattern))
            subscriptions.subscribe_from_pattern({"t"})
        else:
            subscriptions.subscribe(topics={"t"})
            subscriptions.assign_more(first, SubscriptionState())
        subscriptions.fetcher = UnblockedFetcher(client, subscriptions, auto_offset_reset="latest")
        await turns()
        try:
            await harness(client, subscriptions, subscriptions.subscription.assignment)
        finally:
            await subscriptions.fetcher.close()

    asyncio.run(run())


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(STEPS):
        await asyncio.sleep(0)


def committed(assignment: MutableAssignment, tp: TopicPartition, offset: int) -> None:
    assignment.state_value(tp).update_committed(OffsetAndMetadata(offset, ""))


def test_what_stays_keeps_flowing_while_nobody_says_where_a_gained_partition_begins():
    async def harness(client, subscriptions, assignment):
        committed(assignment, A, 5)
        await turns()
        subscriptions.assign_more([B], SubscriptionState())
        await turns()
        assert assignment.requesting_committed() == [B]
        client.fetched.clear()
        await turns()
        assert client.fetched, "the answer to B's question may last until a broker is back"
        assert all(asked == {A.partition} for asked in client.fetched)
        committed(assignment, B, 7)
        await turns()
        assert client.fetched[-1] == {A.partition, B.partition}
        assert assignment.state_value(B).position == 7

    play(harness, A)


def test_all_that_is_gained_is_asked_for_in_one_question():
    async def harness(_, subscriptions, assignment):
        assert set(assignment.requesting_committed()) == {A, B}
        subscriptions.assign_more([C], SubscriptionState())
        await turns()
        assert set(assignment.requesting_committed()) == {A, B, C}
        assert len(assignment.state_value(A)._committed_futs) == 1, "each once"

    play(harness, A, B)


def test_what_nobody_has_committed_begins_where_the_reset_says():
    async def harness(client, _, assignment):
        committed(assignment, A, -1)
        await turns()
        assert assignment.state_value(A).position == END
        assert client.fetched[-1] == {A.partition}

    play(harness, A)


def test_a_place_that_the_application_seeks_is_not_taken_back():
    async def harness(client, _, assignment):
        assignment.state_value(A).seek(3)
        committed(assignment, A, 7)
        await turns()
        assert assignment.state_value(A).position == 3
        assert client.fetched[-1] == {A.partition}

    play(harness, A)


def test_a_fetcher_waits_for_nothing_that_is_gone():
    async def harness(client, subscriptions, assignment):
        subscriptions.drop([A, B])  # the broker was killed, and the member lost everything
        subscriptions.assign_more([A], SubscriptionState())
        await turns()
        assert assignment.requesting_committed() == [A]
        committed(assignment, A, 7)
        await turns()
        assert client.fetched[-1] == {A.partition}, "all that this broker leads would stand still"
        assert not assignment.state_value(B).has_valid_position

    play(harness, A, B)


def test_a_fetcher_goes_on_with_what_is_left():
    async def harness(client, subscriptions, assignment):
        subscriptions.drop([A])
        await turns()
        assert assignment.requesting_committed() == [B]
        committed(assignment, B, 7)
        await turns()
        assert assignment.state_value(B).position == 7
        assert client.fetched[-1] == {B.partition}

    play(harness, A, B)


def test_a_fetcher_waits_on_where_an_assignment_is_gone_before_it_wakes():
    """A new topic of a pattern begins a subscription without one; aiokafka's fetcher ended."""

    async def harness(client, subscriptions, _):
        subscriptions.assign_more([A], SubscriptionState())
        subscriptions.subscribe_from_pattern({"t", "u"})
        await turns()
        assert not subscriptions.fetcher._fetch_task.done()
        assert client.fetched == []
        subscriptions.assign_more([A, B], SubscriptionState())
        await turns()
        committed(subscriptions.subscription.assignment, A, 3)
        committed(subscriptions.subscription.assignment, B, 4)
        await turns()
        assert client.fetched[-1] == {A.partition, B.partition}

    play(harness, pattern="t|u")


def test_a_close_whose_end_is_interrupted_ends_when_the_loop_runs_again():
    loop, ends = asyncio.new_event_loop(), []

    async def end():
        ends.append(len(ends))
        if len(ends) == 1:
            raise KeyboardInterrupt

    coordinator = SimpleNamespace(_ending=None, _closing=loop.create_future(), _loop=loop, _end=end)
    closing = loop.create_task(MemberCoordinator.close(coordinator))
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(closing)
    loop.run_until_complete(closing)
    loop.close()
    assert ends == [0, 1]
