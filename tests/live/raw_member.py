"""A member that joins with the same bytes every time, and records the coordinator's answers.

It reads nothing. When it leads, it assigns what ``lead`` returns, by default nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.live.raw_connection import ManualMember, RawConnection

from holdfast.core.machine import events

BEAT_S = 0.1

Lead = Callable[[events.JoinAnswered], tuple[tuple[str, bytes], ...]]
"""What a leader answers to the members of a round: the bytes of each one's assignment."""


class RawMember:
    """One member on a thread of its own, which offers one assignor, ``protocol``.

    Its subscription may be any bytes. ``lead`` is called where it leads, and may take its time.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        protocol: str,
        metadata: bytes,
        lead: Lead = lambda joined: (),
    ):
        self._asked = bootstrap, group, protocol
        self._metadata, self._lead = metadata, lead
        self._end = threading.Event()
        self._again = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.member_id = ""
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
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # the test looks at it
            self.failure = error

    async def _live(self) -> None:
        bootstrap, group, protocol = self._asked
        first = await RawConnection.to(bootstrap, "raw")
        at = await first.find(group)
        own, beside = [await RawConnection.to(at, "raw") for _ in range(2)]
        manual_member = ManualMember(own, group, protocol, session_ms=10_000, rebalance_ms=60_000)
        rounds = asyncio.ensure_future(self._rounds(manual_member))
        try:
            while not self._end.is_set() and not rounds.done():
                await asyncio.sleep(BEAT_S)
            rounds.cancel()  # it waits for no other answer
            with suppress(asyncio.CancelledError):
                await rounds
            await manual_member.leave(beside)
        finally:
            for connection in (first, own, beside):
                connection.close()

    async def _rounds(self, manual_member: ManualMember) -> None:
        while True:
            joined = await manual_member.join(self._metadata)
            if joined.error:
                await asyncio.sleep(BEAT_S)
                continue
            self.member_id = joined.member_id
            leads = joined.leader_id == joined.member_id
            self.has_led |= leads
            answer = await manual_member.sync(
                joined.generation, self._lead(joined) if leads else ()
            )
            if answer.error:
                self.sync_errors.append(answer.error)
                continue
            self.assignment = answer.assignment
            while not self._again.is_set() and not await manual_member.beat(joined.generation):
                await asyncio.sleep(BEAT_S)
            self._again.clear()
