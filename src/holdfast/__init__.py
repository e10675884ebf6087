"""holdfast: Kafka consumer-group rebalancing, from the assignor to the fleet.

Public names are imported on first use, so ``import holdfast`` costs nothing and needs no extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.adapters.consumer import Consumer
    from holdfast.adapters.worker import Worker
    from holdfast.assignors.registry import assign
    from holdfast.assignors.result import verify
    from holdfast.machine.leader.leader_turn import perform_assignment
    from holdfast.model.assignment import Assignment
    from holdfast.model.group import Group
    from holdfast.model.topics import Topics

__all__ = [
    "Assignment",
    "Consumer",
    "Group",
    "Topics",
    "Worker",
    "assign",
    "perform_assignment",
    "verify",
]

__version__ = "0.1.0"

_HOME = {
    "Group": "holdfast.model.group",
    "Topics": "holdfast.model.topics",
    "Assignment": "holdfast.model.assignment",
    "assign": "holdfast.assignors.registry",
    "verify": "holdfast.assignors.result",
    "perform_assignment": "holdfast.machine.leader.leader_turn",
    "Consumer": "holdfast.adapters.consumer",
    "Worker": "holdfast.adapters.worker",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ImportError as error:
        error.add_note(f"holdfast.{name} needs an extra: pip install 'holdfast[confluent]'")
        raise


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
