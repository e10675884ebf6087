"""Queries to the coordinators about groups: kinds, states, positions and members.

**Rules.** No group is joined, and no open transaction is waited for. A request about a group goes
to the broker that lists it; if the group has moved meanwhile, all brokers are queried again. A
query for states answers for each group by itself: a group that may not be described, or whose
coordinator does not answer, is named and does not affect the others.

**Strategy.** A request names all groups of one kind at one broker, up to :data:`AT_ONCE`. Brokers
before Kafka 3.0 get a request for the commits of one group at a time. Requests and answers are
those of :mod:`~holdfast.cluster.group_messages`.

References: KIP-709 (commits of many groups), KIP-848, KIP-932, KIP-1071, KIP-1226.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from holdfast.cluster.connections import is_passing, on_io_thread, raise_code, reason
from holdfast.cluster.group_messages import (
    DESCRIBED,
    NOT_FOUND,
    Position,
    commits_of,
    describe_request,
    fetch_request,
    name_of,
    request_class,
    seen_group,
)
from holdfast.cluster.lookup import NODE_PATIENCE_S
from holdfast.cluster.snapshot import SeenGroup
from holdfast.cluster.versions import GROUP_REQUESTS, REQUESTS
from holdfast.core.kinds import GroupType
from holdfast.core.machine.codes import EXPECTED, ErrorCode
from holdfast.core.model.partitions import TopicPartitions

if TYPE_CHECKING:
    from holdfast.cluster.connections import Connections
    from holdfast.cluster.lookup import Lookup

AT_ONCE: Final = 500
"""Groups in one request: its answer stays within a few megabytes."""
_GROUPS_SINCE = 8  # the version of OffsetFetch with several groups
_Failures = dict[str, Exception]
_T = TypeVar("_T")
_PAUSES_S: Final = (0.3, 0.6, 1.2, 2.4)
"""Waits between requests for groups whose coordinators move, load, or do not answer, in s."""
_TRIES: Final = 3
"""Attempts for groups whose coordinators move or load."""
_PAUSE_S: Final = 0.3
"""Wait between two attempts, in s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group, its kind and its coordinator's node."""

    group: str
    kind: GroupType
    node: int
    state: str = ""  # empty from a broker before Kafka 2.6, or of KIP-518


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReader:
    """A member and what it reads."""

    # As the coordinator says.
    group: str
    member_id: str
    client_id: str
    client_host: str
    partitions: TopicPartitions  # sorted by topic
    subscribed: frozenset[str] | None = None  # topics that it subscribes to, if known


