"""Requests about groups, and their answers: members, what they read, commits.

**Rules.** What a member owns is what its group reads: of a streams group the topics of its active
tasks, of a group with other resources (Connect, a Worker) nothing.

References: KIP-709 (commits of many groups), KIP-848, KIP-932, KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from holdfast.cluster.connections import raise_code
from holdfast.cluster.snapshot import GONE, SeenGroup, SeenMember, epochs_of
from holdfast.cluster.versions import GROUP_REQUESTS, REQUESTS
from holdfast.core.kinds import CONSUMER_PROTOCOL, GroupType
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment, decode_subscription
from holdfast.errors import WireError

NOT_FOUND: Final = 69
"""GROUP_ID_NOT_FOUND: a group that ended after it was listed has no members and no commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a group in a partition."""

    group: str
    topic: str
    partition: int
    offset: int  # the commit, or where a share group starts
    # Records that a share group has not processed, -1 if its broker does not say; None for others.
    share_lag: int | None = None
    metadata: str | None = None  # metadata of the commit; None if not known


def seen_group(kind: GroupType, one: Any) -> SeenGroup:
    """Return the group of a coordinator's answer, if it may be described."""
    if one.error_code == NOT_FOUND:
        return SeenGroup(group=one.group_id, kind=kind, state=GONE)
    row = DESCRIBED[kind]
    read, waits = row.read(one), row.waits(one)
    return SeenGroup(
        group=one.group_id,
        kind=kind,
        state=one.group_state,
        protocol=getattr(one, "protocol_data", "") or getattr(one, "assignor_name", "") or "",
        members=tuple(
            SeenMember(
                member_id=member.member_id,
                instance_id=getattr(member, row.instance, None),
                client_id=member.client_id,
                client_host=member.client_host,
                partitions=tuple(sorted(read(member))),
                **waits(member),
            )
            for member in one.members
        ),
        protocol_type=getattr(one, "protocol_type", "") or CONSUMER_PROTOCOL,
        messages=_messages(one) if kind is GroupType.CLASSIC else {},
        epochs=epochs_of(kind, one),
    )


def _messages(group: Any) -> dict[str, tuple[bytes, bytes]]:
    """Return the subscription and the assignment of members with both."""
    found = {
        one.member_id: (bytes(one.member_metadata or b""), bytes(one.member_assignment or b""))
        for one in group.members
    }
    return {member_id: both for member_id, both in found.items() if all(both)}


def describe_request(kind: GroupType, groups: list[str]) -> Any:
    """Build a request for the members of groups, all of one kind."""
    if kind is GroupType.CLASSIC:
        from kafka.protocol.admin import DescribeGroupsRequest

        return DescribeGroupsRequest(
            groups=groups, include_authorized_operations=False, **REQUESTS["DescribeGroups"].bounds
        )
    name = DESCRIBED[kind].request
    return request_class(name)(
        group_ids=groups, include_authorized_operations=False, **GROUP_REQUESTS[name].bounds
    )


def request_class(name: str) -> Any:
    """Return the class of a request of GROUP_REQUESTS, which kafka-python lacks."""
    return _classes(name)[0]


@cache
def _classes(name: str) -> tuple[Any, ...]:
    """Make a request and its answer; kafka-python finds the answer's class by the number.

    ``messages/*.json`` have the names, types and versions of the fields, as Kafka 4.3 has them;
    kafka-python makes a class from a description, as it does for its own.
    """
    from kafka.protocol.api_message import ApiMessage

    make: Any = type(ApiMessage)
    home = f"{__package__}.messages"
    ends = ("Request", "Response")
    return tuple(make(f"{name}{end}", (ApiMessage,), {}, load_json=home) for end in ends)


def fetch_request(groups: list[str]) -> Any:
    """Build a request for all commits of groups, in the fields of every version.

    Old versions request only the first group.
    """
    from kafka.protocol.consumer import OffsetFetchRequest

    return OffsetFetchRequest(
        group_id=groups[0],
        topics=None,
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
            for group in groups
        ],
        require_stable=False,
        **REQUESTS["OffsetFetch"].bounds,
    )


def commits_of(group: str, answer: Any) -> list[Position]:
    """Return the commits of a group, from its part of an answer."""
    if answer.error_code == NOT_FOUND:
        return []
    raise_code(answer.error_code, f"group {group!r}")
    found = []
    for topic in answer.topics:
        for part in topic.partitions:
            raise_code(part.error_code, f"topic {topic.name!r}")
            if part.committed_offset >= 0:
                found.append(
                    Position(
                        group=group,
                        topic=topic.name,
                        partition=part.partition_index,
                        offset=part.committed_offset,
                        metadata=part.metadata,
                    )
                )
    return found


