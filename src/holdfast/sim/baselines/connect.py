"""A baseline: Kafka Connect's incremental cooperative assignor as shipped, over our members.

**Rules.** The leader's memory is lost when another member leads. Lost resources wait until the
delay ends, even if their old owner is back. If a round would revoke right after a round that
revoked, the leader waits instead, longer each time (KIP-415).

**Strategy.** Members send the designs' messages; only the leader's plan is Connect's. Each member
that leads has a :class:`Past` of its own, so a new leader begins with an empty one, as in Connect.

References: KIP-415; KAFKA-9848, KAFKA-10413, KAFKA-12495, KAFKA-15693.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from holdfast.core.machine.leader.designs import DesignAssignor, LeaderRound
from holdfast.core.machine.leader.embedded import Instruction, MemberView
from holdfast.core.machine.leader.subscriptions import read_subscribed_member
from holdfast.core.machine.modes import RebalanceMode
from holdfast.core.machine.policy import Policy
from holdfast.core.model.designs import Design
from holdfast.core.model.partitions import Resource, grouped, resources_of
from holdfast.core.wire.layouts.container import MemberAssignment, encode_member_assignment

BACKOFF_MS, BACKOFF_FACTOR = 1, 40


@dataclass(slots=True)
class Past:
    """The memory of Connect's leader."""

    previous: frozenset[Resource] = frozenset()
    members: frozenset[str] = frozenset()
    generation: int = -1
    delay_ms: int = 0
    remaining_ms: int | None = None
    candidates: tuple[str, ...] = ()
    revoked: bool = False
    successive: int = 0


