"""Worlds and scenarios of the simulation under the rules.

**Rules.** A checked world behaves as the world itself, with late applications in addition. An
application commits its records in flight some time after their resource has ended, which the member
has to refuse (S16). A test's hook around a part of the world is outside the rules: a message that
is held back has not arrived for them.

**Strategy.** :class:`Attached` takes the world's messages, plans and actions by its hooks.

References: :data:`tests.proof.rules.checkers.RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.proof.rules.checkers import RoundChecker
from tests.proof.rules.commits import DeliveredBatch, check_commits
from tests.proof.rules.running import RunningRules

from holdfast.core.machine import actions
from holdfast.core.machine.coordinator.group import SendCommit
from holdfast.core.machine.events import AssignmentComputed, CommitAnswered
from holdfast.core.machine.states import ENDED, MemberState
from holdfast.core.model.partitions import Resource
from holdfast.sim import scenarios
from holdfast.sim.broker import Arrive, Hooks, Plan, Respond
from holdfast.sim.clock import Violation
from holdfast.sim.process import ActionHandlers, Process
from holdfast.sim.world import World, WorldOptions

LATE_MS = (0, 500, 1_000, 2_000, 4_000, 8_000, 12_000)
"""Time after a resource has ended until an application commits its last batch, in ms."""

Held = dict[DeliveredBatch, int]
"""Batches in flight in an application, and the offset after each of them."""


class CheckedWorld(World):
    """A world under the rules."""

    def __init__(self, options: WorldOptions, seed: int, hooks: Hooks | None = None):
        self._attached = Attached()
        super().__init__(options, seed, self._attached.hooks(Hooks() if hooks is None else hooks))
        self.checker = self._attached.follow(self)
        self.terms = self._attached.terms

    @property
    def violations(self) -> list[Violation]:
        """Broken rules of the run so far."""
        self._attached.sweep()
        return self.ownership_log.violations


def simulate(
    setup: scenarios.Setup, *, ended: Callable[[World], None] | None = None, **more: Any
) -> scenarios.Report:
    """Play a scenario under the rules; fail if one is broken."""
    worlds: list[CheckedWorld] = []

    def make_world(options: WorldOptions, seed: int) -> CheckedWorld:
        worlds.append(CheckedWorld(options, seed))
        return worlds[0]

    report = scenarios.simulate(setup, ended=ended, make_world=make_world, **more)
    assert list(report.violations) == [v for world in worlds for v in world.violations] == []
    return report


class Attached:
    """The rules of one world, and their records of it."""

    world: World

    def __init__(self) -> None:
        self.terms: dict[tuple[str, Resource], int] = {}  # of each client's last start
        self.commits: dict[str, int] = {}  # by client, the token of its last commit
        self.answered: set[str] = set()  # clients whose last commit was answered
        self.coordinator: Any = None

    def follow(self, world: World) -> RoundChecker:
        """Begin, before the world starts."""
        self.world, costs = world, world.costs
        limit_ms = costs.session_ms + costs.slow_poll_ms + 1_000
        self.running = RunningRules(world.ownership_log, limit_ms)
        self.checker = RoundChecker(world.ownership_log)
        return self.checker

    def hooks(self, outer: Hooks) -> Hooks:
        """Return the rules around the parts of a world, inside a test's hooks."""
        return Hooks(
            arrive=lambda real: outer.arrive(self._arriving(real)),
            answer=outer.answer,
            respond=lambda real: outer.respond(self._responding(real)),
            plan=lambda real: outer.plan(self._planning(real)),
            action_handlers=lambda real: outer.action_handlers(self._action_handlers(real)),
        )

    # Messages and plans

    def _arriving(self, arrive: Arrive) -> Arrive:
        def arrive_and_check(entry: tuple[Process, Any]) -> None:
            process, request = entry
            broker, offsets = self.world.broker, getattr(request, "offsets", ())
            before = {r: broker.committed.get(r, 0) for r, _ in offsets}
            n_records = len(broker.log)
            self._recount()
            self._stop_overdue()
            arrive(entry)
            if len(broker.log) == n_records:
                return
            if isinstance(request, actions.SendSync):
                given = dict(request.assignments)
                self.checker.stored(request.generation, request.protocol_name, given)
            elif isinstance(request, SendCommit):
                now_ms, by = self.world.now_ms, process.client
                for resource, offset in offsets:
                    self.running.commit(resource, offset, now_ms, before=before[resource], by=by)

        return arrive_and_check

    def _responding(self, respond: Respond) -> Respond:
        def respond_and_note(entry: tuple[Process, Any]) -> None:
            process, response = entry
            last = self.commits.get(process.client)
            if isinstance(response, CommitAnswered) and response.request == last:
                self.answered.add(process.client)
            respond(entry)
            self._end_commits(process)

        return respond_and_note

    def _planning(self, plan: Plan) -> Plan:
        def plan_and_check(
            process: Process, action: actions.ComputeAssignment
        ) -> AssignmentComputed:
            offered: Sequence[Any] = process.member.data.assignors
            chosen = next(a for a in offered if a.name == action.protocol_name)
            done, now_ms = plan(process, action), self.world.now_ms
            if done.failure is None:
                group = self.world.coordinator
                current = group is not None and group.generation == action.generation
                self.checker.check(action, done, now_ms, chosen, current=current)
            else:
                self.checker.note(action, done, now_ms, chosen)
            self.sweep()
            return done

        return plan_and_check

    # Actions of a member

    def _action_handlers(self, real: ActionHandlers) -> ActionHandlers:
        first: dict[type, Callable[[Process, Any], None]] = {
            actions.StopFetching: self._stopping,
            actions.DropNow: self._dropping,
            actions.CallListener: self._calling,
            actions.StartFetching: self._starting,
            actions.Commit: self._committing,
            actions.JoinCompleted: self._completed,
        }
        return {**real, **{kind: _after(check, real[kind]) for kind, check in first.items()}}

    def _stopping(self, process: Process, action: actions.StopFetching) -> None:
        """Check the process just before its last batch is finished."""
        self._end_commits(process, another=True)
        when_ms = process.boundary() + process.revoke_extra_ms
        self.world.clock.at(when_ms, self._draining, (process, action))

    def _draining(self, entry: tuple[Process, actions.StopFetching]) -> None:
        process, action = entry
        now_ms = self.world.now_ms
        if not process.alive:
            return
        if process.stalled_until_ms > now_ms:
            self.world.clock.at(process.stalled_until_ms, self._draining, entry)
            return
        job = process.member.holdings.revocation
        if job is None or job.token != action.token:
            return
        batches = self._in_hand(process, action.resources)
        ownership_log = self.world.ownership_log
        check_commits(ownership_log, now_ms, process.client, process.member, current=batches)
        self._stop(process, action.resources)
        self.world.clock.at(now_ms, self._hold, (process, batches, False))

    def _dropping(self, process: Process, action: actions.DropNow) -> None:
        batches = self._in_hand(process, action.resources)
        self._stop(process, action.resources)
        self.running.lost(process.client, action.resources)
        self.world.clock.at(self.world.now_ms, self._hold, (process, batches, True))

    def _calling(self, process: Process, action: actions.CallListener) -> None:
        self.running.called(process.client, action.call, action.resources, self.world.now_ms)

    def _starting(self, process: Process, action: actions.StartFetching) -> None:
        member, now_ms, client = process.member, self.world.now_ms, process.client
        self._recount()
        generation, group = member.data.claim_generation, self.world.coordinator
        if self.world.broker.lost_records and group is not None:  # answers may be forgotten
            generation = min(generation, group.generation)
        for resource in action.resources:
            if resource not in member.holdings.owned or resource[0] not in member.data.topics:
                text = f"{client} starts {resource} outside what it owns or subscribes"
                self.world.ownership_log.fail("S6", now_ms, text)
            if committer := self.running.committing.get(resource):
                self._end_commits(self.world.processes[committer])
            self.running.start(
                resource,
                runner=client,
                generation=generation,
                now_ms=now_ms,
                excused=self._excused(process, resource),
            )
            self.terms[client, resource] = action.term

    def _committing(self, process: Process, action: actions.Commit) -> None:
        self.commits[process.client] = action.token
        self.answered.discard(process.client)
        self.running.committing |= dict.fromkeys(action.resources, process.client)

    def _completed(self, process: Process, action: actions.JoinCompleted) -> None:
        self.checker.completed(action, self.world.now_ms)

    # What no process could prevent

    def _end_commits(self, process: Process, *, another: bool = False) -> None:
        """Forget an answered commit of a process whose revocation has ended.

        ``another``: a revocation begins, so the one before has ended. While a process stalls, an
        answer has arrived and ended nothing yet.
        """
        client, committing = process.client, self.running.committing
        ended = another or process.member.holdings.revocation is None
        if (client in self.answered and ended) or not process.alive:
            for resource in [r for r, by in committing.items() if by == client]:
                del committing[resource]

    def _excused(self, process: Process, resource: Resource) -> bool:
        """Return whether the other process of a resource could not be stopped.

        That process is not in the group, or stalls, or is of a generation that the coordinator has
        lost, or is a static member that did not join in time: the coordinator keeps such a member
        with the claims of its last join (KIP-345), and the member learns that with its next
        heartbeat. Or there is no coordinator, or no such process.
        """
        coordinator = self.world.coordinator
        rivals = {
            self.world.ownership_log.runner(resource),
            self.running.committing.get(resource, ""),
        }
        rivals -= {"", process.client}
        if coordinator is None or not rivals:
            return True
        return all(
            other.member.member_id not in coordinator.members
            or other.stalled_until_ms > self.world.now_ms
            or other.member.generation > coordinator.generation
            or (
                other.member.identity.instance_id is not None
                and other.member.state in (MemberState.STABLE, MemberState.REVOKING)
                and other.member.generation < coordinator.generation
            )
            for other in (self.world.processes[rival] for rival in rivals)
        )

    def _recount(self) -> None:
        """Detect a coordinator that has restarted, and may have lost records."""
        group = self.world.coordinator
        if group is not None and group is not self.coordinator:
            self.coordinator = group
            if self.world.broker.lost_records:
                self.running.recount(group.generation)

    # Stops and ends

    def _stop(self, process: Process, resources: Sequence[Resource]) -> None:
        until_ms = process.stalled_until_ms
        for resource in resources:
            self.running.stop(
                resource,
                runner=process.client,
                now_ms=self.world.now_ms,
                stalled_until_ms=until_ms,
            )

    def _stop_overdue(self) -> None:
        """Find zombies that run for too long, and forget those that have ended."""
        now_ms, running = self.world.now_ms, self.running
        for (client, resource), since_ms in list(running.zombies.items()):
            process = self.world.processes[client]
            if not process.alive:
                del running.zombies[client, resource]
            elif now_ms - max(since_ms, process.stalled_until_ms) > running.zombie_limit_ms:
                self._stop(process, [resource])

    def sweep(self) -> None:
        """Find members that ended in order, and callbacks that they still owe."""
        for client in list(self.running.announced):
            process = self.world.processes[client]
            if process.alive:
                continue
            holdings = process.member.holdings
            if process.member.state in ENDED and holdings.calling is None and not holdings.queue:
                self.running.ended(client, self.world.now_ms)
            del self.running.announced[client]

    # Applications that are late

    def _in_hand(self, process: Process, resources: Sequence[Resource]) -> list[DeliveredBatch]:
        """Return batches of ``resources`` in flight in the application."""
        of = process.client
        return [
            DeliveredBatch(r, self.terms[of, r])
            for r in resources
            if r in process.running and (of, r) in self.terms
        ]

    def _hold(self, entry: tuple[Process, list[DeliveredBatch], bool]) -> None:
        """Schedule late commits of the resources' batches: the resources have ended."""
        process, batches, dropped = entry
        held = {batch: process.positions[batch.resource][1] for batch in batches}
        if held:
            clock = self.world.clock
            for delay_ms in LATE_MS:
                clock.at(clock.now_ms + delay_ms, self._commit_late, (process, held, dropped))

    def _commit_late(self, entry: tuple[Process, Held, bool]) -> None:
        """Commit batches of an ended term, if the member accepts them.

        A revocation in order ends some time after its resources were drained. A resource that runs
        again was surely revoked.
        """
        process, held, dropped = entry
        world, member = self.world, process.member
        if not process.alive or member.generation < 0:
            return
        if process.stalled_until_ms > world.now_ms:
            world.clock.at(process.stalled_until_ms, self._commit_late, entry)
            return
        ended = [batch for batch in held if dropped or batch.resource in process.running]
        accepted = check_commits(
            world.ownership_log, world.now_ms, process.client, member, ended=ended
        )
        if accepted:
            request = SendCommit(
                request=-1,
                generation=member.identity.generation,
                member_id=member.identity.member_id,
                instance_id=member.identity.instance_id,
                offsets=tuple((batch.resource, held[batch]) for batch in accepted),
            )
            world.application.requests.send_commit(process, request)


def _after(
    check: Callable[[Process, Any], None], duty: Callable[[Process, Any], None]
) -> Callable[[Process, Any], None]:
    """Return an action handler that runs after a check."""

    def check_and_do(process: Process, action: Any) -> None:
        check(process, action)
        duty(process, action)

    return check_and_do
