"""Between the processes and their coordinator: requests, answers, records.

**Rules.** Every message asks the network for its fate once, in the order in which messages are
sent. What a request appends to the log is there before its answer leaves.

**Strategy.** One heap entry per message under way; a request is outstanding until it is answered or
given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.machine.actions import FindCoordinator, SendJoin, SendSync
from holdfast.machine.coordinator.coordinator import (
    Answer,
    CommitDone,
    Out,
    Received,
    Request,
    Response,
    SendCommit,
)
from holdfast.machine.coordinator.group_log import Append
from holdfast.machine.events import CoordinatorFound, JoinAnswered, RequestFailed, SyncAnswered
from holdfast.sim.world.network import FAIL_MS
from holdfast.sim.world.process import Process

if TYPE_CHECKING:
    from holdfast.sim.world.world import World

ROUND = (SendJoin, SendSync)  # what may wait as long as a round takes
MAX_ROUNDS = 200  # and a hundred for each cause: beyond that a run is given up


class Connections:
    """Every message of a world."""

    def __init__(self, world: World):
        self.world = world

    def find(self, process: Process, action: FindCoordinator) -> None:
        """Ask who coordinates."""
        world = self.world
        fates = world.network.fate(process.client, world.now_ms)
        if not fates or world.coordinator is None:
            world.at(world.now_ms + FAIL_MS, self._fail_find, (process, action.request))
            return
        world.at(world.now_ms + fates[0], self._found, (process, action.request))

    def _fail_find(self, entry: tuple[Process, int]) -> None:
        self.world.tell(entry[0], RequestFailed(entry[1]))

    def _found(self, entry: tuple[Process, int]) -> None:
        self.world.tell(entry[0], CoordinatorFound(entry[1]))

    def send(self, process: Process, action: Request) -> None:
        """Send a request; it arrives late, twice or never."""
        world = self.world
        if isinstance(action, SendJoin):
            world.bytes += sum(len(data) for _, data in action.protocols)
        process.outstanding.add(action.request)
        fates = world.network.fate(process.client, world.now_ms)
        if not fates:
            world.at(world.now_ms + FAIL_MS, self.fail_request, (process, action.request))
        for delay_ms in fates:
            world.at(world.now_ms + delay_ms, self.arrive, (process, action))
        if isinstance(action, ROUND):
            entry = (process, action.request)
            world.at(world.now_ms + action.timeout_ms, self.fail_request, entry)

    def fail_request(self, entry: tuple[Process, int]) -> None:
        """A request is given up, unless it was answered."""
        process, request = entry
        if request in process.outstanding:
            process.outstanding.discard(request)
            self.world.tell(process, RequestFailed(request))

    def arrive(self, entry: tuple[Process, Request]) -> None:
        """A request reaches the coordinator, if there is one."""
        world = self.world
        process, request = entry
        if world.coordinator is None:
            if isinstance(request, SendCommit):
                world.application.committed(process, CommitDone(request.request, -1))
            else:
                self.fail_request((process, request.request))
            return
        outs = world.coordinator.step(world.now_ms, Received(process.client, request))
        self.deliver(outs, request, process.client)
        world.arm_coordinator()

    def deliver(
        self, outs: Sequence[Out], request: Request | None = None, client: str = ""
    ) -> None:
        """Write records, then send answers."""
        world = self.world
        coordinator = world.coordinator
        assert coordinator is not None
        before = len(world.log)
        for out in outs:
            if isinstance(out, Append):
                world.log.append((world.now_ms, out.key, out.value))
                coordinator.replay(out.key, out.value)
            else:
                self.answer(out)
        if isinstance(request, SendSync) and len(world.log) > before:
            given = dict(request.assignments)
            world.checker.stored(request.generation, request.protocol_name, given)
            world.rounds += 1
            world.last_round_ms = world.now_ms
            world.round_bytes.append(world.bytes)
            world.bytes = 0
            if world.rounds > MAX_ROUNDS + 100 * world.causes:
                world.ledger.fail("L4", world.now_ms, f"{world.rounds} rounds: they do not end")
                world.give_up()
        if isinstance(request, SendCommit) and len(world.log) > before:
            for resource, offset in request.offsets:
                world.ledger.commit(resource, offset, world.now_ms, by=client)

    def answer(self, answer: Answer) -> None:
        """Send an answer."""
        world = self.world
        process = world.processes[answer.client]
        response = answer.response
        if isinstance(response, JoinAnswered):
            world.bytes += sum(len(m.metadata) for m in response.members)
        elif isinstance(response, SyncAnswered):
            world.bytes += len(response.assignment)
        fates = world.network.fate(answer.client, world.now_ms)
        if not fates:
            if isinstance(response, CommitDone):
                failed = replace(response, error=-1)
                world.at(world.now_ms + FAIL_MS, self.respond, (process, failed))
            else:
                entry = (process, response.request)
                world.at(world.now_ms + FAIL_MS, self.fail_request, entry)
        for delay_ms in fates:
            world.at(world.now_ms + delay_ms, self.respond, (process, response))

    def respond(self, entry: tuple[Process, Response]) -> None:
        """An answer reaches its process."""
        world = self.world
        process, response = entry
        if isinstance(response, CommitDone):
            world.application.committed(process, response)
            return
        process.outstanding.discard(response.request)
        world.tell(process, response)
