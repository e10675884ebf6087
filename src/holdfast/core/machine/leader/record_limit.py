"""The leader state cut to the group's record, which a broker refuses above its limit.

A coordinator writes one record a generation, with the subscription and the assignment of every
member. The record contains the shards of the leader state twice: as members brought them, and as
the leader sends them now.

**Rules.**

- Parts are left out in the order of :class:`holdfast.core.machine.leader.ring.LeftOut`, and no more
  of them than necessary, until the shards fit ``Policy.leader_state_limit_bytes``, and the records
  of this round and, if nothing happens, of the next fit ``Policy.record_limit_bytes``.
- A leader sees neither client ids nor client hosts nor the group's name. Their lengths are
  estimated, and the configured limit leaves room for longer ones.

**Strategy.** Sizes are sums of known sizes; only the shards are encoded to be measured.

References: :mod:`holdfast.core.wire.layouts.record_size`; ``message.max.bytes``.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.machine.leader.leader import PlannedAssignment, PlannedRound
from holdfast.core.machine.leader.ring import LeftOut, shards
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.record_size import estimate_group_bytes

GROUP_BYTES = 300
"""Bytes of the group's name, which a leader does not see, and of lengths that may grow."""

FRAME_BYTES = 30
"""Upper bound in bytes of an assignment's frame and message, without lists and shard."""

CHANGE_BYTES = 12
"""Bytes by which times and numbers in a subscription may grow until the next round."""


def fitting_shards(
    policy: Policy, members: Sequence[SubscribedMember], plan: PlannedRound, *, planned_bytes: int
) -> tuple[LeftOut, dict[str, bytes]]:
    """Return the shards that fit, by member id, and the parts left out for that.

    References: ``message.max.bytes``; Incremental Cooperative Rebalancing, "Leader exits".
    """
    ids = GROUP_BYTES + estimate_group_bytes((m.member_id, m.instance_id, 0) for m in members)
    now = ids + sum(m.size_bytes for m in members)
    later = ids + sum(_later_bytes(m, plan.assignments[m.member_id]) for m in members)
    shorter = full = planned_bytes
    for m in members:
        planned = plan.assignments[m.member_id]
        gained = FRAME_BYTES + _listed_bytes(planned.gained) + _listed_bytes(planned.revoked)
        kept = _listed_bytes(planned.kept)
        full += gained + kept
        shorter += gained + (kept if m.instance_id is not None else 0)
    if policy.omit_unchanged:
        full = shorter
    for left_out in LeftOut:
        given = {} if plan.leader_state is None else shards(plan.leader_state, left_out)
        size = sum(map(len, given.values()))
        assigned = full if left_out < LeftOut.UNCHANGED else shorter
        # Two records have to fit: that of this round, with the old shards as members brought them,
        # and that of the next one, in which the new shards are sent in both directions.
        record = max(now + assigned + size, later + assigned + 2 * size)
        if size <= policy.leader_state_limit_bytes and record <= policy.record_limit_bytes:
            return left_out, given
    return LeftOut.STATE, {}


def _later_bytes(member: SubscribedMember, planned: PlannedAssignment) -> int:
    """Return the size of the member's next subscription without its shard, if nothing happens."""
    said = member.subscription
    before = len(said.leader_state or b"") + _listed_bytes(said.owned)
    after = _listed_bytes(planned.kept) + _listed_bytes(planned.gained)
    return (
        max(0, member.size_bytes - before) + after + _listed_bytes(planned.revoked) + CHANGE_BYTES
    )


def _listed_bytes(partitions: TopicPartitions) -> int:
    """Return the bytes of a list of partitions in Kafka's messages."""
    return sum(6 + len(topic.encode()) + 4 * len(numbers) for topic, numbers in partitions)
