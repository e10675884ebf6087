"""Static leaders that come back within their session: they skip the plan, and miss no change."""

from __future__ import annotations

import pytest
from tests.proof.random_runs import Faults
from tests.sim.faults.small_worlds import ends_well, leader, world

from holdfast.core.machine.policy import POLICIES


@pytest.mark.parametrize("policy", POLICIES)
def test_a_static_leader_sees_what_grew_while_it_was_away(policy):
    w = world(policy, static=True)
    slot = leader(w)
    w.crash(slot)
    w.resize("a", 11)
    w.run(w.now_ms + 500)
    w.start(slot)
    ends_well(w)


@pytest.mark.parametrize(
    ("policy", "rounds"), [("deferred", 0), ("incremental", 0), ("holdfast-simple", 0)]
)
def test_what_a_design_says_about_counts_spares_the_round_when_nothing_grew(policy, rounds):
    w = world(policy, static=True)
    slot, before = leader(w), w.rounds
    w.crash(slot)
    w.run(w.now_ms + 500)
    w.start(slot)
    ends_well(w)
    assert w.rounds - before == rounds


def test_a_lone_leader_that_never_returned_to_what_grew():
    """Found by the stateful test: the only member crashes, its topic grows, it starts again."""
    faults = Faults(1, "cooperative-sticky", None, trace=True)
    w = faults.world
    assert w.options.static
    w.start(0)
    w.run(2_000)
    w.crash(0)
    w.resize("a", 4)
    faults.quiet()
    assert w.violations == []
