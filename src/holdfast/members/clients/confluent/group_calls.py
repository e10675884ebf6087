"""The calls of a ``confluent_kafka.Consumer`` that concern its group.

**Rules.** Everything here runs on the application's thread, inside a call of the consumer. The
callbacks of a rebalance get the consumer and a list, as confluent-kafka's do, and may change the
assignment. If a callback does not, the assignment is changed after it; revoked or lost partitions
are always unassigned. An exception of a callback does not affect the assignment, and the call
raises it once everything is done.

**Strategy.** :meth:`GroupCalls.serve` does what is due between two slices of a poll. A consumer has
one :class:`~holdfast.members.session.poll_session.PollSession` from ``subscribe`` to the end of the
membership.

References: confluent-kafka-python, ``Consumer_rebalance_cb``; KIP-429; KIP-62.
"""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition

from holdfast.cluster.connections import Connections
from holdfast.core.machine.events import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.members.clients.confluent import errors
from holdfast.members.clients.confluent.adapter import SLICE_S, LibrdkafkaAdapter, listed
from holdfast.members.clients.confluent.commit_calls import CommitCalls
from holdfast.members.clients.confluent.config import Routed
from holdfast.members.clients.confluent.errors import Problems, check_kind, late
from holdfast.members.clients.confluent.recreation import CALLER
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.closing import Closing, OwnProcess
from holdfast.members.runtime.coordinator_client import Offsets
from holdfast.members.session.client_adapter import ClientTraits, InFlight
from holdfast.members.session.membership import Membership
from holdfast.members.session.poll_session import PollSession

if TYPE_CHECKING:
    from holdfast.core.machine.leader.assignor_protocol import Assignor
    from holdfast.members.runtime.member_thread import MemberSnapshot

_SERVED_EVERY_S = 0.1
LEAVE_S = 30.0
_TRAITS = ClientTraits(reports_empty_changes=False, error_stops_commit=False, deleted_are_lost=True)
_Original: Any = confluent_kafka.Consumer
_poll = _Original.poll
_consume = _Original.consume


def topics_of(topics: Sequence[str]) -> tuple[tuple[str, ...], Callable[[str], bool] | None]:
    """Return the names, or a predicate that matches any of the names and patterns.

    Raises
    ------
    ValueError
        For a list that librdkafka refuses: without a topic, with an empty name, with a name twice,
        or with an invalid pattern.
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


class CallLock:
    """A lock for one caller at a time; its callbacks may enter: ``with call_lock.mine():``.

    A thread gets the lock itself, not a context manager of holdfast, in which an exception of a
    signal handler could keep the lock for ever. Signals never reach the threads of AIOConsumer.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._caller = 0
        self._process = OwnProcess()

    def mine(self) -> AbstractContextManager[object]:
        """Return the lock for this caller; raise in a fork, where its owner may not exist."""
        self._process.check()
        # AIOConsumer's threads name their caller, any other thread calls for itself.
        caller = CALLER.get() if CALLER is not None else 0
        return self._of(caller) if caller else self._lock

    @contextmanager
    def _of(self, caller: int) -> Iterator[None]:
        if caller == self._caller:  # a callback, on another thread
            yield
            return
        with self._lock:
            self._caller = caller
            try:
                yield
            finally:
                self._caller = 0


def _never() -> bool:
    return False


class Deadline:
    """The end of a call with a time-out, or without waiters; a negative time-out never ends."""

    def __init__(self, timeout: float, abandoned: Callable[[], bool] = _never):
        self._abandoned = abandoned
        self._end = None if timeout < 0 else time.monotonic() + timeout
        self._is_last = False

    def slice_s(self) -> float:
        """Return how long the next slice may wait, in s."""
        if self._end is None:
            return SLICE_S
        left = self._end - time.monotonic()
        self._is_last = left <= SLICE_S
        return max(0.0, min(left, SLICE_S))

    def is_over(self) -> bool:
        """Return whether the last slice has ended."""
        return self._is_last or self._abandoned()


