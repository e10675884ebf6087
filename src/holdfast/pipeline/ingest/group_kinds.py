"""Kinds of groups whose assignments the broker computes: which records tell what of each.

**Rules.** Groups of KIP-848, share groups and streams groups have the same five records under
numbers of their own: the group's epoch, a member, the epoch of the target assignment, a member's
target, and what a member has now. One row of :data:`EPOCH_KINDS` is one kind, and no other place
lists its record types.

References
----------
KIP-848 (consumer), KIP-932 (share), KIP-1071 (streams).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from holdfast.pipeline.ingest.generations import (
    ACTIVE,
    CONSUMER,
    SHARE,
    SHARED,
    STANDBY,
    STREAMS,
    WARMUP,
)
from holdfast.wire.layouts.offsets_schemas import RecordType


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochKind:
    """One kind of group.

    Parameters
    ----------
    group_type : str
        As in the tables.
    epoch, member, target_epoch, target, current : RecordType
        Its records.
    roles : mapping of str to int
        Fields of ``target`` that list what a member is given, and what the member is to it: a role
        of :mod:`holdfast.pipeline.ingest.generations`.
    place : str
        Field of such a list that names the topic, or the subtopology.
    assigned, pending : str
        Fields of ``current`` with what a member works on alone, and what it is to give up; empty
        where many members may work on a partition at once.
    topology : RecordType or None
        The record that says which topics a subtopology reads.
    """

    group_type: str
    epoch: RecordType
    member: RecordType
    target_epoch: RecordType
    target: RecordType
    current: RecordType
    roles: Mapping[str, int]
    place: str = "topicId"
    assigned: str = ""
    pending: str = ""
    topology: RecordType | None = None

    @property
    def types(self) -> tuple[RecordType, ...]:
        """All its records that the tables are made of."""
        records = (self.epoch, self.member, self.target_epoch, self.target, self.current)
        return records if self.topology is None else (*records, self.topology)


EPOCH_KINDS: Final = (
    EpochKind(
        group_type=CONSUMER,
        epoch=RecordType.CONSUMER_GROUP_METADATA,
        member=RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        target_epoch=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        target=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        current=RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        roles={"topicPartitions": ACTIVE},
        assigned="assignedPartitions",
        pending="partitionsPendingRevocation",
    ),
    EpochKind(
        group_type=SHARE,
        epoch=RecordType.SHARE_GROUP_METADATA,
        member=RecordType.SHARE_GROUP_MEMBER_METADATA,
        target_epoch=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        target=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
        current=RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        roles={"topicPartitions": SHARED},
    ),
    EpochKind(
        group_type=STREAMS,
        epoch=RecordType.STREAMS_GROUP_METADATA,
        member=RecordType.STREAMS_GROUP_MEMBER_METADATA,
        target_epoch=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
        target=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        current=RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        roles={"activeTasks": ACTIVE, "standbyTasks": STANDBY, "warmupTasks": WARMUP},
        place="subtopologyId",
        assigned="activeTasks",
        pending="activeTasksPendingRevocation",
        topology=RecordType.STREAMS_GROUP_TOPOLOGY,
    ),
)

KIND_OF: Final[Mapping[int, EpochKind]] = MappingProxyType(
    {record_type: kind for kind in EPOCH_KINDS for record_type in kind.types}
)
"""Kind of group by the type of a record."""
