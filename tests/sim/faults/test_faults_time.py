"""Fault scenarios 46 to 64: topics, clocks, delays and deadlines."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial

import pytest
from tests.sim.faults.small_worlds import (
    COSTS,
    DEFERRED,
    DELAY_MS,
    FOUND_MS,
    SIMPLE,
    Function,
    accepted_commits,
    ends_well,
    loads,
    refuse_commits,
    revoking,
    running,
    runs,
    said,
    tape,
    until,
    world,
)

from holdfast.core.machine.actions import ComputeAssignment, SendLeave
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.coordinator.group import (
    Received,
    SendCommit,
    SendResponse,
)
from holdfast.core.machine.events import (
    AssignmentComputed,
    CommitAnswered,
    Polled,
    RejoinRequested,
)
from holdfast.core.machine.member.member_data import NO_REQUEST
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.states import ENDED
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment, encode_assignment
from holdfast.core.wire.layouts.container import (
    MemberAssignment,
    decode_member_assignment,
    encode_member_assignment,
)
from holdfast.core.wire.layouts.other_protocols import decode_design_assignment
from holdfast.errors import ConfigError, WireError
from holdfast.sim.process import Process
from holdfast.sim.world import World


def test_57_the_process_pauses_longer_than_its_session():
    w = world("holdfast-simple")
    gone = running(w, 2)
    w.stall(2, 15_000)
    w.run(w.now_ms + 14_900)
    assert runs(w, gone)  # others have them since long
    until(w, lambda: w.slots[2].stalled_until_ms <= w.now_ms)
    assert said(w, "m0002.0 drops")
    assert not running(w, 2)  # before it could take another batch
    ends_well(w)


def test_58_clocks_jump():
    def play(jumps):
        w = world()
        lost = running(w, 2)
        w.crash(2)
        for after_ms, by_ms in jumps:
            w.clock.at(w.now_ms + after_ms, w.jump_clock, by_ms)
        until(w, lambda: runs(w, lost))
        ends_well(w)
        return [line for line in w.trace if "clock" not in line]

    hour_ms = 3_600_000
    quiet = play([])
    assert play([(7_000, hour_ms), (12_000, -30 * hour_ms), (21_000, 5_000)]) == quiet
    w = world()  # and no two processes ever have the same clock
    clocks = [p.member.data.now_ms - w.now_ms for p in w.living()]
    assert len({round(c, -5) for c in clocks}) == 3


def test_59_all_timers_fire_together_one_round():
    w = world()
    w.crash(2)
    w.run(w.now_ms + FOUND_MS)
    rounds, due = w.rounds, [p.deadline_ms for p in w.living()]
    assert all(p.member.data.rejoin_at_ms for p in w.living())
    assert due
    w.run(w.now_ms + 2 * DELAY_MS)
    assert w.rounds == rounds + 1
    ends_well(w)


def test_60_unrelated_rounds_during_a_delay():
    took = []
    for extra in (0, 8):
        w = world()
        lost = running(w, 2)
        w.crash(2)
        w.run(w.now_ms + FOUND_MS)
        rounds = w.rounds
        for _ in range(extra):
            w.slots[0].notify(RejoinRequested())
            w.slots[1].notify(RejoinRequested())
            w.run(w.now_ms + 1_500)
        assert w.rounds >= rounds + extra
        assert not runs(w, lost)
        took.append(until(w, lambda w=w, g=lost: runs(w, g)) + extra * 1_500)
        ends_well(w)
    assert abs(took[0] - took[1]) < 1_500


def test_61_a_second_loss_during_a_delay():
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
    for early_ms in (900, 520, 200, 0, -200):
        w = world()
        w.crash(2)
        until(w, lambda w=w: any(p.member.data.rejoin_at_ms for p in w.living()))
        w.run(w.now_ms + DELAY_MS - early_ms)
        w.start(2)
        ends_well(w)  # either outcome, and each partition once


def test_63_delay_0_is_now():
    w = world(policy=replace(DEFERRED, delay_ms=0))
    gone = running(w, 2)
    w.crash(2)
    assert until(w, lambda: runs(w, gone)) <= FOUND_MS
    assert not said(w, "delay")
    ends_well(w)


def test_46_a_topic_grows_during_a_delay():
    w = world()
    lost = running(w, 2)
    w.crash(2)
    w.run(w.now_ms + FOUND_MS)
    w.resize("a", 8)
    until(w, lambda: runs(w, [("a", 6), ("a", 7)]), 3_000)
    assert not any(w.ownership_log.runner(r) for r in lost)
    ends_well(w)


@pytest.mark.parametrize("policy", ["holdfast-simple", "deferred"])
def test_a_topic_grows_while_the_leader_plans(policy):
    """The plan does not know the new partitions, so the leader asks for one more round."""
    w = world(policy, 1, costs=replace(COSTS, plan_ms=2_000), settle=False)
    until(w, lambda: any(p.member.data.plan_token != NO_REQUEST for p in w.living()))
    w.resize("a", 8)
    assert not w.ownership_log.runner(("a", 7))
    ends_well(w)


def test_48_a_topic_is_recreated_smaller():
    w = world("holdfast-simple")
    led_rounds = tape(w).led_rounds
    w.resize("a", 2)
    w.start(3)
    w.run(w.now_ms + 10_000)
    assert led_rounds[-1].partitions == {"a": 2}
    assert sorted(r for p in w.living() for r in p.running) == [("a", 0), ("a", 1)]
    w.resize("a", 6)
    ends_well(w)


def test_52_the_revoke_callback_throws() -> None:
    w = world("holdfast-simple", 2)
    for p in w.living():
        p.listener_faults = 1.0
    process, revoked = revoking(w)
    process.listener_faults = 1.0
    commits = accepted_commits(w, process.client)
    until(w, lambda: runs(w, revoked) and not revoked & process.running)
    assert True, "it counts as revoked all the same"
    committed = any(r in revoked for c in commits for r, _ in c.offsets)
    assert not committed, "nothing is committed after a callback that raised"
    assert [x for x in w.warnings if "fault" in x], "the error is reported"
    for p in w.living():
        p.listener_faults = 0.0
    ends_well(w)


def test_53_revoking_takes_longer_than_allowed() -> None:
    w = world("holdfast-simple", 2)
    for p in w.living():
        p.revoke_extra_ms = 60_000
    process, revoked = revoking(w)
    processed = {r: process.positions[r][1] for r in revoked}
    commits = accepted_commits(w, process.client)
    client = process.client
    waited_ms = until(w, lambda: said(w, f"{client} drops"))
    assert waited_ms <= COSTS.rebalance_ms, "it is dropped in time for the round"
    until(w, lambda: runs(w, revoked))
    committed = {r: at for c in commits for r, at in c.offsets}
    assert committed == processed, "and committed without the records in flight"
    process.revoke_extra_ms = 0
    ends_well(w)

    w = world("holdfast-simple", 2)  # and a process that stalls in the middle of it is removed
    process, revoked = revoking(w)
    w.stall(process.slot, 30_000)
    old, generation = process.member.member_id, process.member.generation
    group = w.coordinator
    until(w, lambda: old not in group.members)
    until(w, lambda: runs(w, revoked) and not revoked & process.running, 60_000)
    ends_well(w)
    assert said(w, f"{process.client} drops"), (
        "a process that stalls meanwhile is removed and drops"
    )
    late = replace(_late_commit(process, revoked), generation=generation, member_id=old)
    (answer,) = group.step(w.now_ms, Received(process.client, late))
    fenced = CommitAnswered(0, ErrorCode.UNKNOWN_MEMBER_ID)
    refused = isinstance(answer, SendResponse) and answer.response == fenced
    assert refused, "a commit of it is refused"


def _late_commit(process: Process, resources: frozenset[Resource]) -> SendCommit:
    """A commit of the generation before, from a member that is late."""
    return SendCommit(
        request=0,
        generation=process.member.generation - 1,
        member_id=process.member.member_id,
        instance_id=None,
        offsets=tuple((r, 10**6) for r in sorted(resources)),
    )


def test_54_a_commit_fails_retriably_while_revoking() -> None:
    for times in (2, 10**6):
        w = world("holdfast-simple", 2)
        process, revoked = revoking(w)
        refused = refuse_commits(w, process.slot, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times)
        _check_revoked(w, process, revoked)
        limit = process.member.data.options.commit_retries
        assert len(refused) == min(times, limit), f"the commit is tried {len(refused)} times"
        ends_well(w)


def _check_revoked(w: World, process: Process, revoked: frozenset[tuple[str, int]]) -> None:
    until(w, lambda: runs(w, revoked) and not revoked & process.running, 20_000)


def test_55_a_commit_after_the_revocation() -> None:
    w = world("holdfast-simple", 2)
    process, revoked = revoking(w)
    _check_revoked(w, process, revoked)
    member, group = process.member, w.coordinator
    terms = {r: w.terms[process.client, r] for r in member.owned}
    assert member.terms == terms, "owned resources may be committed, and no revoked ones"
    (answer,) = group.step(w.now_ms, Received(process.client, _late_commit(process, revoked)))
    refused = isinstance(answer, SendResponse) and answer.response == CommitAnswered(
        0, ErrorCode.ILLEGAL_GENERATION
    )
    assert refused, "the coordinator refuses a commit of the old generation"
    ends_well(w)


def test_56_the_poll_loop_stalls() -> None:
    w = world("holdfast-simple", settle=False, max_poll_interval_ms=5_000)
    kept, silent = tape(w), set[int]()
    _poll_all(w, 500, silent)
    w.run(w.now_ms + 10_000)
    gone, client = running(w, 2), w.slots[2].client
    silent.add(2)
    until(w, lambda: kept.sent(SendLeave, client), 6_000)
    assert said(w, f"{client} drops"), (
        "a process that stops polling leaves the group and drops its work"
    )
    assert said(w, f"{client} lost"), "as lost"
    until(w, lambda: runs(w, gone), 4_000)
    assert loads(w) == [0, 3, 3], "others take over"
    silent.clear()
    _poll_all(w, 500, silent)
    ends_well(w)


def _poll_all(w: World, every_ms: int, silent: Container[int]) -> None:
    """From now on every process tells its member that it polls, except those of silent slots."""

    def poll(process: Process) -> None:
        if process.alive and process.member.state not in ENDED:
            if process.slot not in silent:
                process.notify(Polled())
            w.clock.at(w.now_ms + every_ms, poll, process)

    for process in w.living():
        poll(process)


def _refused(what: Callable[[], object]) -> bool:
    try:
        what()
    except (WireError, ConfigError):
        return True
    return False


def _tell_all(data: bytes, plan: Function) -> Function:
    """The leader sends everybody the same bytes."""

    def plan_and_change(process: Process, request: ComputeAssignment) -> AssignmentComputed:
        done: AssignmentComputed = plan(process, request)
        return replace(done, assignments=tuple((m, data) for m, _ in done.assignments))

    return plan_and_change


def test_64_a_delay_from_the_wire_that_cannot_be() -> None:
    for delay_ms in (2**31, -1):
        refused = _refused(partial(encode_member_assignment, MemberAssignment(delay_ms=delay_ms)))
        assert refused, f"a delay of {delay_ms} ms cannot be written"
    assert _refused(lambda: Policy(delay_ms=2**31)), "nor configured"
    above = b"\xff\xff\xff\xff"
    right = encode_member_assignment(MemberAssignment(delay_ms=2**31 - 1))
    message = decode_assignment(right)
    text = (message.user_data or b"").replace(above + b"\x07", above + b"\x0f")
    wrong = encode_assignment(replace(message, user_data=text))
    read = decode_member_assignment(right)
    assert read.delay_ms == 2**31 - 1, "a delay that can be is read"
    refused = _refused(partial(decode_member_assignment, wrong))
    assert refused, "one that cannot be is refused"
    own = bytes.fromhex("0002 00000000 00000000 fffffffb")
    assert _refused(lambda: decode_design_assignment(own)), "in the document's messages as well"
    w = world("holdfast-simple", policy=SIMPLE)
    before = [running(w, slot) for slot in range(3)]
    w.interceptors.plan.put(partial(_tell_all, wrong))
    for slot in (0, 1):
        w.slots[slot].notify(RejoinRequested())
    w.run(w.now_ms + 5_000)
    warned = [x for x in w.warnings if "unreadable assignment" in x]
    assert warned, "members that receive such a delay report it"
    assert [running(w, slot) for slot in range(3)] == before, "and keep processing their resources"
