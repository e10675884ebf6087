"""A leader's round in a checker: every member's claims and assignment.

**Rules.** Messages are read here from their bytes, not by the code of the member under check. A
design's assignment lists changes: the member keeps every resource that it does not name. Any other
assignment is complete: a claimed resource that it does not name is revoked (S7). A claim of this
round's or a later generation is ignored, and asking for its resource is not a revocation.

References: Incremental Cooperative Rebalancing, "Member process"; KIP-429.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.events import AssignmentComputed
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.leader.designs import CooperativeAssignor, EagerAssignor
from holdfast.core.machine.leader.subscriptions import (
    SubscribedMember,
    identity_of,
    subscribed_members,
    with_locations,
)
from holdfast.core.model.partitions import Resource, resources_of, resources_of_topic
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment
from holdfast.core.wire.layouts.container import (
    Leaving,
    MemberSubscription,
    decode_member_assignment,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAssignment:
    """The content of an assignment's bytes."""

    assigned: frozenset[Resource]
    revoked: frozenset[Resource] = frozenset()
    # Whether the bytes say what changes (a design's message), not all that is to be owned.
    incremental: bool = False
    another_round: bool = False  # whether the bytes say that another round is coming at once
    delay_ms: int = 0
    leader_state: bytes | None = None

    def owned_after(self, owned: frozenset[Resource]) -> frozenset[Resource]:
        """Return what a member that owns ``owned`` is to own next, by the document's formula.

        For example, a member owns {0, 1} and reads "assigned 2, revoked 1". A design's member then
        owns ({0, 1} - {1}) + {2} = {0, 2}. Any other member owns {2}.
        """
        return (owned - self.revoked) | self.assigned if self.incremental else self.assigned


NOTHING = SeenAssignment(assigned=frozenset())
"""For a member that the leader left out: it is to own nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One member in one round: its claims, its assignment, and what it owns afterwards."""

    member: SubscribedMember
    claims: frozenset[Resource]
    assignment: SeenAssignment
    revoked: frozenset[Resource]
    after: frozenset[Resource]

    @property
    def name(self) -> str:
        """Member id."""
        return self.member.member_id

    @property
    def gained(self) -> frozenset[Resource]:
        """Resources that are assigned to the member and that it did not claim."""
        return self.assignment.assigned - self.claims

    @property
    def subscription(self) -> MemberSubscription:
        """The member's decoded message."""
        return self.member.subscription

    @property
    def stays(self) -> bool:
        """Whether the member has not announced to leave for good."""
        return self.subscription.leaving is not Leaving.FOR_GOOD


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRound:
    """A whole round, members sorted by id."""

    members: tuple[Seen, ...]
    partitions: dict[str, int]
    generation: int
    leader_id: str
    unbroken: bool = True
    present: frozenset[str] = field(init=False)  # ids of all members
    instances: frozenset[str] = field(init=False)  # group.instance.ids of the static ones
    locations: frozenset[str] = field(init=False)  # identities of members with a location
    claimed: frozenset[Resource] = field(init=False)  # claims of all members
    after: frozenset[Resource] = field(init=False)  # all that members own after the round
    subscribed: frozenset[str] = field(init=False)  # topics of the members that stay

    def __post_init__(self) -> None:
        stay = [s for s in self.members if s.stays]
        topics = {s.subscription.topics for s in stay}
        object.__setattr__(self, "present", frozenset(s.name for s in self.members))
        instances = (s.member.instance_id for s in self.members)
        object.__setattr__(self, "instances", frozenset(i for i in instances if i is not None))
        located = (identity_of(s.member) for s in self.members if s.member.location)
        object.__setattr__(self, "locations", frozenset(located))
        claimed = union(s.claims for s in self.members)
        changed = any(s.after is not s.claims for s in self.members)
        object.__setattr__(self, "claimed", claimed)
        after = union(s.after for s in self.members) if changed else claimed
        object.__setattr__(self, "after", after)
        object.__setattr__(self, "subscribed", frozenset(t for names in topics for t in names))

    def exists(self, resource: Resource) -> bool:
        """Return whether a resource exists and a member that stays subscribes to its topic."""
        topic, partition = resource
        return 0 <= partition < self.partitions.get(topic, 0) and topic in self.subscribed

    def all_resources(self) -> frozenset[Resource]:
        """Return all resources of the topics to which remaining members subscribe."""
        counts = tuple((t, self.partitions.get(t, 0)) for t in sorted(self.subscribed))
        return _every_one(counts)


@lru_cache(maxsize=8)
def _every_one(counts: tuple[tuple[str, int], ...]) -> frozenset[Resource]:
    return frozenset(r for topic, count in counts for r in resources_of_topic(topic, range(count)))


def union(sets: Iterable[frozenset[Resource]]) -> frozenset[Resource]:
    """Return the union of all ``sets``."""
    return frozenset[Resource]().union(*sets)


def see(request: ComputeAssignment, done: AssignmentComputed, assignor: Assignor) -> SeenRound:
    """Read a round from its bytes."""
    given = dict(done.assignments)
    seen = []
    members = subscribed_members(request.members, request.member_id, request.waited_ms)
    for member in with_locations(members):
        data = given.get(member.member_id)
        assignment = NOTHING if data is None else read_assignment(assignor, data)
        listed = resources_of(member.subscription.owned)
        # A claim of a generation that cannot exist yet is ignored, and leaving it out loses no
        # claim.
        impossible = request.unbroken and member.subscription.generation >= request.generation
        claims = frozenset[Resource]() if impossible else listed
        after = assignment.owned_after(claims)
        revoked = assignment.revoked - listed if impossible else assignment.revoked
        seen.append(
            Seen(
                member=member,
                claims=claims,
                assignment=assignment,
                revoked=revoked if assignment.incremental else claims - after,
                after=claims if after == claims else after,
            )
        )
    return SeenRound(
        members=tuple(sorted(seen, key=lambda s: s.name)),
        partitions=dict(request.partitions),
        generation=request.generation,
        leader_id=request.member_id,
        unbroken=request.unbroken,
    )


def read_assignment(assignor: Assignor, data: bytes) -> SeenAssignment:
    """Read an assignment's bytes, by the layout alone.

    Kafka's eager and cooperative assignors send the whole assignment, every other assignor here an
    increment. The member's own reading (``assignor.read``) is what S7 checks, so it is not used.
    """
    if isinstance(assignor, EagerAssignor | CooperativeAssignor):
        return _whole(data)
    return _increment(data)


@lru_cache(maxsize=1024)
def _whole(data: bytes) -> SeenAssignment:
    """Read Kafka's own message: the list of all that is to be owned (KIP-429)."""
    return SeenAssignment(assigned=resources_of(decode_assignment(data).partitions))


@lru_cache(maxsize=1024)
def _increment(data: bytes) -> SeenAssignment:
    """Read a design's message; ``revoked`` null and empty differ in ``another_round``."""
    frame = decode_member_assignment(data)
    return SeenAssignment(
        incremental=True,
        assigned=resources_of(frame.assigned),
        revoked=frozenset() if frame.revoked is None else resources_of(frame.revoked),
        another_round=frame.revoked is not None,
        delay_ms=frame.delay_ms,
        leader_state=frame.leader_state,
    )
