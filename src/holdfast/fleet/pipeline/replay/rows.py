"""The rows of one group at a time, out of the tables of a history, as input of its story.

**Rules.** All rows of a group are read, and nothing is guessed. A member belongs to the generation
with its number and time; partition ids below 0 are left out, but for the -1 of a connector itself.

**Strategy.** Each table is sorted by group once, so a group is a slice; only slices become Python.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds.kind import GroupKind, GroupType
from holdfast.core.kinds.rows import kind_of
from holdfast.fleet.pipeline.history.broker_log import STATED
from holdfast.fleet.tables.columns.values import GroupedTable
from holdfast.fleet.tables.reading import Tables

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMember:
    """A member in a generation, and what it owns there."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    session_ms: int | None
    rebalance_ms: int | None
    owned: Sequence[TopicPartition]
    rack: str | None = None


@dataclass(slots=True, kw_only=True)
class RecordedGeneration:
    """A generation with its members, and the rebalance that it ended.

    ``delay_ms``: what its assignments say of the delay that runs, -1 if they say nothing.
    ``pause_seconds``: bounds of the partition-seconds without an owner that ended with it.
    """

    number: int
    time_ms: int
    state: str
    group_type: str
    protocol: str | None
    protocol_type: str | None = None
    delay_ms: int = -1
    cause: str = ""
    is_stated: bool = False
    pause_seconds: tuple[float, float] = (0.0, 0.0)
    members: list[RecordedMember] = field(default_factory=list)

    @property
    def kind(self) -> GroupKind:
        """Kind of the group."""
        return kind_of(self.group_type, self.protocol_type, self.protocol)

    @property
    def n_owned(self) -> int:
        """Partitions with an owner."""
        return sum(len(member.owned) for member in self.members)

    @property
    def counts(self) -> dict[str, int]:
        """Topic to the highest partition owned, and one."""
        found: dict[str, int] = {}
        for member in self.members:
            for topic, partition in member.owned:
                found[topic] = max(found.get(topic, 0), partition + 1)
        return found


class RecordedPause(TypedDict):
    """What a story needs of a row of ``pauses``; times in milliseconds."""

    timestamp: int
    unowned_since: int | None
    last_seen: int
    topic: str
    partitions: list[int]
    basis: str


@dataclass(kw_only=True)
class GroupRows:
    """What the tables say of one group."""

    group: str
    generations: list[RecordedGeneration]
    pauses: list[RecordedPause]
    lags: dict[str, dict[int, int]] = field(default_factory=dict)
    """Lag by topic and partition; a partition without a row has none."""

    @cached_property
    def _pauses(self) -> dict[int | None, list[RecordedPause]]:
        found: dict[int | None, list[RecordedPause]] = {}
        for row in self.pauses:
            begun = row["unowned_since"] if row["basis"] == "unowned" else row["timestamp"]
            found.setdefault(begun, []).append(row)
        return found

    def _next_signs(self, time_ms: int, wanted: set[TopicPartition]) -> Iterator[int]:
        """The last sign of each pause that is the first one of a partition from then on."""
        later = bisect_left(self._by_end, time_ms, key=lambda pause: pause["timestamp"])
        for pause in itertools.islice(self._by_end, later, None):
            found = wanted.intersection((pause["topic"], p) for p in pause["partitions"])
            if found:
                yield pause["last_seen"]
            wanted = wanted - found
            if not wanted:
                return

    @cached_property
    def _by_end(self) -> list[RecordedPause]:
        return sorted(self.pauses, key=lambda pause: pause["timestamp"])

    def last_sign_ms(self, row: RecordedGeneration, owned: Sequence[TopicPartition]) -> int:
        """Last sign of the owner that had lost the partitions ``owned`` by ``row``; -1 for none.

        Pauses of a KIP-848 group end with other records than its epochs, so there it is the next
        pause of each partition that tells.
        """
        mine = set(owned)
        if row.group_type == GroupType.CONSUMER:
            return max(self._next_signs(row.time_ms, mine), default=-1)
        signs = [
            pause["last_seen"]
            for pause in self._pauses.get(row.time_ms, ())
            if any((pause["topic"], p) in mine for p in pause["partitions"])
        ]
        return max(signs, default=-1)


