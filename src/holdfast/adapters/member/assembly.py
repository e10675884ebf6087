"""The parts of one topic consumer, made and closed in order: connections, machine, records, watch.

**Rules.** Parts are closed in the opposite order. But no part waits for an answer that a closed
connection cannot bring: threads that ask a broker end after the connections, whose close fails all
open questions. If a part fails to start, the parts made before it are closed.

**Strategy.** The metadata watch asks for partition counts on a thread of its own, every
``metadata.max.age.ms`` and whenever the subscription changes.

References: KIP-429; Kafka's ConsumerCoordinator ("metadata snapshot").
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from holdfast.adapters.cluster.broker_lags import BrokerLags
from holdfast.adapters.cluster.connections import Connections, ends_member
from holdfast.adapters.cluster.lag_source import LagSource
from holdfast.adapters.cluster.lookup import FoundTopics, Lookup
from holdfast.adapters.member.host import Duties, MemberHost
from holdfast.adapters.member.link import GroupLink
from holdfast.adapters.member.member_log import MemberLog
from holdfast.adapters.member.membership import Leadership, make_member
from holdfast.adapters.member.metrics import Counters, MemberMetrics
from holdfast.adapters.member.readiness import ready_file
from holdfast.adapters.records.data_plane import ConfluentPlane, DataPlane, KafkaPythonPlane
from holdfast.adapters.records.delivery import Delivery
from holdfast.adapters.records.topic_duties import TopicDuties
from holdfast.adapters.settings import Settings
from holdfast.errors import AdapterError, HoldfastError, RemoteProtocolError, nearest
from holdfast.machine import events
from holdfast.machine.codes import FATAL, ErrorCode, describe
from holdfast.machine.leader.designs import Assignor
from holdfast.machine.leader.embedded import RebalanceMode
from holdfast.machine.member.holdings import Identity
from holdfast.machine.member.member import choose_mode

Matches = Callable[[str], bool]


class ClientDuties(Duties, Protocol):
    """The application's side of a member that :class:`MemberParts` makes and closes."""

    listener: Any

    def end(self) -> None:
        """Start nothing more."""

    def close(self) -> None:
        """Release what was opened; the connections are closed by now."""


_D = TypeVar("_D", bound=ClientDuties)


