"""The goals of a rolling bounce, under the default cost model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from tests.proof.rules.attached import simulate
from tests.suites import further

from holdfast.sim import scenarios
from holdfast.sim.clock import OwnershipLog
from holdfast.sim.scenarios import Report, Setup
from holdfast.sim.world import World

pytestmark = pytest.mark.xdist_group("goals")


@dataclass
class Bounced:
    """A bounce under Design II: each member's partitions at its end, and what else stopped."""

    setup: Setup
    had: list[set] = field(default_factory=list)
    others: set = field(default_factory=set)
    world: World | None = None
    report: Report | None = None


@pytest.fixture(scope="module", params=further([10, 50]))
def bounced(request) -> Bounced:
    members = request.param
    noted = Bounced(Setup(policy="deferred", members=members, partitions=20 * members))
    stop, log_stop = World.stop, OwnershipLog.stop

    def stopping(world, slot, **more):
        noted.had.append(set(world.slots[slot].running))
        stop(world, slot, **more)

    def stopped(ownership_log, resource, **more):
        if noted.had and resource not in noted.had[-1]:
            noted.others.add(resource)
        log_stop(ownership_log, resource, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "stop", stopping)
        patch.setattr(OwnershipLog, "stop", stopped)
        noted.report = simulate(noted.setup, ended=lambda world: setattr(noted, "world", world))
    return noted


def test_nothing_moves_to_a_third_member(bounced):
    done = bounced.report
    assert (done.moved, done.moved_to_third, done.violations) == (0, 0, ())


def test_stopped_partition_seconds_of_fifty_members_are_a_twentieth_of_eagers(bounced):
    eager = scenarios.simulate(replace(bounced.setup, policy="eager"))
    part = 2.5 / bounced.setup.members
    assert bounced.report.partition_seconds_stopped <= part * eager.partition_seconds_stopped


def test_only_the_bounced_members_own_stop_for_downtime_rebuild_and_one_heartbeat(bounced):
    setup, world = bounced.setup, bounced.world
    costs, partitions = setup.costs, setup.partitions
    assert len(bounced.had) == setup.members
    assert set().union(*bounced.had) == set(world.resources())
    assert bounced.others == set()
    each = partitions // setup.members
    # Its last batch is finished and committed before it leaves: that belongs to its downtime.
    down_ms = costs.slow_poll_ms + costs.revoke_ms + costs.restart_ms
    slack_ms = costs.heartbeat_ms + costs.slow_poll_ms  # the slow member joins after its batch
    assert (
        world.ownership_log.longest_seconds * 1_000 <= down_ms + slack_ms + each * costs.rebuild_ms
    )
    mean_ms = (each + 1) / 2 * costs.rebuild_ms
    own = partitions * (down_ms + slack_ms + mean_ms) / 1_000
    assert world.ownership_log.stopped_seconds <= own
