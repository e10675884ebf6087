"""The broker's side: the coordinator, its log, its timer and its restarts.

**Rules.**

- The records of a request are in the log, and the coordinator has replayed them, before the world
  continues.
- A coordinator that restarts knows only its log. Records at the end of the log may be lost in the
  restart.
- A group's record above ``message_max_bytes`` is not written, as on a real broker.
- Jumps of the wall clock change only the times in records.

**Strategy.** Answers go out through a function that the caller passes in. A round is counted when
the assignments of its leader are in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from holdfast.core.machine.actions import SendSync
from holdfast.core.machine.coordinator.coordinator import Coordinator
from holdfast.core.machine.coordinator.group import (
    Append,
    CoordinatorOptions,
    Out,
    Received,
    Request,
    SendCommit,
    SendResponse,
)
from holdfast.core.model.partitions import Resource
from holdfast.sim.world.clock import Clock, Trace
from holdfast.sim.world.ownership_log import OwnershipLog

GROUP = "group"
MAX_ROUNDS = 200  # and a hundred for each cause: a run with more rounds is aborted
WALL_MS = 1_767_225_600_000  # the coordinator's wall clock at time 0: 2026-01-01, UTC


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
