"""The application around each member: it fetches, runs callbacks, commits, and plans if it leads.

**Rules.** Actions are carried out in the order in which the member returns them. A batch is
finished before anything else happens; the cost model has the time of a batch.

**Strategy.** One method per action that is not a request (:mod:`holdfast.sim.broker`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.machine import actions
from holdfast.core.machine.coordinator.group import SendCommit
from holdfast.core.machine.events import AssignmentComputed, Drained, ListenerReturned
from holdfast.core.machine.leader.assignor_protocol import RebalanceProtocol
from holdfast.core.machine.leader.designs import compute, stay
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.sim.broker import Hooks, Requests, SimulatedBroker
from holdfast.sim.clock import Costs, Listener
from holdfast.sim.process import RECORD_MS, Process

NEVER_MS = 2**62


class Application:
    """The work that every process of a world does for its member.

    Parameters
    ----------
    requests : Requests
        The way to the coordinator, for commits.
    broker : SimulatedBroker
        Has the committed offsets.
    lags : mapping, optional
        The lags of partitions, as leaders know them.
    """

    def __init__(
        self,
        requests: Requests,
        broker: SimulatedBroker,
        *,
        costs: Costs,
        hooks: Hooks,
        lags: Mapping[str, Sequence[int]] | None = None,
    ):
        self.lags = lags
        self.requests, self.broker, self.costs = requests, broker, costs
        self.clock, self.network, self.counts = requests.clock, requests.network, requests.counts
        self.ownership_log, self.trace = broker.ownership_log, broker.trace
        self.compute = hooks.plan(self._compute)
        self.warnings: list[str] = []
        self.failed_plan: str | None = None  # why the first plan failed

    def stop_fetching(self, process: Process, action: actions.StopFetching) -> None:
        """Finish the batch in flight, then report the resources as drained."""
        when_ms = process.boundary() + process.revoke_extra_ms
        self.clock.at(when_ms, self._drained, (process, action))

    def _drained(self, entry: tuple[Process, actions.StopFetching]) -> None:
        process, action = entry
        if not process.alive:
            return
        if process.stalled_until_ms > self.clock.now_ms:
            self.clock.at(process.stalled_until_ms, self._drained, entry)
            return
        job = process.member.holdings.revocation
        if job is not None and job.token == action.token:
            self._stopped(process, action.resources)
        process.notify(Drained(action.token))

    def _stopped(self, process: Process, resources: Sequence[Resource]) -> None:
        now_ms = self.clock.now_ms
        for resource in resources:
            if resource in process.running:
                process.running.discard(resource)
                begun_ms, offset = process.positions[resource]
                n_records = max(0, now_ms - begun_ms) // RECORD_MS
                process.positions[resource] = (now_ms, offset + n_records)
                self.ownership_log.stop(resource, runner=process.client, now_ms=now_ms)

    def drop(self, process: Process, action: actions.DropNow) -> None:
        """Stop at once; nothing is committed."""
        self._stopped(process, action.resources)
        self.trace.note(f"{process.client} drops {_short(action.resources)}")

    def call(self, process: Process, action: actions.CallListener) -> None:
        """Run a callback between two batches, which takes its time."""
        cost_ms = 0
        if action.call is ListenerCall.REVOKED and action.resources:
            cost_ms = self.costs.revoke_ms
            process.has_revoked = True
        when_ms = process.boundary() + cost_ms
        if self.trace.on:
            self.trace.note(f"{process.client} {action.call} {_short(action.resources)}")
        error = None
        if process.listener_faults and self.network.chance() < process.listener_faults:
            error = "fault"
        self.clock.at(when_ms, process.notify, ListenerReturned(action.token, error))

    def start_fetching(self, process: Process, action: actions.StartFetching) -> None:
        """Rebuild the state of new resources, then process."""
        now_ms, ownership_log, member = self.clock.now_ms, self.ownership_log, process.member
        listener = self.costs.listener
        if listener is None:
            eager = member.data.rebalance_protocol is RebalanceProtocol.EAGER
            listener = Listener.OLD if eager else Listener.NEW
        costs = self.costs
        busy_ms = max(process.rebuilt_ms, now_ms)
        gained = {r for r in action.resources if listener is Listener.OLD or r not in process.state}
        done_ms = busy_ms + costs.rebuild_ms * len(gained)
        blocks = costs.rebuild_blocks and bool(gained)
        if blocks:
            process.busy_until_ms = done_ms
            for resource in sorted(process.running):
                ownership_log.hold(resource, now_ms, done_ms)
        for resource in action.resources:
            if resource in gained:
                busy_ms += costs.rebuild_ms
            ownership_log.start(
                resource,
                runner=process.client,
                slot=process.slot,
                now_ms=now_ms,
                ready_ms=(done_ms if blocks else busy_ms) + costs.first_fetch_ms,
            )
            process.positions[resource] = (now_ms, self.broker.committed.get(resource, 0))
        process.rebuilt_ms = busy_ms
        process.running.update(action.resources)
        process.state = set(member.holdings.owned)

    def commit(self, process: Process, action: actions.Commit) -> None:
        """Send the positions of resources that the member revokes."""
        offsets = tuple((r, process.positions.get(r, (0, 0))[1]) for r in action.resources)
        request = SendCommit(
            request=action.token,
            generation=action.generation,
            member_id=action.member_id,
            instance_id=action.instance_id,
            offsets=offsets,
        )
        self.requests.send_commit(process, request)

    def joining(self, process: Process, action: actions.SendJoin) -> None:
        """Send a join. Members of some clients stop their resources until the round ends."""
        stops = self.costs.waiting_stops
        if process.has_revoked:
            stops = max(stops, self.costs.joining_stops)
        if stops and 100 * self.network.chance() < stops:
            now_ms, ownership_log = self.clock.now_ms, self.ownership_log
            for resource in sorted(process.running - process.suspended):
                if ownership_log.spans[resource].ready_ms <= now_ms:
                    ownership_log.hold(resource, now_ms, NEVER_MS)
                    process.suspended.add(resource)
        self.requests.send(process, action)

    def completed(self, process: Process, action: actions.JoinCompleted) -> None:
        """Record that a round is complete for this member."""
        for resource in sorted(process.suspended & process.running):
            self.ownership_log.resume(resource, self.clock.now_ms)
        process.suspended.clear()
        process.has_revoked = False
        if not self.trace.on:
            return
        self.trace.note(
            f"{process.client} in generation {action.generation}"
            f"{' leads' if action.is_leader else ''}: owns {_short(action.owned)}"
            f"{', revokes ' + _short(action.revoked) if action.revoked else ''}"
            f"{f', delay {action.delay_ms}' if action.delay_ms else ''}"
        )

    def warn(self, process: Process, action: actions.Warn) -> None:
        """Keep a warning of the member (the first thousand are kept)."""
        if len(self.warnings) < 1000:
            self.warnings.append(f"{process.client}: {action.text}")

    def failed(self, process: Process, action: actions.Fail) -> None:
        """Record that the member has ended."""
        process.failed = action.text
        self.trace.note(f"{process.client} fails: {action.text}")

    def plan(self, process: Process, action: actions.ComputeAssignment) -> None:
        """Plan for a member that leads, which takes its time."""
        done = self.compute(process, action)
        self.failed_plan = self.failed_plan or done.failure
        self.counts.n_bytes += sum(len(data) for _, data in done.assignments)
        if self.costs.plan_ms:
            self.clock.at(self.clock.now_ms + self.costs.plan_ms, process.notify, done)
        else:
            process.notify(done)

    def _compute(self, process: Process, action: actions.ComputeAssignment) -> AssignmentComputed:
        """Return the assignments of all members, or why there are none."""
        assignors = process.member.data.assignors
        if process.plan_fails:
            process.plan_fails -= 1
            return stay(assignors, action, RuntimeError("the plan failed"))
        return compute(assignors, action, lags=self.lags)


def _short(resources: Sequence[Resource]) -> str:
    """Return resources for a trace, long lists cut."""
    names = [f"{topic}-{partition}" for topic, partition in resources[:8]]
    if len(resources) > 8:
        names.append(f"... {len(resources)}")
    return " ".join(names) or "nothing"
