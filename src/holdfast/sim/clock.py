"""Time in a run: when calls happen, how long events take, and who owned which resource when.

**Rules.** No call happens before its time. Calls of one time happen in the order in which they were
entered. The order also holds for calls that are entered at that very time.

Every part of the cost model is a field of :class:`Costs` with a default and a line for people. A
resource is *owned* from the moment its owner begins to fetch it until that owner stops. It is
*stopped* while it has no owner or its owner is still rebuilding its state. Broken rules are
collected as :class:`Violation`, never raised, so that one run reports all of them. A world reports
the following rules, which a user's own assignor or policy can break:

=======  =========================================================================================
``L1``   the group settles, and then every resource is processed
``L2``   loads of members differ by one at most, if the assignor promises even loads
``L4``   the number of rounds stays below a multiple of the group's events
=======  =========================================================================================

**Strategy.** A heap of times, and for each time the functions to call in order. One :class:`Span`
per resource.

References: KIP-54, "Public Interfaces" (the old and the new listener); Incremental Cooperative
Rebalancing, "Motivation".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any

from holdfast.core.machine.member.member_data import AGAIN_PAUSE_MS
from holdfast.core.model.partitions import Resource

NOBODY = -1


class Clock:
    """The time of a run in ms, and the calls that are due."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._times: list[int] = []  # a heap
        self._due: dict[int, list[tuple[Callable[[Any], None], Any]]] = {}  # at each of the times

    def at(self, time_ms: int, function: Callable[[Any], None], argument: Any = None) -> None:
        """Call a function at a time, or now if that time has passed."""
        time_ms = max(time_ms, self.now_ms)
        due = self._due.get(time_ms)
        if due is None:
            self._due[time_ms] = [(function, argument)]
            heappush(self._times, time_ms)
        else:
            due.append((function, argument))

    def clear(self) -> None:
        """Drop every call that is due: nothing more happens."""
        for due in self._due.values():
            due.clear()

    def run(self, until_ms: int) -> None:
        """Advance to a time."""
        times = self._times
        while times and times[0] <= until_ms:
            self.now_ms = time_ms = heappop(times)
            for function, argument in self._due[time_ms]:  # the calls may add to this list
                function(argument)
            del self._due[time_ms]
        self.now_ms = max(self.now_ms, until_ms)

    def run_while(self, condition: Callable[[], bool], limit_ms: int, step_ms: int = 250) -> bool:
        """Advance in steps while a condition holds; False if it still holds at the limit."""
        while condition():
            if self.now_ms >= limit_ms:
                return False
            self.run(min(self.now_ms + step_ms, limit_ms))
        return True


class Trace:
    """Lines of what happened when, if a caller wants them.

    Parameters
    ----------
    on : bool
        Whether lines are kept. A caller checks it before it composes a long line.
    """

    def __init__(self, clock: Clock, *, on: bool):
        self.clock, self.on = clock, on
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        """Keep a line with the present time."""
        if self.on:
            self.lines.append(f"{self.clock.now_ms:>9} {text}")


class Listener(StrEnum):
    """The application's listener, one of KIP-54's."""

    OLD = "old"  # rebuilds the state of every resource at every assignment
    NEW = "new"  # only of resources that were not in its last assignment


