"""The assignors that members support: eager ones, Kafka's cooperative one, Designs I to III.

**Rules.**

- A member with an :class:`EagerAssignor` (``range``, ``roundrobin``, ``sticky``, ``lag``, ...)
  revokes everything before it joins, so its subscription lists nothing as owned. What it owned
  before is in the user data, if the assignor uses claims.
- A member with the :class:`CooperativeAssignor`, Kafka's ``cooperative-sticky``, keeps what it owns
  while it joins. What its assignment does not list, it revokes (KIP-429). In the eager half of an
  upgrade its subscription lists nothing as owned.
- A member with a :class:`DesignAssignor` keeps what it owns until an assignment revokes it:
  next = (owned - revoked) + assigned.
- If a round of the last two kinds takes partitions from some members, the assignment of every other
  member has an empty list of revoked partitions instead of none. All members then rejoin at once,
  without waiting for a heartbeat.
- A leader that cannot plan assigns to each member what it claims (:meth:`Assignor.stay`).

**Strategy.** The steps of a round, from JoinGroup's bytes to the assignment:

1. :func:`~holdfast.core.machine.leader.leader_round.named_in_round` returns the topics to look up,
   and reads nothing else.
2. :func:`read_round` has the partitions that exist. It trims messages that are larger than an
   honest one, reads every subscription once, and returns them as a value, a :class:`LeaderRound`.
3. :func:`compute` has the chosen assignor plan that round (``lead``). If the plan fails, members
   keep what they claim (``stay``).

A caller that knows all partitions calls :func:`compute` alone. ``lead`` is a pure function from
subscriptions to assignments; assignors for stock clients use it too. The modules that only a leader
needs, and NumPy, are imported when a member leads for the first time. Most members never lead, and
creating a consumer does not wait for the import.

References: Incremental Cooperative Rebalancing, Designs I, II, III; KIP-429; KIP-726.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.core.assignors.registry import AssignorInfo, find
from holdfast.core.machine.actions import ComputeAssignment, LedRound
from holdfast.core.machine.events import AssignmentComputed, JoinedMember
from holdfast.core.machine.leader.assignor_protocol import (
    Assignor,
    Lags,
    LeaderRound,
    MemberView,
    Racks,
    RebalanceProtocol,
    ReceivedAssignment,
)
from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import DESIGN_NAMES, INT32_MAX
from holdfast.core.model.partitions import grouped, resources_of
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    StickyUserData,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
)
from holdfast.core.wire.layouts.container import (
    ASSIGNMENT_MAGIC,
    FailedPartitions,
    MemberAssignment,
    MemberSubscription,
    decode_member_assignment,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.state_shard import holds_times
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.core.machine.leader.leader_round import Member
    from holdfast.core.machine.leader.planner import PlannedRound
    from holdfast.core.machine.leader.subscriptions import SubscribedMember

EAGER = frozenset({RebalanceProtocol.EAGER})
COOPERATIVE = frozenset({RebalanceProtocol.COOPERATIVE})

NONCES = 128
"""The number of joins that differ by a nonce of one byte; two in a row have to differ."""


def read_round(assignors: Sequence[Assignor], request: ComputeAssignment) -> LeaderRound:
    """Read the subscriptions of a round whose request has the partitions that exist.

    References: KIP-429, "Consumer leader"; KIP-881 (racks).
    """
    from holdfast.core.machine.leader.leader_round import begin_round, read_members

    leader_round, chosen = begin_round(request), _chosen(assignors, request)
    if isinstance(chosen, DesignAssignor):
        return replace(leader_round, said=leader_round.subscribed_members())
    own = chosen.own if isinstance(chosen, EagerAssignor | CooperativeAssignor) else None
    read = read_members(
        own or request.protocol_name, _triples(leader_round.members), leader_round.partitions
    )
    return replace(leader_round, read=read)


def compute(
    assignors: Sequence[Assignor],
    request: ComputeAssignment,
    *,
    lags: Lags | None = None,
    racks: Racks | None = None,
    leader_round: LeaderRound | None = None,
) -> AssignmentComputed:
    """Plan the round of a ``ComputeAssignment``.

    Parameters
    ----------
    assignors : sequence of Assignor
        The leader's own; the chosen one is among them.
    request : ComputeAssignment
        The member machine's action.
    lags, racks : mapping, optional
        Lags and racks that the caller knows, by topic.
    leader_round : LeaderRound, optional
        This request, where :func:`read_round` has read it.

    Returns
    -------
    AssignmentComputed
        If the plan could not be computed, ``failure`` is set and all members keep their claims.
    """
    try:
        ready = replace(leader_round or read_round(assignors, request), lags=lags, racks=racks)
        plan = _chosen(assignors, request).lead(ready)
    except Exception as error:  # whatever is wrong with the plan, the group must not hang
        return stay(assignors, request, error)
    return AssignmentComputed(
        request.token,
        tuple(sorted(plan.items())),
        notes=tuple(ready.notes),
        waiting=tuple(ready.waiting),
        reassigned=tuple(ready.reassigned),
    )


def stay(
    assignors: Sequence[Assignor], request: ComputeAssignment, error: BaseException
) -> AssignmentComputed:
    """End the round of a leader that cannot plan: all members keep their claims.

    References: KAFKA-13406 (repair, do not refuse).
    """
    from holdfast.core.machine.leader.leader_round import begin_round

    plan = _chosen(assignors, request).stay(begin_round(request))
    failure = f"{type(error).__name__}: {error}"
    return AssignmentComputed(request.token, tuple(sorted(plan.items())), failure=failure)


def led_round(request: ComputeAssignment, done: AssignmentComputed) -> LedRound:
    """Return what the leader keeps of a round for the next round that it leads."""
    from holdfast.core.machine.leader.leader_round import just_before

    before = just_before(request)
    settled = before is not None and before.settled and _same_members(before, request.members)
    if not settled and done.failure is None and request.protocol_name in DESIGN_NAMES.values():
        settled = any(_is_at_rest(data) for _, data in done.assignments)
    return LedRound(
        settled=settled,
        generation=request.generation,
        protocol_name=request.protocol_name,
        member_ids=frozenset(m.member_id for m in request.members),
    )


def _same_members(led: LedRound, members: Sequence[JoinedMember]) -> bool:
    return led.member_ids == {m.member_id for m in members}


def _is_at_rest(assignment: bytes) -> bool:
    """Return whether an assignment announces no other round."""
    message = decode_member_assignment(assignment)
    return message.revoked is None and not message.delay_ms


def _chosen(assignors: Sequence[Assignor], request: ComputeAssignment) -> Assignor:
    return next(a for a in assignors if a.name == request.protocol_name)


def _triples(members: Sequence[JoinedMember]) -> list[Member]:
    return [(m.member_id, m.instance_id, m.metadata) for m in members]


@dataclass(frozen=True, slots=True)
class EagerAssignor:
    """An eager assignor of the registry, or of the user, in Kafka's bytes."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rebalance_protocols: frozenset[RebalanceProtocol] = EAGER
    own: AssignorInfo | None = None  # the row of a user's own assignor

    @property
    def row(self) -> AssignorInfo:
        """The assignor's traits."""
        return self.own or find(self.name)

    def __post_init__(self) -> None:
        if self.row.cooperative:
            raise ConfigError(f"{self.name} is cooperative; expected an eager assignor")

    def subscribe(self, view: MemberView) -> bytes:
        """Return the topics and, if the assignor uses claims, what was owned before (KIP-54)."""
        user_data = None
        if self.row.uses_claims:
            claims = StickyUserData(partitions=grouped(view.previous), generation=view.generation)
            user_data = encode_sticky_user_data(claims)
        return encode_subscription(
            Subscription(version=3, topics=view.topics, user_data=user_data, rack=view.rack)
        )

    def read(self, assignment: bytes) -> ReceivedAssignment:
        """Read all partitions that the member shall own."""
        return ReceivedAssignment(assigned=resources_of(decode_assignment(assignment).partitions))

    def lead(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Return the assignments of the registry's assignor, bytes to bytes."""
        return _assigned(self, leader_round)

    def stay(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Assign by range: members revoked everything before they joined, so none keeps any."""
        from holdfast.core.machine.leader.leader_round import perform_assignment

        members = [(m.member_id, None, m.metadata) for m in leader_round.members]
        return perform_assignment("range", members, leader_round.partitions)


@dataclass(frozen=True, slots=True)
class CooperativeAssignor:
    """Kafka's ``cooperative-sticky``: Design I inside the standard protocol.

    Java members read the same bytes and skip the fields that only holdfast reads. Another
    cooperative assignor, also a user's own, uses the same bytes under its own name.
    """

    name: str = "cooperative-sticky"
    options: Mapping[str, Any] = field(default_factory=dict)
    rebalance_protocols: frozenset[RebalanceProtocol] = EAGER | COOPERATIVE
    own: AssignorInfo | None = None

    @property
    def row(self) -> AssignorInfo:
        """The assignor's traits."""
        return self.own or find(self.name)

    def subscribe(self, view: MemberView) -> bytes:
        """Return a subscription v3 with owned, generation and rack, and Java's user data."""
        return encode_subscription(
            Subscription(
                version=3,
                topics=view.topics,
                user_data=encode_cooperative_user_data(view.generation),
                owned=grouped(view.owned),
                generation=view.generation,
                rack=view.rack,
            )
        )

    def read(self, assignment: bytes) -> ReceivedAssignment:
        """Read all partitions that the member shall own: absence revokes.

        A frame of holdfast announces another round.
        """
        message = decode_assignment(assignment)
        again = False
        if message.user_data and message.user_data.startswith(ASSIGNMENT_MAGIC):
            again = decode_member_assignment(assignment).revoked is not None
        return ReceivedAssignment(assigned=resources_of(message.partitions), again=again)

    def lead(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Return the target without pending revocations; if there are any, all rejoin at once."""
        return _assigned(self, leader_round, rejoin=True)

    def stay(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Return what each member claims and no other member claims."""
        from holdfast.core.machine.leader.subscriptions import undisputed

        members = leader_round.subscribed_members()
        return {
            member_id: encode_assignment(AssignmentMessage(partitions=own, user_data=None))
            for member_id, own in undisputed(members, leader_round.first_impossible).items()
        }


def _assigned(
    assignor: EagerAssignor | CooperativeAssignor,
    leader_round: LeaderRound,
    *,
    rejoin: bool = False,
) -> dict[str, bytes]:
    """Return the assignments of the registry's assignor, bytes to bytes."""
    from holdfast.core.machine.leader.leader_round import assign_group, read_group, read_members

    row, partitions = assignor.row, leader_round.partitions
    read = leader_round.read or read_members(row, _triples(leader_round.members), partitions)
    group = read_group(
        row,
        read,
        partitions,
        lags=leader_round.lags,
        racks=leader_round.racks,
        generation=leader_round.first_impossible,
    )
    return assign_group(
        group, row, leader_round.notes, table=read.table, rejoin=rejoin, **assignor.options
    )


def _nothing() -> None:
    """Return None: no data beside those of the protocol."""


def why_no_target(policy: Policy) -> str | None:
    """Return why a policy's assignor cannot compute its design's targets; None if it can."""
    info, design = find(policy.assignor), DESIGN_NAMES[policy.design]
    if info.uses_lags and not info.uses_claims:
        return (
            f"under {design}, {info.name} would move partitions in every round, because lags are "
            "different in every round; take lag-sticky, which moves nothing without a reason, or "
            "holdfast.policy=eager"
        )
    if policy.carries_state and not info.uses_claims:
        return (
            f"under {design}, {info.name} ignores what members claim, so a member that comes back "
            "would not get its own partitions; take cooperative-sticky, or name no assignor"
        )
    return None


@dataclass(frozen=True, slots=True)
class DesignAssignor:
    """Designs I, II and III in holdfast's container."""

    policy: Policy  # the design and its settings
    rebalance_protocols: frozenset[RebalanceProtocol] = EAGER | COOPERATIVE
    # Returns the assignor's data of a subscription: a worker's version of its resources.
    report: Callable[[], bytes | None] = _nothing
    # Returns the resources that have failed at a worker, for a subscription.
    failed: Callable[[], tuple[FailedPartitions, ...]] = tuple

    def __post_init__(self) -> None:
        if reason := why_no_target(self.policy):
            raise ConfigError(reason)

    @property
    def name(self) -> str:
        """Name of the protocol; groups of different designs do not mix."""
        return DESIGN_NAMES[self.policy.design]

    def subscribe(self, view: MemberView) -> bytes:
        """Return topics and claims, the nonce, and the member's state shard as received."""
        # An age differs from one join to the next, so it is sent only where a shard has times:
        # equal bytes start no round.
        timed = view.leader_state is not None and holds_times(view.leader_state)
        return encode_member_subscription(
            MemberSubscription(
                topics=view.topics,
                owned=grouped(view.owned),
                generation=view.generation,
                rack=view.rack,
                nonce=view.nonce % NONCES,
                leaving=view.leaving,
                state_age_ms=min(view.state_age_ms, INT32_MAX) if timed else 0,
                already_revoked=grouped(view.already_revoked),
                failed=self.failed(),
                leader_state=view.leader_state,
                assignor_data=self.report(),
                location=view.location if self.policy.carries_state else b"",
            )
        )

    def read(self, assignment: bytes) -> ReceivedAssignment:
        """Read what is assigned and revoked: next = (owned - revoked) + assigned."""
        message = decode_member_assignment(assignment)
        revoked = resources_of(message.revoked or ())
        assigned = resources_of(message.assigned)
        return ReceivedAssignment(
            assigned=assigned - revoked if revoked else assigned,
            revoked=revoked,
            absence_revokes=False,
            delay_ms=message.delay_ms,
            again=message.revoked is not None,
            leader_state=message.leader_state,
            planned=message.planned,
        )

    def lead(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Plan one round; see :func:`holdfast.core.machine.leader.leader.plan_round`."""
        from holdfast.core.machine.leader.leader import plan_round

        members = leader_round.subscribed_members()
        led = leader_round.led
        done = plan_round(
            self.policy,
            members,
            leader_round.partitions,
            newer=leader_round.newer,
            generation=leader_round.generation,
            leader_id=leader_round.leader_id,
            lags=leader_round.lags,
            racks=leader_round.racks,
            unbroken=leader_round.unbroken,
            same_members=led is not None
            and led.settled
            and _same_members(led, leader_round.members),
        )
        leader_round.notes.extend(done.notes)
        leader_round.waiting.extend(done.waiting)
        leader_round.reassigned.extend(done.reassigned)
        return self._written(leader_round, members, done)

    def _written(
        self, leader_round: LeaderRound, members: Sequence[SubscribedMember], plan: PlannedRound
    ) -> dict[str, bytes]:
        """Return the assignments as bytes."""
        from holdfast.core.machine.leader.ring import LeftOut, fitting_shards
        from holdfast.core.machine.leader.subscriptions import planned_counts

        planned = planned_counts(leader_round.partitions, members, leader_round.leader_id)
        left_out, given = fitting_shards(
            self.policy,
            members,
            plan.assignments,
            plan.leader_state,
            planned_bytes=len(planned or b""),
        )
        # The last part that a record can do without: members know what they keep.
        new_only = self.policy.omit_unchanged or left_out >= LeftOut.UNCHANGED
        result = {}
        for m in members:
            own = plan.assignments[m.member_id]
            # A static member that is back is answered with its stored assignment: it needs all of
            # it.
            listed = own.gained if new_only and m.instance_id is None else own.listed
            result[m.member_id] = encode_member_assignment(
                MemberAssignment(
                    assigned=listed,
                    revoked=own.revoked if own.revoked or plan.again else None,
                    delay_ms=plan.delay_ms,
                    leader_state=given.get(m.member_id) or None,
                    planned=planned if m.member_id == leader_round.leader_id else None,
                )
            )
        return result

    def stay(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Assign and revoke nothing; the leader state is passed on, brought up to date."""
        from holdfast.core.machine.leader.leader import keep_round

        members = leader_round.subscribed_members()
        plan = keep_round(
            self.policy,
            members,
            generation=leader_round.generation,
            leader_id=leader_round.leader_id,
            unbroken=leader_round.unbroken,
        )
        return self._written(leader_round, members, plan)
