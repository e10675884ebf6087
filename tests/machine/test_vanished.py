"""A topic that has lost partitions, a kind that has lost resources."""

from __future__ import annotations

import pytest
from tests.machine.subscribed import joining_members, round_of

from holdfast.core.machine.leader.assignor_protocol import MemberView
from holdfast.core.machine.leader.designs import compute
from holdfast.core.machine.supported_protocols import assignors_for

OWNED = {"a": (("t", 0), ("t", 2), ("u", 0)), "b": (("t", 1), ("t", 3))}
GENERATION = 4

every_design = pytest.mark.parametrize("policy", ["holdfast-simple", "deferred", "incremental"])


def plan(policy, counts, b_generation=GENERATION - 1):
    """Return the assignments of two members by a leader with these counts."""
    (assignor,) = assignors_for(policy)
    views = {
        m: MemberView(topics=("t", "u"), owned=OWNED[m], previous=OWNED[m], generation=generation)
        for m, generation in (("a", GENERATION - 1), ("b", b_generation))
    }
    request = round_of(assignor.name, joining_members(assignor, **views), counts, GENERATION)
    answer = compute((assignor,), request)
    assert answer.failure is None
    return {m: assignor.read(data) for m, data in answer.assignments}


@every_design
def test_what_is_beyond_the_end_is_taken_back(policy):
    """Nobody else can be given it, so without this its owner would keep it for ever."""
    told = plan(policy, {"t": 2, "u": 1})
    assert told["a"].revoked == {("t", 2)}
    assert told["b"].revoked == {("t", 3)}
    assert told["a"].assigned == {("t", 0), ("u", 0)}
    assert told["b"].assigned == {("t", 1)}
    assert told["a"].again


@every_design
def test_it_is_taken_back_from_a_member_of_an_impossible_generation_too(policy):
    """That member alone is asked to join again, and once."""
    told = plan(policy, {"t": 3}, b_generation=GENERATION)
    assert (told["b"].assigned, told["b"].revoked) == ({("t", 1)}, {("t", 3)})
    assert (told["a"].again, told["b"].again) == (False, True)


@every_design
@pytest.mark.parametrize("counts", [{"t": 4, "u": 1}, {"u": 1}], ids=["exists", "not known"])
def test_what_exists_stays_and_what_is_not_known_may_be_known_again(policy, counts):
    told = plan(policy, counts)
    assert all(one.revoked == frozenset() for one in told.values())
