"""The broker of a world, and the network between it and the processes.

**Rules.**

- The records of a request are in the log, and the coordinator has replayed them, before the world
  continues.
- A coordinator that restarts knows only its log. Records at the end of the log may be lost in the
  restart.
- A group's record above ``message_max_bytes`` is not written, as on a real broker.
- Jumps of the wall clock change only the times in records.
- Every message asks the network for its fate once, in the order in which messages are sent, so that
  a run is a function of its seed. A request is outstanding until it is answered or abandoned.

**Strategy.** The network has two halves, each for one direction: :class:`Answers` has the
processes, and the broker sends through it; :class:`Requests` has the broker, and the processes send
through it. A round is counted when the assignments of its leader are in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.core.machine import events
from holdfast.core.machine.actions import ComputeAssignment, FindCoordinator, SendJoin, SendSync
from holdfast.core.machine.coordinator.coordinator import Coordinator
from holdfast.core.machine.coordinator.group import (
    Append,
    CoordinatorOptions,
    Out,
    Received,
    Request,
    Response,
    SendCommit,
    SendResponse,
)
from holdfast.core.machine.events import AssignmentComputed
from holdfast.core.model.partitions import Resource
from holdfast.sim.clock import Clock, OwnershipLog, Trace
from holdfast.sim.process import ActionHandlers, Process

GROUP = "group"
MAX_ROUNDS = 200  # and a hundred for each cause: a run with more rounds is aborted
WALL_MS = 1_767_225_600_000  # the coordinator's wall clock at time 0: 2026-01-01, UTC
ROUND = (SendJoin, SendSync)  # requests that may wait as long as a round takes
BLOCK = 4096  # random numbers are drawn in blocks
FAIL_MS = 500  # a broken connection is noticed


@dataclass(slots=True)
class RunCounts:
    """The counts of a run."""

    causes: int = 0  # events of processes and topics, each of which may cause rounds
    rounds: int = 0  # rounds whose assignments the coordinator has stored
    last_round_ms: int = 0  # when the assignments of the last round were stored
    n_bytes: int = 0  # bytes of subscriptions and assignments since the last round
    # Bytes of subscriptions and assignments of each round.
    round_bytes: list[int] = field(default_factory=list)


class SimulatedBroker:
    """The coordinator of the one group, and its log."""

    def __init__(
        self,
        clock: Clock,
        trace: Trace,
        ownership_log: OwnershipLog,
        counts: RunCounts,
        *,
        options: CoordinatorOptions,
        answer: Callable[[SendResponse], None],
    ):
        self.clock, self.trace, self.ownership_log = clock, trace, ownership_log
        self.counts, self.answer = counts, answer
        self.options = replace(options, wall_ms=WALL_MS, client_id=_client_id)
        self.log: list[tuple[int, bytes, bytes | None]] = []
        self.committed: dict[Resource, int] = {}
        self.lost_records = False
        self.coordinator: Coordinator | None = self._new_coordinator()
        self._next_id = 0
        self._timer_ms = -1

    def receive(self, client: str, request: Request) -> None:
        """Handle a request; the coordinator must be up."""
        coordinator = self.coordinator
        assert coordinator is not None
        n_records = len(self.log)
        self._deliver(coordinator, coordinator.step(self.clock.now_ms, Received(client, request)))
        if len(self.log) > n_records:
            if isinstance(request, SendSync):
                self._round()
            elif isinstance(request, SendCommit):
                self.committed.update(request.offsets)
        self._arm()

    def stop(self, lose: int) -> None:
        """Stop the coordinator, and lose ``lose`` records at the end of its log."""
        assert self.coordinator is not None
        self._next_id = self.coordinator.data.next_id
        self.coordinator = None
        self._timer_ms = -1
        if lose:
            del self.log[-lose:]
            self.lost_records = True

    def load(self, _: None) -> None:
        """Start a coordinator from the log."""
        self.coordinator = coordinator = self._new_coordinator(self._next_id)
        for _time, key, value in self.log:
            coordinator.replay(key, value)
        coordinator.load(self.clock.now_ms)
        self.committed = dict(coordinator.durable.offsets)
        self._arm()
        self.trace.note("coordinator is back")

    def jump_clock(self, by_ms: int) -> None:
        """Jump the wall clock, forwards or backwards."""
        self.options = replace(self.options, wall_ms=self.options.wall_ms + by_ms)
        self.trace.note(f"the wall clock jumps by {by_ms} ms")
        if self.coordinator is not None:
            self.coordinator.data.options = self.options

    def _new_coordinator(self, first_id: int = 0) -> Coordinator:
        return Coordinator(GROUP, self.options, now_ms=self.clock.now_ms, first_id=first_id)

    def _deliver(self, coordinator: Coordinator, outs: Sequence[Out]) -> None:
        """Write records and send answers, in order."""
        for out in outs:
            if isinstance(out, Append):
                self.log.append((self.clock.now_ms, out.key, out.value))
                coordinator.replay(out.key, out.value)
            else:
                self.answer(out)

    def _round(self) -> None:
        """Count the round whose assignments are stored."""
        counts, now_ms = self.counts, self.clock.now_ms
        counts.rounds += 1
        counts.last_round_ms = now_ms
        counts.round_bytes.append(counts.n_bytes)
        counts.n_bytes = 0
        if counts.rounds > MAX_ROUNDS + 100 * counts.causes:
            self.ownership_log.fail("L4", now_ms, f"{counts.rounds} rounds: they do not end")
            self.clock.clear()

    def _arm(self) -> None:
        """Schedule the coordinator's next tick."""
        deadline_ms = None if self.coordinator is None else self.coordinator.deadline_ms
        if deadline_ms is None:
            return
        if self._timer_ms < 0 or deadline_ms < self._timer_ms:
            self._timer_ms = deadline_ms
            self.clock.at(deadline_ms, self._time, deadline_ms)

    def _time(self, armed_ms: int) -> None:
        coordinator = self.coordinator
        if coordinator is None or armed_ms != self._timer_ms:
            return
        self._timer_ms = -1
        self._deliver(coordinator, coordinator.step(self.clock.now_ms))
        self._arm()


def _client_id(client: str) -> str:
    """Return client id and host of a client: they stay when its process is started again."""
    return client.partition(".")[0]


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


@dataclass(slots=True, kw_only=True)
class Rates:
    """Probabilities of one message; all are 0 outside the fault phase."""

    drop: float = 0.0
    duplicate: float = 0.0
    slow: float = 0.0  # much later than the rest
    slow_ms: int = 4_000


class Network:
    """Decides what happens to each message: it delays, drops, duplicates and splits.

    A cut (*split*) severs a client from the coordinator in both directions; its requests fail after
    ``FAIL_MS``.

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


Arrive = Callable[[tuple[Process, Request]], None]
Respond = Callable[[tuple[Process, Response]], None]
Plan = Callable[[Process, ComputeAssignment], AssignmentComputed]


def unchanged(function: Any) -> Any:
    """Return the real function: the hook that changes nothing."""
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions that a test may put around the parts of a world, to change or to watch messages.

    A hook takes the real function and returns the one that is used instead. Without a hook the real
    functions are used as they are, at no cost; the product passes no hook.
    """

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
