"""A group as its coordinator knows it: members, sessions, what is awaited, and its record.

**Rules.** Durable state changes only in ``replay``. Members stand in the order of joining, and ties
are broken by it. A deadline is never later than the first thing that ends.

**Strategy.** Facts and what follows from them; :mod:`holdfast.machine.coordinator.coordinator`
takes requests.

References: KIP-62, KIP-345, KIP-394; Kafka's ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.machine.codes import ErrorCode
from holdfast.machine.coordinator.group_log import (
    Append,
    Durable,
    StoredGroup,
    StoredMember,
    group_record,
)
from holdfast.machine.coordinator.group_messages import Answer, CoordinatorOptions, GroupMember
from holdfast.machine.events import JoinAnswered, JoinedMember
from holdfast.machine.states import GroupState

NEVER_MS = 2**62

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
STABLE = GroupState.STABLE


class GroupTable:
    """One group's state and what may be read of it."""

    __slots__ = (
        "_first_wait_until_ms",
        "_floor_ms",
        "_grew",
        "_round_ends_ms",
        "durable",
        "generation",
        "group_id",
        "leader_id",
        "members",
        "next_id",
        "now_ms",
        "options",
        "pending",
        "protocol",
        "protocol_type",
        "sessions",
        "state",
    )

    def __init__(
        self,
        group_id: str,
        options: CoordinatorOptions | None = None,
        *,
        now_ms: int = 0,
        first_id: int = 0,
    ):
        self.group_id = group_id
        self.options = options or CoordinatorOptions()
        self.durable = Durable()
        self.now_ms = now_ms
        self.state = EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, GroupMember] = {}  # in the order of joining
        self.sessions: dict[str, int] = {}  # when each member's ends
        self.pending: dict[str, int] = {}  # ids handed out, until when
        self.next_id = first_id
        self._round_ends_ms: int | None = None
        self._first_wait_until_ms: int | None = None  # a first round only ends by time
        self._floor_ms = NEVER_MS  # nothing ends before this
        self._grew = False  # whether somebody joined since that wait was last extended

    # Durable state

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take over a record that was written."""
        self.durable.replay(key, value)

    def load(self, now_ms: int) -> None:
        """Begin from the replayed log, as after a failover: sessions start anew."""
        self.now_ms = now_ms
        stored = self.durable.group
        if stored is None:
            return
        self.generation, self.protocol_type = stored.generation, stored.protocol_type
        self.protocol, self.leader_id = stored.protocol, stored.leader
        self.members = {
            m.member_id: GroupMember(
                member_id=m.member_id,
                instance_id=m.instance_id,
                client=m.client_id,
                protocol_type=stored.protocol_type,
                protocols=((stored.protocol or "", m.subscription),),
                session_timeout_ms=m.session_timeout_ms,
                rebalance_timeout_ms=m.rebalance_timeout_ms,
                assignment=m.assignment,
                synced=True,
            )
            for m in stored.members
        }
        self.sessions = {m.member_id: now_ms + m.session_timeout_ms for m in stored.members}
        self.state = STABLE if self.members else EMPTY
        self._floor_ms = self._soonest_ms()

    # Time

    @property
    def deadline_ms(self) -> int | None:
        """When to hear of time next, at the latest; nothing may have ended then."""
        return None if self._floor_ms == NEVER_MS else self._floor_ms

    def _soonest_ms(self) -> int:
        sessions = self.sessions
        times = [
            sessions[member_id]
            for member_id, m in self.members.items()
            if m.joining is None and m.syncing is None
        ]
        times += self.pending.values()
        if self._round_ends_ms is not None:
            times.append(self._round_ends_ms)
        return min(times, default=NEVER_MS)

    def _begun_ms(self, member_id: str) -> int:
        """The soonest of the waits that a request may have begun by itself, without a new state."""
        times = [NEVER_MS if self._round_ends_ms is None else self._round_ends_ms]
        times += self.pending.values()
        member = self.members.get(member_id)
        if member is not None and not member.waits:
            times.append(self.sessions[member_id])
        return min(times)

    # Protocols and answers

    def _choose_protocol(self) -> str:
        """The one with most votes among those that all members offer; ties go to the leader's."""
        members = list(self.members.values())
        common = common_protocols(members)
        votes: dict[str, int] = {}
        for member in members:
            first = next(name for name, _ in member.protocols if name in common)
            votes[first] = votes.get(first, 0) + 1
        leader = self.members.get(self.leader_id or "", members[0])
        order = {name: i for i, (name, _) in enumerate(leader.protocols)}
        return min(votes, key=lambda name: (-votes[name], order[name]))

    def _join_answer(self, member: GroupMember, request: int) -> Answer:
        leads = member.member_id == self.leader_id
        everybody = tuple(
            JoinedMember(
                member_id=m.member_id,
                instance_id=m.instance_id,
                metadata=dict(m.protocols)[self.protocol or ""],
            )
            for m in (self.members.values() if leads else ())
        )
        return Answer(
            member.client,
            JoinAnswered(
                request=request,
                generation=self.generation,
                protocol_name=self.protocol or "",
                leader_id=self.leader_id or "",
                member_id=member.member_id,
                members=everybody,
            ),
        )

    # Members

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Who asks, and for which generation."""
        if instance_id is not None:
            known = self._static(instance_id)
            if known is not None and known.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members or self.state is EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def _beat(self, member_id: str) -> ErrorCode:
        self._alive(self.members[member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def _put(self, member: GroupMember) -> None:
        self.members[member.member_id] = member

    def _alive(self, member: GroupMember) -> None:
        self.sessions[member.member_id] = self.now_ms + member.session_timeout_ms

    def _static(self, instance_id: str) -> GroupMember | None:
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def _record(self) -> Append:
        """The group as it stands, as a record."""
        members = tuple(
            StoredMember(
                member_id=m.member_id,
                instance_id=m.instance_id,
                client_id=self.options.client_id(m.client),
                client_host=f"/{self.options.client_id(m.client)}",
                rebalance_timeout_ms=m.rebalance_timeout_ms,
                session_timeout_ms=m.session_timeout_ms,
                subscription=dict(m.protocols).get(self.protocol or "", b""),
                assignment=m.assignment,
            )
            for m in self.members.values()
        )
        stored = StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            timestamp_ms=self.options.wall_ms + self.now_ms,
            members=members,
        )
        return group_record(self.group_id, stored)


def common_protocols(members: Iterable[GroupMember]) -> set[str]:
    """Protocols that every one of these offers."""
    offered = {tuple([name for name, _ in m.protocols]) for m in members}
    return set.intersection(*map(set, offered))
