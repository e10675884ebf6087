"""A process: one member machine, the state of the application around it, and its timer.

**Rules.**

- The application has one thread: it finishes a batch before it drains or runs a callback. State is
  rebuilt one resource after another, beside the batches, or in the callback (``rebuild_blocks``):
  then the process does nothing else until all state is rebuilt.
- The member's actions are carried out in order, by the action handlers that the caller passes in.
- Each process has a monotonic clock with its own origin, so a time of one process has no meaning in
  another process.
- While a process stalls, it does nothing and events wait. Afterwards it reads its clock first.

**Strategy.** :meth:`Process.notify` is the only entry point: it steps the member, carries out the
member's actions, and sets the timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.machine.actions import Action
from holdfast.core.machine.events import (
    Event,
    MetadataChanged,
    RequestFailed,
    SubscriptionChanged,
)
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.member.member_data import MemberData
from holdfast.core.machine.states import ENDED, MemberState
from holdfast.core.model.partitions import Resource
from holdfast.sim.clock import Clock, OwnershipLog, Trace

RECORD_MS = 10  # a member processes one record of each partition it owns in that time

ActionHandlers = Mapping[type, Callable[["Process", Any], None]]
"""Type of an action -> the function that carries it out."""


@dataclass(slots=True, eq=False, kw_only=True)
class Process:
    """One incarnation of a slot (a machine that is restarted keeps its slot)."""

    clock: Clock
    ownership_log: OwnershipLog
    trace: Trace
    action_handlers: ActionHandlers
    slot: int
    client: str  # name of this incarnation, unique in the run
    member: Member
    poll_ms: int
    phase_ms: int  # when its polls fall within their period
    # Its monotonic clock at the world's time 0: no two processes have the same.
    clock_ms: int
    alive: bool = True
    exiting: bool = False
    running: set[Resource] = field(default_factory=set)
    suspended: set[Resource] = field(default_factory=set)  # running, but stopped until a round ends
    has_revoked: bool = False  # since the last round
    state: set[Resource] = field(default_factory=set)  # with their state rebuilt and kept
    rebuilt_ms: int = 0
    busy_until_ms: int = 0  # it rebuilds in a callback, and there is no batch before that ends
    stalled_until_ms: int = 0  # when its last stall ends
    timer_ms: int = -1
    outstanding: set[int] = field(default_factory=set)  # requests without an answer
    inbox: list[Event] = field(default_factory=list)
    listener_faults: float = 0.0
    revoke_extra_ms: int = 0
    plan_fails: int = 0
    positions: dict[Resource, tuple[int, int]] = field(default_factory=dict)
    failed: str = ""

    def boundary(self) -> int:
        """Return when the application is next between two batches; now if it processes nothing."""
        free_ms = max(self.clock.now_ms, self.busy_until_ms)
        if not self.running:
            return free_ms
        return free_ms + (self.phase_ms - free_ms) % self.poll_ms

    # Events

    def notify(self, event: Event) -> None:
        """Deliver an event to the member, carry out its actions, set its timer."""
        if not self.alive:
            return
        now_ms, member = self.clock.now_ms, self.member
        if self.stalled_until_ms > now_ms:
            self.inbox.append(event)
            return
        if member.state in ENDED and isinstance(event, MetadataChanged | SubscriptionChanged):
            return
        self._act(member.step(self.clock_ms + now_ms, event))
        self._arm()

    def fail_request(self, request: int) -> None:
        """Abandon a request, unless it was answered."""
        if request in self.outstanding:
            self.outstanding.discard(request)
            self.notify(RequestFailed(request))

    def _act(self, actions: tuple[Action, ...]) -> None:
        action_handlers, member = self.action_handlers, self.member
        for action in actions:
            if not self.alive:
                return
            action_handlers[type(action)](self, action)
        if member.state in ENDED and self.alive and self._quiet():
            self.end()
            self.trace.note(f"{self.client} is gone ({member.state})")

    def _quiet(self) -> bool:
        holdings = self.member.holdings
        return holdings.calling is None and not holdings.queue

    # Time

    @property
    def deadline_ms(self) -> int | None:
        """The member's deadline in the world's time."""
        deadline_ms = self.member.deadline_ms
        return None if deadline_ms is None else deadline_ms - self.clock_ms

    def _step_time(self) -> None:
        self._act(self.member.step(self.clock_ms + self.clock.now_ms))

    def _arm(self) -> None:
        if not self.alive:
            return
        deadline_ms = self.deadline_ms
        if deadline_ms is None:
            return
        if self.timer_ms < 0 or deadline_ms < self.timer_ms:
            self.timer_ms = deadline_ms
            self.clock.at(deadline_ms, self._timer, deadline_ms)

    def _timer(self, armed_ms: int) -> None:
        if self.timer_ms != armed_ms or not self.alive:
            return
        self.timer_ms = -1
        if self.stalled_until_ms > self.clock.now_ms:
            return  # resuming reads the clock
        self._step_time()
        self._arm()

    # Stalls and the end

    def stall(self, for_ms: int) -> None:
        """Do nothing for a while (garbage collection, suspension)."""
        self.stalled_until_ms = self.clock.now_ms + for_ms
        self.trace.note(f"{self.client} stalls for {for_ms} ms")
        self.clock.at(self.stalled_until_ms, self._resume)

    def _resume(self, _: None) -> None:
        if not self.alive or self.clock.now_ms < self.stalled_until_ms:
            return
        self.trace.note(f"{self.client} resumes")
        self._step_time()  # time first: it may be too late for the events in the inbox
        waiting, self.inbox = self.inbox, []
        for event in waiting:
            self.notify(event)
        self._arm()

    def end(self) -> None:
        """End the process at once, whatever it was doing."""
        self.alive = False
        for resource in sorted(self.running):
            self.ownership_log.stop(resource, runner=self.client, now_ms=self.clock.now_ms)
        self.running.clear()


# Quiescence of a group: no member has begun anything that is still in progress.
#
# A member is quiescent when it is STABLE, has no time to rejoin at, revokes nothing and waits for
# no callback. Some callers check more: that everything is processed, that no round was stored for a
# while, that the coordinator has the same members.
#
# Example: a member of Design II during a delay is STABLE, but has a time to rejoin at. It is not
# quiescent.


def is_quiescent(member: MemberData) -> bool:
    """Return whether nothing is in progress at a member."""
    holdings = member.holdings
    return (
        member.state is MemberState.STABLE
        and member.rejoin_at_ms is None
        and not holdings.revoking
        and holdings.calling is None
    )


def all_quiescent(processes: Iterable[Process]) -> bool:
    """Return whether nothing is in progress at any of ``processes``, and none is stopping."""
    return all(not p.exiting and is_quiescent(p.member.data) for p in processes)
