"""What the coordinators know of groups: their kinds, positions and members.

**Rules.** Nothing is joined, and no open transaction waited for. A group is asked about at the
broker that lists it; where the group has moved meanwhile, all brokers are asked again. What a
member owns is what its group reads: of a streams group the topics of its active tasks, of a group
that shares something else (Connect, a Worker) nothing.

**Strategy.** A request names all groups of one kind at one broker, up to :data:`AT_ONCE`. Brokers
before Kafka 3.0 are asked for the commits of one group at a time.

References: KIP-709 (commits of many groups), KIP-848, KIP-932, KIP-1071, KIP-1226.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from holdfast.cluster.connections import raise_code
from holdfast.cluster.versions import GROUP_REQUESTS, REQUESTS
from holdfast.core.kinds.kind import CONSUMER_PROTOCOL, GroupType
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.consumer_protocol import SubscriptionDecoder, decode_assignment
from holdfast.errors import WireError

if TYPE_CHECKING:
    from holdfast.cluster.lookup import Lookup

AT_ONCE: Final = 500
"""Groups in one request: its answer stays within a few megabytes."""
_GROUPS_SINCE = 8  # the version of OffsetFetch that asks for many groups
_GONE = 69
"""GROUP_ID_NOT_FOUND: a group that ended since it was listed has no members and no commits."""


DESCRIBED_BY: Final[Mapping[GroupType, str]] = {
    GroupType.CLASSIC: "DescribeGroups",
    GroupType.CONSUMER: "ConsumerGroupDescribe",
    GroupType.SHARE: "ShareGroupDescribe",
    GroupType.STREAMS: "StreamsGroupDescribe",
}
"""GroupType of a group -> the request about its members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group, its kind and its coordinator's node."""

    group: str
    kind: GroupType
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a group is in a partition."""

    group: str
    topic: str
    partition: int
    offset: int  # the commit, or where a share group starts
    # What a share group has not done yet, -1 where its broker does not say; None for others.
    share_lag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReader:
    """A member and what it reads."""

    # As the coordinator says.
    group: str
    member_id: str
    client_id: str
    client_host: str
    partitions: TopicPartitions  # sorted by topic
    subscribed: frozenset[str] | None = None  # topics that it asks for, where they are known


class GroupQuestions:
    """Asks about groups, over the connections of a lookup."""

    def __init__(self, lookup: Lookup):
        self._connections = lookup.connections
        self._listed: dict[str, ListedGroup] = {}

    @classmethod
    def ask(cls, lookup: Lookup) -> concurrent.futures.Future[Self]:
        """List the groups of every broker."""
        made = cls(lookup)

        async def work() -> Self:
            await made._connections.again(made._list)
            return made

        return made._connections.future(work)

    @property
    def listed(self) -> Mapping[str, ListedGroup]:
        """Every group that the brokers list, by its name."""
        return self._listed

    def members(
        self, kind: GroupType, groups: Sequence[str]
    ) -> concurrent.futures.Future[list[GroupReader]]:
        """Members of ``groups``, all of one kind, and what each reads."""
        return self._asked(groups, partial(self._describe, kind))

    def commits(self, groups: Sequence[str]) -> concurrent.futures.Future[list[Position]]:
        """Commits of ``groups``; not for share groups."""
        return self._asked(groups, self._fetch)

    def share_starts(self, groups: Sequence[str]) -> concurrent.futures.Future[list[Position]]:
        """Start offsets of the share groups ``groups``."""
        return self._asked(groups, self._share_starts)

    def _asked(
        self,
        groups: Sequence[str],
        ask: Callable[[int, list[str]], Coroutine[Any, Any, list[Any]]],
    ) -> concurrent.futures.Future[list[Any]]:
        """Ask each coordinator for its own of these groups; list all anew before a repetition."""
        is_first = True

        async def attempt() -> list[Any]:
            nonlocal is_first
            if not is_first:
                await self._list()
            is_first = False
            found = []
            for node, some in self._by_node(groups):
                found += await ask(node, some)
            return found

        async def work() -> list[Any]:
            return await self._connections.again(attempt)

        return self._connections.future(work)

    def _by_node(self, groups: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        nodes: dict[int, list[str]] = {}
        for group in sorted(groups):
            if group in self._listed:
                nodes.setdefault(self._listed[group].node, []).append(group)
        for node, names in sorted(nodes.items()):
            for at in range(0, len(names), AT_ONCE):
                yield node, names[at : at + AT_ONCE]

    async def _list(self) -> None:
        from kafka.protocol.admin import ListGroupsRequest
        from kafka.protocol.metadata import MetadataRequest

        bounds = REQUESTS["Metadata"].bounds
        brokers = await self._connections.send(
            MetadataRequest(topics=[], allow_auto_topic_creation=False, **bounds)
        )
        listed = {}
        for broker in brokers.brokers:
            request = ListGroupsRequest(**REQUESTS["ListGroups"].bounds)
            answer = await self._connections.send(request, broker.node_id)
            raise_code(answer.error_code)
            for one in answer.groups:
                kind = GroupType((getattr(one, "group_type", "") or GroupType.CLASSIC).lower())
                listed[one.group_id] = ListedGroup(
                    group=one.group_id, kind=kind, node=broker.node_id
                )
        self._listed = listed

    async def _describe(self, kind: GroupType, node: int, groups: list[str]) -> list[GroupReader]:
        answer = await self._connections.send(_describe_request(kind, groups), node)
        found = []
        for one in answer.groups:
            if one.error_code == _GONE:
                continue
            raise_code(one.error_code, f"group {one.group_id!r}")
            read, subscribed = _READ[kind](one), _SUBSCRIBED[kind](one)
            found += [
                GroupReader(
                    group=one.group_id,
                    member_id=member.member_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    partitions=tuple(sorted(read(member))),
                    subscribed=subscribed(member),
                )
                for member in one.members
            ]
        return found

    async def _fetch(self, node: int, groups: list[str]) -> list[Position]:
        found = []
        left = list(groups)
        while left:
            answer = await self._connections.send(_fetch_request(left), node)
            if answer.API_VERSION >= _GROUPS_SINCE:
                for one in answer.groups:
                    found += _commits(one.group_id, one)
                return found
            found += _commits(left.pop(0), answer)
        return found

    async def _share_starts(self, node: int, groups: list[str]) -> list[Position]:
        from holdfast.cluster.messages import request_class

        made = request_class("DescribeShareGroupOffsets")
        kind = made.DescribeShareGroupOffsetsRequestGroup
        request = made(
            groups=[kind(group_id=group, topics=None) for group in groups],
            **GROUP_REQUESTS["DescribeShareGroupOffsets"].bounds,
        )
        answer = await self._connections.send(request, node)
        found = []
        for one in answer.groups:
            if one.error_code == _GONE:
                continue
            raise_code(one.error_code, f"group {one.group_id!r}")
            for topic in one.topics:
                for part in topic.partitions:
                    raise_code(part.error_code, f"topic {topic.topic_name!r}")
                    if part.start_offset < 0:
                        continue
                    found.append(
                        Position(
                            group=one.group_id,
                            topic=topic.topic_name,
                            partition=part.partition_index,
                            offset=part.start_offset,
                            share_lag=part.lag,
                        )
                    )
        return found


def _describe_request(kind: GroupType, groups: list[str]) -> Any:
    if kind is GroupType.CLASSIC:
        from kafka.protocol.admin import DescribeGroupsRequest

        return DescribeGroupsRequest(
            groups=groups, include_authorized_operations=False, **REQUESTS["DescribeGroups"].bounds
        )
    from holdfast.cluster.messages import request_class

    return request_class(DESCRIBED_BY[kind])(
        group_ids=groups,
        include_authorized_operations=False,
        **GROUP_REQUESTS[DESCRIBED_BY[kind]].bounds,
    )


def _fetch_request(groups: list[str]) -> Any:
    """A question for all commits of groups, in the fields of every version; of the first if old."""
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


def _commits(group: str, answer: Any) -> list[Position]:
    if answer.error_code == _GONE:
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
                    )
                )
    return found


Read = Callable[[Any], Iterable[tuple[str, tuple[int, ...]]]]
"""Takes a member, and returns what it reads."""


def _read_classic(group: Any) -> Read:
    if group.protocol_type != CONSUMER_PROTOCOL:
        return lambda member: ()

    def read(member: Any) -> Iterable[tuple[str, tuple[int, ...]]]:
        try:
            return decode_assignment(bytes(member.member_assignment)).partitions
        except WireError:  # no assignment yet, or one of an assignor that has its own
            return ()

    return read


def _read_assigned(group: Any) -> Read:
    return lambda member: [
        (topic.topic_name, tuple(sorted(topic.partitions)))
        for topic in member.assignment.topic_partitions
    ]


def _sources_of(subtopology: Any) -> set[str]:
    """Topics that the tasks of a subtopology read."""
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


_READ: Final[Mapping[GroupType, Callable[[Any], Read]]] = {
    GroupType.CLASSIC: _read_classic,
    GroupType.CONSUMER: _read_assigned,
    GroupType.SHARE: _read_assigned,
    GroupType.STREAMS: _read_tasks,
}


Subscribed = Callable[[Any], frozenset[str] | None]
"""Takes a member, and returns the topics that it asks for; None where that is not known."""


def _asked_classic(group: Any) -> Subscribed:
    decoder = SubscriptionDecoder()

    def asked(member: Any) -> frozenset[str] | None:
        try:
            return frozenset(decoder.decode(bytes(member.member_metadata)).topics)
        except WireError:  # none while the group rebalances
            return None

    return asked if group.protocol_type == CONSUMER_PROTOCOL else _unknown(group)


def _asked_consumer(_: Any) -> Subscribed:
    # What a regular expression names is known to the broker alone.
    return lambda member: (
        None if member.subscribed_topic_regex else frozenset(member.subscribed_topic_names)
    )


def _asked_streams(group: Any) -> Subscribed:
    parts = group.topology.subtopologies or () if group.topology else ()
    found = frozenset(topic for part in parts for topic in _sources_of(part)) or None
    return lambda member: found


def _unknown(_: Any) -> Subscribed:
    return lambda member: None


_SUBSCRIBED: Final[Mapping[GroupType, Callable[[Any], Subscribed]]] = {
    GroupType.CLASSIC: _asked_classic,
    GroupType.CONSUMER: _asked_consumer,
    GroupType.SHARE: _unknown,
    GroupType.STREAMS: _asked_streams,
}
