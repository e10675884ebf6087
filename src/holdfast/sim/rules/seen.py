"""A leader's turn as a checker sees it: what every member claimed and what it was told.

**Rules.** What a message says is read here from its bytes, not by the member under check: in a
design's message absence keeps, in any other it revokes (S7).

References: Incremental Cooperative Rebalancing, "Member process"; KIP-429.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from holdfast.machine.actions import ComputeAssignment
from holdfast.machine.events import AssignmentComputed
from holdfast.machine.leader.designs import Assignor, DesignAssignor
from holdfast.machine.leader.embedded import Instruction
from holdfast.machine.leader.subscriptions import SubscribedMember, subscribed_members
from holdfast.model.partitions import Resource, resources_of, resources_of_topic
from holdfast.wire.layouts.container import MemberSubscription, decode_member_assignment
from holdfast.wire.layouts.frames import Leaving
from holdfast.wire.layouts.memory import read_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One member in one round: what it claimed and what it was told."""

    member: SubscribedMember
    claims: frozenset[Resource]
    instruction: Instruction
    revoked: frozenset[Resource]
    after: frozenset[Resource]

    @property
    def name(self) -> str:
        """Its member id."""
        return self.member.member_id

    @property
    def gained(self) -> frozenset[Resource]:
        """What it did not claim and gets."""
        return self.instruction.assigned - self.claims

    @property
    def subscription(self) -> MemberSubscription:
        """What it reported."""
        return self.member.subscription

    @property
    def stays(self) -> bool:
        """Whether it has not said that it leaves for good."""
        return self.subscription.leaving is not Leaving.FOR_GOOD


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTurn:
    """A whole round, members sorted by id."""

    members: tuple[Seen, ...]
    partitions: dict[str, int]
    generation: int
    leader_id: str
    present: frozenset[str] = field(init=False)  # ids of all members
    claimed: frozenset[Resource] = field(init=False)  # what anybody claims
    after: frozenset[Resource] = field(init=False)  # what anybody has then
    subscribed: frozenset[str] = field(init=False)  # topics of those that stay

    def __post_init__(self) -> None:
        stay = [s for s in self.members if s.stays]
        topics = {s.subscription.topics for s in stay}
        object.__setattr__(self, "present", frozenset(s.name for s in self.members))
        claimed = union(s.claims for s in self.members)
        changed = any(s.after is not s.claims for s in self.members)
        object.__setattr__(self, "claimed", claimed)
        after = union(s.after for s in self.members) if changed else claimed
        object.__setattr__(self, "after", after)
        object.__setattr__(self, "subscribed", frozenset(t for names in topics for t in names))

    def exists(self, resource: Resource) -> bool:
        """Whether it is there to be owned by somebody."""
        topic, partition = resource
        return 0 <= partition < self.partitions.get(topic, 0) and topic in self.subscribed

    def all_resources(self) -> frozenset[Resource]:
        """Everything that somebody subscribes to."""
        counts = tuple((t, self.partitions.get(t, 0)) for t in sorted(self.subscribed))
        return _every_one(counts)


@lru_cache(maxsize=8)
def _every_one(counts: tuple[tuple[str, int], ...]) -> frozenset[Resource]:
    return frozenset(r for topic, count in counts for r in resources_of_topic(topic, range(count)))


def union(sets: Iterable[frozenset[Resource]]) -> frozenset[Resource]:
    """All of these together."""
    return frozenset[Resource]().union(*sets)


def see(request: ComputeAssignment, done: AssignmentComputed, assignor: Assignor) -> SeenTurn:
    """Read a turn from its bytes."""
    given = dict(done.assignments)
    seen = []
    for member in subscribed_members(request.members, request.member_id, request.waited_ms):
        data = given.get(member.member_id)
        instruction = (
            Instruction(assigned=frozenset()) if data is None else instruct(assignor, data)
        )
        claims = resources_of(member.subscription.owned)
        revoked = (
            claims - instruction.assigned if instruction.absence_revokes else instruction.revoked
        )
        stays = instruction.assigned == claims and not revoked
        after = claims if stays else (claims - revoked) | instruction.assigned
        seen.append(
            Seen(
                member=member, claims=claims, instruction=instruction, revoked=revoked, after=after
            )
        )
    return SeenTurn(
        members=tuple(sorted(seen, key=lambda s: s.name)),
        partitions=dict(request.partitions),
        generation=request.generation,
        leader_id=request.member_id,
    )


def instruct(assignor: Assignor, data: bytes) -> Instruction:
    """What an assignment's bytes say."""
    if not isinstance(assignor, DesignAssignor):
        return assignor.read(data)
    return _instruction(data)


@lru_cache(maxsize=1024)
def _instruction(data: bytes) -> Instruction:
    """Read once where a leader says it, and not again where its member hears it."""
    assignment = decode_member_assignment(data)
    revoked = resources_of(assignment.revoked or ())
    assigned = resources_of(assignment.assigned)
    return Instruction(
        assigned=assigned - revoked if revoked else assigned,
        revoked=revoked,
        absence_revokes=False,
        delay_ms=assignment.delay_ms,
        again=assignment.revoked is not None,
        memory=assignment.memory,
    )


def newest_memory(subscriptions: Iterable[MemberSubscription], generation: int) -> bytes | None:
    """The memory that counts of those that are carried, as it was written."""
    best: tuple[int, int, bytes] | None = None
    for c in subscriptions:
        memory = read_memory(c.memory)
        if memory is None or c.memory is None or memory.generation >= generation:
            continue
        rank = (memory.generation, -c.memory_age_ms, c.memory)  # of one generation the last
        best = rank if best is None else max(best, rank)
    return None if best is None else best[2]
