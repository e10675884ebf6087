"""What the coordinators of a live cluster answer: the table ``lag``, and the states of groups.

**Rules.** The rows of ``lag`` are those of :mod:`holdfast.fleet.pipeline.history.lag`, which
applies the rule to columns; a test compares both on the same groups. A coordinator reports neither
when a commit was written, nor that a commit was deleted or has expired. So the times of commits are
null, ``status`` is ``none`` without a commit, and ``lag_seconds`` comes from records alone: it is
null if no leader reports the age of the first unread record. A failed query for states is noted,
and the command continues without the answer.

**Strategy.** Plain Python, row by row: NumPy and Arrow would take as long to load as the answer.
For more than :data:`MOST_GROUPS` groups the pipeline reads the offsets topic by columns instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.histories import NO_GROUP, refuse_unknown
from holdfast.cluster.first_unread import NOT_KNOWN
from holdfast.cluster.groups_now import GroupsNow, groups_now, states_now
from holdfast.core.model.lag import LEAST_FALL
from holdfast.core.names import SPARK_GROUPS, means, shown_name, visible
from holdfast.errors import HoldfastError, nearest
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups

if TYPE_CHECKING:
    from holdfast.cluster.cluster import LiveCluster
    from holdfast.cluster.group_messages import Position
    from holdfast.cluster.groups import GroupReader
    from holdfast.cluster.snapshot import SeenGroup, SeenGroups

MOST_GROUPS: Final = 4_000
"""So many groups at most: of 4,000 the pipeline takes six times as long (``bench/lag.py``)."""

MOST_NAMED: Final = 5
EMPTY: Final = frozenset({"Empty", "Dead"})
"""States of groups without members."""
AGAIN_S: Final = 2.0
"""Seconds until a group that was first seen rebalancing is queried once more."""
_LATEST = "latest"
_Partition = tuple[str, str, int]
"""Group, topic, partition."""


def live_lag(
    cluster: LiveCluster,
    groups: Sequence[str],
    *,
    all_groups: bool,
    reset: str,
    note: Callable[[str], None],
    over_s: float | None = None,
) -> list[dict[str, Any]] | None:
    """Return rows of ``lag`` from the coordinators; None if there are too many groups.

    Parameters
    ----------
    groups, all_groups
        Names or patterns, or none for all; include the groups of Spark's connector.
    reset : str
        ``auto.offset.reset`` of a partition without a commit.
    note : callable
        Called with each name that no group has, and with what is not reported, and why.
    over_s : float, optional
        Query twice, this many seconds apart, to measure how fast lags change.

    Raises
    ------
    SourceError
        The cluster cannot be reached, or refuses, or has none of the groups.
    """
    chosen: list[str] = []

    def choose(known: Collection[str]) -> list[str] | None:
        refuse_unknown(groups, known)
        chosen[:] = chosen_groups(known, groups, all_groups=all_groups)
        if not known:
            note(f"no group is here: {NO_GROUP}")
        if len(chosen) > MOST_GROUPS:
            return None
        for name in groups:
            if not any(means(name, group) for group in chosen):
                note(f"no group {name!r}{nearest(name, sorted(known), 3, before=': ')}")
        return chosen

    found = groups_now(cluster, choose)
    if found is None:
        return None
    rows = [*lag_rows(found, reset)]
    if over_s is not None:
        time.sleep(over_s)
        earlier = found
        # Of the groups that still exist.
        found = groups_now(cluster, lambda known: [group for group in chosen if group in known])
        assert found is not None, "they were chosen"
        seconds = (found.taken_at_us - earlier.taken_at_us) / 1e6
        rows = [*with_slopes(lag_rows(found, reset), rows, seconds)]
    for text in not_known(found):
        note(text)
    return rows


def not_known(found: GroupsNow) -> Iterator[str]:
    """Yield a line for each kind of missing answer of coordinators and leaders, and why."""
    if found.unanswered:
        brokers = "; ".join(found.unanswered)
        yield f"groups of {_counted(len(found.unanswered), 'broker')} are not listed: {brokers}"
    for why, groups in _by_reason(found.refused):
        count = _counted(len(groups), "group")
        yield f"{count} left out, or without members: {_some(groups)} ({why})"
    for why, topics in _by_reason(found.refused_topics):
        yield f"{_counted(len(topics), 'topic')} without lags: {_some(topics)} ({why})"
    reasons = {f"{topic}-{partition}": why for (topic, partition), why in found.unknown.items()}
    for why, partitions in _by_reason(reasons):
        yield f"{_counted(len(partitions), 'partition')} without lags: {_some(partitions)} ({why})"


def _by_reason(reasons: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name, why in sorted(reasons.items()):
        found.setdefault(why, []).append(name)
    yield from sorted(found.items())


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _some(names: Sequence[str]) -> str:
    """Return at most MOST_NAMED names, and how many more exist."""
    shown = ", ".join(shown_name(name) for name in names[:MOST_NAMED])
    more = len(names) - MOST_NAMED
    return shown if more <= 0 else f"{shown} and {more} more"


def chosen_groups(known: Collection[str], wanted: Sequence[str], *, all_groups: bool) -> list[str]:
    """Return the wanted groups, by name or pattern; without ``wanted`` all but those of Spark."""
    if wanted:
        return [group for group in known if any(means(name, group) for name in wanted)]
    if all_groups:
        return [*known]
    return [group for group in known if not group.startswith(SPARK_GROUPS)]


def lag_rows(found: GroupsNow, reset: str) -> Iterator[dict[str, Any]]:
    """Yield rows of the table ``lag``, sorted by group, topic and partition."""
    ends = {(topic, p): (begin, end) for topic, p, begin, end in found.offsets}
    positions = {(one.group, one.topic, one.partition): one for one in found.positions}
    owners = _owners(found.readers)
    subscribed = _subscribed(found.readers)
    for key in sorted(positions.keys() | owners.keys()):
        group, topic, partition = key
        position, owner = positions.get(key), owners.get(key)
        begin, end = ends.get((topic, partition), (None, None))
        row = _empty_row(group, topic, partition, owner)
        row |= {"log_start_offset": begin, "log_end_offset": end}
        row["is_idle"] = begin is not None and begin == end
        shared = group in found.share_groups
        if position is None:
            if begin is not None and end is not None and not shared:
                row["lag_by_reset"] = 0 if reset == _LATEST else max(end - begin, 0)
        else:
            row |= {"status": "shared" if shared else "committed"}
            row |= {"current_offset": position.offset, "metadata": position.metadata}
            if not shared and (topics_read := subscribed.get(group)) is not None:
                row["not_subscribed"] = owner is None and topic not in topics_read
            if begin is not None and end is not None:
                row |= _behind(position, begin, end)
                row |= _seconds(row, found)
                row["catch_up_seconds"] = 0.0 if row["has_unread"] is False else None
        yield row


def with_slopes(
    rows: Iterable[dict[str, Any]], earlier: Iterable[dict[str, Any]], seconds: float
) -> Iterator[dict[str, Any]]:
    """Yield rows of ``lag`` with their rate of change since an earlier moment.

    The rules are those of :mod:`holdfast.fleet.pipeline.history.lag`.
    """
    before = {(row["group"], row["topic"], row["partition"]): row for row in earlier}
    for row in rows:
        then = before.get((row["group"], row["topic"], row["partition"]))
        if (
            then is not None
            and row["lag"] is not None
            and then["lag"] is not None
            and row["clamped"] == "none"
            and row["log_end_offset"] >= then["log_end_offset"]
            and seconds > 0
        ):
            slope = (row["lag"] - then["lag"]) / seconds
            row["lag_per_second"] = slope
            if row["catch_up_seconds"] is None and slope <= -LEAST_FALL:
                row["catch_up_seconds"] = row["lag"] / -slope
        yield row


def _owners(readers: Sequence[GroupReader]) -> dict[_Partition, GroupReader]:
    """Return the reader of each partition; if several, the one with the smallest id."""
    found: dict[_Partition, GroupReader] = {}
    for reader in sorted(readers, key=lambda one: one.member_id):
        for topic, partitions in reader.partitions:
            for partition in partitions:
                found.setdefault((reader.group, topic, partition), reader)
    return found


def _subscribed(readers: Sequence[GroupReader]) -> dict[str, set[str] | None]:
    """Return the subscribed topics of the members of each group; None if not all report them."""
    found: dict[str, set[str] | None] = {}
    for reader in readers:
        known = found.setdefault(reader.group, set())
        if known is None or reader.subscribed is None:
            found[reader.group] = None
        else:
            known.update(reader.subscribed)
    return {group: topics or None for group, topics in found.items()}


def _empty_row(group: str, topic: str, partition: int, owner: GroupReader | None) -> dict[str, Any]:
    unknown = ("current_offset", "lag", "lag_by_reset", "lag_seconds", "lag_seconds_basis")
    more = ("has_unread", "not_subscribed", "delivered", "lag_per_second", "catch_up_seconds")
    of_commit = ("commit_timestamp", "position_timestamp", "metadata", "expire_timestamp")
    return {
        **dict.fromkeys(unknown + more + of_commit),
        "group": group,
        "topic": topic,
        "partition": partition,
        "member_id": owner and owner.member_id,
        "client_id": owner and owner.client_id,
        "client_host": owner and owner.client_host,
        "status": "none",
        "clamped": "none",
    }


def _behind(position: Position, begin: int, end: int) -> dict[str, Any]:
    """Return the lag of a position that is clamped into the log."""
    offset, left = position.offset, position.share_lag
    lag: int | None = end - min(max(offset, begin), max(begin, end))
    done = None
    if left is not None and left < 0:
        lag = None
    elif left is not None and lag is not None:
        # A share group's broker counts the rest: the processed part is the log without it.
        done = max(end - offset - left, 0)
        lag = max(lag - done, 0)
    clamped = "beyond_end" if offset > end else "before_begin" if offset < begin else "none"
    return {"lag": lag, "delivered": done, "clamped": clamped}


def _seconds(row: dict[str, Any], found: GroupsNow) -> dict[str, Any]:
    """Return the age of the first unread record, if its time is known."""
    if row["lag"] == 0:
        return {"lag_seconds": 0.0, "has_unread": False}
    if row["lag"] is None:
        return {}
    first = max(row["current_offset"], row["log_start_offset"])
    unread = found.unread.get((row["topic"], row["partition"], first), NOT_KNOWN)
    return unread.of_lag(found.taken_at_us)


class GroupStatePoller:
    """Queries coordinators repeatedly, and knows since when groups rebalance.

    It asks for the groups as :func:`live_lag` does, and notes each failure once.
    """

    def __init__(
        self,
        cluster: LiveCluster,
        groups: Sequence[str],
        *,
        all_groups: bool,
        note: Callable[[str], None],
    ):
        self._cluster, self._groups, self._all = cluster, groups, all_groups
        self._note = note
        self._noted: set[str] = set()
        self.live: LiveGroups = NOT_QUERIED

    def query(
        self,
        describe: Callable[[SeenGroup], bool],
        known: Collection[str] = (),
        *,
        retains_members: bool = False,
    ) -> LiveGroups:
        """Query all states, and the members of some groups; keep what was known before.

        ``known`` has groups to check for deletion.
        """
        try:
            seen = states_now(self._cluster, self._chosen, describe=describe, known=known)
            self.live = self.live.after(seen, retains_members=retains_members)
        except HoldfastError as error:
            self._note_once(f"states of groups could not be read: {error}")
        if self.live.seen is not None:
            self._report_missing(self.live.seen)
        return self.live

    def query_states(self) -> LiveGroups:
        """Query states alone: one request a broker."""
        return self.query(lambda _: False)

    def query_all(
        self, known: Collection[str], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Query states and members of all groups.

        A group that is first seen rebalancing is queried once more: most rebalances have ended by
        then.
        """
        live = self.query(has_members, known)
        first_seen = {since_ms for since_ms, _ in live.spans.values()}
        if live.seen is not None and live.seen.queried_ms in first_seen:
            sleep(AGAIN_S)
            self.query(lambda group: group.is_rebalancing, known, retains_members=True)

    def _chosen(self, known: Collection[str]) -> list[str]:
        return chosen_groups(known, self._groups, all_groups=self._all)

    def _report_missing(self, seen: SeenGroups) -> None:
        for text in seen.unanswered:
            self._note_once(f"states of its groups could not be read: {text}")
        refused: dict[str, list[str]] = {}
        for one in seen.groups.values():
            if one.refused:
                refused.setdefault(one.refused, []).append(one.group)
        for why, groups in sorted(refused.items()):
            of = f"{len(groups)} groups (such as {visible(min(groups))})"
            what = of if len(groups) > 1 else f"group {visible(groups[0])}"
            self._note_once(f"the members of {what} could not be read: {why}")

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)


def has_members(group: SeenGroup) -> bool:
    """Return whether a group can have members to query."""
    return group.state not in EMPTY
