"""Designs II and III in real groups: the partitions of a killed member wait for it."""

from __future__ import annotations

import time

import pytest
from tests.live.offsets_log import Generation, read_group
from tests.live.processes import Crew
from tests.live.waiting import until
from tests.suites import further

pytestmark = pytest.mark.broker

DELAY_MS = 25_000
SESSION_MS = 3_000
HEARTBEAT_MS = 300


def start(group: Crew, name: str, policy: str, delay_ms: int) -> None:
    """A member under a design; batches of Design III are quick."""
    group.own(
        name,
        policy,
        session_timeout_ms=SESSION_MS,
        scheduled_rebalance_max_delay_ms=delay_ms,
        holdfast_incremental_batch=6,
        holdfast_incremental_interval_ms=200,
    )


def start_three(group: Crew, policy: str, delay_ms: int = DELAY_MS) -> dict[str, set[int]]:
    for name in ("a", "b", "c"):
        start(group, name, policy, delay_ms)
        group.await_balance()
    assert rounds(group)[-1].leader == "a"
    return group.holdings()


def rounds(group: Crew) -> list[Generation]:
    log = read_group(group.bootstrap, group.group, group.topic)
    return [entry for entry in log if isinstance(entry, Generation)]


def heard(group: Crew, event: str, since: float) -> list[float]:
    """When members were told of partitions."""
    told = [e for e in group.event_log.read() if e.event == event and e.partitions]
    return [e.time_seconds for e in told if e.time_seconds > since]


def await_round_without(group: Crew, victim: str) -> Generation:
    """The coordinator dropped the dead member, and a leader took its turn without it."""
    until(lambda: victim not in rounds(group)[-1].owned, "a round without the dead member")
    return rounds(group)[-1]


@pytest.mark.parametrize("victim", further(["c", "a"]), ids=["follower", "leader"])
@pytest.mark.parametrize("policy", further(["deferred", "incremental"]))
def test_killed_and_back_in_time(broker, tmp_path, policy, victim):
    """It gets exactly what it had; the others keep theirs, whoever led before and after."""
    with Crew(broker.bootstrap, 6, tmp_path) as group:
        before = start_three(group, policy)
        had = before.pop(victim)
        killed = group.kill(victim)
        last = await_round_without(group, victim)
        assert group.holdings() == before
        assert last.leader != victim
        start(group, "back", policy, DELAY_MS)
        after = group.await_holdings(lambda held: held["back"] == had, "it has them back")
        assert {name: own for name, own in after.items() if name != "back"} == before
        assert time.time() - killed < DELAY_MS / 1000
        assert heard(group, "revoked", killed) == []


@pytest.mark.parametrize("victim", further(["c", "a"]), ids=["follower", "leader"])
@pytest.mark.every
def test_killed_and_never_back(broker, tmp_path, victim):
    """When the delay is over the others take it, by their own timers; not before."""
    delay_ms = 6_000
    with Crew(broker.bootstrap, 6, tmp_path) as group:
        start_three(group, "deferred", delay_ms)
        killed = group.kill(victim)
        group.await_balance()
        taken = heard(group, "assigned", killed)
        # The delay begins in the round that noticed the loss, a session after the last heartbeat.
        assert min(taken) - killed >= (SESSION_MS - HEARTBEAT_MS + delay_ms) / 1000 - 0.2
