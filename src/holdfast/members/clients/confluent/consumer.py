"""``confluent_kafka.Consumer`` whose group member is holdfast's; the rest is the original.

**Rules.** The object is a ``confluent_kafka.Consumer``: what this class does not define, and
everything without a subscription, is the original. With a subscription, librdkafka fetches the
assignment that the member gives it, and neither joins the group nor commits. Callbacks, errors and
codes come where the original has them. Only partitions that this generation owns are committed, and
only delivered records. This class adds only the name ``_holdfast``: other names may be a
subclass's.

**Strategy.** ``poll`` and ``consume`` call the original in short slices. Work between two slices
waits as a task (:mod:`~holdfast.members.clients.confluent.group_calls`), so a call that finds
records costs little more than the original's. A call that needs more than one slice holds the call
lock: a second thread waits until it ends, as with the original.

References: confluent-kafka-python, ``Consumer``; KIP-429; KIP-447.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

import confluent_kafka

from holdfast.errors import ConfigError
from holdfast.members.clients.confluent import errors
from holdfast.members.clients.confluent.adapter import SLICE_S
from holdfast.members.clients.confluent.commit_calls import after, check_record, commit_arguments
from holdfast.members.clients.confluent.config import INSTALLED, look, route
from holdfast.members.clients.confluent.errors import ErrorMessage, check_kind
from holdfast.members.clients.confluent.forks import leave_alone_in_forks
from holdfast.members.clients.confluent.group_calls import LEAVE_S, GroupCalls
from holdfast.members.clients.confluent.recreation import has_gate
from holdfast.members.runtime.readiness import clear_ready_file
from holdfast.members.session.client_adapter import NOTHING
from holdfast.members.session.commits import group_metadata

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition

    from holdfast.members.metrics import MemberMetrics

_Original = confluent_kafka.Consumer
_poll = _Original.poll
_consume = _Original.consume
_original_commit: Callable[..., list[TopicPartition] | None] = _Original.commit
_CALLBACKS = ("on_assign", "on_revoke", "on_lost")


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
    _holdfast: GroupCalls | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        if not (args or kwargs):
            super().__init__()  # raises; with an empty mapping it would miss the group.id
        if len(args) > 1 or not all(isinstance(a, dict) for a in args):
            super().__init__(*args, **kwargs)  # raises
        config = INSTALLED.over({**(args[0] if args else {}), **kwargs})
        try:
            routed = route(config)
        except ConfigError as error:
            raise errors.exception(errors.INVALID_ARG, str(error)) from None
        super().__init__(routed.plane)
        leave_alone_in_forks(self)
        if routed.member is None:
            if routed.native is not None:
                look(routed.native)
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
        self._holdfast = GroupCalls(self, routed, settings, assignors, config.get("on_commit"))

    # Subscription

    def subscribe(self, topics: Any, *callbacks: Any, **named: Any) -> None:
        """Subscribe to a list of topics and ``^`` patterns, as the original does.

        ``on_assign``, ``on_revoke`` and ``on_lost`` are called with the consumer and a list.
        """
        calls = self._holdfast
        is_odd = not named.keys() <= set(_CALLBACKS) or len(callbacks) > len(_CALLBACKS)
        if calls is None or is_odd:
            _Original.subscribe(self, topics, *callbacks, **named)
            return
        given = {**dict(zip(_CALLBACKS, callbacks, strict=False)), **named}
        with calls.call_lock.mine():
            calls.check_going()
            if not isinstance(topics, list):
                raise TypeError("expected list of topic unicode strings")
            for name, callback in given.items():
                if not callable(callback):
                    raise TypeError(f"{name} expects a callable")
            heard = given.get("on_assign"), given.get("on_revoke"), given.get("on_lost")
            calls.subscribe([str(topic) for topic in topics], heard)

    def unsubscribe(self) -> None:
        """Leave the group; its callbacks come in the next calls, as with the original."""
        calls = self._holdfast
        if calls is None or calls.session is None:
            _Original.unsubscribe(self)
            return
        with calls.call_lock.mine():
            calls.check_going()
            calls.unsubscribe()

    # Records

    def poll(self, timeout: float = -1) -> Message | None:
        """Return one message, or None after ``timeout`` seconds, as the original does."""
        calls = self._holdfast
        if calls is None:
            return _poll(self, timeout)
        in_flight, closing = calls.in_flight, calls.closing
        if in_flight.last is None and closing.is_inside():
            return None  # a callback that waits here would wait for itself
        found: Message | None = None
        in_flight.last, in_flight.caller = None, get_ident()
        try:
            is_short = 0 <= timeout <= SLICE_S
            has_time = monotonic() < calls.due_at and not calls.waiting
            if has_time:
                found = _poll(self, timeout if is_short else SLICE_S)
            elif closing.is_pending:
                calls.check_going()
            if found is None and not (has_time and is_short):
                found = calls.alone(lambda: calls.poll(timeout))
        finally:
            in_flight.last = NOTHING if found is None else found
            if closing.is_pending and closing.comes_out():
                found = None  # its partition is revoked, or will be read again
        return found

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` messages, fewer after ``timeout`` seconds."""
        calls = self._holdfast
        found: list[Message] = []
        if calls is None:
            found = _consume(self, num_messages, timeout)
            return found
        in_flight, closing = calls.in_flight, calls.closing
        if in_flight.last is None and closing.is_inside():
            return found
        in_flight.last, in_flight.caller = None, get_ident()
        try:
            is_short = 0 <= timeout <= SLICE_S
            has_time = monotonic() < calls.due_at and not calls.waiting
            if has_time:
                found = _consume(self, num_messages, timeout if is_short else SLICE_S)
            elif closing.is_pending:
                calls.check_going()
            if not has_time or not (is_short or len(found) == num_messages):
                found = calls.alone(lambda: calls.consume(found, num_messages, timeout))
        finally:
            in_flight.last = tuple(found)
            if closing.is_pending and closing.comes_out():
                found = []
        return found

    # The assignment

    def assignment(self) -> list[TopicPartition]:
        """Return the assignment, as the original does."""
        found: list[TopicPartition] = _Original.assignment(self)
        return (
            found if self._holdfast is None else self._holdfast.adapter.start_positions.hide(found)
        )

    def assign(self, partitions: Any) -> None:
        """Assign; inside ``on_assign``, start what the callback was given."""
        calls = self._holdfast
        if calls is not None:
            if calls.begins_with(partitions):
                return
            calls.replaces("assign")
        _Original.assign(self, partitions)

    def incremental_assign(self, partitions: Any) -> None:
        """Add to the assignment, as the original does."""
        calls = self._holdfast
        if calls is not None:
            if calls.begins_with(partitions):
                return
            check_kind(calls.session, "incremental_assign", is_step=True)
        _Original.incremental_assign(self, partitions)
        if calls is not None and calls.adapter.start_positions.waiting:
            calls.adapter.start_positions.without(partitions)

    def unassign(self) -> None:
        """Assign nothing; in ``on_revoke`` and ``on_lost``, none of the callback's partitions."""
        calls = self._holdfast
        if calls is not None:
            if calls.is_ending() and calls.adapter.running is not None:
                calls.end_some(calls.adapter.running.resources)
                return
            calls.replaces("unassign")
        _Original.unassign(self)

    def incremental_unassign(self, partitions: Any) -> None:
        """Remove from the assignment, as the original does."""
        calls = self._holdfast
        if calls is not None:
            if calls.is_ending():
                _Original.position(self, partitions)  # raises for what is no list of partitions
                calls.end_some({(p.topic, p.partition) for p in partitions})
                return
            check_kind(calls.session, "incremental_unassign", is_step=True)
            calls.commit_stored_alone()
            if calls.adapter.start_positions.waiting:
                partitions = calls.adapter.start_positions.without(partitions)
        _Original.incremental_unassign(self, partitions)
        if calls is not None:
            calls.adapter.recreation.forget([(p.topic, p.partition) for p in partitions])

    def pause(self, partitions: Any) -> None:
        """Pause delivery of ``partitions``, as the original does."""
        _Original.pause(self, partitions)
        if self._holdfast is not None:
            self._holdfast.pause(partitions, is_paused=True)

    def resume(self, partitions: Any) -> None:
        """Resume delivery of ``partitions``, as the original does."""
        _Original.resume(self, partitions)
        if self._holdfast is not None:
            self._holdfast.pause(partitions, is_paused=False)

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
        for part in [after(message)] if offsets is None else offsets:
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
        calls = self._holdfast
        if calls is None:
            return _original_commit(self, *args, **kwargs)
        done: list[TopicPartition] | None
        done = calls.alone(lambda: _commit(self, calls, *args, **kwargs))
        return done

    # Queries. They wait for a call of another thread, as the original's do: between two slices of
    # a poll librdkafka would let them in by chance.

    def position(self, *args: Any, **kwargs: Any) -> list[TopicPartition]:
        """Return the application's positions, as the original does."""
        with call_lock_of(self):
            return _Original.position(self, *args, **kwargs)

    def seek(self, *args: Any, **kwargs: Any) -> None:
        """Continue at another offset, as the original does."""
        calls = self._holdfast
        with call_lock_of(self):
            _Original.seek(self, *args, **kwargs)
            if calls is not None:
                calls.sought(*args, *kwargs.values())

    def committed(self, *args: Any, **kwargs: Any) -> list[TopicPartition]:
        """Return committed offsets, as the original does."""
        with call_lock_of(self):
            return _Original.committed(self, *args, **kwargs)

    def offsets_for_times(self, *args: Any, **kwargs: Any) -> list[TopicPartition]:
        """Return the first offsets at or after given times, as the original does."""
        with call_lock_of(self):
            return _Original.offsets_for_times(self, *args, **kwargs)

    def get_watermark_offsets(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Return the first and the next offset of a partition, as the original does."""
        with call_lock_of(self):
            return _Original.get_watermark_offsets(self, *args, **kwargs)

    def list_topics(self, *args: Any, **kwargs: Any) -> object:
        """Return the cluster's topics, as the original does."""
        with call_lock_of(self):
            return _Original.list_topics(self, *args, **kwargs)

    # Membership

    def memberid(self) -> str | None:  # type: ignore[override] # so does the original, undocumented
        """Member id given by the coordinator, None before the first join."""
        found = _Original.memberid(self)  # raises if it is closed
        snapshot = None if self._holdfast is None else self._holdfast.snapshot
        return found if snapshot is None else snapshot.identity.member_id or None

    def consumer_group_metadata(self) -> object:
        """Return the metadata that fence ``Producer.send_offsets_to_transaction``.

        References: KIP-447; librdkafka, ``rd_kafka_consumer_group_metadata_write``.
        """
        found = _Original.consumer_group_metadata(self)
        calls = self._holdfast
        if calls is None or calls.snapshot is None:
            return found
        return group_metadata(calls.settings, calls.snapshot.identity)

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
        calls = self._holdfast
        if args or calls is None:
            _Original.close(self, *args)
            return

        calls.due_at = 0.0
        calls.closing.close(LEAVE_S, returns=returns)

    def __exit__(self, exc_type: Any, exc_value: Any, exc_traceback: Any) -> None:
        calls = self._holdfast
        if calls is None or calls.closing.is_here():  # a fork leaves its parent's alone
            self.close()


def call_lock_of(consumer: ConfluentConsumer) -> AbstractContextManager[object]:
    """Return the call lock of this caller, if there is a member and its client's calls wait."""
    calls = consumer._holdfast
    return nullcontext() if calls is None or not has_gate else calls.call_lock.mine()


def until_abandoned(
    consumer: ConfluentConsumer, abandoned: Callable[[], bool], call: Callable[[], Any]
) -> Any:
    """Make a call that reads; it ends early if no caller waits for its records."""
    calls = consumer._holdfast
    return call() if calls is None else calls.until_abandoned(abandoned, call)


def _commit(
    consumer: ConfluentConsumer, calls: GroupCalls, *args: Any, **kwargs: Any
) -> list[TopicPartition] | None:
    session = calls.session
    if session is None or session.membership.member_thread is None:
        return _original_commit(consumer, *args, **kwargs)
    _Original.memberid(consumer)  # raises if it is closed
    message, offsets, waits = commit_arguments(*args, **kwargs)
    if message is not None:
        offsets = [after(message)]
    elif offsets is not None:
        _Original.position(consumer, offsets)  # raises for what is no list of partitions
    return calls.commits.commit(session, offsets, waits=waits)
