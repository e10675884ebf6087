"""A history written by hand: turns of the real leader, bent where a test wants them wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.machine.subscribed import turn_of
from tests.proof.rules.checkers import RoundChecker

from holdfast.core.machine.events import AssignmentComputed, JoinedMember
from holdfast.core.machine.leader.designs import DesignAssignor, LeaderRound
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import grouped, resources_of
from holdfast.core.wire.layouts.container import (
    MemberAssignment,
    MemberSubscription,
    decode_member_assignment,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.memory import Share, decode_share, encode_share
from holdfast.sim.world.ledger import Ledger

Bend = Callable[[dict[str, MemberAssignment]], None]


@dataclass
class History:
    """Members as their claims; ``turn`` plays a round under the checker and applies it."""

    policy: Policy
    partitions: dict[str, int]
    members: dict[str, MemberSubscription] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    now_ms: int = 0
    generation: int = 3
    heard_ms: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger = Ledger([])
        self.checker = RoundChecker(self.ledger)
        self.checker.waiting.slack_ms = 1_000
        self.design = DesignAssignor(self.policy)

    @classmethod
    def of(cls, policy: Policy, partitions: int, **owned: str) -> History:
        """``a="01"`` owns partitions 0 and 1 of topic t; everybody has the memory of that."""
        history = cls(policy, {"t": partitions})
        for name, numbers in owned.items():
            history.join(name, numbers, generation=3)
        assert history.turn() == set()
        return history

    def join(self, name: str, numbers: str = "", *, generation: int = -1, **fields) -> None:
        owned = (("t", tuple(int(n) for n in numbers)),) if numbers else ()
        fields.setdefault("topics", ("t",))
        self.members[name] = MemberSubscription(owned=owned, generation=generation, **fields)
        self.heard_ms[name] = self.now_ms

    def leave(self, name: str) -> None:
        del self.members[name]

    def turn(self, bend: Bend | None = None, *, leader: str | None = None) -> set[str]:
        """One round; returns the rules it breaks."""
        self.generation += 1
        joined = tuple(self._joined(name) for name in self.members)
        lead = leader or min(self.members)
        counts = dict(sorted(self.partitions.items()))
        request = turn_of(self.design.name, joined, counts, self.generation, member_id=lead)
        plan = self.design.lead(
            LeaderRound(
                members=joined,
                partitions=self.partitions,
                generation=self.generation,
                leader_id=lead,
            )
        )
        assignments = {m: decode_member_assignment(data) for m, data in plan.items()}
        if bend is not None:
            bend(assignments)
        done = AssignmentComputed(
            0, tuple((m, encode_member_assignment(v)) for m, v in assignments.items())
        )
        before = len(self.ledger.violations)
        self.checker.check(request, done, self.now_ms, self.design)
        self._apply(assignments)
        return {v.rule for v in self.ledger.violations[before:]}

    def _joined(self, name: str) -> JoinedMember:
        claim = replace(self.members[name], memory_age_ms=self.now_ms - self.heard_ms[name])
        return JoinedMember(
            member_id=name,
            instance_id=self.instances.get(name),
            metadata=encode_member_subscription(claim),
        )

    def _apply(self, assignments: dict[str, MemberAssignment]) -> None:
        for name, v in assignments.items():
            claim = self.members[name]
            revoked = resources_of(v.revoked or ())
            owned = (resources_of(claim.owned) - revoked) | resources_of(v.assigned)
            self.members[name] = replace(
                claim,
                owned=grouped(sorted(owned)),
                generation=self.generation,
                given_up=v.revoked or (),
                memory=v.memory,
            )
            self.heard_ms[name] = self.now_ms


def tell(name: str, **fields) -> Bend:
    """Tell one member something else."""

    def bend(assignments: dict[str, MemberAssignment]) -> None:
        assignments[name] = replace(assignments[name], **fields)

    return bend


def tell_all(**fields) -> Bend:
    """Tell all members something else."""

    def bend(assignments: dict[str, MemberAssignment]) -> None:
        for name, v in assignments.items():
            assignments[name] = replace(v, **fields)

    return bend


def remember(change: Callable[[Share], Share]) -> Bend:
    """Write another memory."""

    def bend(assignments: dict[str, MemberAssignment]) -> None:
        for name, v in assignments.items():
            memory = encode_share(change(decode_share(v.memory)))
            assignments[name] = replace(v, memory=memory)

    return bend


def waits(delay_ms: int) -> Callable[[Share], Share]:
    """Whoever is waited for is waited for so long."""

    def change(share: Share) -> Share:
        waiting = tuple(replace(m, delay_ms=delay_ms) for m in share.waiting)
        return replace(share, waiting=waiting)

    return change


def together(*bends: Bend) -> Bend:
    """Several at once."""

    def bend(assignments: dict[str, MemberAssignment]) -> None:
        for each in bends:
            each(assignments)

    return bend