@dataclass(slots=True)
class ConnectAssignor:
    """Connect's leader; the age of its own memory is the part of the delay that has passed.

    ``by_kind``: topics stand for kinds (connectors, tasks), each of which is balanced by itself.
    """

    delay_ms: int
    by_kind: bool = False
    name: str = "connect"
    modes: frozenset[RebalanceMode] = frozenset({RebalanceMode.COOPERATIVE})
    inner: DesignAssignor = field(
        default_factory=lambda: DesignAssignor(Policy(design=Design.DEFERRED))
    )
    pasts: dict[str, Past] = field(default_factory=dict)

    def subscribe(self, view: MemberView) -> bytes:
        """As the designs: owned is the allocation of KIP-415."""
        return self.inner.subscribe(replace(view, place=b""))

    def read(self, assignment: bytes) -> Instruction:
        """Increments, revocations and a delay, as in KIP-415."""
        return self.inner.read(assignment)

    def stay(self, turn: LeaderRound) -> dict[str, bytes]:
        """Every member keeps its resources."""
        return self.inner.stay(turn)

    def lead(self, turn: LeaderRound) -> dict[str, bytes]:
        """One round of Connect's algorithm."""
        past = self.pasts.setdefault(turn.leader_id, Past())
        members = sorted(
            (read_subscribed_member(m.member_id, m.instance_id, m.metadata) for m in turn.members),
            key=lambda c: c.member_id,
        )
        own = {c.member_id: set(resources_of(c.subscription.owned)) for c in members}
        newest = max((c.subscription.generation for c in members), default=-1)
        if past.generation != newest:
            past.previous = frozenset()  # led before, but not the last round
        configured = {(t, p) for t in sorted(turn.partitions) for p in range(turn.partitions[t])}
        active = set().union(*own.values()) & configured
        lost = (past.previous & configured) - active
        created = configured - active - lost
        now_given = self._handle_lost(past, lost, own, members[0].subscription.memory_age_ms, turn)
        if now_given is None:  # still waiting
            placed = created
            handed: dict[str, set[Resource]] = {m: set() for m in own}
        else:
            handed, rest = now_given
            placed = created | rest
        parts = [configured]
        if self.by_kind:
            parts = [{r for r in configured if r[0] == topic} for topic in sorted(turn.partitions)]
        for part in parts:
            _spread(placed & part, own, handed, part)
        revoked: dict[str, set[Resource]] = {m: set() for m in own}
        if past.remaining_ms is None:
            revoked = self._balance(past, own, handed, parts)
        return self._answer(past, turn, own, handed, revoked)

    def _handle_lost(
        self,
        past: Past,
        lost: Set[Resource],
        own: Mapping[str, set[Resource]],
        age_ms: int,
        turn: LeaderRound,
    ) -> tuple[dict[str, set[Resource]], Set[Resource]] | None:
        """Give lost resources to candidates, and return the rest as new; None during a delay."""
        nothing: dict[str, set[Resource]] = {m: set() for m in own}
        if past.remaining_ms is not None:
            past.remaining_ms = max(0, past.remaining_ms - age_ms)
        if not lost:
            past.remaining_ms, past.candidates = None, ()
            return nothing, set()
        present = frozenset(own)
        if self.delay_ms == 0 or (past.remaining_ms is None and past.members <= present):
            return nothing, lost
        if past.remaining_ms == 0:
            takers = [m for m in past.candidates if m in present]
            past.remaining_ms, past.candidates = None, ()
            if not takers:
                return nothing, lost
            for i, resource in enumerate(sorted(lost)):
                nothing[takers[i % len(takers)]].add(resource)
            return nothing, set()
        empty = [m for m in sorted(own) if not own[m] and m not in past.candidates]
        past.candidates = (*past.candidates, *empty)
        if past.remaining_ms is None:
            past.remaining_ms = self.delay_ms
        return None

    def _balance(
        self,
        past: Past,
        own: Mapping[str, set[Resource]],
        handed: Mapping[str, set[Resource]],
        parts: Sequence[Set[Resource]],
    ) -> dict[str, set[Resource]]:
        """Revoke every member's surplus at once, unless the last round revoked as well."""
        surplus: dict[str, set[Resource]] = {m: set() for m in own}
        for part in parts:
            loads = _loads(own, handed, part)
            floor, extra = divmod(len(part), len(loads))
            for member in sorted(loads, key=lambda m: (-loads[m], m)):
                quota = floor + (extra > 0)
                if loads[member] >= quota and extra > 0:
                    extra -= 1
                over = loads[member] - quota
                if over > 0:
                    surplus[member] |= set(sorted(own[member] & part)[-over:])
        if not any(surplus.values()):
            past.revoked, past.successive = False, 0
            return surplus
        if past.revoked and self.delay_ms:
            past.successive += 1
            past.remaining_ms = min(BACKOFF_MS * BACKOFF_FACTOR**past.successive, self.delay_ms)
            past.revoked = False
            return {m: set() for m in own}
        past.revoked = True
        return surplus

    def _answer(
        self,
        past: Past,
        turn: LeaderRound,
        own: Mapping[str, set[Resource]],
        handed: Mapping[str, set[Resource]],
        revoked: Mapping[str, set[Resource]],
    ) -> dict[str, bytes]:
        after = {m: (own[m] - revoked[m]) | handed[m] for m in sorted(own)}
        waiting = past.previous if past.remaining_ms is not None else frozenset()
        past.previous = waiting | frozenset[Resource]().union(*after.values())
        past.members, past.generation = frozenset(own), turn.generation
        return {
            m: encode_member_assignment(
                MemberAssignment(
                    assigned=grouped(sorted(handed[m])),
                    revoked=grouped(sorted(revoked[m])) if revoked[m] else None,
                    delay_ms=past.remaining_ms or 0,
                    memory=b"connect",  # members report its age: the time since this round
                )
            )
            for m in sorted(own)
        }


def _loads(
    own: Mapping[str, set[Resource]], handed: Mapping[str, set[Resource]], part: Set[Resource]
) -> dict[str, int]:
    """How many resources of ``part`` each member has, owned and handed; ascending by member."""
    return {m: len((own[m] | handed[m]) & part) for m in sorted(own)}


def _spread(
    resources: Set[Resource],
    own: Mapping[str, set[Resource]],
    handed: Mapping[str, set[Resource]],
    part: Set[Resource],
) -> None:
    """Give each resource to the member with the fewest resources of ``part``."""
    loads = _loads(own, handed, part)
    for resource in sorted(resources):
        taker = min(loads, key=lambda m: loads[m])
        handed[taker].add(resource)
        loads[taker] += 1
