"""holdfast: Kafka consumer-group rebalancing, from the assignor to the fleet.

Public names are imported on first use, so ``import holdfast`` costs nothing and needs no extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.core.assignors.laws import check_laws
    from holdfast.core.assignors.own import assignor
    from holdfast.core.assignors.registry import assign
    from holdfast.core.assignors.result import verify
    from holdfast.core.machine.leader.leader_turn import perform_assignment
    from holdfast.core.model.assignment import Assignment
    from holdfast.core.model.group import Group
    from holdfast.core.model.topics import Topics
    from holdfast.members.consumer import Consumer
    from holdfast.members.worker import Worker

__all__ = [
    "Assignment",
    "Consumer",
    "Group",
    "Topics",
    "Worker",
    "assign",
    "assignor",
    "check_laws",
    "perform_assignment",
    "verify",
]

__version__ = "0.1.0"

_HOME = {
    "Group": "holdfast.core.model.group",
    "Topics": "holdfast.core.model.topics",
    "Assignment": "holdfast.core.model.assignment",
    "assign": "holdfast.core.assignors.registry",
    "assignor": "holdfast.core.assignors.own",
    "check_laws": "holdfast.core.assignors.laws",
    "verify": "holdfast.core.assignors.result",
    "perform_assignment": "holdfast.core.machine.leader.leader_turn",
    "Consumer": "holdfast.members.consumer",
    "Worker": "holdfast.members.worker",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ImportError as error:
        error.add_note(f"holdfast.{name} needs an extra: pip install 'kafka-holdfast[members]'")
        raise


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
