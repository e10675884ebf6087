"""The goals of a rolling bounce, under the default cost model: 50 members, 1000 partitions."""

from __future__ import annotations

import pytest

from holdfast.sim.scenarios import Play, Report, Setup, rolling_bounce, simulate

MEMBERS, PARTITIONS = 50, 1_000


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {
        policy: simulate(
            Setup(policy=policy, members=MEMBERS, partitions=PARTITIONS, check=policy != "eager")
        )
        for policy in ("eager", "deferred")
    }


def test_nothing_moves_to_a_third_member(reports):
    done = reports["deferred"]
    assert (done.moved, done.moved_to_third, done.violations) == (0, 0, ())


def test_stopped_partition_seconds_are_a_twentieth_of_eagers(reports):
    seconds = {policy: r.partition_seconds_stopped for policy, r in reports.items()}
    print(seconds)
    assert seconds["deferred"] <= seconds["eager"] / 20


def test_only_the_bounced_members_own_stop_for_downtime_rebuild_and_one_heartbeat():
    setup = Setup(policy="deferred", members=MEMBERS, partitions=PARTITIONS)
    play, costs = Play(setup), setup.costs
    world = play.world
    play.start_all()
    play.settle()
    play.rebuilt()
    world.ledger.begin(world.now_ms)
    bounced: list[set] = []
    stop, ledger_stop = world.stop, world.ledger.stop

    def stopping(slot, **more):
        bounced.append(set(world.slots[slot].running))
        stop(slot, **more)

    def stopped(resource, **more):
        assert resource in bounced[-1]
        ledger_stop(resource, **more)

    world.stop, world.ledger.stop = stopping, stopped
    rolling_bounce(play)
    play.settle()
    play.rebuilt()
    world.ledger.finish(world.now_ms)
    assert len(bounced) == MEMBERS
    assert set().union(*bounced) == set(world.resources())
    each = PARTITIONS // MEMBERS
    # Its last batch is finished and committed before it leaves: that belongs to its downtime.
    down_ms = costs.slow_poll_ms + costs.revoke_ms + costs.restart_ms
    slack_ms = costs.heartbeat_ms + costs.slow_poll_ms  # the slow member joins after its batch
    assert world.ledger.longest_seconds * 1_000 <= down_ms + slack_ms + each * costs.rebuild_ms
    mean_ms = (each + 1) / 2 * costs.rebuild_ms
    own = PARTITIONS * (down_ms + slack_ms + mean_ms) / 1_000
    assert world.ledger.stopped_seconds <= own
