"""A member's side on the thread of an application that polls librdkafka itself.

**Rules.** The assignment of librdkafka changes on the application's thread alone, inside ``poll``,
``consume``, ``unsubscribe`` and ``close``, where confluent-kafka runs its callbacks as well. The
member's thread puts what is to be done into a mailbox. What was handed out before such a call is
processed when the call begins, so a stop is drained as soon as the application comes back.

**Strategy.** Positions are librdkafka's: they are read when somebody needs them, and no record is
looked at on its way. So this :class:`Delivery` has no data plane and no gate; it keeps the tables
of offsets and terms that commits and hand-overs need.

References: KIP-429; librdkafka, "Rebalancing" (``rebalance_cb``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from holdfast.adapters.member.errands import Errand, Errands, Once
from holdfast.adapters.records.delivery import Delivery
from holdfast.adapters.records.topic_duties import TopicDuties
from holdfast.machine import actions
from holdfast.machine.actions import ListenerCall
from holdfast.model.partitions import Resource


class Rebalance(Once):
    """A callback of the application: which partitions it is about, whether it has changed them."""

    def __init__(self, call: ListenerCall, resources: Collection[Resource]):
        super().__init__(self._call)
        self.call = call
        self.resources = frozenset(resources)
        self.has_changed = False

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        callback(*arguments)

    def resources_in_order(self) -> list[Resource]:
        """Its partitions, sorted."""
        return sorted(self.resources)


class InPollDelivery(Delivery):
    """Offsets and terms of records that the application takes from librdkafka itself."""

    def __init__(self) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, nothing)
        self.mail = Errands()
        self.leaving: set[Resource] = set()  # stopped or lost; unassigned after their callback
        self._handed_out: dict[Resource, int] = {}  # processed is less where offsets are stored
        self._unheard: dict[Resource, tuple[int, bool]] = {}  # lost behind the application's back
        self.ask: Callable[[], Mapping[Resource, int] | None] = lambda: None
        """How far the application has come with what it has asked past, None while it is inside a
        call; for any thread."""

    # The application's thread

    def begin(self, terms: Mapping[Resource, int], starts: Mapping[Resource, int]) -> None:
        """These are assigned now, in these terms, from these offsets (0: from wherever)."""
        with self._lock:
            for tp, offset in starts.items():
                self._active.add(tp)
                if tp in terms:
                    self._terms.start(tp, terms[tp], offset)
                for noted in (self._processed, self._committed, self._handed_out):
                    noted.pop(tp, None)

    def had_a_term(self, partitions: Iterable[Resource]) -> list[Resource]:
        """Those that were assigned here before."""
        with self._lock:
            return [tp for tp in partitions if self._terms.has_begun(tp)]

    def reached(self, positions: Mapping[Resource, int]) -> None:
        """Note how far the application has come; only of what is assigned."""
        with self._lock:
            for tp, offset in positions.items():
                if tp in self._active:
                    self._processed[tp] = offset

    def handed_out(self, positions: Mapping[Resource, int]) -> None:
        """Note how far librdkafka has handed these out, whatever of it is processed."""
        with self._lock:
            for tp, offset in positions.items():
                self._handed_out[tp] = max(offset, self._handed_out.get(tp, offset))

    def seek(self, partition: Resource, offset: int) -> None:
        """The application goes on there: it may commit from there on, and there at once."""
        with self._lock:
            if partition in self._active and self._terms.has_begun(partition):
                self._terms.seek(partition, offset)
        self.handed_out({partition: offset})

    def refused(
        self,
        terms: Mapping[Resource, int],
        offsets: Mapping[Resource, int],
        begins: Collection[Resource] = (),
    ) -> set[Resource]:
        """See :class:`Delivery`; what was handed out may be committed, also if it is not stored."""
        with self._lock:
            reached = {**self._processed}
            for tp, offset in self._handed_out.items():
                reached[tp] = max(offset, reached.get(tp, offset))
            return self._terms.refused(terms, offsets, reached, begins)

    def forget(self, partitions: Collection[Resource]) -> None:
        """See :class:`Delivery`."""
        super().forget(partitions)
        with self._lock:
            for tp in partitions:
                self._handed_out.pop(tp, None)

    def finish(self, partitions: Collection[Resource]) -> None:
        """These are unassigned; how far they have come stays known for their last commit."""
        with self._lock:
            self._active.difference_update(partitions)
            self.leaving.difference_update(partitions)

    def unheard(self) -> set[Resource]:
        """Partitions that were lost since the application came back."""
        with self._lock:
            return set(self._unheard)

    def hear(self, positions: Mapping[Resource, int]) -> None:
        """Note how far the application had come with what was lost behind its back."""
        with self._lock:
            unheard, self._unheard = self._unheard, {}
            for tp, (committed, told) in unheard.items():
                if positions.get(tp, committed) != committed:
                    self._terms.leave_untold([tp], told=told)

    def is_ahead(self, partitions: Collection[Resource]) -> bool:
        """Whether the application has not come back since it was asked for some of these."""
        with self._lock:
            return not self._active.isdisjoint(set(partitions) - self.leaving)

    # The member's thread

    def start(
        self,
        positions: Mapping[Resource, int],
        held_back: Collection[Resource] = (),
        fresh: Collection[Resource] = (),
        *,
        term: int = 0,
    ) -> None:
        """Nothing: the callback of the assignment has assigned them."""

    def prepare(self, positions: Mapping[Resource, int]) -> None:
        """Nothing: librdkafka fetches once they are assigned."""

    def stop(
        self,
        partitions: Collection[Resource],
        drained: Callable[[], None],
        *,
        keeps: bool = False,
    ) -> None:
        """Hand out no more of these as soon as the application comes back.

        Its own commits that are on their way come first, for a moment: the member would join
        without these partitions, and what comes later is refused.
        """

        def work(side: Any) -> None:
            side.note_positions()
            side.await_commits()
            self.leaving.update(partitions)

        self.mail.put(Errand(work, lambda _: drained()))

    def drop(self, partitions: Collection[Resource], told: Collection[Resource] = ()) -> None:
        """These may belong to another member: nothing of them is committed any more."""
        left = self.uncommitted(partitions)
        with self._lock:
            self._terms.lose(partitions, uncommitted=left, told=told)
            dropped = self._active.intersection(partitions)
            for tp in dropped:
                self._unheard[tp] = (self._committed.get(tp, -1), tp in told)
            self._active -= dropped
            # At once: what waits in the mail may end these, and assign some of them again.
            self.leaving |= dropped
        self.forget(partitions)
        self.mail.put(Errand(lambda _: None))  # the application comes in before its next record

    def close(self) -> None:
        """Nothing: the consumer closes librdkafka."""


class InPollDuties(TopicDuties):
    """Duties whose callbacks change the assignment of librdkafka."""

    delivery: InPollDelivery
    overtaking: Callable[[Collection[Resource]], AbstractContextManager[None]] = staticmethod(
        lambda _: nullcontext()
    )
    """Within this, no earlier commit of these partitions is tried again, now or later."""
    tells_commits = False
    """Whether the application hears of the commit of a hand-over."""

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """See :class:`Duties`; the commit of a hand-over is the last one of its partitions.

        At a deadline the application may be away still. Then its positions are read here, on a
        thread that may wait for librdkafka, as the member's may not.
        """
        if self.delivery.is_ahead(action.resources):
            self._starter.submit(self._commit_behind_its_back, action, done)
        else:
            self._commit_noted(action, done)

    def _commit_noted(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        with self.overtaking(action.resources):
            super().commit(action, done)

    def _commit_behind_its_back(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        try:
            found = self.delivery.ask()
        except Exception as error:  # librdkafka's
            self._log.warning("positions could not be read for the last commit: %r", error)
            done(-1)
            return
        if found is None:  # it is back, and knows itself
            commit = partial(self._commit_noted, action, done)
            self.delivery.mail.put(Errand(lambda side: side.note_positions(), lambda _: commit()))
            return
        self.delivery.reached({tp: at for tp, at in found.items() if tp in action.resources})
        self._commit_noted(action, done)

    def _note_hand_over(self, future: Future[int], offsets: Mapping[Resource, int]) -> int:
        code = super()._note_hand_over(future, offsets)
        if self.tells_commits:
            tell = Once(lambda side: side.told_of_hand_over(code, offsets))
            self.delivery.mail.put(Errand(tell))
        return code

    def start(self, resources: tuple[Resource, ...], term: int) -> None:
        """Nothing: the callback of the assignment has assigned them."""

    def call(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """See :class:`Duties`; it comes even without a callback, to change the assignment."""
        if call is ListenerCall.LOST:
            self.counters.add("lost", len(resources))
        begun = Rebalance(call, resources)
        # As librdkafka: an error of a callback changes nothing of a hand-over.
        self.delivery.mail.put(Errand(lambda side: side.rebalance(begun), lambda _: done(None)))

    @contextmanager
    def beginning(self, resources: Collection[Resource]) -> Iterator[None]:
        """The callback of this assignment runs: it may commit where its partitions begin."""
        self._begins = frozenset(resources)
        try:
            yield
        finally:
            self._begins = frozenset()

    def heard(self, resources: Collection[Resource], *, by_callback: bool) -> None:
        """The application has heard of this loss, or will by an error."""
        self.delivery.terms(
            lambda terms: (terms.tell if by_callback else terms.tell_by_error)(resources)
        )
