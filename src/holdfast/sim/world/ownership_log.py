"""The ownership log: which process runs which resource when, in numbers; broken rules.

**Rules.** A resource is *owned* from the moment its owner begins to fetch it until that owner
stops. It is *stopped* while it has no owner or its owner rebuilds. Broken rules are collected as
:class:`Violation`, never raised, so that one run reports all of them. A world reports the following
rules, which a user's own assignor or policy can break:

=======  =========================================================================================
``L1``   the group settles, and then every resource is processed
``L2``   loads of members differ by one at most, if the assignor promises even loads
``L4``   the number of rounds stays below a multiple of the group's events
=======  =========================================================================================

**Strategy.** One :class:`Span` per resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.core.model.partitions import Resource

NOBODY = -1


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
