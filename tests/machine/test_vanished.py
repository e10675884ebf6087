"""A topic that has lost partitions, a kind that has lost resources."""

from __future__ import annotations

import pytest
from tests.machine.subscribed import joining_members, round_of

from holdfast.core.machine.leader.assignor_protocol import MemberView
from holdfast.core.machine.leader.designs import compute
from holdfast.core.machine.supported_protocols import assignors_for

OWNED = {"a": (("t", 0), ("t", 2), ("u", 0)), "b": (("t", 1), ("t", 3))}


def plan(policy, counts):
    """Return the assignments of two members by a leader with these counts."""
    (assignor,) = assignors_for(policy)
    views = {
        m: MemberView(topics=("t", "u"), owned=owned, previous=owned, generation=3)
        for m, owned in OWNED.items()
    }
    request = round_of(assignor.name, joining_members(assignor, **views), counts, 4)
    answer = compute((assignor,), request)
    assert answer.failure is None
    return {m: assignor.read(data) for m, data in answer.assignments}


@pytest.mark.parametrize("policy", ["holdfast-simple", "deferred", "incremental"])
def test_what_is_beyond_the_end_is_taken_back(policy):
    """Nobody else can be given it, so without this its owner would keep it for ever."""
    told = plan(policy, {"t": 2, "u": 1})
    assert told["a"].revoked == {("t", 2)}
    assert told["b"].revoked == {("t", 3)}
    assert told["a"].assigned == {("t", 0), ("u", 0)}
    assert told["b"].assigned == {("t", 1)}
    assert told["a"].again


@pytest.mark.parametrize("policy", ["holdfast-simple", "deferred", "incremental"])
def test_what_exists_stays(policy):
    told = plan(policy, {"t": 4, "u": 1})
    assert all(one.revoked == frozenset() for one in told.values())


@pytest.mark.parametrize("policy", ["holdfast-simple", "deferred", "incremental"])
def test_a_topic_that_is_not_known_is_not_taken_back(policy):
    """It may be known again in the next round."""
    told = plan(policy, {"u": 1})
    assert all(one.revoked == frozenset() for one in told.values())
