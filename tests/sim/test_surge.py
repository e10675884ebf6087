"""A Deployment that surges, under Design II beside ``simple``: no setting, no waiting."""

from dataclasses import replace

import pytest
from tests.proof.rules.attached import simulate
from tests.suites import further

from holdfast.core.machine.policy import Policy
from holdfast.sim.clock import Costs
from holdfast.sim.scenarios import Setup

FREE = Costs(rebuild_ms=0, slow_members=0, poll_ms=20, revoke_ms=10)
NOISE_SECONDS = 0.1
"""Latencies are drawn, and protocols have bytes of different length."""


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("surge", [1, 2, 6])
@pytest.mark.parametrize("partitions", further([30, 6, 84]))
def test_a_surge_costs_at_most_what_it_costs_under_simple(partitions, surge, crash):
    setup = Setup(scenario="surge", partitions=partitions, steps=surge, crash=crash, costs=FREE)
    simple, deferred = (
        simulate(replace(setup, policy=policy)) for policy in ("simple", "deferred")
    )
    assert not deferred.violations
    assert deferred.moved <= simple.moved
    unowned = simple.partition_seconds_unowned
    assert deferred.partition_seconds_unowned <= unowned + NOISE_SECONDS
    assert deferred.longest_stop_seconds <= simple.longest_stop_seconds + NOISE_SECONDS


def test_a_plain_bounce_still_moves_nothing():
    report = simulate(Setup(settings=Policy(delay_ms=30_000)))
    assert (report.moved, report.violations) == (0, ())
