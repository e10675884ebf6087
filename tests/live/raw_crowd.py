"""A crowd: thousands of members of one group in one process, the real machine on raw connections.

A member has a connection of its own for JoinGroup and SyncGroup, which the coordinator delays for
as long as a round takes. Heartbeats and LeaveGroup go over a few shared connections. Members read
no records: callbacks return at once, and the commit of a revocation counts as done.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.live.raw_connection import WAITS, RawConnection

from holdfast.core.machine import actions, events
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.leader.designs import compute
from holdfast.core.machine.leader.subscriptions import digest_of
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.member.member_data import MemberOptions
from holdfast.core.machine.states import ENDED, MemberState
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.record_size import estimate_group_bytes

SHARED = 4  # connections for heartbeats


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdRound:
    """A leader's turn: what it took, and what the group's record comes to."""

    generation: int
    n_members: int
    cpu_seconds: float
    subscription_bytes: int
    assignment_bytes: int
    record_bytes: int
    failure: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdOptions:
    """What a crowd is made of; ``topics_of`` gives a slot's subscription."""

    bootstrap: str
    group: str
    assignors: Sequence[Assignor]
    partitions: Mapping[str, int]
    topics_of: Callable[[int], tuple[str, ...]]
    static: bool = False
    session_ms: int = 60_000
    heartbeat_ms: int = 3_000


