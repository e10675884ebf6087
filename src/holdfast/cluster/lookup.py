"""Queries to the cluster: topics, partition counts, racks, leaders, offsets, records.

**Rules.** No query creates a topic. A topic that cannot be described does not fail the query:
:meth:`Lookup.partitions` returns for each topic its number of partitions, or why it is not known.
Each attempt builds a new request, because a request keeps the version in which it was sent. Records
are fetched only from topics that the principal may read: the cluster's authorizer would log a
refusal.

References: KIP-79 (offsets by time), KIP-430 (authorized operations), KIP-516 (topic ids);
versions: :data:`~holdfast.cluster.versions.REQUESTS`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.cluster.connections import (
    Connections,
    TopicPartition,
    is_passing,
    on_io_thread,
    raise_code,
    reason,
    words_of,
)
from holdfast.cluster.versions import REQUESTS
from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import RemoteProtocolError

EARLIEST, LATEST = -2, -1
NODE_PATIENCE_S = 5.0
"""How long a leader is retried for requests that are not essential, in s."""
_PAUSE_S = 0.5
_READ = 3  # AclOperation.READ
_LARGEST_ANSWER_BYTES = 16 << 20

FETCH_BYTES = 32 << 20
"""Approximate bytes of records in one Fetch answer: a larger batch comes whole."""
FETCH_PARTITION_BYTES = 8 << 20
_FETCH_WAIT_MS = 100
"""How long a leader waits for records: some exist, unless it is a new leader."""
_OFFSET_OUT_OF_RANGE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopics:
    """The answer to a query for topics."""

    counts: Mapping[str, int]  # partitions of each topic that was described
    # Kafka's error code of each other topic that was requested by name.
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTopic:
    """A topic as the cluster describes it."""

    name: str
    topic_id: UUID  # its id; 0 from a broker before Kafka 2.8
    leaders: Mapping[int, int]  # partition -> node of its leader, -1 for none now
    is_readable: bool = True  # False if requested, and it may not be read (KIP-430)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTopics:
    """Topics of a cluster."""

    cluster_id: str
    found: tuple[ClusterTopic, ...]  # sorted by name
    refused: Mapping[str, int]  # Kafka's error code of each topic that is not described


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedLog:
    """Part of the log of one partition."""

    records: bytes  # record batches; the last one may be cut off
    end: int = -1  # end of the leader's log for readers, -1 if not known
    is_out_of_range: bool = False  # the log does not have the requested offset


_NO_ID = UUID(int=0)


class Lookup:
    """Queries the brokers, over the connections of a member or of a command."""

    def __init__(self, connections: Connections):
        self.connections = connections
        self._send = connections.send
        self._committed_only = connections.settings["isolation.level"] == "read_committed"

    @on_io_thread
    async def topics(
        self, names: Collection[str] | None = None, *, operations: bool = False
    ) -> ClusterTopics:
        """Describe the topics ``names`` (None: all); ``operations``: also what may be read."""
        metadata = partial(self._metadata, names, operations=operations)
        answer = await self.connections.again(metadata)
        found = [
            ClusterTopic(
                name=topic.name,
                topic_id=getattr(topic, "topic_id", None) or _NO_ID,
                leaders={p.partition_index: p.leader_id for p in topic.partitions},
                is_readable=not operations or _may_be_read(topic),
            )
            for topic in answer.topics
            if not topic.error_code
        ]
        return ClusterTopics(
            cluster_id=answer.cluster_id or "",
            found=tuple(sorted(found, key=lambda topic: topic.name)),
            refused={t.name: t.error_code for t in answer.topics if t.error_code},
        )

    @on_io_thread
    async def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        at: int,
        *,
        committed_only: bool | None = None,
    ) -> dict[TopicPartition, int]:
        """Request the :data:`EARLIEST` or :data:`LATEST` offset of each partition from its leader.

        A partition that has no leader now, or whose leader does not know, is missing from the
        answer; if all are, the request is repeated until the request time-out, and then fails.
        Whether the latest offset is the last stable one follows ``isolation.level`` by default.
        """
        found = await self._offsets_at(dict.fromkeys(partitions, at), committed_only)
        return {tp: offset for tp, (offset, _) in found.items()}

    @on_io_thread
    async def known_offsets(
        self, partitions: Collection[TopicPartition], at: int
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Request as :meth:`list_offsets`; return after NODE_PATIENCE_S why others are missing."""
        found: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, Exception] = {}
        deadline = time.monotonic() + NODE_PATIENCE_S
        while left := [tp for tp in partitions if tp not in found]:
            times = dict.fromkeys(left, at)
            some, failed = await self.connections.again(
                partial(self._ask_each_leader, times, committed_only=False)
            )
            found |= {tp: offset for tp, (offset, _) in some.items()}
            passing = any(map(is_passing, failed.values()))
            if not failed or not passing or time.monotonic() >= deadline:
                break
            await self.connections.sleep(_PAUSE_S)
        return found, {tp: reason(error) for tp, error in failed.items()}

    @on_io_thread
    async def offsets_at(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Request offset and time of the first record at or after a time, -1 for none.

        Times are milliseconds since 1970, or :data:`EARLIEST` or :data:`LATEST`. A partition is
        missing from the answer as from that of :meth:`list_offsets`.
        """
        return await self._offsets_at(times)

    async def _offsets_at(
        self, times: Mapping[TopicPartition, int], committed_only: bool | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        isolation = self._committed_only if committed_only is None else committed_only

        async def ask() -> dict[TopicPartition, tuple[int, int]]:
            found, failed = await self._ask_each_leader(times, isolation)
            if failed and not found:
                raise next(iter(failed.values()))
            return found

        return await self.connections.again(ask)

    async def _ask_each_leader(
        self, times: Mapping[TopicPartition, int], committed_only: bool
    ) -> tuple[dict[TopicPartition, tuple[int, int]], dict[TopicPartition, Exception]]:
        """Return offsets and times, and the failure of each other partition."""
        from kafka.errors import KafkaError, LeaderNotAvailableError

        leaders = await self._leaders({topic for topic, _ in times})
        failed: dict[TopicPartition, Exception] = {
            tp: LeaderNotAvailableError("it has no leader")
            for tp in times
            if leaders.get(tp, -1) < 0
        }
        found: dict[TopicPartition, tuple[int, int]] = {}
        for node, topics in _by_node(times, leaders):
            try:
                request = _list_request(topics, committed_only, self.connections.timeout_ms)
                answer = await self._send(request, node)
            except KafkaError as error:
                named = type(error)(f"{self.connections.address(node)}: {words_of(error)}")
                failed |= {(t, p): named for t, ps in topics.items() for p in ps}
                continue
            for topic in answer.topics:
                for part in topic.partitions:
                    tp = topic.name, part.partition_index
                    try:
                        raise_code(part.error_code, f"topic {topic.name!r}")
                    except (KafkaError, RemoteProtocolError) as error:
                        failed[tp] = error
                        continue
                    found[tp] = part.offset, part.timestamp
        return found, failed

    @on_io_thread
    async def first_batches(
        self, offsets: Mapping[TopicPartition, int], n_bytes: int, at_once: int = 1_000
    ) -> dict[TopicPartition, Any]:
        """Fetch the batches from an offset on, as consumers of committed records get them.

        A partition (its FetchResponse's PartitionData) is missing if it has no leader now, its
        leader does not answer or answers with an error, or the principal may not read its topic.

        Parameters
        ----------
        n_bytes : int
            Limit of whole batches of each partition. The first partition with records of each
            request has its first batch, however large.
        at_once : int
            Partitions in one request.
        """
        from kafka.errors import KafkaError

        topics = {topic for topic, _ in offsets}
        described = await self.connections.again(lambda: self._metadata(topics, operations=True))
        leaders = _leaders_of(topic for topic in described.topics if _may_be_read(topic))
        found: dict[TopicPartition, Any] = {}
        tps = [*offsets.items()]
        for first in range(0, len(tps), at_once):
            for node, some in _by_node(dict(tps[first : first + at_once]), leaders):
                try:
                    answer = await self._send(
                        _fetch_request(some, n_bytes, committed_only=True), node
                    )
                except KafkaError:
                    continue
                for topic in answer.responses:
                    for part in topic.partitions:
                        if not part.error_code:
                            found[topic.topic, part.partition_index] = part
        return found

    @on_io_thread
    async def fetch(self, topic: str, offsets: Mapping[int, int]) -> dict[int, FetchedLog]:
        """Fetch record batches of partitions from start offsets on, open transactions included.

        A partition is missing from the answer as from that of :meth:`list_offsets`.
        """
        return await self.connections.again(lambda: self._fetch(topic, offsets))

    async def _fetch(self, topic: str, offsets: Mapping[int, int]) -> dict[int, FetchedLog]:
        from kafka.errors import KafkaError, LeaderNotAvailableError

        leaders = await self._leaders({topic})
        tps = {(topic, partition): offset for partition, offset in offsets.items()}
        failed: Exception | None = None
        for _, partition in tps:
            if leaders.get((topic, partition), -1) < 0:
                failed = LeaderNotAvailableError(f"{topic}-{partition} has no leader")
        found: dict[int, FetchedLog] = {}
        for node, wanted in _by_node(tps, leaders):
            request = _fetch_request(
                wanted,
                FETCH_PARTITION_BYTES,
                committed_only=False,
                most_bytes=FETCH_BYTES,
                wait_ms=_FETCH_WAIT_MS,
            )
            answer = await self._send(request, node)
            raise_code(answer.error_code)
            for part in (part for one in answer.responses for part in one.partitions):
                code = part.error_code
                if code == _OFFSET_OUT_OF_RANGE:
                    found[part.partition_index] = FetchedLog(records=b"", is_out_of_range=True)
                    continue
                try:
                    raise_code(code, f"topic {topic!r}")
                except KafkaError as error:
                    failed = error
                    continue
                found[part.partition_index] = FetchedLog(
                    records=bytes(part.records or b""), end=part.high_watermark
                )
        if failed is not None and not found:
            raise failed
        return found

    @on_io_thread
    async def partitions(self, topics: Collection[str] | None) -> FoundTopics:
        """Count the partitions of ``topics`` (None: of all that are not internal)."""
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

    @on_io_thread
    async def racks(self, topics: Collection[str]) -> dict[str, list[tuple[str, ...]]]:
        """Return the racks of each partition's replicas, sorted (KIP-881)."""
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

    async def _metadata(self, topics: Collection[str] | None, *, operations: bool = False) -> Any:
        from kafka.protocol.metadata import MetadataRequest

        wanted = (
            None
            if topics is None
            else [MetadataRequest.MetadataRequestTopic(name=t) for t in sorted(topics)]
        )
        request = MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=operations,
            **REQUESTS["Metadata"].bounds,
        )
        answer = await self._send(request)
        raise_code(getattr(answer, "error_code", 0) or 0)  # of the whole answer since version 13
        return answer

    async def _leaders(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        return _leaders_of((await self._metadata(topics)).topics)


def _list_request(
    topics: Mapping[str, Mapping[int, int]], committed_only: bool, timeout_ms: int
) -> Any:
    from kafka.protocol.consumer import ListOffsetsRequest

    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed_only),
        topics=[
            kind(
                name=topic,
                partitions=[
                    kind.ListOffsetsPartition(
                        partition_index=p, current_leader_epoch=-1, timestamp=at
                    )
                    for p, at in partitions.items()
                ],
            )
            for topic, partitions in topics.items()
        ],
        timeout_ms=timeout_ms,
        **REQUESTS["ListOffsets"].bounds,
    )


