"""Members of a round, each written in one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.assignor_protocol import Assignor, MemberView
from holdfast.core.machine.leader.ring import LeftOut, RoundState, shards
from holdfast.core.machine.leader.subscriptions import SubscribedMember, identity_of
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.container import MemberSubscription, encode_member_subscription
from holdfast.core.wire.layouts.state_shard import MemberEntry


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
) -> MemberEntry:
    """A departed member for which partitions of topic t wait."""
    return MemberEntry(
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
    waiting: tuple[MemberEntry, ...] = (),
    left_out: LeftOut = LeftOut.NOTHING,
) -> dict[str, bytes]:
    """Return the shards of a round in which members owned ``owned`` afterwards."""
    leader_state = RoundState(
        generation=generation,
        leader_id=leader_id,
        members=tuple(members),
        owned=owned,
        waiting=waiting,
    )
    return shards(leader_state, left_out)


def joined(members: Iterable[SubscribedMember]) -> tuple[JoinedMember, ...]:
    """Return members of a design as their leader receives them."""
    return tuple(
        JoinedMember(
            member_id=m.member_id,
            instance_id=m.instance_id,
            metadata=encode_member_subscription(m.subscription),
        )
        for m in members
    )


def joining_members(assignor: Assignor, **views: MemberView) -> tuple[JoinedMember, ...]:
    """Members of an assignor that have this to say."""
    return tuple(
        JoinedMember(member_id=name, metadata=assignor.subscribe(view))
        for name, view in views.items()
    )


def round_of(
    protocol_name: str,
    members: tuple[JoinedMember, ...],
    partitions: Mapping[str, int],
    generation: int,
    **fields: Any,
) -> ComputeAssignment:
    """What the member that comes first by its id is asked for as the leader."""
    first = min((m.member_id for m in members), default="")
    values = {"token": 0, "member_id": first, "waited_ms": 0} | fields
    return ComputeAssignment(
        generation=generation,
        protocol_name=protocol_name,
        members=members,
        partitions=tuple(partitions.items()),
        **values,
    )
