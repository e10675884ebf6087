"""Fault scenarios 24 to 36: what goes wrong between members and their coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.faultplay import (
    SIMPLE,
    ends_well,
    hold,
    leader,
    loads,
    lose,
    running,
    runs,
    said,
    tape,
    twice,
    until,
    world,
)

from holdfast.machine.actions import ListenerCall, SendHeartbeat, SendJoin, SendSync
from holdfast.machine.codes import ErrorCode
from holdfast.machine.coordinator import GroupState
from holdfast.machine.designs import CooperativeSticky, Designed
from holdfast.machine.embedded import MemberView
from holdfast.machine.events import (
    HeartbeatAnswered,
    JoinAnswered,
    MetadataChanged,
    SyncAnswered,
)
from holdfast.wire.offsets_records import decode_record


def from_the_future(data: bytes) -> bytes:
    """The same subscription as a client of tomorrow writes it: version 9, more at the end."""
    return (9).to_bytes(2, "big") + data[2:] + b"\x00\x07tomorrow"


@dataclass(frozen=True)
class NewerSticky(CooperativeSticky):
    def subscribe(self, view: MemberView) -> bytes:
        return from_the_future(CooperativeSticky.subscribe(self, view))


@dataclass(frozen=True)
class NewerDesign(Designed):
    def subscribe(self, view: MemberView) -> bytes:
        return from_the_future(Designed.subscribe(self, view))


def test_24_a_newer_subscription_version_than_the_leader_knows():
    for old, new in ((CooperativeSticky(), NewerSticky()), (Designed(SIMPLE), NewerDesign(SIMPLE))):
        w = world("simple", offers=lambda slot, old=old, new=new: (new if slot == 2 else old,))
        turns = tape(w).turns
        w.start(3)
        ends_well(w)
        theirs = [s for t in turns for s in t.members if s.name.startswith("m0002")]
        assert any(len(s.claims) == 2 for s in theirs)  # its claims were read


def test_25_a_leader_with_stale_metadata():
    w = world()
    first = leader(w)
    w.partitions["a"] = 9
    w.ledger.add(w.resources(), w.now_ms)
    for p in w.living():
        if p.slot != first:
            w._tell(p, MetadataChanged((("a", 9),)))
    turns = tape(w).turns
    w.start(3)  # is told of 9 as well
    w.run(w.now_ms + 5_000)
    assert leader(w) == first
    assert turns[-1].partitions == {"a": 6}
    assert sum(loads(w)) == 6
    w._tell(w.slots[first], MetadataChanged((("a", 9),)))  # its own metadata refresh
    until(w, lambda: sum(loads(w)) == 9, 5_000)
    ends_well(w)


def test_26_the_plan_throws():
    w = world()
    for p in w.living():
        p.plan_fails = 2
    w.start(3)
    ends_well(w)
    assert 1 <= len([x for x in w.warnings if "could not plan" in x]) <= 2
    w = world("simple")
    for p in w.living():
        p.plan_fails = 10**6  # for ever
    w.start(3)
    rounds = w.rounds
    w.run(w.now_ms + 120_000)
    assert w.rounds - rounds < 10  # tried again within bounds
    assert sum(loads(w)) == 6  # and everybody goes on with what it has
    assert w.coordinator.state is GroupState.STABLE


def test_27_two_members_believe_to_lead():
    w = world("simple")
    kept = tape(w)
    w.start(3)
    until(w, lambda: w.coordinator.state is GroupState.COMPLETING_REBALANCE)
    old, client = leader(w), w.slots[leader(w)].client
    generation = w.coordinator.generation
    hold(w, SendSync, old, 9_000)
    until(w, lambda: w.slots[old].member.is_leader and w.slots[old].member.generation == generation)
    w.run(w.now_ms + 5)
    w.split(old, 8_500)
    until(w, lambda: w.coordinator.generation > generation and leader(w) != old)
    until(w, lambda: any(m.generation == generation for m in kept.sent(SendSync, client)))
    w.run(w.now_ms + 10)
    assert kept.errors(SyncAnswered, client) & {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
    }
    ends_well(w)


def test_28_a_joingroup_response_is_lost_an_id_is_a_ghost():
    w = world(n=2)
    w.start(2)
    lost = lose(w, JoinAnswered, 2)
    until(w, lambda: len(w.coordinator.pending) + len(w.coordinator.members) >= 4)
    assert lost[0].error == ErrorCode.MEMBER_ID_REQUIRED
    ghost = lost[0].member_id
    assert ghost in w.coordinator.pending
    ends_well(w)
    assert w.slots[2].member.member_id != ghost
    assert loads(w) == [2, 2, 2]


def test_29_syncgroup_says_rebalance_in_progress_claims_kept():
    w = world("simple")
    kept = tape(w)
    w.start(3)
    until(w, lambda: w.coordinator.state is GroupState.COMPLETING_REBALANCE)
    generation, before = w.coordinator.generation, running(w, 1) | running(w, 2)
    hold(w, SendSync, leader(w), 2_000)
    w.run(w.now_ms + 20)
    w.start(4)
    until(w, lambda: ErrorCode.REBALANCE_IN_PROGRESS in kept.errors(SyncAnswered))
    until(w, lambda: len(kept.turns) >= 2)
    claims = [s for s in kept.turns[1].members if s.claims]
    assert {s.claimant.generation for s in claims} == {generation - 1}
    assert sum(len(s.claims) for s in claims) == 6
    assert runs(w, before)
    assert not said(w, "drops")
    ends_well(w)


def forget_the_last_generation(w) -> None:
    """The coordinator restarts without the group's newest record and what came after it."""
    names = [decode_record(k, v).name for _, k, v in w.log]
    last = len(names) - 1 - names[::-1].index("GroupMetadata")
    w.restart_coordinator(300, lose=len(names) - last)


