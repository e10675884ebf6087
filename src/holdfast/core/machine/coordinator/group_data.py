"""The state of a group at its coordinator: a plain record, its transitions and its deadlines.

**Rules.**

- :class:`GroupData` holds facts. The first three fields are settings and the log. Every other field
  is lost when the coordinator fails, and :meth:`Coordinator.load` restores it from the log.
- ``state`` changes in :func:`go` and nowhere else, along ``GROUP_TRANSITIONS``.
- Members are in the order of joining, and ties are broken by it.
- ``deadline_ms`` is never later than the first thing that ends.

References: KIP-62, KIP-345, KIP-394; Kafka's ClassicGroup.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.machine.coordinator.group_log import Durable
from holdfast.core.machine.coordinator.group_messages import CoordinatorOptions, GroupMember
from holdfast.core.machine.states import GROUP_TRANSITIONS, GroupState

NEVER_MS = 2**62
"""Value instead of a time: not before the next request."""


@dataclass(slots=True, kw_only=True)
class GroupData:
    """The state of a group at its coordinator."""

    group_id: str
    options: CoordinatorOptions  # the broker's settings
    durable: Durable = field(default_factory=Durable)  # the group's part of the offsets topic

    now_ms: int
    deadline_ms: int = NEVER_MS  # nothing ends before this

    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)  # in the order of joining
    sessions: dict[str, int] = field(default_factory=dict)  # member id -> when its session ends
    pending: dict[str, int] = field(default_factory=dict)  # assigned ids, and until when they count
    next_id: int = 0

    # The round that runs
    round_ends_ms: int | None = None
    first_round_until_ms: int | None = None  # a group's first round only ends by time
    grew: bool = False  # whether a member has joined since that round was last extended


def go(group: GroupData, to: GroupState) -> None:
    """Enter a state; the table must have a row that leads to it."""
    assert to in GROUP_TRANSITIONS[group.state].values(), (group.state, to)
    group.state = to


def soonest_ms(group: GroupData) -> int:
    """Return the time when the first session, pending id or round ends; NEVER_MS for none."""
    sessions = group.sessions
    times = [
        sessions[member_id]
        for member_id, m in group.members.items()
        if m.joining is None and m.syncing is None
    ]
    times += group.pending.values()
    if group.round_ends_ms is not None:
        times.append(group.round_ends_ms)
    return min(times, default=NEVER_MS)


def begun_ms(group: GroupData, member_id: str) -> int:
    """Return when the first wait ends that one member's request may have begun.

    It is enough after a request that has changed neither state nor generation: then only this
    member's session, a pending id and the round can end earlier than before.
    """
    times = [NEVER_MS if group.round_ends_ms is None else group.round_ends_ms]
    times += group.pending.values()
    member = group.members.get(member_id)
    if member is not None and not member.waits:
        times.append(group.sessions[member_id])
    return min(times)
