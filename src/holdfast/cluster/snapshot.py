"""A cluster at one moment, as values alone: topics, offsets, groups as coordinators describe them.

**Rules.** Nothing here imports a client library, so a page without a cluster costs nothing. Values
that a coordinator does not report are None.

References: KIP-518 (states in ListGroups), KIP-848, KIP-1071.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.core.kinds.kind import CONSUMER_PROTOCOL, GroupType
from holdfast.core.model.partitions import TopicPartitions

if TYPE_CHECKING:
    from holdfast.cluster.epoch_groups import GroupEpochs

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