@dataclass
class Crowd:
    """Members by slot, and what was seen of them."""

    options: CrowdOptions
    coordinator: str = ""
    members: dict[int, RawMember] = field(default_factory=dict)
    shared: list[RawConnection] = field(default_factory=list)
    rounds: list[CrowdRound] = field(default_factory=list)
    errors: Counter[tuple[str, int]] = field(default_factory=Counter)  # (answer, code)
    failures: list[str] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)

    async def open(self) -> None:
        """Connect, and wait until the broker coordinates the group."""
        first = await RawConnection.to(self.options.bootstrap, "first")
        self.coordinator = await first.find(self.options.group)
        first.close()
        for i in range(SHARED):
            self.shared.append(await RawConnection.to(self.coordinator, f"shared-{i}"))
        ask = actions.SendHeartbeat(
            request=0, timeout_ms=0, generation=0, member_id="nobody", instance_id=None
        )
        while (await self.shared[0].send(self.options.group, ask)).error in WAITS:
            await asyncio.sleep(0.1)

    def close(self) -> None:
        """Close every connection; nobody says goodbye."""
        for member in self.members.values():
            member.end()
        for connection in self.shared:
            connection.close()

    async def start(self, slot: int) -> RawMember:
        """Start the process of a slot, under the client id and instance id that it always has."""
        client_id = f"member-{slot:05d}"
        connection = await RawConnection.to(self.coordinator, client_id)
        member = self.members[slot] = RawMember(self, slot, connection)
        member.begin()
        return member

    async def stop(self, slot: int) -> None:
        """Close a member as one that comes back, and wait until it is gone."""
        member = self.members[slot]
        member.tell(events.LeaveRequested(returns=True))
        await member.over.wait()

    @property
    def leader(self) -> int:
        """Slot of the member that led the last round."""
        led = [m for m in self.members.values() if m.machine.is_leader]
        return max(led, key=lambda m: m.machine.generation).slot

    def owned(self, slot: int) -> frozenset[Resource]:
        return frozenset(self.members[slot].machine.owned)

    def n_owned(self) -> int:
        return sum(len(m.machine.owned) for m in self.members.values())

    def settled(self) -> bool:
        """All members stand in one stable generation, none waits for a round, all is owned."""
        machines = [m.machine for m in self.members.values()]
        generations = {m.generation for m in machines}
        stable = all(
            m.state is MemberState.STABLE and m.data.rejoin_reason is None for m in machines
        )
        wanted = {t for slot in self.members for t in self.options.topics_of(slot)}
        n_wanted = sum(self.options.partitions[topic] for topic in wanted)
        return stable and len(generations) == 1 and self.n_owned() == n_wanted

    def even(self) -> bool:
        """Settled, and nobody owns two more than another: Design III needs rounds for that."""
        loads = [len(m.machine.owned) for m in self.members.values()]
        return self.settled() and max(loads) - min(loads) <= 1

    async def until(self, condition: Callable[[], object], what: str, seconds: float) -> None:
        """Wait for a condition; nobody may fail meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self.failures or time.monotonic() >= deadline:
                raise AssertionError(f"{what}: {self.picture()}")
            await asyncio.sleep(0.05)

    def picture(self) -> str:
        """What is known, in one line."""
        states = Counter(str(m.machine.state) for m in self.members.values())
        return (
            f"states {dict(states)}, owned {self.n_owned()}, errors {dict(self.errors)}, "
            f"failures {Counter(self.failures).most_common(3)}, last turn {self.rounds[-1:]}, "
            f"warnings {self.warnings.most_common(3)}"
        )


class RawMember:
    """One member: a machine, its connection, and the duties of an application without records."""

    def __init__(self, crowd: Crowd, slot: int, connection: RawConnection):
        options = crowd.options
        self.crowd, self.slot, self.connection = crowd, slot, connection
        self.beats = crowd.shared[slot % SHARED]
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False
        self.machine = Member(
            options.assignors,
            MemberOptions(
                instance_id=f"static-{slot:05d}" if options.static else None,
                session_timeout_ms=options.session_ms,
                heartbeat_interval_ms=options.heartbeat_ms,
                rebalance_timeout_ms=600_000,
                max_poll_interval_ms=0,
                location=digest_of(f"slot-{slot}"),
            ),
            now_ms=self._now_ms(),
            nonce=next(_NONCES) * 1_000,
        )

    def begin(self) -> None:
        options = self.crowd.options
        self.tell(events.MetadataChanged(tuple(sorted(options.partitions.items()))))
        self.tell(events.SubscriptionChanged(options.topics_of(self.slot)))
        self.tell(events.Started())

    def end(self) -> None:
        """End without a word, as a process that is killed."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self.connection.close()
        self.over.set()

    def tell(self, event: events.Event | None) -> None:
        """Step the machine, do its actions, set its alarm."""
        if self._ended:
            return
        for action in self.machine.step(self._now_ms(), event):
            self._act(action)
        if self.machine.state in ENDED and self.machine.holdings.calling is None:
            self.end()
        else:
            self._arm()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline_ms = self.machine.deadline_ms
        if deadline_ms is not None:
            at = math.ceil(deadline_ms) / 1000 + 0.001
            self._timer = self._loop.call_at(at, self.tell, None)

    def _soon(self, event: events.Event) -> None:
        self._loop.call_soon(self.tell, event)

    def _act(self, action: actions.Action) -> None:
        match action:
            case actions.FindCoordinator():
                self._soon(events.CoordinatorFound(action.request))
            case actions.SendJoin() | actions.SendSync():
                self._ask(self.connection, action)
            case actions.SendHeartbeat() | actions.SendLeave():
                self._ask(self.beats, action)
            case actions.ComputeAssignment():
                self._lead(action)
            case actions.StopFetching():
                self._soon(events.Drained(action.token))
            case actions.CallListener():
                self._soon(events.ListenerReturned(action.token))
            case actions.Commit():
                self._soon(events.CommitAnswered(action.token))
            case actions.Warn():
                self.crowd.warnings[action.text] += 1
            case actions.Fail():
                self.crowd.failures.append(action.text)
            case actions.DropNow() | actions.StartFetching() | actions.JoinCompleted():
                pass

    def _ask(self, connection: RawConnection, action: Any) -> None:
        task = self._loop.create_task(self._answer(connection, action))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, connection: RawConnection, action: Any) -> None:
        try:
            answer = await connection.send(self.crowd.options.group, action)
        except ConnectionError as error:
            self.tell(events.RequestFailed(action.request, str(error)))
            return
        if answer.error:
            self.crowd.errors[type(answer).__name__, int(answer.error)] += 1
        self.tell(answer)

    def _lead(self, action: actions.ComputeAssignment) -> None:
        began = time.thread_time()
        done = compute(self.crowd.options.assignors, action)
        cpu_seconds = time.thread_time() - began
        given = dict(done.assignments)
        sizes = [(m.member_id, m.instance_id, len(m.metadata)) for m in action.members]
        self.crowd.rounds.append(
            CrowdRound(
                generation=action.generation,
                n_members=len(action.members),
                cpu_seconds=cpu_seconds,
                subscription_bytes=sum(n for _, _, n in sizes),
                assignment_bytes=sum(map(len, given.values())),
                record_bytes=estimate_group_bytes(
                    [(m, i, n + len(given.get(m, b""))) for m, i, n in sizes],
                    group_id=self.crowd.options.group,
                    protocol_name=action.protocol_name,
                ),
                failure=done.failure,
            )
        )
        self._soon(done)


_NONCES = itertools.count(1)
