"""A topic consumer's side of a member: records, offsets and callbacks.

**Rules.** A callback runs on the application's thread, inside its next call. Without a listener
nothing waits for the application. A partition starts at the committed offset of the group, or by
``auto.offset.reset``; both are looked up after the last owner has given the partition up. Only
what was handed out in the present term is committed: the broker does not check that.

**Strategy.** Work that needs an answer from a broker runs on a thread of its own, one job at a
time. A partition that was stopped meanwhile is not started. While the application is in
``on_partitions_assigned``, its new partitions are fetched already, so the next poll has records
even after a long callback.

References: KIP-429 (callbacks), KIP-447 (stable offsets), KAFKA-14024 (bounded commits).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from holdfast.adapters.cluster.connections import ends_member
from holdfast.adapters.cluster.lookup import EARLIEST, LATEST, Lookup
from holdfast.adapters.member.errands import Errand, Errands, Once
from holdfast.adapters.member.link import GroupLink
from holdfast.adapters.member.member_log import MemberLog
from holdfast.adapters.member.metrics import Counters
from holdfast.adapters.records.delivery import Delivery, TopicPartition
from holdfast.adapters.settings import Settings
from holdfast.errors import AdapterError, HoldfastError, RemoteProtocolError
from holdfast.machine import actions
from holdfast.machine.actions import ListenerCall
from holdfast.machine.codes import ErrorCode
from holdfast.model.partitions import Resource

_PASSING_PAUSES = 4  # so often in a row a leader may be missing without a warning
_MOST_PAUSES = 20  # more are not counted
LOST_MEMBERSHIP = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)
"""Errors of a commit that comes from a member, or a generation, that is over."""


class RebalanceListener(Protocol):
    """Callbacks of KIP-429; any of them may be missing."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """Take over these new partitions; called in every round."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Give these up: flush their state; offsets are committed right after."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """These are lost already; another member may be reading them."""


class PendingCall(Errand):
    """One callback that waits for the application's thread."""

    def __init__(
        self,
        work: Callable[[list[TopicPartition]], object],
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ):
        callback = Once(lambda: work([TopicPartition(*r) for r in resources]))
        super().__init__(
            callback,
            lambda e: done(None if e is None else f"{type(e).__name__}: {e}"),
        )


class _Start(NamedTuple):
    offset: int
    is_committed: bool


