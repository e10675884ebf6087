"""The runtime of one member, opened and closed in order: connections, machine, watch.

**Rules.** Components are closed in reverse order. But none waits for an answer that a closed
connection cannot bring: threads that query a broker end after the connections, whose close fails
all open requests. If a component fails to start, those made before it are closed.

References: KIP-429.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from holdfast.cluster.connections import Connections
from holdfast.cluster.lookup import FoundTopics, Lookup
from holdfast.core.machine import events
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.errors import RemoteProtocolError
from holdfast.members.config.policy import make_member
from holdfast.members.config.settings import Settings
from holdfast.members.metrics import Counters, MemberMetrics, RoundTimes
from holdfast.members.runtime.coordinator_client import CoordinatorClient, lag_source_of
from holdfast.members.runtime.leader_planner import LeaderPlanner
from holdfast.members.runtime.member_log import NOT_JOINED, MemberLog
from holdfast.members.runtime.member_thread import MemberThread, RebalanceHandler
from holdfast.members.runtime.metadata_watch import DeclaredResources, MetadataWatch, TopicPredicate
from holdfast.members.runtime.readiness import ready_file


class MemberRuntime:
    """The runtime of one member of a group, whatever it shares.

    It opens ``connections``, which another thread may close meanwhile. A worker gives its own
    ``resources`` and ``planner``; by default the member shares topics.
    """

    watch: MetadataWatch  # of a member that shares topics

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        rebalance_handler: RebalanceHandler,
        connections: Connections,
        *,
        resources: DeclaredResources | None = None,
        planner: LeaderPlanner | None = None,
    ):
        self._settings = settings
        self._rebalance_handler = rebalance_handler
        self.counters = Counters()
        self.log = log = MemberLog(settings) if planner is None else planner.log
        member = make_member(settings, assignors, is_worker=resources is not None)
        ready = ready_file(settings, log)
        self._closers: list[Callable[[], object]] = [connections.close]
        try:
            connections.open()
            self.lookup = Lookup(connections)
            self.coordinator = CoordinatorClient(connections, self._post, self.fail)
            self.planner = planner or LeaderPlanner(
                settings,
                assignors,
                self._count_partitions,
                lag_source=lag_source_of(settings, self.coordinator, self.lookup),
                find_racks=lambda topics: self.lookup.racks(topics).result(),
                log=log,
            )
            self._closers = [*self._closers, rebalance_handler.end]
            self.member_thread = MemberThread(
                member,
                rebalance_handler,
                self.planner.compute,
                name=f"holdfast-{settings['group.id']}-{settings['client.id']}",
                log=log,
                ready=ready,
                is_orphaned=self._is_orphaned,
            )
            self._closers.append(self.member_thread.stop)
            if resources is None:
                self.watch = MetadataWatch(settings, self.lookup, self._post, self.fail, log)
                self._closers = [self.watch.wait_ended, *self._closers, self.watch.end]
            else:
                resources.post = self._post
            self.shared = resources or self.watch
        except BaseException:
            self.close()
            raise

    def _is_orphaned(self) -> bool:
        """Return whether the member has to end alone; start closing the runtime then."""
        if not self._rebalance_handler.is_orphaned():
            return False
        self.log.warning("the application's event loop is closed, and its member ends")
        threading.Thread(target=self.close, name="holdfast-orphan", daemon=True).start()
        return True

    def _post(self, event: events.Event) -> None:
        self.member_thread.post(event)

    def fail(self, error: BaseException) -> None:
        """End the member with an error; safe from any thread."""
        self.member_thread.fail(error)

    def _count_partitions(self, topics: frozenset[str]) -> FoundTopics:
        return self.watch.count(topics)

    def subscribe(self, topics: tuple[str, ...], pattern: TopicPredicate | None) -> None:
        """Subscribe, and join the group if the member has not joined."""
        self.member_thread.start(self.coordinator)
        self.shared.subscribe(topics, pattern)

    def metrics(self) -> MemberMetrics:
        """Return the counters."""
        return metrics_of(self._settings, self.planner, self)

    def record_unreported_loss(self, error: RemoteProtocolError) -> None:
        """Log and count an automatic commit that is impossible because its records were lost."""
        self.counters.add("commit_failed")
        self.log.error("%s", error)

    def close(self) -> None:
        """Close every component; a second call continues where the first was interrupted."""
        while self._closers:
            closer = self._closers[-1]
            try:
                closer()
            except Exception:
                self._closers.remove(closer)
                raise
            if closer in self._closers:  # a second thread may close at the same time
                self._closers.remove(closer)


def metrics_of(
    settings: Settings, planner: LeaderPlanner, runtime: MemberRuntime | None
) -> MemberMetrics:
    """Return the metrics of a member that runs, or that has not started."""
    snapshot, times, counters = NOT_JOINED, RoundTimes(), Counters()
    if runtime is not None:
        counters = runtime.counters
        snapshot, times = runtime.member_thread.snapshot, runtime.member_thread.times
    counts = counters.read()
    return MemberMetrics(
        group=settings["group.id"],
        client_id=settings["client.id"],
        member_id=snapshot.identity.member_id,
        generation=snapshot.identity.generation,
        state=snapshot.state.value,
        is_leader=snapshot.is_leader,
        assigned_partitions=len(snapshot.owned),
        commit_total=counts["commit"],
        commit_failed_total=counts["commit_failed"],
        records_consumed_total=counts["records"],
        missing_topics=() if runtime is None else runtime.shared.missing,
        waiting=planner.waits.read() if snapshot.is_leader else (),
        reassigned_partitions=planner.waits.n_reassigned if snapshot.is_leader else 0,
        rebalance_total=times.rounds.n,
        failed_rebalance_total=times.n_failed,
        rebalance_latency_avg=times.rounds.avg_ms,
        rebalance_latency_max=times.rounds.max_ms,
        join_total=times.joins.n,
        join_time_avg=times.joins.avg_ms,
        join_time_max=times.joins.max_ms,
        sync_total=times.syncs.n,
        sync_time_avg=times.syncs.avg_ms,
        sync_time_max=times.syncs.max_ms,
        partitions_gained_total=times.n_gained,
        partitions_revoked_total=times.n_revoked,
        partitions_lost_total=times.n_lost,
        last_rebalance_seconds_ago=times.since_last_s,
    )
