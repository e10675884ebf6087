"""Members of a round, written down in a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.machine.leader.subscriptions import SubscribedMember
from holdfast.wire.layouts.container import MemberSubscription


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
