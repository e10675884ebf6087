"""The goals of a rolling bounce, under the default cost model: 50 members, 1000 partitions."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from holdfast.sim.rules.ledger import Ledger
from holdfast.sim.scenarios import Report, Setup, simulate
from holdfast.sim.world.world import World

MEMBERS, PARTITIONS = 50, 1_000
DEFERRED = Setup(policy="deferred", members=MEMBERS, partitions=PARTITIONS)


@dataclass
class Bounced:
    """A bounce under Design II: what each member had when it ended, and what else stood still."""

    had: list[set] = field(default_factory=list)
    others: set = field(default_factory=set)
    world: World | None = None
    report: Report | None = None


@pytest.fixture(scope="module")
def bounced() -> Bounced:
    noted = Bounced()
    stop, ledger_stop = World.stop, Ledger.stop

    def stopping(world, slot, **more):
        noted.had.append(set(world.slots[slot].running))
        stop(world, slot, **more)

    def stopped(ledger, resource, **more):
        if noted.had and resource not in noted.had[-1]:
            noted.others.add(resource)
        ledger_stop(ledger, resource, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "stop", stopping)
        patch.setattr(Ledger, "stop", stopped)
        noted.report = simulate(DEFERRED, ended=lambda world: setattr(noted, "world", world))
    return noted


def test_nothing_moves_to_a_third_member(bounced):
    done = bounced.report
    assert (done.moved, done.moved_to_third, done.violations) == (0, 0, ())


def test_stopped_partition_seconds_are_a_twentieth_of_eagers(bounced):
    eager = simulate(
        Setup(policy="eager", members=MEMBERS, partitions=PARTITIONS, check=False)
    ).partition_seconds_stopped
    assert bounced.report.partition_seconds_stopped <= eager / 20


def test_only_the_bounced_members_own_stop_for_downtime_rebuild_and_one_heartbeat(bounced):
    costs, world = DEFERRED.costs, bounced.world
    assert len(bounced.had) == MEMBERS
    assert set().union(*bounced.had) == set(world.resources())
    assert bounced.others == set()
    each = PARTITIONS // MEMBERS
    # Its last batch is finished and committed before it leaves: that belongs to its downtime.
    down_ms = costs.slow_poll_ms + costs.revoke_ms + costs.restart_ms
    slack_ms = costs.heartbeat_ms + costs.slow_poll_ms  # the slow member joins after its batch
    assert world.ledger.longest_seconds * 1_000 <= down_ms + slack_ms + each * costs.rebuild_ms
    mean_ms = (each + 1) / 2 * costs.rebuild_ms
    own = PARTITIONS * (down_ms + slack_ms + mean_ms) / 1_000
    assert world.ledger.stopped_seconds <= own
