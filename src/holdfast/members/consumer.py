"""``holdfast.Consumer``: a group member over real connections, with records from librdkafka.

**Rules.** The join happens in the background: records keep coming while the group rebalances. A
list that :meth:`Consumer.poll` returned counts as processed when the application calls it again. It
is committed every ``auto.commit.interval.ms`` and before every revocation. If an error ends the
``with`` block, the next owner reads the last list again. Callbacks run inside :meth:`Consumer.poll`
and :meth:`Consumer.close`, on the caller's thread. Records that were delivered and cannot be
committed are an error (:mod:`holdfast.members.session.subscription_state`): ``commit`` and
``close`` raise it, and the commits of the poll loop write it to the log.

**Strategy.** Each membership has a session whose client is librdkafka
(:mod:`~holdfast.members.clients.librdkafka.consumer_session`). This class has its life, from
``subscribe`` to ``close``, and the records; its base has the calls that need the member.

References: KIP-429, KIP-62, KIP-345; Incremental Cooperative Rebalancing, "Member process".
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from holdfast.cluster import kerberos
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.errors import ClientError, HoldfastError, LocalProtocolError
from holdfast.members.clients.librdkafka.adapter import Listener
from holdfast.members.clients.librdkafka.consumer_session import ConsumerSession
from holdfast.members.config.arguments import (
    RebalanceListener,
    TopicPartition,
    check_listener,
    checked_names,
    checked_pattern,
    checked_seconds,
)
from holdfast.members.config.settings import Settings
from holdfast.members.consumer_calls import MemberCalls
from holdfast.members.runtime.application_calls import EndSignals
from holdfast.members.runtime.member_status import clear_ready_file

if TYPE_CHECKING:
    from confluent_kafka import Message

    from holdfast.members.runtime.member_runtime import TopicPredicate


class Consumer(MemberCalls):
    """A consumer of topics in a group.

    Parameters
    ----------
    config : mapping of str to object
        Kafka's keys, spelled exactly, and ``holdfast.*`` (docs/configuration.md).
        ``bootstrap.servers`` and ``group.id`` are required.

    Attributes
    ----------
    assignors : tuple of Assignor
        The protocols that the consumer supports, in order of preference.

    Raises
    ------
    ConfigError
        For a key that is unknown, a value that is out of range, or assignors that cannot be
        combined.
    SourceError
        If no broker answers at :meth:`subscribe`.

    Notes
    -----
    Not thread-safe: one thread polls, as with every Kafka consumer.

    A call that needs the member raises ``LocalProtocolError`` before :meth:`subscribe`,
    ``ClientError`` after :meth:`close`, and the error with which the group refused this
    member. A call that queries the brokers raises ``ClientError`` if none answers within
    ``request.timeout.ms``, and ``RemoteProtocolError`` if one refuses.

    Examples
    --------
    ::

        with Consumer({"bootstrap.servers": "...", "group.id": "etl"}) as consumer:
            consumer.subscribe(["orders"])
            for batch in consumer:
                handle(batch)
    """

    def __init__(self, config: Mapping[str, object]):
        # The leader's code is loaded here, not with the client's module.
        from holdfast.members.config.policy import assignors_of

        settings = Settings.parse(config)
        if settings["sasl.mechanism"] == kerberos.MECHANISM:
            kerberos.check_librdkafka()
        self.assignors = assignors_of(settings)
        clear_ready_file(settings)
        super().__init__(settings, self._end)
        self._listener: RebalanceListener | None = None
        self.signals = EndSignals()
        self._in_loop = False  # the application is working on a list of the iteration
        self._ends_with_error = False  # of the application; a close must not hide it

    # Life

    def subscribe(
        self,
        topics: Collection[str] | str | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to all that match a pattern; replaces the subscription.

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
        self._check_open()
        pattern = checked_pattern(topics)
        names = () if pattern is not None else checked_names(topics)
        check_listener(listener)
        # After an unsubscribe in a callback the member first leaves, when the outer call returns.
        makes = self._calls.run_after if self._calls.is_pending else self._calls.run
        makes(lambda: self._subscribe(names, pattern, listener))

    def _subscribe(
        self,
        names: tuple[str, ...],
        pattern: TopicPredicate | None,
        listener: RebalanceListener | None,
    ) -> None:
        self._listener = listener
        if self._session is not None:
            self._session.membership.subscribe(names, pattern)
            return
        session = ConsumerSession(
            self._settings,
            self.assignors,
            weakref.WeakMethod(self.listener_for),
            self._calls,
            self.signals,
        )
        weakref.finalize(self, session.membership.close)
        self._session = session  # first: an interrupted call leaves it to the next call
        try:
            session.membership.connect_and_subscribe(names, pattern)
        except HoldfastError:
            self._session = None
            session.adapter.close()
            raise

    def listener_for(self, call: ListenerCall) -> Listener | None:
        """Return the listener's method for a callback; None if it has none.

        A listener without ``on_partitions_lost`` gets a loss by ``on_partitions_revoked``.
        """
        method = getattr(self._listener, f"on_partitions_{call.value}", None)
        if method is None and call is ListenerCall.LOST:
            method = getattr(self._listener, "on_partitions_revoked", None)
        if method is None:
            return None
        return lambda resources: method([TopicPartition(*tp) for tp in resources])

    def unsubscribe(self) -> None:
        """Leave the group; :meth:`subscribe` joins it again. Inside a call, leave when it ends.

        ``holdfast.clean.leave`` says whether the group waits for this member.
        """
        self._calls.run_after(self._unsubscribe)

    def _unsubscribe(self) -> None:
        try:
            self._leave(self._settings.call_timeout_s, process_ends=False)
        finally:
            self._session = None

    def stop(self) -> None:
        """End the iteration, and a poll that waits; from any thread or signal handler.

        The waiting poll returns an empty list, and later polls return one at once. The list that
        the application works on counts as processed when :meth:`close` is called.
        """
        self._calls.is_stopped = True

    def close(self, timeout: float = 30.0, *, returns: bool | None = None) -> None:
        """Revoke all partitions in order and leave.

        It may be called twice, from another thread, and from a signal handler. Inside a call of
        this consumer it takes effect when that call returns. A list of the iteration that the
        application still works on is not committed, nor is a list that another thread polled and
        may work on: the next owners read it again.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the revocation.
        returns : bool, optional
            Whether this member comes back soon, as after a restart; by default
            ``holdfast.clean.leave``. A group with a delayed rebalance (Design II) waits for a
            member that comes back, and a static one stays in the group until its session ends. A
            member that does not come back says so in a last round, and nothing waits for it.

        Raises
        ------
        RemoteProtocolError
            If records were delivered before their partitions were lost, cannot be committed now,
            and ``on_partitions_lost`` has not reported the loss. Everything is closed by then.
        Exception
            An error of a callback that no call has raised yet.
        """
        self._calls.close(timeout, returns=returns)

    def _end(self, timeout_s: float, returns: bool | None) -> None:
        if self._session is not None and (self._in_loop or self._ends_with_error):
            self._session.in_flight.may_be_processed = False  # the loop has not come back
        self._leave(timeout_s, returns=returns)

    def _leave(
        self, timeout_s: float, *, returns: bool | None = None, process_ends: bool = True
    ) -> None:
        if self._session is not None:
            self._session.leave_and_close(
                timeout_s,
                returns=returns,
                process_ends=process_ends,
                has_raised=self._ends_with_error,
            )

    def __enter__(self) -> Self:
        if self._settings["holdfast.handle.signals"]:
            self.signals.watch()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._calls.process.is_current():
            return  # a fork leaves the block, and the member stays with its parent
        self._ends_with_error = error is not None
        try:
            self.close()
        finally:
            self.signals.end()
        if error is None:
            self.signals.raise_caught()

    # Records

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Message]:
        """Return the next records; what the last call returned counts as processed.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the first record; the time of callbacks is not counted.
        max_records : int, optional
            Limit of the list; ``max.poll.records`` by default.

        Returns
        -------
        list
            Messages, each a ``confluent_kafka.Message``; the list may be empty.

        Raises
        ------
        RemoteProtocolError
            If the group refused this member for good (fenced, not authorised, no protocol in
            common), saying what to do.
        ClientError
            If librdkafka failed.
        LocalProtocolError
            Inside another call of this consumer: a callback may commit and seek, but not poll.
        Exception
            An error of a callback; every other callback that was due has run.
        """
        if self._calls.is_closing():
            self._check_open()
        elif self._calls.is_in_call():
            raise LocalProtocolError(
                "poll() in a callback: a callback may commit and seek, but not poll"
            )
        limit = self._settings["max.poll.records"] if max_records is None else max_records
        wait_s = checked_seconds(timeout)
        return self._calls.run(lambda: self._subscribed_session().poll(limit, wait_s))

    def poll_one(self, timeout: float = 1.0) -> Message | None:
        """Return the next record, None after ``timeout`` seconds; the previous one is processed."""
        records = self.poll(timeout, 1)
        return records[0] if records else None

    def __iter__(self) -> Iterator[list[Message]]:
        """Yield non-empty lists of records until the consumer is stopped or closed."""
        while not (self._calls.is_stopped or self._calls.is_closing()):
            try:
                batch = self.poll()
            except ClientError:
                if self._calls.is_closing():  # on another thread, just now
                    return
                raise
            if batch:
                self._in_loop = True
                try:
                    yield batch
                finally:
                    self._in_loop = False

    def _check_open(self) -> None:
        """Raise if the close has begun: a callback may then commit, but not start anything."""
        if self._calls.is_closing():
            raise ClientError(
                "the consumer is closed"
                if self._calls.is_done
                else "the consumer is closing: a callback may commit, but not poll or subscribe"
            )

    # Membership

    @property
    def member_id(self) -> str:
        """Member id given by the coordinator, empty before the first join."""
        return self._session.membership.snapshot.identity.member_id if self._session else ""

    @property
    def generation(self) -> int:
        """Generation of the group as this member knows it, -1 for none."""
        return self._session.membership.snapshot.identity.generation if self._session else -1

    def enforce_rebalance(self, reason: str = "requested by the application") -> None:
        """Request a round (KIP-568)."""
        self._running_session().runtime.member_thread.rejoin(reason)