class TopicDuties:
    """See :class:`holdfast.adapters.member.host.Duties`.

    Parameters
    ----------
    settings : Settings
        ``auto.offset.reset`` and time-outs.
    delivery : Delivery
        Records between the data plane and the application.
    link : GroupLink
        Commits and committed offsets.
    lookup : Lookup
        Begin and end offsets.
    fail : callable
        Takes an error that ends the member.
    counters : Counters
        Counts for the metrics.
    log : MemberLog
        The member's.
    keeps_fetched : bool
        Whether what is fetched of a partition that is given up stays until the next assignment, as
        for an eager member, which gives everything up and gets most of it back.
    """

    def __init__(
        self,
        settings: Settings,
        delivery: Delivery,
        link: GroupLink,
        lookup: Lookup,
        *,
        fail: Callable[[BaseException], None],
        counters: Counters,
        log: MemberLog,
        keeps_fetched: bool = False,
    ):
        self.delivery = delivery
        self.counters = counters
        self.listener: Any = None
        self.calls = Errands()
        self._reset: str = settings["auto.offset.reset"]
        self._first_pause_s: float = settings["retry.backoff.ms"] / 1000
        self._pause_s: float = settings["retry.backoff.max.ms"] / 1000
        self._keeps_fetched = keeps_fetched
        self._link = link
        self._lookup = lookup
        self._fail = fail
        self._log = log
        self._lock = threading.Lock()
        self._n_jobs = 0
        self._coming: dict[Resource, int] = {}  # in their callback; which job prepares them
        self._prepared: dict[Resource, _Start] = {}
        self._wanted: dict[Resource, int] = {}  # to be started; which job does it
        self._sought: dict[Resource, int] = {}
        self._held_back: set[Resource] = set()
        self._terms: dict[int, int] = {}  # of the jobs that start
        self._begins: frozenset[Resource] = frozenset()  # their ASSIGNED callback runs
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="holdfast-positions")
        self._closed = threading.Event()

    # The machine's duties

    def stop(self, resources: tuple[Resource, ...], drained: Callable[[], None]) -> None:
        """See :class:`Duties`."""
        self._forget(resources)
        self.delivery.stop(resources, drained, keeps=self._keeps_fetched)

    def drop(self, resources: tuple[Resource, ...], lost: tuple[Resource, ...]) -> None:
        """See :class:`Duties`."""
        self._forget(resources)
        self.delivery.drop(resources, lost)

    def _forget(self, resources: tuple[Resource, ...]) -> None:
        with self._lock:
            for tp in resources:
                for noted in (self._wanted, self._coming, self._prepared, self._sought):
                    noted.pop(tp, None)

    def start(self, resources: tuple[Resource, ...], term: int) -> None:
        """See :class:`Duties`."""
        with self._lock:
            job = self._new_job(self._wanted, resources)
            self._terms[job] = term
            for tp in resources:
                self._coming.pop(tp, None)
        self._starter.submit(self._begin, job, resources)

    def _new_job(self, noted: dict[Resource, int], resources: tuple[Resource, ...]) -> int:
        """Number a job; a partition that was given up meanwhile no longer has this number."""
        self._n_jobs += 1
        noted.update(dict.fromkeys(resources, self._n_jobs))
        return self._n_jobs

    def call(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """See :class:`Duties`."""
        if call is ListenerCall.LOST:
            self.counters.add("lost", len(resources))
        work = getattr(self.listener, f"on_partitions_{call.value}", None)
        if work is None:
            if call is ListenerCall.LOST:
                self.delivery.terms(lambda terms: terms.tell_by_error(resources))
            done(None)
            return
        if call is ListenerCall.LOST:
            work = self._then_heard(work)
        if call is ListenerCall.ASSIGNED and resources:
            work = self._which_begins(work)
            with self._lock:  # before the callback, which may commit, and ask to reconsider
                job = self._new_job(self._coming, resources)
            self._starter.submit(self._prepare, job, resources)
        self.calls.put(PendingCall(work, resources, done))

    def _which_begins(self, work: Callable[[Any], object]) -> Callable[[Any], object]:
        """The callback of an assignment; while it runs, it decides where its partitions begin."""

        def run(partitions: list[TopicPartition]) -> None:
            self._begins = frozenset(partitions)
            try:
                work(partitions)
            finally:
                self._begins = frozenset()

        return run

    def refused(
        self, terms: Mapping[Resource, int], offsets: Mapping[Resource, int]
    ) -> set[Resource]:
        """Partitions of which the application may not commit these offsets; none are changed."""
        sought = {tp for tp, offset in offsets.items() if self._sought.get(tp) == offset}
        return self.delivery.refused(terms, offsets, sought | self._begins)

    def _then_heard(self, work: Callable[[Any], object]) -> Callable[[Any], object]:
        """The callback of a loss; once it has run, the application has heard of the loss."""

        def run(partitions: list[TopicPartition]) -> None:
            try:
                work(partitions)
            finally:
                self.delivery.terms(lambda terms: terms.tell(partitions))

        return run

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """See :class:`Duties`."""
        offsets = self.delivery.uncommitted(action.resources)
        if not offsets:
            done(0)
            return
        future = self._link.commit(
            offsets,
            generation=action.generation,
            member_id=action.member_id,
            instance_id=action.instance_id,
        )
        future.add_done_callback(lambda f: done(self._note_hand_over(f, offsets)))

    def _note_hand_over(self, future: Future[int], offsets: Mapping[Resource, int]) -> int:
        """Note the end of a hand-over's commit; what is refused for good cannot be committed."""
        code = self.note_commit(future, offsets)
        if code in LOST_MEMBERSHIP:
            self.delivery.terms(lambda terms: terms.leave_untold(offsets))
        return code

    def note_commit(self, future: Future[int], offsets: Mapping[Resource, int]) -> int:
        """Note the offsets of a finished commit; return its error code, -1 for no answer."""
        answered = not future.cancelled() and future.exception() is None
        code = future.result() if answered else -1
        self.counters.add("commit" if code == 0 else "commit_failed")
        if code == 0:
            self.delivery.committed(offsets)
        return code

    def completed(self, action: actions.JoinCompleted) -> None:
        """See :class:`Duties`."""
        self.counters.add("rebalance")
        self.counters.add("gained", len(action.gained))
        self.counters.add("revoked", len(action.revoked))
        self.delivery.forget(action.gained)  # positions of an earlier term
        if self._keeps_fetched:
            self.delivery.release(action.owned)
        with self._lock:
            self._held_back.intersection_update(action.owned)
            for tp in self._sought.keys() - set(action.owned):
                del self._sought[tp]

    # Starting

    def _prepare(self, job: int, resources: tuple[Resource, ...]) -> None:
        """Fetch partitions before they start; if this fails, the start tries again."""
        try:
            found = self._look_up(resources)
            with self._lock:
                now = {tp: at for tp, at in found.items() if self._coming.get(tp) == job}
                for tp in now:
                    del self._coming[tp]
                if now:
                    self.delivery.prepare({tp: start.offset for tp, start in now.items()})
                    self._prepared.update(now)
        except Exception as error:  # the data plane's library may raise anything
            self._log.debug("start positions are not known yet: %s", error)

    def reconsider(self, partitions: Collection[Resource]) -> None:
        """Look up again where these begin, after a commit inside the callback."""
        with self._lock:
            for tp in partitions:
                self._coming.pop(tp, None)
                self._prepared.pop(tp, None)

    def _begin(self, job: int, resources: tuple[Resource, ...]) -> None:
        try:
            self._begin_term(job, resources)
        finally:
            del self._terms[job]

    def _begin_term(self, job: int, resources: tuple[Resource, ...]) -> None:
        left, n_pauses = resources, 0
        while not self._closed.is_set():
            with self._lock:
                missing = [tp for tp in left if self._wanted.get(tp) == job]
                known = {tp: self._prepared[tp] for tp in missing if tp in self._prepared}
            if not missing:
                return
            try:
                unknown = [tp for tp in missing if tp not in known]
                found = {**known, **(self._look_up(unknown) if unknown else {})}
            except (HoldfastError, TimeoutError) as error:
                if ends_member(error):
                    self._fail(error)
                    return
                if self._closed.is_set():
                    return
                self._log.warning("start positions are not known yet: %s", error)
                self._closed.wait(self._pause_s)
                continue
            self._start_those_still_wanted(job, found)
            left = tuple(tp for tp in missing if tp not in found)
            if left:
                # A topic that was created just now, or moves: its leader is there in a moment.
                level = logging.INFO if n_pauses < _PASSING_PAUSES else logging.WARNING
                text = "%s-%s has no leader that answers yet: it starts later"
                self._log.log(level, text, *left[0])
                self._closed.wait(min(self._first_pause_s * 2**n_pauses, self._pause_s))
                n_pauses = min(n_pauses + 1, _MOST_PAUSES)

    def _start_those_still_wanted(self, job: int, found: Mapping[Resource, _Start]) -> None:
        with self._lock:
            now = {tp: start for tp, start in found.items() if self._wanted.get(tp) == job}
            for tp in now:
                self._prepared.pop(tp, None)
                if tp in self._sought:
                    now[tp] = _Start(self._sought.pop(tp), is_committed=False)
            if not now:
                return
            try:
                self.delivery.start(
                    {tp: start.offset for tp, start in now.items()},
                    held_back=self._held_back & now.keys(),
                    fresh=[tp for tp, start in now.items() if not start.is_committed],
                    term=self._terms[job],
                )
            except Exception as error:  # the data plane's library may raise anything
                self._fail(AdapterError(f"fetching could not start: {error}"))

    def start_positions(self, partitions: Collection[Resource]) -> dict[Resource, int]:
        """The first offset of each partition: committed, or by ``auto.offset.reset``.

        Raises
        ------
        RemoteProtocolError
            If there is no committed offset and ``auto.offset.reset`` is ``none``.
        AdapterError
            If no broker answered in time.
        """
        return {tp: start.offset for tp, start in self._look_up(partitions).items()}

    def _look_up(self, partitions: Collection[Resource]) -> dict[Resource, _Start]:
        found = self._link.committed(partitions).result()
        starts = {tp: _Start(at, is_committed=True) for tp, at in found.items() if at >= 0}
        unknown = [tp for tp in partitions if tp not in starts]
        if not unknown:
            return starts
        if self._reset == "none":
            name = f"{unknown[0][0]}-{unknown[0][1]}"
            raise RemoteProtocolError(
                f"no committed offset for {name}, and auto.offset.reset is none: "
                "commit one, or choose earliest or latest"
            )
        ends = self._lookup.list_offsets(
            unknown, EARLIEST if self._reset == "earliest" else LATEST
        ).result()
        return starts | {tp: _Start(at, is_committed=False) for tp, at in ends.items()}

    # The application's wishes

    def seek(self, partition: Resource, offset: int) -> None:
        """Continue a partition at ``offset``, now or when it starts."""
        with self._lock:
            if partition in self.delivery.active():
                self.delivery.seek(partition, offset)
            else:
                self._sought[partition] = offset

    def pause(self, partitions: Collection[Resource]) -> None:
        """Hold these back; a rebalance that leaves them here does not change that."""
        with self._lock:
            self._held_back.update(partitions)
            if now := self.delivery.active() & set(partitions):
                self.delivery.pause(now)

    def resume(self, partitions: Collection[Resource]) -> None:
        """Hold these back no more."""
        with self._lock:
            self._held_back.difference_update(partitions)
            if now := self.delivery.active() & set(partitions):
                self.delivery.resume(now)

    def paused(self) -> set[TopicPartition]:
        """Partitions that are held back."""
        with self._lock:
            return {TopicPartition(*tp) for tp in self._held_back}

    def end(self) -> None:
        """Start nothing more."""
        self._closed.set()

    def close(self) -> None:
        """Close the data plane."""
        self.end()
        self._starter.shutdown(wait=True, cancel_futures=True)
        self.delivery.close()
