"""Fault scenarios 1 to 34: leaders, members and their messages, under each policy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from tests.machine.subscribed import reports
from tests.sim.faults.small_worlds import (
    DEFERRED,
    DELAY_MS,
    FOUND_MS,
    SIMPLE,
    ends_well,
    group_is,
    hold,
    leader,
    loads,
    lose,
    running,
    runs,
    said,
    tape,
    until,
    world,
)
from tests.sim.hand_played import HandPlayedGroup

from holdfast.core.machine.actions import SendHeartbeat, SendJoin, SendSync
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import (
    HeartbeatAnswered,
    JoinAnswered,
    MetadataChanged,
    SyncAnswered,
)
from holdfast.core.machine.leader.assignor_protocol import Assignor, MemberView
from holdfast.core.machine.leader.designs import CooperativeAssignor, DesignAssignor
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.machine.states import GroupState, MemberState
from holdfast.core.model.constants import Design
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.sim.world import World

INCREMENTAL = Policy(design=Design.INCREMENTAL, delay_ms=DELAY_MS, batch=1, interval_ms=2_000)


def test_01_one_member_joins_an_idle_group():
    w = ends_well(world(n=1))
    assert loads(w) == [6]
    assert w.rounds == 1


def test_02_two_members_join_in_one_round():
    w = world(n=2, settle=False)
    assert loads(ends_well(w)) == [3, 3]
    assert w.rounds <= 2
    w.start(2)
    w.start(3)
    rounds = w.rounds
    assert loads(ends_well(w)) == [1, 1, 2, 2]
    assert w.rounds <= rounds + 3  # one that the second join caused, and the two of a transfer


def test_03_a_join_during_the_revoking_round_of_a_transfer():
    w = world("holdfast-simple", 2)
    w.start(2)
    until(w, lambda: w.coordinator.state is GroupState.COMPLETING_REBALANCE)
    w.start(3)
    assert loads(ends_well(w)) == [1, 1, 2, 2]
    assert w.rounds <= 6


def test_04_a_join_between_the_revoking_and_the_assigning_round():
    w = world("holdfast-simple", 2)
    w.start(2)
    until(w, lambda: any(p.member.state is MemberState.REVOKING for p in w.living()))
    w.start(3)
    assert loads(ends_well(w)) == [1, 1, 2, 2]
    assert w.rounds <= 6


def test_05_a_clean_leave():
    w = world("holdfast-simple")
    kept = running(w, 0) | running(w, 1)
    rounds, gone = w.rounds, running(w, 2)
    w.stop(2)
    until(w, lambda: not w.slots[2].alive)
    until(w, lambda: runs(w, gone), 3_000)
    assert kept == {r for r in kept if w.ownership_log.runner(r)}
    ends_well(w)
    assert w.rounds == rounds + 1
    assert w.ownership_log.moved == len(gone)


def test_06_a_crash_found_by_the_session_timeout():
    w = world("holdfast-simple")
    gone = running(w, 2)
    w.crash(2)
    assert 2_000 < until(w, lambda: runs(w, gone)) <= FOUND_MS
    ends_well(w)
    assert w.ownership_log.moved == len(gone)


def test_08_all_leave_one_joins_immediate():
    w = world()
    for slot in range(3):
        w.stop(slot)
    until(w, lambda: not w.living())
    w.start(0)
    until(w, lambda: loads(w) == [6], 3_000)
    ends_well(w)


def test_09_a_bounce_faster_than_the_session_timeout_with_a_new_id():
    w = world()
    before = running(w, 2)
    w.crash(2)
    w.run(w.now_ms + 500)
    w.start(2)
    until(w, lambda: len(w.coordinator.members) == 4)  # the old one is a ghost
    ends_well(w)
    assert w.ownership_log.moved_to_third == 0
    assert running(w, 2) == before


def test_10_a_bounce_with_a_static_id():
    w = world(static=True)
    before, rounds = running(w, 2), w.rounds
    w.crash(2)
    w.run(w.now_ms + 8_000)
    w.start(2)
    until(w, lambda: running(w, 2) == before, 3_000)
    ends_well(w)
    assert w.ownership_log.moved == 0
    w.crash(2)
    w.run(w.now_ms + 2_000)  # within the session: no round at all
    rounds = w.rounds
    w.start(2)
    until(w, lambda: running(w, 2) == before, 3_000)
    ends_well(w)
    assert w.rounds == rounds


def test_12_a_rolling_bounce_within_the_delay_no_partition_visits_a_third_member():
    w = world()
    before = [running(w, slot) for slot in range(3)]
    for slot in range(3):
        w.stop(slot)
        w.run(w.now_ms + 3_000)
        w.start(slot)
        w.run(w.now_ms + 6_000)
    ends_well(w)
    assert w.ownership_log.moved == 0
    assert [running(w, slot) for slot in range(3)] == before


def test_13_a_rolling_bounce_slower_than_the_delay():
    w = world()
    for slot in range(3):
        gone = running(w, slot)
        w.stop(slot)
        until(w, lambda s=slot: not w.slots[s].alive)
        assert DELAY_MS - 1_000 < until(w, lambda g=gone: runs(w, g)) < DELAY_MS + 5_000
        w.start(slot)
        w.run(w.now_ms + 6_000)
    ends_well(w)
    assert w.ownership_log.moved > 0


def test_14_a_flapping_member():
    w = world()
    steady = w.slots[0]
    before = set(steady.running)
    for _ in range(4):
        w.crash(2)
        w.run(w.now_ms + 2_000)
        w.start(2)
        w.run(w.now_ms + 2_000)
        assert steady.running >= before
    ends_well(w)


def test_15_half_the_group_dies_at_once():
    w = world(n=4, partitions=8)
    gone = running(w, 2) | running(w, 3)
    w.crash(2)
    w.crash(3)
    until(w, lambda: runs(w, gone), FOUND_MS + DELAY_MS + 3_000)
    assert loads(ends_well(w)) == [4, 4]


@pytest.mark.parametrize(("group_batch", "most"), [(0, 3), (1, 1)])
def test_16_three_members_more_under_design_iii_with_batch_1(group_batch, most):
    """One move for each new member in a round, or one in the group."""
    paced = replace(INCREMENTAL, interval_ms=500, group_batch=group_batch)
    w = world("incremental", 2, partitions=8, policy=paced)
    led_rounds = tape(w).led_rounds
    for slot in (2, 3, 4):
        w.start(slot)
    assert loads(ends_well(w, 120_000)) == [1, 1, 2, 2, 2]
    taken = [sum(len(s.revoked) for s in leader_round.members) for leader_round in led_rounds]
    assert max(taken) == most
    assert sum(taken) == w.ownership_log.moved == 4  # no more than it takes
    spread = [max(len(s.after) for s in leader_round.members) for leader_round in led_rounds]
    assert spread == sorted(spread, reverse=True)  # from the fullest first


def test_19_the_leader_leaves_in_a_delay_an_old_member_leads_deadline_kept():
    w = world(n=4, partitions=8)
    lost, begin_ms = running(w, 3), w.now_ms
    w.crash(3)
    w.run(w.now_ms + FOUND_MS)
    first = leader(w)
    assert not runs(w, lost)
    w.crash(first)
    until(w, lambda: runs(w, lost), 30_000)
    assert leader(w) != first
    assert DELAY_MS < w.now_ms - begin_ms <= FOUND_MS + DELAY_MS + 2_000
    ends_well(w)


def test_22_the_leader_changes_in_the_middle_of_design_iii_s_batches():
    w = world("incremental", 3, partitions=12, policy=INCREMENTAL)
    led_rounds = tape(w).led_rounds
    w.start(3)
    until(w, lambda: w.slots[3].running)
    first, begin_ms = leader(w), w.now_ms
    w.stop(first)
    until(w, lambda: not w.slots[first].alive)
    w.start(first)
    until(w, lambda: loads(w) == [3, 3, 3, 3])
    assert leader(w) != first
    taken = [sum(len(s.revoked) for s in leader_round.members) for leader_round in led_rounds]
    assert max(taken) == 1
    assert w.now_ms - begin_ms >= INCREMENTAL.interval_ms  # no jump
    ends_well(w)


def test_33_the_coordinator_moves_in_the_middle_of_a_round():
    for state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
        w = world("holdfast-simple")
        before = [running(w, slot) for slot in range(3)]
        w.start(3)
        until(w, lambda w=w, state=state: w.coordinator.state is state)
        w.restart_coordinator(1_500)
        w.run(w.now_ms + 1_500)
        assert [running(w, slot) for slot in range(3)] == before  # processing continues meanwhile
        assert loads(ends_well(w)) == [1, 1, 2, 2]


def test_34_the_coordinator_loses_the_group_record():
    w = world("holdfast-simple")
    w.start(3)
    until(w, lambda: w.slots[3].running)
    led_rounds = tape(w).led_rounds
    forget_the_last_generation(w)
    ends_well(w)
    first = led_rounds[0].members  # members joined again, and what they claim decides
    assert {m.name for m in first} == {p.member.member_id for p in w.living()}
    reset = [m for m in first if m.subscription.generation < 0]
    kept = [m for m in first if m.claims]
    assert reset
    assert kept
    assert not any(m.claims for m in reset)
    assert all(m.claims <= m.after for m in kept)
    assert len(led_rounds) == 1
    assert w.coordinator.state is GroupState.STABLE


COMPLETING = GroupState.COMPLETING_REBALANCE


def test_07_a_member_without_partitions_leaves_no_delayed_rebalance() -> None:
    w = world(partitions=2)
    (idle,) = (p.slot for p in w.living() if not p.running)
    rounds = w.rounds
    w.crash(idle)
    w.run(w.now_ms + FOUND_MS)
    assert not any(p.member.data.rejoin_at_ms for p in w.living()), "no member gets a delay"
    ends_well(w)
    assert w.rounds == rounds + 1, "one round was enough"


def test_11_a_static_id_twice_one_is_fenced_and_stops() -> None:
    w = world(static=True)
    first = w.slots[2]
    w.start(2)
    ends_well(w)
    assert "FENCED" in (first.failed or ""), "the first process with the id is fenced"
    assert not first.alive and not first.running, "and stops"


def test_17_the_leader_crashes_before_its_sync() -> None:
    w = world("holdfast-simple")
    led_rounds = tape(w).led_rounds
    w.start(3)
    until(w, lambda: group_is(w, COMPLETING))
    broken = w.coordinator.generation
    w.crash(leader(w))
    ends_well(w)
    written = [decode_record(k, v) for _, k, v in w.log]
    generations = [r.value["generation"] for r in written if r.name == "GroupMetadata" and r.value]
    assert broken not in generations, f"generation {broken} was never completed"
    after = next(t for t in led_rounds if t.generation > broken)
    claimed = {m.subscription.generation for m in after.members}
    assert claimed == {-1, broken - 1}, f"members join with their claims of {broken - 1}"
    assert sum(len(m.claims) for m in after.members) == 4, "two survivors claim two each"


def test_18_the_leader_crashes_after_its_sync_before_some_have_it() -> None:
    w = world("holdfast-simple", 4, partitions=8)
    led_rounds = tape(w).led_rounds
    w.start(4)
    until(w, lambda: group_is(w, COMPLETING))
    slow = next(p.slot for p in w.living() if p.slot not in (leader(w), 4))
    missed = lose(w, SyncAnswered, slow)
    rounds, generation = w.rounds, w.coordinator.generation
    until(w, lambda: w.rounds > rounds)
    until(w, lambda: missed)
    w.crash(leader(w))
    ends_well(w)
    mixed = [{m.subscription.generation for m in t.members if m.claims} for t in led_rounds]
    assert {generation - 1, generation} in mixed, "claims of two generations met in one round"


def test_20_the_leader_leaves_in_a_delay_a_new_member_leads() -> None:
    w = world(n=2, static=True)
    lost, begin_ms = running(w, 1), w.now_ms
    w.crash(1)
    w.run(w.now_ms + FOUND_MS)
    w.start(2)
    w.run(w.now_ms + 2_000)
    w.stop(0, returns=False)
    until(w, lambda: not w.slots[0].alive)
    until(w, lambda: w.rounds and leader(w) == 2, 5_000)
    # The document would have a new member assume no wait; this one learns of it from others.
    assert not runs(w, lost), "the new member leads, and lost partitions continue to wait"
    until(w, lambda: runs(w, lost), 30_000)
    in_time = w.now_ms - begin_ms <= FOUND_MS + DELAY_MS + 2_000
    assert in_time, "until the deadline that the leader before it had set"
    ends_well(w)


def test_21_the_leader_changes_between_revoke_and_assign_no_loss() -> None:
    w = world(n=3, partitions=9)
    kept = tape(w)
    w.start(3)
    until(w, lambda: any(p.member.data.already_revoked for p in w.living()))
    already_revoked = {r for p in w.living() for r in p.member.data.already_revoked}
    until(w, lambda: not runs(w, already_revoked))
    w.stop(leader(w))
    waited_ms = until(w, lambda: runs(w, already_revoked))
    assert waited_ms < 4_000, "under another leader it is assigned without a delay"
    assert len(kept.led_rounds) >= 2, "two rounds and more were led"
    ends_well(w)


def test_23_an_old_leader_leads_again_stale_leader_state_is_dropped_by_generation() -> None:
    play = HandPlayedGroup.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    play.round()
    old = play.members["A"]  # knows that D is waited for
    play.now_ms += DELAY_MS
    assert play.round().delay_ms == 0, "the delay has passed"
    assert "T3" in ",".join(play.all_owned().values()), "waiting partitions are assigned"
    play.members["A"] = reports(play.members["A"], leader_state=old.subscription.leader_state)
    play.received_ms["A"] = play.now_ms  # and counts it as received just now
    done = play.round()
    assert done.delay_ms == 0, "the old leader's state starts no other delay"
    assert not any(x.revoked for x in done.assignments.values()), "and takes nothing from anybody"


def _of_tomorrow(data: bytes) -> bytes:
    """The same subscription as a client of tomorrow writes it: version 9, more at the end."""
    return (9).to_bytes(2, "big") + data[2:] + b"\x00\x07tomorrow"


@dataclass(frozen=True)
class NewerSticky(CooperativeAssignor):
    """Writes subscriptions of version 9."""

    def subscribe(self, view: MemberView) -> bytes:
        """As a client of tomorrow would."""
        return _of_tomorrow(CooperativeAssignor.subscribe(self, view))


@dataclass(frozen=True)
class NewerDesign(DesignAssignor):
    """The same of a design."""

    def subscribe(self, view: MemberView) -> bytes:
        """As a client of tomorrow would."""
        return _of_tomorrow(DesignAssignor.subscribe(self, view))


def test_24_a_newer_subscription_version_than_the_leader_knows() -> None:
    pairs: tuple[tuple[Assignor, Assignor], ...] = (
        (CooperativeAssignor(), NewerSticky()),
        (DesignAssignor(SIMPLE), NewerDesign(SIMPLE)),
    )
    for old, new in pairs:
        offered = [(old,), (old,), (new,), (old,)]
        w = world("holdfast-simple", supported=offered.__getitem__)
        led_rounds = tape(w).led_rounds
        w.start(3)
        ends_well(w)
        theirs = [m for t in led_rounds for m in t.members if m.name.startswith("m0002")]
        assert any(len(m.claims) == 2 for m in theirs), "claims of a version 9 were read"


def test_25_a_leader_with_stale_metadata() -> None:
    w = world()
    first = leader(w)
    w.partitions["a"] = 9
    w.ownership_log.add(w.resources(), w.now_ms)
    for p in w.living():
        if p.slot != first:
            p.notify(MetadataChanged((("a", 9),)))
    led_rounds = tape(w).led_rounds
    w.start(3)  # learns of 9 as well
    w.run(w.now_ms + 5_000)
    assert leader(w) == first, "the leader is the one that knows of 6 partitions"
    assert led_rounds[-1].partitions == {"a": 6} and sum(loads(w)) == 6, "and plans for 6"
    w.slots[first].notify(MetadataChanged((("a", 9),)))  # its own metadata refresh
    until(w, lambda: sum(loads(w)) == 9, 5_000)
    assert True, "when it learns of 9, all 9 are processed"
    ends_well(w)


def test_26_the_plan_throws() -> None:
    w = world()
    for p in w.living():
        p.plan_fails = 2
    w.start(3)
    ends_well(w)
    told = [x for x in w.warnings if "could not plan" in x]
    assert 1 <= len(told) <= 2, "a failed plan is reported, and tried again"
    w = world("holdfast-simple")
    for p in w.living():
        p.plan_fails = 10**6  # for ever
    w.start(3)
    rounds = w.rounds
    w.run(w.now_ms + 120_000)
    assert w.rounds - rounds < 10, "one that fails for ever is not tried for ever"
    assert sum(loads(w)) == 6, "and every member keeps its partitions"
    assert group_is(w, GroupState.STABLE), "in a stable group"


def test_27_two_members_believe_to_lead() -> None:
    w = world("holdfast-simple")
    kept = tape(w)
    w.start(3)
    until(w, lambda: group_is(w, COMPLETING))
    old, client = leader(w), w.slots[leader(w)].client
    generation = w.coordinator.generation
    hold(w, SendSync, old, 9_000)
    member = w.slots[old].member
    until(w, lambda: member.data.is_leader and member.generation == generation)
    w.run(w.now_ms + 5)
    w.split(old, 8_500)
    until(w, lambda: w.coordinator and w.coordinator.generation > generation and leader(w) != old)
    until(w, lambda: any(m.generation == generation for m in kept.sent(SendSync, client)))
    w.run(w.now_ms + 10)
    refused = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
    assert kept.errors(SyncAnswered, client) & refused, "the old leader's sync is refused"
    ends_well(w)


def test_28_a_joingroup_response_is_lost_an_id_is_a_ghost() -> None:
    w = world(n=2)
    group = w.coordinator
    w.start(2)
    lost = lose(w, JoinAnswered, 2)
    until(w, lambda: len(group.data.pending) + len(group.members) >= 4)
    assert lost[0].error == ErrorCode.MEMBER_ID_REQUIRED, "the answer with the id was lost"
    ghost = lost[0].member_id
    assert ghost in group.data.pending, "its id is a ghost's"
    ends_well(w)
    assert w.slots[2].member.member_id != ghost, "the process is a member by another id"
    assert loads(w) == [2, 2, 2], "with as much as the others"


def test_29_syncgroup_says_rebalance_in_progress_claims_kept() -> None:
    w = world("holdfast-simple")
    kept = tape(w)
    w.start(3)
    until(w, lambda: group_is(w, COMPLETING))
    generation, before = w.coordinator.generation, running(w, 1) | running(w, 2)
    hold(w, SendSync, leader(w), 2_000)
    w.run(w.now_ms + 20)
    w.start(4)
    until(w, lambda: ErrorCode.REBALANCE_IN_PROGRESS in kept.errors(SyncAnswered))
    assert True, "SyncGroup said REBALANCE_IN_PROGRESS"
    until(w, lambda: len(kept.led_rounds) >= 2)
    claims = [m for m in kept.led_rounds[1].members if m.claims]
    same = {m.subscription.generation for m in claims} == {generation - 1}
    assert same, "claims keep the generation they come from"
    assert sum(len(m.claims) for m in claims) == 6, "and are complete"
    assert runs(w, before) and not said(w, "drops"), "nothing stopped for it"
    ends_well(w)


def forget_the_last_generation(w: World) -> None:
    """The coordinator restarts without the group's newest record and what came after it."""
    names = [decode_record(k, v).name for _, k, v in w.log]
    last = len(names) - 1 - names[::-1].index("GroupMetadata")
    w.restart_coordinator(300, lose=len(names) - last)


