"""The application around each member: it fetches, is called back, commits, and plans if it leads.

**Rules.** Duties are done in the order in which the member asks for them. A batch is finished
before anything else happens; what that costs is the cost model's.

**Strategy.** One method per action that is not a request (:mod:`holdfast.sim.world.connections`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.machine.actions import (
    CallListener,
    Commit,
    ComputeAssignment,
    DropNow,
    Fail,
    JoinCompleted,
    ListenerCall,
    StartFetching,
    StopFetching,
    Warn,
)
from holdfast.machine.coordinator.coordinator import CommitDone, SendCommit
from holdfast.machine.events import CommitAnswered, Drained, ListenerReturned
from holdfast.machine.leader.designs import Assignor, compute
from holdfast.machine.leader.embedded import RebalanceMode
from holdfast.model.partitions import Resource
from holdfast.sim.world.costs import Listener
from holdfast.sim.world.network import FAIL_MS
from holdfast.sim.world.process import RECORD_MS, Process

if TYPE_CHECKING:
    from holdfast.sim.world.world import World


class Application:
    """What every process of a world does for its member."""

    def __init__(self, world: World):
        self.world = world

    def stop_fetching(self, process: Process, action: StopFetching) -> None:
        """Finish the batch in hand, then it is drained."""
        world = self.world
        when = process.boundary(world.now_ms) + process.revoke_extra_ms
        world.at(when, self._drained, (process, action))

    def _drained(self, entry: tuple[Process, StopFetching]) -> None:
        world = self.world
        process, action = entry
        if not process.alive:
            return
        if process.stalled_until_ms > world.now_ms:
            world.at(process.stalled_until_ms, self._drained, entry)
            return
        job = process.member.holdings.hand_over
        if job is not None and job.token == action.token:
            self._stopped(process, action.resources)
        world.tell(process, Drained(action.token))

    def _stopped(self, process: Process, resources: Sequence[Resource]) -> None:
        world = self.world
        for resource in resources:
            if resource in process.running:
                process.running.discard(resource)
                begun_ms, offset = process.positions[resource]
                process.positions[resource] = (
                    world.now_ms,
                    offset + max(0, world.now_ms - begun_ms) // RECORD_MS,
                )
                world.ledger.stop(resource, runner=process.client, now_ms=world.now_ms)

    def drop(self, process: Process, action: DropNow) -> None:
        """Stop at once; nothing is committed."""
        world = self.world
        self._stopped(process, action.resources)
        world.ledger.lost(process.client, action.resources)
        for resource in action.resources:
            if world.ledger.committing.get(resource) == process.client:
                del world.ledger.committing[resource]
        world.note(f"{process.client} drops {_short(action.resources)}")

    def call(self, process: Process, action: CallListener) -> None:
        """A callback comes between two batches and takes its time."""
        world = self.world
        cost_ms = 0
        if action.call is ListenerCall.REVOKED and action.resources:
            cost_ms = world.costs.revoke_ms
        when = process.boundary(world.now_ms) + cost_ms
        world.ledger.called(process.client, action.call, action.resources, world.now_ms)
        if world.options.trace:
            world.note(f"{process.client} {action.call} {_short(action.resources)}")
        error = None
        if process.listener_faults and world.network.chance() < process.listener_faults:
            error = "fault"
        world.at(when, self._returned, (process, ListenerReturned(action.token, error)))

    def _returned(self, entry: tuple[Process, ListenerReturned]) -> None:
        self.world.tell(*entry)

    def start_fetching(self, process: Process, action: StartFetching) -> None:
        """Rebuild the state of what is new, then process."""
        world = self.world
        coordinator, member = world.coordinator, process.member
        listener = world.costs.listener
        if listener is None:
            eager = member.mode is RebalanceMode.EAGER
            listener = Listener.OLD if eager else Listener.NEW
        generation = member.claim_generation
        if world.lost_records and coordinator is not None:  # what was answered may be forgotten
            generation = min(generation, coordinator.generation)
        busy_ms = max(process.rebuilt_ms, world.now_ms)
        for resource in action.resources:
            if listener is Listener.OLD or resource not in process.state:
                busy_ms += world.costs.rebuild_ms
            if resource not in member.holdings.owned or resource[0] not in member.topics:
                text = f"{process.client} starts {resource} outside what it owns or subscribes"
                world.ledger.fail("S6", world.now_ms, text)
            rivals = {world.ledger.runner(resource), world.ledger.committing.get(resource, "")}
            excused = all(
                coordinator is None
                or world.processes[rival].member.member_id not in coordinator.members
                or world.processes[rival].stalled_until_ms > world.now_ms
                or world.processes[rival].member.generation > coordinator.generation
                for rival in rivals - {"", process.client}
            )
            world.ledger.start(
                resource,
                runner=process.client,
                slot=process.slot,
                generation=generation,
                now_ms=world.now_ms,
                ready_ms=busy_ms,
                excused=excused,
            )
            process.positions[resource] = (world.now_ms, world.ledger.committed.get(resource, 0))
        process.rebuilt_ms = busy_ms
        process.running.update(action.resources)
        process.state = set(member.holdings.owned)

    def commit(self, process: Process, action: Commit) -> None:
        """Send the positions of what is given up."""
        world = self.world
        for resource in action.resources:
            world.ledger.committing[resource] = process.client
        offsets = tuple((r, process.positions.get(r, (0, 0))[1]) for r in action.resources)
        request = SendCommit(
            request=action.token,
            generation=action.generation,
            member_id=action.member_id,
            instance_id=action.instance_id,
            offsets=offsets,
        )
        fates = world.network.fate(process.client, world.now_ms)
        if not fates or world.coordinator is None:
            world.at(world.now_ms + FAIL_MS, self._commit_failed, (process, action))
            return
        world.at(world.now_ms + fates[0], world.connections.arrive, (process, request))

    def _commit_failed(self, entry: tuple[Process, Commit]) -> None:
        process, action = entry
        self.committed(process, CommitDone(action.token, -1))

    def committed(self, process: Process, done: CommitDone) -> None:
        """A commit is answered, or nobody will ever answer it."""
        self.world.tell(process, CommitAnswered(done.request, done.error))

    def commit_ended(self, process: Process) -> None:
        """The member has heard of it, after a stall perhaps, and may have no more to commit."""
        committing = self.world.ledger.committing
        if process.member.holdings.hand_over is None:
            for resource in [r for r, c in committing.items() if c == process.client]:
                del committing[resource]

    def completed(self, process: Process, action: JoinCompleted) -> None:
        """A round is over for this member."""
        world = self.world
        world.checker.completed(action, world.now_ms)
        if not world.options.trace:
            return
        world.note(
            f"{process.client} in generation {action.generation}"
            f"{' leads' if action.is_leader else ''}: owns {_short(action.owned)}"
            f"{', revokes ' + _short(action.revoked) if action.revoked else ''}"
            f"{f', delay {action.delay_ms}' if action.delay_ms else ''}"
        )

    def warn(self, process: Process, action: Warn) -> None:
        """Keep what the member lives with."""
        world = self.world
        if len(world.warnings) < 1000:
            world.warnings.append(f"{process.client}: {action.text}")

    def failed(self, process: Process, action: Fail) -> None:
        """The member is over."""
        process.failed = action.text
        self.world.note(f"{process.client} fails: {action.text}")

    def plan(self, process: Process, action: ComputeAssignment) -> None:
        """The member leads: plan, and have the plan checked."""
        world = self.world
        assignors: Sequence[Any] = process.member.assignors
        if process.plan_fails:
            process.plan_fails -= 1
            assignors = [Broken(a) for a in assignors]
        done = compute(assignors, action)
        if world.options.check and done.failure is None:
            chosen = next(a for a in assignors if a.name == action.protocol_name)
            group = world.coordinator
            current = group is not None and group.generation == action.generation
            world.checker.check(action, done, world.now_ms, chosen, current=current)
        world.bytes += sum(len(data) for _, data in done.assignments)
        world.tell(process, done)


class Broken:
    """An assignor that cannot plan, for a leader's bad day."""

    def __init__(self, assignor: Assignor):
        self.assignor = assignor
        self.name = assignor.name

    def lead(self, turn: object) -> dict[str, bytes]:
        """Always fail."""
        raise RuntimeError("the plan failed")

    def stay(self, turn: Any) -> dict[str, bytes]:
        """What the real one does then."""
        return self.assignor.stay(turn)


def _short(resources: Sequence[Resource]) -> str:
    """Resources for a trace, long lists cut."""
    names = [f"{topic}-{partition}" for topic, partition in resources[:8]]
    if len(resources) > 8:
        names.append(f"... {len(resources)}")
    return " ".join(names) or "nothing"