Read = Callable[[Any], Iterable[tuple[str, tuple[int, ...]]]]
"""Takes a member, and returns what it reads."""
Subscribed = Callable[[Any], frozenset[str] | None]
"""Takes a member, and returns the topics that it subscribes to; None if not known."""
Waits = Callable[[Any], Mapping[str, Any]]
"""Takes a member, and returns what its group waits for, as fields of a SeenMember."""


def _read_classic(group: Any) -> Read:
    if group.protocol_type != CONSUMER_PROTOCOL:
        return lambda member: ()

    def read(member: Any) -> Iterable[tuple[str, tuple[int, ...]]]:
        try:
            return decode_assignment(bytes(member.member_assignment)).partitions
        except WireError:  # no assignment yet, or one in an assignor's own format
            return ()

    return read


def _read_assigned(group: Any) -> Read:
    return lambda member: [
        (topic.topic_name, tuple(sorted(topic.partitions)))
        for topic in member.assignment.topic_partitions
    ]


def _sources_of(subtopology: Any) -> set[str]:
    """Return the topics that the tasks of a subtopology read."""
    repartitioned = (topic.name for topic in subtopology.repartition_source_topics)
    return {*subtopology.source_topics, *repartitioned}


def _read_tasks(group: Any) -> Read:
    parts = group.topology.subtopologies or () if group.topology else ()
    reads = {part.subtopology_id: _sources_of(part) for part in parts}

    def read(member: Any) -> Iterable[tuple[str, tuple[int, ...]]]:
        found: dict[str, set[int]] = {}
        for tasks in member.assignment.active_tasks:
            for topic in reads.get(tasks.subtopology_id, ()):
                found.setdefault(topic, set()).update(tasks.partitions)
        return [(topic, tuple(sorted(numbers))) for topic, numbers in found.items()]

    return read


def _subscribed_classic(group: Any) -> Subscribed:
    def topics_of(member: Any) -> frozenset[str] | None:
        try:
            return frozenset(decode_subscription(bytes(member.member_metadata)).topics)
        except WireError:  # none while the group rebalances
            return None

    return topics_of if group.protocol_type == CONSUMER_PROTOCOL else _unknown(group)


def _subscribed_consumer(_: Any) -> Subscribed:
    # Only the broker knows the topics of a regular expression.
    return lambda member: (
        None if member.subscribed_topic_regex else frozenset(member.subscribed_topic_names)
    )


def _subscribed_streams(group: Any) -> Subscribed:
    parts = group.topology.subtopologies or () if group.topology else ()
    found = frozenset(topic for part in parts for topic in _sources_of(part)) or None
    return lambda member: found


def _unknown(_: Any) -> Subscribed:
    return lambda member: None


def _not_reported(group: Any) -> Waits:
    return lambda member: {}


def _in_epochs(group: Any) -> Waits:
    """Return a reader of pending revocations: partitions beyond a member's target."""

    def waits(member: Any) -> Mapping[str, Any]:
        has, shall = (_flat(one) for one in (member.assignment, member.target_assignment))
        is_behind = 0 <= member.member_epoch < max(group.group_epoch, group.assignment_epoch)
        return {"n_pending_revocations": len(has - shall), "is_behind": is_behind}

    return waits


def _flat(assignment: Any) -> set[tuple[Any, int]]:
    """Return the partitions, or active tasks, of an assignment."""
    if hasattr(assignment, "active_tasks"):
        parts = [(one.subtopology_id, one.partitions) for one in assignment.active_tasks]
    else:
        parts = [(one.topic_id, one.partitions) for one in assignment.topic_partitions]
    return {(owned, number) for owned, numbers in parts for number in numbers}


class DescribedKind(NamedTuple):
    """How the members of groups of one kind are requested, and read from a group's answer."""

    request: str
    read: Callable[[Any], Read]
    subscribed: Callable[[Any], Subscribed] = _unknown
    waits: Callable[[Any], Waits] = _not_reported
    instance: str = "instance_id"  # the field with the name of a static member


DESCRIBED: Final[Mapping[GroupType, DescribedKind]] = {
    GroupType.CLASSIC: DescribedKind(
        "DescribeGroups", _read_classic, _subscribed_classic, instance="group_instance_id"
    ),
    GroupType.CONSUMER: DescribedKind(
        "ConsumerGroupDescribe", _read_assigned, _subscribed_consumer, _in_epochs
    ),
    # It has no static members, and no member revokes partitions before others get them.
    GroupType.SHARE: DescribedKind("ShareGroupDescribe", _read_assigned),
    GroupType.STREAMS: DescribedKind(
        "StreamsGroupDescribe", _read_tasks, _subscribed_streams, _in_epochs
    ),
}


def name_of(code: int) -> str:
    """Return Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
