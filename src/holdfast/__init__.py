"""holdfast: Kafka consumer-group rebalancing, from the assignor to the fleet.

Public names are imported on first use, so ``import holdfast`` costs nothing and needs no extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.extras import needed

if TYPE_CHECKING:
    from holdfast.core.assignors.laws import check_laws
    from holdfast.core.assignors.own import assignor
    from holdfast.core.assignors.registry import assign, follow
    from holdfast.core.assignors.result import Result, verify
    from holdfast.core.machine.leader.assignor_protocol import Assignor
    from holdfast.core.machine.leader.imbalance import Imbalance, Resolution
    from holdfast.core.machine.leader.leader_round import perform_assignment
    from holdfast.core.machine.policy import policy
    from holdfast.core.machine.policy_laws import check_policy_laws
    from holdfast.core.model.group import Group
    from holdfast.core.model.measure import Assignment
    from holdfast.core.model.topics import Topics
    from holdfast.members.config.arguments import RebalanceListener, TopicPartition
    from holdfast.members.consumer import Consumer
    from holdfast.members.resources.attempts import (
        AsyncStopEvent,
        Resource,
        ResourceState,
        StopEvent,
    )
    from holdfast.members.runtime.coordinator_client import BrokerLags
    from holdfast.members.worker import Worker, WorkerListener

__all__ = [
    "Assignment",
    "Assignor",
    "AsyncStopEvent",
    "BrokerLags",
    "Consumer",
    "Group",
    "Imbalance",
    "RebalanceListener",
    "Resolution",
    "Resource",
    "ResourceState",
    "Result",
    "StopEvent",
    "TopicPartition",
    "Topics",
    "Worker",
    "WorkerListener",
    "assign",
    "assignor",
    "check_laws",
    "check_policy_laws",
    "follow",
    "perform_assignment",
    "policy",
    "verify",
]

__version__ = "0.1.0"

_HOME = {
    "Assignment": "holdfast.core.model.measure",
    "Assignor": "holdfast.core.machine.leader.designs",
    "AsyncStopEvent": "holdfast.members.resources.attempts",
    "BrokerLags": "holdfast.members.runtime.coordinator_client",
    "Consumer": "holdfast.members.consumer",
    "Group": "holdfast.core.model.group",
    "Imbalance": "holdfast.core.machine.leader.imbalance",
    "RebalanceListener": "holdfast.members.config.arguments",
    "Resolution": "holdfast.core.machine.leader.imbalance",
    "Resource": "holdfast.members.resources.attempts",
    "ResourceState": "holdfast.members.resources.attempts",
    "Result": "holdfast.core.assignors.result",
    "StopEvent": "holdfast.members.resources.attempts",
    "TopicPartition": "holdfast.members.config.arguments",
    "Topics": "holdfast.core.model.topics",
    "Worker": "holdfast.members.worker",
    "WorkerListener": "holdfast.members.worker",
    "assign": "holdfast.core.assignors.registry",
    "assignor": "holdfast.core.assignors.own",
    "check_laws": "holdfast.core.assignors.laws",
    "check_policy_laws": "holdfast.core.machine.policy_laws",
    "follow": "holdfast.core.assignors.registry",
    "perform_assignment": "holdfast.core.machine.leader.leader_round",
    "policy": "holdfast.core.machine.policy",
    "verify": "holdfast.core.assignors.result",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    with needed("members"):
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
