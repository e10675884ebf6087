"""``confluent_kafka.Consumer`` whose group member is holdfast's; the rest is the original.

**Rules.** The object is a ``confluent_kafka.Consumer``: what this class does not define, and
everything without a subscription, is the original. With a subscription, librdkafka fetches the
assignment that the member gives it, and neither joins the group nor commits. Callbacks, errors and
codes come where the original has them. Only partitions that this generation owns are committed, and
only delivered records. This class adds only the name ``_holdfast``: other names may be a
subclass's.

**Strategy.** ``poll`` and ``consume`` call the original in short slices. Work between two slices
waits as a task (:mod:`~holdfast.members.clients.confluent.state`), so a call that finds
records costs little more than the original's. A call that needs more than one slice holds the call
lock: a second thread waits until it ends, as with the original.

References: confluent-kafka-python, ``Consumer``; KIP-429; KIP-447.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import confluent_kafka

from holdfast.errors import ClientError, ConfigError
from holdfast.members.clients.confluent import errors
from holdfast.members.clients.confluent.config import INSTALLED, route, warn_if_unsupported
from holdfast.members.clients.confluent.errors import ErrorMessage
from holdfast.members.clients.confluent.session import check_record, commit_arguments, offset_after
from holdfast.members.clients.confluent.state import LEAVE_S, ConsumerState
from holdfast.members.clients.librdkafka.adapter import SLICE_S
from holdfast.members.clients.librdkafka.recreation import keep_in_forks, serializes_calls
from holdfast.members.runtime.member_status import clear_ready_file
from holdfast.members.session.commits import group_metadata
from holdfast.members.session.poll_session import NOTHING

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition

    from holdfast.members.metrics import MemberMetrics

_Original = confluent_kafka.Consumer
_poll = _Original.poll
_consume = _Original.consume
_original_commit: Callable[..., list[TopicPartition] | None] = _Original.commit
_CALLBACKS = ("on_assign", "on_revoke", "on_lost")
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _waiting(
    original: Callable[Concatenate[confluent_kafka.Consumer, _P], _T],
) -> Callable[Concatenate[ConfluentConsumer, _P], _T]:
    """Return a call of the original that waits for the call of another thread."""

    @wraps(original)
    def call(self: ConfluentConsumer, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with call_lock_of(self):
            return original(self, *args, **kwargs)

    return call


class ConfluentConsumer(confluent_kafka.Consumer):
    """A drop-in for ``confluent_kafka.Consumer``.

    Parameters
    ----------
    *args : dict
        At most one: librdkafka's keys, ``holdfast.*``, and callbacks, as for the original.
    **kwargs
        Keys that are added to the configuration. ``partition.assignment.strategy`` takes every
        assignor of the registry.

    Raises
    ------
    KafkaException
        With ``_INVALID_ARG`` for a key or value that librdkafka or the member refuses.

    Notes
    -----
    See ``docs/clients.md`` for the keys and the intended differences from the original.
    """

    # None without __init__, which the original takes for closed, and with group.protocol=consumer.
    _holdfast: ConsumerState | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        if not (args or kwargs):
            super().__init__()  # raises; with an empty mapping it would miss the group.id
        if len(args) > 1 or not all(isinstance(a, dict) for a in args):
            super().__init__(*args, **kwargs)  # raises
        config = INSTALLED.override({**(args[0] if args else {}), **kwargs})
        try:
            routed = route(config)
        except ConfigError as error:
            raise errors.exception(errors.INVALID_ARG, str(error)) from None
        except ClientError as error:  # no token
            raise errors.exception(errors.LOGIN_FAILED, str(error)) from None
        super().__init__(routed.client_config)
        keep_in_forks(self)
        if routed.member is None:
            if routed.native is not None:
                warn_if_unsupported(routed.native)
            return
        # The leader's code is loaded here, not with the client's module.
        from holdfast.members.config.policy import assignors_of

        try:
            settings = routed.settings()
            assignors = assignors_of(settings)
            if routed.has_brokers:
                clear_ready_file(settings)
        except ConfigError as error:
            super().close()
            text = f"Failed to create consumer: {error}"
            raise errors.exception(errors.INVALID_ARG, text) from None
        self._holdfast = ConsumerState(self, routed, settings, assignors, config.get("on_commit"))

    # Subscription

    def subscribe(self, topics: Any, *callbacks: Any, **named: Any) -> None:
        """Subscribe to a list of topics and ``^`` patterns, as the original does.

        ``on_assign``, ``on_revoke`` and ``on_lost`` are called with the consumer and a list.
        """
        state = self._holdfast
        is_odd = not named.keys() <= set(_CALLBACKS) or len(callbacks) > len(_CALLBACKS)
        if state is None or is_odd:
            _Original.subscribe(self, topics, *callbacks, **named)
            return
        given = {**dict(zip(_CALLBACKS, callbacks, strict=False)), **named}
        with state.calls.lock():
            state.calls.check_open()
            if not isinstance(topics, list):
                raise TypeError("expected list of topic unicode strings")
            for name, callback in given.items():
                if not callable(callback):
                    raise TypeError(f"{name} expects a callable")
            state.subscribe(
                [str(topic) for topic in topics], *(given.get(name) for name in _CALLBACKS)
            )

    def unsubscribe(self) -> None:
        """Leave the group; its callbacks come in the next calls, as with the original."""
        state = self._holdfast
        if state is None or state.session is None:
            _Original.unsubscribe(self)
            return
        with state.calls.lock():
            state.calls.check_open()
            state.unsubscribe()

    # Records

    def poll(self, timeout: float = -1) -> Message | None:
        """Return one message, or None after ``timeout`` seconds, as the original does."""
        state = self._holdfast
        if state is None:
            return _poll(self, timeout)
        in_flight, calls = state.in_flight, state.calls
        if in_flight.last_result is None and calls.is_in_call():
            return None  # a callback that waits here would wait for itself
        message: Message | None = None
        in_flight.last_result, in_flight.caller = None, get_ident()
        try:
            is_short = 0 <= timeout <= SLICE_S
            has_time = monotonic() < state.due_at and not state.pending_tasks
            if has_time:
                message = _poll(self, timeout if is_short else SLICE_S)
            elif calls.is_pending:
                calls.check_open()
            if message is None and not (has_time and is_short):
                message = calls.run_locked(lambda: state.poll(timeout))
        finally:
            in_flight.last_result = NOTHING if message is None else message
            if calls.is_pending and calls.end_poll():
                message = None  # its partition is revoked, or will be read again
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` messages, fewer after ``timeout`` seconds."""
        state = self._holdfast
        messages: list[Message] = []
        if state is None:
            messages = _consume(self, num_messages, timeout)
            return messages
        in_flight, calls = state.in_flight, state.calls
        if in_flight.last_result is None and calls.is_in_call():
            return messages
        in_flight.last_result, in_flight.caller = None, get_ident()
        try:
            is_short = 0 <= timeout <= SLICE_S
            has_time = monotonic() < state.due_at and not state.pending_tasks
            if has_time:
                messages = _consume(self, num_messages, timeout if is_short else SLICE_S)
            elif calls.is_pending:
                calls.check_open()
            if not has_time or not (is_short or len(messages) == num_messages):
                messages = calls.run_locked(lambda: state.consume(messages, num_messages, timeout))
        finally:
            in_flight.last_result = tuple(messages)
            if calls.is_pending and calls.end_poll():
                messages = []
        return messages

    # The assignment

    def assignment(self) -> list[TopicPartition]:
        """Return the assignment, as the original does."""
        assignment: list[TopicPartition] = _Original.assignment(self)
        state = self._holdfast
        return assignment if state is None else state.adapter.pending_starts.as_original(assignment)

    def assign(self, partitions: Any) -> None:
        """Assign; inside ``on_assign``, start what the callback was given."""
        state = self._holdfast
        if state is not None:
            if state.adapter.assign_in_callback(partitions):
                return
            state.prepare_replacement("assign")
        _Original.assign(self, partitions)

    def incremental_assign(self, partitions: Any) -> None:
        """Add to the assignment, as the original does."""
        state = self._holdfast
        if state is not None:
            if state.adapter.assign_in_callback(partitions):
                return
            if state.session is not None:
                state.session.check_change("incremental_assign", is_incremental=True)
        _Original.incremental_assign(self, partitions)
        if state is not None and state.adapter.pending_starts.waiting:
            state.adapter.pending_starts.without(partitions)

    def unassign(self) -> None:
        """Assign nothing; in ``on_revoke`` and ``on_lost``, none of the callback's partitions."""
        state = self._holdfast
        if state is not None:
            if (callback := state.adapter.running_revocation()) is not None:
                state.adapter.unassign_revoked(callback.resources)
                return
            state.prepare_replacement("unassign")
        _Original.unassign(self)

    def incremental_unassign(self, partitions: Any) -> None:
        """Remove from the assignment, as the original does."""
        state = self._holdfast
        if state is not None:
            if state.adapter.running_revocation() is not None:
                _Original.position(self, partitions)  # raises for what is no list of partitions
                state.adapter.unassign_revoked({(p.topic, p.partition) for p in partitions})
                return
            if state.session is None:
                state.adapter.commit_stored()
            else:
                state.session.check_change("incremental_unassign", is_incremental=True)
            if state.adapter.pending_starts.waiting:
                partitions = state.adapter.pending_starts.without(partitions)
        _Original.incremental_unassign(self, partitions)
        if state is not None:
            state.adapter.recreation.forget([(p.topic, p.partition) for p in partitions])

    def pause(self, partitions: Any) -> None:
        """Pause delivery of ``partitions``, as the original does."""
        _Original.pause(self, partitions)
        if self._holdfast is not None:
            self._holdfast.adapter.record_pause(partitions, is_paused=True)

    def resume(self, partitions: Any) -> None:
        """Resume delivery of ``partitions``, as the original does."""
        _Original.resume(self, partitions)
        if self._holdfast is not None:
            self._holdfast.adapter.record_pause(partitions, is_paused=False)

    # Offsets

    def store_offsets(self, *args: Any, **kwargs: Any) -> None:
        """Store offsets for the next commit, as the original does."""
        message, offsets = (*args, None, None)[:2]
        message, offsets = kwargs.get("message", message), kwargs.get("offsets", offsets)
        if type(message) is ErrorMessage and offsets is None:
            check_record(message, "store")  # the original would take it for no message
        _Original.store_offsets(self, *args, **kwargs)
        if self._holdfast is None:
            return
        for part in [offset_after(message)] if offsets is None else offsets:
            self._holdfast.adapter.store(part)

    # The original has an overload for each way of calling it; the results are theirs.
    def commit(  # type: ignore[override] # one signature for all of them
        self, *args: Any, **kwargs: Any
    ) -> list[TopicPartition] | None:
        """Commit a message, offsets, or the stored offsets, as the original does.

        Raises
        ------
        KafkaException
            ``ILLEGAL_GENERATION`` or ``UNKNOWN_MEMBER_ID`` for partitions that this generation does
            not own, or records delivered before a loss; else the original's codes.
        """
        state = self._holdfast
        if state is None:
            return _original_commit(self, *args, **kwargs)
        done: list[TopicPartition] | None
        done = state.calls.run_locked(lambda: _commit(self, state, *args, **kwargs))
        return done

    # Queries wait for a call of another thread, as the original's do: between two slices of a poll
    # librdkafka would let them in by chance.
    position = _waiting(_Original.position)
    committed = _waiting(_Original.committed)
    offsets_for_times = _waiting(_Original.offsets_for_times)
    get_watermark_offsets = _waiting(_Original.get_watermark_offsets)
    list_topics = _waiting(_Original.list_topics)

    def seek(self, *args: Any, **kwargs: Any) -> None:
        """Continue at another offset, as the original does."""
        state = self._holdfast
        with call_lock_of(self):
            _Original.seek(self, *args, **kwargs)
            if state is not None:
                is_subscribed = state.session is not None
                state.adapter.record_seek(*args, *kwargs.values(), is_subscribed=is_subscribed)

    # Membership

    def memberid(self) -> str | None:  # type: ignore[override] # so does the original, undocumented
        """Member id given by the coordinator, None before the first join."""
        original_id = _Original.memberid(self)  # raises if it is closed
        identity = None if self._holdfast is None else self._holdfast.identity
        return original_id if identity is None else identity.member_id or None

    def consumer_group_metadata(self) -> object:
        """Return the metadata by which a transaction's offsets of an outdated member are refused.

        References: KIP-447; librdkafka, ``rd_kafka_consumer_group_metadata_write``.
        """
        metadata = _Original.consumer_group_metadata(self)
        state = self._holdfast
        if state is None or state.identity is None:
            return metadata
        return group_metadata(state.settings, state.identity)

    def __holdfast_metrics__(self) -> MemberMetrics | None:
        session = None if self._holdfast is None else self._holdfast.session
        return None if session is None else session.membership.metrics()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these credentials from the next connection on, to fetch and as a member."""
        _Original.set_sasl_credentials(self, username, password)
        if self._holdfast is not None:
            self._holdfast.log_in_as(username, password)

    # The end

    def close(self, *args: Any, returns: bool | None = None) -> None:
        """Revoke everything, leave the group, and close; a second close does nothing.

        Parameters
        ----------
        returns : bool, optional
            Whether this member comes back soon; see :meth:`holdfast.Consumer.close`.
        """
        state = self._holdfast
        if args or state is None:
            _Original.close(self, *args)
            return

        state.due_at = 0.0
        state.calls.close(LEAVE_S, returns=returns)

    def __exit__(self, exc_type: Any, exc_value: Any, exc_traceback: Any) -> None:
        state = self._holdfast
        if state is None or state.calls.process.is_current():  # a fork leaves its parent's alone
            self.close()


def call_lock_of(consumer: ConfluentConsumer) -> AbstractContextManager[object]:
    """Return the call lock of this caller, if there is a member and its client's calls wait."""
    state = consumer._holdfast
    return nullcontext() if state is None or not serializes_calls else state.calls.lock()


def until_abandoned(
    consumer: ConfluentConsumer, abandoned: Callable[[], bool], call: Callable[[], Any]
) -> Any:
    """Make a call that reads; it ends early if no caller waits for its records."""
    state = consumer._holdfast
    return call() if state is None else state.until_abandoned(abandoned, call)


def _commit(
    consumer: ConfluentConsumer, state: ConsumerState, *args: Any, **kwargs: Any
) -> list[TopicPartition] | None:
    session = state.session
    if session is None or session.membership.member_thread is None:
        return _original_commit(consumer, *args, **kwargs)
    _Original.memberid(consumer)  # raises if it is closed
    message, offsets, waits = commit_arguments(*args, **kwargs)
    if message is not None:
        offsets = [offset_after(message)]
    elif offsets is not None:
        _Original.position(consumer, offsets)  # raises for what is no list of partitions
    return session.commit_as_called(offsets, waits=waits)
