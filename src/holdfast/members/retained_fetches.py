"""What an eager member has given up and may get back in the same round.

**Rules.** librdkafka fetches a parked partition on. Its records are put aside, in order, and so is
what comes behind records that are aside. Nothing of it is handed out before the partition is back.

References: KIP-54, "Motivation" (what is fetched already is not fetched again).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.core.model.partitions import Resource


class RetainedFetches:
    """Partitions that are parked, and records that are aside.

    Attributes
    ----------
    partitions : set of Resource
        What is parked.
    records : dict of Resource to list
        What is aside, of these and of partitions that are back.
    """

    def __init__(self) -> None:
        self.partitions: set[Resource] = set()
        self.records: dict[Resource, list[Any]] = {}

    def __contains__(self, tp: object) -> bool:
        return tp in self.partitions

    def sort_out(self, messages: list[Any], lost: Collection[Resource]) -> list[Any]:
        """Put aside what belongs there, drop what is ``lost``, and return the rest."""
        kept = []
        for message in messages:
            tp = message.topic(), message.partition()
            if tp in self.partitions or tp in self.records:
                self.records.setdefault(tp, []).append(message)
            elif tp not in lost:
                kept.append(message)
        return kept

    def take(self, limit: int, but_not: Collection[Resource]) -> list[Any]:
        """At most ``limit`` records of partitions that are back, and not among ``but_not``."""
        messages: list[Any] = []
        for tp in sorted(self.records.keys() - self.partitions - set(but_not)):
            waiting = self.records.pop(tp)
            taken = waiting[: limit - len(messages)]
            messages += taken
            if rest := waiting[len(taken) :]:
                self.records[tp] = rest
        return messages

    def forget(self, partitions: Collection[Resource]) -> None:
        """These are parked no more, and none of their records is handed out."""
        self.partitions.difference_update(partitions)
        for tp in partitions:
            self.records.pop(tp, None)