def _cost(default: int, text: str) -> Any:
    return field(default=default, metadata={"text": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Times in ms."""

    heartbeat_ms: int = _cost(3_000, "between two heartbeats of a member")
    session_ms: int = _cost(10_000, "without heartbeats until the coordinator removes a member")
    poll_ms: int = _cost(500, "between two polls of a member: a batch is processed so long")
    slow_poll_ms: int = _cost(5_000, "between two polls of the slow members")
    slow_members: int = _cost(1, "how many members are slow")
    revoke_ms: int = _cost(200, "to flush and commit when resources are revoked")
    rebuild_ms: int = _cost(2_000, "to rebuild the state of one resource gained, one by one")
    restart_ms: int = _cost(10_000, "from the end of a process to its next start")
    pause_ms: int = _cost(5_000, "of quiet before the next member is bounced")
    initial_delay_ms: int = _cost(3_000, "the broker's group.initial.rebalance.delay.ms")
    rebalance_ms: int = _cost(60_000, "the coordinator waits for joins")
    plan_ms: int = _cost(0, "planning by a leader: later changes are not in its plan")
    latency_ms: int = _cost(2, "of a message, one way, on average")
    first_fetch_ms: int = _cost(0, "from an assignment to the first batch of it")
    follow_up_ms: int = _cost(
        AGAIN_PAUSE_MS, "until a member joins a follow-up round; Kafka's own clients: a heartbeat"
    )
    joining_stops: int = _cost(0, "of 100 joins after a revocation, how many stop the rest")
    waiting_stops: int = _cost(0, "of 100 joins of any kind, how many stop all; kafka-python: 100")
    listener: Listener | None = None  # None: old for eager members, new for the others
    rebuild_blocks: bool = False  # the member processes nothing while it rebuilds

    def lines(self) -> list[tuple[str, int, str]]:
        """Return name, value and meaning of each part."""
        return [
            (f.name, getattr(self, f.name), f.metadata["text"])
            for f in fields(self)
            if "text" in f.metadata
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a run broke."""

    rule: str
    at_ms: int
    text: str

    def to_dict(self) -> dict[str, object]:
        """Return the violation for JSON."""
        return {"rule": self.rule, "at_ms": self.at_ms, "text": self.text}


@dataclass(slots=True)
class Ownership:
    """One interval of a timeline: a process owns a resource, and processes it from ``ready_ms``."""

    resource: Resource
    slot: int
    begin_ms: int
    ready_ms: int
    end_ms: int


@dataclass(slots=True)
class Span:
    """The state of one resource: the process that runs it, its stops, its moves so far."""

    runner: str = ""
    slot: int = NOBODY
    since_ms: int = 0
    unowned_since_ms: int = 0
    stopped_since_ms: int = 0
    ready_ms: int = 0
    unowned_ms: int = 0
    stopped_ms: int = 0
    longest_ms: int = 0
    stops: int = 0
    last_slot: int = NOBODY
    first_slot: int = NOBODY
    moves: int = 0
    visited: frozenset[int] = frozenset()


class OwnershipLog:
    """Spans of every resource, and the rules that were broken.

    Parameters
    ----------
    resources : sequence of Resource
        All resources at first; :meth:`add` adds more.
    """

    def __init__(self, resources: Sequence[Resource]):
        self.spans: dict[Resource, Span] = {r: Span() for r in resources}
        self.violations: list[Violation] = []
        self.begin_ms = 0
        self.least_ms = 0  # a shorter stop is counted, and adds no seconds
        # Intervals in the order in which they end; None unless the run is to be drawn, because a
        # long run of a large group has millions.
        self.timeline: list[Ownership] | None = None

    def fail(self, rule: str, at_ms: int, text: str) -> None:
        """Record a broken rule (the first hundred are kept)."""
        if len(self.violations) < 100:
            self.violations.append(Violation(rule=rule, at_ms=at_ms, text=text))

    def add(self, resources: Iterable[Resource], now_ms: int) -> None:
        """Add new resources."""
        for resource in resources:
            if resource not in self.spans:
                self.spans[resource] = Span(unowned_since_ms=now_ms, stopped_since_ms=now_ms)

    def begin(self, now_ms: int) -> None:
        """Begin to measure: events before ``now_ms`` do not count."""
        self.begin_ms = now_ms
        for span in self.spans.values():
            span.unowned_ms = span.stopped_ms = span.longest_ms = span.moves = span.stops = 0
            span.unowned_since_ms = max(span.unowned_since_ms, now_ms)
            span.stopped_since_ms = max(span.stopped_since_ms, now_ms)
            span.first_slot = span.last_slot
            span.visited = frozenset()
        if self.timeline is not None:
            self.timeline.clear()

    def runner(self, resource: Resource) -> str:
        """Return the client of the process that runs a resource, an empty string for none."""
        span = self.spans.get(resource)
        return "" if span is None else span.runner

    def start(
        self,
        resource: Resource,
        *,
        runner: str,
        slot: int,
        now_ms: int,
        ready_ms: int,
    ) -> None:
        """Record that a process takes a resource, and processes it from ``ready_ms`` on."""
        span = self.spans.setdefault(resource, Span())
        if not span.runner:
            span.unowned_ms += now_ms - span.unowned_since_ms
        else:
            self._append(resource, span, now_ms)
        span.runner, span.slot = runner, slot
        span.ready_ms, span.since_ms = ready_ms, now_ms
        if span.first_slot == NOBODY:
            span.first_slot = slot
        if slot != span.last_slot:
            if span.last_slot != NOBODY:
                span.moves += 1
                span.visited |= {slot}
            span.last_slot = slot

    def stop(self, resource: Resource, *, runner: str, now_ms: int) -> None:
        """Record that a process has stopped a resource."""
        span = self.spans[resource]
        if span.runner != runner:
            return
        self._append(resource, span, now_ms)
        span.runner, span.unowned_since_ms = "", now_ms
        if now_ms > span.ready_ms:
            self._ran(span)
            span.stopped_since_ms = now_ms
            span.stops += 1

    def hold(self, resource: Resource, now_ms: int, ready_ms: int) -> None:
        """Record that the owner of a resource processes nothing until ``ready_ms``."""
        span = self.spans[resource]
        if now_ms > span.ready_ms:
            self._append(resource, span, now_ms)
            self._ran(span)
            span.since_ms = span.stopped_since_ms = now_ms
            span.stops += 1
        span.ready_ms = max(span.ready_ms, ready_ms)

    def resume(self, resource: Resource, now_ms: int) -> None:
        """Record that the owner of a suspended resource continues."""
        span = self.spans[resource]
        span.ready_ms = min(span.ready_ms, now_ms)

    def _ran(self, span: Span) -> None:
        """Close the last stop: the resource was processed from ``ready_ms``."""
        self._add_downtime(span, max(0, max(span.ready_ms, self.begin_ms) - span.stopped_since_ms))
        span.stopped_since_ms = max(span.ready_ms, self.begin_ms)

    def _append(self, resource: Resource, span: Span, now_ms: int) -> None:
        """Append the interval that ends now to the timeline, from the begin of measuring on."""
        if self.timeline is not None and now_ms > self.begin_ms:
            begin_ms = max(span.since_ms, self.begin_ms)
            ready_ms = min(max(span.ready_ms, begin_ms), now_ms)
            self.timeline.append(Ownership(resource, span.slot, begin_ms, ready_ms, now_ms))

    def _add_downtime(self, span: Span, gap_ms: int) -> None:
        if gap_ms >= self.least_ms:
            span.stopped_ms += gap_ms
            span.longest_ms = max(span.longest_ms, gap_ms)

    def finish(self, now_ms: int) -> None:
        """Close the open intervals at the end of a run."""
        for resource, span in self.spans.items():
            if span.runner:
                self._append(resource, span, now_ms)
            if span.runner and now_ms >= span.ready_ms:
                self._ran(span)
                continue
            if not span.runner:
                span.unowned_ms += now_ms - span.unowned_since_ms
            self._add_downtime(span, now_ms - span.stopped_since_ms)

    # Numbers

    @property
    def moved(self) -> int:
        """Number of changes from one member to another."""
        return sum(span.moves for span in self.spans.values())

    @property
    def moved_to_third(self) -> int:
        """Resources that visited a member other than their owner before and after."""
        return sum(
            bool(span.visited - {span.first_slot, span.last_slot}) for span in self.spans.values()
        )

    @property
    def stops(self) -> int:
        """Number of stops of processed resources: revoked, lost, or the process ended."""
        return sum(span.stops for span in self.spans.values())

    @property
    def unowned_seconds(self) -> float:
        """Resource-seconds without an owner."""
        return sum(span.unowned_ms for span in self.spans.values()) / 1000

    @property
    def stopped_seconds(self) -> float:
        """Resource-seconds without processing."""
        return sum(span.stopped_ms for span in self.spans.values()) / 1000

    @property
    def longest_seconds(self) -> float:
        """Longest single stop of one resource, in seconds."""
        return max((span.longest_ms for span in self.spans.values()), default=0) / 1000
