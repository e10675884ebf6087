"""What of the memory fits into the group's record, which a broker refuses above its limit.

A coordinator writes one record a generation, with the subscription and the assignment of every
member. The shares of the memory stand in it twice: as members brought them, and as the leader sends
them now.

**Rules.**

- Parts are left out in the order of :class:`holdfast.core.machine.leader.ring.LeftOut`, and no more
  of them than has to be, until the shares keep to ``Policy.memory_limit_bytes`` and the record of
  this round and that of the next one, if nothing happens, keep to ``Policy.record_limit_bytes``.
- A leader sees neither client ids nor hosts nor the group's name. They are estimated, and the
  configured limit leaves room for what is longer.

**Strategy.** Sizes are sums of what is known; only the shares are written to be measured.

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
"""The group's name, which a leader does not see, and what lengths in the record may grow by."""

FRAME_BYTES = 30
"""At most, of the frame of an assignment and of its message, without lists and without a share."""

CHANGE_BYTES = 12
"""By so much the times and numbers in a subscription may be longer in the next round."""


def fitting_shards(
    policy: Policy, members: Sequence[SubscribedMember], plan: PlannedRound, *, planned_bytes: int
) -> tuple[LeftOut, dict[str, bytes]]:
    """The shares that fit, by member id, and what had to be left out for that.

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
        record = max(now + assigned + size, later + assigned + 2 * size)
        if size <= policy.memory_limit_bytes and record <= policy.record_limit_bytes:
            return left_out, given
    return LeftOut.STATE, {}


def _later_bytes(member: SubscribedMember, planned: PlannedAssignment) -> int:
    """The member's next subscription without its share, if nothing happens."""
    said = member.subscription
    before = len(said.leader_state or b"") + _listed_bytes(said.owned)
    after = _listed_bytes(planned.kept) + _listed_bytes(planned.gained)
    return (
        max(0, member.size_bytes - before) + after + _listed_bytes(planned.revoked) + CHANGE_BYTES
    )


def _listed_bytes(partitions: TopicPartitions) -> int:
    """Bytes of a list of partitions in Kafka's messages."""
    return sum(6 + len(topic.encode()) + 4 * len(numbers) for topic, numbers in partitions)