def test_30_illegal_generation_lost_empty_claims_id_kept():
    w = world("simple")
    ids = [p.member.member_id for p in w.living()]
    w.resize("a", 7)  # another generation of the same members
    w.run(w.now_ms + 3_000)
    kept = tape(w)
    forget_the_last_generation(w)
    until(w, lambda: len(kept.turns) == 1)
    assert kept.errors(HeartbeatAnswered) == {ErrorCode.ILLEGAL_GENERATION}
    lost = [s for s in kept.turns[0].members if s.claimant.generation < 0]
    assert lost
    assert not any(s.claims for s in lost)
    assert said(w, f" {ListenerCall.LOST} ")
    ends_well(w)
    assert [p.member.member_id for p in w.living()] == ids


def test_31_unknown_member_id_lost_new_id():
    w = world("simple", 2)
    w.start(2)
    w.run(w.now_ms + 6_000)
    w.resize("a", 8)
    w.run(w.now_ms + 3_000)
    old = w.slots[2].member.member_id
    kept = tape(w)
    while old in [m.member_id for m in w.coordinator.durable.group.members]:
        forget_the_last_generation(w)
        until(w, lambda: w.coordinator is not None)
    client = w.slots[2].client
    until(w, lambda: w.slots[2].member.member_id not in ("", old))
    assert ErrorCode.UNKNOWN_MEMBER_ID in {
        *kept.errors(HeartbeatAnswered, client),
        *kept.errors(JoinAnswered, client),
    }
    assert next(m.member_id for m in kept.sent(SendJoin, client) if m.member_id != old) == ""
    assert said(w, f"{client} {ListenerCall.LOST} ")
    ends_well(w)


def test_32_an_error_of_an_older_generation_is_ignored():
    w = world("simple")
    kept = tape(w)
    first = leader(w)
    client, before = w.slots[first].client, w.coordinator.generation
    hold(w, SendHeartbeat, first, 2_000)
    until(w, lambda: w.slots[first].member._heartbeat >= 0)  # it is on its way, slowly
    w.resize("a", 7)  # the leader joins at once
    until(w, lambda: w.coordinator.generation > before, 4_000)
    until(w, lambda: kept.errors(HeartbeatAnswered, client), 4_000)
    assert kept.errors(HeartbeatAnswered, client) == {ErrorCode.ILLEGAL_GENERATION}
    w.run(w.now_ms + 50)
    assert not said(w, f"{client} drops")
    ends_well(w)


def test_33_the_coordinator_moves_in_the_middle_of_a_round():
    for state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
        w = world("simple")
        before = [running(w, slot) for slot in range(3)]
        w.start(3)
        until(w, lambda w=w, state=state: w.coordinator.state is state)
        w.restart_coordinator(1_500)
        w.run(w.now_ms + 1_500)
        assert [running(w, slot) for slot in range(3)] == before  # processing goes on meanwhile
        assert loads(ends_well(w)) == [1, 1, 2, 2]


def test_34_the_coordinator_loses_the_group_record():
    w = world("simple")
    w.start(3)
    until(w, lambda: w.slots[3].running)
    turns = tape(w).turns
    forget_the_last_generation(w)
    ends_well(w)
    assert turns  # members joined again, and what they claim decides
    assert w.coordinator.state is GroupState.STABLE


def test_35_a_response_after_the_session_timeout_is_ignored():
    w = world("simple")
    w.start(3)
    until(w, lambda: w.coordinator.state is GroupState.COMPLETING_REBALANCE)
    slow = next(p.slot for p in w.living() if p.slot not in (leader(w), 3))
    client, late = w.slots[slow].client, w.coordinator.generation
    hold(w, SyncAnswered, slow, 12_000)
    w.run(w.now_ms + 20)
    w.split(slow, 9_000)
    until(w, lambda: said(w, f"{client} drops"), 9_000)
    assert not running(w, slow)
    ends_well(w)  # the answer comes meanwhile
    assert not said(w, f"{client} in generation {late}")
    assert said(w, f"{client} in generation {late + 2}")


def test_36_a_joingroup_comes_twice():
    w = world("simple", 2)
    kept = tape(w)
    w.start(2)
    twice(w, SendJoin, 2)
    ends_well(w)
    requests = [m.request for m in kept.sent(SendJoin, w.slots[2].client)]
    assert len(requests) > len(set(requests))
    w = world("simple", settle=False)
    w.network.rates.duplicate = 0.5
    w.run(9_000)
    ends_well(w)
    assert w.rounds < 10
