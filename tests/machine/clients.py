"""Clients of a coordinator, played in tests."""

from __future__ import annotations

from holdfast.core.machine.actions import SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.coordinator.coordinator import Coordinator
from holdfast.core.machine.coordinator.group import (
    Append,
    CoordinatorOptions,
    Received,
    SendCommit,
    SendResponse,
)
from holdfast.core.machine.events import (
    CommitAnswered,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
)
from holdfast.core.machine.states import GroupState

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE
NONE = ErrorCode.NONE
SESSION_MS, REBALANCE_MS = 10_000, 60_000


class Group:
    """Plays clients against one coordinator and keeps what each was answered."""

    def __init__(self, *, initial_delay_ms: int = 0, **options):
        self.group = Coordinator(
            "g", CoordinatorOptions(initial_delay_ms=initial_delay_ms, **options)
        )
        self.now_ms = 0
        self.request = 0
        self.answers: dict[str, list] = {}
        self.records: list[Append] = []

    def __call__(self, client: str | None = None, request=None, *, after_ms: int = 0):
        """Send a request (or only let time pass); returns what this client was answered now."""
        self.now_ms += after_ms
        event = None if client is None else Received(client, request)
        outs = self.group.step(self.now_ms, event)
        fresh: list = []
        for out in outs:
            if isinstance(out, Append):
                self.records.append(out)
                self.group.replay(out.key, out.value)
            else:
                assert isinstance(out, SendResponse)
                self.answers.setdefault(out.client, []).append(out.response)
                fresh += [out.response] if out.client == client else []
        return fresh

    def join(self, client: str, member_id: str = "", *, protocol_names=("range",), **fields):
        self.request += 1
        metadata = fields.pop("metadata", b"meta")
        values = {
            "request": self.request,
            "timeout_ms": 65_000,
            "member_id": member_id,
            "instance_id": None,
            "protocol_type": "consumer",
            "protocols": tuple((name, metadata + name.encode()) for name in protocol_names),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "reason": "",
        }
        return self(client, SendJoin(**(values | fields)))

    def enter(self, client: str, **fields) -> str:
        """A first join with the id that the coordinator asks for; returns the id."""
        (first,) = self.join(client, **fields)
        assert first.error == ErrorCode.MEMBER_ID_REQUIRED
        self.join(client, first.member_id, **fields)
        return first.member_id

    def sync(self, client: str, member_id: str, generation: int, given=(), **fields):
        self.request += 1
        values = {
            "request": self.request,
            "timeout_ms": 65_000,
            "generation": generation,
            "member_id": member_id,
            "instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": tuple(given),
        }
        return self(client, SendSync(**(values | fields)))

    def beat(self, client: str, member_id: str, generation: int, *, after_ms=0, instance_id=None):
        self.request += 1
        request = SendHeartbeat(
            request=self.request,
            timeout_ms=1_000,
            generation=generation,
            member_id=member_id,
            instance_id=instance_id,
        )
        (answer,) = self(client, request, after_ms=after_ms)
        assert isinstance(answer, HeartbeatAnswered)
        return answer.error

    def leave(self, client: str, member_id: str, instance_id=None):
        self.request += 1
        request = SendLeave(
            request=self.request,
            timeout_ms=1_000,
            member_id=member_id,
            instance_id=instance_id,
            reason="",
        )
        answer = self(client, request)[0]
        assert isinstance(answer, LeaveAnswered)
        return answer.error

    def commit(self, client: str, member_id: str, generation: int, offset: int = 5, **fields):
        self.request += 1
        values = {
            "request": self.request,
            "generation": generation,
            "member_id": member_id,
            "instance_id": None,
            "offsets": ((("t", 0), offset),),
        }
        (answer,) = self(client, SendCommit(**(values | fields)))
        assert isinstance(answer, CommitAnswered)
        return answer.error

    def last(self, client: str, kind=JoinAnswered):
        return next(a for a in reversed(self.answers[client]) if isinstance(a, kind))

    def static_pair(self, **fields) -> list[str]:
        """Clients a and b in one stable generation, by the instance ids i and j; a leads."""
        self.join("a", instance_id="i", **fields)
        a = self.last("a").member_id
        self.join("b", instance_id="j", **fields)
        self.join("a", a, instance_id="i", **fields)
        b = self.last("b").member_id
        generation, name = self.group.generation, self.group.data.protocol
        self.sync("b", b, generation, instance_id="j", protocol_name=name)
        given = [(a, b"I"), (b, b"J")]
        self.sync("a", a, generation, given, instance_id="i", protocol_name=name)
        assert self.group.state is STABLE
        return [a, b]

    def stable(self, *clients: str, **fields) -> list[str]:
        """All of these in one stable generation; the first leads. Returns their ids."""
        ids = [self.enter(clients[0], **fields)]
        for client in clients[1:]:
            ids.append(self.enter(client, **fields))
        for client, member_id in zip(clients, ids, strict=True):
            if len(clients) > 1 and self.group.members[member_id].joining is None:
                self.join(client, member_id, **fields)
        name = self.last(clients[0]).protocol_name
        generation = self.group.generation
        for client, member_id in zip(clients[1:], ids[1:], strict=True):
            self.sync(client, member_id, generation, protocol_name=name)
        given = [(m, b"for " + m.encode()) for m in ids]
        self.sync(clients[0], ids[0], generation, given, protocol_name=name)
        assert self.group.state is STABLE
        return ids
