"""Which process runs which resource when: the measured numbers and the rules that need time.

**Rules.** A resource is *owned* from the moment its owner begins to fetch it until that owner
stops. It is *stopped* while it has no owner or its owner rebuilds. Broken rules are collected as
:class:`Violation`, never raised, so that one run reports all of them.

**Strategy.** Resources become dense indices at the door; every list has one entry per resource.

References: the rules S1, S2, S5, S6, S14 and S15 of :data:`holdfast.sim.rules.checkers.RULES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.model.partitions import Resource

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a run broke."""

    rule: str
    at_ms: int
    text: str

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"rule": self.rule, "at_ms": self.at_ms, "text": self.text}


@dataclass(slots=True)
class Span:
    """The state of one resource: the process that runs it, its stops, its moves so far."""

    runner: str = ""
    slot: int = NOBODY
    generation: int = -1
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


class Ledger:
    """Spans of every resource, and the safety rules over them.

    Parameters
    ----------
    resources : sequence of Resource
        All resources at first; more may come with :meth:`add`.
    """

    def __init__(self, resources: Sequence[Resource]):
        self.spans: dict[Resource, Span] = {r: Span() for r in resources}
        self.violations: list[Violation] = []
        self.announced: dict[str, dict[Resource, bool]] = {}
        self.dropped: dict[str, set[Resource]] = {}
        self.committing: dict[Resource, str] = {}
        self.committed: dict[Resource, int] = {}
        self.zombies: dict[tuple[str, Resource], int] = {}
        self.begin_ms = 0
        self.zombie_limit_ms = 0
        self.least_ms = 0  # a shorter stop is counted, and adds no seconds

    def fail(self, rule: str, at_ms: int, text: str) -> None:
        """Note a broken rule (the first hundred are kept)."""
        if len(self.violations) < 100:
            self.violations.append(Violation(rule=rule, at_ms=at_ms, text=text))

    def add(self, resources: Iterable[Resource], now_ms: int) -> None:
        """New resources exist."""
        for resource in resources:
            if resource not in self.spans:
                self.spans[resource] = Span(unowned_since_ms=now_ms, stopped_since_ms=now_ms)

    def recount(self, generation: int) -> None:
        """The coordinator has lost records: it counts generations on from ``generation``."""
        for span in self.spans.values():
            span.generation = min(span.generation, generation)

    def begin(self, now_ms: int) -> None:
        """Begin to measure: what happened before ``now_ms`` does not count."""
        self.begin_ms = now_ms
        for span in self.spans.values():
            span.unowned_ms = span.stopped_ms = span.longest_ms = span.moves = span.stops = 0
            span.unowned_since_ms = max(span.unowned_since_ms, now_ms)
            span.stopped_since_ms = max(span.stopped_since_ms, now_ms)
            span.first_slot = span.last_slot
            span.visited = frozenset()

    def runner(self, resource: Resource) -> str:
        """The client of the process that runs a resource, an empty string for none."""
        span = self.spans.get(resource)
        return "" if span is None else span.runner

    def start(
        self,
        resource: Resource,
        *,
        runner: str,
        slot: int,
        generation: int,
        now_ms: int,
        ready_ms: int,
        excused: bool,
    ) -> None:
        """A process begins with a resource.

        ``excused``: another process that still runs the resource could not be stopped.
        """
        span = self.spans.setdefault(resource, Span())
        if span.runner and span.runner != runner:
            if not excused:
                text = f"{resource} runs at {span.runner} and {runner} (generation {generation})"
                self.fail("S1", now_ms, text)
            self.zombies[span.runner, resource] = now_ms
        if self.committing.get(resource, runner) != runner and not excused:
            text = f"{resource} starts at {runner} before {self.committing[resource]} committed"
            self.fail("S5", now_ms, text)
        if generation < span.generation:
            text = f"{resource} starts in generation {generation} after {span.generation}"
            self.fail("S10", now_ms, text)
        if not span.runner:
            span.unowned_ms += now_ms - span.unowned_since_ms
        span.runner, span.slot, span.generation = runner, slot, generation
        span.ready_ms = ready_ms
        if span.first_slot == NOBODY:
            span.first_slot = slot
        if slot != span.last_slot:
            if span.last_slot != NOBODY:
                span.moves += 1
                span.visited |= {slot}
            span.last_slot = slot

    def stop(self, resource: Resource, *, runner: str, now_ms: int) -> None:
        """A process has stopped a resource."""
        since_ms = self.zombies.pop((runner, resource), None)
        if since_ms is not None and now_ms - since_ms > self.zombie_limit_ms:
            text = f"{resource} ran at {runner} {now_ms - since_ms} ms after it was removed"
            self.fail("S2", now_ms, text)
        span = self.spans[resource]
        if span.runner != runner:
            return
        span.runner, span.unowned_since_ms = "", now_ms
        if now_ms > span.ready_ms:
            self._ran(span)
            span.stopped_since_ms = now_ms
            span.stops += 1

    def hold(self, resource: Resource, now_ms: int, ready_ms: int) -> None:
        """The owner of a resource processes nothing until ``ready_ms``."""
        span = self.spans[resource]
        if now_ms > span.ready_ms:
            self._ran(span)
            span.stopped_since_ms = now_ms
            span.stops += 1
        span.ready_ms = max(span.ready_ms, ready_ms)

    def resume(self, resource: Resource, now_ms: int) -> None:
        """The owner of a held resource goes on."""
        span = self.spans[resource]
        span.ready_ms = min(span.ready_ms, now_ms)

    def _ran(self, span: Span) -> None:
        """The resource was processed from ``ready_ms``: close the stop before it."""
        self._stood_still(span, max(0, max(span.ready_ms, self.begin_ms) - span.stopped_since_ms))
        span.stopped_since_ms = max(span.ready_ms, self.begin_ms)

    def _stood_still(self, span: Span, gap_ms: int) -> None:
        if gap_ms >= self.least_ms:
            span.stopped_ms += gap_ms
            span.longest_ms = max(span.longest_ms, gap_ms)

    def finish(self, now_ms: int) -> None:
        """Close the open intervals at the end of a run."""
        for span in self.spans.values():
            if span.runner and now_ms >= span.ready_ms:
                self._ran(span)
                continue
            if not span.runner:
                span.unowned_ms += now_ms - span.unowned_since_ms
            self._stood_still(span, now_ms - span.stopped_since_ms)

    def called(
        self, runner: str, call: ListenerCall, resources: Sequence[Resource], now_ms: int
    ) -> None:
        """A callback was made: every ASSIGNED is later REVOKED or LOST exactly once (S14)."""
        announced = self.announced.setdefault(runner, {})
        for resource in resources:
            assigned = call is ListenerCall.ASSIGNED
            if announced.get(resource, False) is assigned:
                before = "already assigned" if assigned else "not assigned"
                text = f"{resource} is {call} at {runner}, where it was {before}"
                self.fail("S14", now_ms, text)
            announced[resource] = assigned
            dropped = self.dropped.setdefault(runner, set())
            if call is ListenerCall.LOST and resource not in dropped:
                self.fail("S14", now_ms, f"{runner} is a member, and {resource} is lost")
            dropped.discard(resource)

    def lost(self, runner: str, resources: Iterable[Resource]) -> None:
        """A member dropped ``resources`` at once."""
        self.dropped.setdefault(runner, set()).update(resources)

    def ended(self, runner: str, now_ms: int) -> None:
        """A member ended in order: every resource it heard assigned was revoked or lost (S14)."""
        left = sorted(r for r, held in self.announced.get(runner, {}).items() if held)
        if left:
            self.fail("S14", now_ms, f"{runner} ends, and {left[0]} was neither revoked nor lost")

    def commit(self, resource: Resource, offset: int, now_ms: int, *, by: str = "") -> None:
        """The coordinator took an offset of client ``by`` (S15; S2 if another client runs it)."""
        runner = self.runner(resource)
        if runner not in ("", by):
            self.fail("S2", now_ms, f"{resource} runs at {runner}, and {by}'s commit is accepted")
        if offset < self.committed.get(resource, 0):
            text = f"{resource} goes back from {self.committed[resource]} to {offset}"
            self.fail("S15", now_ms, text)
        self.committed[resource] = offset

    # Numbers

    @property
    def moved(self) -> int:
        """Changes from one member to another."""
        return sum(span.moves for span in self.spans.values())

    @property
    def moved_to_third(self) -> int:
        """Resources that visited a member other than their owner before and after."""
        return sum(
            bool(span.visited - {span.first_slot, span.last_slot}) for span in self.spans.values()
        )

    @property
    def stops(self) -> int:
        """How often a resource that was processed stopped: revoked, lost, or its process gone."""
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
        """The longest single stop of one resource."""
        return max((span.longest_ms for span in self.spans.values()), default=0) / 1000
