"""The session of one member: what every member does, whatever client fetches for it.

A session decides; the client's adapter executes. An adapter never holds back, starts, drops or runs
a callback by itself. Unless a method says otherwise, it is called where the client works: on the
thread of the application's calls, or on its event loop.

**Rules.**
- A session is one membership, from ``subscribe`` to the end. The member joins in the background,
  and the application waits for no broker: connections open on a thread of their own.
- The machine orders the steps of a revocation: pending, drained, callback, commit. Fetching stops
  with the callback, so the commit is of the last positions. A partition is started by
  the adapter (``apply_assignment``), in a term that begins before its callback.
- All commits go through :mod:`holdfast.members.session.commits`;
  :mod:`holdfast.members.session.subscription_state` says what may be committed.

**Locks.** Three, each held for look-ups alone: the lock of
:class:`~holdfast.members.session.membership.Membership` for its connections and its subscription,
:attr:`Commits.order_lock` for the order of commits, and inside it the lock of
:class:`SubscriptionState`. None is held while a broker, a client's call that may wait, or the
application is called.

**Threads.** The member thread calls the methods of
:class:`~holdfast.members.runtime.member_thread.RebalanceHandler`. They queue tasks where the client
works: :class:`~holdfast.members.session.poll_session.PollSession` on the thread of the
application's calls, :class:`~holdfast.members.session.async_session.AsyncSession` on its event
loop.

References: KIP-429, KIP-62; Incremental Cooperative Rebalancing, "join group in the background".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from holdfast.cluster.connections import ends_member
from holdfast.cluster.signal_safe import SignalSafeFuture
from holdfast.core.machine.shared_values import ListenerCall, Offsets
from holdfast.core.model.partitions import Resource
from holdfast.errors import HoldfastError
from holdfast.members.runtime.application_calls import Once
from holdfast.members.session.commits import CommitOrigin, Commits, loss_error
from holdfast.members.session.membership import Membership
from holdfast.members.session.subscription_state import SubscriptionState

CATCH_UP_S = 0.25
"""How long a call of the application waits for the member thread, in s."""
LAST_COMMIT_S = 2.0
"""How long to wait for the commit before leaving, in s."""
NO_OFFSETS: Offsets = {}
_AFTER_HEARTBEAT_S = 0.1  # a commit follows a heartbeat if it is sent within that time
_POLLED_EVERY_S = 0.1
_RETRY_S, _MOST_RETRY_S = 0.05, 1.0
_Start = TypeVar("_Start")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTraits:
    """What programs of a client expect of its member; ``docs/clients.md`` has a row for each."""

    # ``on_partitions_assigned`` comes in every round, also if a cooperative one changes nothing.
    reports_empty_changes: bool
    # An error of a revocation's callback prevents the revocation's commit.
    error_stops_commit: bool
    reports_on_close: bool = True  # callbacks come also when the application itself leaves
    # The listener was written for eager rebalances. In a cooperative round that changes anything it
    # is called with a revocation, maybe of nothing, and then with the whole assignment.
    reports_full_assignment: bool = False
    # Revoked partitions of a deleted topic are lost: no member can commit them.
    deleted_are_lost: bool = False


class Notification(Once):
    """Notifies the application of one step of a rebalance: calls its callback, once."""

    def __init__(self, call: ListenerCall, resources: Collection[Resource]):
        super().__init__()
        self.call = call
        self.resources = frozenset(resources)

    def in_order(self) -> list[Resource]:
        """Return the partitions of the step, sorted."""
        return sorted(self.resources)


class ClientAdapter(Protocol):
    """What every client does for its session."""

    def mark_pending_revocation(self, partitions: Collection[Resource]) -> None:
        """Stop delivery of ``partitions``; their positions can still be read."""

    def stop_fetching(self, partitions: Collection[Resource]) -> None:
        """Stop fetching ``partitions``, and forget them."""

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        """Return the positions after delivered records; a partition may have none."""

    def has_callback(self, call: ListenerCall) -> bool:
        """Whether the application has a callback for ``call``.

        An application without a callback for losses gets a loss as a revocation. Safe
        from any thread.
        """


class GroupSession:
    """What every member does, whatever client fetches for it."""

    def __init__(self, membership: Membership, adapter: ClientAdapter, traits: ClientTraits):
        # Loaded with the first member, not with the client's module: it reads frames.
        from holdfast.core.machine.leader.assignor_protocol import (
            RebalanceProtocol,
            choose_rebalance_protocol,
        )

        self.membership = membership
        self.settings = settings = membership.settings
        self.is_cooperative = (
            choose_rebalance_protocol(membership.assignors) is RebalanceProtocol.COOPERATIVE
        )
        self.subscription_state = SubscriptionState()
        self.adapter = adapter
        self._traits = traits
        self.commits = Commits(membership, self.subscription_state, self.on_last_commit)
        self._has_reported = False  # whether any assignment was reported
        self._polled_at = 0.0
        self.is_automatic: bool = settings["enable.auto.commit"]
        self._commit_interval_s: float = settings["auto.commit.interval.ms"] / 1000
        self._commit_at = time.monotonic() + self._commit_interval_s

    # What is assigned

    def record_positions(self) -> None:
        """Read from the client how far the application has processed."""
        self.record_processed(NO_OFFSETS)

    def record_processed(self, in_flight: Offsets) -> None:
        """Read as :meth:`record_positions`, with records in flight from ``in_flight`` on."""
        if lost := self.subscription_state.unrecorded():
            self.subscription_state.record_lost(self.adapter.positions(lost))
        positions = self.adapter.positions(self.subscription_state.active())
        self.subscription_state.record_positions(positions, self.processed(positions, in_flight))

    def processed(self, positions: Offsets, in_flight: Offsets) -> Offsets:
        """Return the offsets to commit: ``positions``, lowered to the first records in flight."""
        return {tp: min(at, in_flight.get(tp, at)) for tp, at in positions.items()}

    def should_report(self, resources: Collection[Resource]) -> bool:
        """Return whether to report an assignment, which may be empty, to the application."""
        return (
            not self._has_reported
            or bool(resources)
            or not self.is_cooperative
            or self._traits.reports_empty_changes
        )

    def begin_terms(self, resources: Collection[Resource]) -> None:
        """Begin the terms of what is assigned; its callback may commit start offsets."""
        terms = self.membership.snapshot.terms
        self.subscription_state.begin({tp: terms[tp] for tp in resources if tp in terms})

    def complete_assignment(self) -> None:
        """Record that the callback of the assignment has ended."""
        self.subscription_state.starting = frozenset()
        self._has_reported = True

    def complete_revocation(self, notification: Notification) -> None:
        """Drop the partitions of a revocation or a loss, whose callback has ended."""
        if notification.call is ListenerCall.LOST:
            is_reported = self.adapter.has_callback(ListenerCall.LOST)
            self.subscription_state.record_callback(notification.resources, was_called=is_reported)
        self.record_positions()
        self.adapter.stop_fetching(notification.resources)
        self.subscription_state.end(notification.resources)

    def callback_result(self, error: BaseException | None) -> str | None:
        """Return the outcome of a callback for the machine: an error text, or None."""
        if error is None or not self._traits.error_stops_commit:
            return None
        return f"{type(error).__name__}: {error}"

    def request_committed(self, partitions: Collection[Resource]) -> Future[dict[Resource, int]]:
        """Request committed offsets, -1 for none; open transactions are waited for (KIP-447)."""
        assert self.membership.runtime is not None
        return self.membership.runtime.coordinator.committed(partitions)

    # Commits

    def to_commit(self) -> Offsets:
        """Return the offsets that are processed and not committed."""
        self.record_positions()
        return self.subscription_state.to_commit(self.membership.snapshot.terms)

    def offsets_to_commit(self, named: Offsets | None) -> tuple[Offsets, CommitOrigin]:
        """Return the offsets to commit, the named ones or by default the processed ones."""
        if named is None:
            return self.to_commit(), CommitOrigin.ALL
        self.record_positions()
        return named, CommitOrigin.NAMED

    def maybe_auto_commit(self) -> tuple[Offsets, Future[None]] | None:
        """Commit what is processed, if ``auto.commit.interval.ms`` has passed; never wait.

        A commit renews the member's session as a heartbeat does. Between two heartbeats it would
        delay the moment at which the coordinator notices a dead member, so a commit that is due
        soon is sent right after a heartbeat.
        """
        runtime, now = self.membership.runtime, time.monotonic()
        if not self.is_automatic or runtime is None or self.membership.is_leaving:
            return None
        # Kafka's poll raises nothing for its own commits either. With manual commits the error
        # waits for the application's next commit.
        lost = loss_error(self.subscription_state.drain_unreported(), self.subscription_state)
        if lost is not None:
            runtime.record_unreported_loss(lost)
        left_s = self._commit_at - now
        follows_heartbeat = (
            now - runtime.member_thread.heartbeat_sent_at < _AFTER_HEARTBEAT_S
            and left_s < self._commit_interval_s / 2
        )
        if left_s > 0 and not follows_heartbeat:
            return None
        self._commit_at = now + self._commit_interval_s
        offsets = self.to_commit()
        if not offsets or not self.membership.is_member or self.membership.failure is not None:
            return None
        timeout_s = self.settings.call_timeout_s
        try:
            return offsets, self.commits.commit_async(
                offsets, CommitOrigin.AUTO, timeout_s=timeout_s
            )
        except HoldfastError:  # the member has just failed, which the next call reports
            return None

    def commit_before_leaving(self, timeout_s: float) -> SignalSafeFuture[None] | None:
        """Commit before leaving, which abandons the current round.

        The coordinator may have ended that round, with its response on the way. The commit of the
        revocation would then be too late for the old generation, and this member would never know
        the new one.
        """
        member = self.membership
        if not self.is_automatic or member.is_leaving or member.failure is not None:
            return None
        offsets = self.to_commit()
        if not offsets or not member.is_member:
            return None
        sent = self.commits.commit_async(offsets, CommitOrigin.AUTO, timeout_s=timeout_s)
        sent.add_done_callback(lambda done: self.on_last_commit(offsets, done.exception()))
        return sent

    def on_last_commit(self, offsets: Offsets, error: BaseException | None) -> None:
        """Take the offsets of a last commit (of a revocation, or before leaving), and its error.

        It is called on the IO thread.
        """

    # Methods of the rebalance handler that are the same wherever the client works

    def record_poll(self) -> None:
        """Record that the application is alive (``max.poll.interval.ms``)."""
        self.membership.process.check()
        member_thread, now = self.membership.member_thread, time.monotonic()
        if member_thread is not None and now - self._polled_at >= _POLLED_EVERY_S:
            self._polled_at = now
            member_thread.record_poll()

    def is_orphaned(self) -> bool:
        """Return False: a forgotten consumer closes its membership itself."""
        return False


class StartOffsetsRequest(Generic[_Start]):
    """The request for start offsets, which is repeated until a broker answers.

    One request is open at a time. Without a response it is repeated after an interval, each one
    longer than the one before. The response to a request from before a change of the assignment is
    discarded: another member may have read and committed since. Whether a later request could be
    answered at all is one decision for every client
    (:func:`~holdfast.cluster.connections.ends_member`). A response may lack partitions, which are
    requested again.

    References: KIP-447; Kafka's ConsumerCoordinator, ``initWithCommittedOffsetsIfNeeded``.
    """

    def __init__(
        self, request: Callable[[Collection[Resource]], Future[dict[Resource, _Start]] | None]
    ):
        self._request = request  # returns None before the member is connected
        self.requested_at = 0.0  # when the open request was sent, by the monotonic clock
        self.reset()

    def reset(self) -> None:
        """Discard open requests: the assignment has changed."""
        self._pending: Future[dict[Resource, _Start]] | None = None
        self._request_at, self._pause_s = 0.0, _RETRY_S

    @property
    def is_open(self) -> bool:
        """Return whether a request is open whose response was not taken."""
        return self._pending is not None

    def response(
        self, partitions: Collection[Resource], wait_s: float | None
    ) -> Mapping[Resource, _Start]:
        """Return start offsets known within ``wait_s``; None waits for ever.

        The response stays until :meth:`take`, so an interrupted caller gets the same one again. If
        no broker will ever answer, it is an error.
        """
        if self._pending is None and partitions and self._is_time(wait_s):
            self.requested_at = time.monotonic()
            self._pending = self._request(partitions)
        if self._pending is None:
            return {}
        try:
            start_offsets = self._pending.result(wait_s)
        except TimeoutError:
            return {}
        except Exception as error:
            self._retry()
            if ends_member(error):
                raise
            return {}
        if not start_offsets:
            self._retry()
        return start_offsets

    def _is_time(self, wait_s: float | None) -> bool:
        """Wait for the next request's time, at most ``wait_s``; return whether it has come."""
        left_s = max(0.0, self._request_at - time.monotonic())
        waited_s = left_s if wait_s is None else min(left_s, wait_s)
        if waited_s > 0.0:
            time.sleep(waited_s)
        return waited_s >= left_s

    def take(self, response: Mapping[Resource, _Start], partitions: Collection[Resource]) -> None:
        """Mark a response as used; partitions that it lacks are requested again."""
        if response and response.keys() >= set(partitions):
            self._pending = None
        elif response:
            self._retry()

    def _retry(self) -> None:
        self._pending = None
        self._request_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MOST_RETRY_S)
