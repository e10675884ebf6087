"""The groups of a cluster now: their states, or their positions and the ends of what they read.

**Rules.** Commits are requested before the ends of the logs, so no lag is negative. A partition
without a leader has no ends. One request a broker lists its groups with their states, and one
request for up to :data:`~holdfast.cluster.groups.AT_ONCE` groups describes those that the caller
has chosen. The refusal of a group or a broker is reported, and does not affect the others. An error
names the request that failed and the broker's release.

**Strategy.** One connection for all requests (:meth:`LiveCluster.connected`); the requests about
groups are those of :mod:`~holdfast.cluster.groups`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from holdfast.cluster.cluster import LiveCluster, SendRequest, first_unread_of, led, offsets_of
from holdfast.cluster.first_unread import MOST_QUERIED, FirstUnread, Wanted
from holdfast.cluster.group_messages import DESCRIBED, Position, name_of
from holdfast.cluster.groups import GroupQuestions, GroupReader
from holdfast.cluster.snapshot import GONE, SeenGroup, SeenGroups
from holdfast.core.kinds import GroupType
from holdfast.errors import SourceError

Choose = Callable[[Collection[str]], Collection[str] | None]
"""Takes the names of all groups, and returns those to query; None for no query at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsNow:
    """Some groups at one moment."""

    positions: Sequence[Position]  # commits and start offsets
    readers: Sequence[GroupReader]  # members with what they read
    share_groups: frozenset[str]  # the share groups among the groups
    # Topic, partition, begin and end offset of each partition of their topics; sorted.
    offsets: Sequence[tuple[str, int, int, int]]
    taken_at_us: int  # when the last end had been read, in microseconds since 1970
    # Topic, partition and offset of a group -> the first unread record from that offset; of at
    # most :data:`MOST_QUERIED` positions, the ones furthest behind.
    unread: Mapping[tuple[str, int, int], FirstUnread]
    # Reasons of unknown groups, topics, and partitions of known topics.
    refused: Mapping[str, str] = field(default_factory=dict)
    refused_topics: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[tuple[str, int], str] = field(default_factory=dict)
    unanswered: Sequence[str] = ()  # brokers, each with the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledGroups:
    """States, members and commits of groups at one moment."""

    seen: SeenGroups
    # Group -> (topic, partition) -> committed offset; a group whose commits are unknown is missing.
    commits: Mapping[str, Mapping[tuple[str, int], int]]
    share_starts: Sequence[Position] = ()  # of share groups, which commit nothing
    # Groups without members or positions in this answer, with the reasons.
    refused: Mapping[str, str] = field(default_factory=dict)


