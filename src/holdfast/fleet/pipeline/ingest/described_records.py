"""Records of the offsets topic, made of what coordinators answer about groups.

Every described group becomes a classic group of protocol type ``consumer``: an answer has neither
the metadata of members nor their time-outs, and does not say which generation it describes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from holdfast.core.kinds.kind import CONSUMER_PROTOCOL
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RecordType

KeyValue = tuple[bytes, bytes | None]
"""Key and value of a record; no value: a tombstone."""

_VERSION = 3  # of both values: the newest one without tagged fields


class Described(Protocol):
    """A member as a coordinator, or a tool that queries one, describes it."""

    @property
    def member_id(self) -> str:
        """Member id."""

    @property
    def instance_id(self) -> str | None:
        """``group.instance.id``; None for a dynamic member."""

    @property
    def client_id(self) -> str:
        """Client id."""

    @property
    def client_host(self) -> str:
        """Host that the broker saw."""

    @property
    def partitions(self) -> TopicPartitions:
        """Partitions that it was given."""


def generation_record(
    group: str, generation: int, members: Iterable[Described], at_ms: int, protocol: str = ""
) -> KeyValue:
    """Return the record of one generation of a group.

    A member subscribes, in the record, to every topic of which any member was given a partition.
    """
    found = tuple(members)
    topics = tuple(sorted({topic for one in found for topic, _ in one.partitions}))
    value = {
        "protocolType": CONSUMER_PROTOCOL,
        "generation": generation,
        "protocol": protocol or None,
        "leader": None,
        "currentStateTimestamp": at_ms,
        "members": [_member(one, topics) for one in found],
    }
    return _encoded(RecordType.GROUP_METADATA, {"group": group}, value)


def deleted_group(group: str) -> KeyValue:
    """Return the tombstone of a group."""
    return _encoded(RecordType.GROUP_METADATA, {"group": group}, None)


def commit_record(
    group: str, topic: str, partition: int, offset: int | None, at_ms: int
) -> KeyValue:
    """Return the record of a commit; without an offset the tombstone of one."""
    key: dict[str, object] = {"group": group, "topic": topic, "partition": partition}
    value: dict[str, object]
    value = {"offset": offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": at_ms}
    return _encoded(RecordType.OFFSET_COMMIT, key, None if offset is None else value)


def _member(one: Described, topics: tuple[str, ...]) -> dict[str, object]:
    return {
        "memberId": one.member_id,
        "groupInstanceId": one.instance_id,
        "clientId": one.client_id,
        "clientHost": one.client_host,
        "rebalanceTimeout": 0,
        "sessionTimeout": 0,
        "subscription": encode_subscription(Subscription(topics=topics)),
        "assignment": encode_assignment(AssignmentMessage(partitions=one.partitions)),
    }


def _encoded(kind: RecordType, key: dict[str, object], value: dict[str, object] | None) -> KeyValue:
    version = None if value is None else _VERSION
    record = Record(
        record_type=kind, name=kind.schema_name, key=key, value_version=version, value=value
    )
    return encode_record(record)
