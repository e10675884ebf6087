"""A bare connection to a broker: requests of Kafka's protocol out, answers in order, no client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.parser import KafkaProtocol

from holdfast.core.machine.actions import SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.core.machine.codes import COORDINATOR_GONE, ErrorCode
from holdfast.core.machine.events import (
    HeartbeatAnswered,
    JoinAnswered,
    JoinedMember,
    LeaveAnswered,
    SyncAnswered,
)

Answered = HeartbeatAnswered | JoinAnswered | LeaveAnswered | SyncAnswered
WAITS = {*COORDINATOR_GONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""What a broker answers until it has read its log."""


class RawConnection(asyncio.Protocol):
    """One connection; several questions may be on their way at once."""

    def __init__(self, client_id: str):
        self._codec = KafkaProtocol(client_id=client_id)
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def to(cls, bootstrap: str, client_id: str) -> RawConnection:
        host, port = bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: cls(client_id), host, int(port))
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for number, answer in self._codec.receive_bytes(data):
            question = self._open.pop(number)
            if not question.done():
                question.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        for question in self._open.values():
            if not question.done():  # nobody waits for one that is cancelled
                question.set_exception(error or ConnectionError("the connection is closed"))
        self._open.clear()

    def ask(self, request: Any) -> asyncio.Future[Any]:
        """Send a request, a class with its version applied; the future takes the answer."""
        assert self._transport is not None
        number = self._codec.send_request(request)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        self._transport.write(self._codec.send_bytes())
        return answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def find(self, group: str) -> str:
        """``host:port`` of the group's coordinator; the first time the broker makes its topic."""
        while True:
            answer = await self.ask(FindCoordinatorRequest[4](key_type=0, coordinator_keys=[group]))
            found = answer.coordinators[0]
            if found.error_code == 0:
                return f"{found.host}:{found.port}"
            await asyncio.sleep(0.1)

    # What a member asks, as its machine says it

    async def send(
        self, group: str, action: SendJoin | SendSync | SendHeartbeat | SendLeave
    ) -> Answered:
        """Send the request of an action; returns the event that answers it."""
        match action:
            case SendJoin():
                return await self._join(group, action)
            case SendSync():
                return await self._sync(group, action)
            case SendHeartbeat():
                request = HeartbeatRequest[4](**_identity(group, action))
                answer = await self.ask(request)
                return HeartbeatAnswered(action.request, answer.error_code)
            case SendLeave():
                who = LeaveGroupRequest.MemberIdentity(
                    member_id=action.member_id,
                    group_instance_id=action.instance_id,
                    reason=action.reason,
                )
                answer = await self.ask(LeaveGroupRequest[5](group_id=group, members=[who]))
                return LeaveAnswered(action.request, answer.error_code)

    async def _join(self, group: str, action: SendJoin) -> JoinAnswered:
        answer = await self.ask(
            JoinGroupRequest[9](
                group_id=group,
                session_timeout_ms=action.session_timeout_ms,
                rebalance_timeout_ms=action.rebalance_timeout_ms,
                member_id=action.member_id,
                group_instance_id=action.instance_id,
                protocol_type=action.protocol_type,
                protocols=list(action.protocols),
                reason=action.reason,
            )
        )
        return JoinAnswered(
            request=action.request,
            error=answer.error_code,
            generation=answer.generation_id,
            protocol_name=answer.protocol_name or "",
            leader_id=answer.leader or "",
            member_id=answer.member_id or "",
            members=tuple(
                JoinedMember(
                    member_id=m.member_id,
                    instance_id=m.group_instance_id,
                    metadata=bytes(m.metadata),
                )
                for m in answer.members
            ),
            skip_assignment=bool(answer.skip_assignment),
        )

    async def _sync(self, group: str, action: SendSync) -> SyncAnswered:
        answer = await self.ask(
            SyncGroupRequest[5](
                **_identity(group, action),
                protocol_type=action.protocol_type,
                protocol_name=action.protocol_name,
                assignments=list(action.assignments),
            )
        )
        return SyncAnswered(
            request=action.request,
            error=answer.error_code,
            assignment=bytes(answer.assignment or b""),
        )


def _identity(group: str, action: SendSync | SendHeartbeat) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": action.generation,
        "member_id": action.member_id,
        "group_instance_id": action.instance_id,
    }


class ManualMember:
    """One member, played by hand: what it asks, under the id that the broker gave it."""

    def __init__(
        self,
        connection: RawConnection,
        group: str,
        protocol: str = "range",
        *,
        instance_id: str | None = None,
        session_ms: int = 30_000,
        rebalance_ms: int = 30_000,
    ):
        self.connection, self.group, self.protocol = connection, group, protocol
        self.instance_id, self.member_id = instance_id, ""
        self._times = {"session_timeout_ms": session_ms, "rebalance_timeout_ms": rebalance_ms}

    def _own(self) -> dict[str, Any]:
        own = {"member_id": self.member_id, "instance_id": self.instance_id}
        return {"request": 0, "timeout_ms": 0, **own}

    async def join(self, metadata: bytes) -> JoinAnswered:
        """Join with these bytes as subscription, once the broker has read its log."""
        while True:
            action = SendJoin(
                **self._own(),
                protocol_type="consumer",
                protocols=((self.protocol, metadata),),
                **self._times,
                reason="test",
            )
            answer = await self.connection.send(self.group, action)
            assert isinstance(answer, JoinAnswered)
            if answer.error in WAITS:
                await asyncio.sleep(0.1)
                continue
            self.member_id = answer.member_id
            if answer.error != ErrorCode.MEMBER_ID_REQUIRED:
                return answer

    async def sync(self, generation: int, assignments: Iterable[tuple[str, bytes]]) -> SyncAnswered:
        action = SendSync(
            **self._own(),
            generation=generation,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=tuple(assignments),
        )
        answer = await self.connection.send(self.group, action)
        assert isinstance(answer, SyncAnswered)
        return answer

    async def beat(self, generation: int, **own: str) -> int:
        action = SendHeartbeat(**{**self._own(), **own}, generation=generation)
        return (await self.connection.send(self.group, action)).error

    async def leave(self, connection: RawConnection) -> None:
        """Leave over a connection on which no join of this member waits."""
        await connection.send(self.group, SendLeave(**self._own(), reason="test"))
