"""kafka-python does not wait for partitions at their end while others have records.

**The fault.** kafka-python has one fetch out to each broker. While it hands out what has arrived it
already asks for more, but not of the partitions whose records wait to be handed out. If all that it
can ask for is at its end, the broker holds that fetch for ``fetch_max_wait_ms`` (500 ms), and until
then nothing of the others can be asked for. So a consumer with one partition behind and others at
their end reads one answer every half second. The same happens when an answer arrives between the
last look at what has arrived and the next fetch. The original's own coordinator lets the network
thread run before each look, which makes that rare; ours never waits for that thread in ``poll``.

**Rule.** While records of a broker wait to be handed out, it gets no fetch that names only
partitions at their end. Once they are handed out, one fetch asks for all. (Java's consumer sends no
fetch at all to such a broker.) Versions that were not tested are left as they are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import kafka
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher

from holdfast.cluster.client_versions import TESTED


class _PatientFetcher(Fetcher):  # type: ignore[misc]  # kafka-python has no types
    def _fetchable_partitions(self) -> list[TopicPartition]:
        fetchable: list[TopicPartition] = super()._fetchable_partitions()
        waiting = {answer.topic_partition for answer in self._completed_fetches.copy()}
        current = self._next_partition_records
        if current:
            waiting.add(current.topic_partition)
        held = {self._select_read_replica(tp) for tp in waiting if self._is_assigned(tp)}
        if not held:
            return fetchable
        of_node = defaultdict(list)
        for tp in fetchable:
            of_node[self._select_read_replica(tp)].append(tp)
        return [
            tp
            for node, partitions in of_node.items()
            if node not in held or not all(map(self._is_at_end, partitions))
            for tp in partitions
        ]

    def _is_assigned(self, tp: TopicPartition) -> bool:
        return bool(self._subscriptions.is_assigned(tp))

    def _is_at_end(self, tp: TopicPartition) -> bool:
        """Whether the last answer about this partition, if there was one, gave all there was."""
        state = self._subscriptions.assignment[tp]
        return state.highwater is not None and state.position.offset >= state.highwater


def fetch_what_is_there(consumer: Any) -> None:
    """Let this consumer fetch what is there before it waits for what comes.

    Parameters
    ----------
    consumer : kafka.KafkaConsumer
    """
    if kafka.__version__ in TESTED["kafka-python"]:
        # the fetcher exists and its metrics are registered by name, so no second one can be made
        consumer._fetcher.__class__ = _PatientFetcher
