"""Records that the application has been handed, has processed, or still has in flight.

**Rules.** A record is handed out first, and it is processed once the application polls again. Only
processed records are ever committed. After :meth:`Delivery.stop` no more records of a partition are
handed out. The stop is *drained* when the application polls again, or when its time is up: then the
records in flight count as not processed, and the next owner reads them again. A partition may be
prepared before it is started: it is fetched, and its records wait here.

What was handed out before a partition was lost or handed over is never committed, whoever owns the
partition now (:mod:`holdfast.adapters.records.terms`).

**Strategy.** Two threads meet here under one lock: the application's in :meth:`Delivery.poll`, the
member's in every other method. One thread at a time uses the data plane, because in librdkafka a
change of assignment waits as long as another thread keeps polling. So polls are short slices, and a
change goes before the next slice. The records of a slice belong to the partitions that the plane
had when the slice began. Meanwhile a partition may have been stopped or prepared: each record is
handed out, put aside, or dropped. A slice that fails may have lost records that it had taken, so
every partition goes back to the application's position.

References
----------
KIP-429 (hand-over), KIP-54 (commit before revocation); the Incremental Cooperative Rebalancing
document, "stop processing, commit, and then initiate another join group".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from holdfast.adapters.member.member_log import NAME
from holdfast.adapters.records.data_plane import DataPlane
from holdfast.adapters.records.terms import PartitionTerms
from holdfast.errors import AdapterError, HoldfastError

SLICE_MS = 25  # how long a change may wait for a poll
_FAILURES = 3  # slices in a row that fail inside the plane's library until a poll raises
_T = TypeVar("_T")
_log = logging.getLogger(NAME)


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class _Gate:
    """Lets in one thread at a time; a change goes before a poll.

    ``with gate.poll():`` and ``with gate.change(), gate.room:`` enter. Both are locks themselves:
    an exception of a signal's handler never comes between such a lock and its ``with``, but it may
    come anywhere in a context manager of ours, and the lock would stay for ever.
    """

    def __init__(self) -> None:
        self._door = threading.Lock()
        self.room = threading.Lock()

    def poll(self) -> threading.Lock:
        with self._door:  # whoever changes something holds it, inside and before the room
            return self.room

    def change(self) -> threading.Lock:
        return self._door


class _Stop(NamedTuple):
    waiting_for: frozenset[tuple[str, int]]
    drained: Callable[[], None]


class Delivery:
    """Records between a data plane and the application.

    Parameters
    ----------
    plane : DataPlane
        Where records come from.
    place : callable
        Topic and partition of one of the plane's messages.
    offset : callable
        Its offset.
    """

    def __init__(
        self,
        plane: DataPlane,
        place: Callable[[Any], tuple[str, int]],
        offset: Callable[[Any], int],
    ):
        self._plane = plane
        self._place = place
        self._offset = offset
        self._gate = _Gate()
        self._lock = threading.Lock()
        self._active: set[tuple[str, int]] = set()
        self._prepared: dict[tuple[str, int], int] = {}
        self._early: dict[tuple[str, int], list[Any]] = {}  # came before their partition started
        self._parked: set[tuple[str, int]] = set()  # of those prepared: given up, may come back
        self._paused: set[tuple[str, int]] = set()
        self._leaving: set[tuple[str, int]] = set()  # stopped here, but not in the plane yet
        self._n_failures = 0
        self._handed: dict[tuple[str, int], int] = {}
        self._processed: dict[tuple[str, int], int] = {}
        self._committed: dict[tuple[str, int], int] = {}
        self._terms = PartitionTerms()
        self._stops: list[_Stop] = []

    # The application's thread

    def poll(self, timeout_ms: int, max_records: int) -> list[Any]:
        """Hand out up to ``max_records`` messages; what was handed out before is processed.

        Waits :data:`SLICE_MS` at most, however long ``timeout_ms`` is.
        """
        self.processed()
        if not self._active:
            return []
        if self._early and (messages := self._hand_out_early(max_records)):
            return messages
        with self._gate.poll():  # to the end: a change comes before or after all of it
            messages = self._slice(min(timeout_ms, SLICE_MS), max_records)
            positions = self._plane.positions() if messages else {}
            with self._lock:
                if self._leaving or self._prepared or self._early:
                    messages = self._sort_out(messages)
                for tp, offset in positions.items():
                    if tp not in self._active or tp in self._early:
                        continue
                    if offset > self._processed.get(tp, -1):
                        self._handed[tp] = offset
        return messages

    def _slice(self, timeout_ms: int, max_records: int) -> list[Any]:
        try:
            messages = self._plane.poll(timeout_ms, max_records)
        except BaseException as error:  # the plane's library may raise anything; so may Ctrl-C
            self._go_back()
            if isinstance(error, HoldfastError) or not isinstance(error, Exception):
                raise
            self._n_failures += 1
            if self._n_failures >= _FAILURES:
                self._n_failures = 0
                kind = type(error).__name__
                raise AdapterError(f"fetching failed: {kind}: {error}; nothing is lost") from error
            _log.warning("fetching failed, and is tried again: %r", error)
            return []
        self._n_failures = 0
        return messages

    def _go_back(self) -> None:
        """Fetch again from where the application is; the caller holds the gate."""
        with self._lock:
            self._early.clear()
            here = {**self._prepared, **{tp: self._reached(tp) for tp in self._active}}
            paused = self._paused & self._active
        self._plane.stop(here)
        self._plane.start(here)
        if paused:
            self._plane.pause(paused)

    def _reached(self, tp: tuple[str, int]) -> int:
        return self._handed.get(tp, self._processed[tp])

    def _sort_out(self, messages: list[Any]) -> list[Any]:
        """Keep messages of active partitions, put aside those of prepared ones, drop the rest."""
        kept = []
        for message in messages:
            tp = self._place(message)
            if tp in self._prepared or tp in self._early:
                self._early.setdefault(tp, []).append(message)
            elif tp in self._active:
                kept.append(message)
        return kept

    def _hand_out_early(self, max_records: int) -> list[Any]:
        """Messages that came before their partitions were started."""
        with self._lock:
            messages: list[Any] = []
            for tp in sorted(self._early.keys() & (self._active - self._paused)):
                waiting = self._early.pop(tp)
                taken = waiting[: max_records - len(messages)]
                if taken:
                    self._handed[tp] = self._offset(taken[-1]) + 1
                    messages += taken
                if rest := waiting[len(taken) :]:
                    self._early[tp] = rest
            return messages

    def processed(self) -> bool:
        """Note that all records handed out are processed; return whether a stop waited for it."""
        with self._lock:
            self._processed.update(self._handed)
            self._handed.clear()
            self._terms.come_back()
            stops = list(self._stops)
        self._tell_drained(stops)
        return bool(stops)

    def _tell_drained(self, stops: list[_Stop]) -> None:
        """Tell who waits; a stop stays until then, also if an exception comes in between."""
        for stop in stops:
            stop.drained()
            with self._lock:
                self._stops = [s for s in self._stops if s is not stop]

    # The member's thread

    def prepare(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Fetch these from their positions on, but hand nothing out before :meth:`start`."""
        new = self._not_kept(positions)
        with self._lock:
            self._prepared.update(new)
        with self._gate.change(), self._gate.room:
            if new:
                self._plane.start(new)

    def _not_kept(self, positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Those that are not fetched from exactly there already; what was fetched else is gone."""
        with self._lock:
            kept = {tp for tp in self._parked if self._prepared.get(tp) == positions.get(tp, -1)}
            elsewhere = [tp for tp in positions if tp in self._parked and tp not in kept]
            self._parked.difference_update(positions)
        if elsewhere:
            self._silence(elsewhere)
        return {tp: at for tp, at in positions.items() if tp not in kept}

    def start(
        self,
        positions: Mapping[tuple[str, int], int],
        held_back: Collection[tuple[str, int]] = (),
        fresh: Collection[tuple[str, int]] = (),
        *,
        term: int = 0,
    ) -> None:
        """Hand out these partitions from their positions on; some only when they are resumed.

        Positions of ``fresh`` partitions are not committed yet, and are to be committed. ``term``
        is the number of the term of ownership that begins.
        """
        with self._lock:
            prepared = self._prepared
            self._parked.difference_update(positions)
            elsewhere = [tp for tp in positions if prepared.get(tp, positions[tp]) != positions[tp]]
        if elsewhere:
            self._silence(elsewhere)
        new = {tp: at for tp, at in positions.items() if tp not in prepared}
        with self._lock:
            for tp, offset in positions.items():
                self._processed[tp] = offset
                self._terms.start(tp, term, offset)
                if tp in fresh:
                    self._committed.pop(tp, None)
                else:
                    self._committed[tp] = offset
                if tp in held_back:
                    prepared[tp] = offset
                else:
                    prepared.pop(tp, None)
                    self._active.add(tp)
        with self._gate.change(), self._gate.room:
            if new:
                self._plane.start(new)
            if held_back:
                self._plane.pause(held_back)
        with self._lock:
            for tp in held_back:
                if prepared.pop(tp, None) is not None:
                    self._paused.add(tp)
                    self._active.add(tp)

    def stop(
        self,
        partitions: Collection[tuple[str, int]],
        drained: Callable[[], None],
        *,
        keeps: bool = False,
    ) -> None:
        """Hand out no more of these; call ``drained`` once none of their records is in flight.

        With ``keeps``, what is fetched of them already stays until :meth:`release`. A partition
        that is started again at the same position hands it out; at another position it is dropped.

        References: KIP-54, "Motivation" (pre-fetched messages are not fetched again).
        """
        silenced = self._not_parked(partitions) if keeps else partitions
        if silenced or not keeps:
            self._silence(silenced)
        with self._lock:
            waiting_for = frozenset(tp for tp in partitions if tp in self._handed)
            if waiting_for:
                self._stops.append(_Stop(waiting_for, drained))
                return
        drained()

    def _not_parked(self, partitions: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
        """Park what is handed out now; the rest has nothing to keep."""
        # What a slice returned is handed out before.
        with self._gate.change(), self._gate.room, self._lock:
            parked = (self._active - self._paused).intersection(partitions)
            for tp in parked:
                self._prepared[tp] = self._reached(tp)
            self._active -= parked
            self._parked |= parked
            return [tp for tp in partitions if tp not in parked]

    def release(self, owned: Collection[tuple[str, int]]) -> None:
        """Drop what :meth:`stop` kept of partitions that did not come back."""
        with self._lock:
            gone = self._parked.difference(owned)
        if gone:
            self._silence(gone)

    def give_up_waiting(self, partitions: Collection[tuple[str, int]]) -> None:
        """Count records in flight of these as not processed; their stops are drained now."""
        with self._lock:
            for tp in partitions:
                self._handed.pop(tp, None)
            over = [s for s in self._stops if not any(tp in self._handed for tp in s.waiting_for)]
        self._tell_drained(over)

    def drop(
        self, partitions: Collection[tuple[str, int]], told: Collection[tuple[str, int]] = ()
    ) -> None:
        """Forget these at once: they may belong to another member. A callback tells of ``told``."""
        self._silence(partitions)
        left = self.uncommitted(partitions, handed=True)
        with self._lock:
            self._terms.lose(partitions, uncommitted=left, told=told)
        self.give_up_waiting(partitions)
        self.forget(partitions)

    def forget(self, partitions: Collection[tuple[str, int]]) -> None:
        """Forget the positions of partitions that were given up."""
        with self._lock:
            for tp in partitions:
                for positions in (self._handed, self._processed, self._committed):
                    positions.pop(tp, None)

    def _silence(self, partitions: Collection[tuple[str, int]]) -> None:
        with self._lock:
            self._leaving.update(partitions)
            self._active.difference_update(partitions)
            self._paused.difference_update(partitions)
            self._parked.difference_update(partitions)
        with self._gate.change(), self._gate.room:
            self._plane.stop(partitions)
        with self._lock:
            self._leaving.difference_update(partitions)
            for tp in partitions:
                self._prepared.pop(tp, None)
                self._early.pop(tp, None)

    # Offsets

    def uncommitted(
        self, partitions: Collection[tuple[str, int]] | None = None, *, handed: bool = False
    ) -> dict[tuple[str, int], int]:
        """Next offset of every partition (of these) that was processed further than committed.

        With ``handed``, records in flight count as processed.
        """
        with self._lock:
            reached = {**self._processed, **self._handed} if handed else self._processed
            return {
                tp: offset
                for tp, offset in reached.items()
                if offset != self._committed.get(tp) and (partitions is None or tp in partitions)
            }

    def committed(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Note that these offsets are committed."""
        with self._lock:
            for tp, offset in offsets.items():
                if tp in self._processed:
                    self._committed[tp] = offset

    def to_commit(
        self, terms: Mapping[tuple[str, int], int], *, handed: bool = False
    ) -> dict[tuple[str, int], int]:
        """:meth:`uncommitted` of what was handed out in these terms."""
        with self._lock:
            current = self._terms.current(terms)
        return self.uncommitted(current, handed=handed)

    def refused(
        self,
        terms: Mapping[tuple[str, int], int],
        offsets: Mapping[tuple[str, int], int],
        begins: Collection[tuple[str, int]] = (),
    ) -> set[tuple[str, int]]:
        """Partitions whose offsets are not of these terms; see :meth:`PartitionTerms.refused`."""
        with self._lock:
            reached = {**self._processed, **self._handed}
            return self._terms.refused(terms, offsets, reached, begins)

    def terms(self, ask: Callable[[PartitionTerms], _T]) -> _T:
        """Ask the terms, or tell them something, while nobody else does."""
        with self._lock:
            return ask(self._terms)

    def position(self, partition: tuple[str, int]) -> int | None:
        """Offset of the next record to hand out, None for a partition that is not held."""
        with self._lock:
            return self._handed.get(partition, self._processed.get(partition))

    def active(self) -> set[tuple[str, int]]:
        """Partitions whose records are handed out now."""
        with self._lock:
            return set(self._active)

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue a partition at ``offset``; nothing happens to one that is not handed out."""
        # All of it: what a slice returned comes before.
        with self._gate.change(), self._gate.room:
            with self._lock:
                if partition not in self._active:
                    return
                self._handed.pop(partition, None)
                self._early.pop(partition, None)
                self._processed[partition] = offset
                self._terms.seek(partition, offset)
            self._plane.seek(partition, offset)

    def pause(self, partitions: Collection[tuple[str, int]]) -> None:
        """Hand out nothing of these for now; one that is not handed out anyway is left alone."""
        with self._gate.change(), self._gate.room:
            with self._lock:
                now = self._active.intersection(partitions)
                self._paused.update(now)
            if now:
                self._plane.pause(now)

    def resume(self, partitions: Collection[tuple[str, int]]) -> None:
        """Hand out these again."""
        with self._gate.change(), self._gate.room:
            with self._lock:
                now = self._active.intersection(partitions)
                self._paused.difference_update(now)
            if now:
                self._plane.resume(now)

    def close(self) -> None:
        """Close the data plane."""
        with self._gate.change(), self._gate.room:
            self._plane.close()
