"""One form for machine states that behave alike, so that a search meets each of them once.

**Rules.** A machine's state is rewritten only where nothing it does later can tell the difference:

=====================================  ============================================================
what                                   why it makes no difference
=====================================  ============================================================
times                                  relative to now: the machines use differences only
a time that is past, or of something   a timer that is due is due; nobody asks any more
that is over
age of the leader's memory             counts only against the delays in it, so none beyond them
retries                                the pause is the same each time (``OPTIONS``)
words of a reason                      for people
the nonce after a round                the generation in the claim has changed, so the bytes differ
request numbers and tokens             free again when none is out and no message is under way
what was planned with                  partition counts do not change in these worlds
when a waiting member's session ends   a member that waits for an answer is alive
assignments of the round before        written anew before anybody can ask for them
numbers in member ids                  counted per client, so that who came first does not matter
an ended member                        hears nothing more
=====================================  ============================================================

**Strategy.** Functions on a machine whose clock stands at 0, called when it is put away. A search
without them (``Bound.reduce`` false) must find the same; a test compares the two.

References: Clarke, Grumberg and Peled, "Model Checking".
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from holdfast.machine.coordinator.coordinator import Coordinator, GroupState
from holdfast.machine.coordinator.group_table import GroupTable
from holdfast.machine.member.member import NEVER_MS, NO_REQUEST, Member
from holdfast.machine.member.options import MemberOptions
from holdfast.machine.member.record import MemberRecord
from holdfast.machine.states import ENDED, MemberState
from holdfast.wire.layouts.container import decode_memory

OPTIONS = MemberOptions(
    session_timeout_ms=30_000,
    heartbeat_interval_ms=10_000,
    again_pause_ms=1_000,
    rebalance_timeout_ms=60_000,
    max_poll_interval_ms=0,
    drain_timeout_ms=60_000,
    retry_backoff_ms=1_000,
    retry_backoff_max_ms=1_000,
)
"""Times of the members of a small world; retries pause for the same time."""

OLD_MS = 60_000  # longer than any delay: a memory of that age is simply old

_CONSTANT = {"assignors", "options", "mode", "holdings", "now_ms", "partitions", "_polled_ms"}
_TIMES = (
    "contact_ms", "memory_ms", "rejoin_at_ms", "_retry_ms", "_join_sent_ms", "_heartbeat_due_ms",
    "_heartbeat_sent_ms", "_deadline_ms",
)  # fmt: skip
MEMBER_SLOTS = tuple(s for s in MemberRecord.__slots__ if s not in _CONSTANT)
HOLDING_SLOTS = (
    "owned", "told", "started", "queue", "calling", "out_token", "next_token", "hand_over",
)  # fmt: skip
GROUP_SLOTS = tuple(
    s
    for s in GroupTable.__slots__
    if s not in {"options", "group_id", "durable", "members", "sessions", "pending", "now_ms"}
)
_GROUP_TIMES = ("_round_ends_ms", "_first_wait_until_ms", "_floor_ms")


def member_values(member: Member) -> tuple[Any, ...]:
    """A member's state as one hashable value."""
    values = tuple([getattr(member, s) for s in MEMBER_SLOTS])
    return values, tuple([getattr(member.holdings, s) for s in HOLDING_SLOTS])


def set_member(member: Member, saved: tuple[Any, ...]) -> None:
    """The way back."""
    values, holdings = saved
    for slot, value in zip(MEMBER_SLOTS, values, strict=True):
        setattr(member, slot, value)
    for slot, value in zip(HOLDING_SLOTS, holdings, strict=True):
        setattr(member.holdings, slot, value)


def group_values(group: Coordinator) -> tuple[Any, ...]:
    """A coordinator's state as one hashable value, the log left out."""
    values = tuple([getattr(group, s) for s in GROUP_SLOTS])
    tables = (group.members, group.sessions, group.pending)
    return values, tuple([tuple(table.items()) for table in tables])


