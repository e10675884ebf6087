"""Questions of a member to the cluster: partition counts, racks, offsets.

**Rules.** No question creates a topic. A topic that cannot be described costs the question nothing:
:meth:`Lookup.partitions` says of each topic how many partitions it has, or why that is not known.

References: Kafka protocol guide: Metadata v4-9, ListOffsets v2-7.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import kafka.errors
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from holdfast.adapters.cluster.connections import Connections, TopicPartition, raise_code
from holdfast.machine.codes import ErrorCode

EARLIEST, LATEST = -2, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopics:
    """The answer to a question for topics.

    Parameters
    ----------
    counts : mapping of str to int
        Partitions of each topic that was described.
    refused : mapping of str to int
        Kafka's error code of each other topic that was asked for by its name.
    """

    counts: Mapping[str, int]
    refused: Mapping[str, int] = field(default_factory=dict)


class Lookup:
    """Asks the brokers, over the connections of a member."""

    def __init__(self, connections: Connections):
        self._connections = connections
        self._send = connections.send
        self._committed_only = connections.settings["isolation.level"] == "read_committed"

    def list_offsets(
        self, partitions: Collection[TopicPartition], at: int
    ) -> concurrent.futures.Future[dict[TopicPartition, int]]:
        """Ask the partitions' leaders for the :data:`EARLIEST` or :data:`LATEST` offset of each.

        A partition that has no leader now, or whose leader cannot say, is missing from the answer;
        if all are, the question is repeated until the request time-out is over, and then fails.
        """

        async def work() -> dict[TopicPartition, int]:
            return await self._connections.again(lambda: self._list_offsets(list(partitions), at))

        return self._connections.future(work())

    async def _list_offsets(
        self, partitions: list[TopicPartition], at: int
    ) -> dict[TopicPartition, int]:
        leaders = await self._leaders({topic for topic, _ in partitions})
        by_node: dict[int, dict[str, list[int]]] = {}
        failed: kafka.errors.KafkaError | None = None
        for topic, partition in sorted(partitions):
            node = leaders.get((topic, partition))
            if node is None or node < 0:
                failed = kafka.errors.LeaderNotAvailableError(f"{topic}-{partition} has no leader")
                continue
            by_node.setdefault(node, {}).setdefault(topic, []).append(partition)
        found: dict[TopicPartition, int] = {}
        for node, topics in by_node.items():
            answer = await self._send(self._list_request(topics, at), node)
            for topic in answer.topics:
                for part in topic.partitions:
                    try:
                        raise_code(part.error_code, f"topic {topic.name!r}")
                    except kafka.errors.KafkaError as error:
                        failed = error
                        continue
                    found[(topic.name, part.partition_index)] = part.offset
        if failed is not None and not found:
            raise failed
        return found

    def _list_request(self, topics: Mapping[str, list[int]], at: int) -> Any:
        kind = ListOffsetsRequest.ListOffsetsTopic
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self._committed_only),
            topics=[
                kind(
                    name=topic,
                    partitions=[
                        kind.ListOffsetsPartition(
                            partition_index=p, current_leader_epoch=-1, timestamp=at
                        )
                        for p in partitions
                    ],
                )
                for topic, partitions in topics.items()
            ],
            min_version=2,
            max_version=7,
        )

    def partitions(self, topics: Collection[str] | None) -> concurrent.futures.Future[FoundTopics]:
        """Count the partitions of these topics (None: of all that are not internal)."""

        async def work() -> FoundTopics:
            answer = await self._metadata(topics)
            counts = {
                topic.name: len(topic.partitions)
                for topic in answer.topics
                if not topic.error_code and not (topics is None and topic.is_internal)
            }
            refused = dict.fromkeys(topics or (), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            refused |= {topic.name: topic.error_code for topic in answer.topics}
            for name in counts:
                refused.pop(name, None)
            return FoundTopics(counts=counts, refused={} if topics is None else refused)

        return self._connections.future(work())

    def racks(
        self, topics: Collection[str]
    ) -> concurrent.futures.Future[dict[str, list[tuple[str, ...]]]]:
        """Racks that hold a replica of each partition of these topics, sorted (KIP-881)."""

        async def work() -> dict[str, list[tuple[str, ...]]]:
            answer = await self._metadata(topics)
            rack_of = {broker.node_id: broker.rack for broker in answer.brokers if broker.rack}
            found: dict[str, list[tuple[str, ...]]] = {}
            for topic in answer.topics:
                parts = sorted(topic.partitions, key=lambda part: part.partition_index)
                found[topic.name] = [
                    tuple(sorted({rack_of[n] for n in part.replica_nodes if n in rack_of}))
                    for part in parts
                ]
            return found

        return self._connections.future(work())

    async def _metadata(self, topics: Collection[str] | None) -> Any:
        wanted = (
            None
            if topics is None
            else [MetadataRequest.MetadataRequestTopic(name=t) for t in sorted(topics)]
        )
        request = MetadataRequest(
            topics=wanted, allow_auto_topic_creation=False, min_version=4, max_version=9
        )
        return await self._send(request)

    async def _leaders(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        answer = await self._metadata(topics)
        return {
            (topic.name, part.partition_index): part.leader_id
            for topic in answer.topics
            for part in topic.partitions
        }