class CallsInSlices(Closing):
    """The calls of one consumer. A poll that finds a record at once records only its thread.

    Parameters
    ----------
    in_flight : InFlight
        Knows whether a poll runs, and on which thread.
    """

    def __init__(self, end: Callable[[float, bool | None], None], in_flight: InFlight):
        super().__init__(end)
        self._in_flight = in_flight

    def caller(self) -> int:
        """Return a thread, or the task of AIOConsumer for which it calls."""
        return (0 if CALLER is None else CALLER.get()) or threading.get_ident()

    def is_inside(self) -> bool:
        """Return whether the caller is inside one of its calls, a quick poll included."""
        polls = self._in_flight.last is None and self._in_flight.caller == threading.get_ident()
        return polls or super().is_inside()

    def has_calls(self) -> bool:
        """Return whether any call is running."""
        return self._in_flight.last is None or super().has_calls()

    def comes_out(self) -> bool:
        """Do what an ended poll has postponed; return whether its records are dropped."""
        if not self.is_coming_out():
            return False
        self._in_flight.is_seen = False
        self.do_postponed()
        self._in_flight.is_seen = not self.has_begun()
        return True


class GroupCalls:
    """The calls of a consumer that concern its group.

    Parameters
    ----------
    on_commit : callable, optional
        The application's callback; takes an error or None, and a list.
    """

    def __init__(
        self,
        consumer: Any,
        routed: Routed,
        settings: Settings,
        assignors: Sequence[Assignor],
        on_commit: Callable[..., object] | None,
    ):
        self._ref = weakref.ref(consumer)  # a forgotten one ends at once, as the original
        self._routed = routed
        self.assignors = assignors
        self.settings = settings
        self.call_lock = CallLock()
        self.in_flight = InFlight()
        self.closing = CallsInSlices(self._end, self.in_flight)
        self.callbacks: tuple[Any, Any, Any] = (None, None, None)
        self.adapter = LibrdkafkaAdapter(
            consumer,
            weakref.ref(self),
            routed.plane,
            reset=routed.reset,
            stores=routed.stores,
        )
        self.commits = CommitCalls(consumer, self.adapter, routed, on_commit)
        self.session: PollSession | None = None
        self._problems = Problems()
        self.abandoned: Callable[[], bool] = _never  # whether no caller waits for this poll
        self.due_at = 0.0  # when something is due before the next record is taken
        self.waiting: Collection[Any] = ()  # or something is due now
        self._served_at = 0.0
        self._held_error: BaseException | None = None

    @property
    def _consumer(self) -> Any:
        return self._ref()

    @property
    def snapshot(self) -> MemberSnapshot | None:
        """The member snapshot, None without a member."""
        return None if self.session is None else self.session.membership.snapshot

    def alone(self, call: Callable[[], Any]) -> Any:
        """Make a call under the call lock; a close inside it takes effect after it."""
        with self.call_lock.mine():
            return self.closing.inside(call)

    def check_going(self) -> None:
        """Raise, as a closed consumer of the original, if the close has begun."""
        if self.closing.has_begun():
            raise RuntimeError("Consumer closed")

    # Membership

    def subscribe(self, topics: list[str], callbacks: tuple[Any, Any, Any]) -> None:
        """Join the group, or change the subscription."""
        _Original.memberid(self._consumer)  # raises if it is closed
        try:
            subscription = topics_of(topics)
        except ValueError as error:
            text = f"Failed to set subscription: Local: Invalid argument or configuration: {error}"
            raise errors.exception(errors.INVALID_ARG, text) from None
        if self.session is not None and self.session.membership.is_leaving:
            # In a callback the member can only leave, and join again, when that has returned.
            self.closing.outside(lambda: self._join(subscription, callbacks))
        else:
            self._join(subscription, callbacks)

    def _join(
        self,
        subscription: tuple[tuple[str, ...], Callable[[str], bool] | None],
        callbacks: tuple[Any, Any, Any],
    ) -> None:
        if self.session is not None and self.session.membership.is_leaving:
            self._finish(time.monotonic() + LEAVE_S)
        self.callbacks = callbacks
        session = self.session
        if session is None:
            session = self._new_session()
        if self._routed.has_brokers:  # else there is no broker to query
            session.membership.subscribe(*subscription)

    def _new_session(self) -> PollSession:
        connect = partial(Connections, tries_logins_again=True)
        membership = Membership(self.settings, self.assignors, connect)
        # Weakly: the member's threads refer to the session until the consumer is forgotten, and
        # callbacks of the application, which are here, often refer to the consumer.
        heard = weakref.WeakMethod(self.commits.on_last_commit)

        def report_commit(offsets: Offsets, error: BaseException | None) -> None:
            if (mine := heard()) is not None:
                mine(session, offsets, error)

        self.adapter.session = session = PollSession(
            membership, self.adapter, _TRAITS, self.in_flight, report_commit
        )
        weakref.finalize(self._consumer, membership.close)
        self._problems, self._served_at = Problems(), time.monotonic()
        self.session, self.waiting = session, session.tasks.items
        return session

    def listener_for(self, call: ListenerCall) -> Callable[[list[Resource]], object] | None:
        """Return the application's callback, None for none."""
        on_assign, on_revoke, on_lost = self.callbacks
        if call is ListenerCall.ASSIGNED:
            work = on_assign
        else:
            work = (on_lost or on_revoke) if call is ListenerCall.LOST else on_revoke
        if work is None:
            return None
        return lambda resources: work(self._consumer, [TopicPartition(*tp) for tp in resources])

    def log_in_as(self, username: str, password: str) -> None:
        """Log in with these credentials from the member's next connection on."""
        self.adapter.recreation.log_in_as(username, password)
        self.settings = self.settings.with_login(username, password)
        if self.session is not None:
            self.session.membership.log_in_as(username, password)

    def unsubscribe(self) -> None:
        """Begin to leave; the next calls complete it."""
        if self.session is not None and not self.session.membership.is_leaving:
            self.session.note()
            self.session.membership.leave(process_ends=False)
            self.due_at = 0.0

    def _end(self, timeout_s: float, returns: bool | None) -> None:
        """Close; a second call continues where the first was interrupted."""
        # Another thread that has not returned in time is in a callback, and keeps the call lock.
        with nullcontext() if self.closing.has_other_calls() else self.call_lock.mine():
            if _is_open(self._consumer):
                self._leave(timeout_s, returns=returns)
            _Original.close(self._consumer)

    def _leave(self, timeout_s: float, *, returns: bool | None) -> None:
        """Revoke everything and leave."""
        if self.session is None:
            self.commits.stored_alone()
            return
        raised = self.session.leave(time.monotonic() + timeout_s, returns=returns)
        self._forget_session(self.session)
        if raised is not None:
            raise raised

    def _finish(self, deadline: float) -> None:
        """Do the tasks of the leaving member until it has left."""
        session = self.session
        if session is None:
            return
        raised = session.finish(deadline)
        self._forget_session(session)
        if raised is not None:
            raise raised

    def _forget_session(self, session: PollSession) -> None:
        self.adapter.drop(self.adapter.assigned_now() & session.subscription_state.active())
        self.adapter.stored.clear()
        session.membership.close()
        self.session, self.waiting = None, ()  # last: the next call continues after an exception

    # Records

    def poll(self, timeout: float) -> Any:
        """Do ``Consumer.poll``, with everything that is due."""
        deadline = Deadline(timeout, self._is_over)
        while True:
            event = self.serve()
            if event is not None or self._is_over():
                return event
            found = _poll(self._consumer, deadline.slice_s())
            if found is not None or deadline.is_over():
                return found

    def consume(self, found: list[Any], n: int, timeout: float) -> list[Any]:
        """Do ``Consumer.consume``, with everything that is due, after the records ``found``."""
        deadline = Deadline(timeout, self._is_over)
        while True:
            if not found and (event := self.serve()) is not None:
                return [event]
            if self._is_over():
                return found
            try:
                found += _consume(self._consumer, n - len(found), deadline.slice_s())
            except Exception as error:
                if not found:
                    raise
                self._held_error = (
                    error  # the application first gets the records that it must not lose
                )
                return found
            # Tasks in the mailbox may begin only when these records are processed.
            if len(found) >= n or deadline.is_over() or (found and self.waiting):
                return found

    def until_abandoned(self, abandoned: Callable[[], bool], call: Callable[[], Any]) -> Any:
        """Make a call of the application that ends early if no caller waits for it."""
        self.abandoned = abandoned
        try:
            return self.closing.inside(call)
        finally:
            self.abandoned = _never
            self.in_flight.caller = 0  # the next call may come from any thread

    def _is_over(self) -> bool:
        """Return whether no caller waits for the running call."""
        return self.abandoned() or (self.closing.is_pending and self.closing.is_coming_out())

    def serve(self) -> Message | None:
        """Do what is due between two slices; return a message that is not librdkafka's."""
        error, self._held_error = self._held_error, None
        if error is not None:
            raise error
        now = time.monotonic()
        self.due_at = 0.0  # meanwhile no other thread takes a record: a callback may run
        told = self._serve(now)
        is_leaving = self.session is not None and self.session.membership.is_leaving
        self.due_at = 0.0 if is_leaving else time.monotonic() + _SERVED_EVERY_S
        return told

    def _serve(self, now: float) -> Message | None:
        session = self.session
        if session is None:
            self.commits.alone_by_clock(now)
            return None
        too_late = late(session.membership, now - self._served_at)
        self._served_at = now
        if session.membership.member_thread is not None:
            session.note_polled()
            if too_late is not None:
                return too_late
            if (missing := self._problems.of_topics(session.membership)) is not None:
                return missing
            self._serve_member(session)
        if session.membership.is_over():
            self._finish(now)
        return self._problems.of_member(session.membership)

    def _serve_member(self, session: PollSession) -> None:
        raised = session.begin_poll()
        if raised is not None:
            raise raised
        self.adapter.start_positions.look_again(self._consumer)
        self.adapter.recreation.recreate_if_stalled(self.adapter)
        self._served_at = time.monotonic()
        if (sent := session.commit_by_clock()) is not None:
            self.commits.answer_later(session, sent[1], listed(sent[0]))

    # The assignment

    def begins_with(self, partitions: Any) -> bool:
        """Return whether an ``on_assign`` callback runs, which has assigned ``partitions``."""
        begun, session = self.adapter.running, self.session
        if begun is None or session is None or begun.call is not ListenerCall.ASSIGNED:
            return False
        _Original.position(self._consumer, partitions)  # raises for what is no list of partitions
        for part in partitions:
            if part.offset >= 0:
                session.subscription_state.begins_at((part.topic, part.partition), part.offset)
        self.adapter.assign_new(list(partitions))
        self.adapter.has_changed = (
            True  # last: after an exception the others start at their usual offset
        )
        return True

    def is_ending(self) -> bool:
        """Return whether ``on_revoke`` or ``on_lost`` runs."""
        begun = self.adapter.running
        return begun is not None and begun.call is not ListenerCall.ASSIGNED

    def end_some(self, resources: Collection[Resource]) -> None:
        """Unassign what a callback revokes itself; unassigned partitions do not matter."""
        if self.session is not None:
            self.session.note()
        self.adapter.take_away(resources)

    def replaces(self, name: str) -> None:
        """Prepare to replace the whole assignment outside a callback."""
        check_kind(self.session, name, is_step=False)
        self.commit_stored_alone()
        self.adapter.start_positions.forget(list(self.adapter.start_positions.waiting))
        self.adapter.recreation.forget()

    def commit_stored_alone(self) -> None:
        """Commit, without waiting, what a manual assignment has stored since the last time."""
        if self.session is None:
            self.commits.stored_alone()

    def pause(self, partitions: Sequence[Any], *, is_paused: bool) -> None:
        """Record what the application pauses or resumes; librdkafka does not report it."""
        named = {(p.topic, p.partition) for p in partitions}
        self.adapter.paused = (
            self.adapter.paused | named if is_paused else self.adapter.paused - named
        )

    def sought(self, part: Any) -> None:
        """Record a seek; the application may commit from the new offset on."""
        self.adapter.recreation.seek(self._consumer, part)
        offset = 0 if part.offset == OFFSET_BEGINNING else part.offset
        if self.session is not None and offset >= 0:
            self.session.subscription_state.seek((part.topic, part.partition), offset)


def _is_open(consumer: Any) -> bool:
    try:
        _Original.memberid(consumer)
    except RuntimeError:
        return False
    return True