def set_group(group: Coordinator, saved: tuple[Any, ...]) -> None:
    """The way back."""
    values, tables = saved
    for slot, value in zip(GROUP_SLOTS, values, strict=True):
        setattr(group, slot, value)
    group.members, group.sessions, group.pending = (dict(t) for t in tables)


def shift_member(member: Member, delta: int) -> None:
    """Let time pass: a deadline moves along, and one that is reached stays due."""
    for name in _TIMES:
        value = getattr(member, name)
        if value is not None and value < NEVER_MS:
            setattr(member, name, value - delta)
    if member._deadline_ms < NEVER_MS:
        member._deadline_ms = max(0, member._deadline_ms)
    job = member.holdings.hand_over
    if job is not None:
        retry_ms = None if job.retry_ms is None else job.retry_ms - delta
        member.holdings.hand_over = replace(
            job, deadline_ms=job.deadline_ms - delta, retry_ms=retry_ms
        )


def shift_group(group: Coordinator, delta: int) -> None:
    """Let time pass at the coordinator."""
    for name in _GROUP_TIMES:
        value = getattr(group, name)
        if value is not None and value < NEVER_MS:
            setattr(group, name, value - delta)
    group.sessions = {m: t - delta for m, t in group.sessions.items()}
    group.pending = {m: t - delta for m, t in group.pending.items()}


def settle_member(member: Member) -> None:
    """Rewrite what makes no difference in a member's state."""
    stop_old_clocks(member)
    member._retries = 0
    member._planned_for = None
    member._announced_rounds = min(member._announced_rounds, 5)
    if member.rejoin_reason is not None:
        member.rejoin_reason = "again"
    if member._heartbeat == NO_REQUEST:
        member._heartbeat_generation = -1
    if member.state is MemberState.STABLE:
        member.nonce = 0
    if member.memory is not None:
        member.memory_ms = max(member.memory_ms, -longest_delay_ms(member.memory))
    if member.state in ENDED:
        _forget(member)


def stop_old_clocks(member: Member) -> None:
    """Times that are past or over stand still; without this no search would end."""
    member._retry_ms = max(member._retry_ms, 0)
    member._heartbeat_due_ms = max(member._heartbeat_due_ms, 0)
    if member._heartbeat == NO_REQUEST:
        member._heartbeat_sent_ms = 0
    if member.state is not MemberState.PREPARING_REBALANCE:
        member._join_sent_ms = 0
    if member.generation < 0:
        member.contact_ms = 0
    if member.state in ENDED:
        member.contact_ms = member.memory_ms = member._heartbeat_due_ms = 0
        member._heartbeat_sent_ms = member._join_sent_ms = member._retry_ms = 0
    member.memory_ms = 0 if member.memory is None else max(member.memory_ms, -OLD_MS)


def _forget(member: Member) -> None:
    member.memory_ms = 0
    member.memory, member.given_up, member.previous, member.nonce = None, (), (), 0
    member.rejoin_at_ms = member.rejoin_reason = None
    member._find = member._join = member._sync = member._leave = member._plan_token = NO_REQUEST


def renumber(member: Member) -> None:
    """Request numbers and tokens begin again; only while no message of this member is about."""
    out = (
        member._join,
        member._sync,
        member._leave,
        member._find,
        member._plan_token,
        member._heartbeat,
    )
    member._next_request = max(0, *(r + 1 for r in out))
    holdings = member.holdings
    if holdings.calling is None and holdings.hand_over is None and not holdings.queue:
        holdings.next_token, holdings.out_token = 0, -1


@lru_cache(maxsize=100_000)
def longest_delay_ms(memory: bytes) -> int:
    """The longest time in a leader's memory: beyond it, its age makes no difference."""
    read = decode_memory(memory)
    return max([read.delay_ms, *(m.delay_ms for m in read.members)])


def settle_group(group: Coordinator) -> None:
    """Rewrite what makes no difference in a coordinator's state."""
    group._floor_ms = group._soonest_ms()
    for member in list(group.members.values()):
        if member.waits:
            group.sessions[member.member_id] = 0
        if group.state is not GroupState.STABLE and member.assignment:
            group.members[member.member_id] = member._replace(assignment=b"")
