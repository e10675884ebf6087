"""Kafka's classic group coordinator for one group, without input or output.

**How to drive it**: ``step(now_ms, Received(client, request))`` returns answers and records. Write
each :class:`Append` to the log and give it back through ``replay``; answers go out after that.

**Rules.**

- One generation at a time: ``PREPARING_REBALANCE`` gathers joins, ``COMPLETING_REBALANCE`` waits
  for the leader's assignments, ``STABLE`` answers syncs and heartbeats.
- Durable state changes only in ``replay`` (:mod:`holdfast.machine.coordinator.group_log`); what is
  awaited and when it ends lives here and is lost with the coordinator.
- A follower that joins again with the same bytes in ``STABLE`` gets the current generation and no
  new round; a leader's join always starts one.
- A member that waits for an answer is alive; its session runs from the answer on.
- Commits are accepted while ``PREPARING_REBALANCE``, refused with REBALANCE_IN_PROGRESS while
  ``COMPLETING_REBALANCE``. Ownership of partitions is not checked.
- A new generation without some member removes it, unless it is static (KIP-345).

**Strategy.** One method per request; ``_settle`` completes whatever is complete. Ties are broken by
the order of joining, never by a map's.

References: KIP-62, KIP-345, KIP-394 (MEMBER_ID_REQUIRED), KIP-814; KAFKA-9801, KAFKA-12890.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from holdfast.machine.actions import SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.machine.codes import ErrorCode
from holdfast.machine.coordinator.group_log import (
    commit_record,
)
from holdfast.machine.coordinator.group_messages import (
    Answer,
    CommitDone,
    CoordinatorOptions,
    GroupMember,
    Out,
    Outs,
    Received,
    Request,
    Response,
    SendCommit,
)
from holdfast.machine.coordinator.group_table import GroupTable, common_protocols
from holdfast.machine.events import (
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    SyncAnswered,
)
from holdfast.machine.states import GROUP_MEANINGS, GROUP_TRANSITIONS, GroupState

__all__ = [
    "GROUP_MEANINGS",
    "GROUP_TRANSITIONS",
    "Answer",
    "CommitDone",
    "Coordinator",
    "CoordinatorOptions",
    "GroupMember",
    "GroupState",
    "Out",
    "Outs",
    "Received",
    "Request",
    "Response",
    "SendCommit",
]


EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE


class Coordinator(GroupTable):
    """The coordinator of one group: how it takes requests."""

    __slots__ = ()

    # Time and requests

    def step(self, now_ms: int, event: Received | None = None) -> Outs:
        """Move the clock, then take a request.

        Returns
        -------
        tuple of Answer and Append
            In order.

        References
        ----------
        KIP-62; KIP-345; KIP-394.
        """
        self.now_ms = max(self.now_ms, now_ms)
        outs: list[Out] = []
        if self.now_ms >= self._floor_ms:
            if self.now_ms >= self._soonest_ms():
                outs += self._expire()
            self._floor_ms = self._soonest_ms()
        if event is None:
            return tuple(outs)
        request = event.request
        before = self.state, self.generation
        outs += self._take(event.client, request)
        if isinstance(request, SendHeartbeat):
            return tuple(outs)  # it only moves a session's end further away
        outs += self._settle()
        if request.instance_id is not None or before != (self.state, self.generation):
            self._floor_ms = self._soonest_ms()
        else:
            self._floor_ms = min(self._floor_ms, self._begun_ms(request.member_id))
        return tuple(outs)

    def _take(self, client: str, request: Request) -> list[Out]:
        match request:
            case SendJoin():
                return self._join(client, request)
            case SendSync():
                return self._sync(client, request)
            case SendHeartbeat():
                error = self._check(request.member_id, request.instance_id, request.generation)
                if error is ErrorCode.NONE:
                    error = self._beat(request.member_id)
                return [Answer(client, HeartbeatAnswered(request.request, error))]
            case SendLeave():
                return self._leave(client, request)
            case SendCommit():
                return self._commit(client, request)
            case _:
                assert_never(request)

    def _expire(self) -> list[Out]:
        outs: list[Out] = []
        for member_id, until in list(self.pending.items()):
            if self.now_ms >= until:
                del self.pending[member_id]
        for member in list(self.members.values()):
            if not member.waits and self.now_ms >= self.sessions[member.member_id]:
                outs += self._remove(member.member_id)
        if self._round_ends_ms is not None and self.now_ms >= self._round_ends_ms:
            outs += self._round_timed_out()
        return outs + self._settle()

    def _round_timed_out(self) -> list[Out]:
        if self.state is COMPLETING:  # KAFKA-12890: who did not sync in time is removed
            outs: list[Out] = []
            for member in list(self.members.values()):
                if not member.synced and member.syncing is None:
                    outs += self._remove(member.member_id)
            return outs
        limit_ms = self._first_wait_until_ms
        if limit_ms is not None and self._grew and self.now_ms < limit_ms:
            self._grew = False
            self._round_ends_ms = min(self.now_ms + self.options.initial_delay_ms, limit_ms)
            return []
        return self._complete_join()

    # JoinGroup

    def _join(self, client: str, request: SendJoin) -> list[Out]:
        error = self._refuse_join(request)
        if error is not ErrorCode.NONE:
            return [_joined(client, request, error)]
        if request.member_id == "":
            return self._join_unknown(client, request)
        if request.member_id in self.pending:
            del self.pending[request.member_id]
            return self._add(client, request, request.member_id)
        member = self.members.get(request.member_id)
        if member is None or member.instance_id != request.instance_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            if request.instance_id is not None and self._static(request.instance_id) is not None:
                error = ErrorCode.FENCED_INSTANCE_ID
            return [_joined(client, request, error)]
        return self._rejoin(client, request, member)

    def _refuse_join(self, request: SendJoin) -> ErrorCode:
        low, high = self.options.min_session_timeout_ms, self.options.max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        member = self.members.get(request.member_id)
        if member is not None and _offers_the_same(member, request):
            return ErrorCode.NONE  # it fitted the others when it came, and they fitted it since
        others = [m for m in self.members.values() if m.member_id != request.member_id]
        if request.instance_id is not None:
            others = [m for m in others if m.instance_id != request.instance_id]
        if not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if others:
            fits = not common_protocols(others).isdisjoint(name for name, _ in request.protocols)
            if others[0].protocol_type != request.protocol_type or not fits:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id == "" and len(others) >= self.options.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _join_unknown(self, client: str, request: SendJoin) -> list[Out]:
        member_id = f"{client}-{self.next_id:04d}"
        self.next_id += 1
        if request.instance_id is None:
            self.pending[member_id] = self.now_ms + request.session_timeout_ms
            answer = _joined(client, request, ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return [answer]
        old = self._static(request.instance_id)
        if old is None:
            return self._add(client, request, member_id)
        return self._replace_static(client, request, old, member_id)

    def _add(self, client: str, request: SendJoin, member_id: str) -> list[Out]:
        self.protocol_type = request.protocol_type
        self._put(
            GroupMember(
                member_id=member_id,
                instance_id=request.instance_id,
                client=client,
                protocol_type=request.protocol_type,
                protocols=request.protocols,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                joining=request.request,
            )
        )
        self._alive(self.members[member_id])
        if self.leader_id is None:
            self.leader_id = member_id
        if self.state is PREPARING:
            self._grew = True
            return []
        return self._prepare()

    def _rejoin(self, client: str, request: SendJoin, member: GroupMember) -> list[Out]:
        same = member.protocols == request.protocols
        late = self.state is STABLE and same and request.member_id != self.leader_id
        if late or (self.state is COMPLETING and same):
            # A lost answer, or nothing new: the current generation, no round.
            self._put(member._replace(client=client, joining=None))
            return [self._join_answer(member._replace(client=client), request.request)]
        self._put(
            member._replace(
                client=client,
                protocols=request.protocols,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                joining=request.request,
                syncing=None,
            )
        )
        return [] if self.state is PREPARING else self._prepare()

    def _replace_static(
        self, client: str, request: SendJoin, old: GroupMember, member_id: str
    ) -> list[Out]:
        """A static member is back under a new id; its old process is fenced (KIP-345)."""
        outs = self._fence(old)
        slots = [
            (m.member_id, m) if m.member_id != old.member_id else (member_id, old)
            for m in self.members.values()
        ]
        self.members = dict(slots)
        new = old._replace(
            member_id=member_id,
            client=client,
            protocols=request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            joining=None,
            syncing=None,
        )
        was_leader = self.leader_id == old.member_id
        if was_leader:
            self.leader_id = member_id
        self._put(new)
        self.sessions.pop(old.member_id, None)
        self._alive(new)
        if self.state is STABLE and self._choose_protocol() == self.protocol:
            outs.append(self._record())
            answer = self._join_answer(self.members[member_id], request.request)
            assert isinstance(answer.response, JoinAnswered)
            skip = replace(answer.response, skip_assignment=was_leader)
            return [*outs, Answer(client, skip)]
        self._put(new._replace(joining=request.request, synced=False))
        return outs if self.state is PREPARING else [*outs, *self._prepare()]

    def _fence(self, old: GroupMember) -> list[Out]:
        outs: list[Out] = []
        error = ErrorCode.FENCED_INSTANCE_ID
        if old.joining is not None:
            outs.append(Answer(old.client, JoinAnswered(request=old.joining, error=error)))
        if old.syncing is not None:
            outs.append(Answer(old.client, SyncAnswered(request=old.syncing, error=error)))
        return outs

    # A round

    def _prepare(self) -> list[Out]:
        """Begin a round: syncs that wait are refused, joins are gathered."""
        outs: list[Out] = []
        for member in list(self.members.values()):
            if member.syncing is not None:
                error = ErrorCode.REBALANCE_IN_PROGRESS
                outs.append(
                    Answer(member.client, SyncAnswered(request=member.syncing, error=error))
                )
                self._alive(member)
            assignment = member.assignment if self.state is not COMPLETING else b""
            self._put(member._replace(syncing=None, synced=False, assignment=assignment))
        timeout_ms = max(m.rebalance_timeout_ms for m in self.members.values())
        self._round_ends_ms = self.now_ms + timeout_ms
        self._first_wait_until_ms, self._grew = None, False
        if self.state is EMPTY and self.options.initial_delay_ms > 0:
            self._first_wait_until_ms = self._round_ends_ms
            self._round_ends_ms = self.now_ms + min(self.options.initial_delay_ms, timeout_ms)
        self.state = PREPARING
        return outs

    def _settle(self) -> list[Out]:
        """Complete a round in which everybody has joined."""
        if self.state is not PREPARING:
            return []
        if not self.members:
            return self._complete_join()
        if self._first_wait_until_ms is not None or self.pending:
            return []
        if all(m.joining is not None for m in self.members.values()):
            return self._complete_join()
        return []

    def _complete_join(self) -> list[Out]:
        """Begin the next generation with whoever has joined; static members stay (KIP-345)."""
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                del self.members[member.member_id], self.sessions[member.member_id]
        self._first_wait_until_ms = None
        self.generation += 1
        joined = [m for m in self.members.values() if m.joining is not None]
        if not self.members:
            self.state, self._round_ends_ms = EMPTY, None
            self.protocol = self.leader_id = None
            return [self._record()]
        if not joined:  # only static members, all away: wait for them once more
            timeout_ms = max(m.rebalance_timeout_ms for m in self.members.values())
            self.generation -= 1
            self._round_ends_ms = self.now_ms + timeout_ms
            return []
        if self.leader_id not in {m.member_id for m in joined}:
            self.leader_id = joined[0].member_id
        self.protocol = self._choose_protocol()
        self.state = COMPLETING
        self._round_ends_ms = self.now_ms + max(m.rebalance_timeout_ms for m in joined)
        outs: list[Out] = []
        for member in joined:
            assert member.joining is not None
            ready = member._replace(joining=None)
            self._put(ready)
            self._alive(ready)
            outs.append(self._join_answer(ready, member.joining))
        return outs

    # SyncGroup

    def _sync(self, client: str, request: SendSync) -> list[Out]:
        error = self._check(request.member_id, request.instance_id, request.generation)
        if error is ErrorCode.NONE and request.protocol_name != self.protocol:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is ErrorCode.NONE and self.state is PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            return [Answer(client, SyncAnswered(request=request.request, error=error))]
        member = self.members[request.member_id]._replace(
            client=client, syncing=request.request, synced=True
        )
        self._put(member)
        self._alive(member)
        if self.state is STABLE:
            return self._answer_syncs((member,))
        if request.member_id != self.leader_id:
            return []
        given = dict(request.assignments)
        for each in list(self.members.values()):
            self._put(each._replace(assignment=given.get(each.member_id, b"")))
        self.state, self._round_ends_ms = STABLE, None
        return [self._record(), *self._answer_syncs(tuple(self.members.values()))]

    def _answer_syncs(self, members: tuple[GroupMember, ...]) -> list[Out]:
        outs: list[Out] = []
        for member in members:
            if member.syncing is not None:
                self._put(member._replace(syncing=None))
                self._alive(member)
                response = SyncAnswered(request=member.syncing, assignment=member.assignment)
                outs.append(Answer(member.client, response))
        return outs

    # Heartbeat, LeaveGroup, OffsetCommit

    def _leave(self, client: str, request: SendLeave) -> list[Out]:
        self.pending.pop(request.member_id, None)
        member = self.members.get(request.member_id)
        if member is None and request.instance_id is not None:
            error = ErrorCode.FENCED_INSTANCE_ID
            if self._static(request.instance_id) is None:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            return [Answer(client, LeaveAnswered(request.request, error))]
        outs: list[Out] = [Answer(client, LeaveAnswered(request.request))]
        return outs if member is None else outs + self._remove(request.member_id)

    def _remove(self, member_id: str) -> list[Out]:
        member = self.members.pop(member_id)
        self.sessions.pop(member_id, None)
        outs: list[Out] = []
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if member.joining is not None:
            outs.append(Answer(member.client, JoinAnswered(request=member.joining, error=error)))
        if member.syncing is not None:
            outs.append(Answer(member.client, SyncAnswered(request=member.syncing, error=error)))
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        if self.state is PREPARING:
            return outs
        if self.members:
            return outs + self._prepare()
        self.state = PREPARING
        return outs + self._complete_join()

    def _commit(self, client: str, request: SendCommit) -> list[Out]:
        error = ErrorCode.NONE
        if self.state is not EMPTY or request.generation >= 0:
            error = self._check(request.member_id, request.instance_id, request.generation)
        if error is ErrorCode.NONE and self.state is COMPLETING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        outs: list[Out] = []
        if error is ErrorCode.NONE:
            wall_ms = self.options.wall_ms + self.now_ms
            outs += [
                commit_record(self.group_id, topic, partition, offset, wall_ms)
                for (topic, partition), offset in request.offsets
            ]
            if request.member_id in self.members:
                self._beat(request.member_id)
        return [*outs, Answer(client, CommitDone(request.request, error))]


def _offers_the_same(member: GroupMember, request: SendJoin) -> bool:
    """Whether a member joins again as what it is."""
    if (member.instance_id, member.protocol_type) != (request.instance_id, request.protocol_type):
        return False
    return [name for name, _ in member.protocols] == [name for name, _ in request.protocols]


def _joined(
    client: str, request: SendJoin, error: ErrorCode, member_id: str | None = None
) -> Answer:
    given = request.member_id if member_id is None else member_id
    return Answer(client, JoinAnswered(request=request.request, error=error, member_id=given))
