"""aiokafka's fetcher, which hands out lists of records faster.

**Rules.** Which records come, in which order and in how many lists, where a position stands after
an error of a deserializer, and every error are aiokafka's.

**Strategy.** What is there already is taken in one pass of C for each partition. Everything else,
waiting and raising, is left to aiokafka.

References: aiokafka, ``Fetcher.fetched_records``.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Any

from aiokafka.consumer.fetcher import Fetcher, FetchResult
from aiokafka.structs import TopicPartition


class ListFetcher(Fetcher):  # type: ignore[misc]  # aiokafka has no types
    """A fetcher of aiokafka's."""

    # aiokafka has no types
    _records: dict[TopicPartition, Any]
    _subscriptions: Any
    _wait_consume_future: Any

    async def fetched_records(
        self,
        partitions: Collection[TopicPartition],
        timeout: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Any]]:
        """Return the next records by partition; see aiokafka."""
        if not self._subscriptions.reassignment_in_progress:
            found = self._take(partitions, max_records)
            if found:
                return found
        waited_for: dict[TopicPartition, list[Any]] = await super().fetched_records(
            partitions, timeout, max_records
        )
        return waited_for

    def _take(
        self, partitions: Collection[TopicPartition], most: int | None
    ) -> dict[TopicPartition, list[Any]]:
        """What is there; nothing from an error on, which is raised when nothing else is left."""
        found: dict[TopicPartition, list[Any]] = {}
        for tp in list(self._records):
            if most == 0:
                break
            if partitions and tp not in partitions:
                continue
            result = self._records[tp]
            if type(result) is not FetchResult:
                break
            records = _records_of(result, most)
            if not result.has_more():
                del self._records[tp]
                self._notify(self._wait_consume_future)
            if records:
                found[tp] = records
                most = None if most is None else most - len(records)
        return found


def _records_of(result: Any, most: int | None) -> list[Any]:
    """At most so many records of one partition; its position moves behind them."""
    if not result.check_assignment(result._topic_partition) or not result.has_more():
        return []
    fetched = result._partition_records
    records = list(islice(fetched._records_iterator, most))
    result._update_position()
    if most is None or len(records) < most:
        fetched._records_iterator = None  # it has ended, and would keep its buffer
        result._partition_records = None
    return records
