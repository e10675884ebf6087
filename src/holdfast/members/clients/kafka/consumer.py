"""kafka-python's consumer with a member of holdfast, which joins in the background.

**Rules.** Everything that does not concern the group is kafka-python's own: records, errors,
positions, fetching, a consumer without a group and one that assigns partitions itself. The
application's calls keep their names, arguments, results and errors. ``docs/clients.md`` lists what
differs.

Every keyword of kafka-python keeps its meaning; :mod:`~holdfast.members.clients.drop_in` has those
of holdfast. ``partition_assignment_strategy`` takes names of the registry as well as kafka-python's
classes, which mean the assignors of the same name. A value that cannot be honoured is refused by
``KafkaConfigurationError``, as kafka-python refuses its own keywords.

**Strategy.** A subclass whose coordinator is
:class:`~holdfast.members.clients.kafka.coordinator.MemberConsumerCoordinator`. kafka-python's
defaults, range and roundrobin, stay the defaults, so members of both kinds work in one group. The
member's connections are kafka-python's too, and take every keyword of security and of the network
unchanged.

References: KIP-429, KIP-62, KIP-726; Incremental Cooperative Rebalancing, Designs I, II and III.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import nullcontext
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import kafka
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import IllegalStateError, KafkaConfigurationError, SaslAuthenticationFailedError
from kafka.structs import TopicPartition

from holdfast.cluster.client_configs import check_tokens, hide_logins, kafka_python_tokens
from holdfast.errors import ClientError, ConfigError
from holdfast.members.clients import drop_in
from holdfast.members.clients.drop_in import STRATEGY, ClassReplacement, is_ours, with_login
from holdfast.members.clients.kafka.adapter import CrossThreadCalls, fetch_available_first
from holdfast.members.clients.kafka.coordinator import MemberConsumerCoordinator
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.application_calls import run_to_end
from holdfast.members.runtime.member_status import clear_ready_file
from holdfast.members.session.poll_session import NOTHING, InFlight

if TYPE_CHECKING:
    from kafka.consumer.fetcher import ConsumerRecord
    from kafka.future import Future

    from holdfast.members.metrics import MemberMetrics


_ORIGINAL: Any = kafka.KafkaConsumer
_SLICE_MS = 100.0
_ASSIGNOR_NAMES = {
    RangePartitionAssignor: "range",
    RoundRobinPartitionAssignor: "roundrobin",
    StickyPartitionAssignor: "sticky",
    CooperativeStickyAssignor: "cooperative-sticky",
}
_NETWORK = ("security_protocol", "proxy_url", "socks5_proxy", "selector", "client_dns_lookup")
_T = TypeVar("_T")
INSTALLED = ClassReplacement(policy="holdfast_policy", strategy=STRATEGY)
"""Options that :func:`install` gives every consumer of a group."""


class _PollEndedError(Exception):
    """Ends an iterator's call whose poll has ended early."""


def _checked_tokens(provide: Callable[[], Any]) -> Any:
    """Return kafka-python's token provider, once a token is there: a bootstrap hides the reason."""
    check_tokens(provide)
    return kafka_python_tokens(provide)