def test_30_illegal_generation_lost_empty_claims_id_kept() -> None:
    w = world("holdfast-simple")
    ids = [p.member.member_id for p in w.living()]
    w.resize("a", 7)  # another generation of the same members
    w.run(w.now_ms + 3_000)
    kept = tape(w)
    forget_the_last_generation(w)
    until(w, lambda: len(kept.led_rounds) == 1)
    heard = kept.errors(HeartbeatAnswered)
    assert heard == {ErrorCode.ILLEGAL_GENERATION}, "heartbeats get ILLEGAL_GENERATION"
    lost = [m for m in kept.led_rounds[0].members if m.subscription.generation < 0]
    assert lost and not any(m.claims for m in lost), "a member that got it claims nothing"
    assert said(w, f" {ListenerCall.LOST} "), "and has reported a loss to its listener"
    ends_well(w)
    assert [p.member.member_id for p in w.living()] == ids, "ids are kept"


def test_31_unknown_member_id_lost_new_id() -> None:
    w = world("holdfast-simple", 2)
    w.start(2)
    w.run(w.now_ms + 6_000)
    w.resize("a", 8)
    w.run(w.now_ms + 3_000)
    member, client = w.slots[2].member, w.slots[2].client
    old = member.member_id
    kept = tape(w)

    def stored() -> list[str]:
        group = None if w.coordinator is None else w.coordinator.durable.group
        return [] if group is None else [m["memberId"] for m in group["members"]]

    while old in stored():
        forget_the_last_generation(w)
        until(w, lambda: w.coordinator is not None)
    until(w, lambda: member.member_id not in ("", old))
    heard = kept.errors(HeartbeatAnswered, client) | kept.errors(JoinAnswered, client)
    assert ErrorCode.UNKNOWN_MEMBER_ID in heard, "the member gets UNKNOWN_MEMBER_ID"
    again = next(m.member_id for m in kept.sent(SendJoin, client) if m.member_id != old)
    assert again == "", "and joins without an id"
    assert said(w, f"{client} {ListenerCall.LOST} "), "after it has reported a loss to its listener"
    ends_well(w)


def test_32_an_error_of_an_older_generation_is_ignored() -> None:
    w = world("holdfast-simple")
    kept = tape(w)
    first = leader(w)
    member, client = w.slots[first].member, w.slots[first].client
    group = w.coordinator
    before = group.generation
    hold(w, SendHeartbeat, first, 2_000)
    until(w, lambda: member.data.heartbeat_request >= 0)  # it is on its way, slowly
    w.resize("a", 7)  # the leader joins at once
    until(w, lambda: group.generation > before, 4_000)
    until(w, lambda: kept.errors(HeartbeatAnswered, client), 4_000)
    heard = kept.errors(HeartbeatAnswered, client)
    assert heard == {ErrorCode.ILLEGAL_GENERATION}, "a heartbeat of the old generation is refused"
    w.run(w.now_ms + 50)
    assert not said(w, f"{client} drops"), "and the member keeps its partitions"
    ends_well(w)
