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

from functools import lru_cache

from holdfast.machine.coordinator.group_data import GroupData, soonest_ms
from holdfast.machine.member.member_data import NO_REQUEST, MemberData
from holdfast.machine.member.options import MemberOptions
from holdfast.machine.states import ENDED, GroupState, MemberState
from holdfast.wire.layouts.memory import decode_memory

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


def settle_member(member: MemberData) -> None:
    """Rewrite what makes no difference in a member's state."""
    stop_old_clocks(member)
    member.retries = 0
    member.planned_with = None
    member.rounds_announced = min(member.rounds_announced, 5)
    if member.rejoin_reason is not None:
        member.rejoin_reason = "again"
    if member.heartbeat_request == NO_REQUEST:
        member.heartbeat_generation = -1
    if member.state is MemberState.STABLE:
        member.nonce = 0
    if member.memory is not None:
        member.memory_ms = max(member.memory_ms, -decode_memory(member.memory).longest_delay_ms)
    if member.state in ENDED:
        _forget(member)


def stop_old_clocks(member: MemberData) -> None:
    """Times that are past or over stand still; without this no search would end."""
    member.deadline_ms = max(member.deadline_ms, 0)
    member.polled_ms = 0
    member.retry_at_ms = max(member.retry_at_ms, 0)
    member.heartbeat_due_ms = max(member.heartbeat_due_ms, 0)
    if member.heartbeat_request == NO_REQUEST:
        member.heartbeat_sent_ms = 0
    if member.state is not MemberState.PREPARING_REBALANCE:
        member.join_sent_ms = 0
    if member.generation < 0:
        member.contact_ms = 0
    if member.state in ENDED:
        member.contact_ms = member.memory_ms = member.heartbeat_due_ms = 0
        member.heartbeat_sent_ms = member.join_sent_ms = member.retry_at_ms = 0
    member.memory_ms = 0 if member.memory is None else max(member.memory_ms, -OLD_MS)


def _forget(member: MemberData) -> None:
    member.memory_ms = 0
    member.memory, member.given_up, member.previous, member.nonce = None, (), (), 0
    member.rejoin_at_ms = member.rejoin_reason = None
    member.find_request = member.join_request = member.sync_request = NO_REQUEST
    member.leave_request = member.plan_token = NO_REQUEST


def renumber(member: MemberData) -> None:
    """Request numbers and tokens begin again; only while no message of this member is about."""
    out = (
        member.join_request,
        member.sync_request,
        member.leave_request,
        member.find_request,
        member.plan_token,
        member.heartbeat_request,
    )
    member.next_request = max(0, *(r + 1 for r in out))
    holdings = member.holdings
    if holdings.calling is None and holdings.hand_over is None and not holdings.queue:
        holdings.next_token, holdings.out_token = 0, -1


@lru_cache(maxsize=100_000)
def settle_group(group: GroupData) -> None:
    """Rewrite what makes no difference in a coordinator's state."""
    group.deadline_ms = soonest_ms(group)
    for member in list(group.members.values()):
        if member.waits:
            group.sessions[member.member_id] = 0
        if group.state is not GroupState.STABLE and member.assignment:
            group.members[member.member_id] = member._replace(assignment=b"")
