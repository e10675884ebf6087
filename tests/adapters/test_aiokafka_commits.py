"""Commits of the member behind aiokafka that nobody answers; without a broker."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from aiokafka.errors import IllegalGenerationError, KafkaError, RequestTimedOutError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.adapters.coordinators.aiokafka_coordinator import MemberCoordinator


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
