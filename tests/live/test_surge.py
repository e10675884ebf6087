"""A Deployment that surges, and one that grows and is bounced: processes on a broker."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from tests.live.processes import Crew
from tests.live.waiting import PATIENCE_SECONDS, until

from holdfast.cli.demo.ownership import intervals, unowned_seconds
from holdfast.core.machine.leader.successors import START_MS
from holdfast.core.machine.policy import Policy

pytestmark = pytest.mark.broker

PROCESSES, PARTITIONS = 6, 12
NOISE_SECONDS = 2.0
"""For each change of owner: processes start on a busy machine, and polls end a little late."""


def rolled_out(bootstrap: str, policy: str, folder: Path) -> tuple[int, float]:
    """Replace every process by a new one that comes first; changes of owner, unowned seconds."""
    folder.mkdir()
    with Crew(bootstrap, PARTITIONS, folder) as group:
        for number in range(PROCESSES):
            group.own(f"old-{number}", policy)
        group.await_balance()
        until(lambda: quiet_seconds(group) > START_MS / 1000, "the group has not grown lately")
        begun = time.time()
        for number in range(PROCESSES):
            group.own(f"new-{number}", policy)
            group.await_balance()
            group.stop(f"old-{number}")
            group.await_balance()  # or its patience ends long before the default delay
        over = time.time()
        assert group.overlaps() == []
        owned = [i for i in intervals(group.event_log.read(), over) if i.stop > begun]
        changes = sum(
            (a.partition, a.member != b.member) == (b.partition, True) for a, b in pairwise(owned)
        )
        return changes, sum(unowned_seconds(owned, PARTITIONS, begun, over))


def quiet_seconds(group: Crew) -> float:
    return time.time() - max(entry.time_seconds for entry in group.event_log.read())


@pytest.mark.slow
def test_a_surge_costs_what_it_costs_under_simple(broker, tmp_path):
    assert Policy().delay_ms > 2 * 1000 * PATIENCE_SECONDS
    cost = {p: rolled_out(broker.bootstrap, p, tmp_path / p) for p in ("simple", "deferred")}
    print(cost)
    (simple, _), (deferred, unowned) = cost["simple"], cost["deferred"]
    assert PARTITIONS <= deferred <= simple
    assert unowned < deferred * NOISE_SECONDS


BOUNCED, SHARED = 3, 6


@pytest.mark.slow
def test_a_bounce_after_growth_ends_as_it_began(broker, tmp_path):
    """One member more is no successor of those that are bounced: each gets back what it had."""
    policies = ("deferred", "failback")
    with ThreadPoolExecutor(len(policies)) as pool:
        for played in [pool.submit(grown, broker.bootstrap, p, tmp_path / p) for p in policies]:
            played.result()


def grown(bootstrap: str, policy: str, folder: Path) -> None:
    """Grow a group by one member, and bounce every member."""
    folder.mkdir()
    with Crew(bootstrap, SHARED, folder) as group:
        for number in range(BOUNCED - 1):
            place(group, number, 0, policy)
        group.await_balance()
        until(lambda: quiet_seconds(group) > START_MS / 1000, "the group has not grown lately")
        place(group, BOUNCED - 1, 0, policy)
        group.await_balance()
        before = group.holdings()
        had = {number: before[f"{number}-0"] for number in range(BOUNCED)}
        time.sleep(START_MS / 1000)
        for number in range(BOUNCED):
            group.stop(f"{number}-0")
            place(group, number, 1, policy)
            group.await_balance()
        after = group.holdings()
        assert {number: after[f"{number}-1"] for number in range(BOUNCED)} == had
        assert group.overlaps() == []


def place(group: Crew, number: int, start: int, policy: str) -> None:
    """The process of a place, under a new name after each start."""
    group.own(f"{number}-{start}", policy, holdfast_location=f"pod-{number}")
