"""Progress of rounds towards balance: L2 and L3, over the rounds of a run.

**Rules.**

- A *stretch* is a sequence of rounds in which nothing happens to the group: the members, their
  subscriptions and the partitions stay the same, and every member claims exactly what the round
  before left it with. A round is *whole* when every resource is claimed once.
- L2: within a stretch of Design III, the balance score of whole rounds never rises.
- L3: within a stretch, each whole round that revokes has a smaller potential than the last round
  that revoked. The potential is (balance score, moves left), compared in that order; moves left is
  how many resources are not yet where the plan wants them. A potential that always falls rules out
  a cycle of revoking and assigning. Example, with batch 1: a owns 4 and b owns 0. The potential is
  (4, 2). Then a owns 3 and b owns 1, and the potential is (2, 1). Then each owns 2, and no round
  revokes.

**Strategy.** The real planner counts the moves left: Design I, planned from the same claims,
revokes at once every resource that is to move.

References: :data:`tests.proof.rules.checkers.RULES`, L2 and L3; KIP-54, "balance score"; Design
III.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from tests.proof.rules.seen import SeenRound

from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.leader.designs import CooperativeAssignor, DesignAssignor
from holdfast.core.machine.leader.leader import plan_round
from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import Resource
from holdfast.sim.clock import OwnershipLog


@dataclass(slots=True)
class Pacing:
    """Follows the rounds of one run."""

    ownership_log: OwnershipLog
    inputs: Any = None
    expected: Mapping[str, frozenset[Resource]] = field(default_factory=dict)
    score: int | None = None
    potential: tuple[int, int] | None = None

    def check(self, seen: SeenRound, assignor: Assignor, now_ms: int) -> None:
        """Take one round that has effect."""
        inputs = _inputs(seen)
        claims = {s.name: s.claims for s in seen.members}
        if inputs != self.inputs or claims != self.expected:
            self.score = self.potential = None
        self.inputs, self.expected = inputs, {s.name: s.after for s in seen.members}
        if not isinstance(assignor, DesignAssignor | CooperativeAssignor):
            return
        policy = (
            assignor.policy
            if isinstance(assignor, DesignAssignor)
            else Policy(design=Design.SIMPLE)
        )
        revokes = any(s.revoked for s in seen.members)
        if not (revokes or policy.design is Design.INCREMENTAL) or not _whole(seen):
            return
        score = balance_score(claims, policy)
        if policy.design is Design.INCREMENTAL and self.score is not None and score > self.score:
            self.ownership_log.fail(
                "L2", now_ms, f"the balance score rises from {self.score} to {score}"
            )
        self.score = score
        if revokes:
            self._revokes((score, moves_left(seen, policy)), now_ms)

    def _revokes(self, potential: tuple[int, int], now_ms: int) -> None:
        if self.potential is not None and potential >= self.potential:
            text = f"a round revokes and gains nothing: {self.potential}, then {potential}"
            self.ownership_log.fail("L3", now_ms, text)
        self.potential = potential


def balance_score(claims: Mapping[str, frozenset[Resource]], policy: Policy) -> int:
    """Return KIP-54's score, by weight, kind by kind where kinds are isolated."""
    if not policy.weights and not policy.isolate:
        return sum(abs(a - b) for a, b in combinations([len(c) for c in claims.values()], 2))
    kinds = sorted({kind for own in claims.values() for kind, _ in own})
    parts = [{kind} for kind in kinds] if policy.isolate else [set(kinds)]
    total = 0
    for part in parts:
        loads = [
            sum(policy.weights.get(kind, 1) for kind, _ in own if kind in part)
            for _, own in sorted(claims.items())
        ]
        total += sum(abs(a - b) for a, b in combinations(loads, 2))
    return total


def moves_left(seen: SeenRound, policy: Policy) -> int:
    """Count resources that are not where the target wants them."""
    done = plan_round(
        replace(policy, design=Design.SIMPLE, damps=False, own=None, kinds={}),
        [s.member for s in seen.members],
        seen.partitions,
        generation=seen.generation,
        unbroken=seen.unbroken,
    )
    return sum(len(numbers) for s in done.assignments.values() for _, numbers in s.revoked)


def _inputs(seen: SeenRound) -> Any:
    """Return the inputs of a round beside claims."""
    members = tuple(
        (s.name, s.member.instance_id, s.subscription.topics, s.subscription.leaving)
        for s in seen.members
    )
    return members, tuple(sorted(seen.partitions.items()))


def _whole(seen: SeenRound) -> bool:
    """Return whether every resource has one claim, by a member that subscribes to it."""
    counts = [seen.partitions.get(topic, 0) for topic in seen.subscribed]
    times, claimed = sum(len(s.claims) for s in seen.members), seen.claimed
    if not times == len(claimed) == sum(counts):
        return False
    fits = all(
        (s.stays or not s.claims) and {t for t, _ in s.claims} <= set(s.subscription.topics)
        for s in seen.members
    )
    return fits and all(0 <= p < seen.partitions.get(t, 0) for t, p in claimed)