_COLUMNS = {
    "generations": (
        "generation",
        "timestamp",
        "state",
        "group_type",
        "protocol",
        "protocol_type",
        "delay_ms",
    ),
    "members": (
        "generation",
        "timestamp",
        "member_id",
        "group_instance_id",
        "client_id",
        "client_host",
        "subscribed_topics",
        "session_timeout_ms",
        "rebalance_timeout_ms",
        "rack",
    ),
    "assignments": ("generation", "timestamp", "member_id", "topic", "partitions", "role"),
    "rebalances": (
        "generation",
        "timestamp",
        "cause",
        "cause_basis",
        "pause_lower_seconds",
        "pause_upper_seconds",
    ),
    "pauses": tuple(RecordedPause.__annotations__),
    "lag": ("topic", "partition", "lag", "lag_by_reset"),
}


def group_rows(
    tables: Tables, *, groups: Sequence[str] | None = None, lags: bool = False
) -> Iterator[GroupRows]:
    """Rows of every group, sorted by group."""
    names = [name for name in _COLUMNS if lags or name != "lag"]
    cut = {name: _cut(tables, name, groups) for name in names}
    for group in cut["generations"].bounds:
        rows = {
            name: grouped.of_group(group).select(_COLUMNS[name]).to_pylist()
            for name, grouped in cut.items()
        }
        yield GroupRows(
            group=group,
            generations=_generations(rows),
            pauses=rows["pauses"],
            lags=_lags(rows.get("lag", [])),
        )


def _cut(tables: Tables, name: str, groups: Sequence[str] | None) -> GroupedTable:
    """One table cut by group, with times as whole milliseconds."""
    table = tables.table(name, flat=False, groups=groups)
    columns = {"group": table["group"].combine_chunks()}
    for column in _COLUMNS[name]:
        values = table[column].combine_chunks()
        if pa.types.is_timestamp(values.type):
            values = pc.divide(values.cast(pa.int64()), 1_000)
        columns[column] = values
    return GroupedTable.of(pa.table(columns))


def _generations(rows: dict[str, list[dict[str, Any]]]) -> list[RecordedGeneration]:
    found = []
    place: dict[tuple[int, int], RecordedGeneration] = {}
    ended = {(row["generation"], row["timestamp"]): row for row in rows["rebalances"]}
    for row in rows["generations"]:
        made = RecordedGeneration(
            number=row["generation"],
            time_ms=row["timestamp"],
            state=row["state"],
            group_type=row["group_type"],
            protocol=row["protocol"],
            protocol_type=row["protocol_type"],
            delay_ms=-1 if row["delay_ms"] is None else row["delay_ms"],
        )
        if said := ended.get((made.number, made.time_ms)):
            made.cause, made.is_stated = said["cause"], said["cause_basis"] == STATED
            made.pause_seconds = said["pause_lower_seconds"], said["pause_upper_seconds"]
        found.append(made)
        place[made.number, made.time_ms] = made
    own: dict[tuple[int, int, str], list[TopicPartition]] = {}
    for row in rows["assignments"]:
        if row["role"] not in ("active", None):
            continue
        key = (row["generation"], row["timestamp"], row["member_id"])
        at = place.get(key[:2])
        least = 0 if at is None else at.kind.lowest
        topic = row["topic"]
        own.setdefault(key, []).extend((topic, p) for p in row["partitions"] if p >= least)
    for row in rows["members"]:
        at = place.get((row["generation"], row["timestamp"]))
        if at is None:
            continue
        owned = own.get((row["generation"], row["timestamp"], row["member_id"]), [])
        topics = sorted(row["subscribed_topics"] or {topic for topic, _ in owned})
        at.members.append(
            RecordedMember(
                member_id=row["member_id"],
                instance_id=row["group_instance_id"],
                client_id=row["client_id"] or "",
                client_host=row["client_host"] or "",
                topics=tuple(topics),
                session_ms=row["session_timeout_ms"],
                rebalance_ms=row["rebalance_timeout_ms"],
                owned=owned,
                rack=row["rack"],
            )
        )
    return found


def _lags(rows: Sequence[dict[str, Any]]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        to_read = row["lag_by_reset"] if row["lag"] is None else row["lag"]
        found.setdefault(row["topic"], {})[row["partition"]] = to_read or 0
    return found
