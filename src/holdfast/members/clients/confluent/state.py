"""The state of a ``confluent_kafka.Consumer``: its calls, and its member from joining to leaving.

**Rules.** A second thread waits until a call ends, as with the original; a callback may enter. A
close inside a call takes effect when the call returns. Everything here runs on the application's
thread, inside a call of the consumer.

**Strategy.** A poll does what is due between two slices. A consumer has one
:class:`~holdfast.members.clients.confluent.session.ConfluentSession` from ``subscribe`` to the end
of the membership.

References: confluent-kafka-python, ``Consumer``; KIP-429; KIP-62.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import Message

from holdfast.cluster.connections import Connections
from holdfast.members.clients.confluent import errors
from holdfast.members.clients.confluent.config import RoutedConfig, subscription_of
from holdfast.members.clients.confluent.session import Callbacks, ConfluentAdapter, ConfluentSession
from holdfast.members.clients.librdkafka.adapter import SLICE_S
from holdfast.members.clients.librdkafka.recreation import CALLER
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.application_calls import ApplicationCalls
from holdfast.members.session.membership import Membership
from holdfast.members.session.poll_session import InFlight

if TYPE_CHECKING:
    from holdfast.core.machine.leader.assignor_protocol import Assignor
    from holdfast.core.machine.shared_values import Identity
    from holdfast.members.runtime.member_runtime import TopicPredicate

_SERVED_EVERY_S = 0.1
LEAVE_S = 30.0
_Original: Any = confluent_kafka.Consumer
_poll = _Original.poll
_consume = _Original.consume


class SlicedCalls(ApplicationCalls):
    """The calls of one consumer. A poll that finds a record at once records only its thread."""

    def __init__(self, end: Callable[[float, bool | None], None], in_flight: InFlight):
        super().__init__(end)
        self._in_flight = in_flight
        self._lock = threading.RLock()
        self._holder = 0  # the task of AIOConsumer for which the lock is held

    def lock(self) -> AbstractContextManager[object]:
        """Return the lock for this caller; raise in a fork, where its owner may not exist.

        A thread gets the lock itself, not a context manager of holdfast, in which an exception of a
        signal handler could keep the lock for ever. Signals never reach the threads of AIOConsumer.
        """
        self.process.check()
        # AIOConsumer's threads name their caller, any other thread calls for itself.
        caller = CALLER.get() if CALLER is not None else 0
        return self._lock_for(caller) if caller else self._lock

    @contextmanager
    def _lock_for(self, caller: int) -> Iterator[None]:
        if caller == self._holder:  # a callback, on another thread
            yield
            return
        with self._lock:
            self._holder = caller
            try:
                yield
            finally:
                self._holder = 0

    def run_locked(self, call: Callable[[], Any]) -> Any:
        """Make a call under the lock; a close inside it takes effect after it."""
        with self.lock():
            return self.run(call)

    def check_open(self) -> None:
        """Raise, as a closed consumer of the original, if the close has begun."""
        if self.is_closing():
            raise RuntimeError("Consumer closed")

    def caller(self) -> int:
        """Return a thread, or the task of AIOConsumer for which it calls."""
        return (0 if CALLER is None else CALLER.get()) or threading.get_ident()

    def is_in_call(self) -> bool:
        """Return whether the caller is inside one of its calls, a quick poll included."""
        polls = (
            self._in_flight.last_result is None and self._in_flight.caller == threading.get_ident()
        )
        return polls or super().is_in_call()

    def has_calls(self) -> bool:
        """Return whether any call is running."""
        return self._in_flight.last_result is None or super().has_calls()

    def end_poll(self) -> bool:
        """Do what an ended poll has postponed; return whether its records are dropped."""
        if not self.should_return():
            return False
        self._in_flight.may_be_processed = False
        self.do_postponed()
        self._in_flight.may_be_processed = not self.is_closing()
        return True


def _never() -> bool:
    return False


class ConsumerState:
    """The state of one consumer, in an object of its own, so that no subclass overwrites it."""

    def __init__(
        self,
        consumer: Any,
        routed: RoutedConfig,
        settings: Settings,
        assignors: Sequence[Assignor],
        on_commit: Callable[..., object] | None,
    ):
        self._ref = weakref.ref(consumer)  # a forgotten one ends at once, as the original
        self._has_brokers = routed.has_brokers
        self.assignors = assignors
        self.settings = settings
        self.in_flight = InFlight()
        self.calls = SlicedCalls(self._end, self.in_flight)
        self.callbacks = Callbacks(on_commit)
        self.adapter = ConfluentAdapter(consumer, self.callbacks, routed)
        self.session: ConfluentSession | None = None  # None without a subscription
        self.due_at = 0.0  # when something is due before the next record is taken
        self.pending_tasks: Collection[Any] = ()  # tasks that are due now
        self._is_abandoned: Callable[[], bool] = _never  # whether no caller waits for this poll
        self._pending_error: BaseException | None = None

    @property
    def _consumer(self) -> Any:
        return self._ref()

    @property
    def identity(self) -> Identity | None:
        """The identity of the member, None before a broker has answered."""
        if self.session is None or self.session.membership.runtime is None:
            return None
        return self.session.membership.snapshot.identity

    # Membership

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        """Join the group, or change the subscription."""
        _Original.memberid(self._consumer)  # raises if it is closed
        try:
            subscription = subscription_of(topics)
        except ValueError as error:
            text = f"Failed to set subscription: Local: Invalid argument or configuration: {error}"
            raise errors.exception(errors.INVALID_ARG, text) from None

        def join() -> None:
            if self.session is not None and self.session.membership.is_leaving:
                self._finish(self.session, time.monotonic() + LEAVE_S)
            callbacks = self.callbacks
            callbacks.on_assign, callbacks.on_revoke, callbacks.on_lost = (
                on_assign,
                on_revoke,
                on_lost,
            )
            self._join(*subscription)

        if self.session is not None and self.session.membership.is_leaving:
            # In a callback the member can only leave, and join again, when that has returned.
            self.calls.run_after(join)
        else:
            join()

    def _join(self, topics: tuple[str, ...], pattern: TopicPredicate | None) -> None:
        session = self.session
        if session is None:
            connect = partial(Connections, tries_logins_again=True)
            membership = Membership(self.settings, self.assignors, connect)
            session = ConfluentSession(membership, self.adapter, self.in_flight)
            self.adapter.session = session
            weakref.finalize(self._consumer, membership.close)
            self.session, self.pending_tasks = session, session.tasks.items
        if self._has_brokers:  # else there is no broker to query
            session.membership.subscribe(topics, pattern)

    def log_in_as(self, username: str, password: str) -> None:
        """Log in with these credentials from the member's next connection on."""
        self.adapter.recreation.log_in_as(username, password)
        self.settings = self.settings.with_login(username, password)
        if self.session is not None:
            self.session.membership.log_in_as(username, password)

    def unsubscribe(self) -> None:
        """Begin to leave; the next calls complete it."""
        if self.session is not None and not self.session.membership.is_leaving:
            self.session.record_positions()
            self.session.membership.leave(process_ends=False)
            self.due_at = 0.0

    def _end(self, timeout_s: float, returns: bool | None) -> None:
        """Close; a second call continues where the first was interrupted."""
        # Another thread that has not returned in time is in a callback, and keeps the lock.
        with nullcontext() if self.calls.has_other_calls() else self.calls.lock():
            if _is_open(self._consumer):
                if self.session is None:
                    self.adapter.commit_stored()
                else:
                    deadline = time.monotonic() + timeout_s
                    raised = self.session.leave(deadline, returns=returns)
                    self._close_session(self.session, raised)
            _Original.close(self._consumer)

    def _finish(self, session: ConfluentSession, deadline: float) -> None:
        """Do the tasks of the leaving member until it has left."""
        self._close_session(session, session.finish(deadline))

    def _close_session(self, session: ConfluentSession, raised: BaseException | None) -> None:
        """Close a session whose member has left; raise the error of its callback."""
        self.adapter.stop_fetching(
            self.adapter.assigned_now() & session.subscription_state.active()
        )
        self.adapter.stored.clear()
        session.membership.close()
        # Last: the next call continues after an exception.
        self.session, self.pending_tasks = None, ()
        if raised is not None:
            raise raised

    def prepare_replacement(self, name: str) -> None:
        """Prepare a method that replaces the whole assignment outside a callback."""
        if self.session is None:
            self.adapter.commit_stored()
        else:
            self.session.check_change(name, is_incremental=False)
        self.adapter.forget_all()

    # Records

    def poll(self, timeout: float) -> Any:
        """Do ``Consumer.poll``, with everything that is due."""
        end = inf if timeout < 0 else time.monotonic() + timeout
        while True:
            event = self.serve()
            if event is not None or self._is_over():
                return event
            left_s = end - time.monotonic()
            message = _poll(self._consumer, max(0.0, min(left_s, SLICE_S)))
            if message is not None or left_s <= SLICE_S or self._is_abandoned():
                return message

    def consume(self, messages: list[Any], n: int, timeout: float) -> list[Any]:
        """Do ``Consumer.consume``, with everything that is due; add to the records ``messages``."""
        end = inf if timeout < 0 else time.monotonic() + timeout
        while True:
            if not messages and (event := self.serve()) is not None:
                return [event]
            if self._is_over():
                return messages
            left_s = end - time.monotonic()
            try:
                messages += _consume(
                    self._consumer, n - len(messages), max(0.0, min(left_s, SLICE_S))
                )
            except Exception as error:
                if not messages:
                    raise
                self._pending_error = error  # after the records, which would be lost with it
                return messages
            # Tasks in the mailbox may begin only when these records are processed.
            is_full = len(messages) >= n or (messages and self.pending_tasks)
            if is_full or left_s <= SLICE_S or self._is_abandoned():
                return messages

    def until_abandoned(self, abandoned: Callable[[], bool], call: Callable[[], Any]) -> Any:
        """Make a call of the application that ends early if no caller waits for it."""
        self._is_abandoned = abandoned
        try:
            return self.calls.run(call)
        finally:
            self._is_abandoned = _never
            self.in_flight.caller = 0  # the next call may come from any thread

    def _is_over(self) -> bool:
        """Return whether the running call should return without waiting for more records."""
        return self._is_abandoned() or (self.calls.is_pending and self.calls.should_return())

    def serve(self) -> Message | None:
        """Do what is due between two slices; return a message that is not librdkafka's."""
        error, self._pending_error = self._pending_error, None
        if error is not None:
            raise error
        now = time.monotonic()
        self.due_at = 0.0  # meanwhile no other thread takes a record: a callback may run
        if self.session is None:
            self.adapter.maybe_auto_commit(now)
            message = None
        else:
            message = self._serve(self.session, now)
        is_leaving = self.session is not None and self.session.membership.is_leaving
        self.due_at = 0.0 if is_leaving else time.monotonic() + _SERVED_EVERY_S
        return message

    def _serve(self, session: ConfluentSession, now: float) -> Message | None:
        if (message := session.serve(now)) is not None:
            return message
        if session.membership.is_finished():
            self._finish(session, now)
        return session.take_failure()


def _is_open(consumer: Any) -> bool:
    try:
        _Original.memberid(consumer)
    except RuntimeError:
        return False
    return True
