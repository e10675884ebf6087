"""Members with locations under Design II: returning members are recognised, surges too."""

import pytest
from tests.proof.rules.attached import simulate

from holdfast.core.machine.policy import Policy
from holdfast.sim.clock import Costs
from holdfast.sim.scenarios import ScenarioStep, Setup

COSTS = Costs(slow_members=0)
UP_MS = 100_000
GROWN = 3
"""What one member more moves."""


def step(at_ms, do, slot):
    return ScenarioStep(at_ms=at_ms, do=do, slot=slot)


def bounce(slots, first_ms, *, away_ms=10_000):
    """Each of these slots ends, and is back: every 30 s."""
    begins = [(first_ms + 30_000 * at, slot) for at, slot in enumerate(slots)]
    return [
        each
        for at_ms, slot in begins
        for each in (step(at_ms, "stop", slot), step(at_ms + away_ms, "start", slot))
    ]


def moved(*steps, location=str, policy="deferred", **fields):
    """How many partitions change their owner."""
    report = simulate(
        Setup(
            **{"scenario": "script", "costs": COSTS, **fields},
            policy=policy,
            location=location,
            script=steps,
        )
    )
    assert not report.violations
    return report.moved


@pytest.mark.parametrize("gap_ms", [40_000, 120_000, 300_000])
def test_a_bounce_after_growth_costs_the_growth(gap_ms):
    steps = step(UP_MS, "start", 6), *bounce(range(7), UP_MS + gap_ms)
    assert moved(*steps) == GROWN


@pytest.mark.parametrize("location", [None, lambda slot: "everywhere"])
def test_without_locations_or_with_equal_ones_it_costs_what_it_costs_under_simple(location):
    steps = step(UP_MS, "start", 6), *bounce(range(7), UP_MS + 120_000)
    assert moved(*steps, location=location) == moved(*steps, policy="simple")


def test_members_whose_locations_are_alike_in_pairs_lose_no_more_than_without():
    steps = step(UP_MS, "start", 6), *bounce(range(7), UP_MS + 120_000)
    assert moved(*steps, location=lambda slot: str(slot // 2)) <= moved(*steps, location=None)


def test_a_large_group_with_a_short_delay():
    steps = step(UP_MS, "start", 12), *bounce(range(13), UP_MS + 40_000)
    policy = Policy(delay_ms=60_000)
    assert moved(*steps, members=12, partitions=48, settings=policy) == GROWN


def test_a_crash_after_growth_is_waited_for():
    steps = step(UP_MS, "start", 6), step(200_000, "crash", 2), step(220_000, "start", 2)
    assert moved(*steps) == GROWN


@pytest.mark.parametrize(
    ("settings", "away_ms", "too_long_ms"),
    [
        (Policy(delay_ms=60_000), 28_000, 45_000),  # 30 s at least
        (Policy(), 70_000, 90_000),  # a quarter of the delay
        (Policy(successor_delay_ms=150_000), 140_000, 170_000),
        (Policy(successor_delay_ms=10_000), 8_000, 20_000),
    ],
)
def test_a_member_that_is_away_too_long_is_succeeded_once(settings, away_ms, too_long_ms):
    """The second one that is away as long is waited for."""
    grows, begin_ms = step(UP_MS, "start", 6), 200_000
    if settings.delay_ms == 60_000:
        begin_ms = UP_MS + 32_000  # later than 30 s, and within the delay
    short = grows, *bounce([0], begin_ms, away_ms=away_ms)
    late = grows, *bounce([0], begin_ms, away_ms=too_long_ms)
    late = (*late, *bounce([1], begin_ms + too_long_ms + 10_000, away_ms=8_000))
    assert moved(*short, settings=settings) == GROWN
    assert GROWN < moved(*late, settings=settings) <= GROWN + 2 * 4


@pytest.mark.parametrize("gap_ms", [32_000, 120_000])
def test_restarts_of_45_s_after_growth_move_nothing(gap_ms):
    """24 partitions, the default delay; a bounce of all seven cost 7 moves more before."""
    back = [(UP_MS + gap_ms + 60_000 * at, slot) for at, slot in enumerate(range(7))]
    steps = [
        each
        for at_ms, slot in back
        for each in (step(at_ms, "stop", slot), step(at_ms + 45_000, "start", slot))
    ]
    assert moved(step(UP_MS, "start", 6), *steps) == GROWN


def test_idle_members_may_be_bounced_first():
    steps = bounce([6, 7, 0, 1, 2, 3, 4, 5], UP_MS)
    assert moved(*steps, members=8, partitions=6) == 0
    assert moved(*steps, members=8, partitions=6, location=None) == 6


def test_two_members_that_restart_at_once_get_back_their_own_partitions():
    steps = (
        *(step(UP_MS, "stop", slot) for slot in (1, 2)),
        *(step(UP_MS + 10_000 + 500 * at, "start", slot) for at, slot in enumerate((2, 1))),
    )
    assert moved(*steps) == 0
    assert moved(*steps, location=None) > 0


@pytest.mark.parametrize("come_ms", [185_000, 195_000])
def test_one_member_more_in_the_middle_of_a_bounce_is_no_chain(come_ms):
    """It may replace a member that is absent, and succeed one that leaves next."""
    steps = *bounce(range(6), UP_MS), step(come_ms, "start", 9)
    assert moved(*steps) <= GROWN + 2 * 4 < moved(*steps, location=None)


@pytest.mark.parametrize(("members", "surge"), [(6, 1), (6, 2), (6, 6), (24, 6), (24, 24)])
def test_a_surge_is_one_with_locations_too(members, surge):
    """Of one, of a quarter, of all: no old member is left that knows who joined."""
    cost = {
        policy: simulate(
            Setup(
                scenario="surge",
                policy=policy,
                steps=surge,
                costs=COSTS,
                members=members,
                partitions=4 * members,
            )
        )
        for policy in ("simple", "deferred")
    }
    simple, deferred = cost["simple"], cost["deferred"]
    assert not deferred.violations
    assert deferred.moved <= simple.moved
    assert deferred.partition_seconds_stopped <= 1.03 * simple.partition_seconds_stopped
