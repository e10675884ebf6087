"""Questions of a member to the cluster: partition counts, racks, offsets.

**Rules.** No question creates a topic. :meth:`Lookup.partitions` leaves out a topic that does not
exist. It fails if the member may not read a topic.

References: Kafka protocol guide: Metadata v4-9, ListOffsets v2-7.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Collection, Mapping
from typing import Any

import kafka.errors
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from holdfast.adapters.cluster.connections import Connections, TopicPartition, raise_code
from holdfast.errors import RemoteProtocolError
from holdfast.machine.codes import ErrorCode, describe

EARLIEST, LATEST = -2, -1


class Lookup:
    """Asks the brokers, over the connections of a member."""

    def __init__(self, connections: Connections):
        self._connections = connections
        self._send = connections.send
        self._committed_only = connections.settings["isolation.level"] == "read_committed"

    def list_offsets(
        self, partitions: Collection[TopicPartition], at: int
    ) -> concurrent.futures.Future[dict[TopicPartition, int]]:
        """Ask the partitions' leaders for the :data:`EARLIEST` or :data:`LATEST` offset of each."""

        async def work() -> dict[TopicPartition, int]:
            return await self._connections.again(lambda: self._list_offsets(list(partitions), at))

        return self._connections.future(work())

    async def _list_offsets(
        self, partitions: list[TopicPartition], at: int
    ) -> dict[TopicPartition, int]:
        leaders = await self._leaders({topic for topic, _ in partitions})
        by_node: dict[int, dict[str, list[int]]] = {}
        for topic, partition in sorted(partitions):
            node = leaders.get((topic, partition))
            if node is None or node < 0:
                raise kafka.errors.LeaderNotAvailableError(f"{topic}-{partition} has no leader")
            by_node.setdefault(node, {}).setdefault(topic, []).append(partition)
        found: dict[TopicPartition, int] = {}
        for node, topics in by_node.items():
            answer = await self._send(self._list_request(topics, at), node)
            for topic in answer.topics:
                for part in topic.partitions:
                    raise_code(part.error_code)
                    found[(topic.name, part.partition_index)] = part.offset
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

    def partitions(
        self, topics: Collection[str] | None
    ) -> concurrent.futures.Future[dict[str, int]]:
        """Count the partitions of these topics (None: of all that are not internal)."""

        async def work() -> dict[str, int]:
            answer = await self._metadata(topics)
            counts = {}
            for topic in answer.topics:
                if topic.error_code in (
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    ErrorCode.GROUP_AUTHORIZATION_FAILED,
                ):
                    raise RemoteProtocolError(
                        f"topic {topic.name!r}: {describe(topic.error_code)}",
                        error_code=topic.error_code,
                    )
                if not topic.error_code and not (topics is None and topic.is_internal):
                    counts[topic.name] = len(topic.partitions)
            return counts

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
