"""A group of members whose rounds the real leader plans, and which may claim anything.

**Rules.** A member does what its assignment says and reports what it owns, unless a test replaces
its message or changes what it holds. A round has one owner for each partition at most.

**Strategy.** A zombie or a late member is a :class:`Held` of an earlier round that is put back.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.assignor_protocol import Assignor, MemberView, ReceivedAssignment
from holdfast.core.machine.leader.designs import (
    CooperativeAssignor,
    DesignAssignor,
    compute,
)
from holdfast.core.machine.leader.leader_round import named_in_round
from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import Resource, resources_of_topic

DELAY_MS = 30_000
TOPICS = {"clicks": 60, "orders": 121, "t": 20}
EVERYTHING = frozenset(
    r for topic, n in TOPICS.items() for r in resources_of_topic(topic, range(n))
)
NOTHING = ReceivedAssignment(assigned=frozenset())


def design(chosen: Design, *, failback: bool = False) -> DesignAssignor:
    """Design I, II or III with a delay of 30 s and batches of three."""
    return DesignAssignor(
        Policy(design=chosen, failback=failback, delay_ms=DELAY_MS, batch=3, interval_ms=5_000)
    )


ASSIGNORS: dict[str, Assignor] = {
    "cooperative-sticky": CooperativeAssignor(),
    "holdfast-simple": design(Design.SIMPLE),
    "holdfast-deferred": design(Design.DEFERRED),
    "holdfast-incremental": design(Design.INCREMENTAL),
    "failback": design(Design.DEFERRED, failback=True),
}


@dataclass(slots=True)
class Held:
    """What a member knows between two rounds."""

    owned: frozenset[Resource] = frozenset()
    generation: int = -1
    told: ReceivedAssignment = NOTHING

    def obey(self, told: ReceivedAssignment, generation: int) -> None:
        """Own what the assignment says."""
        kept = frozenset[Resource]() if told.absence_revokes else self.owned - told.revoked
        self.owned, self.generation, self.told = kept | told.assigned, generation, told


@dataclass(slots=True)
class Group:
    """The members, by id; the first one leads."""

    assignor: Assignor
    members: dict[str, Held] = field(default_factory=dict)
    generation: int = 0

    def said(self, member: str, age_ms: int = 0, **changes: Any) -> bytes:
        """Return the message of a member, with ``changes`` to what it reports."""
        held = self.members.get(member, Held())
        said = {
            "topics": tuple(TOPICS),
            "owned": tuple(sorted(held.owned)),
            "previous": (),
            "generation": held.generation,
            "nonce": self.generation,
            "already_revoked": tuple(sorted(held.told.revoked)),
            "leader_state": held.told.leader_state,
            "state_age_ms": age_ms,
        }
        return self.assignor.subscribe(MemberView(**{**said, **changes}))

    def request(
        self, messages: Mapping[str, bytes] | None = None, age_ms: int = 0
    ) -> ComputeAssignment:
        """Return what the leader is asked; ``messages`` stand in the place of true ones."""
        said = {m: self.said(m, age_ms) for m in self.members} | dict(messages or {})
        asked = ComputeAssignment(
            token=0,
            generation=self.generation + 1,
            protocol_name=self.assignor.name,
            members=tuple(JoinedMember(member_id=m, metadata=data) for m, data in said.items()),
            partitions=(),
            member_id=min(self.members),
            waited_ms=0,
        )
        return with_counts(asked, TOPICS)

    def round(self, messages: Mapping[str, bytes] | None = None, age_ms: int = 0) -> bool:
        """Play a round that begins ``age_ms`` after the last one; return whether one follows."""
        done = compute([self.assignor], self.request(messages, age_ms))
        assert done.failure is None, done.failure
        told = {m: self.assignor.read(data) for m, data in done.assignments}
        self.generation += 1
        for name, held in self.members.items():
            held.obey(told[name], self.generation)
        owners = [r for held in self.members.values() for r in held.owned]
        assert len(owners) == len(set(owners))
        return any(each.again for each in told.values())

    def settle(self) -> None:
        """Play rounds, a delay apart, until everything is owned and nothing moves."""
        for _ in range(200):
            before = self.owned()
            again = self.round(age_ms=DELAY_MS)
            if not again and self.owned() == before and self.all_owned() == EVERYTHING:
                return
        raise AssertionError("the group does not settle")

    def owned(self) -> dict[str, frozenset[Resource]]:
        """Return what each member owns."""
        return {name: held.owned for name, held in self.members.items()}

    def all_owned(self) -> frozenset[Resource]:
        """Return what all members own together."""
        return frozenset[Resource]().union(*self.owned().values())


def with_counts(asked: ComputeAssignment, partitions: Mapping[str, int]) -> ComputeAssignment:
    """Answer the leader's question which of the topics exist."""
    counts = tuple((t, partitions[t]) for t in named_in_round(asked) if t in partitions)
    return replace(asked, partitions=counts)


@cache
def _settled(name: str, n_members: int) -> Group:
    group = Group(ASSIGNORS[name], {f"m{i:02}": Held() for i in range(n_members)})
    group.settle()
    return group


def settled(name: str, n_members: int = 5) -> Group:
    """Return a group that owns everything evenly, a copy of its own."""
    return deepcopy(_settled(name, n_members))
