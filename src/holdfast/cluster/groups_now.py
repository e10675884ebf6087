"""The positions of some groups of a cluster: commits, readers and the ends of what they read.

**Rules.** Commits are requested before the ends of the logs, so no lag is negative. A partition
without a leader has no ends. An error names the request that failed and the broker's release.

**Strategy.** One connection for all requests (:meth:`LiveCluster.asking`); the requests about
groups are those of :mod:`~holdfast.cluster.groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from holdfast.cluster.cluster import Asked, LiveCluster, first_unread_of, led, offsets_of
from holdfast.cluster.first_unread import MOST_ASKED, FirstUnread, Wanted
from holdfast.cluster.group_messages import DESCRIBED_BY, Position, name_of
from holdfast.cluster.groups import GroupQuestions, GroupReader
from holdfast.core.kinds.kind import GroupType
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
    # most :data:`MOST_ASKED` positions, the ones furthest behind.
    unread: Mapping[tuple[str, int, int], FirstUnread]
    # Reasons of unknown groups, topics, and partitions of known topics.
    refused: Mapping[str, str] = field(default_factory=dict)
    refused_topics: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[tuple[str, int], str] = field(default_factory=dict)
    unanswered: Sequence[str] = ()  # brokers, each with the reason


def groups_now(cluster: LiveCluster, choose: Choose) -> GroupsNow | None:
    """Query the coordinators of the chosen groups, and the leaders of what they read.

    Returns
    -------
    GroupsNow or None
        None if ``choose`` returns None.

    Raises
    ------
    SourceError
        If the cluster cannot be reached, or refuses.
    """
    with cluster.asking() as asked:
        questions: GroupQuestions = asked("ListGroups", GroupQuestions.ask_each)
        unanswered = [
            f"{questions.address(node)}: {why}" for node, why in questions.unanswered.items()
        ]
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
        positions = _positions(asked, questions, by_kind)
        readers: list[GroupReader] = []
        for kind, groups in by_kind.items():
            readers += _readers(asked, questions, kind, groups)
        if chosen and questions.refused.keys() >= {*chosen}:
            asked("OffsetFetch", lambda _: questions.failure())
        topics = {one.topic for one in positions}
        topics |= {topic for reader in readers for topic, _ in reader.partitions}
        unknown: dict[tuple[str, int], str] = {}
        partitions, refused_topics = _topics(asked, topics, unknown)
        offsets = offsets_of(asked, partitions, unknown)
        taken_at_us = round(datetime.now(UTC).timestamp() * 1_000_000)
        unread = _first_unread(asked, positions, offsets, taken_at_us // 1000)
    return GroupsNow(
        positions=positions,
        readers=readers,
        share_groups=frozenset(by_kind.get(GroupType.SHARE, ())),
        offsets=offsets,
        taken_at_us=taken_at_us,
        unread=unread,
        refused=questions.refused,
        refused_topics=refused_topics,
        unknown=unknown,
        unanswered=unanswered,
    )


def _positions(
    asked: Asked, questions: GroupQuestions, by_kind: dict[GroupType, list[str]]
) -> list[Position]:
    shared = by_kind.get(GroupType.SHARE, [])
    others = [g for kind, groups in by_kind.items() if kind is not GroupType.SHARE for g in groups]
    found: list[Position] = []
    if others:
        found += asked("OffsetFetch", lambda _: questions.commits(others))
    if shared:
        found += asked("DescribeShareGroupOffsets", lambda _: questions.share_starts(shared))
    return found


def _readers(
    asked: Asked, questions: GroupQuestions, kind: GroupType, groups: Sequence[str]
) -> list[GroupReader]:
    found: list[GroupReader] = asked(DESCRIBED_BY[kind], lambda _: questions.members(kind, groups))
    return found


def _topics(
    asked: Asked, names: Collection[str], unknown: dict[tuple[str, int], str]
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return the partitions with a leader of each topic, and why others are not described.

    Partitions without a leader are added to ``unknown``.
    """
    if not names:
        return {}, {}
    answer = asked("Metadata", lambda lookup: lookup.topics(names))
    for topic in answer.found:
        for partition in topic.leaders.keys() - {*led(topic)}:
            unknown[topic.name, partition] = "it has no leader"
    found = {topic.name: led(topic) for topic in answer.found}
    return found, {name: name_of(code) for name, code in answer.refused.items()}


def _first_unread(
    asked: Asked,
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
    most = sorted(behind, key=lambda place: (-behind[place], place))[:MOST_ASKED]
    found = first_unread_of(asked, most, now_ms)
    return {place[:3]: one for place, one in zip(most, found, strict=True)}
