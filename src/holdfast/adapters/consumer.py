"""``holdfast.Consumer``: a group member over real connections, with records from a data plane.

**Rules.** The join happens in the background: records keep coming while the group rebalances. A
list that :meth:`Consumer.poll` returned counts as processed when the application calls it again. It
is committed every ``auto.commit.interval.ms`` and before any hand-over. If an error ends the
``with`` block, the next owner reads the last list again. Callbacks run inside
:meth:`Consumer.poll` and :meth:`Consumer.close`, on the caller's thread. What the application holds
and cannot commit any more is an error (:mod:`holdfast.adapters.records.terms`): ``commit`` and
``close`` raise it, and the commits of the poll loop write it to the log.

**Strategy.** The member machine runs on a thread of its own (:mod:`holdfast.adapters.member.host`);
this class, on the application's thread, polls, runs callbacks, commits, and closes in order.

References: KIP-429, KIP-62, KIP-345; Incremental Cooperative Rebalancing, "Member process".
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from holdfast.adapters.arguments import (
    check_listener,
    check_offsets,
    checked_names,
    checked_pairs,
    checked_pattern,
    checked_seconds,
)
from holdfast.adapters.consumer_questions import ConsumerQuestions
from holdfast.adapters.member.assembly import Assembly
from holdfast.adapters.member.closing import Closing
from holdfast.adapters.member.commits import CATCH_UP_S, ConsumerCommits, loss_of
from holdfast.adapters.member.end_signals import EndSignals
from holdfast.adapters.member.errands import to_the_end
from holdfast.adapters.member.membership import assignors_of
from holdfast.adapters.member.metrics import MemberMetrics
from holdfast.adapters.member.readiness import clear_ready_file
from holdfast.adapters.records.delivery import SLICE_MS, TopicPartition
from holdfast.adapters.records.topic_duties import RebalanceListener
from holdfast.adapters.settings import Settings
from holdfast.errors import AdapterError, LocalProtocolError
from holdfast.machine import events

_SLICE_S = SLICE_MS / 1000  # how long a callback may wait
_POLLED_EVERY_S = 0.1

_Self = TypeVar("_Self", bound="Consumer")
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _inside(
    method: Callable[Concatenate[_Self, _P], _T],
) -> Callable[Concatenate[_Self, _P], _T]:
    """Mark a call of the application: a close that comes meanwhile waits for it."""

    @wraps(method)
    def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._closing.inside(lambda: method(self, *args, **kwargs))

    return cast("Callable[Concatenate[_Self, _P], _T]", call)


class Consumer(ConsumerQuestions):
    """A consumer of topics in a group.

    Parameters
    ----------
    config : mapping of str to object
        Kafka's keys, spelled exactly, and ``holdfast.*`` (see
        :mod:`holdfast.adapters.settings`). ``bootstrap.servers`` and ``group.id`` are required.

    Attributes
    ----------
    assignors : tuple of Assignor
        What the consumer offers to its group, in order of preference.

    Raises
    ------
    ConfigError
        For a key that is unknown, a value that is out of range, or assignors that do not go
        together.
    SourceError
        If no broker answers at :meth:`subscribe`.

    Notes
    -----
    Not thread-safe: one thread polls, as with every Kafka consumer.

    Examples
    --------
    ::

        with Consumer({"bootstrap.servers": "...", "group.id": "etl"}) as consumer:
            consumer.subscribe(["orders"])
            for batch in consumer:
                handle(batch)
    """

    def __init__(self, config: Mapping[str, object]):
        self._settings = Settings.parse(config)
        self.assignors = assignors_of(self._settings)
        clear_ready_file(self._settings)
        self._parts: Assembly | None = None
        self._commits = ConsumerCommits(self._settings)
        self._closing = Closing(self._end)
        self.signals = EndSignals()
        self.handles_signals: bool = self._settings["holdfast.handle.signals"]
        self.is_stopped = False
        self._polled_at = 0.0
        self._poller = threading.current_thread()  # who polled last
        self.is_seen = True  # whether the application has what the last poll handed out
        self._in_loop = False  # the application works on a list of the iteration
        self.ends_with_error = False  # of the application; a close must not hide it
        self._callback_error: Exception | None = None  # the next call raises it
        self._has_raised_failure = False

    # Life

    @_inside
    def subscribe(
        self,
        topics: Collection[str] | str | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to all that match a pattern; replaces what was subscribed.

        Parameters
        ----------
        topics : collection of str, or re.Pattern, or str that begins with ``^``
            Names, or one pattern that is matched against every topic of the cluster.
        listener : RebalanceListener, optional
            Called inside :meth:`poll` and :meth:`close`.

        Raises
        ------
        LocalProtocolError
            If no topic is named, or the listener has none of the three callbacks.
        """
        pattern = checked_pattern(topics)
        names = () if pattern is not None else checked_names(topics)
        check_listener(listener)
        if self._parts is None:
            self._check_open()
            self._parts = Assembly(self._settings, self.assignors)
        self._parts.subscribe(names, pattern, listener)

    @_inside
    def unsubscribe(self) -> None:
        """Leave the group; :meth:`subscribe` joins it again."""
        if self._parts is not None:
            timeout_s = self._settings.call_timeout_s
            try:
                self._leave(self._parts, returns=False, timeout_s=timeout_s)
            finally:
                self._parts = None

    def stop(self) -> None:
        """End the iteration, and a poll that waits; from any thread or signal handler.

        The poll that waits returns an empty list, and later polls return one at once. The list that
        the application works on counts as processed when :meth:`close` is called.
        """
        self.is_stopped = True

    def close(self, timeout: float = 30.0, *, returns: bool = True) -> None:
        """Hand everything over in order and leave.

        It may be called twice, from another thread, and from a signal handler. Inside a call of
        this consumer it happens when that call comes out. A list of the iteration that the
        application still works on is not committed, and neither is one that another thread polled
        and may work on: the next owners read it again.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the hand-over.
        returns : bool
            Whether this process comes back soon. A static member that does stays in the group
            until its session ends; a member that does not says so, and a deferring group
            (Design II) need not wait for it.

        Raises
        ------
        RemoteProtocolError
            If records were handed out before their partitions were lost, and could not be committed
            any more, and ``on_partitions_lost`` has not told of that. Everything is closed by then.
        Exception
            What a callback raised meanwhile, or before, and no call has raised yet.
        """
        self._closing.close(timeout, returns=returns)

    def _end(self, timeout_s: float, returns: bool) -> None:
        is_elsewhere = self._poller is not threading.current_thread() and self._poller.is_alive()
        if self._in_loop or is_elsewhere:
            self.is_seen = False
        if self._parts is not None:
            self._leave(self._parts, returns=returns, timeout_s=timeout_s)

    def _leave(self, parts: Assembly, *, returns: bool, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        try:
            to_the_end(lambda: self._hand_over_all(parts, deadline, returns=returns))
        finally:
            parts.close()
        delivery = parts.duties.delivery
        lost = delivery.terms(lambda terms: loss_of(terms.untold(), terms))
        is_raised = self.ends_with_error or self._has_raised_failure
        if lost is not None and (is_raised or self._callback_error is not None):
            parts.note_untold(lost)
        elif lost is not None:
            raise lost
        if not is_raised:
            self._raise_callback_error()

    def _hand_over_all(self, parts: Assembly, deadline: float, *, returns: bool) -> None:
        """Have the member leave, and run the callbacks that come until then."""
        if parts.host.failure is None:
            if not self.is_seen:
                parts.duties.delivery.give_up_waiting(parts.host.standing.owned)
            parts.duties.delivery.processed()
            if self._commits.is_automatic:
                half_s = (deadline - time.monotonic()) / 2
                self._commits.before_leaving(parts, time.monotonic() + half_s)
            parts.host.leave(returns=returns)
            while not parts.host.over.is_set() and time.monotonic() < deadline:
                self._run_calls(parts, wait_s=0.02)
        self._run_calls(parts)

    def __enter__(self) -> Self:
        if self.handles_signals:
            self.signals.watch()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self.end_with_error()
        try:
            self.close()
        finally:
            self.signals.end()
        if error is None:
            self.signals.raise_caught()

    def end_with_error(self) -> None:
        """The loop has not come back: its list is not processed, and its error goes on."""
        self.is_seen = False
        self.ends_with_error = True

    # Records

    @_inside
    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Any]:
        """Return the next records; what the last call returned counts as processed.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the first record; what callbacks take is not counted.
        max_records : int, optional
            At most so many; ``max.poll.records`` by default.

        Returns
        -------
        list
            The data plane's own messages (``confluent_kafka.Message`` by default), maybe none.

        Raises
        ------
        RemoteProtocolError
            If the group refused this member for good (fenced, not authorised, no protocol in
            common), saying what to do.
        AdapterError
            If the data plane failed.
        Exception
            What a callback raised; every other callback that was due has run.
        """
        parts = self._running(polls=True)
        self._poller = threading.current_thread()
        limit = self._settings["max.poll.records"] if max_records is None else max_records
        deadline = time.monotonic() + checked_seconds(timeout)
        delivery = parts.duties.delivery
        if delivery.processed():
            deadline += self._run_calls_of_hand_over(parts)
        while True:
            self._note_poll(parts)
            deadline += self._run_calls(parts)
            self._commits.now_and_then(parts)
            self.signals.raise_caught()
            self._raise_callback_error()
            if self.is_stopped or self._closing.has_begun():
                return []
            left_s = max(0.0, deadline - time.monotonic())
            messages = delivery.poll(int(left_s * 1000), limit)
            if self._closing.has_begun():  # the application does not get these
                self.is_seen = False
                return []
            if messages or left_s == 0.0:
                parts.counters.add("records", len(messages))
                return messages
            self._raise_failure(parts)
            if not delivery.active():
                deadline += self._run_calls(parts, wait_s=min(left_s, _SLICE_S))

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield lists of records, never an empty one, until it is stopped or closed."""
        while not (self.is_stopped or self._closing.has_begun()):
            if batch := self.poll():
                self._in_loop = True
                try:
                    yield batch
                finally:
                    self._in_loop = False

    def _note_poll(self, parts: Assembly) -> None:
        now = time.monotonic()
        if now - self._polled_at >= _POLLED_EVERY_S:
            self._polled_at = now
            parts.host.post(events.Polled())

    def _run_calls(self, parts: Assembly, wait_s: float = 0.0) -> float:
        """Run the waiting callbacks, the first within ``wait_s``; return the seconds taken.

        A poll adds these seconds to its deadline. Otherwise a callback that is longer than the
        timeout would end the poll without records, although there are some.
        """
        taken_s = 0.0
        while True:
            began = time.monotonic()
            try:
                error = parts.duties.calls.do_next(wait_s)
            except queue.Empty:
                return taken_s
            wait_s = 0.0
            taken_s += time.monotonic() - began
            parts.host.post(events.Polled())
            if isinstance(error, Exception):
                self._callback_error = self._callback_error or error
            elif error is not None:
                raise error

    def _raise_callback_error(self) -> None:
        error, self._callback_error = self._callback_error, None
        if error is not None:
            raise error

    def _run_calls_of_hand_over(self, parts: Assembly) -> float:
        """Run the callbacks of a hand-over that waited for this poll; return the seconds taken.

        The member's thread posts them only now, one after the other. If the poll handed out records
        first, the callbacks and the next owners would wait until these are processed as well.
        """
        taken_s = 0.0
        while parts.host.catch_up(CATCH_UP_S):
            took_s = self._run_calls(parts)
            if took_s == 0.0:
                break
            taken_s += took_s
        return taken_s

    # Offsets

    @_inside
    def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Commit, and wait until it is done.

        Parameters
        ----------
        offsets : mapping of (topic, partition) to int, optional
            The next offset to read of each; by default everything handed out so far.

        Raises
        ------
        RemoteProtocolError
            If the group refused it, or these records were handed out before their partitions were
            lost: another member owns the partitions, or did so meanwhile. Without ``offsets`` it is
            raised until ``on_partitions_lost`` has run, or, if there is no such callback, until the
            application polls after the error. Nothing is committed.
        AdapterError
            If no broker answered within ``request.timeout.ms``.
        LocalProtocolError
            If the member does not own a partition, or no record can have the offset: the broker
            would not notice.
        """
        parts = self._running()
        if offsets is not None:
            check_offsets(offsets)
        self._commits.commit(parts, offsets, is_seen=self.is_seen)

    @_inside
    def committed(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets, None where there is none."""
        wanted = checked_pairs(partitions)
        found = self._running().link.committed(wanted).result()
        return {TopicPartition(*tp): found[tp] if found.get(tp, -1) >= 0 else None for tp in wanted}

    @_inside
    def position(self, partition: tuple[str, int]) -> int | None:
        """Return the offset of the next record of a partition, None if it is not held."""
        checked_pairs([partition])
        parts = self._running()
        at = parts.duties.delivery.position(partition)
        if at is None and partition in parts.host.standing.owned:
            return parts.duties.start_positions([partition])[partition]
        return at

    @_inside
    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue a partition at ``offset``; also from inside ``on_partitions_assigned``.

        Raises
        ------
        RemoteProtocolError
            If the partition was lost since the application polled: it holds records from before the
            loss, and another member may have committed more than these. After a poll it may seek.
        LocalProtocolError
            If the member does not own the partition, or no record can have the offset.
        """
        parts = self._running()
        check_offsets({partition: offset})
        delivery = parts.duties.delivery
        lost = delivery.terms(lambda terms: loss_of(terms.in_hand([partition]), terms))
        if lost is not None:
            raise lost
        if partition not in parts.host.standing.owned:
            raise LocalProtocolError(f"{partition[0]}-{partition[1]} is not this member's")
        parts.duties.seek(partition, offset)

    @_inside
    def pause(self, partitions: Collection[tuple[str, int]]) -> None:
        """Hand out nothing of these; kept across rebalances that leave them here.

        Raises
        ------
        LocalProtocolError
            If one is no pair of topic and partition, or is not this member's.
        """
        parts = self._running()
        wanted = checked_pairs(partitions)
        for topic, partition in wanted:
            if (topic, partition) not in parts.host.standing.owned:
                raise LocalProtocolError(f"{topic}-{partition} is not this member's")
        parts.duties.pause(wanted)

    @_inside
    def resume(self, partitions: Collection[tuple[str, int]]) -> None:
        """Hand these out again."""
        self._running().duties.resume(checked_pairs(partitions))

    @_inside
    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return self._running().duties.paused()

    # Membership

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this member owns."""
        return {TopicPartition(*tp) for tp in self._running().host.standing.owned}

    @property
    def member_id(self) -> str:
        """Member id given by the coordinator, empty before the first join."""
        return self._parts.host.standing.identity.member_id if self._parts else ""

    @property
    def generation(self) -> int:
        """Generation of the group as this member knows it, -1 for none."""
        return self._parts.host.standing.identity.generation if self._parts else -1

    def enforce_rebalance(self, reason: str = "requested by the application") -> None:
        """Ask for a round (KIP-568)."""
        self._running().host.post(events.RejoinRequested(reason))

    @_inside
    def metrics(self) -> MemberMetrics:
        """Return what was counted so far, in Kafka's names where they exist."""
        return self._running().metrics()

    # Plumbing

    def _running(self, *, polls: bool = False) -> Assembly:
        """The parts; raises the member's failure, for a poll after the waiting callbacks."""
        self._check_open()
        if polls and self._closing.has_begun():
            raise AdapterError("the consumer is closing: a callback may commit, and not poll")
        if self._parts is None:
            raise LocalProtocolError("subscribe() first")
        if polls:
            self._raise_failure(self._parts)
        elif self._parts.host.failure is not None:
            self._has_raised_failure = True
            raise self._parts.host.failure
        return self._parts

    def _raise_failure(self, parts: Assembly) -> None:
        if parts.host.failure is not None:
            self._has_raised_failure = True
            self._run_calls(parts)
            raise parts.host.failure

    def _check_open(self) -> None:
        if self._closing.is_done:
            raise AdapterError("the consumer is closed")
