"""Members of a round, written down in a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.core.machine.leader.ring import LeftOut, RoundMemory, identity_of, shares
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.container import MemberSubscription
from holdfast.core.wire.layouts.memory import RememberedMember


def subscribed(
    member_id: str, *, instance_id: str | None = None, **fields: Any
) -> SubscribedMember:
    """A member with these fields of its subscription."""
    return SubscribedMember(
        member_id=member_id, instance_id=instance_id, subscription=MemberSubscription(**fields)
    )


def reports(member: SubscribedMember, **fields: Any) -> SubscribedMember:
    """The same member with other fields of its subscription."""
    return replace(member, subscription=replace(member.subscription, **fields))


def awaited(
    member_id: str, *owned: int, delay_ms: int = 30_000, instance_id: str | None = None
) -> RememberedMember:
    """A departed member for which partitions of topic t wait."""
    return RememberedMember(
        identity=identity_of(subscribed(member_id, topics=(), instance_id=instance_id)),
        static=instance_id is not None,
        delay_ms=delay_ms,
        owned=(("t", owned),),
    )


def carried(
    members: Iterable[SubscribedMember],
    owned: Mapping[str, TopicPartitions],
    *,
    generation: int = 1,
    leader_id: str = "",
    waiting: tuple[RememberedMember, ...] = (),
    left_out: LeftOut = LeftOut.NOTHING,
) -> dict[str, bytes]:
    """The shares of a round of these members, in which they owned this afterwards."""
    memory = RoundMemory(
        generation=generation,
        leader_id=leader_id,
        members=tuple(members),
        owned=owned,
        waiting=waiting,
    )
    return shares(memory, left_out)
