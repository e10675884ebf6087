"""The session of a ``holdfast.Consumer``: what a poll does, what it raises, and the end.

**Rules.** Everything here runs on the application's thread, inside a call of the consumer. An error
of a callback is kept until everything due is done: this call, or the next one, raises it. Only a
poll runs callbacks before it raises the failure of the member. If an error was raised already, a
close logs a loss that no callback has reported, else it raises the loss.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakMethod

from holdfast.core.machine.shared_values import ListenerCall, Offsets
from holdfast.core.model.partitions import Resource
from holdfast.members.clients.librdkafka.adapter import SLICE_S, Listener
from holdfast.members.clients.librdkafka.consumer_adapter import ConsumerAdapter
from holdfast.members.config.arguments import as_offsets, check_offsets
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.application_calls import ApplicationCalls, EndSignals, run_to_end
from holdfast.members.session.membership import Membership
from holdfast.members.session.poll_session import NOTHING, InFlight, PollSession
from holdfast.members.session.session import ClientTraits

if TYPE_CHECKING:
    from confluent_kafka import Message

    from holdfast.core.machine.leader.assignor_protocol import Assignor
    from holdfast.members.runtime.member_runtime import MemberRuntime

_TRAITS = ClientTraits(reports_empty_changes=True, error_stops_commit=True)


class ConsumerSession(PollSession):
    """The session of one membership of a ``holdfast.Consumer``."""

    adapter: ConsumerAdapter

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        listeners: WeakMethod[Callable[[ListenerCall], Listener | None]],
        calls: ApplicationCalls,
        signals: EndSignals,
    ):
        adapter = ConsumerAdapter(settings, listeners)
        super().__init__(Membership(settings, assignors), adapter, _TRAITS, InFlight())
        adapter.session = self
        self._calls = calls
        self._signals = signals
        self._callback_error: Exception | None = None
        self._has_raised_failure = False

    @property
    def runtime(self) -> MemberRuntime:
        """The runtime of the member."""
        runtime = self.membership.runtime
        assert runtime is not None  # a consumer waits for a broker when it subscribes
        return runtime

    @property
    def owned(self) -> Collection[Resource]:
        """The partitions that the member owns."""
        return self.membership.snapshot.owned

    # Records

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        """Return the next records, at most ``limit``; see :meth:`holdfast.Consumer.poll`."""
        self._raise_failure_after_callbacks()
        deadline = time.monotonic() + timeout_s
        records: list[Message] = []
        in_flight = self.in_flight
        in_flight.begin_call()
        try:
            records = self._next_records(limit, deadline)
            return records if in_flight.may_be_processed else []
        finally:
            in_flight.last_result = records or NOTHING

    def _next_records(self, limit: int, deadline: float) -> list[Message]:
        """Return the next records; the time of callbacks is not counted."""
        while True:
            began = time.monotonic()
            self._keep_error(self.begin_poll())
            deadline += time.monotonic() - began
            self.maybe_auto_commit()
            self._signals.raise_caught()
            self._raise_callback_error()
            if self._calls.is_stopped or self._calls.should_return():
                return []
            self.adapter.pending_starts.assign_known()
            self.adapter.raise_error()
            left_s = max(0.0, deadline - time.monotonic())
            messages = self._fetched(limit, min(left_s, SLICE_S))
            if self._calls.should_return():  # the application does not get the records
                self.in_flight.may_be_processed = False
                return messages
            if messages:
                self.runtime.counters.add("records", len(messages))
                return messages
            if left_s == 0.0:
                return messages
            self._raise_failure_after_callbacks()

    def _fetched(self, limit: int, wait_s: float) -> list[Message]:
        if self.adapter.is_fetching():
            return self.adapter.fetch(limit, wait_s)
        with suppress(queue.Empty):  # the first assignment, most often
            self.tasks.first(wait_s)
        return []

    # Commits

    def send_commit(
        self, offsets: Mapping[tuple[str, int], int] | None
    ) -> tuple[Offsets, Future[None]]:
        """Commit ``offsets``, by default what is processed; return it, and the future response."""
        if offsets is not None:
            check_offsets(offsets)
        elif not self.in_flight.may_be_processed:  # the application never got the list
            self.unprocessed = self.in_flight_from()
        named = None if offsets is None else as_offsets(offsets)
        wanted, origin = self.offsets_to_commit(named)
        timeout_s = self.settings.call_timeout_s
        return wanted, self.commits.commit_async(wanted, origin, timeout_s=timeout_s)

    # Errors

    def raise_failure(self) -> None:
        """Raise the failure of the member, if any."""
        if (failure := self.membership.failure) is not None:
            self._has_raised_failure = True
            raise failure

    def _raise_failure_after_callbacks(self) -> None:
        if self.membership.failure is not None:
            self._keep_error(self.begin_poll())
            self.raise_failure()

    def _keep_error(self, error: BaseException | None) -> None:
        """Keep the error of a callback until this call, or the next one, raises it."""
        if isinstance(error, Exception):
            self._callback_error = self._callback_error or error
        elif error is not None:
            raise error

    def _raise_callback_error(self) -> None:
        error, self._callback_error = self._callback_error, None
        if error is not None:
            raise error

    # The end

    def leave_and_close(
        self, timeout_s: float, *, returns: bool | None, process_ends: bool, has_raised: bool
    ) -> None:
        """Revoke everything, leave and close; a second call continues after an interruption.

        With ``has_raised`` an error ends the application's block, and the close must not hide it.
        """
        deadline = time.monotonic() + timeout_s

        def revoke_and_leave() -> None:
            self._keep_error(self.leave(deadline, returns=returns, process_ends=process_ends))

        try:
            run_to_end(revoke_and_leave)
        finally:
            self.membership.close()
            self.adapter.close()
        has_raised = has_raised or self._has_raised_failure
        lost = self.commits.take_loss()
        if lost is not None and not has_raised and self._callback_error is None:
            raise lost
        if lost is not None and self.membership.runtime is not None:
            self.membership.runtime.record_unreported_loss(lost)
        if not has_raised:
            self._raise_callback_error()
