"""A process: one member machine and the application around it, charged by the cost model.

**Rules.** The application has one thread: it finishes a batch before it drains or runs a callback.
State is rebuilt one resource after another, beside the batches. Actions are done in order.

**Strategy.** The world owns time and messages; a process answers its member's duties through it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.model.partitions import Resource

if TYPE_CHECKING:
    from holdfast.machine.actions import Action
    from holdfast.machine.events import Event
    from holdfast.machine.member.member import Member

RECORD_MS = 10  # a member processes one record of each partition it owns in that time


@dataclass(slots=True, eq=False)
class Process:
    """One incarnation of a slot (a machine that is restarted keeps its slot).

    Parameters
    ----------
    client : str
        Name of this incarnation, unique in the run.
    phase_ms : int
        When its polls fall within their period.
    clock_ms : int
        What its monotonic clock shows at the world's time 0: no two processes have the same.
    """

    slot: int
    client: str
    member: Member
    poll_ms: int
    phase_ms: int
    alive: bool = True
    exiting: bool = False
    running: set[Resource] = field(default_factory=set)
    state: set[Resource] = field(default_factory=set)  # whose state it has rebuilt and kept
    rebuilt_ms: int = 0
    stalled_until_ms: int = 0
    timer_ms: int = -1
    clock_ms: int = 0
    outstanding: set[int] = field(default_factory=set)
    inbox: list[object] = field(default_factory=list)
    listener_faults: float = 0.0
    revoke_extra_ms: int = 0
    plan_fails: int = 0
    positions: dict[Resource, tuple[int, int]] = field(default_factory=dict)
    failed: str = ""

    def step(self, now_ms: int, event: Event | None = None) -> tuple[Action, ...]:
        """Step the member by this process's own clock."""
        return self.member.step(self.clock_ms + now_ms, event)

    @property
    def deadline_ms(self) -> int | None:
        """The member's deadline in the world's time."""
        deadline = self.member.deadline_ms
        return None if deadline is None else deadline - self.clock_ms

    def boundary(self, now_ms: int) -> int:
        """When the application is next between two batches; now if it has none to process."""
        if not self.running:
            return now_ms
        return now_ms + (self.phase_ms - now_ms) % self.poll_ms
