"""The transition tables of a member and of a group at its coordinator.

**Rules.**

- An event of a member that has no row in the member's state is refused with ``LocalProtocolError``
  before anything changes. No event leads to a state that its row does not name.
- Answers of the coordinator and of the caller are allowed in every state, because they may be
  stale; a stale one changes nothing (KAFKA-9823).
- ``FENCED`` and ``DEAD`` are final: only callbacks still finish in them.
- A group enters no state that its table does not lead to.

**Strategy.** Rows are data. ``docs/machines.md`` is generated from them, and a test compares it.
:meth:`Member.receive` enforces the member's table, ``go`` of
:mod:`holdfast.core.machine.coordinator.group` the group's, which is at the end of the file.

States keep Kafka's names (``AbstractCoordinator.MemberState``); ``REVOKING`` lies between
``STABLE`` and the next join while resources are stopped, flushed and committed, and ``LEAVING``
while LeaveGroup is outstanding.

References: Kafka's AbstractCoordinator and ConsumerCoordinator; KIP-345, KIP-429.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class MemberState(StrEnum):
    """The state of a member in its group."""

    __hash__ = str.__hash__  # Enum's own hash is a Python function, called at each look-up

    UNJOINED = "UNJOINED"
    REVOKING = "REVOKING"
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    COMPLETING_REBALANCE = "COMPLETING_REBALANCE"
    STABLE = "STABLE"
    LEAVING = "LEAVING"
    FENCED = "FENCED"
    DEAD = "DEAD"


U, H, P, C, S, L, F, D = MemberState
ENDED = frozenset({F, D})

MEANINGS: Mapping[MemberState, str] = {
    U: "no request for a round is outstanding; owned resources are kept and claimed again",
    H: "resources are revoked: stop fetching, drain, callback, commit; heartbeats continue",
    P: "JoinGroup is outstanding; a cooperative member keeps processing its resources",
    C: "SyncGroup is outstanding, or the leader computes; processing continues",
    S: "a round is complete; heartbeats",
    L: "LeaveGroup is outstanding",
    F: "another process took this member's group.instance.id",
    D: "left, or refused for good",
}

_ANY_LIVE = (U, H, P, C, S, L)
_LOST = (U, P, L, F, D)  # where an error of the coordinator may lead


Table = Mapping[MemberState, Mapping[str, frozenset[MemberState]]]


def _rows(*entries: tuple[str, tuple[MemberState, ...], tuple[MemberState, ...]]) -> Table:
    table: dict[MemberState, dict[str, frozenset[MemberState]]] = {s: {} for s in MemberState}
    for event, states, leads_to in entries:
        for state in states:
            found = table[state].get(event, frozenset())
            table[state][event] = found | frozenset(leads_to) | {state}
    return table


TRANSITIONS: Table = _rows(
    # Time: a session that ran out, a poll that never came, a revocation's deadline, a timer.
    ("Tick", (U,), (H, P, L, D)),
    ("Tick", (H,), (U, P, L, D)),
    ("Tick", (P, C), (U, H, P, L, D)),  # the last two: it was announcing that it leaves
    ("Tick", (S,), (U, H, P)),
    ("Tick", (L, F, D), ()),
    # The application.
    ("Started", (U,), (P,)),
    ("SubscriptionChanged", (U, H, P, C, S), ()),
    ("SubscriptionChanged", (U, S), (H, P)),
    ("MetadataChanged", _ANY_LIVE, ()),
    ("MetadataChanged", (U, S), (H, P)),
    ("Polled", (*_ANY_LIVE, F, D), ()),
    ("Polled", (U, S), (H, P)),
    ("RejoinRequested", (U, H, P, C, S), ()),
    ("RejoinRequested", (U, S), (H, P)),
    ("LeaveRequested", (U, P, C, S), (H, P, L, D)),
    ("LeaveRequested", (P,), (U,)),  # a member without an id awaits it
    ("LeaveRequested", (H, L, F, D), ()),
    # The coordinator.
    ("CoordinatorFound", (*_ANY_LIVE, F, D), ()),
    ("CoordinatorFound", (U,), (H, P, L, D)),
    ("CoordinatorFound", (S,), (H, P)),
    ("JoinAnswered", (*_ANY_LIVE, F, D), ()),
    ("JoinAnswered", (P,), (C, H, *_LOST)),
    ("JoinAnswered", (H,), _LOST),  # a leaving member's last round has begun without it
    ("JoinAnswered", (U,), (L, D)),  # a leaving member has awaited its id
    ("SyncAnswered", (*_ANY_LIVE, F, D), ()),
    ("SyncAnswered", (C,), (S, H, *_LOST)),
    ("HeartbeatAnswered", (*_ANY_LIVE, F, D), ()),
    ("HeartbeatAnswered", (U, H, P, C, S), _LOST),
    ("HeartbeatAnswered", (S,), (H, P)),
    ("HeartbeatAnswered", (U,), (H, P)),
    ("LeaveAnswered", (*_ANY_LIVE, F, D), ()),
    ("LeaveAnswered", (L,), (D,)),
    ("RequestFailed", (*_ANY_LIVE, F, D), ()),
    ("RequestFailed", (P, C), (U, L, D)),
    ("RequestFailed", (U,), (D,)),  # a leaving member has awaited its id
    ("RequestFailed", (L,), (D,)),
    # The caller's reports of completed actions.
    ("AssignmentComputed", (*_ANY_LIVE, F, D), ()),
    ("AssignmentFailed", (*_ANY_LIVE, F, D), ()),
    ("AssignmentFailed", (C,), (U, L, D)),
    ("Drained", (*_ANY_LIVE, F, D), ()),
    ("Drained", (H,), (U, P, L, D)),
    ("ListenerReturned", (*_ANY_LIVE, F, D), ()),
    ("ListenerReturned", (H,), (U, P, L, D)),
    ("CommitAnswered", (*_ANY_LIVE, F, D), ()),
    ("CommitAnswered", (H,), _LOST),
    ("CommitRefused", (*_ANY_LIVE, F, D), ()),
    ("CommitRefused", (U, H, P, C, S), _LOST),
    ("CommitRefused", (S,), (H, P)),
    ("CommitRefused", (U,), (H, P)),
)
"""state -> event name -> states it may lead to (the state itself included)."""


class GroupState(StrEnum):
    """The state of a group at its coordinator."""

    __hash__ = str.__hash__

    EMPTY = "EMPTY"
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    COMPLETING_REBALANCE = "COMPLETING_REBALANCE"
    STABLE = "STABLE"


GROUP_MEANINGS: Mapping[GroupState, str] = {
    GroupState.EMPTY: "no members; offsets are kept",
    GroupState.PREPARING_REBALANCE: "joins are gathered until all are in or time is up",
    GroupState.COMPLETING_REBALANCE: "a generation has begun; the leader's assignments are awaited",
    GroupState.STABLE: "members have their assignments; heartbeats keep members",
}

GROUP_TRANSITIONS: Mapping[GroupState, Mapping[str, GroupState]] = {
    GroupState.EMPTY: {
        "first join": GroupState.PREPARING_REBALANCE,
        "a failover: members are read from the log": GroupState.STABLE,
    },
    GroupState.PREPARING_REBALANCE: {
        "all have joined, or the rebalance timeout": GroupState.COMPLETING_REBALANCE,
        "no members are left": GroupState.EMPTY,
    },
    GroupState.COMPLETING_REBALANCE: {
        "the leader's sync": GroupState.STABLE,
        "a join, a leave, a session or sync timeout": GroupState.PREPARING_REBALANCE,
        "a record above message.max.bytes": GroupState.PREPARING_REBALANCE,
    },
    GroupState.STABLE: {
        "a join with other bytes, a leave, a session timeout": GroupState.PREPARING_REBALANCE,
    },
}
"""state -> cause -> next state; the coordinator makes no other transition."""
