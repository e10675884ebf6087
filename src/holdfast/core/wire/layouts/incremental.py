"""The embedded protocol of the document "Incremental Cooperative Rebalancing".

=======  ============================================  ============================================
version  Subscription                                  Assignment
=======  ============================================  ============================================
1        SubscribeTopics []string,                     AssignedTopicPartitions [](Topic string,
         PartitionAssignorData bytes,                  Partitions []int32),
         AssignedTopicPartitions [](Topic string,      RevokeTopicPartitions [](Topic, Partitions)
         Partitions []int32)
2        same                                          + ScheduledRebalanceTimeout int32
3        same                                          same
=======  ============================================  ============================================

**Rules.**

* The types are Kafka's classic ones. The version is the number of the design.
* A member then owns (owned - revoked) + assigned. It keeps a partition that the assignment does not
  list: absence never revokes.
* Lists may be null. Null and empty ``revoked`` differ. Empty means that another member revokes a
  partition: another round follows, and this member may join again at once. Null has neither
  meaning.
* The timeout is in ms, 0 to 2**31 - 1; 0 means no timeout. A negative timeout is refused.
* A version above 3 is read as 3, and bytes after the last known field are ignored.

**Strategy.** These messages are the document's reference, and are only read, by ``holdfast
decode``. No member uses them: in every group, of :class:`holdfast.Worker` too, the same content is
in :mod:`holdfast.core.wire.layouts.container`.

References: Incremental Cooperative Rebalancing: Support and Policies, Designs I, II and III.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.designs import Design
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.one.reader import TOPIC_PARTITIONS_MIN, Reader, read_topic_partitions

DESIGN_SUBSCRIPTION = "DesignSubscription"
DESIGN_ASSIGNMENT = "DesignAssignment"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignSubscription:
    """The document's Subscription."""

    design: Design  # which design the member runs
    topics: tuple[str, ...]  # topics subscribed
    assignor_data: bytes | None = None  # the assignor's own bytes
    # partitions that the member owns; null or empty for a new member
    assigned: TopicPartitions | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignAssignment:
    """The document's Assignment."""

    design: Design  # which design the leader runs
    # Further partitions of the member; null repeats the last assignment.
    assigned: TopicPartitions | None = ()
    # Partitions to revoke before joining again. Empty, not null: another round follows.
    revoked: TopicPartitions | None = ()
    timeout_ms: int = 0  # ScheduledRebalanceTimeout, 0 none; Design I has none


def decode_design_subscription(data: bytes) -> DesignSubscription:
    """Read the document's Subscription."""
    reader = Reader(data, DESIGN_SUBSCRIPTION)
    return DesignSubscription(
        design=_read_design(reader),
        topics=reader.strings("subscribe_topics"),
        assignor_data=reader.nullable_bytes("partition_assignor_data"),
        assigned=_read_list(reader, "assigned_topic_partitions"),
    )


def decode_design_assignment(data: bytes) -> DesignAssignment:
    """Read the document's Assignment."""
    reader = Reader(data, DESIGN_ASSIGNMENT)
    design = _read_design(reader)
    return DesignAssignment(
        design=design,
        assigned=_read_list(reader, "assigned_topic_partitions"),
        revoked=_read_list(reader, "revoke_topic_partitions"),
        timeout_ms=0 if design is Design.SIMPLE else reader.delay_ms("scheduled_rebalance_timeout"),
    )


def _read_design(reader: Reader) -> Design:
    return Design(reader.leading_version(int(Design.INCREMENTAL), int(Design.SIMPLE)))


def _read_list(reader: Reader, field: str) -> TopicPartitions | None:
    return reader.nullable_array(field, read_topic_partitions, TOPIC_PARTITIONS_MIN)
