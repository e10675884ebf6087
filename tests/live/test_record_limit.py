"""A group's record at a stock broker's limit; ``tests/machine/test_record_limit.py`` is its twin.

Raw requests, so that no client is between the broker and the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsRequest
from tests.live.crew import fresh
from tests.live.raw_connection import ManualMember, RawConnection
from tests.suites import further

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.wire.layouts.consumer_protocol import Subscription, encode_subscription
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES, estimate_group_bytes

pytestmark = pytest.mark.broker

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR
SHORTER_HOST = len("/255.255.255.255") - len("/127.0.0.1")


SMALL = 100
NONCES = count()


def subscription(n_bytes: int) -> bytes:
    """A subscription of so many bytes, another one each time: so every join begins a round."""

    def of(padding: bytes) -> bytes:
        return encode_subscription(Subscription(version=3, topics=("t",), user_data=padding))

    nonce = b"%08d" % next(NONCES)
    return of(nonce.ljust(n_bytes - len(of(b"")), b"."))


class Pair:
    """Two members of one group, and a connection beside theirs."""

    def __init__(self, manual_members: list[ManualMember], beside: RawConnection):
        self.manual_members, self.beside = manual_members, beside
        self.group, self.generation = manual_members[0].group, 0
        self.leader, self.follower = manual_members

    async def join(self, *n_bytes: int) -> None:
        """Both join, with so many bytes; the one that leads is ``leader`` from now on."""
        if not self.generation:
            await self._enter()
        both = zip(self.manual_members, n_bytes, strict=True)
        answers = await asyncio.gather(
            *(manual_member.join(subscription(n)) for manual_member, n in both)
        )
        assert [a.error for a in answers] == [NONE, NONE]
        self.generation = answers[0].generation
        leads = answers[0].leader_id == self.manual_members[0].member_id
        self.leader, self.follower = self.manual_members if leads else self.manual_members[::-1]

    async def _enter(self) -> None:
        """One after the other: a broker without an initial delay begins with whoever is first."""
        first, second = self.manual_members
        await first.join(subscription(SMALL))
        joins = asyncio.ensure_future(second.join(subscription(SMALL)))
        while (await self.described())[0] != "PreparingRebalance":
            await asyncio.sleep(0.01)
        await asyncio.gather(first.join(subscription(SMALL)), joins)

    async def round(self, *n_bytes: int, size: int = 1) -> list[int]:
        """Both join and sync; returns the leader's error and the follower's.

        Once more if the follower's sync came after a leader's that was refused: it did not wait.
        """
        while True:
            await self.join(*n_bytes)
            errors = await self._sync(size)
            if errors[1] != ErrorCode.REBALANCE_IN_PROGRESS:
                return errors

    async def _sync(self, size: int) -> list[int]:
        waits = asyncio.ensure_future(self.follower.sync(self.generation, ()))
        await asyncio.sleep(0)
        given = [(manual_member.member_id, b"." * size) for manual_member in self.manual_members]
        led = await self.leader.sync(self.generation, given)
        return [led.error, (await waits).error]

    async def described(self) -> tuple[str, set[str], int]:
        """State, member ids, bytes of all assignments."""
        asked = DescribeGroupsRequest[5](groups=[self.group], include_authorized_operations=False)
        found = (await self.beside.ask(asked)).groups[0]
        n_bytes = sum(len(m.member_assignment) for m in found.members)
        return found.group_state, {m.member_id for m in found.members}, n_bytes


def play(bootstrap: str, script: Callable[[Pair], Coroutine[Any, Any, None]], *ids: str) -> None:
    """Run a script with two members, static ones where ids are given."""

    async def run() -> None:
        group = fresh("limit")
        connections = [await RawConnection.to(bootstrap, f"c{i}") for i in range(3)]
        try:
            await connections[2].find(group)
            manual_members = [
                ManualMember(connection, group, instance_id=instance_id)
                for connection, instance_id in zip(connections, ids or (None, None), strict=False)
            ]
            await asyncio.wait_for(script(Pair(manual_members, connections[2])), 60)
        finally:
            for connection in connections:
                connection.close()
            await asyncio.sleep(0)

    asyncio.run(run())


def test_the_limit_is_the_one_we_compute_to_the_byte(broker):
    async def script(pair: Pair) -> None:
        await pair.join(SMALL, SMALL)
        ids = [(manual_member.member_id, None, SMALL) for manual_member in pair.manual_members]
        bare = estimate_group_bytes(ids, group_id=pair.group, protocol_name="range")
        room = MESSAGE_MAX_BYTES - bare + 2 * SHORTER_HOST - 2  # varints of a large record
        odd = room % 2
        for over, errors in ((2, [UNKNOWN, UNKNOWN]), (0, [NONE, NONE])):
            size = (room - odd + over) // 2
            assert await pair.round(SMALL + odd, SMALL, size=size) == errors
        state, _, n_bytes = await pair.described()
        assert (state, n_bytes) == ("Stable", room - odd)

    play(broker.bootstrap, script)


def test_every_sync_that_waits_ends_in_the_error_and_the_members_may_join_again(broker):
    async def script(pair: Pair) -> None:
        assert await pair.round(600_000, 600_000) == [UNKNOWN, UNKNOWN]
        ids = {manual_member.member_id for manual_member in pair.manual_members}
        before = pair.generation
        assert await pair.described() == ("PreparingRebalance", ids, 0)
        beat = await pair.leader.beat(before)
        assert beat == ErrorCode.REBALANCE_IN_PROGRESS
        late = await pair.follower.sync(before, ())
        assert late.error == ErrorCode.REBALANCE_IN_PROGRESS
        assert await pair.round(SMALL, SMALL) == [NONE, NONE]
        assert pair.generation == before + 1
        assert await pair.described() == ("Stable", ids, 2)

    play(broker.bootstrap, script)


@pytest.mark.parametrize("which", further(["leader", "follower"]))
def test_a_static_member_is_not_replaced_where_the_record_would_be_too_large(broker, which):
    async def script(pair: Pair) -> None:
        assert await pair.round(500_000, 500_000) == [NONE, NONE]
        before = await pair.described()
        old = getattr(pair, which)
        new = ManualMember(pair.beside, pair.group, instance_id=old.instance_id)
        refused = await new.join(subscription(700_000))
        assert (refused.error, refused.member_id) == (UNKNOWN, "")
        assert (refused.generation, refused.leader_id) == (pair.generation, pair.leader.member_id)
        assert not refused.skip_assignment
        assert await pair.described() == before
        assert await new.beat(pair.generation, member_id=old.member_id) == NONE
        fits = await new.join(subscription(SMALL))
        assert (fits.error, fits.generation) == (NONE, pair.generation)
        assert (
            await new.beat(pair.generation, member_id=old.member_id) == ErrorCode.FENCED_INSTANCE_ID
        )

    play(broker.bootstrap, script, "i0", "i1")
