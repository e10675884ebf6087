"""Fault scenarios 52 to 64: applications that fail or stall, clocks, and delays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.machine.rounds import Play
from tests.sim.faultplay import (
    COSTS,
    DEFERRED,
    DELAY_MS,
    FOUND_MS,
    SIMPLE,
    accepted_commits,
    ends_well,
    loads,
    refuse_commits,
    running,
    runs,
    said,
    tape,
    until,
    world,
)

from holdfast.errors import ConfigError, WireError
from holdfast.machine.actions import SendLeave
from holdfast.machine.codes import ErrorCode
from holdfast.machine.coordinator import CommitDone, Received, SendCommit
from holdfast.machine.designs import Designed
from holdfast.machine.events import Polled, RejoinRequested
from holdfast.machine.policy import Policy
from holdfast.machine.states import MemberState
from holdfast.wire.consumer_protocol import decode_assignment, encode_assignment
from holdfast.wire.container import Verdict, decode_verdict, encode_verdict
from holdfast.wire.incremental import Design, DesignAssignment, decode_design_assignment
from holdfast.wire.incremental import encode_design_assignment as encode_design


def revoking(w):
    """Start one member more and run until somebody gives up for it; returns slot and resources."""
    w.start(len(w.slots))
    until(w, lambda: any(p.member.state is MemberState.HANDING_OVER for p in w.living()))
    process = next(p for p in w.living() if p.member.state is MemberState.HANDING_OVER)
    return process, process.member.holdings.hand_over.resources


def test_52_the_revoke_callback_throws():
    w = world("simple", 2)
    for p in w.living():
        p.listener_faults = 1.0
    process, given_up = revoking(w)
    process.listener_faults = 1.0
    commits = accepted_commits(w, process.client)
    until(w, lambda: runs(w, given_up) and not given_up & process.running)
    assert not any(r in given_up for _, c in commits for r, _ in c.offsets)
    assert [x for x in w.warnings if "fault" in x]
    for p in w.living():
        p.listener_faults = 0.0
    ends_well(w)


def test_53_revoking_takes_longer_than_allowed():
    w = world("simple", 2)
    for p in w.living():
        p.revoke_extra_ms = 60_000
    process, given_up = revoking(w)
    commits = accepted_commits(w, process.client)
    waited_ms = until(w, lambda: said(w, f"{process.client} drops"))
    assert waited_ms <= COSTS.rebalance_ms  # in time for the round
    until(w, lambda: runs(w, given_up))
    assert commits == []
    process.revoke_extra_ms = 0
    ends_well(w)

    w = world("simple", 2)  # and one that stands still in the middle of it is removed
    kept = tape(w)
    process, given_up = revoking(w)
    w.stall(process.slot, 30_000)
    old = process.member.member_id
    until(w, lambda: old not in w.coordinator.members)
    until(w, lambda: runs(w, given_up) and not given_up & process.running, 60_000)
    ends_well(w)
    assert said(w, f"{process.client} drops")
    refused = kept.errors(CommitDone, process.client)
    assert refused <= {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


def test_54_a_commit_fails_retriably_while_revoking():
    for times in (2, 10**6):
        w = world("simple", 2)
        process, given_up = revoking(w)
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        refused = refuse_commits(w, process.slot, error, times)
        until(w, lambda w=w, g=given_up, p=process: runs(w, g) and not g & p.running, 20_000)
        assert len(refused) == min(times, process.member.options.commit_retries)
        ends_well(w)


def test_55_a_commit_after_the_revocation():
    w = world("simple", 2)
    process, given_up = revoking(w)
    until(w, lambda: runs(w, given_up) and not given_up & process.running)
    assert not process.member.may_commit(given_up)
    assert process.member.may_commit(process.member.owned)
    late = SendCommit(
        request=0,
        generation=process.member.generation - 1,
        member_id=process.member.member_id,
        instance_id=None,
        offsets=tuple((r, 10**6) for r in sorted(given_up)),
    )
    (answer,) = w.coordinator.step(w.now_ms, Received(process.client, late))
    assert answer.response == CommitDone(0, ErrorCode.ILLEGAL_GENERATION)
    ends_well(w)


def test_56_the_poll_loop_stalls():
    w = world("simple", settle=False, max_poll_interval_ms=5_000)
    kept, silent = tape(w), set()
    tell = w._tell

    def muted(process, event):
        if not (isinstance(event, Polled) and process.slot in silent):
            tell(process, event)

    w._tell = muted
    w.poll_all(500)
    w.run(w.now_ms + 10_000)
    gone, client = running(w, 2), w.slots[2].client
    silent.add(2)
    until(w, lambda: kept.sent(SendLeave, client), 6_000)
    assert said(w, f"{client} drops")
    assert said(w, f"{client} lost")
    until(w, lambda: runs(w, gone), 4_000)
    assert loads(w) == [0, 3, 3]
    silent.clear()
    w.poll_all(500)
    ends_well(w)


def test_57_the_process_pauses_longer_than_its_session():
    w = world("simple")
    gone = running(w, 2)
    w.stall(2, 15_000)
    w.run(w.now_ms + 14_900)
    assert runs(w, gone)  # others have them since long
    until(w, lambda: w.slots[2].stalled_until_ms == 0)
    assert said(w, "m0002.0 drops")
    assert not running(w, 2)  # before it could take another batch
    ends_well(w)


def test_58_clocks_jump():
    def play(jumps):
        w = world()
        lost = running(w, 2)
        w.crash(2)
        for after_ms, by_ms in jumps:
            w.at(w.now_ms + after_ms, w.jump_clock, by_ms)
        until(w, lambda: runs(w, lost))
        ends_well(w)
        return [line for line in w.trace if "clock" not in line]

    hour_ms = 3_600_000
    quiet = play([])
    assert play([(7_000, hour_ms), (12_000, -30 * hour_ms), (21_000, 5_000)]) == quiet
    w = world()  # and no two processes ever have the same clock
    clocks = [p.member.now_ms - w.now_ms for p in w.living()]
    assert len({round(c, -5) for c in clocks}) == 3


def test_59_all_timers_fire_together_one_round():
    w = world()
    w.crash(2)
    w.run(w.now_ms + FOUND_MS)
    rounds, due = w.rounds, [p.deadline_ms for p in w.living()]
    assert all(p.member.rejoin_at_ms for p in w.living())
    assert due
    w.run(w.now_ms + 2 * DELAY_MS)
    assert w.rounds == rounds + 1
    ends_well(w)


def test_60_unrelated_rounds_during_a_delay():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    assert play.round().delay_ms == DELAY_MS
    for passed in range(1, 15):
        play.now_ms += 1_000
        assert play.round().delay_ms == DELAY_MS - 1_000 * passed
    play.now_ms += 1_000
    assert play.round().delay_ms == 0
    took = []
    for extra in (0, 8):
        w = world()
        lost = running(w, 2)
        w.crash(2)
        w.run(w.now_ms + FOUND_MS)
        rounds = w.rounds
        for _ in range(extra):
            w._tell(w.slots[0], RejoinRequested())
            w._tell(w.slots[1], RejoinRequested())
            w.run(w.now_ms + 1_500)
        assert w.rounds >= rounds + extra
        assert not runs(w, lost)
        took.append(until(w, lambda w=w, g=lost: runs(w, g)) + extra * 1_500)
        ends_well(w)
    assert abs(took[0] - took[1]) < 1_500


def test_61_a_second_loss_during_a_delay():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    play.round()
    play.now_ms += 10_000
    play.leave("C")
    assert play.round().delay_ms == 5_000
    play.now_ms += 5_000
    assert play.round().delay_ms == 10_000
    owned = ",".join(play.all_owned().values())
    assert "T3" in owned
    assert "T2" not in owned
    w = world(n=4, partitions=8)
    first, second = running(w, 2), running(w, 3)
    w.crash(2)
    w.run(w.now_ms + 8_000)
    w.crash(3)
    one = until(w, lambda: runs(w, first))
    two = until(w, lambda: runs(w, second))
    assert abs(two - 8_000) < 3_000, (one, two)  # each has its own deadline
    ends_well(w)


def test_62_a_member_returns_in_the_round_of_the_deadline():
    play = Play.of(DEFERRED, {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    play.round()
    play.now_ms += DELAY_MS
    play.join("D2")
    play.settle()
    owned = ",".join(play.all_owned().values())
    assert owned.count("T3") == 1
    for early_ms in (900, 520, 200, 0, -200):
        w = world()
        w.crash(2)
        until(w, lambda w=w: any(p.member.rejoin_at_ms for p in w.living()))
        w.run(w.now_ms + DELAY_MS - early_ms)
        w.start(2)
        ends_well(w)  # either outcome, and each partition once


def test_63_delay_0_is_now():
    play = Play.of(replace(DEFERRED, delay_ms=0), {"T": 4}, A="T0", B="T1", C="T2", D="T3")
    play.leave("D")
    assert play.round().delay_ms == 0
    assert "T3" in ",".join(play.all_owned().values())
    w = world(policy=replace(DEFERRED, delay_ms=0))
    gone = running(w, 2)
    w.crash(2)
    assert until(w, lambda: runs(w, gone)) <= FOUND_MS
    assert not said(w, "delay")
    ends_well(w)


def test_64_a_delay_from_the_wire_that_cannot_be():
    with pytest.raises(WireError):
        encode_verdict(Verdict(delay_ms=2**31))
    with pytest.raises(WireError):
        encode_verdict(Verdict(delay_ms=-1))
    with pytest.raises(ConfigError):
        Policy(delay_ms=2**31)
    right = encode_verdict(Verdict(delay_ms=0x01020304))
    message = decode_assignment(right)
    wrong = message.user_data.replace(b"\x01\x02\x03\x04", b"\xff\xff\xff\xff")
    data = encode_assignment(replace(message, user_data=wrong))
    assert decode_verdict(right).delay_ms == 0x01020304
    with pytest.raises(WireError):
        decode_verdict(data)
    value = DesignAssignment(design=Design.DEFERRED, assigned=(), revoked=(), timeout_ms=5)
    own = encode_design(value)
    with pytest.raises(WireError):
        decode_design_assignment(own[:-4] + b"\xff\xff\xff\xfb")

    class Lying(Designed):
        def lead(self, turn):
            if not lies:
                return Designed.lead(self, turn)
            return dict.fromkeys((m.member_id for m in turn.members), data)

    lies = []

    w = world("simple", offers=lambda slot: (Lying(SIMPLE),), check=False)
    before = [running(w, slot) for slot in range(3)]
    lies.append("from now on")
    w._tell(w.slots[0], RejoinRequested())
    w._tell(w.slots[1], RejoinRequested())
    w.run(w.now_ms + 5_000)
    assert [x for x in w.warnings if "unreadable assignment" in x]
    assert [running(w, slot) for slot in range(3)] == before  # refused, and nothing else happens
