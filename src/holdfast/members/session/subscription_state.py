"""The subscription state of a member: positions and commits of each partition, by terms.

As in Kafka's clients, the subscription state has what a member knows of its assigned partitions.
The topics to which it subscribes are in :mod:`holdfast.members.session.membership`.

**Rules.** What was delivered in a term of a partition is committed in that term only
(:mod:`holdfast.core.machine.member.holdings`). An offset that the application names itself carries
no term, so three rules replace the term:

- Between a loss and the next poll, or the callback of the loss where there is one, the application
  holds records from before the loss. All its offsets of the partition are refused.
- Later, offsets of a partition that had an earlier term are accepted from the start of the present
  term up to its position. Before the present term has delivered anything, they are accepted in
  ``on_partitions_assigned`` alone, where the application decides where the term begins.
- In its first term the application may commit any offset of a partition.

Example: offsets 107 to 306 of ``t-0`` are delivered, ``t-0`` is lost, another member commits 307,
``t-0`` comes back and starts at 307. A commit of 207 is refused, although this member owns ``t-0``
again. A commit of 308 is refused until record 307 was delivered.

A loss of uncommitted records is *unreported* until a callback of the loss has run. If the
application has no such callback, an error reports the loss, and the loss is unreported until the
application polls after that error.

**Strategy.** One entry a partition for its term, one for its last loss, all behind one lock. It is
held for look-ups alone, never while a client, a broker or the application is called.

References: KIP-429, ``onPartitionsLost``; Kafka's ``CommitFailedException``.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from holdfast.core.machine.shared_values import OffsetToCommit
from holdfast.core.model.partitions import Resource


@dataclass(slots=True, kw_only=True)
class _PartitionTerm:
    """A partition in one term of ownership."""

    number: int
    is_again: bool  # the partition had an earlier term here
    lowest_committable: int | None = None  # by the application; None: not known yet
    is_active: bool = True  # may be delivered; False once it was revoked or lost
    processed: OffsetToCommit | None = None
    start: OffsetToCommit | None = None  # what a revocation commits if nothing is processed
    furthest: int = -1  # highest offset before which records were delivered
    committed: int | None = None  # the committed offset, as far as is known

    def to_commit(self) -> OffsetToCommit | None:
        at = self.processed
        return None if at is None or at.offset == self.committed else at

    def last_commit(self) -> OffsetToCommit | None:
        """Return the offset that the last commit of the term commits, None for none."""
        is_blank = self.processed is None and self.committed is None
        return self.start if is_blank else self.to_commit()

    def refuses(self, offset: int, number: int | None) -> bool:
        """Return whether the application may not commit ``offset`` in the term ``number``."""
        if number is None:
            return False  # not owned, which another check refuses
        if self.number != number:
            return True
        if not self.is_again:
            return False
        return self.lowest_committable is None or not self.lowest_committable <= offset <= max(
            self.furthest, self.lowest_committable
        )


@dataclass(slots=True, kw_only=True)
class _PartitionLoss:
    """The last loss of a partition, or the end of a revocation whose commit was refused."""

    notified: bool = False  # by a callback, which has run or will run
    is_in_flight: bool = False  # the application holds records from before it
    is_unreported: bool = False  # records were lost uncommitted
    is_raised: bool = False  # an error has reported it
    is_revoked: bool = False  # by a late revocation: membership continued

    def is_unsettled(self) -> bool:
        return self.is_in_flight or self.is_unreported


class SubscriptionState:
    """Terms, offsets and losses of the partitions of one member; safe from any thread."""

    def __init__(self) -> None:
        # The callback of their assignment runs: there the application says where a term begins.
        self.starting: frozenset[Resource] = frozenset()
        self._lock = threading.Lock()
        self._terms: dict[Resource, _PartitionTerm] = {}
        self._losses: dict[Resource, _PartitionLoss] = {}
        # Losses that a callback or an error has still to report.
        self._unsettled: set[Resource] = set()
        # Partitions that were lost while no thread could read their positions.
        self._unrecorded: dict[Resource, set[int | None]] = {}

    # Terms

    def begin(self, terms: Mapping[Resource, int]) -> None:
        """Begin terms with the numbers ``terms``; the callback of their assignment is next."""
        self.starting = frozenset(terms)
        with self._lock:
            for tp, number in terms.items():
                before = self._terms.get(tp)
                is_again = before is not None and (before.is_again or before.number != number)
                self._terms[tp] = _PartitionTerm(number=number, is_again=is_again)

    def start_at_committed(self, committed: Mapping[Resource, int]) -> None:
        """Record committed offsets, -1 for none, of terms that start there."""
        with self._lock:
            for tp, at in committed.items():
                term = _active(self._terms, tp)
                if term is not None and term.lowest_committable is None:
                    term.lowest_committable = max(at, 0)
                    term.committed = at if at >= 0 else None

    def start_at_reset(
        self, start_offsets: Mapping[Resource, int], *, as_processed: bool = True
    ) -> None:
        """Start terms at ``start_offsets``, where no offset was committed.

        The offsets count as processed: a commit before the first record commits them. Without
        ``as_processed`` only the last commit of the term commits them, if nothing was processed.
        """
        with self._lock:
            for tp, at in start_offsets.items():
                if (term := _active(self._terms, tp)) is not None and term.committed is None:
                    term.lowest_committable, term.start = at, OffsetToCommit(at)
                    if as_processed:
                        term.processed = term.start

    def seek(self, tp: Resource, offset: int) -> None:
        """Continue at ``offset``; the application may commit it, and offsets after it."""
        with self._lock:
            if (term := _active(self._terms, tp)) is not None:
                term.lowest_committable = (
                    offset
                    if term.lowest_committable is None
                    else min(term.lowest_committable, offset)
                )
                term.furthest = max(term.furthest, offset)

    def start_at(self, tp: Resource, offset: int) -> None:
        """Start a term at the offset that the application has chosen."""
        with self._lock:
            if (term := _active(self._terms, tp)) is not None:
                term.lowest_committable, term.committed = offset, None

    def end(self, partitions: Iterable[Resource], *, are_deleted: bool = False) -> None:
        """End terms; the processed offset of each stays known for its last commit.

        Partitions of deleted topics have no last commit.
        """
        with self._lock:
            for term in (self._terms[tp] for tp in partitions if tp in self._terms):
                term.is_active = False
                if are_deleted:
                    term.processed = term.start = None

    def active(self) -> set[Resource]:
        """Return the partitions that may be delivered."""
        with self._lock:
            return {tp for tp, term in self._terms.items() if term.is_active}

    def term_numbers(self, partitions: Iterable[Resource]) -> dict[Resource, int]:
        """Return the numbers of the terms in which ``partitions`` were delivered last."""
        with self._lock:
            return {tp: self._terms[tp].number for tp in partitions if tp in self._terms}

    # Offsets

    def record_positions(
        self,
        positions: Mapping[Resource, OffsetToCommit],
        processed: Mapping[Resource, OffsetToCommit] | None = None,
    ) -> None:
        """Record the client's positions after what it has delivered.

        A commit commits the ``processed`` offsets, by default all that was delivered.
        """
        with self._lock:
            for tp, at in positions.items():
                if (term := _active(self._terms, tp)) is not None:
                    term.furthest = max(term.furthest, at.offset)
            for tp, at in (positions if processed is None else processed).items():
                if (term := _active(self._terms, tp)) is not None:
                    term.processed = at

    def record_at_least(self, processed: Mapping[Resource, OffsetToCommit]) -> None:
        """Record the least offsets that the application has processed, while it is away."""
        with self._lock:
            for tp, at in processed.items():
                term = _active(self._terms, tp)
                if term is not None and (
                    term.processed is None or at.offset > term.processed.offset
                ):
                    term.processed = at
                    term.furthest = max(term.furthest, at.offset)

    def to_commit(self, terms: Mapping[Resource, int]) -> dict[Resource, OffsetToCommit]:
        """Return the offsets processed and not committed in ``terms``."""
        with self._lock:
            offsets = {}
            for tp, number in terms.items():
                term = self._terms.get(tp)
                if term is not None and term.number == number and (at := term.to_commit()):
                    offsets[tp] = at
            return offsets

    def revoked_offsets(self, partitions: Iterable[Resource]) -> dict[Resource, OffsetToCommit]:
        """Return the offsets processed and not committed of partitions that are revoked."""
        with self._lock:
            known = {tp: self._terms[tp].last_commit() for tp in partitions if tp in self._terms}
            return {tp: at for tp, at in known.items() if at is not None}

    def record_committed(self, offsets: Mapping[Resource, OffsetToCommit]) -> None:
        """Record offsets as committed."""
        with self._lock:
            for tp, at in offsets.items():
                if tp in self._terms:
                    self._terms[tp].committed = at.offset

    def refused(
        self, terms: Mapping[Resource, int], offsets: Mapping[Resource, OffsetToCommit]
    ) -> set[Resource]:
        """Return the partitions with a named offset that is not of the present term.

        ``terms`` are those of what the member owns now.
        """
        with self._lock:
            refused = {
                tp for tp in self._unsettled.intersection(offsets) if self._losses[tp].is_in_flight
            }
            for tp, at in offsets.items():
                term = self._terms.get(tp)
                if tp in self.starting or term is None:
                    continue
                if term.refuses(at.offset, terms.get(tp)):
                    refused.add(tp)
            return refused

    # Losses

    def record_loss(self, partitions: Collection[Resource], notified: Collection[Resource]) -> None:
        """Record a loss; a callback reports the loss of ``notified``.

        The others were revoked: ``on_partitions_revoked`` has run for them, or follows.
        """
        with self._lock:
            for tp in partitions:
                loss = self._losses.setdefault(tp, _PartitionLoss())
                loss.notified, loss.is_in_flight, loss.is_revoked = (
                    tp in notified,
                    True,
                    tp not in notified,
                )
                self._unsettled.add(tp)
                term = self._terms.get(tp)
                if term is None:
                    continue
                at = term.to_commit()
                if at is not None and at.offset != term.lowest_committable:
                    loss.is_unreported, loss.is_raised = True, False
                if term.is_active:
                    processed = None if term.processed is None else term.processed.offset
                    nothing_new = {term.lowest_committable, term.committed, processed}
                    self._unrecorded[tp] = nothing_new
                term.is_active, term.processed, term.start, term.furthest = False, None, None, -1

    def unrecorded(self) -> set[Resource]:
        """Return the lost partitions whose last positions are not recorded."""
        with self._lock:
            return set(self._unrecorded)

    def record_lost(self, positions: Mapping[Resource, OffsetToCommit]) -> None:
        """Record the client's positions of partitions lost while no thread could read them."""
        with self._lock:
            unrecorded, self._unrecorded = self._unrecorded, {}
            for tp, known in unrecorded.items():
                if tp in positions and positions[tp].offset not in known:
                    self._losses[tp].is_unreported, self._losses[tp].is_raised = True, False
                    self._unsettled.add(tp)

    def record_unreported(self, partitions: Iterable[Resource]) -> None:
        """Record that records of ``partitions`` can never be committed; no callback reports it."""
        with self._lock:
            for tp in partitions:
                loss = self._losses.setdefault(tp, _PartitionLoss())
                loss.notified, loss.is_unreported, loss.is_raised = False, True, False
                self._unsettled.add(tp)

    def record_callback(self, partitions: Iterable[Resource], *, was_called: bool) -> None:
        """Record that a callback has reported a loss, or, unless ``was_called``, that none will."""
        with self._lock:
            for tp in self._unsettled.intersection(partitions):
                loss = self._losses[tp]
                loss.notified = was_called
                if was_called:
                    loss.is_unreported = loss.is_in_flight = False
                    self._unsettled.discard(tp)

    def record_poll(self) -> None:
        """Record a poll: earlier records are processed, and raised errors are reported."""
        if not self._unsettled:  # without the lock: every poll comes here
            return
        with self._lock:
            for tp in list(self._unsettled):
                loss = self._losses[tp]
                if not loss.notified:
                    loss.is_in_flight = False
                    loss.is_unreported = loss.is_unreported and not loss.is_raised
                loss.is_raised = False
                if not loss.is_unsettled():
                    self._unsettled.discard(tp)

    def mark_raised(self, partitions: Collection[Resource] | None = None) -> set[Resource]:
        """Mark unreported losses as raised by an error, and return their partitions."""
        with self._lock:
            wanted = (
                self._unsettled if partitions is None else self._unsettled.intersection(partitions)
            )
            unreported = {tp for tp in wanted if self._losses[tp].is_unreported}
            for tp in unreported:
                self._losses[tp].is_raised = True
            return unreported

    def drain_unreported(self) -> set[Resource]:
        """Return lost partitions that no callback will report, and mark them as reported."""
        if not self._unsettled:  # without the lock: every poll comes here
            return set()
        with self._lock:
            known = {tp: self._losses[tp] for tp in self._unsettled}
            unreported = {
                tp for tp, loss in known.items() if loss.is_unreported and not loss.notified
            }
            for tp in unreported:
                self._losses[tp].is_unreported = False
            return unreported

    def were_revoked(self, partitions: Iterable[Resource]) -> bool:
        """Return whether all ``partitions`` were revoked, and membership continued."""
        with self._lock:
            return all(tp in self._losses and self._losses[tp].is_revoked for tp in partitions)

    def in_flight(self, partitions: Iterable[Resource]) -> set[Resource]:
        """Return the ``partitions`` of which the application holds records from before a loss."""
        with self._lock:
            return {
                tp
                for tp in self._unsettled.intersection(partitions)
                if self._losses[tp].is_in_flight
            }


def _active(terms: Mapping[Resource, _PartitionTerm], tp: Resource) -> _PartitionTerm | None:
    term = terms.get(tp)
    return term if term is not None and term.is_active else None
