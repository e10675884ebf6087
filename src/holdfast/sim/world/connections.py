"""The connections between processes and their coordinator: requests one way, answers the other.

**Rules.** Every message asks the network for its fate once, in the order in which messages are
sent. A request is outstanding until it is answered or abandoned.

**Strategy.** Two halves, each for one direction. :class:`Answers` has the processes, and the broker
sends through it. :class:`Requests` has the broker, and the processes send through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.core.machine import events
from holdfast.core.machine.actions import FindCoordinator, SendJoin, SendSync
from holdfast.core.machine.coordinator.group_messages import (
    Answer,
    CommitDone,
    Request,
    Response,
    SendCommit,
)
from holdfast.sim.world.broker import RunCounts, SimulatedBroker
from holdfast.sim.world.clock import Clock
from holdfast.sim.world.hooks import Hooks
from holdfast.sim.world.network import FAIL_MS, Network
from holdfast.sim.world.process import Process

ROUND = (SendJoin, SendSync)  # requests that may wait as long as a round takes


class Answers:
    """The way from the coordinator to the processes."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        processes: Mapping[str, Process],
        counts: RunCounts,
        hooks: Hooks,
    ):
        self.clock, self.network, self.processes, self.counts = clock, network, processes, counts
        self.respond = hooks.respond(self._respond)

    def send(self, answer: Answer) -> None:
        """Send an answer."""
        clock, process, response = self.clock, self.processes[answer.client], answer.response
        if isinstance(response, events.JoinAnswered):
            self.counts.n_bytes += sum(len(m.metadata) for m in response.members)
        elif isinstance(response, events.SyncAnswered):
            self.counts.n_bytes += len(response.assignment)
        fates = self.network.fate(answer.client, clock.now_ms)
        if not fates:
            if isinstance(response, CommitDone):
                failed = replace(response, error=-1)
                clock.at(clock.now_ms + FAIL_MS, self.respond, (process, failed))
            else:
                clock.at(clock.now_ms + FAIL_MS, process.fail_request, response.request)
        for delay_ms in fates:
            clock.at(clock.now_ms + delay_ms, self.respond, (process, response))

    def _respond(self, entry: tuple[Process, Response]) -> None:
        """Deliver an answer to its process."""
        process, response = entry
        if isinstance(response, CommitDone):
            process.notify(events.CommitAnswered(response.request, response.error))
            return
        process.outstanding.discard(response.request)
        process.notify(response)


class Requests:
    """The way from the processes to the coordinator; ``answers`` reports a commit's failure."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        broker: SimulatedBroker,
        counts: RunCounts,
        hooks: Hooks,
        *,
        answers: Answers,
    ):
        self.clock, self.network, self.broker, self.counts = clock, network, broker, counts
        self.respond = answers.respond
        self.arrive = hooks.arrive(self._arrive)

    def find(self, process: Process, action: FindCoordinator) -> None:
        """Find the coordinator."""
        clock = self.clock
        fates = self.network.fate(process.client, clock.now_ms)
        if not fates or self.broker.coordinator is None:
            clock.at(clock.now_ms + FAIL_MS, process.notify, events.RequestFailed(action.request))
            return
        clock.at(clock.now_ms + fates[0], process.notify, events.CoordinatorFound(action.request))

    def send(self, process: Process, action: Request) -> None:
        """Send a request; it arrives late, twice or never."""
        clock = self.clock
        if isinstance(action, SendJoin):
            self.counts.n_bytes += sum(len(data) for _, data in action.protocols)
        process.outstanding.add(action.request)
        fates = self.network.fate(process.client, clock.now_ms)
        if not fates:
            clock.at(clock.now_ms + FAIL_MS, process.fail_request, action.request)
        for delay_ms in fates:
            clock.at(clock.now_ms + delay_ms, self.arrive, (process, action))
        if isinstance(action, ROUND):
            clock.at(clock.now_ms + action.timeout_ms, process.fail_request, action.request)

    def send_commit(self, process: Process, request: SendCommit) -> None:
        """Send a commit; it arrives once, or it fails."""
        clock = self.clock
        fates = self.network.fate(process.client, clock.now_ms)
        if not fates or self.broker.coordinator is None:
            failed = CommitDone(request.request, -1)
            clock.at(clock.now_ms + FAIL_MS, self.respond, (process, failed))
            return
        clock.at(clock.now_ms + fates[0], self.arrive, (process, request))

    def _arrive(self, entry: tuple[Process, Request]) -> None:
        """Deliver a request to the coordinator, if there is one."""
        process, request = entry
        if self.broker.coordinator is not None:
            self.broker.receive(process.client, request)
        elif isinstance(request, SendCommit):
            self.respond((process, CommitDone(request.request, -1)))
        else:
            process.fail_request(request.request)
