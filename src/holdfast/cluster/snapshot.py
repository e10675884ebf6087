"""A cluster at one moment, as values alone: topics, offsets, groups as coordinators describe them.

**Rules.** Nothing here imports a client library, so a page without a cluster costs nothing. Values
that a coordinator does not report are None. What a coordinator says of a group of KIP-848, KIP-932
or KIP-1071 has the fields of the group's records in the offsets topic; there, a number that an
answer does not have is 0, and a list is empty.

References: KIP-518 (states in ListGroups), KIP-848, KIP-932, KIP-1071.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from holdfast.core.kinds import BY_RECORD, CONSUMER_PROTOCOL, EpochRecords, GroupType
from holdfast.core.model.partitions import TopicPartitions

ShareRecord: TypeAlias = tuple[int, int, int, bytes | None, bytes | None]
"""Partition, offset, timestamp in microseconds, key and value of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Topics and offsets of a cluster at one moment."""

    cluster_id: str
    # Topic id (22 characters), topic, partitions; sorted by topic.
    topics: Sequence[tuple[str, str, int]]
    # Topic, partition, begin offset, end offset; sorted.
    offsets: Sequence[tuple[str, int, int, int]]
    taken_at: str  # ISO 8601, UTC; when the last offset was read
    # Records of ``__share_group_state``, each partition in order.
    share_state: Sequence[ShareRecord] = ()


JOINING: Final = "PreparingRebalance"
"""A classic group whose coordinator waits for members to join."""
SYNCING: Final = "CompletingRebalance"
"""A classic group whose coordinator waits for the leader's assignment."""
REBALANCING: Final = frozenset({JOINING, SYNCING, "Assigning", "Reconciling", "NotReady"})
"""States of a group whose members do not have their assignments yet, in Kafka's words."""
GONE: Final = "Dead"
"""State of a group that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMember:
    """A member as its coordinator describes it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    # The last assignment; sorted by topic.
    partitions: TopicPartitions = ()
    # Of KIP-848 and KIP-1071: the number of pending revocations; and whether the
    # member does not know the newest assignment. A classic coordinator reports neither.
    n_pending_revocations: int | None = None
    is_behind: bool | None = None


def member_label(
    *, instance_id: str | None, client_id: str, member_id: str, client_host: str
) -> str:
    """Return a member as people find it: its name, and its host if the coordinator reports one."""
    name = instance_id or client_id or member_id
    return f"{name} on {client_host}" if client_host else name


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup:
    """A group as its coordinator describes it."""

    group: str
    kind: GroupType
    state: str
    protocol: str = ""
    # None if not requested, or if the coordinator refused.
    members: tuple[SeenMember, ...] | None = None
    refused: str = ""  # why it was not described; empty if it was, or if not requested
    # Of a classic group: its protocol type, and member id -> bytes of subscription and assignment.
    protocol_type: str = CONSUMER_PROTOCOL
    messages: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    epochs: GroupEpochs | None = None  # of a group whose assignments the broker computes

    @property
    def is_rebalancing(self) -> bool:
        """Whether its members wait for their assignments."""
        return self.state in REBALANCING


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroups:
    """Groups of a cluster as their coordinators described them at one moment."""

    queried_ms: int  # when the states were reported, milliseconds since 1970
    groups: Mapping[str, SeenGroup]
    gone: frozenset[str] = frozenset()  # requested groups that no coordinator has
    unanswered: tuple[str, ...] = ()  # brokers that did not answer, and why


Fields: TypeAlias = Mapping[str, Any]
Owned: TypeAlias = Mapping[str, Sequence[Fields]]
"""Field of a target or a current assignment -> its lists of partitions, or of tasks."""

EPOCH_RECORDS: Final[Mapping[GroupType, EpochRecords]] = {
    kind.group_type: records for kind, records in BY_RECORD.values()
}
"""Type of a group whose assignments the broker computes -> the records of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochMember:
    """A member as its coordinator describes it."""

    epoch: int  # the member's epoch
    metadata: Fields  # the value of the member's record
    assigned: Owned  # what it has now, by the fields of its target
    target: Owned | None  # what it shall have; None if the answer does not say (a share group)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpochs:
    """A group whose assignments the broker computes, as its coordinator describes it."""

    group: int  # the group's epoch
    assignment: int  # the epoch of the target assignment
    members: Mapping[str, EpochMember]
    topology: Fields | None = None  # the value of a streams group's record of its topology


def epochs_of(kind: GroupType, one: Any) -> GroupEpochs | None:
    """Return the epochs of an answer about one group; None for a classic group."""
    if kind not in EPOCH_RECORDS:
        return None
    return GroupEpochs(
        group=one.group_epoch,
        assignment=one.assignment_epoch,
        members={member.member_id: _member(kind, one, member) for member in one.members},
        topology=_topology(one.topology) if kind is GroupType.STREAMS and one.topology else None,
    )


def _member(kind: GroupType, group: Any, member: Any) -> EpochMember:
    metadata: dict[str, Any] = {
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
    }
    if kind is not GroupType.SHARE:
        metadata |= {"instanceId": member.instance_id, "rebalanceTimeoutMs": 0}
    if kind is GroupType.STREAMS:
        metadata |= _of_streams(member)
    else:
        metadata["subscribedTopicNames"] = list(member.subscribed_topic_names)
    if kind is GroupType.CONSUMER:
        metadata |= {
            "subscribedTopicRegex": member.subscribed_topic_regex or None,
            "serverAssignor": group.assignor_name or None,
        }
    target = None if kind is GroupType.SHARE else _owned(member.target_assignment)
    return EpochMember(
        epoch=member.member_epoch,
        metadata=metadata,
        assigned=_owned(member.assignment),
        target=target,
    )


def _of_streams(member: Any) -> dict[str, Any]:
    endpoint = member.user_endpoint
    return {
        "topologyEpoch": member.topology_epoch,
        "processId": member.process_id,
        "userEndpoint": endpoint and {"host": endpoint.host, "port": endpoint.port},
        "clientTags": [{"key": one.key, "value": one.value} for one in member.client_tags],
    }


def _owned(assignment: Any) -> Owned:
    if not hasattr(assignment, "active_tasks"):
        parts = assignment.topic_partitions
        found = [{"topicId": one.topic_id, "partitions": sorted(one.partitions)} for one in parts]
        return {"topicPartitions": found}
    lists = {
        "activeTasks": assignment.active_tasks,
        "standbyTasks": assignment.standby_tasks,
        "warmupTasks": assignment.warmup_tasks,
    }
    return {
        name: [
            {"subtopologyId": one.subtopology_id, "partitions": sorted(one.partitions)}
            for one in tasks
        ]
        for name, tasks in lists.items()
    }


def _topology(topology: Any) -> Fields:
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "subtopologyId": one.subtopology_id,
                "sourceTopics": sorted(one.source_topics),
                "sourceTopicRegex": [],
                "stateChangelogTopics": [],
                "repartitionSinkTopics": sorted(one.repartition_sink_topics),
                "repartitionSourceTopics": [
                    {
                        "name": topic.name,
                        "partitions": topic.partitions,
                        "replicationFactor": topic.replication_factor,
                        "topicConfigs": [],
                    }
                    for topic in one.repartition_source_topics
                ],
                "copartitionGroups": [],
            }
            for one in topology.subtopologies or ()
        ],
    }
