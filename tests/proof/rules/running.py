"""Rules over time about running, calling back and committing: S1, S2, S5, S10, S14 and S15.

**Rules.** A process is a *zombie* of a resource from the moment another process starts the
resource until it stops the resource itself. Time in which a zombie stalls does not count.

**Strategy.** Plain records, filled by :mod:`tests.proof.rules.attached` from a world's messages and
actions, or by a history written by hand. Broken rules go to the world's ownership log.

References: :data:`tests.proof.rules.checkers.RULES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.sim.clock import OwnershipLog


class RunningRules:
    """Follows the processes of one run.

    Parameters
    ----------
    ownership_log : OwnershipLog
        Has the runner of each resource, and receives broken rules.
    zombie_limit_ms : int
        Time that a process may run a resource that was given to another one.
    """

    def __init__(self, ownership_log: OwnershipLog, zombie_limit_ms: int = 0):
        self.ownership_log, self.zombie_limit_ms = ownership_log, zombie_limit_ms
        self.generations: dict[Resource, int] = {}  # of each resource's last start
        self.committing: dict[Resource, str] = {}  # the sender of a commit that has not ended
        self.zombies: dict[tuple[str, Resource], int] = {}  # since when
        self.announced: dict[str, dict[Resource, bool]] = {}  # the calls of each listener
        self.dropped: dict[str, set[Resource]] = {}

    def recount(self, generation: int) -> None:
        """Continue generations from ``generation``: the coordinator has lost records."""
        self.generations = {r: min(g, generation) for r, g in self.generations.items()}

    def start(
        self, resource: Resource, *, runner: str, generation: int, now_ms: int, excused: bool
    ) -> None:
        """Check a process that is about to take a resource.

        ``excused``: another process that still runs or commits the resource could not be stopped.
        """
        fail, other = self.ownership_log.fail, self.ownership_log.runner(resource)
        if other not in ("", runner):
            if not excused:
                text = f"{resource} runs at {other} and {runner} (generation {generation})"
                fail("S1", now_ms, text)
            self.zombies[other, resource] = now_ms
        committer = self.committing.get(resource, runner)
        if committer != runner and not excused:
            fail("S5", now_ms, f"{resource} starts at {runner} before {committer} committed")
        if generation < (before := self.generations.get(resource, -1)):
            fail("S10", now_ms, f"{resource} starts in generation {generation} after {before}")
        self.generations[resource] = generation

    def stop(
        self, resource: Resource, *, runner: str, now_ms: int, stalled_until_ms: int = 0
    ) -> None:
        """Record that a process stops a resource, or has run it for too long."""
        since_ms = self.zombies.pop((runner, resource), None)
        if since_ms is None:
            return
        ran_ms = now_ms - max(since_ms, stalled_until_ms)
        if ran_ms > self.zombie_limit_ms:
            text = f"{resource} ran at {runner} {ran_ms} ms after it was removed"
            self.ownership_log.fail("S2", now_ms, text)

    def called(
        self, runner: str, call: ListenerCall, resources: Sequence[Resource], now_ms: int
    ) -> None:
        """Record a callback: every ASSIGNED is later REVOKED or LOST exactly once (S14)."""
        announced = self.announced.setdefault(runner, {})
        for resource in resources:
            assigned = call is ListenerCall.ASSIGNED
            if announced.get(resource, False) is assigned:
                before = "already assigned" if assigned else "not assigned"
                text = f"{resource} is {call} at {runner}, where it was {before}"
                self.ownership_log.fail("S14", now_ms, text)
            announced[resource] = assigned
            dropped = self.dropped.setdefault(runner, set())
            if call is ListenerCall.LOST and resource not in dropped:
                self.ownership_log.fail(
                    "S14", now_ms, f"{runner} is a member, and {resource} is lost"
                )
            dropped.discard(resource)

    def lost(self, runner: str, resources: Iterable[Resource]) -> None:
        """Record that a member dropped ``resources`` at once: nothing of them is committed."""
        self.dropped.setdefault(runner, set()).update(resources)
        for resource in resources:
            if self.committing.get(resource) == runner:
                del self.committing[resource]

    def ended(self, runner: str, now_ms: int) -> None:
        """Check that a member that ended in order revoked or lost every resource (S14)."""
        left = sorted(r for r, held in self.announced.get(runner, {}).items() if held)
        if left:
            text = f"{runner} ends, and {left[0]} was neither revoked nor lost"
            self.ownership_log.fail("S14", now_ms, text)

    def commit(
        self, resource: Resource, offset: int, now_ms: int, *, before: int, by: str = ""
    ) -> None:
        """Record an offset of client ``by`` (S15; S2 if another client runs the resource)."""
        runner = self.ownership_log.runner(resource)
        if runner not in ("", by):
            text = f"{resource} runs at {runner}, and {by}'s commit is accepted"
            self.ownership_log.fail("S2", now_ms, text)
        if offset < before:
            self.ownership_log.fail(
                "S15", now_ms, f"{resource} goes back from {before} to {offset}"
            )
