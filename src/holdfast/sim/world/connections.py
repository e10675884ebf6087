"""Connections between processes and their coordinator, and the network that delays and drops.

**Rules.** Every message asks the network for its fate once, in the order in which messages are
sent. A request is outstanding until it is answered or abandoned.

**Strategy.** Two halves, each for one direction. :class:`Answers` has the processes, and the broker
sends through it. :class:`Requests` has the broker, and the processes send through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.core.machine import events
from holdfast.core.machine.actions import ComputeAssignment, FindCoordinator, SendJoin, SendSync
from holdfast.core.machine.coordinator.group import (
    Request,
    Response,
    SendCommit,
    SendResponse,
)
from holdfast.core.machine.events import AssignmentComputed
from holdfast.sim.world.broker import RunCounts, SimulatedBroker
from holdfast.sim.world.clock import Clock
from holdfast.sim.world.process import ActionHandlers, Process

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

    def send(self, answer: SendResponse) -> None:
        """Send an answer."""
        clock, process, response = self.clock, self.processes[answer.client], answer.response
        if isinstance(response, events.JoinAnswered):
            self.counts.n_bytes += sum(len(m.metadata) for m in response.members)
        elif isinstance(response, events.SyncAnswered):
            self.counts.n_bytes += len(response.assignment)
        fates = self.network.fate(answer.client, clock.now_ms)
        if not fates:
            if isinstance(response, events.CommitAnswered):
                failed = replace(response, error=-1)
                clock.at(clock.now_ms + FAIL_MS, self.respond, (process, failed))
            else:
                clock.at(clock.now_ms + FAIL_MS, process.fail_request, response.request)
        for delay_ms in fates:
            clock.at(clock.now_ms + delay_ms, self.respond, (process, response))

    def _respond(self, entry: tuple[Process, Response]) -> None:
        """Deliver an answer to its process."""
        process, response = entry
        if not isinstance(response, events.CommitAnswered):  # commits have numbers of their own
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
            failed = events.CommitAnswered(request.request, -1)
            clock.at(clock.now_ms + FAIL_MS, self.respond, (process, failed))
            return
        clock.at(clock.now_ms + fates[0], self.arrive, (process, request))

    def _arrive(self, entry: tuple[Process, Request]) -> None:
        """Deliver a request to the coordinator, if there is one."""
        process, request = entry
        if self.broker.coordinator is not None:
            self.broker.receive(process.client, request)
        elif isinstance(request, SendCommit):
            self.respond((process, events.CommitAnswered(request.request, -1)))
        else:
            process.fail_request(request.request)


# A network that delays, drops, duplicates and splits, drawn from one generator.
#
# Every message asks ``fate`` once, in the order in which messages are sent, so that a run is a
# function of its seed. A cut (*split*) severs a client from the coordinator in both directions; its
# requests fail after ``FAIL_MS``.
#
# Latencies are drawn in blocks; the fault rates are zero outside the fault phase.


BLOCK = 4096
FAIL_MS = 500  # a broken connection is noticed


@dataclass(slots=True, kw_only=True)
class Rates:
    """Probabilities of one message."""

    drop: float = 0.0
    duplicate: float = 0.0
    slow: float = 0.0  # much later than the rest
    slow_ms: int = 4_000


class Network:
    """Decides what happens to each message.

    Parameters
    ----------
    rng : numpy.random.Generator
        The run's generator for messages.
    latency_ms : int
        One way, on average; drawn evenly from half of it to one and a half.
    """

    def __init__(self, rng: np.random.Generator, latency_ms: int):
        self.rng = rng
        self.latency_ms = latency_ms
        self.rates = Rates()
        self.cut_until: dict[str, int] = {}
        self._latencies: list[int] = []
        self._chances: list[float] = []

    def latency(self) -> int:
        """Return the delay of a message in ms, at least 1."""
        if not self._latencies:
            low, high = self.latency_ms // 2, self.latency_ms + self.latency_ms // 2
            self._latencies = self.rng.integers(max(1, low), max(2, high + 1), BLOCK).tolist()
        return self._latencies.pop()

    def chance(self) -> float:
        """Return a number in [0, 1)."""
        if not self._chances:
            self._chances = self.rng.random(BLOCK).tolist()
        return self._chances.pop()

    def fate(self, client: str, now_ms: int) -> tuple[int, ...]:
        """Return delays after which copies of a message arrive; empty: never."""
        until_ms = self.cut_until.get(client)
        if until_ms is not None:
            if now_ms < until_ms:
                return ()
            del self.cut_until[client]
        rates = self.rates
        first = self._latencies.pop() if self._latencies else self.latency()
        if not (rates.drop or rates.duplicate or rates.slow):
            return (first,)
        if self.chance() < rates.drop:
            return ()
        if self.chance() < rates.slow:
            first += 1 + int(self.chance() * rates.slow_ms)
        if self.chance() < rates.duplicate:
            return (first, first + self.latency())
        return (first,)


# Functions that a test may put around the parts of a world, to change or to watch single messages.
#
# A hook takes the real function and returns the one that is used instead. Without a hook the real
# functions are used as they are, at no cost; the product passes no hook.


Arrive = Callable[[tuple[Process, Request]], None]
Respond = Callable[[tuple[Process, Response]], None]
Plan = Callable[[Process, ComputeAssignment], AssignmentComputed]


def unchanged(function: Any) -> Any:
    """Return the real function: the hook that changes nothing."""
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """One hook for each part that a test may change."""

    # Around the arrival of a request at the coordinator.
    arrive: Callable[[Arrive], Arrive] = unchanged
    # Around the sending of an answer by the coordinator.
    answer: Callable[[Callable[[SendResponse], None]], Callable[[SendResponse], None]] = unchanged
    # Around the arrival of an answer at its process.
    respond: Callable[[Respond], Respond] = unchanged
    # Around a leader's round: the assignments for the claims of all members.
    plan: Callable[[Plan], Plan] = unchanged
    # Around the action handlers, one function per action of a member.
    action_handlers: Callable[[ActionHandlers], ActionHandlers] = unchanged
