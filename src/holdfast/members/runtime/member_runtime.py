"""The runtime of one member, opened and closed in order: connections, machine, metadata watch.

**Rules.** Components are closed in reverse order. But none waits for an answer that a closed
connection cannot bring: threads that query a broker end after the connections, whose close fails
all open requests. If a component fails to start, those made before it are closed.

**Strategy.** The metadata watch requests partition counts on a thread of its own, every
``metadata.max.age.ms`` and whenever the subscription changes. A worker declares its resources
instead.

References: KIP-429; Kafka's ConsumerCoordinator ("metadata snapshot").
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from holdfast.cluster.connections import Connections, ends_member
from holdfast.cluster.lookup import FoundTopics, Lookup
from holdfast.cluster.signal_safe import Flag, Mailbox
from holdfast.core.machine import events
from holdfast.core.machine.codes import FATAL, ErrorCode, describe
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.errors import ConfigError, HoldfastError, RemoteProtocolError, nearest
from holdfast.members.config.policy import make_member
from holdfast.members.config.settings import Settings
from holdfast.members.metrics import Counters, MemberMetrics, RebalanceTimes
from holdfast.members.runtime.coordinator_client import CoordinatorClient, lag_source_of
from holdfast.members.runtime.leader_planner import LeaderPlanner
from holdfast.members.runtime.member_status import NOT_JOINED, MemberLog, ReadyFile
from holdfast.members.runtime.member_thread import MemberThread, RebalanceHandler

TopicPredicate = Callable[[str], bool]


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
        ready = ReadyFile.of(settings, log)
        self._close_steps: list[Callable[[], object]] = [connections.close]
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
            self._close_steps = [*self._close_steps, rebalance_handler.end]
            self.member_thread = MemberThread(
                member,
                rebalance_handler,
                self.planner.compute,
                name=f"holdfast-{settings['group.id']}-{settings['client.id']}",
                log=log,
                ready=ready,
                is_orphaned=self._is_orphaned,
            )
            self._close_steps.append(self.member_thread.stop)
            if resources is None:
                self.watch = MetadataWatch(settings, self.lookup, self._post, self.fail, log)
                self._close_steps = [self.watch.wait_ended, *self._close_steps, self.watch.end]
            else:
                resources.post = self._post
            self.metadata = resources or self.watch
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
        self.metadata.subscribe(topics, pattern)

    def metrics(self) -> MemberMetrics:
        """Return the counters."""
        return metrics_of(self._settings, self.planner, self)

    def record_unreported_loss(self, error: RemoteProtocolError) -> None:
        """Log and count an automatic commit that is impossible because its records were lost."""
        self.counters.add("commit_failed")
        self.log.error("%s", error)

    def close(self) -> None:
        """Close every component; a second call continues where the first was interrupted."""
        while self._close_steps:
            closer = self._close_steps[-1]
            try:
                closer()
            except Exception:
                self._close_steps.remove(closer)
                raise
            if closer in self._close_steps:  # a second thread may close at the same time
                self._close_steps.remove(closer)


def metrics_of(
    settings: Settings, planner: LeaderPlanner, runtime: MemberRuntime | None
) -> MemberMetrics:
    """Return the metrics of a member that runs, or that has not started."""
    snapshot, times, counters = NOT_JOINED, RebalanceTimes(), Counters()
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
        missing_topics=() if runtime is None else runtime.metadata.missing,
        waiting=planner.delays.read() if snapshot.is_leader else (),
        reassigned_partitions=planner.delays.n_reassigned if snapshot.is_leader else 0,
        rebalance_total=times.rebalances.n,
        failed_rebalance_total=times.n_failed,
        rebalance_latency_avg=times.rebalances.avg_ms,
        rebalance_latency_max=times.rebalances.max_ms,
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


class MetadataWatch:
    """Keeps the machine's partition counts up to date.

    A topic that is subscribed to and has no known partitions, for whatever reason, counts 0: when
    it gets some, the leader sees a change. A member fails if one of its own topics may not be read,
    or cannot exist. The topics of other members never end it, and it keeps leading the others until
    its application gets the error.

    A member that subscribes to a pattern joins once it knows the matching topics: before, it would
    take part in a rebalance without a topic, and get its partitions in a second one.

    References: ``maybeThrowAnyException`` of Kafka's Metadata; ``poll`` of its ConsumerCoordinator
    ("ensure fresh metadata" for a pattern).
    """

    def __init__(
        self,
        settings: Settings,
        lookup: Lookup,
        post: Callable[[events.Event], None],
        fail: Callable[[BaseException], None],
        log: MemberLog,
    ):
        self._log = log
        self._lookup = lookup
        self._post = post
        self._fail = fail
        self._refresh_interval_s: float = settings["metadata.max.age.ms"] / 1000
        self._retry_interval_s: float = settings["retry.backoff.max.ms"] / 1000
        self._lock = threading.Lock()
        self._counts: Mapping[str, int] = {}  # as the machine last got them
        self._topics: frozenset[str] = frozenset()
        self._other_topics: frozenset[str] = frozenset()
        self._pattern: TopicPredicate | None = None
        self._subscribed: tuple[str, ...] | None = None
        self.missing: tuple[str, ...] = ()  # topics of the subscription that do not exist
        self._wake: Mailbox[None] = Mailbox()
        self._ended = Flag()
        self._thread = threading.Thread(target=self._run, name="holdfast-metadata", daemon=True)

    def subscribe(self, topics: tuple[str, ...], pattern: TopicPredicate | None) -> None:
        """Watch ``topics``, or the topics that match ``pattern``."""
        with self._lock:
            self._topics, self._pattern = frozenset(topics), pattern
            if pattern is None:
                self._send_subscription(topics)
        if self._thread.ident is None:
            self._thread.start()
        self._wake.put(None)

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Topics of the last subscription that the machine got; for a pattern, those that match."""
        return self._subscribed or ()

    def exists(self, topic: str) -> bool:
        """Return whether a topic of the subscription existed at the last check."""
        return self._counts.get(topic, 0) > 0

    def refresh_soon(self) -> None:
        """Request the partition counts at once, because they were seen to change."""
        self._wake.put(None)

    def count(self, topics: frozenset[str]) -> FoundTopics:
        """Count the partitions of a leader's ``topics`` now, and keep watching them."""
        with self._lock:
            self._other_topics = topics
        try:
            found = self._report()
        except HoldfastError:
            self._post_counts(
                self._counts
            )  # the leader plans without the rest; notice when it appears
            self._wake.put(None)
            raise
        unknown = dict.fromkeys(topics - found.counts.keys(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return FoundTopics(counts=found.counts, refused={**unknown, **found.refused})

    def _report(self) -> FoundTopics:
        with self._lock:
            wanted = None if self._pattern is not None else self._topics | self._other_topics
        found = self._lookup.partitions(wanted).result()
        self._post_counts(found.counts)
        for topic in sorted(self._topics & found.refused.keys()):
            if (code := found.refused[topic]) in FATAL:
                text = f"topic {topic!r}: {describe(code)}"
                self._fail(RemoteProtocolError(text, error_code=code))
        return found

    def _post_counts(self, counts: Mapping[str, int]) -> None:
        with self._lock:
            self._counts = {**dict.fromkeys(self._topics | self._other_topics, 0), **counts}
            counted = tuple(sorted(self._counts.items()))
        self._post(events.MetadataChanged(counted))

    def _send_subscription(self, topics: tuple[str, ...]) -> None:
        """Send the machine a new subscription; with the first one it joins. Holds the lock."""
        if topics == self._subscribed:
            return
        self._post(events.SubscriptionChanged(topics))
        if self._subscribed is None:
            self._post(events.Started())
        self._subscribed = topics  # last: after an exception the machine gets it again

    def _run(self) -> None:
        while True:
            self._wake.items.clear()
            if self._ended.is_set():
                return
            wait_s = self._refresh_interval_s
            try:
                if not self._refresh():
                    wait_s = self._retry_interval_s
            except HoldfastError as error:
                if self._ended.is_set():
                    return
                if ends_member(error):
                    self._fail(error)
                else:
                    self._log.warning("the topics are not known yet: %s", error)
                    wait_s = self._retry_interval_s
            with suppress(queue.Empty):
                self._wake.first(wait_s)

    def _refresh(self) -> bool:
        """Check once; return False if a subscribed topic does not exist yet."""
        counts = self._report().counts
        with self._lock:
            pattern, topics = self._pattern, self._topics
            if pattern is not None:
                self._send_subscription(tuple(sorted(filter(pattern, counts))))
        self._report_missing(() if pattern is not None else tuple(sorted(topics - counts.keys())))
        return pattern is not None or topics <= counts.keys()

    def _report_missing(self, missing: tuple[str, ...]) -> None:
        """Log once which subscribed topics do not exist, with the nearest name that does."""
        new, self.missing = set(missing) - set(self.missing), missing
        if not new:
            return
        known = self._lookup.partitions(None).result().counts
        for topic in missing:
            if topic in new:
                hint = nearest(repr(topic), map(repr, known))
                self._log.warning("topic %r does not exist%s", topic, hint)

    def end(self) -> None:
        """Stop checking."""
        self._ended.set()
        self._wake.put(None)

    def wait_ended(self) -> None:
        """Wait for the last check, which the closed connections end."""
        if self._thread.ident is not None:
            self._thread.join(5)


class DeclaredResources:
    """The resources of a worker, by kind, as its program declares them; nothing is looked up."""

    missing: tuple[str, ...] = ()

    def __init__(self, counts: Mapping[str, int], version: int | None):
        # With the report, user data, the subscriptions of the worker name its version.
        self.counts, self.report, self.version = _checked(counts, version)
        self.post: Callable[[events.Event], None] = lambda _: None  # set by the member that runs
        self._has_started = False

    def declare(self, counts: Mapping[str, int], version: int | None) -> None:
        """Change kinds and counts."""
        self.counts, self.report, self.version = _checked(counts, version)
        self._announce()

    def subscribe(self, topics: tuple[str, ...], pattern: TopicPredicate | None) -> None:
        """Join the group, with every declared kind as a topic."""
        self._announce()
        if not self._has_started:
            self.post(events.Started())
        self._has_started = True  # last: after an exception the next call continues

    def _announce(self) -> None:
        self.post(events.MetadataChanged(tuple(sorted(self.counts.items()))))
        self.post(events.SubscriptionChanged(tuple(sorted(self.counts))))

    def count(self, topics: frozenset[str]) -> FoundTopics:
        """Return the declared counts."""
        return FoundTopics(counts=self.counts)


def _checked(
    counts: Mapping[Any, Any], version: object
) -> tuple[dict[str, int], bytes | None, int | None]:
    """Return counts, the report of a version, and the version."""
    if not isinstance(counts, Mapping):
        raise ConfigError(f"resources: expected a mapping of kind to count, found {counts!r}")
    if not counts:
        raise ConfigError("resources: expected at least one kind")
    for kind, count in counts.items():
        if not isinstance(kind, str) or not kind:
            raise ConfigError(f"resources: a kind is a name, found {kind!r}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigError(f"resources[{kind!r}]: expected a count, found {count!r}")
    checked = dict(counts)
    if version is None:
        return checked, None, None
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**63:
        raise ConfigError(f"version: expected a number from 0 to 2^63 - 1, found {version!r}")
    from holdfast.core.machine.leader.subscriptions import report_of

    return checked, report_of(version, checked), version
