"""The commits of one member: one path, and one rule for what is sent again.

**Rules.**

- A commit goes with the identity that the member has when the commit is sent, and only with what
  the member owns then, in the term in which it was delivered
  (:mod:`holdfast.members.session.subscription_state`).
- While the coordinator is unavailable or moves, or a round overtakes the commit, it is sent again
  until its timeout (:func:`holdfast.core.machine.codes.commits_again`). Each attempt is checked
  again, and omits the partitions of a later commit: a commit never moves an offset back.
- The commit of a revocation is the last one of its partitions: no earlier one is sent after it.
  :meth:`Commits.commit_revoked` sends it once; the machine orders it again until a deadline.
- The member is notified of a refusal before the caller, so the loss has happened when the error
  comes.

**Strategy.** A commit is a future. Its first attempt is sent by the caller, later ones by the IO
thread, which also takes the responses. The sending thread holds the lock
:attr:`Commits.order_lock`, so requests go out in the order in which they were decided; inside it
:class:`~holdfast.members.session.subscription_state.SubscriptionState` takes its own lock. No
thread waits inside either lock, and no future is completed there, because its callbacks may be the
application's.

References: KIP-429; Kafka's ConsumerCoordinator, ``commitOffsetsSync``.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from holdfast.cluster.signal_safe import SignalSafeFuture, wait_for_all
from holdfast.core.machine.codes import MEMBER_OVER, ErrorCode, commits_again, describe
from holdfast.core.machine.shared_values import Identity, Offsets
from holdfast.core.machine.states import MemberState
from holdfast.core.model.partitions import Resource
from holdfast.errors import ClientError, HoldfastError, LocalProtocolError, RemoteProtocolError
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.member_status import MemberSnapshot
from holdfast.members.session.membership import Membership
from holdfast.members.session.subscription_state import SubscriptionState

if TYPE_CHECKING:
    from holdfast.core.machine import actions
    from holdfast.members.runtime.member_runtime import MemberRuntime


_RETRY_S = 0.05
_JOINING = MemberState.PREPARING_REBALANCE


class CommitOrigin(Enum):
    """Who requests a commit, and what is an error of it."""

    NAMED = "the application, with offsets: one that may not be committed is an error"
    ALL = "the application, of what is processed: what was lost uncommitted is an error"
    AUTO = "the timer of automatic commits"


@dataclass(eq=False, slots=True, kw_only=True)
class _SentCommit:
    """One commit, through all its attempts."""

    offsets: Offsets
    terms: Mapping[Resource, int]  # in which the records were delivered
    origin: CommitOrigin
    deadline: float
    done: SignalSafeFuture[None] = field(default_factory=SignalSafeFuture)

    def __post_init__(self) -> None:
        self.done.set_running_or_notify_cancel()  # a waiter that stops waiting does not end it


class Commits:
    """Commits what the application of one member has processed, once the membership runs.

    ``on_last_commit`` is called on the IO thread.
    """

    def __init__(
        self,
        membership: Membership,
        subscription_state: SubscriptionState,
        on_last_commit: Callable[[Offsets, BaseException | None], None],
    ):
        self._membership = membership
        self._subscription_state = subscription_state
        self._on_last_commit = on_last_commit
        self.order_lock = threading.RLock()
        self._newest: dict[Resource, _SentCommit | None] = {}  # latest commit of the partition
        self._pending: set[SignalSafeFuture[None]] = set()

    @property
    def _runtime(self) -> MemberRuntime:
        runtime = self._membership.runtime
        assert runtime is not None
        return runtime

    def commit_async(
        self, offsets: Offsets, origin: CommitOrigin, *, timeout_s: float
    ) -> SignalSafeFuture[None]:
        """Commit without waiting; the future is done once the coordinator has accepted it.

        Unless offsets were named, partitions that are revoked meanwhile are left out.
        ``timeout_s`` is the time limit of all attempts.

        Raises
        ------
        RemoteProtocolError
            If the group refused it, or records were lost since they were delivered.
        LocalProtocolError
            If the member does not own a partition.
        ClientError
            If no broker answered in time: an error of the future.
        """
        self._membership.process.check()
        terms = self._subscription_state.term_numbers(offsets)
        deadline = time.monotonic() + timeout_s
        commit = _SentCommit(offsets=offsets, terms=terms, origin=origin, deadline=deadline)
        try:
            with self.order_lock:
                snapshot = self._checked(commit, offsets)
                self._newest.update(dict.fromkeys(offsets, commit))
                self._pending.add(commit.done)
                commit.done.add_done_callback(self._pending.discard)
                on_sent = self._send(commit, snapshot)
            on_sent()
        except BaseException:  # maybe an interruption: then no caller waits for the response
            self._pending.discard(commit.done)
            raise
        return commit.done

    def _checked(self, commit: _SentCommit, offsets: Offsets) -> MemberSnapshot:
        """Return the member snapshot in which ``offsets`` may be committed."""
        member_thread = self._runtime.member_thread
        if member_thread.failure is not None:
            raise member_thread.failure
        snapshot = member_thread.snapshot  # before the subscription state: see MemberThread
        lost = None
        if commit.origin is CommitOrigin.ALL:
            lost = self.take_loss()
        elif commit.origin is CommitOrigin.NAMED:
            refused = self._subscription_state.refused(snapshot.terms, offsets)
            self._subscription_state.mark_raised(refused)
            lost = loss_error(refused, self._subscription_state)
        if lost is not None:
            raise lost
        if commit.origin is CommitOrigin.NAMED:
            _check_owned(snapshot, offsets)
        return snapshot

    def take_loss(
        self, partitions: Collection[Resource] | None = None
    ) -> RemoteProtocolError | None:
        """Return the error about uncommitted records that were lost; mark it as raised."""
        return loss_error(
            self._subscription_state.mark_raised(partitions), self._subscription_state
        )

    def _send(self, commit: _SentCommit, snapshot: MemberSnapshot) -> Callable[[], None]:
        """Send a commit; return what takes the response, to be called outside :attr:`order`."""
        offsets = {
            tp: at
            for tp, at in commit.offsets.items()
            if self._newest.get(tp) is commit
            and (
                commit.origin is CommitOrigin.NAMED
                or snapshot.terms.get(tp, -1) == commit.terms.get(tp)
            )
        }
        if not offsets:
            return lambda: commit.done.set_result(None)
        identity = snapshot.identity
        response = self._runtime.coordinator.commit(offsets, identity)
        return lambda: response.add_done_callback(
            lambda done: self._on_response(commit, offsets, identity, done)
        )

    def _on_response(
        self, commit: _SentCommit, offsets: Offsets, identity: Identity, response: Future[int]
    ) -> None:
        """Take the response to one attempt, on the IO thread."""
        code, error = self._outcome(offsets, response)
        snapshot = self._runtime.member_thread.snapshot
        if (
            code == ErrorCode.FENCED_INSTANCE_ID
            and identity.member_id != snapshot.identity.member_id
        ):
            code = ErrorCode.UNKNOWN_MEMBER_ID  # this process has joined again, with another id
        if code > 0:
            self._runtime.member_thread.record_refused(identity.generation, code)
        is_late = snapshot.state is _JOINING or snapshot.identity.generation > identity.generation
        if error is None and code == 0:
            commit.done.set_result(None)
        elif error is not None:
            commit.done.set_exception(error)
        elif not commits_again(code, is_overtaken=is_late) or time.monotonic() >= commit.deadline:
            self._refuse(commit, code)
        else:
            pause = self._runtime.coordinator.wait(_RETRY_S)
            pause.add_done_callback(lambda over: self._retry(commit, over.exception()))

    def _outcome(self, offsets: Offsets, response: Future[int]) -> tuple[int, HoldfastError | None]:
        """Return the code of a response, -1 for none, and an error that no retry can fix."""
        failed = None if response.cancelled() else response.exception()
        code = -1 if response.cancelled() or failed is not None else response.result()
        self._runtime.counters.add("commit" if code == 0 else "commit_failed")
        if code == 0:
            self._subscription_state.record_committed(offsets)
        return code, failed if isinstance(failed, RemoteProtocolError) else None

    def _retry(self, commit: _SentCommit, closed: BaseException | None) -> None:
        if closed is not None:
            commit.done.set_exception(closed)
            return
        try:
            with self.order_lock:
                left = {tp: a for tp, a in commit.offsets.items() if self._newest.get(tp) is commit}
                on_sent = self._send(commit, self._checked(commit, left))
        except HoldfastError as error:
            commit.done.set_exception(error)
            return
        on_sent()

    def _refuse(self, commit: _SentCommit, code: int) -> None:
        error = commit_error(code)
        if code not in MEMBER_OVER:
            commit.done.set_exception(error)
            return

        def report_loss() -> None:
            self._subscription_state.mark_raised(commit.offsets)
            commit.done.set_exception(error)

        # By then the member has recorded its loss.
        self._runtime.member_thread.call_soon(report_loss)

    def commit_revoked(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """Send the last commit of revoked partitions, with what is processed; never retry it."""
        identity = Identity(
            generation=action.generation,
            member_id=action.member_id,
            instance_id=action.instance_id,
        )
        with self.order_lock:
            offsets = self._subscription_state.revoked_offsets(action.resources)
            self._newest.update(dict.fromkeys(action.resources))
            response = self._runtime.coordinator.commit(offsets, identity) if offsets else None
        if response is None:
            done(0)
            return

        def take(response: Future[int]) -> None:
            code, _ = self._outcome(offsets, response)
            if code in MEMBER_OVER:
                self._subscription_state.record_unreported(offsets)
            self._on_last_commit(offsets, None if code == 0 else commit_error(code))
            done(code)

        response.add_done_callback(take)

    def wait_for_pending(self, timeout_s: float) -> None:
        """Wait for the pending commits."""
        wait_for_all(list(self._pending), timeout_s)


def _check_owned(snapshot: MemberSnapshot, offsets: Iterable[Resource]) -> None:
    for topic, partition in offsets:
        if (topic, partition) not in snapshot.owned:
            raise LocalProtocolError(
                f"{topic}-{partition} is not this member's in generation "
                f"{snapshot.identity.generation}; nothing was committed"
            )


def loss_error(
    refused: Collection[Resource], subscription_state: SubscriptionState
) -> RemoteProtocolError | None:
    """Return the error of a commit of records delivered before a loss, None for no record.

    A member that lost the partitions at a deadline is still a member, of a newer generation.
    """
    if not refused:
        return None
    names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(refused)[:5])
    more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
    code, word = ErrorCode.UNKNOWN_MEMBER_ID, "lost"
    if subscription_state.were_revoked(refused):
        code, word = ErrorCode.ILLEGAL_GENERATION, "revoked"
    return RemoteProtocolError(
        f"the commit was refused: {names}{more} had been {word} since the records were "
        "delivered; they are read again from the committed offset, here or elsewhere",
        error_code=code,
    )


def commit_error(code: int) -> HoldfastError:
    """Return the error of a response with ``code``, -1 for no response."""
    if code < 0:
        return ClientError("the commit was not answered in time: it may be done, or not")
    return RemoteProtocolError(f"the commit was refused: {describe(code)}", error_code=code)


def group_metadata(settings: Settings, identity: Identity) -> bytes:
    """Return the metadata for ``confluent_kafka.Producer.send_offsets_to_transaction``.

    References: KIP-447; librdkafka, ``rd_kafka_consumer_group_metadata_write``.
    """
    instance = settings["group.instance.id"]
    return b"".join(
        (
            b"CGMDv2:",
            struct.pack("=i", identity.generation),
            *(text.encode() + b"\0" for text in (settings["group.id"], identity.member_id)),
            b"\1" if instance is None else b"\0" + instance.encode() + b"\0",
        )
    )
