"""Fetched records of an eager member's revoked partitions, which may come back in the same round.

**Rules.** librdkafka keeps fetching a retained partition. Its records are set aside, in order, and
so are records that follow records set aside. None of them is delivered before the partition is
assigned again.

References: KIP-54, "Motivation" (what is fetched already is not fetched again).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.core.model.partitions import Resource


class RetainedFetches:
    """Retained partitions, and the records that are set aside.

    Attributes
    ----------
    partitions : set of Resource
        The retained partitions.
    records : dict of Resource to list
        Records set aside, of retained partitions and of partitions that are assigned again.
    """

    def __init__(self) -> None:
        self.partitions: set[Resource] = set()
        self.records: dict[Resource, list[Any]] = {}

    def __contains__(self, tp: object) -> bool:
        return tp in self.partitions

    def sort_out(self, messages: list[Any], lost: Collection[Resource]) -> list[Any]:
        """Set aside the records of retained partitions, drop those of ``lost``, return the rest."""
        kept = []
        for message in messages:
            tp = message.topic(), message.partition()
            if tp in self.partitions or tp in self.records:
                self.records.setdefault(tp, []).append(message)
            elif tp not in lost:
                kept.append(message)
        return kept

    def take(self, limit: int, but_not: Collection[Resource]) -> list[Any]:
        """Return at most ``limit`` records of partitions that are back and not in ``but_not``."""
        messages: list[Any] = []
        for tp in sorted(self.records.keys() - self.partitions - set(but_not)):
            waiting = self.records.pop(tp)
            taken = waiting[: limit - len(messages)]
            messages += taken
            if rest := waiting[len(taken) :]:
                self.records[tp] = rest
        return messages

    def forget(self, partitions: Collection[Resource]) -> None:
        """Stop retaining ``partitions``, and drop their records."""
        self.partitions.difference_update(partitions)
        for tp in partitions:
            self.records.pop(tp, None)
