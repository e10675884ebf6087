"""Functions that a test may put around the parts of a world, to change or to watch single messages.

**Rules.** A hook takes the real function and returns the one that is used instead. Without a hook
the real functions are used as they are, at no cost; the product passes no hook.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.coordinator.group_messages import Answer, Request, Response
from holdfast.core.machine.events import AssignmentComputed
from holdfast.sim.world.process import ActionHandlers, Process

Arrive = Callable[[tuple[Process, Request]], None]
Respond = Callable[[tuple[Process, Response]], None]
Plan = Callable[[Process, ComputeAssignment], AssignmentComputed]


def unchanged(function: Any) -> Any:
    """The hook that changes nothing."""
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """One hook for each part that a test may change."""

    # Around the arrival of a request at the coordinator.
    arrive: Callable[[Arrive], Arrive] = unchanged
    # Around the sending of an answer by the coordinator.
    answer: Callable[[Callable[[Answer], None]], Callable[[Answer], None]] = unchanged
    # Around the arrival of an answer at its process.
    respond: Callable[[Respond], Respond] = unchanged
    # Around a leader's round: the assignments for the claims of all members.
    plan: Callable[[Plan], Plan] = unchanged
    # Around the action handlers, one function per action of a member.
    action_handlers: Callable[[ActionHandlers], ActionHandlers] = unchanged
