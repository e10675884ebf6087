"""A world for machines: virtual time, processes, a network and a coordinator, from one seed.

**Rules.**

- The machines are the real ones; the world only carries their messages and carries out their
  actions.
- A run is a function of its options and its seed: one queue ordered by time and by when an entry
  was made, no clock of the machine, no ``hash``, no set that is iterated.

**Strategy.** The parts depend on each other in one direction, and :class:`World` wires them:
:class:`~holdfast.sim.clock.Clock` and the ownership log are at the bottom,
:class:`~holdfast.sim.process.Process` uses them,
:class:`~holdfast.sim.broker.Answers` has processes, the
:class:`~holdfast.sim.broker.SimulatedBroker` sends through it,
:class:`~holdfast.sim.broker.Requests` has the broker, and
:class:`~holdfast.sim.application.Application` sends through ``Requests``. Each process starts
with action handlers: the functions of requests and application for a member's actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.core.machine import actions, events
from holdfast.core.machine.coordinator.coordinator import Coordinator
from holdfast.core.machine.coordinator.group import CoordinatorOptions
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.leader.subscriptions import digest_of
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.member.member_data import MemberOptions
from holdfast.core.model.partitions import Resource, resources_of_topic
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES
from holdfast.sim.application import Application
from holdfast.sim.broker import (
    FAIL_MS,
    Answers,
    Hooks,
    Network,
    Requests,
    RunCounts,
    SimulatedBroker,
)
from holdfast.sim.clock import Clock, Costs, OwnershipLog, Trace
from holdfast.sim.process import ActionHandlers, Process

CLOCKS_APART_MS = 1_000_003  # between the clocks of two processes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """The options of a world."""

    assignors: Callable[[int], Sequence[Assignor]]  # slot -> the assignors that its members support
    partitions: dict[str, int]  # topics (or kinds) and their counts
    costs: Costs = field(default_factory=Costs)
    static: bool = False  # whether slots have a ``group.instance.id``
    # Slot -> the location that its processes report; empty for none.
    location: Callable[[int], str] | None = None
    announce_leave: bool = False
    max_poll_interval_ms: int = 0
    message_max_bytes: int = MESSAGE_MAX_BYTES  # the broker writes no group's record above this
    id_digits: int = 4  # digits at the end of a member id; 36 make ids as long as Kafka's
    lags: Mapping[str, Sequence[int]] | None = None  # of partitions, as every leader knows them
    trace: bool = False


class World:
    """One run: its parts, and the events that may happen to them. See the module for its rules.

    Parameters
    ----------
    hooks : Hooks
        A test's wrappers of single parts.
    """

    def __init__(self, options: WorldOptions, seed: int, hooks: Hooks | None = None):
        hooks = Hooks() if hooks is None else hooks
        costs = options.costs
        self.options, self.costs, self.seed = options, costs, seed
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.partitions = dict(options.partitions)
        self.processes: dict[str, Process] = {}  # by client
        self.slots: dict[int, Process] = {}
        self.incarnations: dict[int, int] = {}
        self.subscriptions: dict[int, tuple[str, ...]] = {}
        self.clock = Clock()
        self.notes = Trace(self.clock, on=options.trace)
        self.trace = self.notes.lines
        self.network = Network(np.random.Generator(np.random.PCG64(seed + 1)), costs.latency_ms)
        self.ownership_log = OwnershipLog(self.resources())
        self.counts = RunCounts()
        answers = Answers(self.clock, self.network, self.processes, self.counts, hooks)
        self.broker = SimulatedBroker(
            self.clock,
            self.notes,
            self.ownership_log,
            self.counts,
            options=CoordinatorOptions(
                initial_delay_ms=costs.initial_delay_ms,
                message_max_bytes=options.message_max_bytes,
                id_digits=options.id_digits,
            ),
            answer=hooks.answer(answers.send),
        )
        self.log = self.broker.log
        requests = Requests(
            self.clock, self.network, self.broker, self.counts, hooks, answers=answers
        )
        application = Application(
            requests,
            self.broker,
            costs=costs,
            hooks=hooks,
            lags=options.lags,
        )
        self.application = application
        self.warnings = application.warnings
        self.action_handlers = hooks.action_handlers(_action_handlers(requests, application))

    def resources(self) -> list[Resource]:
        """Return all resources that can be owned."""
        counts = sorted(self.partitions.items())
        return [r for topic, count in counts for r in resources_of_topic(topic, range(count))]

    # What callers read most

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.clock.now_ms

    def run(self, until_ms: int) -> None:
        """Advance to a time."""
        self.clock.run(until_ms)

    @property
    def coordinator(self) -> Coordinator | None:
        """The coordinator, None while it is down."""
        return self.broker.coordinator

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        return self.counts.rounds

    def living(self) -> list[Process]:
        """Return the processes that are up, by slot."""
        return [self.slots[s] for s in sorted(self.slots) if self.slots[s].alive]

    # Events of the world

    def start(self, slot: int) -> Process:
        """Start the process of a slot."""
        count = self.incarnations.get(slot, 0)
        self.incarnations[slot] = count + 1
        client = f"m{slot:04d}.{count}"
        clock_ms = CLOCKS_APART_MS * (1 + slot + 1_000 * count)
        costs = self.costs
        poll_ms = costs.slow_poll_ms if slot < costs.slow_members else costs.poll_ms
        assignors = self.options.assignors(slot)
        process = Process(
            clock=self.clock,
            ownership_log=self.ownership_log,
            trace=self.notes,
            action_handlers=self.action_handlers,
            slot=slot,
            client=client,
            member=Member(
                assignors,
                self._member_options(slot, assignors),
                now_ms=self.now_ms + clock_ms,
                nonce=1_000_000 * count,
            ),
            poll_ms=poll_ms,
            phase_ms=int(self.rng.integers(poll_ms)),
            clock_ms=clock_ms,
        )
        self.processes[client] = self.slots[slot] = process
        self._happens(f"{client} starts")
        topics = self.subscriptions.get(slot, tuple(sorted(self.partitions)))
        process.notify(events.MetadataChanged(tuple(sorted(self.partitions.items()))))
        process.notify(events.SubscriptionChanged(topics))
        process.notify(events.Started())
        return process

    def _member_options(self, slot: int, assignors: Sequence[Assignor]) -> MemberOptions:
        options, costs = self.options, self.costs
        return MemberOptions(
            instance_id=f"i{slot:04d}" if options.static else None,
            session_timeout_ms=costs.session_ms,
            heartbeat_interval_ms=costs.heartbeat_ms,
            rebalance_timeout_ms=costs.rebalance_ms,
            again_pause_ms=costs.follow_up_ms,
            drain_timeout_ms=max(1, costs.rebalance_ms * 3 // 4),
            max_poll_interval_ms=options.max_poll_interval_ms,
            announce_leave=frozenset(a.name for a in assignors if options.announce_leave),
            location=digest_of(said) if (said := self._location(slot)) else b"",
        )

    def _location(self, slot: int) -> str:
        """Return the location that the processes of a slot report."""
        return "" if self.options.location is None else self.options.location(slot)

    def _happens(self, text: str = "") -> None:
        """Count a cause of rounds."""
        self.counts.causes += 1
        if text:
            self.notes.note(text)

    def stop(self, slot: int, *, returns: bool = True) -> None:
        """Ask a process to end cleanly."""
        process = self.slots[slot]
        if process.alive and not process.exiting:
            process.exiting = True
            self._happens(f"{process.client} is asked to stop")
            process.notify(events.LeaveRequested(returns))

    def crash(self, slot: int) -> None:
        """End a process at once, without leaving the group."""
        process = self.slots[slot]
        if process.alive:
            self._happens(f"{process.client} crashes")
            process.end()

    def stall(self, slot: int, for_ms: int) -> None:
        """Stop a process for a while (garbage collection, suspension)."""
        process = self.slots[slot]
        if process.alive:
            self._happens()
            process.stall(for_ms)

    def split(self, slot: int, for_ms: int) -> None:
        """Cut a process off the coordinator."""
        process = self.slots[slot]
        if process.alive:
            self.network.cut_until[process.client] = self.now_ms + for_ms
            self._happens(f"{process.client} is cut off for {for_ms} ms")
            self._break_connection(process)

    def _break_connection(self, process: Process) -> None:
        """Fail a request that waits for an answer, after a while."""
        for request in sorted(process.outstanding):
            self.clock.at(self.now_ms + FAIL_MS, process.fail_request, request)

    def restart_coordinator(self, down_ms: int, *, lose: int = 0) -> None:
        """Fail over the coordinator; ``lose`` records at the end of its log are lost."""
        if self.coordinator is None:
            return
        self._happens(f"coordinator restarts, {down_ms} ms, {lose} records lost")
        self.broker.stop(lose)
        for client in sorted(self.processes):
            self._break_connection(self.processes[client])
        self.clock.at(self.now_ms + down_ms, self.broker.load)

    def jump_clock(self, by_ms: int) -> None:
        """Jump the coordinator's wall clock, forwards or backwards."""
        self.broker.jump_clock(by_ms)

    def resize(self, topic: str, count: int) -> None:
        """Set the number of a topic's partitions to ``count``; 0 deletes the topic."""
        self.partitions[topic] = count
        if count == 0:
            del self.partitions[topic]
        self._happens(f"topic {topic} has {count} partitions")
        self.ownership_log.add(self.resources(), self.now_ms)
        for process in self.living():
            process.notify(events.MetadataChanged(tuple(sorted(self.partitions.items()))))

    def subscribe(self, slot: int, topics: tuple[str, ...]) -> None:
        """Subscribe a member to other topics."""
        self.subscriptions[slot] = topics
        process = self.slots[slot]
        if process.alive and not process.exiting:
            self._happens()
            process.notify(events.SubscriptionChanged(topics))


def _action_handlers(requests: Requests, application: Application) -> ActionHandlers:
    """Return the function for each action of a member."""
    return {
        actions.FindCoordinator: requests.find,
        actions.SendJoin: application.joining,
        actions.SendSync: requests.send,
        actions.SendHeartbeat: requests.send,
        actions.SendLeave: requests.send,
        actions.ComputeAssignment: application.plan,
        actions.StopFetching: application.stop_fetching,
        actions.DropNow: application.drop,
        actions.CallListener: application.call,
        actions.StartFetching: application.start_fetching,
        actions.Commit: application.commit,
        actions.JoinCompleted: application.completed,
        actions.Warn: application.warn,
        actions.Fail: application.failed,
    }