def _leaders_of(topics: Iterable[Any]) -> dict[TopicPartition, int]:
    """Return the leader of each partition of described topics, -1 for none now."""
    return {
        (topic.name, part.partition_index): part.leader_id
        for topic in topics
        for part in topic.partitions
    }


def _by_node(
    values: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, int]
) -> Iterator[tuple[int, dict[str, dict[int, int]]]]:
    """Yield each leader with a value of each of its partitions, by topic and partition."""
    found: dict[int, dict[str, dict[int, int]]] = {}
    for (topic, partition), value in sorted(values.items()):
        node = leaders.get((topic, partition), -1)
        if node >= 0:
            found.setdefault(node, {}).setdefault(topic, {})[partition] = value
    yield from found.items()


def _may_be_read(topic: Any) -> bool:
    operations = topic.authorized_operations
    # Brokers before Kafka 2.3 do not report operations.
    return not isinstance(operations, set) or _READ in operations


def _fetch_request(
    topics: Mapping[str, Mapping[int, int]],
    n_bytes: int,
    *,
    committed_only: bool,
    most_bytes: int = _LARGEST_ANSWER_BYTES,
    wait_ms: int = 0,
) -> Any:
    """Build a Fetch outside of a session (KIP-227), of a client that is not a replica.

    ``n_bytes`` and ``most_bytes`` limit each partition and the whole answer. With
    ``committed_only`` records after the start of an open transaction are omitted. A leader waits
    for records for ``wait_ms``.
    """
    from kafka.protocol.consumer import FetchRequest

    kind = FetchRequest.FetchTopic
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=int(wait_ms > 0),
        max_bytes=most_bytes,
        isolation_level=int(committed_only),
        session_id=0,
        session_epoch=-1,
        topics=[
            kind(
                topic=topic,
                partitions=[
                    kind.FetchPartition(
                        partition=partition,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=n_bytes,
                    )
                    for partition, offset in partitions.items()
                ],
            )
            for topic, partitions in topics.items()
        ],
        forgotten_topics_data=[],
        rack_id="",
        **REQUESTS["Fetch"].bounds,
    )
