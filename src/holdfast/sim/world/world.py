"""A world for machines: virtual time, processes, a network and a coordinator, from one seed.

**Rules.**

- The machines are the real ones; the world only carries their messages and does their duties.
- A run is a function of its options and its seed: one queue ordered by time and by when an entry
  was made, no clock, no ``hash``, no set that is iterated.
- A process has a monotonic clock of its own origin, so no time means anything to another process;
  jumps of a wall clock reach nothing but the times in records.
- A coordinator that restarts knows its log and nothing else; its connections break.

**Strategy.** A heap of times, and for each the functions to call in order. Safety is checked where
it happens (:mod:`holdfast.sim.world.ledger`) and at each leader's turn
(:mod:`holdfast.sim.rules.checkers`). What a member asks for is done by
:mod:`holdfast.sim.world.application` and :mod:`holdfast.sim.world.connections`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from holdfast.machine.actions import (
    Action,
    CallListener,
    Commit,
    ComputeAssignment,
    DropNow,
    Fail,
    FindCoordinator,
    JoinCompleted,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    StartFetching,
    StopFetching,
    Warn,
)
from holdfast.machine.coordinator.coordinator import (
    Coordinator,
    CoordinatorOptions,
)
from holdfast.machine.events import (
    CommitAnswered,
    LeaveRequested,
    MetadataChanged,
    Polled,
    Started,
    SubscriptionChanged,
)
from holdfast.machine.leader.designs import Assignor
from holdfast.machine.member.member import Member
from holdfast.machine.member.options import MemberOptions
from holdfast.machine.states import ENDED
from holdfast.model.partitions import Resource, resources_of_topic
from holdfast.sim.rules.checkers import RoundChecker
from holdfast.sim.world.application import Application
from holdfast.sim.world.connections import Connections
from holdfast.sim.world.costs import Costs
from holdfast.sim.world.ledger import Ledger
from holdfast.sim.world.network import FAIL_MS, Network
from holdfast.sim.world.process import Process

GROUP = "group"
CLOCKS_APART_MS = 1_000_003  # between what two processes' clocks show
WALL_MS = 1_767_225_600_000  # what the coordinator's wall clock shows at time 0: 2026-01-01, UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """What a world is made of.

    Parameters
    ----------
    assignors : callable
        Slot -> what its members offer.
    partitions : dict of str to int
        Topics (or kinds) and their counts.
    static : bool
        Whether slots have a ``group.instance.id``.
    delay_ms : int
        What the checkers expect of deferral; 0 none.
    """

    assignors: Callable[[int], Sequence[Assignor]]
    partitions: dict[str, int]
    costs: Costs = field(default_factory=Costs)
    static: bool = False
    protocol_type: str = "consumer"
    delay_ms: int = 0
    announce_leave: bool = False
    max_poll_interval_ms: int = 0
    auto_commit: bool = True
    trace: bool = False
    check: bool = True


class World:
    """One run. See the module for its rules."""

    def __init__(self, options: WorldOptions, seed: int):
        self.options = options
        self.costs = options.costs
        self.seed = seed
        self.now_ms = 0
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.network = Network(
            np.random.Generator(np.random.PCG64(seed + 1)), options.costs.latency_ms
        )
        self.partitions = dict(options.partitions)
        self.processes: dict[str, Process] = {}  # by client
        self.slots: dict[int, Process] = {}
        self.incarnations: dict[int, int] = {}
        self.subscriptions: dict[int, tuple[str, ...]] = {}
        self.log: list[tuple[int, bytes, bytes | None]] = []
        self.ledger = Ledger(self.resources())
        self.ledger.zombie_limit_ms = options.costs.session_ms + options.costs.slow_poll_ms + 1_000
        self.checker = RoundChecker(self.ledger, options.delay_ms)
        self.wall_ms = WALL_MS
        self.coordinator: Coordinator | None = self._new_coordinator()
        self.trace: list[str] = []
        self.rounds = 0
        self.round_bytes: list[int] = []
        self.bytes = 0
        self.warnings: list[str] = []
        self.causes = 0
        self.last_round_ms = 0
        self._times: list[int] = []  # a heap
        self._due: dict[int, list[tuple[Callable[[Any], None], Any]]] = {}  # at each of them
        self._coordinator_timer_ms = -1
        self._ids = 0
        self.lost_records = False
        self.application = application = Application(self)
        self.connections = connections = Connections(self)
        self._do: dict[type, Callable[[Process, Any], None]] = {
            FindCoordinator: connections.find,
            SendJoin: connections.send,
            SendSync: connections.send,
            SendHeartbeat: connections.send,
            SendLeave: connections.send,
            ComputeAssignment: application.plan,
            StopFetching: application.stop_fetching,
            DropNow: application.drop,
            CallListener: application.call,
            StartFetching: application.start_fetching,
            Commit: application.commit,
            JoinCompleted: application.completed,
            Warn: application.warn,
            Fail: application.failed,
        }

    def resources(self) -> list[Resource]:
        """All that is to be owned."""
        counts = sorted(self.partitions.items())
        return [r for topic, count in counts for r in resources_of_topic(topic, range(count))]

    # The queue

    def at(self, time_ms: int, function: Callable[[Any], None], argument: Any = None) -> None:
        """Call a function at a time (not before now)."""
        time_ms = max(time_ms, self.now_ms)
        due = self._due.get(time_ms)
        if due is None:
            self._due[time_ms] = [(function, argument)]
            heappush(self._times, time_ms)
        else:
            due.append((function, argument))

    def give_up(self) -> None:
        """Nothing more happens."""
        for due in self._due.values():
            due.clear()

    def run(self, until_ms: int) -> None:
        """Go on to a time."""
        times = self._times
        while times and times[0] <= until_ms:
            self.now_ms = time_ms = heappop(times)
            for function, argument in self._due[time_ms]:  # what is done may add to it
                function(argument)
            del self._due[time_ms]
        self.now_ms = max(self.now_ms, until_ms)

    def run_while(self, condition: Callable[[], bool], limit_ms: int, step_ms: int = 250) -> bool:
        """Go on in steps while a condition holds; False if it still does at the limit."""
        while condition():
            if self.now_ms >= limit_ms:
                return False
            self.run(min(self.now_ms + step_ms, limit_ms))
        return True

    def note(self, text: str) -> None:
        """A line of the trace."""
        if self.options.trace:
            self.trace.append(f"{self.now_ms:>9} {text}")

    # What may happen to the world

    def start(self, slot: int) -> Process:
        """Start the process of a slot."""
        count = self.incarnations.get(slot, 0)
        self.incarnations[slot] = count + 1
        client = f"m{slot:04d}.{count}"
        clock_ms = CLOCKS_APART_MS * (1 + slot + 1_000 * count)
        costs = self.costs
        poll_ms = costs.slow_poll_ms if slot < costs.slow_members else costs.poll_ms
        member = Member(
            self.options.assignors(slot),
            MemberOptions(
                protocol_type=self.options.protocol_type,
                instance_id=f"i{slot:04d}" if self.options.static else None,
                session_timeout_ms=costs.session_ms,
                heartbeat_interval_ms=costs.heartbeat_ms,
                rebalance_timeout_ms=costs.rebalance_ms,
                drain_timeout_ms=max(1, costs.rebalance_ms * 3 // 4),
                max_poll_interval_ms=self.options.max_poll_interval_ms,
                auto_commit=self.options.auto_commit,
                announce_leave=self.options.announce_leave,
            ),
            now_ms=self.now_ms + clock_ms,
            nonce=1_000_000 * count,
        )
        process = Process(
            slot=slot,
            client=client,
            member=member,
            poll_ms=poll_ms,
            phase_ms=int(self.rng.integers(poll_ms)),
            clock_ms=clock_ms,
        )
        self.processes[client] = self.slots[slot] = process
        self.causes += 1
        self.note(f"{client} starts")
        topics = self.subscriptions.get(slot, tuple(sorted(self.partitions)))
        self.tell(process, MetadataChanged(tuple(sorted(self.partitions.items()))))
        self.tell(process, SubscriptionChanged(topics))
        self.tell(process, Started())
        return process

    def stop(self, slot: int, *, returns: bool = True) -> None:
        """Ask a process to end cleanly."""
        process = self.slots[slot]
        if process.alive and not process.exiting:
            process.exiting = True
            self.causes += 1
            self.note(f"{process.client} is asked to stop")
            self.tell(process, LeaveRequested(returns))

    def crash(self, slot: int) -> None:
        """A process ends without a word."""
        process = self.slots[slot]
        if process.alive:
            self.causes += 1
            self.note(f"{process.client} crashes")
            self._end(process)

    def stall(self, slot: int, for_ms: int) -> None:
        """A process does nothing for a while (garbage collection, suspension)."""
        process = self.slots[slot]
        if process.alive:
            self.causes += 1
            process.stalled_until_ms = self.now_ms + for_ms
            self.note(f"{process.client} stalls for {for_ms} ms")
            self.at(process.stalled_until_ms, self._resume, process)

    def split(self, slot: int, for_ms: int) -> None:
        """Cut a process off the coordinator."""
        process = self.slots[slot]
        if process.alive:
            self.causes += 1
            self.network.cut_until[process.client] = self.now_ms + for_ms
            self.note(f"{process.client} is cut off for {for_ms} ms")
            for request in sorted(process.outstanding):
                self.at(self.now_ms + FAIL_MS, self.connections.fail_request, (process, request))

    def restart_coordinator(self, down_ms: int, *, lose: int = 0) -> None:
        """The coordinator fails over; ``lose`` records at the end of its log are gone."""
        if self.coordinator is None:
            return
        self.causes += 1
        self.note(f"coordinator restarts, {down_ms} ms, {lose} records lost")
        self._ids = self.coordinator.next_id
        self.coordinator = None
        self._coordinator_timer_ms = -1
        if lose:
            del self.log[-lose:]
            self.lost_records = True
        for client in sorted(self.processes):
            process = self.processes[client]
            for request in sorted(process.outstanding):
                self.at(self.now_ms + FAIL_MS, self.connections.fail_request, (process, request))
        self.at(self.now_ms + down_ms, self._load_coordinator)

    def jump_clock(self, by_ms: int) -> None:
        """The coordinator's wall clock jumps, forwards or backwards."""
        self.wall_ms += by_ms
        self.note(f"the wall clock jumps by {by_ms} ms")
        if self.coordinator is not None:
            self.coordinator.options = replace(self.coordinator.options, wall_ms=self.wall_ms)

    def resize(self, topic: str, count: int) -> None:
        """A topic has so many partitions now; 0 deletes it."""
        self.causes += 1
        self.partitions[topic] = count
        if count == 0:
            del self.partitions[topic]
        self.note(f"topic {topic} has {count} partitions")
        self.ledger.add(self.resources(), self.now_ms)
        for process in self.living():
            self.tell(process, MetadataChanged(tuple(sorted(self.partitions.items()))))

    def subscribe(self, slot: int, topics: tuple[str, ...]) -> None:
        """A member subscribes to other topics."""
        self.subscriptions[slot] = topics
        process = self.slots[slot]
        if process.alive and not process.exiting:
            self.causes += 1
            self.tell(process, SubscriptionChanged(topics))

    def living(self) -> list[Process]:
        """Processes that are up, by slot."""
        return [self.slots[s] for s in sorted(self.slots) if self.slots[s].alive]

    # Processes

    def _end(self, process: Process) -> None:
        process.alive = False
        if process.stalled_until_ms > self.now_ms:  # it did nothing since, and never will
            for key in [k for k in self.ledger.zombies if k[0] == process.client]:
                del self.ledger.zombies[key]
        for resource in sorted(process.running):
            self.ledger.stop(resource, runner=process.client, now_ms=self.now_ms)
            if self.ledger.committing.get(resource) == process.client:
                del self.ledger.committing[resource]
        for resource, client in list(self.ledger.committing.items()):
            if client == process.client:
                del self.ledger.committing[resource]
        process.running.clear()

    def _resume(self, process: Process) -> None:
        if not process.alive or self.now_ms < process.stalled_until_ms:
            return
        self.note(f"{process.client} resumes")
        process.stalled_until_ms = 0
        for key in [k for k in self.ledger.zombies if k[0] == process.client]:
            self.ledger.zombies[key] = self.now_ms  # it did nothing while it stood still
        self._act(process, process.step(self.now_ms))  # time first: it may be too late
        waiting, process.inbox = process.inbox, []
        for event in waiting:
            self.tell(process, event)
        self._arm(process)

    def tell(self, process: Process, event: Any) -> None:
        """Deliver an event to a member, do what it asks for, arm its timer."""
        if not process.alive:
            return
        if process.stalled_until_ms > self.now_ms:
            process.inbox.append(event)
            return
        if process.member.state in ENDED and isinstance(
            event, MetadataChanged | SubscriptionChanged
        ):
            return
        self._act(process, process.step(self.now_ms, event))
        if isinstance(event, CommitAnswered):
            self.application.commit_ended(process)
        self._arm(process)

    def _act(self, process: Process, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if not process.alive:
                return
            self._do[type(action)](process, action)
        if process.member.state in ENDED and process.alive and self._quiet(process):
            self._end(process)
            self.ledger.ended(process.client, self.now_ms)
            self.note(f"{process.client} is gone ({process.member.state})")

    def _quiet(self, process: Process) -> bool:
        holdings = process.member.holdings
        return holdings.calling is None and not holdings.queue

    def _arm(self, process: Process) -> None:
        if not process.alive:
            return
        deadline = process.deadline_ms
        if deadline is None:
            return
        if process.timer_ms < 0 or deadline < process.timer_ms:
            process.timer_ms = deadline
            self.at(deadline, self._timer, (process, deadline))

    def _timer(self, entry: tuple[Process, int]) -> None:
        process, armed_ms = entry
        if process.timer_ms != armed_ms or not process.alive:
            return
        process.timer_ms = -1
        if process.stalled_until_ms > self.now_ms:
            return  # resuming looks at the clock
        self._act(process, process.step(self.now_ms))
        self._arm(process)

    # The coordinator

    def _new_coordinator(self, first_id: int = 0) -> Coordinator:
        options = CoordinatorOptions(
            initial_delay_ms=self.costs.initial_delay_ms,
            wall_ms=self.wall_ms,
            client_id=_client_id,
        )
        return Coordinator(GROUP, options, now_ms=self.now_ms, first_id=first_id)

    def _load_coordinator(self, _: None) -> None:
        self.coordinator = self._new_coordinator(self._ids)
        for _time, key, value in self.log:
            self.coordinator.replay(key, value)
        self.coordinator.load(self.now_ms)
        self.ledger.committed = dict(self.coordinator.durable.offsets)
        if self.lost_records:
            self.ledger.recount(self.coordinator.generation)
        self.arm_coordinator()
        self.note("coordinator is back")

    def arm_coordinator(self) -> None:
        """Call the coordinator when it wants to hear of time."""
        coordinator = self.coordinator
        deadline = None if coordinator is None else coordinator.deadline_ms
        if deadline is None:
            return
        if self._coordinator_timer_ms < 0 or deadline < self._coordinator_timer_ms:
            self._coordinator_timer_ms = deadline
            self.at(deadline, self._coordinator_time, deadline)

    def _coordinator_time(self, armed_ms: int) -> None:
        if self.coordinator is None or armed_ms != self._coordinator_timer_ms:
            return
        self._coordinator_timer_ms = -1
        self.connections.deliver(self.coordinator.step(self.now_ms))
        self.arm_coordinator()

    def poll_all(self, every_ms: int) -> None:
        """Have every process tell its member that it polls, from now on."""

        def poll(process: Process) -> None:
            if process.alive and process.member.state not in ENDED:
                self.tell(process, Polled())
                self.at(self.now_ms + every_ms, poll, process)

        for process in self.living():
            poll(process)


def _client_id(client: str) -> str:
    """Of a process that is started again the slot stays, and so do client id and host."""
    return client.partition(".")[0]
