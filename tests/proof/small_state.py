"""The states of a small world: numbered parts, and facts about the parts.

**Rules.** Each part of a state (a member, the group, a message, the remaining faults) is a value
that an :class:`Interner` numbers. A :class:`State` consists of such numbers. Facts that a search
often needs about a part are computed once: :class:`NodeFacts`, :class:`GroupFacts`.

**Strategy.** Plain values. :mod:`tests.proof.small_world` makes them and computes steps.

References: Clarke, Grumberg and Peled, "Model Checking".
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from tests.proof.rules.commits import DeliveredBatch

from holdfast.core.machine import actions, events
from holdfast.core.machine.coordinator.group import GroupMember, SendCommit
from holdfast.core.machine.states import GroupState
from holdfast.core.model.partitions import Resource

KIND_OF: dict[type, str] = {
    actions.SendJoin: "join",
    events.JoinAnswered: "join",
    actions.SendSync: "sync",
    events.SyncAnswered: "sync",
    actions.SendHeartbeat: "heartbeat",
    events.HeartbeatAnswered: "heartbeat",
    actions.SendLeave: "leave",
    events.LeaveAnswered: "leave",
    SendCommit: "commit",
    events.CommitAnswered: "commit",
}
"""Request and response -> kind of request."""

NOT_STARTED, GONE = 0, 1
"""Numbers of the two nodes without a member."""

T = TypeVar("T", bound=Hashable)


class Node(NamedTuple):
    """One process: its member's saved state, what it runs, the token of a drain it owes or -1.

    ``batches`` are of running resources; ``late`` ones are still in flight after their resource was
    drained or dropped, and stay so: the application may commit them at any moment.
    """

    saved: Any
    running: frozenset[Resource] = frozenset()
    pending_drain: int = -1
    batches: frozenset[DeliveredBatch] = frozenset()
    late: frozenset[DeliveredBatch] = frozenset()


class InFlight(NamedTuple):
    """A message in flight; a held one arrives only after time has moved."""

    member: int
    to_group: bool
    body: Any
    held: bool = False


class Left(NamedTuple):
    """The remaining faults, and how many members may still join."""

    crashes: int = 0
    leaves: int = 0
    joins: int = 0
    forgets: int = 0  # how many members may still lose their shard of the leader state
    subscribes: int = 0  # how many members may still subscribe to a second topic
    faults: tuple[str, ...] = ()  # kinds of request of which one message may be lost or late


class State(NamedTuple):
    """A whole world, as numbers of its parts; messages are sorted."""

    nodes: tuple[int, ...]
    group: int
    messages: tuple[int, ...]
    left: int


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a step of a member: its node afterwards, its messages and starts."""

    node: int
    sends: tuple[int, ...] = ()
    starts: tuple[Resource, ...] = ()
    beats: tuple[actions.SendHeartbeat, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about a node, computed once."""

    deadline_ms: int
    pending_drain: int
    leads: bool
    member_id: str
    topics: tuple[str, ...]
    leaving: bool
    running: frozenset[Resource]
    quiescent: bool  # stable, and nothing is about to change
    ended: bool
    awaits: frozenset[int]  # requests that still have no answer
    commits: int  # the token of a revocation whose commit may be answered, or -1

    def waits_for(self, body: Any) -> bool:
        """Return whether an answer is awaited; no other one can change anything, now or later."""
        if isinstance(body, events.CommitAnswered):
            return bool(body.request == self.commits)
        return body.request in self.awaits


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Facts about a coordinator's state, computed once."""

    state: GroupState
    generation: int
    deadline_ms: int
    leader_id: str | None
    members: dict[str, GroupMember]
    sessions: dict[str, int]
    pending: bool
    blocked: frozenset[int]  # processes that wait there for an answer


class Interner(Generic[T]):
    """Numbers equal values equally, and returns values for numbers."""

    def __init__(self, *first: T) -> None:
        self.values: list[T] = list(first)
        self.ids: dict[T, int] = {value: i for i, value in enumerate(first)}

    def number(self, value: T) -> int:
        """Return the value's number; a new value gets a new number."""
        found = self.ids.get(value)
        if found is None:
            found = self.ids[value] = len(self.values)
            self.values.append(value)
        return found


def without(state: State, message: int) -> State:
    """Return a state without one message."""
    at = state.messages.index(message)
    return state._replace(messages=state.messages[:at] + state.messages[at + 1 :])
