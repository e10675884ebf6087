"""Fault scenarios 7 to 32 as fault cases: leaders, members, and their messages.

**Rules.** A name is its number; its docstring is its title.

**Strategy.** Real members and the real coordinator in a small world, with the hooks of
:mod:`tests.sim.faults.fault_case`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.machine.subscribed import reports
from tests.sim.faults.fault_case import (
    DEFERRED,
    DELAY_MS,
    FOUND_MS,
    SIMPLE,
    FaultCase,
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
)
from tests.sim.hand_played import HandPlayedGroup

from holdfast.core.machine.actions import SendHeartbeat, SendJoin, SendSync
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import (
    HeartbeatAnswered,
    JoinAnswered,
    ListenerCall,
    MetadataChanged,
    SyncAnswered,
)
from holdfast.core.machine.leader.assignor_protocol import Assignor, MemberView
from holdfast.core.machine.leader.designs import CooperativeAssignor, DesignAssignor
from holdfast.core.machine.states import GroupState
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.sim.world.world import World

COMPLETING = GroupState.COMPLETING_REBALANCE


def case_07(s: FaultCase) -> None:
    """A member without partitions leaves: no delayed rebalance."""
    w = s.world(partitions=2)
    (idle,) = (p.slot for p in w.living() if not p.running)
    rounds = w.rounds
    w.crash(idle)
    w.run(w.now_ms + FOUND_MS)
    s.expect(not any(p.member.data.rejoin_at_ms for p in w.living()), "no member gets a delay")
    s.ends_well(w)
    s.expect(w.rounds == rounds + 1, "one round was enough")


def case_11(s: FaultCase) -> None:
    """A static id twice: one is fenced and stops."""
    w = s.world(static=True)
    first = w.slots[2]
    w.start(2)
    s.ends_well(w)
    s.expect("FENCED" in (first.failed or ""), "the first process with the id is fenced")
    s.expect(not first.alive and not first.running, "and stops")


def case_17(s: FaultCase) -> None:
    """The leader crashes before its sync."""
    w = s.world("holdfast-simple")
    led_rounds = tape(w).led_rounds
    w.start(3)
    until(w, lambda: group_is(w, COMPLETING))
    broken = w.coordinator.generation
    w.crash(leader(w))
    s.ends_well(w)
    written = [decode_record(k, v) for _, k, v in w.log]
    generations = [r.value["generation"] for r in written if r.name == "GroupMetadata" and r.value]
    s.expect(broken not in generations, f"generation {broken} was never completed")
    after = next(t for t in led_rounds if t.generation > broken)
    claimed = {m.subscription.generation for m in after.members}
    s.expect(claimed == {-1, broken - 1}, f"members join with their claims of {broken - 1}")
    s.expect(sum(len(m.claims) for m in after.members) == 4, "two survivors claim two each")


def case_18(s: FaultCase) -> None:
    """The leader crashes after its sync, before some have it."""
    w = s.world("holdfast-simple", 4, partitions=8)
    led_rounds = tape(w).led_rounds
    w.start(4)
    until(w, lambda: group_is(w, COMPLETING))
    slow = next(p.slot for p in w.living() if p.slot not in (leader(w), 4))
    missed = lose(w, SyncAnswered, slow)
    rounds, generation = w.rounds, w.coordinator.generation
    until(w, lambda: w.rounds > rounds)
    until(w, lambda: missed)
    w.crash(leader(w))
    s.ends_well(w)
    mixed = [{m.subscription.generation for m in t.members if m.claims} for t in led_rounds]
    s.expect({generation - 1, generation} in mixed, "claims of two generations met in one round")


def case_20(s: FaultCase) -> None:
    """The leader leaves in a delay, a new member leads."""
    w = s.world(n=2, static=True)
    lost, begin_ms = running(w, 1), w.now_ms
    w.crash(1)
    w.run(w.now_ms + FOUND_MS)
    w.start(2)
    w.run(w.now_ms + 2_000)
    w.stop(0, returns=False)
    until(w, lambda: not w.slots[0].alive)
    until(w, lambda: w.rounds and leader(w) == 2, 5_000)
    # The document would have a new member assume no wait; this one learns of it from others.
    s.expect(not runs(w, lost), "the new member leads, and lost partitions continue to wait")
    until(w, lambda: runs(w, lost), 30_000)
    in_time = w.now_ms - begin_ms <= FOUND_MS + DELAY_MS + 2_000
    s.expect(in_time, "until the deadline that the leader before it had set")
    s.ends_well(w)


def case_21(s: FaultCase) -> None:
    """The leader changes between revoke and assign: no loss."""
    w = s.world(n=3, partitions=9)
    kept = tape(w)
    w.start(3)
    until(w, lambda: any(p.member.data.already_revoked for p in w.living()))
    already_revoked = {r for p in w.living() for r in p.member.data.already_revoked}
    until(w, lambda: not runs(w, already_revoked))
    w.stop(leader(w))
    waited_ms = until(w, lambda: runs(w, already_revoked))
    s.expect(waited_ms < 4_000, "under another leader it is assigned without a delay")
    s.expect(len(kept.led_rounds) >= 2, "two rounds and more were led")
    s.ends_well(w)


def case_23(s: FaultCase) -> None:
    """An old leader leads again: stale leader state is dropped by generation."""
    play = HandPlayedGroup.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    play.round()
    old = play.members["A"]  # knows that D is waited for
    play.now_ms += DELAY_MS
    s.expect(play.round().delay_ms == 0, "the delay has passed")
    s.expect("T3" in ",".join(play.all_owned().values()), "waiting partitions are assigned")
    play.members["A"] = reports(play.members["A"], leader_state=old.subscription.leader_state)
    play.received_ms["A"] = play.now_ms  # and counts it as received just now
    done = play.round()
    s.expect(done.delay_ms == 0, "the old leader's state starts no other delay")
    s.expect(
        not any(x.revoked for x in done.assignments.values()), "and takes nothing from anybody"
    )


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


def case_24(s: FaultCase) -> None:
    """A newer subscription version than the leader knows."""
    pairs: tuple[tuple[Assignor, Assignor], ...] = (
        (CooperativeAssignor(), NewerSticky()),
        (DesignAssignor(SIMPLE), NewerDesign(SIMPLE)),
    )
    for old, new in pairs:
        offered = [(old,), (old,), (new,), (old,)]
        w = s.world("holdfast-simple", supported=offered.__getitem__)
        led_rounds = tape(w).led_rounds
        w.start(3)
        s.ends_well(w)
        theirs = [m for t in led_rounds for m in t.members if m.name.startswith("m0002")]
        s.expect(any(len(m.claims) == 2 for m in theirs), "claims of a version 9 were read")


def case_25(s: FaultCase) -> None:
    """A leader with stale metadata."""
    w = s.world()
    first = leader(w)
    w.partitions["a"] = 9
    w.ownership_log.add(w.resources(), w.now_ms)
    for p in w.living():
        if p.slot != first:
            p.notify(MetadataChanged((("a", 9),)))
    led_rounds = tape(w).led_rounds
    w.start(3)  # learns of 9 as well
    w.run(w.now_ms + 5_000)
    s.expect(leader(w) == first, "the leader is the one that knows of 6 partitions")
    s.expect(led_rounds[-1].partitions == {"a": 6} and sum(loads(w)) == 6, "and plans for 6")
    w.slots[first].notify(MetadataChanged((("a", 9),)))  # its own metadata refresh
    until(w, lambda: sum(loads(w)) == 9, 5_000)
    s.expect(True, "when it learns of 9, all 9 are processed")
    s.ends_well(w)


def case_26(s: FaultCase) -> None:
    """The plan throws."""
    w = s.world()
    for p in w.living():
        p.plan_fails = 2
    w.start(3)
    s.ends_well(w)
    told = [x for x in w.warnings if "could not plan" in x]
    s.expect(1 <= len(told) <= 2, "a failed plan is reported, and tried again")
    w = s.world("holdfast-simple")
    for p in w.living():
        p.plan_fails = 10**6  # for ever
    w.start(3)
    rounds = w.rounds
    w.run(w.now_ms + 120_000)
    s.expect(w.rounds - rounds < 10, "one that fails for ever is not tried for ever")
    s.expect(sum(loads(w)) == 6, "and every member keeps its partitions")
    s.expect(group_is(w, GroupState.STABLE), "in a stable group")


def case_27(s: FaultCase) -> None:
    """Two members believe to lead."""
    w = s.world("holdfast-simple")
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
    s.expect(kept.errors(SyncAnswered, client) & refused, "the old leader's sync is refused")
    s.ends_well(w)


def case_28(s: FaultCase) -> None:
    """A JoinGroup response is lost, an id is a ghost."""
    w = s.world(n=2)
    group = w.coordinator
    w.start(2)
    lost = lose(w, JoinAnswered, 2)
    until(w, lambda: len(group.data.pending) + len(group.members) >= 4)
    s.expect(lost[0].error == ErrorCode.MEMBER_ID_REQUIRED, "the answer with the id was lost")
    ghost = lost[0].member_id
    s.expect(ghost in group.data.pending, "its id is a ghost's")
    s.ends_well(w)
    s.expect(w.slots[2].member.member_id != ghost, "the process is a member by another id")
    s.expect(loads(w) == [2, 2, 2], "with as much as the others")


def case_29(s: FaultCase) -> None:
    """SyncGroup says REBALANCE_IN_PROGRESS: claims kept."""
    w = s.world("holdfast-simple")
    kept = tape(w)
    w.start(3)
    until(w, lambda: group_is(w, COMPLETING))
    generation, before = w.coordinator.generation, running(w, 1) | running(w, 2)
    hold(w, SendSync, leader(w), 2_000)
    w.run(w.now_ms + 20)
    w.start(4)
    until(w, lambda: ErrorCode.REBALANCE_IN_PROGRESS in kept.errors(SyncAnswered))
    s.expect(True, "SyncGroup said REBALANCE_IN_PROGRESS")
    until(w, lambda: len(kept.led_rounds) >= 2)
    claims = [m for m in kept.led_rounds[1].members if m.claims]
    same = {m.subscription.generation for m in claims} == {generation - 1}
    s.expect(same, "claims keep the generation they come from")
    s.expect(sum(len(m.claims) for m in claims) == 6, "and are complete")
    s.expect(runs(w, before) and not said(w, "drops"), "nothing stopped for it")
    s.ends_well(w)


def forget_the_last_generation(w: World) -> None:
    """The coordinator restarts without the group's newest record and what came after it."""
    names = [decode_record(k, v).name for _, k, v in w.log]
    last = len(names) - 1 - names[::-1].index("GroupMetadata")
    w.restart_coordinator(300, lose=len(names) - last)


