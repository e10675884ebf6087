"""A member that joins with the same bytes every time, and writes down what the coordinator says.

It reads nothing. When it leads, it gives what ``lead`` says, by default nobody anything.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast.cluster.connections import Connections
from holdfast.cluster.settings import Settings
from holdfast.core.machine import actions, events
from holdfast.core.machine.codes import ErrorCode
from holdfast.members.member.link import GroupLink

TIMEOUT_MS = 60_000
BEAT_S = 0.1

Lead = Callable[[events.JoinAnswered], tuple[tuple[str, bytes], ...]]
"""What a leader answers to the members of a round: the bytes of each one's assignment."""


def give_nothing(joined: events.JoinAnswered) -> tuple[tuple[str, bytes], ...]:
    """Assignments of a leader that does not know its work."""
    del joined
    return ()


class _EndedError(Exception):
    """It shall leave, and waits for no other answer."""


class RawMember:
    """One member on a thread of its own.

    Parameters
    ----------
    protocol : str
        Name of the assignor that it offers.
    metadata : bytes
        Its subscription, whatever these bytes are.
    lead : callable
        Called where it leads; it may take its time.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        protocol: str,
        metadata: bytes,
        lead: Lead = give_nothing,
    ):
        self._settings = Settings.parse({"bootstrap.servers": bootstrap, "group.id": group})
        self._lead = lead
        self._protocols = ((protocol, metadata),)
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._end = threading.Event()
        self._again = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._request = 0
        self.member_id = ""
        self.generations: list[int] = []
        self.sync_errors: list[int] = []
        self.assignment = b""
        self.has_led = False
        self.failure: BaseException | None = None

    def __enter__(self) -> RawMember:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def rejoin(self) -> None:
        """Join once more, for no reason."""
        self._again.set()

    def leave(self) -> None:
        """Leave the group; safe to call twice."""
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        connections = Connections(self._settings)
        connections.open()
        self._link = GroupLink(connections, self._answers.put, self._answers.put)
        try:
            self._ask(actions.FindCoordinator(self._next(), TIMEOUT_MS))
            with suppress(_EndedError):
                while not self._end.is_set():
                    self._round()
            leave = actions.SendLeave(
                request=self._next(),
                timeout_ms=TIMEOUT_MS,
                member_id=self.member_id,
                instance_id=None,
                reason="test",
            )
            self._ask(leave)
        except BaseException as error:  # the test looks at it
            self.failure = error
        finally:
            connections.close()

    def _round(self) -> None:
        joined = self._join()
        if joined.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return
        if joined.error:
            self._end.wait(BEAT_S)
            return
        self.member_id = joined.member_id
        self.generations.append(joined.generation)
        leads = joined.leader_id == joined.member_id
        self.has_led |= leads
        sync = actions.SendSync(
            request=self._next(),
            timeout_ms=TIMEOUT_MS,
            generation=joined.generation,
            member_id=self.member_id,
            instance_id=None,
            protocol_type="consumer",
            protocol_name=self._protocols[0][0],
            assignments=self._lead(joined) if leads else (),
        )
        answer = self._ask(sync)
        if answer.error:
            self.sync_errors.append(answer.error)
            return
        self.assignment = answer.assignment
        while not self._end.wait(BEAT_S):
            if self._again.is_set():
                self._again.clear()
                return
            beat = actions.SendHeartbeat(
                request=self._next(),
                timeout_ms=TIMEOUT_MS,
                generation=joined.generation,
                member_id=self.member_id,
                instance_id=None,
            )
            if self._ask(beat).error:
                return

    def _join(self) -> events.JoinAnswered:
        answer = self._ask(
            actions.SendJoin(
                request=self._next(),
                timeout_ms=TIMEOUT_MS,
                member_id=self.member_id,
                instance_id=None,
                protocol_type="consumer",
                protocols=self._protocols,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=TIMEOUT_MS,
                reason="test",
            )
        )
        assert isinstance(answer, events.JoinAnswered)
        return answer

    def _next(self) -> int:
        self._request += 1
        return self._request

    def _ask(self, action: Any) -> Any:
        self._link.perform(action)
        leaves = isinstance(action, actions.SendLeave)
        while True:
            try:
                answer = self._answers.get(timeout=BEAT_S)
            except queue.Empty:
                if self._end.is_set() and not leaves:
                    raise _EndedError from None
                continue
            assert not isinstance(answer, (BaseException, events.RequestFailed)), answer
            if answer.request == action.request:  # not of what was asked before it left
                return answer
