"""Answers of a coordinator as events."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.members.fake_connections import FakeConnections

from holdfast.core.machine.shared_values import Identity, OffsetToCommit
from holdfast.members.runtime.coordinator_client import CoordinatorClient


class Answers(FakeConnections):
    """They answer a commit with error codes by topic."""

    def __init__(self, **codes):
        self.codes = codes

    async def send(self, request, node, timeout_ms=None):
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=name, partitions=[SimpleNamespace(error_code=code) for code in codes]
                )
                for name, codes in self.codes.items()
            ]
        )


def commit(**codes):
    """The code of a commit, and what ended the member."""
    told = []
    coordinator = CoordinatorClient(Answers(**codes), post=lambda event: None, fail=told.append)
    future = coordinator.commit(
        {("a", 0): OffsetToCommit(1)}, Identity(generation=1, member_id="m", instance_id=None)
    )
    return future.result(), told


@pytest.mark.parametrize(
    ("codes", "code"),
    [({"a": [0, 0]}, 0), ({}, 0), ({"a": [0], "b": [0, 25, 27]}, 25), ({"a": [14]}, 14)],
)
def test_a_commit_gives_the_first_code_that_is_not_0(codes, code):
    assert commit(**codes) == (code, [])


def test_a_topic_that_may_not_be_read_is_named():
    code, (error,) = commit(a=[0], secret=[0, 29])
    assert code == error.error_code == 29
    assert str(error).startswith("topic 'secret': TOPIC_AUTHORIZATION_FAILED")
    assert "grant READ on it" in str(error)