class MemberParts(Generic[_D]):
    """The parts of one running member of a group of topics, whatever fetches its records.

    Parameters
    ----------
    settings : Settings
        The member's configuration.
    assignors : sequence of Assignor
        What it offers, from :func:`~holdfast.adapters.member.membership.assignors_of`.
    make_duties : callable
        Makes the application's side; ``lookup``, ``link``, ``counters``, ``log`` and :meth:`fail`
        of these parts exist by then.
    connections : Connections, optional
        What it opens, and closes in the end; somebody else may close it while it is being opened.
    """

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        make_duties: Callable[[MemberParts[_D]], _D],
        connections: Connections | None = None,
    ):
        self._settings = settings
        self.counters = Counters()
        self.log = log = MemberLog(settings)
        member = make_member(settings, assignors)
        ready = ready_file(settings, log)
        connections = connections or Connections(settings)
        self._closers: list[Callable[[], object]] = [connections.close]
        try:
            connections.open()
            self.lookup = Lookup(connections)
            self.link = GroupLink(connections, self._post, self.fail)
            leadership = Leadership(
                settings,
                assignors,
                self._count_partitions,
                lag_source=self._lag_source(),
                find_racks=lambda topics: self.lookup.racks(topics).result(),
                log=log,
            )
            self.duties = make_duties(self)
            self._closers = [self.duties.close, *self._closers, self.duties.end]
            self.host = MemberHost(
                member,
                self.duties,
                leadership.compute,
                name=_name(settings),
                log=log,
                ready=ready,
            )
            self._closers.append(self.host.stop)
            self._watch = MetadataWatch(settings, self.lookup, self._post, self.fail, log)
            self._closers = [self._watch.join, *self._closers, self._watch.end]
        except BaseException:
            self.close()
            raise

    def _post(self, event: events.Event) -> None:
        self.host.post(event)

    def fail(self, error: BaseException) -> None:
        """End the member with an error; safe from any thread."""
        self.host.fail(error)

    def _lag_source(self) -> LagSource | None:
        given: LagSource | str = self._settings["holdfast.lag.source"]
        if given == "broker":
            return BrokerLags(self.link, self.lookup, self._settings["auto.offset.reset"])
        return None if isinstance(given, str) else given

    def _count_partitions(self, topics: frozenset[str]) -> FoundTopics:
        return self._watch.look(topics)

    def subscribe(self, topics: tuple[str, ...], pattern: Matches | None, listener: Any) -> None:
        """Subscribe, and join the group if that has not been done."""
        self.duties.listener = listener
        self.host.start(self.link)
        self._watch.subscribe(topics, pattern)

    def look_again(self) -> None:
        """Ask for the partition counts now: somebody has seen them change."""
        self._watch.look_soon()

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Topics of the subscription; for a pattern, those that match."""
        return self._watch.subscribed

    @property
    def missing(self) -> tuple[str, ...]:
        """Topics of the subscription that do not exist."""
        return self._watch.missing

    def metrics(self) -> MemberMetrics:
        """Return what was counted so far."""
        counts, ago_s = self.counters.read()
        standing = self.host.standing
        return MemberMetrics(
            group=self._settings["group.id"],
            client_id=self._settings["client.id"],
            member_id=standing.identity.member_id,
            generation=standing.identity.generation,
            state=standing.state.value,
            is_leader=standing.is_leader,
            assigned_partitions=len(standing.owned),
            rebalance_total=counts["rebalance"],
            partitions_gained_total=counts["gained"],
            partitions_revoked_total=counts["revoked"],
            partitions_lost_total=counts["lost"],
            commit_total=counts["commit"],
            commit_failed_total=counts["commit_failed"],
            records_consumed_total=counts["records"],
            last_rebalance_seconds_ago=ago_s,
            missing_topics=self._watch.missing,
        )

    def close(self) -> None:
        """Close every part; a second call goes on where an exception came into the first."""
        while self._closers:
            closer = self._closers[-1]
            try:
                closer()
            except Exception:
                self._closers.remove(closer)
                raise
            if closer in self._closers:  # a second thread may close beside this one
                self._closers.remove(closer)


class Assembly(MemberParts[TopicDuties]):
    """The parts of one running consumer, with a data plane of ours.

    Parameters
    ----------
    settings : Settings
        The consumer's configuration.
    assignors : sequence of Assignor
        What it offers.
    make_duties : callable, optional
        Makes other duties of a topic consumer.
    connections : Connections, optional
        See :class:`MemberParts`.
    """

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        make_duties: Callable[[MemberParts[TopicDuties]], TopicDuties] | None = None,
        connections: Connections | None = None,
    ):
        eager = choose_mode(assignors) is RebalanceMode.EAGER

        def make(parts: MemberParts[TopicDuties]) -> TopicDuties:
            return TopicDuties(
                settings,
                _delivery(settings, lambda: parts.host.answered_at),
                parts.link,
                parts.lookup,
                fail=parts.fail,
                counters=parts.counters,
                log=parts.log,
                keeps_fetched=eager,
            )

        super().__init__(settings, assignors, make_duties or make, connections)

    def commit(self, offsets: Mapping[tuple[str, int], int], identity: Identity) -> Future[int]:
        """Commit with an identity; the machine hears of a refusal before the caller."""
        future = self.link.commit(
            offsets,
            generation=identity.generation,
            member_id=identity.member_id,
            instance_id=identity.instance_id,
        )

        answer: Future[int] = Future()

        def note(done: Future[int]) -> None:
            code = self.duties.note_commit(done, offsets)
            if code > 0:
                self.host.post(events.CommitRefused(identity.generation, code))
            error = (
                AdapterError("the commit was cancelled") if done.cancelled() else done.exception()
            )
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(code)

        future.add_done_callback(note)
        return answer

    def note_untold(self, error: RemoteProtocolError) -> None:
        """Log and count a commit of the loop that cannot be, because its records were lost."""
        self.counters.add("commit_failed")
        self.log.error("%s", error)


def _name(settings: Settings) -> str:
    return f"holdfast-{settings['group.id']}-{settings['client.id']}"


def _delivery(settings: Settings, answered_at: Callable[[], float]) -> Delivery:
    kind = settings["holdfast.data.plane"]
    plane: DataPlane
    if kind == "confluent":
        plane = ConfluentPlane(settings, answered_at)
        return Delivery(plane, lambda m: (m.topic(), m.partition()), lambda m: m.offset())
    if kind == "kafka-python":
        plane = KafkaPythonPlane(settings)
    else:
        from holdfast.adapters.records.data_plane_aiokafka import AiokafkaPlane  # has asyncio

        plane = AiokafkaPlane(settings)
    return Delivery(plane, lambda m: (m.topic, m.partition), lambda m: m.offset)


class MetadataWatch:
    """Keeps the machine's partition counts up to date.

    A topic that is asked for and has no partitions known, for whatever reason, counts 0: when it
    gets some, the leader sees a change. A member fails if one of its own topics may not be read, or
    cannot exist. The topics of other members never end it, and until its application has heard of
    its failure it leads on for the others.

    A member that subscribes to a pattern joins once it knows what matches: before that it would
    take part in a round with no topic, and be given its partitions in a second one.

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
        self._every_s: float = settings["metadata.max.age.ms"] / 1000
        self._again_s: float = settings["retry.backoff.max.ms"] / 1000
        self._lock = threading.Lock()
        self._counts: Mapping[str, int] = {}  # as last told
        self._topics: frozenset[str] = frozenset()
        self._others: frozenset[str] = frozenset()
        self._pattern: Matches | None = None
        self._subscribed: tuple[str, ...] | None = None
        self.missing: tuple[str, ...] = ()  # topics of the subscription that do not exist
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-metadata", daemon=True)

    def subscribe(self, topics: tuple[str, ...], pattern: Matches | None) -> None:
        """Watch these topics, or those that match."""
        with self._lock:
            self._topics, self._pattern = frozenset(topics), pattern
            if pattern is None:
                self._tell(topics)
        if self._thread.ident is None:
            self._thread.start()
        self._wake.set()

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Topics that the machine was told to subscribe to."""
        return self._subscribed or ()

    def look_soon(self) -> None:
        """Look once more, before the interval is over."""
        self._wake.set()

    def look(self, topics: frozenset[str]) -> FoundTopics:
        """Count partitions now, for a leader whose members subscribe to these; watch them on."""
        with self._lock:
            self._others = topics
        try:
            found = self._report()
        except HoldfastError:
            self._post_counts(self._counts)  # the leader plans without the rest: see it come
            self._wake.set()
            raise
        unknown = dict.fromkeys(topics - found.counts.keys(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return FoundTopics(counts=found.counts, refused={**unknown, **found.refused})

    def _report(self) -> FoundTopics:
        with self._lock:
            wanted = None if self._pattern is not None else self._topics | self._others
        found = self._lookup.partitions(wanted).result()
        self._post_counts(found.counts)
        for topic in sorted(self._topics & found.refused.keys()):
            if (code := found.refused[topic]) in FATAL:
                text = f"topic {topic!r}: {describe(code)}"
                self._fail(RemoteProtocolError(text, error_code=code))
        return found

    def _post_counts(self, counts: Mapping[str, int]) -> None:
        with self._lock:
            self._counts = {**dict.fromkeys(self._topics | self._others, 0), **counts}
            told = tuple(sorted(self._counts.items()))
        self._post(events.MetadataChanged(told))

    def _tell(self, topics: tuple[str, ...]) -> None:
        """Tell the machine of a new subscription, and to join with the first; holds the lock."""
        if topics == self._subscribed:
            return
        self._post(events.SubscriptionChanged(topics))
        if self._subscribed is None:
            self._post(events.Started())
        self._subscribed = topics  # last: after an exception it is told again

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.clear()
            wait_s = self._every_s
            try:
                if not self._refresh():
                    wait_s = self._again_s
            except HoldfastError as error:
                if self._ended.is_set():
                    return
                if ends_member(error):
                    self._fail(error)
                else:
                    self._log.warning("the topics are not known yet: %s", error)
                    wait_s = self._again_s
            self._wake.wait(wait_s)

    def _refresh(self) -> bool:
        """Look once; False if a subscribed topic does not exist yet."""
        counts = self._report().counts
        with self._lock:
            pattern, topics = self._pattern, self._topics
            if pattern is not None:
                self._tell(tuple(sorted(filter(pattern, counts))))
        self._tell_missing(() if pattern is not None else tuple(sorted(topics - counts.keys())))
        return pattern is not None or topics <= counts.keys()

    def _tell_missing(self, missing: tuple[str, ...]) -> None:
        """Say once which subscribed topics do not exist, with the nearest name that does."""
        news, self.missing = set(missing) - set(self.missing), missing
        if not news:
            return
        known = self._lookup.partitions(None).result().counts
        for topic in missing:
            if topic in news:
                hint = nearest(repr(topic), map(repr, known))
                self._log.warning("topic %r does not exist%s", topic, hint)

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._wake.set()

    def join(self) -> None:
        """Wait for the last look, which the closed connections end."""
        if self._thread.ident is not None:
            self._thread.join(5)