def groups_now(cluster: LiveCluster, choose: Choose) -> GroupsNow | None:
    """Query the coordinators of the chosen groups, and the leaders of what they read.

    It returns None if ``choose`` does.
    """
    with cluster.connected() as send:
        questions = _listed(send)
        unanswered = questions.unanswered
        try:
            chosen = choose(questions.listed)
        except SourceError as error:
            if unanswered:
                text = f"{error}; not listed are groups of {'; '.join(unanswered)}"
                raise SourceError(text) from error
            raise
        if chosen is None:
            return None
        by_kind: dict[GroupType, list[str]] = {}
        for group in sorted(chosen):
            by_kind.setdefault(questions.listed[group].kind, []).append(group)
        shared = by_kind.get(GroupType.SHARE, [])
        commits, starts = _positions(send, questions, {*chosen}.difference(shared), shared)
        positions = [*commits, *starts]
        readers: list[GroupReader] = []
        for kind, groups in by_kind.items():
            readers += _readers(send, questions, kind, groups)
        if chosen and questions.refused.keys() >= {*chosen}:
            send("OffsetFetch", lambda _: questions.failure())
        topics = {one.topic for one in positions}
        topics |= {topic for reader in readers for topic, _ in reader.partitions}
        unknown: dict[tuple[str, int], str] = {}
        partitions, refused_topics = _topics(send, topics, unknown)
        offsets = offsets_of(send, partitions, unknown)
        taken_at_us = round(datetime.now(UTC).timestamp() * 1_000_000)
        unread = _first_unread(send, positions, offsets, taken_at_us // 1000)
    return GroupsNow(
        positions=positions,
        readers=readers,
        share_groups=frozenset(shared),
        offsets=offsets,
        taken_at_us=taken_at_us,
        unread=unread,
        refused=questions.refused,
        refused_topics=refused_topics,
        unknown=unknown,
        unanswered=unanswered,
    )


def _positions(
    send: SendRequest, questions: GroupQuestions, others: Collection[str], shared: Collection[str]
) -> tuple[list[Position], list[Position]]:
    """Return the commits of groups, and the start offsets of share groups."""
    commits, starts = list[Position](), list[Position]()
    if others:
        commits = send("OffsetFetch", lambda _: questions.commits(others))
    if shared:
        starts = send("DescribeShareGroupOffsets", lambda _: questions.share_starts(shared))
    return commits, starts


def _readers(
    send: SendRequest, questions: GroupQuestions, kind: GroupType, groups: Sequence[str]
) -> list[GroupReader]:
    found: list[GroupReader] = send(
        DESCRIBED[kind].request, lambda _: questions.members(kind, groups)
    )
    return found


def _topics(
    send: SendRequest, names: Collection[str], unknown: dict[tuple[str, int], str]
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return the partitions with a leader of each topic, and why others are not described.

    Partitions without a leader are added to ``unknown``.
    """
    if not names:
        return {}, {}
    answer = send("Metadata", lambda lookup: lookup.topics(names))
    for topic in answer.found:
        for partition in topic.leaders.keys() - {*led(topic)}:
            unknown[topic.name, partition] = "it has no leader"
    found = {topic.name: led(topic) for topic in answer.found}
    return found, {name: name_of(code) for name, code in answer.refused.items()}


def _first_unread(
    send: SendRequest,
    positions: Sequence[Position],
    offsets: Sequence[tuple[str, int, int, int]],
    now_ms: int,
) -> dict[tuple[str, int, int], FirstUnread]:
    """Find the first records that consumers have not read."""
    ends = {(topic, partition): (begin, end) for topic, partition, begin, end in offsets}
    behind: dict[Wanted, int] = {}
    for one in positions:
        begin, end = ends.get((one.topic, one.partition), (0, 0))
        first = max(one.offset, begin)
        if one.share_lag is None and end > first:
            behind[Wanted(one.topic, one.partition, first, end, now_ms)] = end - first
    most = sorted(behind, key=lambda tp: (-behind[tp], tp))[:MOST_QUERIED]
    found = first_unread_of(send, most, now_ms)
    return {tp[:3]: one for tp, one in zip(most, found, strict=True)}


def states_now(
    cluster: LiveCluster,
    choose: Callable[[Collection[str]], Collection[str]],
    *,
    describe: Callable[[SeenGroup], bool],
    known: Collection[str] = (),
) -> SeenGroups:
    """Query the states of the chosen groups, and the members of some of them.

    Parameters
    ----------
    describe : callable
        Takes a group with its state alone, and returns whether its members are wanted. A broker
        before Kafka 2.6 lists no states: there every chosen group is described.
    known : collection of str
        Groups to check for deletion, if no broker lists them.
    """
    with cluster.connected() as send:
        return _states(send, _listed(send), choose, describe, known)


def polled_groups(
    cluster: LiveCluster,
    choose: Callable[[Collection[str]], Collection[str]],
    *,
    known: Collection[str] = (),
) -> PolledGroups:
    """Query states, members and commits of the chosen groups; ``known`` as in states_now."""
    with cluster.connected() as send:
        questions = _listed(send)
        seen = _states(send, questions, choose, lambda _: True, known)
        names = [name for name, one in seen.groups.items() if one.kind is not GroupType.SHARE]
        positions, starts = _positions(send, questions, names, seen.groups.keys() - {*names})
        commits: dict[str, dict[tuple[str, int], int]] = {name: {} for name in names}
        for one in positions:
            commits[one.group][one.topic, one.partition] = one.offset
        for name in questions.refused.keys() & commits.keys():  # unknown, not without commits
            del commits[name]
    refused = {name: one.refused for name, one in seen.groups.items() if one.refused}
    return PolledGroups(
        seen=seen, commits=commits, share_starts=starts, refused={**questions.refused, **refused}
    )


def has_unrecorded_groups(cluster: LiveCluster, topic: str) -> bool:
    """Return whether groups have settled, and no record was ever written to the offsets topic.

    Kafka writes a record of a group before it lists the group as settled, so the ends are read
    again after the states. Some compatible servers list the topic, and keep groups elsewhere.
    """

    def is_unwritten() -> bool:
        ends = cluster.partition_ends(topic)
        return bool(ends) and not any(one.end for one in ends.values())

    if not is_unwritten():
        return False
    seen = states_now(cluster, lambda names: names, describe=lambda _: False)
    settled = any(not one.is_rebalancing and one.state != GONE for one in seen.groups.values())
    return settled and is_unwritten()


def _listed(send: SendRequest) -> GroupQuestions:
    """List the groups of every broker that answers."""
    questions: GroupQuestions = send("ListGroups", lambda lookup: GroupQuestions(lookup).ask_each())
    return questions


def _states(
    send: SendRequest,
    questions: GroupQuestions,
    choose: Callable[[Collection[str]], Collection[str]],
    describe: Callable[[SeenGroup], bool],
    known: Collection[str],
) -> SeenGroups:
    queried_ms = time.time_ns() // 1_000_000
    listed = questions.listed
    groups = {
        name: SeenGroup(group=name, kind=listed[name].kind, state=listed[name].state)
        for name in choose(listed)
    }
    wanted = [name for name, one in groups.items() if not one.state or describe(one)]
    if wanted:
        described = send("DescribeGroups", lambda _: questions.states(wanted))
        groups |= {one.group: one for one in described}
    missing = sorted({*known} - listed.keys())
    gone: list[str] = []
    if missing and not questions.unanswered:
        try:
            gone = send("DescribeGroups", lambda _: questions.absent(missing))
        except SourceError:
            gone = []  # not known to be deleted
    return SeenGroups(
        queried_ms=queried_ms,
        groups=groups,
        gone=frozenset(gone),
        unanswered=questions.unanswered,
    )
