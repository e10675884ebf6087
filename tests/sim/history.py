"""A history written by hand: rounds of the real leader, altered where a test wants them wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.machine.subscribed import round_of
from tests.proof.rules.checkers import RoundChecker

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.events import AssignmentComputed, JoinedMember
from holdfast.core.machine.leader.assignor_protocol import LeaderRound
from holdfast.core.machine.leader.designs import DesignAssignor, stay
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import grouped, resources_of
from holdfast.core.wire.layouts.container import (
    MemberAssignment,
    MemberSubscription,
    decode_member_assignment,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.state_shard import StateShard, decode_shard, encode_shard
from holdfast.sim.clock import OwnershipLog

Bend = Callable[[dict[str, MemberAssignment]], None]


@dataclass
class History:
    """Members as their claims; ``leader_round`` plays a round under the checker and applies it."""

    policy: Policy
    partitions: dict[str, int]
    members: dict[str, MemberSubscription] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    now_ms: int = 0
    generation: int = 3
    received_ms: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ownership_log = OwnershipLog([])
        self.checker = RoundChecker(self.ownership_log)
        self.checker.waiting.slack_ms = 1_000
        self.design = DesignAssignor(self.policy)

    @classmethod
    def of(cls, policy: Policy, partitions: int, **owned: str) -> History:
        """``a="01"`` owns partitions 0 and 1 of topic t; everybody has the leader state of that."""
        history = cls(policy, {"t": partitions})
        for name, numbers in owned.items():
            history.join(name, numbers, generation=3)
        assert history.leader_round() == set()
        return history

    def join(self, name: str, numbers: str = "", *, generation: int = -1, **fields) -> None:
        owned = (("t", tuple(int(n) for n in numbers)),) if numbers else ()
        fields.setdefault("topics", ("t",))
        self.members[name] = MemberSubscription(owned=owned, generation=generation, **fields)
        self.received_ms[name] = self.now_ms

    def leave(self, name: str) -> None:
        del self.members[name]

    def leader_round(self, bend: Bend | None = None, *, leader: str | None = None) -> set[str]:
        """One round; returns the rules it breaks."""
        request = self._request(leader)
        plan = self.design.lead(
            LeaderRound(
                members=request.members,
                partitions=self.partitions,
                generation=self.generation,
                leader_id=request.member_id,
            )
        )
        assignments = {m: decode_member_assignment(data) for m, data in plan.items()}
        if bend is not None:
            bend(assignments)
        done = AssignmentComputed(
            0, tuple((m, encode_member_assignment(v)) for m, v in assignments.items())
        )
        before = len(self.ownership_log.violations)
        self.checker.check(request, done, self.now_ms, self.design)
        self._apply(assignments)
        return {v.rule for v in self.ownership_log.violations[before:]}

    def round_without_a_plan(self) -> None:
        """One round in which the leader cannot plan, so that all members keep their claims."""
        request = self._request()
        done = stay([self.design], request, RuntimeError("the plan failed"))
        self.checker.note(request, done, self.now_ms, self.design)
        self._apply({m: decode_member_assignment(data) for m, data in done.assignments})

    def _request(self, leader: str | None = None) -> ComputeAssignment:
        self.generation += 1
        joined = tuple(self._joined(name) for name in self.members)
        lead, counts = leader or min(self.members), dict(sorted(self.partitions.items()))
        return round_of(self.design.name, joined, counts, self.generation, member_id=lead)

    def _joined(self, name: str) -> JoinedMember:
        claim = replace(self.members[name], state_age_ms=self.now_ms - self.received_ms[name])
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
                already_revoked=v.revoked or (),
                leader_state=v.leader_state,
            )
            self.received_ms[name] = self.now_ms


def override(name: str, **fields) -> Bend:
    """Send one member another assignment."""

    def bend(assignments: dict[str, MemberAssignment]) -> None:
        assignments[name] = replace(assignments[name], **fields)

    return bend


def override_all(**fields) -> Bend:
    """Send all members other assignments."""

    def bend(assignments: dict[str, MemberAssignment]) -> None:
        for name, v in assignments.items():
            assignments[name] = replace(v, **fields)

    return bend


def rewrite_shard(change: Callable[[StateShard], StateShard]) -> Bend:
    """Write another leader state."""

    def bend(assignments: dict[str, MemberAssignment]) -> None:
        for name, v in assignments.items():
            leader_state = encode_shard(change(decode_shard(v.leader_state)))
            assignments[name] = replace(v, leader_state=leader_state)

    return bend


def waits(delay_ms: int) -> Callable[[StateShard], StateShard]:
    """Whoever is waited for is waited for so long."""

    def change(shard: StateShard) -> StateShard:
        waiting = tuple(replace(m, delay_ms=delay_ms) for m in shard.waiting)
        return replace(shard, waiting=waiting)

    return change


def together(*bends: Bend) -> Bend:
    """Several at once."""

    def bend(assignments: dict[str, MemberAssignment]) -> None:
        for each in bends:
            each(assignments)

    return bend
