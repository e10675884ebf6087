"""The errors of ``holdfast.aiokafka`` for those of its member; without a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    RequestTimedOutError,
)
from aiokafka.structs import TopicPartition

from holdfast.errors import ClientError, LocalProtocolError, RemoteProtocolError
from holdfast.members.clients.aiokafka.coordinator import (
    MemberCoordinator,
    commit_failed,
    committed_offsets_error,
)
from holdfast.members.session.commits import commit_error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((commit_error(code), CommitFailedError) for code in (22, 25, 27, 82)),
        (LocalProtocolError("t-0 is not this member's"), CommitFailedError),
        (commit_error(-1), RequestTimedOutError),
        (commit_error(30), GroupAuthorizationFailedError),
    ],
)
def test_a_commit_that_failed_raises_what_aiokafka_raises(error, kind):
    raised = commit_failed(error)
    assert type(raised) is kind
    assert raised.retriable == (kind is RequestTimedOutError), "a broken connection"
    assert str(error) in str(raised), "what to do"


def test_committed_offsets_that_nobody_tells_are_asked_for_again():
    """aiokafka asks again for a retriable error, and raises any other from the next call."""
    assert committed_offsets_error(ClientError("NodeNotReadyError")).retriable
    refused = committed_offsets_error(RemoteProtocolError("no", error_code=30))
    assert type(refused) is GroupAuthorizationFailedError and not refused.retriable


def of_a_member(committed_offsets):
    """A coordinator whose member answers questions for committed offsets so."""

    async def answer(partitions):
        return committed_offsets

    coordinator = object.__new__(MemberCoordinator)
    coordinator.session = SimpleNamespace(
        membership=SimpleNamespace(runtime=SimpleNamespace()), committed_offsets=answer
    )
    return coordinator


def ask(coordinator, *partitions):
    return asyncio.run(coordinator.fetch_committed_offsets(list(partitions)))


def test_a_member_does_not_look_for_the_coordinator_behind_a_fetch():
    """The first ``committed()`` waited for as long as a fetch on the same connection."""
    assert asyncio.run(of_a_member({}).ensure_coordinator_known()) is None


def test_a_partition_without_a_commit_is_left_out():
    found = ask(of_a_member({("t", 0): 5, ("t", 1): -1}), TopicPartition("t", 0))
    assert {tp: at.offset for tp, at in found.items()} == {TopicPartition("t", 0): 5}


def test_what_is_no_partition_is_refused_in_aiokafkas_words():
    with pytest.raises(AttributeError, match="no attribute 'topic'"):
        ask(of_a_member({}), 1)


def test_a_place_of_an_earlier_term_is_asked_for_again():
    coordinator = of_a_member(None)
    coordinator._retry_backoff_ms = 0
    answers = [None, {("t", 0): 7}]

    async def answer(partitions):
        return answers.pop(0)

    coordinator.session.committed_offsets = answer
    found = ask(coordinator, TopicPartition("t", 0))
    assert found[TopicPartition("t", 0)].offset == 7
    assert not answers
