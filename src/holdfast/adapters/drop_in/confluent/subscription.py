"""One membership of a group: from ``subscribe`` to ``unsubscribe`` or ``close``.

**Rules.** Nothing here blocks the application: connecting happens on a thread of its own, again and
again until a broker answers, as librdkafka does. A broker that refuses for good is an error that
the next poll returns as a message.

**Strategy.** :class:`~holdfast.adapters.member.assembly.Assembly` is the member, with the duties of
:mod:`holdfast.adapters.drop_in.confluent.in_poll`.

References: librdkafka, ``rd_kafka_subscribe``; KIP-62 (``max.poll.interval.ms``).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, Message

from holdfast.adapters.cluster.connections import Connections, load_client
from holdfast.adapters.drop_in.confluent.codes import MAX_POLL_EXCEEDED, kafka_error, said
from holdfast.adapters.drop_in.confluent.error_message import told_as
from holdfast.adapters.drop_in.confluent.in_poll import InPollDelivery, InPollDuties
from holdfast.adapters.member.assembly import Assembly, MemberParts
from holdfast.adapters.member.commits import ConsumerCommits
from holdfast.adapters.member.host import MemberHost, Standing
from holdfast.adapters.records.topic_duties import TopicDuties
from holdfast.adapters.settings import Settings
from holdfast.errors import AdapterError, ConfigError, HoldfastError, SourceError
from holdfast.machine.codes import ErrorCode
from holdfast.machine.leader.designs import Assignor
from holdfast.machine.leader.embedded import RebalanceMode
from holdfast.machine.member.member import choose_mode
from holdfast.model.partitions import Resource

_AGAIN_S = (0.1, 0.2, 0.5, 1.0)  # between attempts to reach a broker; the last one stays
_TOLD_EVERY_S = 1.0


def topics_of(topics: Sequence[str]) -> tuple[tuple[str, ...], Callable[[str], bool] | None]:
    """Names, or what matches any of the names and patterns.

    Raises
    ------
    ValueError
        For what librdkafka does not subscribe to: nothing, an empty name, a name twice, a pattern
        that is none.
    """
    names = tuple(topics)
    if not names or not all(names) or len(set(names)) < len(names):
        raise ValueError("at least one topic, and each once")
    patterns = [name for name in names if name.startswith("^")]
    if not patterns:
        return tuple(sorted(names)), None
    try:
        found = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise ValueError(str(error)) from None
    plain = frozenset(names) - set(patterns)
    return (), lambda name: name in plain or any(p.match(name) for p in found)


class GroupSubscription:
    """A member that joins in the background.

    Parameters
    ----------
    settings : Settings or None
        The member's; None if the configuration names no broker.
    assignors : sequence of Assignor
        What it offers.
    tells_commits : bool
        Whether the application hears of the commit of a hand-over.
    """

    def __init__(
        self,
        settings: Settings | None,
        assignors: Sequence[Assignor],
        *,
        tells_commits: bool = False,
    ):
        self._settings = settings
        self._tells_commits = tells_commits
        self._assignors = assignors
        self.is_cooperative = choose_mode(assignors) is RebalanceMode.COOPERATIVE
        self.delivery = InPollDelivery()
        self.mail = self.delivery.mail
        self.parts: Assembly | None = None
        self.is_leaving = False
        self.has_assigned = False  # some assignment has been told
        self._lock = threading.Lock()
        self._wish: tuple[tuple[str, ...], Callable[[str], bool] | None] | None = None
        self._ended = threading.Event()
        self._connecting: Connections | None = None
        self._failure: HoldfastError | None = None
        self._told_at = 0.0
        self._told_missing: set[str] = set()
        self.commits: ConsumerCommits | None = (
            None if settings is None else ConsumerCommits(settings)
        )
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="holdfast-commits")
        self._open_commits: set[Future[Any]] = set()
        self._last_sent: dict[Resource, dict[Resource, int]] = {}  # the commit it was in

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join, or change what is subscribed to."""
        wish = topics_of(topics)
        with self._lock:
            is_new, self._wish = self._wish is None, wish
            if self.parts is not None:
                self.parts.subscribe(*wish, None)
        if is_new and self._settings is not None:
            threading.Thread(target=self._connect, name="holdfast-connect", daemon=True).start()

    def log_in_as(self, username: str, password: str) -> None:
        """Log in with these from the next connection on, as librdkafka does."""
        with self._lock:
            if self._settings is not None:
                self._settings = self._settings.with_login(username, password)
            if self._connecting is not None:
                self._connecting.log_in_as(username, password)

    def _connect(self) -> None:
        assert self._settings is not None
        load_client()  # not under the lock, for which the application may wait
        attempt = 0
        while not self._ended.is_set():
            try:
                with self._lock:
                    connections = Connections(self._settings, tries_logins_again=True)
                    self._connecting = connections
                if self._ended.is_set():
                    connections.close()
                    return
                parts = Assembly(self._settings, self._assignors, self._make_duties, connections)
            except (SourceError, AdapterError) as error:
                self._failure = error if isinstance(error, ConfigError) else None
                self._ended.wait(_AGAIN_S[min(attempt, len(_AGAIN_S) - 1)])
                attempt += 1
                continue
            except HoldfastError as error:
                self._failure = error
                return
            with self._lock:
                assert self._wish is not None
                if not self._ended.is_set():
                    self.parts = parts
                    parts.subscribe(*self._wish, None)
                    return
            parts.close()

    def _make_duties(self, parts: MemberParts[TopicDuties]) -> TopicDuties:
        assert self._settings is not None
        duties = InPollDuties(
            self._settings,
            self.delivery,
            parts.link,
            parts.lookup,
            fail=parts.fail,
            counters=parts.counters,
            log=parts.log,
        )
        duties.overtaking = self.overtaking
        duties.tells_commits = self._tells_commits
        return duties

    # What the application's calls ask

    @property
    def duties(self) -> InPollDuties:
        """Its duties; only while there are parts."""
        assert self.parts is not None
        assert isinstance(self.parts.duties, InPollDuties)
        return self.parts.duties

    @property
    def host(self) -> MemberHost | None:
        """The running machine, None before a broker has answered."""
        return None if self.parts is None else self.parts.host

    @property
    def standing(self) -> Standing | None:
        """Where the member stands, None before a broker has answered."""
        return None if self.parts is None else self.parts.host.standing

    def problem(self) -> Message | None:
        """A message for the application about what is wrong, once a second at most."""
        parts = self.parts
        failure = self._failure if parts is None else parts.host.failure
        now = time.monotonic()
        if failure is not None and now - self._told_at >= _TOLD_EVERY_S:
            self._told_at = now
            return told_as(kafka_error(failure))
        if parts is None or set(missing := parts.missing) == self._told_missing:
            return None
        told = self._told_missing & set(missing)
        topic = min(set(missing) - told, default=None)
        if topic is None:
            self._told_missing = told
            return None
        self._told_missing = told | {topic}  # the others come with the next polls
        code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        text = f"Subscribed topic not available: {topic}: {said(code)}"
        return told_as(KafkaError(code, text), topic)

    def late(self, seconds: float) -> Message | None:
        """The message for an application that has not polled for so long, if that is too long."""
        if self._settings is None or self.parts is None:
            return None
        most_ms: int = self._settings["max.poll.interval.ms"]
        over_ms = int(seconds * 1000) - most_ms
        if over_ms < 0:
            return None
        text = f"Application maximum poll interval ({most_ms}ms) exceeded by {over_ms}ms"
        return told_as(KafkaError(MAX_POLL_EXCEEDED, text))

    # Commits

    def send(
        self, offsets: dict[Resource, int], answered: Callable[[BaseException | None], None]
    ) -> None:
        """Commit without waiting; ``answered`` comes once, on any thread.

        A commit that is not accepted at once is tried again on a thread of its own. Each attempt
        leaves out the partitions of which a later commit has been sent: a commit never goes back.
        """
        parts, commits = self.parts, self.commits
        assert parts is not None
        assert commits is not None
        try:
            with commits.order:
                sent = commits.send(parts, offsets)
                self.overtake(offsets)
        except HoldfastError as error:
            answered(error)
            return

        def rest() -> dict[Resource, int]:
            return {tp: at for tp, at in offsets.items() if self._last_sent.get(tp) is offsets}

        def again(done: Future[int]) -> None:
            if not done.cancelled() and done.exception() is None and done.result() == 0:
                self._open_commits.discard(done)
                answered(None)
                return
            try:
                retried = self._committer.submit(commits.commit, parts, rest, is_seen=True)
            except RuntimeError:  # closed meanwhile
                answered(AdapterError("the consumer was closed before the commit was accepted"))
                return
            finally:
                self._open_commits.discard(done)
            self._open_commits.add(retried)
            retried.add_done_callback(finish)

        def finish(done: Future[None]) -> None:
            self._open_commits.discard(done)
            if not done.cancelled():
                answered(done.exception())

        self._open_commits.add(sent)
        sent.add_done_callback(again)

    def overtake(self, offsets: dict[Resource, int]) -> None:
        """No attempt of an earlier commit has these partitions any more."""
        self._last_sent.update(dict.fromkeys(offsets, offsets))

    @contextmanager
    def overtaking(self, resources: Collection[Resource]) -> Iterator[None]:
        """Within this a commit of these is sent, after which no earlier one is tried again."""
        assert self.commits is not None
        with self.commits.order:
            self.overtake(dict.fromkeys(resources, 0))
            yield

    def await_commits(self, deadline: float) -> None:
        """Wait for the commits that are under way."""
        for future in list(self._open_commits):
            try:
                future.exception(max(0.0, deadline - time.monotonic()))
            except CancelledError:
                continue
            except TimeoutError:
                return

    # The end

    def leave(self, *, returns: bool) -> None:
        """Ask the member to hand everything over and to leave; of two wishes the first counts."""
        self._ended.set()
        if self.parts is not None:
            self.parts.host.leave(returns=returns)
        self.is_leaving = True

    def is_over(self) -> bool:
        """Whether it has left, failed, or never was a member."""
        with self._lock:
            return self._ended.is_set() and (self.parts is None or self.parts.host.over.is_set())

    def close(self) -> None:
        """Release everything; the group is not told."""
        self._ended.set()
        with self._lock:
            parts, connecting = self.parts, self._connecting
        if parts is not None:
            parts.close()
        elif connecting is not None:
            connecting.close()  # ends the thread that waits for a broker
        self._committer.shutdown(wait=False, cancel_futures=True)

    def still_assigned(self, now: Collection[Resource]) -> set[Resource]:
        """Partitions that are to be unassigned and are assigned still."""
        return self.delivery.leaving & set(now)
