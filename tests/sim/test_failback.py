"""``failback`` beside ``simple``: nothing waits, and each member ends with its old partitions."""

import pytest
from tests.proof.rules.attached import simulate
from tests.sim.test_locations import COSTS, UP_MS, bounce, step

from holdfast.core.machine.policy import Policy
from holdfast.sim.clock import Costs
from holdfast.sim.scenarios import Report, Setup

FREE = Costs(rebuild_ms=0, slow_members=0, poll_ms=20, revoke_ms=10)
STATE = Costs(rebuild_ms=10_000, slow_members=0)
MOST = 1.2
"""Standstill beside that of ``simple``, and no more than that."""


def played(policy: str, *, partitions: int = 24, **fields) -> tuple[Report, int, int]:
    """The run; how many partitions are where they were, how many were with two others."""
    spans: dict = {}
    report = simulate(
        Setup(policy=policy, partitions=partitions, settings=Policy(delay_ms=120_000), **fields),
        ended=lambda world: spans.update(world.ownership_log.spans),
    )
    assert not report.violations
    home = sum(span.slot == span.first_slot for span in spans.values())
    third = sum(len(span.visited - {span.first_slot}) > 1 for span in spans.values())
    return report, home, third


@pytest.mark.parametrize("costs", [FREE, STATE], ids=["free", "state"])
@pytest.mark.parametrize(("partitions", "crash"), [(24, False), (25, True)])
def test_a_bounce_costs_what_it_costs_under_simple_and_ends_as_it_began(costs, partitions, crash):
    fields = {"costs": costs, "partitions": partitions, "crash": crash}
    failback, home, third = played("failback", **fields)
    simple, _, _ = played("simple", **fields)
    assert (home, third) == (partitions, 0)
    assert failback.partition_seconds_stopped <= MOST * simple.partition_seconds_stopped
    assert failback.moved <= simple.moved


def test_a_surge_costs_what_it_costs_under_simple():
    failback, simple = (
        played(policy, scenario="surge", costs=FREE)[0] for policy in ("failback", "simple")
    )
    assert failback.moved == simple.moved
    assert failback.partition_seconds_stopped <= MOST * simple.partition_seconds_stopped


@pytest.mark.parametrize(
    "steps",
    [
        [x for i in range(6) for x in (step(UP_MS + 10_000 * i, "stop", i),
                                       step(UP_MS + 15_000 + 10_000 * i, "start", i))],
        [step(UP_MS, "crash", 1), step(UP_MS, "crash", 2), step(101_000, "crash", 4),
         step(150_000, "start", 4), step(170_000, "start", 2), step(180_000, "start", 1)],
        [step(UP_MS, "stop", -1), step(110_000, "crash", -1),
         step(140_000, "start", 0), step(141_000, "start", 1)],
    ],
    ids=["overlapping bounce", "three die", "leaders"],
)  # fmt: skip
@pytest.mark.parametrize("partitions", [25, 84])
def test_members_that_are_away_at_once_end_with_what_they_had(steps, partitions):
    _, home, _ = played(
        "failback", scenario="script", script=tuple(steps), costs=COSTS, partitions=partitions
    )
    assert home == partitions


def test_without_locations_it_is_simple():
    costs = {
        policy: played(policy, costs=FREE, location=None)[0] for policy in ("simple", "failback")
    }
    assert costs["failback"].moved == costs["simple"].moved


def test_growth_before_a_bounce_is_kept():
    steps = (step(UP_MS, "start", 6), *bounce(range(7), 150_000))
    _, home, _ = played("failback", scenario="script", script=steps, costs=COSTS)
    assert home == 21
