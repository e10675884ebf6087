"""Commits of the member behind aiokafka that nobody answers; without a broker."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from aiokafka.errors import IllegalGenerationError, KafkaError, RequestTimedOutError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.adapters.drop_in.aiokafka.coordinator import MemberCoordinator
from holdfast.adapters.drop_in.aiokafka.state import KeepingAssignment
from holdfast.errors import AdapterError
from holdfast.machine.actions import ListenerCall


@pytest.mark.parametrize(
    ("code", "error"), [(-1, RequestTimedOutError), (22, IllegalGenerationError)]
)
def test_a_commit_without_an_answer_may_be_tried_again(code, error):
    """A broken connection is no reason to raise from the application's next call."""
    posted = []
    answer: Future[int] = Future()
    answer.set_result(code)
    identity = SimpleNamespace(generation=3, member_id="m", instance_id=None)
    coordinator = object.__new__(MemberCoordinator)
    coordinator.group_id = "g"
    coordinator._parts = SimpleNamespace(
        host=SimpleNamespace(standing=SimpleNamespace(identity=identity), post=posted.append),
        link=SimpleNamespace(commit=lambda offsets, **_: answer),
        counters=SimpleNamespace(add=lambda name: None),
    )
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5, "")}
    with pytest.raises(KafkaError) as raised:
        asyncio.run(coordinator._do_commit_offsets(None, offsets))
    assert type(raised.value) is error
    assert raised.value.retriable == (code < 0)
    assert [(event.generation, event.error) for event in posted] == [(3, code)][: code > 0]


@pytest.mark.parametrize(("code", "text"), [(82, "group.instance.id"), (22, "g")])
def test_a_code_that_aiokafka_does_not_know_is_described(code, text):
    answer: Future[int] = Future()
    answer.set_result(code)
    coordinator = object.__new__(MemberCoordinator)
    coordinator.group_id = "g"
    coordinator._parts = SimpleNamespace(
        host=SimpleNamespace(
            standing=SimpleNamespace(
                identity=SimpleNamespace(generation=3, member_id="m", instance_id="i")
            ),
            post=lambda event: None,
        ),
        link=SimpleNamespace(commit=lambda offsets, **_: answer),
        counters=SimpleNamespace(add=lambda name: None),
    )
    with pytest.raises(KafkaError, match=text):
        asyncio.run(
            coordinator._do_commit_offsets(None, {TopicPartition("t", 0): OffsetAndMetadata(5, "")})
        )


def test_committed_offsets_that_nobody_tells_are_asked_for_again():
    """aiokafka asks again for a retriable error, and raises any other from the next call."""
    answer: Future[dict] = Future()
    answer.set_exception(AdapterError("NodeNotReadyError"))
    coordinator = object.__new__(MemberCoordinator)
    coordinator._parts = SimpleNamespace(link=SimpleNamespace(committed=lambda tps: answer))
    coordinator._last = None
    with pytest.raises(KafkaError) as raised:
        asyncio.run(coordinator._do_fetch_commit_offsets([TopicPartition("t", 0)]))
    assert raised.value.retriable


def test_an_answer_for_an_earlier_term_is_no_place_to_start():
    """Another member may have read on, and committed, between the two terms."""
    part = TopicPartition("t", 0)

    async def scene():
        answer: Future[dict] = Future()
        coordinator = object.__new__(MemberCoordinator)
        coordinator._parts = SimpleNamespace(link=SimpleNamespace(committed=lambda tps: answer))
        coordinator._last = KeepingAssignment([part])
        asking = asyncio.create_task(coordinator._do_fetch_commit_offsets([part]))
        await asyncio.sleep(0)
        coordinator._last.remove([part])
        coordinator._last.add([part])
        answer.set_result({("t", 0): 5})
        return await asking

    with pytest.raises(KafkaError) as raised:
        asyncio.run(scene())
    assert raised.value.retriable


def test_what_is_no_partition_is_refused_in_aiokafkas_words():
    coordinator = object.__new__(MemberCoordinator)
    coordinator._parts = SimpleNamespace(link=SimpleNamespace(committed=list))
    coordinator._last = None
    with pytest.raises(AttributeError, match="no attribute 'topic'"):
        asyncio.run(coordinator._do_fetch_commit_offsets([1]))


def test_nobody_commits_again_where_it_began():
    part, sent = TopicPartition("t", 0), []

    async def scene():
        answer: Future[dict] = Future()
        answer.set_result({("t", 0): 5})
        coordinator = object.__new__(MemberCoordinator)
        coordinator._parts = SimpleNamespace(link=SimpleNamespace(committed=lambda tps: answer))
        coordinator._last = KeepingAssignment([part])
        coordinator._committed, coordinator.in_flight = {}, {}
        coordinator._commit_lock = asyncio.Lock()

        async def send(assignment, offsets):
            sent.append({tp.partition: at.offset for tp, at in offsets.items()})

        coordinator._do_commit_offsets = send
        found = await coordinator._do_fetch_commit_offsets([part])
        state = coordinator._last.state_value(part)
        state.reset_to(found[part].offset)
        await coordinator._commit_processed([part])
        assert sent == []
        state.consumed_to(8)
        await coordinator._commit_processed([part])

    asyncio.run(scene())
    assert sent == [{0: 8}]


def test_a_member_does_not_look_for_the_coordinator_behind_a_fetch():
    """The first ``committed()`` waited for as long as a fetch on the same connection."""
    coordinator = object.__new__(MemberCoordinator)
    coordinator._parts = SimpleNamespace()
    assert asyncio.run(coordinator.ensure_coordinator_known()) is None


def test_the_listener_hears_of_an_assignment_before_those_who_wait_for_it():
    """``start()`` returns once there is an assignment; its listener has been called by then."""

    async def check():
        heard = []
        loop = asyncio.get_running_loop()
        assigned = loop.create_future()
        coordinator = object.__new__(MemberCoordinator)
        coordinator._loop, coordinator._callbacks = loop, set()
        coordinator._take = assigned.set_result

        async def tell(call, resources):
            heard.append("listener")

        async def wait():
            await assigned
            heard.append("start")

        coordinator._tell = tell
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        coordinator.tell(ListenerCall.ASSIGNED, (("t", 0),), lambda error: None)
        await waiting
        return heard

    assert asyncio.run(check()) == ["listener", "start"]


def test_what_is_not_subscribed_to_any_more_is_processed():
    """An application that asks for single partitions never asks for those again."""
    old, new = TopicPartition("old", 0), TopicPartition("new", 0)
    drained = []
    coordinator = object.__new__(MemberCoordinator)
    coordinator.in_flight = {old: 3, new: 4}
    coordinator._drains = [(frozenset([old]), lambda: drained.append(old))]
    coordinator._finish_others({"new"})
    assert drained == [old]
    assert coordinator.in_flight == {new: 4}