class KafkaConsumer(_ORIGINAL):  # type: ignore[misc]  # kafka-python has no types
    """A consumer, as kafka-python's.

    Parameters
    ----------
    *topics : str
        Topics to subscribe to.
    **configs
        kafka-python's keywords; ``partition_assignment_strategy`` takes names of the registry, too.
        Keywords of holdfast begin with ``holdfast_``: ``holdfast_policy="deferred"`` is Design II,
        and ``scheduled_rebalance_max_delay_ms`` the time that its group waits for a member.

    Raises
    ------
    KafkaConfigurationError
        For a keyword that is unknown, or a value that cannot be honoured.

    Examples
    --------
    ::

        consumer = KafkaConsumer("orders", group_id="etl", holdfast_policy="deferred")
        for record in consumer:
            handle(record)
    """

    _group: MemberConsumerCoordinator | None = None
    _coordinator: Any
    _closed: bool
    _has_ended = False
    _in_flight: InFlight

    def __init__(self, *topics: str, **configs: Any):
        hide_logins()
        try:
            configs = with_login(configs, _checked_tokens)
        except ConfigError as error:
            raise KafkaConfigurationError(str(error)) from error
        except ClientError as error:
            raise SaslAuthenticationFailedError(str(error)) from error
        self._in_flight = InFlight()
        self._calls = CrossThreadCalls(self._end)
        self._commits_at_end = True
        if configs.get("group_id") is not None:
            configs = INSTALLED.override(configs)
        ours = {word: configs.pop(word) for word in list(configs) if is_ours(word)}
        if configs.get("group_id") is None:
            if ours:
                names = ", ".join(sorted(ours))
                raise KafkaConfigurationError(f"{names}: without a group_id there is no group")
            super().__init__(*topics, **configs)
            fetch_available_first(self)
            return
        # The leader's code is loaded here, not with the client's module.
        from holdfast.members.config.policy import assignors_of

        whole = {**self.DEFAULT_CONFIG, **configs}
        settings = settings_of(whole, ours, written=configs)
        try:
            assignors = assignors_of(settings)
            clear_ready_file(settings)
        except ConfigError as error:
            raise KafkaConfigurationError(str(error)) from error
        # kafka-python's own coordinator takes no name, and never joins
        configs[STRATEGY] = (RangePartitionAssignor,)
        super().__init__(**configs)
        self.config[STRATEGY] = whole[STRATEGY]
        fetch_available_first(self)
        self._coordinator = self._group = MemberConsumerCoordinator(
            self._coordinator,
            self._subscription,
            self._cluster,
            self._net.run,
            settings=settings,
            assignors=assignors,
            network=network_of(self.config),
            in_flight=self._in_flight,
            calls=self._calls,
        )
        if topics:
            self._subscription.subscribe(topics=topics)
            self._cluster.set_topics(topics)

    @property
    def _member(self) -> MemberConsumerCoordinator | None:
        """The coordinator of a consumer that is a member; None without a subscription."""
        return self._group if self._group is not None and self._group.is_subscribed else None

    def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        update_offsets: bool = True,
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records by partition, as kafka-python does.

        A callback gets no records: it would wait for itself.
        """
        if self._group is None:
            records: dict[TopicPartition, list[ConsumerRecord]]
            records = super().poll(timeout_ms, max_records, update_offsets)
            return records
        if update_offsets and self._calls.is_in_call():  # else it is the poll of an iterator
            return {}
        poll = partial(super().poll, max_records=max_records, update_offsets=update_offsets)
        records = self._delivered(partial(self._poll_in_slices, poll, timeout_ms), {})
        if not (records or update_offsets) and self._calls.should_return():
            raise _PollEndedError  # the iterator would continue
        return records

    def _poll_in_slices(
        self, poll: Callable[[float], dict[TopicPartition, Any]], timeout_ms: float
    ) -> dict[TopicPartition, Any]:
        """Poll until records come, the time is up, or the call has to return."""
        deadline = monotonic() + timeout_ms / 1000
        left_ms = timeout_ms
        while True:
            records = poll(min(left_ms, _SLICE_MS))
            left_ms = 1000 * (deadline - monotonic())
            if records or left_ms <= 0 or self._calls.should_return():
                return records

    def __next__(self) -> ConsumerRecord:
        if self._group is None:
            return super().__next__()
        if self._calls.is_in_call():
            raise IllegalStateError("iterating in a callback, which may commit and seek")
        while (record := self._delivered(partial(self._next, super().__next__), None)) is None:
            pass  # an unsubscribed member has left
        return record

    def _next(self, next_record: Callable[[], ConsumerRecord]) -> ConsumerRecord | None:
        if self._member is not None and self._member.pending_tasks and not self._closed:
            self._member.poll(0)  # before the next record of a list that was polled before
        try:
            return next_record()
        except (IllegalStateError, _PollEndedError) as error:
            if self._closed:  # in a callback, or on another thread
                raise StopIteration("KafkaConsumer closed") from None
            if isinstance(error, IllegalStateError):
                raise
            return None

    def _delivered(self, call: Callable[[], _T], nothing: _T) -> _T:
        """Make a call that delivers records; one that has to return early delivers none."""
        in_flight = self._in_flight

        def deliver() -> _T:
            result = nothing
            in_flight.begin_call()
            try:
                result = call()
            finally:
                in_flight.last_result = result or NOTHING
                in_flight.may_be_processed = not self._calls.should_return()
            return result

        result = self._calls.run(deliver)
        return result if in_flight.may_be_processed else nothing

    def subscribe(self, *topics: Any, **named: Any) -> None:
        """Subscribe to topics or to a pattern, as kafka-python does."""
        self._in_order(partial(super().subscribe, *topics, **named))

    def assign(self, partitions: Any) -> None:
        """Choose partitions, as kafka-python does."""
        self._in_order(partial(super().assign, partitions))

    def unsubscribe(self) -> None:
        """Leave the group, as kafka-python does; inside a callback, after the call."""
        leave = super().unsubscribe
        self._calls.run_after(leave) if self._member is not None else leave()

    def _in_order(self, call: Callable[[], None]) -> None:
        """Make a call at once, or in a callback after a postponed ``unsubscribe``."""
        self._calls.run_after(call) if self._calls.is_pending else call()

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """Return the offset of the next record; wait until it is known, as kafka-python does."""
        adapter = None if self._member is None else self._member.adapter
        with nullcontext() if adapter is None else adapter.awaiting_position():
            offset: int | None = super().position(partition, timeout_ms=timeout_ms)
        return offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset, as kafka-python does."""
        super().seek(partition, offset)
        if self._member is not None:
            self._member.record_seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first offset of ``partitions``, by default of all."""
        super().seek_to_beginning(*partitions)
        if self._member is not None:
            for partition in partitions or self.assignment():
                self._member.record_seek(partition, 0)

    def close(
        self,
        autocommit: bool = True,
        timeout_ms: float | None = None,
        *,
        returns: bool | None = None,
    ) -> None:
        """Revoke, leave and close, as kafka-python does.

        Parameters
        ----------
        returns : bool, optional
            Whether this member comes back soon; see :meth:`holdfast.Consumer.close`.
        """
        if self._group is None:
            run_to_end(partial(self._close, autocommit, timeout_ms))
            return
        if not self._calls.is_closing():
            self._commits_at_end = autocommit
        limit_ms = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        self._calls.process.check()
        self._closed = True  # a waiting poll returns
        self._calls.close(limit_ms / 1000, returns=returns)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._calls.process.is_current():  # a fork leaves its parent's alone
            super().__exit__(kind, error, trace)

    def _end(self, timeout_s: float, returns: bool | None) -> None:
        if self._group is not None:
            self._group.returns = returns
        self._close(self._commits_at_end, 1000 * timeout_s)

    def _close(self, autocommit: bool, timeout_ms: float | None) -> None:
        # kafka-python first records that it is closed; an exception may have come after that.
        self._closed = self._has_ended
        if self._net._closed:  # it came while the loop ended, the last step, which records it too
            self._closed, self._net._closed = True, False
            self._net.close()
        super().close(autocommit=autocommit, timeout_ms=timeout_ms)
        self._has_ended = True

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]] | None:
        """Return kafka-python's metrics, with the member's in ``consumer-coordinator-metrics``."""
        metrics: dict[str, dict[str, float]] | None = super().metrics(raw)
        ours = self.__holdfast_metrics__()
        if metrics and ours is not None and not raw:
            metrics["consumer-coordinator-metrics"] = {
                **metrics.get("consumer-coordinator-metrics", {}),
                **ours.to_kafka(),
            }
        return metrics

    def __holdfast_metrics__(self) -> MemberMetrics | None:
        session = None if self._group is None else self._group.session
        return None if session is None else session.membership.metrics()

    def commit(
        self, offsets: Mapping[TopicPartition, Any] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit, and wait until it is done, as kafka-python does.

        Raises
        ------
        CommitFailedError
            If the group refused it, or the member does not own a partition, or lost it before the
            commit. Nothing is committed.
        """
        call = partial(super().commit, offsets, timeout_ms=timeout_ms)
        if offsets is None and self._member is not None:
            call = partial(self._member.commit_offsets_sync, None, timeout_ms=timeout_ms)
        self._calls.run(call)  # it reports earlier commits

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, Any] | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> Future:
        """Commit without waiting, as kafka-python does."""
        call = partial(super().commit_async, offsets, callback=callback)
        if offsets is None and self._member is not None:
            call = partial(self._member.commit_offsets_async, None, callback)
        return self._calls.run(call)


