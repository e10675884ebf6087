"""Groups of 150 and 2,000 members on a broker with Kafka's limit: no record exceeds it.

Ids are as long as Kafka's, because they are half of a record where members own little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.proof.random_runs import QUICK
from tests.sim.faults.small_worlds import InstrumentedWorld, loads, running, tape, until
from tests.suites import further

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import JoinAnswered, SyncAnswered
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES, batch_bytes
from holdfast.sim.world import WorldOptions

DELAY_MS = 60_000
UUID_CHARACTERS = 36
STEP_MS = 100
POLICIES = ("deferred", "incremental")


def crowd(
    name: str,
    n_members: int,
    n_each: int,
    n_topics: int,
    *,
    settings: Policy | None = None,
    **more: object,
) -> InstrumentedWorld:
    """So many members that own so much each, of one topic each; all are in the first round."""
    policy = settings or Policy(delay_ms=DELAY_MS)
    offered = assignors_for(name, policy)
    each = n_members * n_each // n_topics
    topics = [f"topic-{i:03d}" for i in range(n_topics)]
    options = WorldOptions(
        assignors=lambda slot: offered,
        partitions=dict.fromkeys(topics, each),
        costs=replace(QUICK, slow_members=0),
        id_digits=UUID_CHARACTERS,
        **more,
    )
    w = InstrumentedWorld(options, seed=1)
    for slot in range(n_members):
        w.subscriptions[slot] = (topics[slot % n_topics],)
        w.start(slot)
    until(w, lambda: sum(loads(w)) == len(w.resources()), 60_000, STEP_MS)
    return w


def bounce(w: InstrumentedWorld, slots: Iterable[int], *, crash: bool = False) -> None:
    """End one process after the other and start each again; each has what it had before."""
    for slot in slots:
        process, had = w.slots[slot], running(w, slot)
        assert process.alive, process.failed
        if crash:
            w.crash(slot)
            until(
                w,
                lambda p=process: p.member.member_id not in w.coordinator.members,
                60_000,
                STEP_MS,
            )
        else:
            w.stop(slot)
            until(w, lambda p=process: not p.alive, 60_000, STEP_MS)
        w.run(w.now_ms + 2_000)
        w.start(slot)
        until(w, lambda s=slot: w.slots[s].running, DELAY_MS // 2, STEP_MS)
        assert running(w, slot) == had


def sizes(w: InstrumentedWorld) -> list[int]:
    """Bytes of each group record that the broker wrote."""
    records = [(key, value) for _, key, value in w.log if b"consumer" in (value or b"")]
    return [batch_bytes(len(key), len(value or b"")) for key, value in records]


def ends_well(w: InstrumentedWorld, n_members: int) -> None:
    """All members live and own everything, nothing has moved, no rule was broken."""
    w.run(w.now_ms + 5_000)
    assert [p.failed for p in w.slots.values() if p.failed] == []
    assert len(w.living()) == n_members
    assert sum(loads(w)) == len(w.resources())
    assert w.violations == []
    assert w.ownership_log.moved == 0


def test_a_broker_of_the_world_refuses_what_a_real_one_refuses():
    w = crowd("simple", 20, 4, 1, message_max_bytes=1 << 20)
    fits = max(sizes(w))
    small = InstrumentedWorld(replace(w.options, message_max_bytes=fits - 1), seed=1)
    kept = tape(small)
    for slot in range(20):
        small.start(slot)
    small.run(20_000)
    assert ErrorCode.UNKNOWN_SERVER_ERROR in kept.errors(SyncAnswered)
    assert max(sizes(small), default=0) < fits


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    "n_members, n_each, n_topics",
    [*further([(60, 20, 3), (150, 50, 3)]), pytest.param(2_000, 10, 100, marks=pytest.mark.slow)],
)
def test_a_rolling_bounce_of_a_large_group(name, n_members, n_each, n_topics):
    w = crowd(name, n_members, n_each, n_topics)
    kept = tape(w)
    w.ownership_log.begin(w.now_ms)
    bounce(w, [n_members - 1, n_members // 2])
    bounce(w, [0], crash=True)  # it leads
    assert kept.errors(SyncAnswered) | kept.errors(JoinAnswered) <= {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
    assert max(sizes(w)) <= MESSAGE_MAX_BYTES
    ends_well(w, n_members)


@pytest.mark.parametrize("name", POLICIES)
def test_a_group_fits_wherever_cooperative_sticky_does(name):
    """A broker whose limit is hardly more than what Kafka's own assignor needs."""
    n_members, n_each, n_topics = 60, 20, 2
    kafkas = crowd("simple", n_members, n_each, n_topics)
    bounce_any(kafkas, [3, 0])
    limit = max(sizes(kafkas)) * 21 // 20
    settings = Policy(delay_ms=DELAY_MS, record_limit_bytes=limit)
    w = crowd(name, n_members, n_each, n_topics, settings=settings, message_max_bytes=limit)
    kept = tape(w)
    bounce_any(w, [3, 0])
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in kept.errors(SyncAnswered)
    assert max(sizes(w)) <= limit
    assert [p.failed for p in w.slots.values() if p.failed] == []
    assert sum(loads(w)) == len(w.resources())
    assert w.violations == []


def bounce_any(w: InstrumentedWorld, slots: Iterable[int]) -> None:
    """End and start members; afterwards all partitions are processed again."""
    for slot in slots:
        process = w.slots[slot]
        w.stop(slot)
        until(w, lambda p=process: not p.alive, 60_000, STEP_MS)
        w.run(w.now_ms + 2_000)
        w.start(slot)
        until(w, lambda: sum(loads(w)) == len(w.resources()), 2 * DELAY_MS, STEP_MS)
