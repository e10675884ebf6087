"""The state of a group at its coordinator: a plain record, its transitions and its deadlines.

**Rules.**

- :class:`GroupData` holds facts. The first three fields are settings and the log. Every other field
  is lost when the coordinator fails, and :meth:`Coordinator.load` makes it anew from the log.
- ``state`` changes in :func:`go` and nowhere else, along ``GROUP_TRANSITIONS``.
- Members stand in the order of joining, and ties are broken by it.
- ``deadline_ms`` is never later than the first thing that ends.

**Strategy.** :func:`saved` and :func:`restore` copy a state out and in. :func:`shift` lets time
pass. The exhaustive search uses all three; a test compares them with the fields of the record.

References: KIP-62, KIP-345, KIP-394; Kafka's ClassicGroup.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.core.machine.coordinator.group_log import Durable
from holdfast.core.machine.coordinator.group_messages import CoordinatorOptions, GroupMember
from holdfast.core.machine.states import GROUP_TRANSITIONS, GroupState

NEVER_MS = 2**62
"""In place of a time: not before the next request."""

Saved: TypeAlias = tuple[Any, ...]
"""A copy of a state: hashable, and equal for equal states."""


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
    pending: dict[str, int] = field(default_factory=dict)  # ids given out, until when they count
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
    """The first time at which a session, a pending id or the round ends; NEVER_MS for none."""
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
    """The first end among the waits that one member's request may have begun.

    It is enough after a request that has changed neither state nor generation: then only this
    member's session, a pending id and the round can end earlier than before.
    """
    times = [NEVER_MS if group.round_ends_ms is None else group.round_ends_ms]
    times += group.pending.values()
    member = group.members.get(member_id)
    if member is not None and not member.waits:
        times.append(group.sessions[member_id])
    return min(times)


def saved(group: GroupData) -> Saved:
    """A copy of the state, without the settings and the log."""
    return (
        group.now_ms, group.deadline_ms, group.state, group.generation, group.protocol_type,
        group.protocol, group.leader_id, group.next_id, group.round_ends_ms,
        group.first_round_until_ms, group.grew, tuple(group.members.items()),
        tuple(group.sessions.items()), tuple(group.pending.items()),
    )  # fmt: skip


def restore(group: GroupData, values: Saved) -> None:
    """Give a group the state that :func:`saved` copied from it or from another one."""
    (
        group.now_ms, group.deadline_ms, group.state, group.generation, group.protocol_type,
        group.protocol, group.leader_id, group.next_id, group.round_ends_ms,
        group.first_round_until_ms, group.grew, members, sessions, pending,
    ) = values  # fmt: skip
    group.members, group.sessions, group.pending = dict(members), dict(sessions), dict(pending)


def shift(group: GroupData, by_ms: int) -> None:
    """Let ``by_ms`` pass: every time but ``now_ms`` lies so much earlier afterwards."""
    if group.deadline_ms < NEVER_MS:
        group.deadline_ms -= by_ms
    if group.round_ends_ms is not None:
        group.round_ends_ms -= by_ms
    if group.first_round_until_ms is not None:
        group.first_round_until_ms -= by_ms
    group.sessions = {member_id: ends_ms - by_ms for member_id, ends_ms in group.sessions.items()}
    group.pending = {member_id: ends_ms - by_ms for member_id, ends_ms in group.pending.items()}