class GroupQuestions:
    """Queries about groups, over the connections of a lookup."""

    def __init__(self, lookup: Lookup):
        self.connections = lookup.connections
        self._listed: dict[str, ListedGroup] = {}
        self._unanswered: dict[int, str] = {}
        self._failures: dict[str, Exception] = {}

    @on_io_thread
    async def ask(self) -> Self:
        """List the groups of every broker."""
        await self.connections.again(self._list)
        return self

    @on_io_thread
    async def ask_each(self) -> Self:
        """List the groups of every broker that answers; fails if none does."""
        await self._list_each()
        return self

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Brokers without an answer to :meth:`ask_each`, each with the reason."""
        return tuple(
            f"{self.connections.address(node)}: {why}" for node, why in self._unanswered.items()
        )

    @property
    def refused(self) -> Mapping[str, str]:
        """Groups without an answer to :meth:`commits` and the other queries, with the reasons."""
        return {group: _why(error) for group, error in self._failures.items()}

    @on_io_thread
    async def failure(self) -> None:
        """Fail as the first of the groups in ``refused`` did."""
        raise next(iter(self._failures.values()))

    @property
    def listed(self) -> Mapping[str, ListedGroup]:
        """All groups that the brokers list, by name."""
        return self._listed

    @on_io_thread
    async def members(self, kind: GroupType, groups: Sequence[str]) -> list[GroupReader]:
        """Return the members of ``groups``, all of one kind, and what each reads."""
        return await self._query_each(groups, partial(_describe, self.connections, kind))

    @on_io_thread
    async def states(self, groups: Sequence[str]) -> list[SeenGroup]:
        """Describe listed groups of any kind; each has its coordinator's answer or refusal."""
        found: dict[str, SeenGroup] = {}
        left = [group for group in groups if group in self._listed]
        for i in range(_TRIES):
            if i:
                await self.connections.sleep(_PAUSE_S)
                await self._list_each()
            left = await self._describe_each(left, found)
            if not left:
                break
        return [found[group] for group in sorted(found)]

    @on_io_thread
    async def absent(self, groups: Sequence[str]) -> list[str]:
        """Return those of unlisted ``groups`` that no coordinator has.

        A principal does not see groups that it may not describe. A broker checks the permission
        before it checks whether it is the group's coordinator; so any broker's answer about an
        unlisted group distinguishes the two cases.
        """
        found: list[str] = []
        for at in range(0, len(groups), AT_ONCE):
            request = describe_request(GroupType.CLASSIC, [*groups[at : at + AT_ONCE]])
            answer = await self.connections.send(request)
            found += [
                one.group_id
                for one in answer.groups
                if one.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED
            ]
        return sorted(found)

    @on_io_thread
    async def commits(self, groups: Collection[str]) -> list[Position]:
        """Return the commits of ``groups``; not for share groups."""
        return await self._query_each(groups, partial(_fetch, self.connections))

    @on_io_thread
    async def share_starts(self, groups: Collection[str]) -> list[Position]:
        """Return the start offsets of the share groups ``groups``."""
        return await self._query_each(groups, partial(_share_starts, self.connections))

    async def _query_each(
        self,
        groups: Collection[str],
        ask: Callable[[int, list[str], _Failures], Coroutine[Any, Any, list[_T]]],
    ) -> list[_T]:
        """Query each coordinator about its own groups; list all groups again before a retry.

        A refusal or a missing answer does not affect the other groups.
        """
        found: list[_T] = []
        left = [group for group in groups if group not in self._failures]
        failed: _Failures = {}
        for pause_s in (0.0, *_PAUSES_S):
            if pause_s:
                await self.connections.sleep(pause_s)
                await self._list_each(patient=False)
                failed = {group: failed[group] for group in left}
                left = [group for group in left if group in self._listed]
            for node, some in self._by_node(left):
                for group in some:
                    failed.pop(group, None)
                try:
                    found += await ask(node, some, failed)
                except Exception as error:
                    failed |= dict.fromkeys(some, error)
            self._failures |= {g: e for g, e in failed.items() if not is_passing(e)}
            left = [group for group, error in failed.items() if is_passing(error)]
            if not left:
                break
        self._failures |= failed
        return found

    def _by_node(self, groups: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        nodes: dict[int, list[str]] = {}
        for group in sorted(groups):
            if group in self._listed:
                nodes.setdefault(self._listed[group].node, []).append(group)
        for node, names in sorted(nodes.items()):
            for at in range(0, len(names), AT_ONCE):
                yield node, names[at : at + AT_ONCE]

    async def _brokers(self) -> list[int]:
        from kafka.protocol.metadata import MetadataRequest

        bounds = REQUESTS["Metadata"].bounds
        answer = await self.connections.send(
            MetadataRequest(topics=[], allow_auto_topic_creation=False, **bounds)
        )
        return [broker.node_id for broker in answer.brokers]

    async def _list(self) -> None:
        listed: dict[str, ListedGroup] = {}
        for node in await self._brokers():
            listed |= await self._listed_at(node)
        self._listed = listed

    async def _list_each(self, *, patient: bool = True) -> None:
        """List the groups of the brokers that answer, and record which do not.

        A ``patient`` query retries a broker for NODE_PATIENCE_S; another one attempts once.
        """
        most_s = NODE_PATIENCE_S if patient else 0.0
        listed: dict[str, ListedGroup] = {}
        unanswered: dict[int, str] = {}
        failed: Exception | None = None
        brokers = await self.connections.again(self._brokers)
        for node in brokers:
            try:
                listed |= await self.connections.again(partial(self._listed_at, node), most_s)
            except Exception as error:
                failed, unanswered[node] = error, reason(error)
        if failed is not None and len(unanswered) == len(brokers):
            raise failed
        self._listed, self._unanswered = listed, unanswered

    async def _listed_at(self, node: int) -> dict[str, ListedGroup]:
        from kafka.protocol.admin import ListGroupsRequest

        answer = await self.connections.send(
            ListGroupsRequest(**REQUESTS["ListGroups"].bounds), node
        )
        raise_code(answer.error_code)
        return {
            one.group_id: ListedGroup(
                group=one.group_id,
                kind=GroupType((getattr(one, "group_type", "") or GroupType.CLASSIC).lower()),
                node=node,
                state=getattr(one, "group_state", "") or "",
            )
            for one in answer.groups
        }

    async def _describe_each(self, groups: list[str], found: dict[str, SeenGroup]) -> list[str]:
        """Put the answers of coordinators into ``found``; return the groups to query again."""
        again: list[str] = []
        for kind, names in self._by_kind(groups):
            for node, some in self._by_node(names):
                try:
                    answer = await self.connections.send(describe_request(kind, some), node)
                except Exception as error:
                    why = f"{DESCRIBED[kind].request}: {reason(error)}"
                    found |= {name: self._refused(name, why) for name in some}
                    continue
                for one in answer.groups:
                    if one.error_code in EXPECTED:
                        again.append(one.group_id)
                    found[one.group_id] = self._described(kind, one)
        return again

    def _by_kind(self, groups: Iterable[str]) -> Iterator[tuple[GroupType, list[str]]]:
        kinds: dict[GroupType, list[str]] = {}
        for group in sorted(groups):
            if group in self._listed:
                kinds.setdefault(self._listed[group].kind, []).append(group)
        yield from sorted(kinds.items())

    def _described(self, kind: GroupType, one: Any) -> SeenGroup:
        """Return the group of a coordinator's answer, or with the reason of its refusal."""
        if one.error_code in (0, NOT_FOUND):
            return seen_group(kind, one)
        return self._refused(one.group_id, name_of(one.error_code))

    def _refused(self, group: str, why: str) -> SeenGroup:
        """Return a group that was listed and not described."""
        listed = self._listed[group]
        return SeenGroup(group=group, kind=listed.kind, state=listed.state, refused=why)


# Requests to one coordinator about groups; groups that it refuses are put into `failed`.


async def _describe(
    connections: Connections, kind: GroupType, node: int, groups: list[str], failed: _Failures
) -> list[GroupReader]:
    answer = await connections.send(describe_request(kind, groups), node)
    found = []
    for one in answer.groups:
        if one.error_code == NOT_FOUND or _fails(one, failed):
            continue
        read, subscribed = DESCRIBED[kind].read(one), DESCRIBED[kind].subscribed(one)
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


async def _fetch(
    connections: Connections, node: int, groups: list[str], failed: _Failures
) -> list[Position]:
    found: list[Position] = []

    def take(group: str, answer: Any) -> None:
        try:
            found.extend(commits_of(group, answer))
        except Exception as error:
            failed[group] = error

    left = list(groups)
    while left:
        answer = await connections.send(fetch_request(left), node)
        if answer.API_VERSION >= _GROUPS_SINCE:
            for one in answer.groups:
                take(one.group_id, one)
            return found
        take(left.pop(0), answer)
    return found


async def _share_starts(
    connections: Connections, node: int, groups: list[str], failed: _Failures
) -> list[Position]:
    made = request_class("DescribeShareGroupOffsets")
    kind = made.DescribeShareGroupOffsetsRequestGroup
    request = made(
        groups=[kind(group_id=group, topics=None) for group in groups],
        **GROUP_REQUESTS["DescribeShareGroupOffsets"].bounds,
    )
    answer = await connections.send(request, node)
    found = []
    for one in answer.groups:
        if one.error_code == NOT_FOUND or _fails(one, failed):
            continue
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


def _fails(one: Any, failed: _Failures) -> bool:
    """Return whether an answer refuses its group, and record the refusal."""
    try:
        raise_code(one.error_code, f"group {one.group_id!r}")
    except Exception as error:
        failed[one.group_id] = error
        return True
    return False


def _why(error: Exception) -> str:
    code = getattr(error, "error_code", getattr(error, "errno", None))
    return name_of(code) if isinstance(code, int) and code > 0 else reason(error)