def install(**keywords: Any) -> Callable[[], None]:
    """Replace kafka-python's consumer by holdfast's; the returned function undoes it.

    It replaces the class in every loaded module that has it as a global. Classes already derived
    from it, each with a RuntimeWarning, and existing consumers stay as they are: call it first. The
    keywords override those of every later consumer of a group. With ``holdfast_policy`` the
    ``partition_assignment_strategy`` of a framework is dropped, unless it is given here as well.
    """
    return INSTALLED.install({_ORIGINAL: KafkaConsumer}, keywords)


def settings_of(
    options: Mapping[str, Any], ours: Mapping[str, Any], *, written: Container[str]
) -> Settings:
    """Return the member's settings; the program has ``written`` some of the ``options``.

    Raises
    ------
    KafkaConfigurationError
        For a keyword that is unknown, out of range, or in conflict with another.
    """
    try:
        return drop_in.settings_of(
            options, ours, written=written, member_keys=drop_in.MEMBER_KEYS, assignor_of=_assignor
        )
    except ConfigError as error:
        raise KafkaConfigurationError(str(error)) from error


def network_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of security and of the network, for the member's own connections."""
    return {
        word: value
        for word, value in options.items()
        if word in _NETWORK or word.startswith(("ssl_", "sasl_"))
    }


def _assignor(given: Any) -> Any:
    """Return a name, an assignor of holdfast, or one written for kafka-python."""
    kind = given if isinstance(given, type) else type(given)
    if kind in _ASSIGNOR_NAMES:
        return _ASSIGNOR_NAMES[kind]
    protocol = getattr(given, "protocol", None)  # one of holdfast.members.clients.kafka.assignors
    if protocol is not None:
        return protocol
    if issubclass(kind, AbstractPartitionAssignor):
        raise KafkaConfigurationError(
            f"partition_assignment_strategy: {kind.__name__} is written for kafka-python's own "
            "coordinator; name an assignor of the registry, or give one with the parts of "
            "holdfast.core.machine.leader.assignor_protocol.Assignor"
        )
    return given
