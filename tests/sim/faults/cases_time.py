"""Fault scenarios 52 to 64 as fault cases: failing or stalled applications, impossible delays.

**Rules.** A name is its number; its docstring is its title.

**Strategy.** Small worlds whose applications misbehave; hooks on commits and on bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial

from tests.sim.faults.fault_case import (
    COSTS,
    SIMPLE,
    FaultCase,
    Function,
    accepted_commits,
    loads,
    refuse_commits,
    revoking,
    running,
    runs,
    said,
    tape,
    until,
)

from holdfast.core.machine.actions import ComputeAssignment, SendLeave
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.coordinator.group_messages import (
    Answer,
    CommitDone,
    Received,
    SendCommit,
)
from holdfast.core.machine.events import AssignmentComputed, Polled, RejoinRequested
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.states import ENDED
from holdfast.core.model.designs import Design
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment, encode_assignment
from holdfast.core.wire.layouts.container import (
    MemberAssignment,
    decode_member_assignment,
    encode_member_assignment,
)
from holdfast.core.wire.layouts.incremental import DesignAssignment, decode_design_assignment
from holdfast.core.wire.layouts.incremental import encode_design_assignment as encode_design
from holdfast.errors import ConfigError, WireError
from holdfast.sim.world.process import Process
from holdfast.sim.world.world import World


def case_52(s: FaultCase) -> None:
    """The revoke callback throws."""
    w = s.world("holdfast-simple", 2)
    for p in w.living():
        p.listener_faults = 1.0
    process, revoked = revoking(w)
    process.listener_faults = 1.0
    commits = accepted_commits(w, process.client)
    until(w, lambda: runs(w, revoked) and not revoked & process.running)
    s.expect(True, "it counts as revoked all the same")
    committed = any(r in revoked for c in commits for r, _ in c.offsets)
    s.expect(not committed, "nothing is committed after a callback that raised")
    s.expect([x for x in w.warnings if "fault" in x], "the error is reported")
    for p in w.living():
        p.listener_faults = 0.0
    s.ends_well(w)


def case_53(s: FaultCase) -> None:
    """Revoking takes longer than allowed."""
    w = s.world("holdfast-simple", 2)
    for p in w.living():
        p.revoke_extra_ms = 60_000
    process, revoked = revoking(w)
    processed = {r: process.positions[r][1] for r in revoked}
    commits = accepted_commits(w, process.client)
    client = process.client
    waited_ms = until(w, lambda: said(w, f"{client} drops"))
    s.expect(waited_ms <= COSTS.rebalance_ms, "it is dropped in time for the round")
    until(w, lambda: runs(w, revoked))
    committed = {r: at for c in commits for r, at in c.offsets}
    s.expect(committed == processed, "and committed without the records in flight")
    process.revoke_extra_ms = 0
    s.ends_well(w)

    w = s.world("holdfast-simple", 2)  # and a process that stalls in the middle of it is removed
    process, revoked = revoking(w)
    w.stall(process.slot, 30_000)
    old, generation = process.member.member_id, process.member.generation
    group = w.coordinator
    until(w, lambda: old not in group.members)
    until(w, lambda: runs(w, revoked) and not revoked & process.running, 60_000)
    s.ends_well(w)
    s.expect(
        said(w, f"{process.client} drops"), "a process that stalls meanwhile is removed and drops"
    )
    late = replace(_late_commit(process, revoked), generation=generation, member_id=old)
    (answer,) = group.step(w.now_ms, Received(process.client, late))
    fenced = CommitDone(0, ErrorCode.UNKNOWN_MEMBER_ID)
    refused = isinstance(answer, Answer) and answer.response == fenced
    s.expect(refused, "a commit of it is refused")


def _late_commit(process: Process, resources: frozenset[Resource]) -> SendCommit:
    """A commit of the generation before, from a member that is late."""
    return SendCommit(
        request=0,
        generation=process.member.generation - 1,
        member_id=process.member.member_id,
        instance_id=None,
        offsets=tuple((r, 10**6) for r in sorted(resources)),
    )


def case_54(s: FaultCase) -> None:
    """A commit fails retriably while revoking."""
    for times in (2, 10**6):
        w = s.world("holdfast-simple", 2)
        process, revoked = revoking(w)
        refused = refuse_commits(w, process.slot, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times)
        _check_revoked(s, process, revoked)
        limit = process.member.data.options.commit_retries
        s.expect(len(refused) == min(times, limit), f"the commit is tried {len(refused)} times")
        s.ends_well(w)


def _check_revoked(s: FaultCase, process: Process, revoked: frozenset[tuple[str, int]]) -> None:
    w = s.worlds[-1]
    until(w, lambda: runs(w, revoked) and not revoked & process.running, 20_000)


def case_55(s: FaultCase) -> None:
    """A commit after the revocation."""
    w = s.world("holdfast-simple", 2)
    process, revoked = revoking(w)
    _check_revoked(s, process, revoked)
    member, group = process.member, w.coordinator
    s.expect(
        not any(member.may_commit({r: term}) for r in revoked for term in range(20)),
        "revoked resources may not be committed",
    )
    s.expect(
        member.may_commit({r: w.terms[process.client, r] for r in member.owned}),
        "owned ones may",
    )
    (answer,) = group.step(w.now_ms, Received(process.client, _late_commit(process, revoked)))
    refused = isinstance(answer, Answer) and answer.response == CommitDone(
        0, ErrorCode.ILLEGAL_GENERATION
    )
    s.expect(refused, "the coordinator refuses a commit of the old generation")
    s.ends_well(w)


def case_56(s: FaultCase) -> None:
    """The poll loop stalls."""
    w = s.world("holdfast-simple", settle=False, max_poll_interval_ms=5_000)
    kept, silent = tape(w), set[int]()
    _poll_all(w, 500, silent)
    w.run(w.now_ms + 10_000)
    gone, client = running(w, 2), w.slots[2].client
    silent.add(2)
    until(w, lambda: kept.sent(SendLeave, client), 6_000)
    s.expect(
        said(w, f"{client} drops"),
        "a process that stops polling leaves the group and drops its work",
    )
    s.expect(said(w, f"{client} lost"), "as lost")
    until(w, lambda: runs(w, gone), 4_000)
    s.expect(loads(w) == [0, 3, 3], "others take over")
    silent.clear()
    _poll_all(w, 500, silent)
    s.ends_well(w)


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


def case_64(s: FaultCase) -> None:
    """A delay from the wire that cannot be."""
    for delay_ms in (2**31, -1):
        refused = _refused(partial(encode_member_assignment, MemberAssignment(delay_ms=delay_ms)))
        s.expect(refused, f"a delay of {delay_ms} ms cannot be written")
    s.expect(_refused(lambda: Policy(delay_ms=2**31)), "nor configured")
    above = b"\xff\xff\xff\xff"
    right = encode_member_assignment(MemberAssignment(delay_ms=2**31 - 1))
    message = decode_assignment(right)
    text = (message.user_data or b"").replace(above + b"\x07", above + b"\x0f")
    wrong = encode_assignment(replace(message, user_data=text))
    read = decode_member_assignment(right)
    s.expect(read.delay_ms == 2**31 - 1, "a delay that can be is read")
    refused = _refused(partial(decode_member_assignment, wrong))
    s.expect(refused, "one that cannot be is refused")
    value = DesignAssignment(design=Design.DEFERRED, assigned=(), revoked=(), timeout_ms=5)
    own = encode_design(value)[:-4] + b"\xff\xff\xff\xfb"
    s.expect(_refused(lambda: decode_design_assignment(own)), "in the document's messages as well")
    w = s.world("holdfast-simple", policy=SIMPLE)
    before = [running(w, slot) for slot in range(3)]
    w.interceptors.plan.put(partial(_tell_all, wrong))
    for slot in (0, 1):
        w.slots[slot].notify(RejoinRequested())
    w.run(w.now_ms + 5_000)
    warned = [x for x in w.warnings if "unreadable assignment" in x]
    s.expect(warned, "members that receive such a delay report it")
    s.expect(
        [running(w, slot) for slot in range(3)] == before, "and keep processing their resources"
    )
