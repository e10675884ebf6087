"""Records the callbacks of one consumer, whatever its client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def held_after(calls: Iterable[tuple[str, Iterable[int]]]) -> set[int]:
    """What a member holds after these callbacks: their words, and their partitions."""
    held: set[int] = set()
    for word, found in calls:
        held = held.union(found) if word == "assigned" else held.difference(found)
    return held


class EventRecorder:
    """What the callbacks of one consumer were told; it may have one of its own for losses.

    ``inside`` has what a callback does, by its word; it takes the partitions.
    """

    def __init__(self, *, hears_losses: bool = True):
        self.calls: list[tuple[str, list[int]]] = []
        self.hears_losses = hears_losses
        self.inside: dict[str, Callable[[list[int]], object]] = {}

    def note(self, call: str, partitions: Iterable[Any]) -> None:
        """Write down a callback, and do what is to be done inside it."""
        found = sorted(p.partition for p in partitions)
        self.calls.append((call, found))
        if (work := self.inside.get(call)) is not None:
            work(found)

    def told(self, call: str) -> list[int]:
        """Partitions of all callbacks of one word."""
        return sorted(p for word, found in self.calls if word == call for p in found)

    def holds(self) -> set[int]:
        """What the consumer has, as far as its callbacks were told."""
        return held_after(list(self.calls))

    def counts(self) -> list[tuple[str, int]]:
        """Each callback, with how many partitions it was about."""
        return [(call, len(found)) for call, found in self.calls]


class Listener:
    """The methods of KIP-429."""

    def __init__(self, recorder: EventRecorder):
        self.recorder = recorder

    def on_partitions_assigned(self, partitions: Iterable[Any]) -> None:
        self.recorder.note("assigned", partitions)

    def on_partitions_revoked(self, partitions: Iterable[Any]) -> None:
        self.recorder.note("revoked", partitions)


class LossListener(Listener):
    """The same, with one for losses."""

    def on_partitions_lost(self, partitions: Iterable[Any]) -> None:
        self.recorder.note("lost", partitions)