def case_30(s: FaultCase) -> None:
    """ILLEGAL_GENERATION: lost, empty claims, id kept."""
    w = s.world("holdfast-simple")
    ids = [p.member.member_id for p in w.living()]
    w.resize("a", 7)  # another generation of the same members
    w.run(w.now_ms + 3_000)
    kept = tape(w)
    forget_the_last_generation(w)
    until(w, lambda: len(kept.led_rounds) == 1)
    heard = kept.errors(HeartbeatAnswered)
    s.expect(heard == {ErrorCode.ILLEGAL_GENERATION}, "heartbeats get ILLEGAL_GENERATION")
    lost = [m for m in kept.led_rounds[0].members if m.subscription.generation < 0]
    s.expect(lost and not any(m.claims for m in lost), "a member that got it claims nothing")
    s.expect(said(w, f" {ListenerCall.LOST} "), "and has reported a loss to its listener")
    s.ends_well(w)
    s.expect([p.member.member_id for p in w.living()] == ids, "ids are kept")


def case_31(s: FaultCase) -> None:
    """UNKNOWN_MEMBER_ID: lost, new id."""
    w = s.world("holdfast-simple", 2)
    w.start(2)
    w.run(w.now_ms + 6_000)
    w.resize("a", 8)
    w.run(w.now_ms + 3_000)
    member, client = w.slots[2].member, w.slots[2].client
    old = member.member_id
    kept = tape(w)

    def stored() -> list[str]:
        group = None if w.coordinator is None else w.coordinator.durable.group
        return [] if group is None else [m.member_id for m in group.members]

    while old in stored():
        forget_the_last_generation(w)
        until(w, lambda: w.coordinator is not None)
    until(w, lambda: member.member_id not in ("", old))
    heard = kept.errors(HeartbeatAnswered, client) | kept.errors(JoinAnswered, client)
    s.expect(ErrorCode.UNKNOWN_MEMBER_ID in heard, "the member gets UNKNOWN_MEMBER_ID")
    again = next(m.member_id for m in kept.sent(SendJoin, client) if m.member_id != old)
    s.expect(again == "", "and joins without an id")
    s.expect(
        said(w, f"{client} {ListenerCall.LOST} "), "after it has reported a loss to its listener"
    )
    s.ends_well(w)


def case_32(s: FaultCase) -> None:
    """An error of an older generation is ignored."""
    w = s.world("holdfast-simple")
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
    s.expect(
        heard == {ErrorCode.ILLEGAL_GENERATION}, "a heartbeat of the old generation is refused"
    )
    w.run(w.now_ms + 50)
    s.expect(not said(w, f"{client} drops"), "and the member keeps its partitions")
    s.ends_well(w)
