"""One form for machine states that behave equally, so that a search meets each of them once.

**Rules.** A field of a record is rewritten only if no later step of the machine depends on what is
lost. The clock of the record is 0.

==============================  ===================================================================
rewritten                       why no later step depends on it
==============================  ===================================================================
all times, relative to now      machines compare times and never look at one alone
a timer that is due: 0          due since 1 s and due since 5 s are both due
time and generation of a        they are read only when its answer arrives
request that is not out
the age of the leader state:    it is only subtracted from delays in that state, down to 0: with a
at most its longest delay       delay of 20 s, ages of 20 s and 25 s give the same subscription
the number of retries: 0        pauses do not grow with it under ``OPTIONS``
``rebalances_announced``: at    from the fifth announced one in a row on, the pause before the
most 5                          join is the heartbeat interval (16 s would be longer than its 10 s)
the reason of a join: "again"   it is text for the broker's log
the nonce of a stable member:   it makes the bytes of two joins differ; from the next join on the
0                               generation of the claims makes them differ
request numbers and tokens:     an old number can only be met by an answer, and none is under way
counted from 0 again
``planned_with``: None          partition counts do not change in a small world
sizes of the record: None       they are text for people
``failing_since_ms``: None      under ``OPTIONS`` no member fails because of it
a waiting member's session: 0   it does not run while the member waits, and begins anew after that
assignments while a round runs  the leader's sync writes them before any member is sent one
the counter in member ids       each client has its own, so the order of first joins is not kept
a dead or fenced member         it acts on nothing any more
==============================  ===================================================================

Numbers of terms are rewritten as well, in a search without reductions too, or no search would end.
A member compares them for equality alone: the present term of everything owned becomes 0, the next
one 1, and every earlier one of a batch -1.

**Strategy.** Functions on the two records, called when a state is stored. A search without them
(``Bound.reduce`` false) must find the same; a test compares the two.

References: Clarke, Grumberg and Peled, "Model Checking".
"""

from __future__ import annotations

from functools import lru_cache

from tests.proof.rules.commits import DeliveredBatch

from holdfast.core.machine.coordinator.group import GroupData, soonest_ms
from holdfast.core.machine.member.holdings import Holdings
from holdfast.core.machine.member.member_data import NO_REQUEST, MemberData, MemberOptions
from holdfast.core.machine.states import ENDED, GroupState, MemberState
from holdfast.core.wire.layouts.state_shard import read_shard

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
"""Times of the members of a small world; every pause before a retry is equally long."""

OLD_MS = 60_000
"""Longer than any delay of a small world: a leader state does not grow older than this."""


def settle_member(member: MemberData) -> None:
    """Rewrite a member's state as the table says."""
    stop_old_clocks(member)
    member.retries = 0
    member.planned_with = member.record = member.failing_since_ms = None
    member.rebalances_announced = min(member.rebalances_announced, 5)
    if member.rejoin_reason is not None:
        member.rejoin_reason = "again"
    if member.heartbeat_request == NO_REQUEST:
        member.heartbeat_generation = -1
    if member.state is MemberState.STABLE:
        member.nonce = 0
    if member.leader_state is not None:
        member.state_received_ms = max(
            member.state_received_ms, -_longest_delay_ms(member.leader_state)
        )
    if member.state in ENDED:
        _forget(member)


def stop_old_clocks(member: MemberData) -> None:
    """Rewrite times that have passed; also done without ``Bound.reduce``.

    Otherwise a state would differ from the one before by its old times alone, and no search would
    end. ``polled_ms`` is never read: ``max_poll_interval_ms`` is 0.
    """
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
        member.contact_ms = member.state_received_ms = member.heartbeat_due_ms = 0
        member.heartbeat_sent_ms = member.join_sent_ms = member.retry_at_ms = 0
    member.state_received_ms = (
        0 if member.leader_state is None else max(member.state_received_ms, -OLD_MS)
    )


def _forget(member: MemberData) -> None:
    member.state_received_ms = 0
    member.leader_state, member.already_revoked, member.previous, member.nonce = None, (), (), 0
    member.rejoin_at_ms = member.rejoin_reason = None
    member.find_request = member.join_request = member.sync_request = NO_REQUEST
    member.leave_request = member.plan_token = NO_REQUEST


def renumber(member: MemberData) -> None:
    """Count request numbers and tokens from 0 again; no message of this member may be in flight."""
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
    if holdings.calling is None and holdings.revocation is None and not holdings.queue:
        holdings.next_token, holdings.out_token = 0, -1


def renumber_terms(
    holdings: Holdings, *kinds: frozenset[DeliveredBatch]
) -> tuple[frozenset[DeliveredBatch], ...]:
    """Rewrite the numbers of terms in holdings, and in batches of them."""
    terms, coming = holdings.terms, holdings.next_term
    holdings.terms = dict.fromkeys(terms, 0)
    holdings.next_term = int(coming > max(terms.values(), default=-1))

    def rewritten(batch: DeliveredBatch) -> DeliveredBatch:
        if batch.term == terms.get(batch.resource):
            return batch._replace(term=0)
        return batch._replace(term=1 if batch.term >= coming else -1)

    return tuple(frozenset(map(rewritten, batches)) for batches in kinds)


@lru_cache(maxsize=100_000)
def _longest_delay_ms(leader_state: bytes) -> int:
    """Return the longest time from which a shard's age is subtracted."""
    shard = read_shard(leader_state)
    if shard is None:
        return 0
    if shard.digest and not shard.waiting:
        return OLD_MS  # others carry the list
    return max([shard.pace_ms, *(member.delay_ms for member in shard.waiting)])


def settle_group(group: GroupData) -> None:
    """Rewrite a group's state as the table says."""
    group.deadline_ms = soonest_ms(group)
    for member in list(group.members.values()):
        if member.waits:
            group.sessions[member.member_id] = 0
        if group.state is not GroupState.STABLE and member.assignment:
            group.members[member.member_id] = member._replace(assignment=b"")
