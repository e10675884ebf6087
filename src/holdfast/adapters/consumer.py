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
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Self

from holdfast.adapters.member.assembly import Assembly
from holdfast.adapters.member.host import Standing
from holdfast.adapters.member.metrics import MemberMetrics
from holdfast.adapters.records.delivery import SLICE_MS, TopicPartition
from holdfast.adapters.records.topic_duties import LOST_MEMBERSHIP, RebalanceListener
from holdfast.adapters.settings import Settings
from holdfast.errors import AdapterError, HoldfastError, LocalProtocolError, RemoteProtocolError
from holdfast.machine import events
from holdfast.machine.codes import ErrorCode, describe
from holdfast.machine.states import MemberState

_SLICE_S = SLICE_MS / 1000  # how long a callback may wait
_POLLED_EVERY_S = 0.1
_BESIDE_S = 0.1  # a heartbeat that long ago is just now
_COMMIT_AGAIN_S = 0.05
_CATCH_UP_S = 0.25
_JOINING = MemberState.PREPARING_REBALANCE
_COMMIT_AGAIN = frozenset(
    {
        -1,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class Consumer:
    """A consumer of topics in a group.

    Parameters
    ----------
    config : mapping of str to object
        Kafka's keys, spelled exactly, and ``holdfast.*`` (see
        :mod:`holdfast.adapters.settings`). ``bootstrap.servers`` and ``group.id`` are required.

    Raises
    ------
    ConfigError
        For a key that is unknown or a value that is out of range.
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
        self._parts: Assembly | None = None
        self._closed = False  # or closing: there are no more polls
        self._is_over = False  # callbacks of the close have run, they may commit
        self._auto_commit: bool = self._settings["enable.auto.commit"]
        self._commit_every_s: float = self._settings["auto.commit.interval.ms"] / 1000
        self._commit_at = time.monotonic() + self._commit_every_s
        self._polled_at = 0.0
        self.is_seen = True  # whether the application has what the last poll handed out
        self.ends_with_error = False  # of the application; a close must not hide it
        self._has_raised_failure = False

    # Life

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
        """
        pattern = _pattern(topics)
        names = () if pattern is not None else _names(topics)
        if self._parts is None:
            self._check_open()
            self._parts = Assembly(self._settings)
        self._parts.subscribe(names, pattern, listener)

    def unsubscribe(self) -> None:
        """Leave the group; :meth:`subscribe` joins it again."""
        if self._parts is not None:
            timeout_s = self._settings_s("request.timeout.ms")
            try:
                self._leave(self._parts, returns=False, timeout_s=timeout_s)
            finally:
                self._parts = None

    def close(self, timeout: float = 30.0, *, returns: bool = True) -> None:
        """Hand everything over in order and leave.

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
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._parts is not None:
                self._leave(self._parts, returns=returns, timeout_s=timeout)
        finally:
            self._is_over = True

    def _leave(self, parts: Assembly, *, returns: bool, timeout_s: float) -> None:
        try:
            if parts.host.failure is None:
                if not self.is_seen:
                    parts.duties.delivery.give_up_waiting(parts.host.standing.owned)
                parts.duties.delivery.processed()
                deadline = time.monotonic() + timeout_s
                if self._auto_commit:
                    self._commit_as_a_member(parts, time.monotonic() + timeout_s / 2)
                parts.host.post(events.LeaveRequested(returns))
                while not parts.host.over.is_set() and time.monotonic() < deadline:
                    self._run_calls(parts, wait_s=0.02)
            self._run_calls(parts)
        finally:
            parts.close()
        with parts.duties.delivery.terms() as terms:
            untold = terms.untold()
        if untold and (self.ends_with_error or self._has_raised_failure):
            parts.note_untold(_not_of_this_term(untold))
        elif untold:
            raise _not_of_this_term(untold)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self.end_with_error()
        self.close()

    def end_with_error(self) -> None:
        """The loop has not come back: its list is not processed, and its error goes on."""
        self.is_seen = False
        self.ends_with_error = True

    # Records

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
        """
        parts = self._running(polls=True)
        limit = self._settings["max.poll.records"] if max_records is None else max_records
        deadline = time.monotonic() + timeout
        delivery = parts.duties.delivery
        if delivery.processed():
            deadline += self._run_calls_of_hand_over(parts)
        while True:
            self._note_poll(parts)
            deadline += self._run_calls(parts)
            self._commit_now_and_then(parts)
            left_s = max(0.0, deadline - time.monotonic())
            messages = delivery.poll(int(left_s * 1000), limit)
            if messages or left_s == 0.0:
                parts.counters.add("records", len(messages))
                return messages
            self._raise_failure(parts)
            if not delivery.active():
                deadline += self._run_calls(parts, wait_s=min(left_s, _SLICE_S))

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield lists of records, never an empty one, until the consumer is closed."""
        while not self._closed:
            if batch := self.poll():
                yield batch

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
            try:
                call = parts.duties.calls.get(wait_s)
            except queue.Empty:
                return taken_s
            wait_s = 0.0
            began = time.monotonic()
            error = call.run()
            taken_s += time.monotonic() - began
            parts.host.post(events.Polled())
            if error is not None and not isinstance(error, Exception):
                raise error

    def _run_calls_of_hand_over(self, parts: Assembly) -> float:
        """Run the callbacks of a hand-over that waited for this poll; return the seconds taken.

        The member's thread posts them only now, one after the other. If the poll handed out records
        first, the callbacks and the next owners would wait until these are processed as well.
        """
        taken_s = 0.0
        while parts.host.catch_up(_CATCH_UP_S):
            took_s = self._run_calls(parts)
            if took_s == 0.0:
                break
            taken_s += took_s
        return taken_s

    # Offsets

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
            If the member does not own a partition: the broker would not notice.
        """
        parts = self._running()
        deadline = time.monotonic() + self._settings_s("request.timeout.ms")
        if offsets is not None:
            parts.duties.reconsider(offsets)
        while True:
            standing = parts.host.standing
            wanted = offsets
            self._refuse_earlier_terms(parts, standing, offsets)
            if wanted is None:
                wanted = parts.duties.delivery.to_commit(standing.terms, handed=self.is_seen)
            if not wanted:
                return
            code = self._commit(parts, wanted, standing, deadline)
            if code == 0:
                return
            late = _is_overtaken(code, standing, parts.host.standing)
            if not (late or code in _COMMIT_AGAIN) or time.monotonic() >= deadline:
                self._note_refusal(parts, wanted, code)
                raise _not_committed(code)
            parts.host.over.wait(_COMMIT_AGAIN_S)
            if parts.host.failure is not None:
                raise parts.host.failure

    def _note_refusal(
        self, parts: Assembly, offsets: Mapping[tuple[str, int], int], code: int
    ) -> None:
        """The coordinator has removed this member: the error that follows tells of the loss."""
        if code in LOST_MEMBERSHIP:
            parts.host.catch_up(_CATCH_UP_S)
            with parts.duties.delivery.terms() as terms:
                terms.raise_untold(offsets)

    def _refuse_earlier_terms(
        self,
        parts: Assembly,
        standing: Standing,
        offsets: Mapping[tuple[str, int], int] | None,
    ) -> None:
        """Refuse a commit of records from before a loss, and one that leaves such records out."""
        refused = set() if offsets is None else parts.duties.refused(standing.terms, offsets)
        with parts.duties.delivery.terms() as terms:
            untold = terms.raise_untold(None if offsets is None else refused)
        if refused or (offsets is None and untold):
            raise _not_of_this_term(refused or untold)

    def _commit(
        self,
        parts: Assembly,
        offsets: Mapping[tuple[str, int], int],
        standing: Standing,
        deadline: float,
    ) -> int:
        """Error code of one commit, -1 where no broker answered in time."""
        for topic, partition in offsets:
            if (topic, partition) not in standing.owned:
                raise LocalProtocolError(
                    f"{topic}-{partition} is not this member's in generation "
                    f"{standing.identity.generation}; nothing was committed"
                )
        answer = parts.commit(offsets, standing.identity)
        try:
            error = answer.exception(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return -1
        if isinstance(error, RemoteProtocolError):
            raise error
        return -1 if error is not None else answer.result()

    def _commit_as_a_member(self, parts: Assembly, deadline: float) -> None:
        """Commit before leaving, which gives up the round that is going on.

        The coordinator may have ended that round, with its answer on the way. The commit of the
        hand-over would then be too late for the old generation, and this member would never know
        the new one.
        """
        while parts.host.failure is None and time.monotonic() < deadline:
            standing = parts.host.standing
            offsets = parts.duties.delivery.to_commit(standing.terms)
            if not offsets or standing.identity.generation < 0:
                return
            try:
                code = self._commit(parts, offsets, standing, deadline)
            except HoldfastError:  # the member has failed by it, or the hand-over tries again
                return
            late = _is_overtaken(code, standing, parts.host.standing)
            if not late and code != ErrorCode.REBALANCE_IN_PROGRESS:
                return
            parts.host.over.wait(_COMMIT_AGAIN_S)

    def _commit_now_and_then(self, parts: Assembly) -> None:
        self._report_losses(parts)
        now = time.monotonic()
        left_s = self._commit_at - now
        # A commit is a sign of life. Beside a heartbeat it does not put off the moment at which
        # the coordinator notices a death, so a heartbeat takes with it what is due soon.
        beats = now - parts.host.beat_at < _BESIDE_S and left_s < self._commit_every_s / 2
        if not self._auto_commit or (left_s > 0 and not beats):
            return
        self._commit_at = now + self._commit_every_s
        standing = parts.host.standing
        delivery = parts.duties.delivery
        offsets = delivery.uncommitted(delivery.active() & standing.owned)
        if offsets and standing.identity.generation >= 0:
            parts.commit(offsets, standing.identity)

    def _report_losses(self, parts: Assembly) -> None:
        """Write to the log what the loop can commit no more, unless a callback will tell of it.

        Kafka's poll raises nothing for its own commits either. With manual commits the error waits
        for the application's next commit.
        """
        if not self._auto_commit:
            return
        with parts.duties.delivery.terms() as terms:
            untold = terms.report_untold()
        if untold:
            parts.note_untold(_not_of_this_term(untold))

    def committed(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets, None where there is none."""
        found = self._running().link.committed(partitions).result()
        return {
            TopicPartition(*tp): found[tp] if found.get(tp, -1) >= 0 else None for tp in partitions
        }

    def position(self, partition: tuple[str, int]) -> int | None:
        """Return the offset of the next record of a partition, None if it is not held."""
        parts = self._running()
        at = parts.duties.delivery.position(partition)
        if at is None and partition in parts.host.standing.owned:
            return parts.duties.start_positions([partition])[partition]
        return at

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue a partition at ``offset``; also from inside ``on_partitions_assigned``.

        Raises
        ------
        RemoteProtocolError
            If the partition was lost since the application polled: it holds records from before the
            loss, and another member may have committed more than these. After a poll it may seek.
        LocalProtocolError
            If the member does not own the partition.
        """
        parts = self._running()
        with parts.duties.delivery.terms() as terms:
            lost = terms.in_hand([partition])
        if lost:
            raise _not_of_this_term(lost)
        if partition not in parts.host.standing.owned:
            raise LocalProtocolError(f"{partition[0]}-{partition[1]} is not this member's")
        parts.duties.seek(partition, offset)

    def pause(self, partitions: Collection[tuple[str, int]]) -> None:
        """Hand out nothing of these; kept across rebalances that leave them here."""
        self._running().duties.pause(partitions)

    def resume(self, partitions: Collection[tuple[str, int]]) -> None:
        """Hand these out again."""
        self._running().duties.resume(partitions)

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

    def metrics(self) -> MemberMetrics:
        """Return what was counted so far, in Kafka's names where they exist."""
        return self._running().metrics()

    # Plumbing

    def _running(self, *, polls: bool = False) -> Assembly:
        """The parts; raises the member's failure, for a poll after the waiting callbacks."""
        self._check_open()
        if polls and self._closed:
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
        if self._is_over:
            raise AdapterError("the consumer is closed")

    def _settings_s(self, key: str) -> float:
        return float(self._settings[key]) / 1000


def _is_overtaken(code: int, before: Standing, now: Standing) -> bool:
    """Whether a refused commit came too late for its generation and may go to a newer one."""
    if code != ErrorCode.ILLEGAL_GENERATION:
        return False
    return now.state is _JOINING or now.identity.generation > before.identity.generation


def _not_of_this_term(refused: Collection[tuple[str, int]]) -> RemoteProtocolError:
    names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(refused)[:5])
    more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
    return RemoteProtocolError(
        f"the commit was refused: {names}{more} had been lost since these records were "
        "handed out; they are read again from the committed offset, here or elsewhere",
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
    )


def _not_committed(code: int) -> HoldfastError:
    if code < 0:
        return AdapterError("the commit was not answered in time: it may be done, or not")
    return RemoteProtocolError(f"the commit was refused: {describe(code)}", error_code=code)


def _pattern(topics: Collection[str] | str | re.Pattern[str]) -> Callable[[str], bool] | None:
    if isinstance(topics, str):
        if not topics.startswith("^"):
            raise LocalProtocolError(f"subscribe() takes a list of topics: [{topics!r}]")
        topics = re.compile(topics)
    if isinstance(topics, re.Pattern):
        matches = topics.match
        return lambda name: matches(name) is not None
    return None


def _names(topics: Collection[str] | str | re.Pattern[str]) -> tuple[str, ...]:
    assert not isinstance(topics, (str, re.Pattern))
    names = tuple(sorted(set(topics)))
    if not all(names):
        raise LocalProtocolError("subscribe() takes at least one topic name")
    return names
