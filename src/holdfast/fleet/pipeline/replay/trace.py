"""A group as a history has it, row by row, and its trace: plain data for a replay.

**Rules.** A trace contains values only, and is sent to a worker whole. A *slot* is one member id;
an *identity* is a member that stays the same over restarts.
:mod:`holdfast.fleet.pipeline.replay.trace_builder` turns rows into a trace.

All rows of a group are read, and nothing is guessed. A member belongs to the generation with its
number and time; partition ids below 0 are omitted, except for the -1 of a connector itself.

In a group of workers connectors and tasks, or a Worker's resources, move. There each kind of
resource becomes a topic (:func:`as_kinds`), so that all later steps know topics and partitions
alone. Every member subscribes to all kinds. Resources of a kind are numbered from 0 in the order in
which they first had an owner, those of one generation by name. Nothing else of the rows changes.

**Strategy.** Each table is sorted by group once, so a group is a slice; only slices become Python.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds import GroupKind, GroupType, kind_of
from holdfast.fleet.columnar import GroupedTable
from holdfast.fleet.pipeline.history.broker_log import STATED
from holdfast.fleet.tables.reading import Tables

TopicPartition = tuple[str, int]
Row: TypeAlias = dict[str, Any]

SESSION_MS: Final = 45_000
"""Where no record has a session: the default of Kafka's clients, and of its brokers (KIP-848)."""
RESTART_MS: Final = 10_000
"""Where no record shows an absence: from the end of a killed process to its next start."""


class EventType(StrEnum):
    """Types of events in a trace."""

    START = "start"
    STOP = "stop"
    CRASH = "crash"
    SUBSCRIBE = "subscribe"
    RESIZE = "resize"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One thing that happens: ``event_type`` to a slot (or to ``topics[0]``: ``count`` partitions).

    ``expired``: a static member starts as soon as the coordinator has removed it. ``returns``: a
    static member stops without leaving the group, to come back.
    """

    at_ms: int
    event_type: EventType
    slot: int = -1
    topics: tuple[str, ...] = ()
    count: int = 0
    expired: bool = False
    returns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """Generations with members, one after the other.

    ``partitions`` are those at the start, ``slots`` the members of the first generation. Events are
    ordered; 0 ms is the record of the first generation. ``generations`` has identities of the
    members of each recorded generation, without the first.
    """

    partitions: dict[str, int]
    slots: tuple[int, ...]
    events: tuple[TraceEvent, ...]
    generations: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTrace:
    """Trace of one group."""

    group: str
    protocol: str | None  # the assignor of most generations
    cooperative: bool  # whether members keep working through a rebalance
    # Whether every member has an instance id; a slot is then an identity and may start again.
    static: bool
    identities: tuple[int, ...]
    subscribed: dict[int, tuple[str, ...]]  # topics to which each slot subscribes when it starts
    # ``session_ms``, ``rebalance_ms``: timeouts of the members, -1 if unknown.
    session_ms: int
    rebalance_ms: int
    delay_ms: int  # delay of lost partitions, from the group's own assignments; -1 if unknown
    n_partitions: int  # most partitions that had an owner at once
    moved: int  # partitions that moved to another identity
    # ``gap_lower_seconds``, ``gap_upper_seconds``: partition-seconds without an owner, as in
    # ``rebalances``.
    gap_lower_seconds: float
    gap_upper_seconds: float
    sessions: tuple[RecordedSession, ...]
    lags: dict[str, tuple[int, ...]] = field(default_factory=dict)
    note: str = ""
    # Client of its members, as far as the records show
    # (:func:`holdfast.fleet.pipeline.replay.trace_builder.client_of`).
    client: str = ""
    kip848: bool = False  # whether its last generation is that of a KIP-848 group
    refused: str = ""  # why the group has no replay; empty if it has one
    # Whether the members own resources, replayed as partitions, with their kinds as topics.
    workers: bool = False
    # The policy that is nearest to that of the group's own leader, if it is none of ours.
    imitated_by: str = ""

    @property
    def n_events(self) -> int:
        """Number of events in all sessions."""
        return sum(len(session.events) for session in self.sessions)

    @property
    def n_rebalances(self) -> int:
        """Number of recorded rebalances to be replayed."""
        return sum(len(session.generations) for session in self.sessions)


# The rows of a group


@dataclass(slots=True, kw_only=True)
class RecordedMember:
    """One ``members`` row with its partitions; the trace numbers its slot."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None
    owned: Sequence[TopicPartition]
    rack: str | None = None
    slot: int = -1


@dataclass(slots=True, kw_only=True)
class RecordedGeneration:
    """A generation with its members, and the rebalance that it ended.

    ``delay_ms``: the running delay in its assignments, -1 if they have none. ``gap_seconds``:
    bounds of the partition-seconds without an owner that ended with it.
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
    gap_seconds: tuple[float, float] = (0.0, 0.0)
    members: list[RecordedMember] = field(default_factory=list)

    @property
    def kind(self) -> GroupKind:
        """Kind of the group."""
        return kind_of(self.group_type, self.protocol_type, self.protocol)

    @property
    def n_owned(self) -> int:
        """Number of partitions with an owner."""
        return sum(len(member.owned) for member in self.members)

    @property
    def counts(self) -> dict[str, int]:
        """Return the highest owned partition of each topic, plus one."""
        found: dict[str, int] = {}
        for member in self.members:
            for topic, partition in member.owned:
                found[topic] = max(found.get(topic, 0), partition + 1)
        return found


@dataclass(kw_only=True)
class GroupRows:
    """Rows of one group; times are in milliseconds."""

    group: str
    generations: list[RecordedGeneration]
    gaps: list[Row]
    lags: dict[str, dict[int, int]] = field(default_factory=dict)
    """Lag by topic and partition; a partition without a row has none."""

    @cached_property
    def _gaps(self) -> dict[int | None, list[Row]]:
        found: dict[int | None, list[Row]] = {}
        for row in self.gaps:
            begun = row["unowned_since"] if row["basis"] == "unowned" else row["timestamp"]
            found.setdefault(begun, []).append(row)
        return found

    def _next_last_seen(self, time_ms: int, wanted: set[TopicPartition]) -> Iterator[int]:
        """Yield the last evidence before the first gap of each partition from then on."""
        later = bisect_left(self._by_end, time_ms, key=lambda gap: gap["timestamp"])
        for gap in itertools.islice(self._by_end, later, None):
            found = wanted.intersection((gap["topic"], p) for p in gap["partitions"])
            if found:
                yield gap["last_seen"]
            wanted = wanted - found
            if not wanted:
                return

    @cached_property
    def _by_end(self) -> list[Row]:
        return sorted(self.gaps, key=lambda gap: gap["timestamp"])

    def last_seen_ms(self, row: RecordedGeneration, owned: Sequence[TopicPartition]) -> int:
        """Return the last evidence of the owner of partitions lost by ``row``; -1 for none.

        Gaps of a KIP-848 group end with other records than its epochs, so for it the next gap of
        each partition decides.
        """
        mine = set(owned)
        if row.group_type == GroupType.CONSUMER:
            return max(self._next_last_seen(row.time_ms, mine), default=-1)
        seen_ms = [
            gap["last_seen"]
            for gap in self._gaps.get(row.time_ms, ())
            if any((gap["topic"], p) in mine for p in gap["partitions"])
        ]
        return max(seen_ms, default=-1)


_MEMBER = [name for name in RecordedMember.__annotations__ if name not in ("owned", "slot")]
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
    "members": ("generation", "timestamp", *_MEMBER),
    "assignments": ("generation", "timestamp", "member_id", "topic", "partitions", "role"),
    "rebalances": (
        "generation",
        "timestamp",
        "cause",
        "cause_basis",
        "gap_lower_seconds",
        "gap_upper_seconds",
    ),
    "ownership_gaps": ("timestamp", "unowned_since", "last_seen", "topic", "partitions", "basis"),
    "lag": ("topic", "partition", "lag", "lag_by_reset"),
}


def group_rows(
    tables: Tables, *, groups: Sequence[str] | None = None, lags: bool = False
) -> Iterator[GroupRows]:
    """Yield rows of every group, sorted by group."""
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
            gaps=rows["ownership_gaps"],
            lags=_lags(rows.get("lag", [])),
        )


def _cut(tables: Tables, name: str, groups: Sequence[str] | None) -> GroupedTable:
    """Cut one table by group, with times as whole milliseconds."""
    table = tables.table(name, flat=False, groups=groups)
    columns = {"group": table["group"].combine_chunks()}
    for column in _COLUMNS[name]:
        values = table[column].combine_chunks()
        if pa.types.is_timestamp(values.type):
            values = pc.divide(values.cast(pa.int64()), 1_000)
        columns[column] = values
    return GroupedTable.of(pa.table(columns))


def _generations(rows: dict[str, list[Row]]) -> list[RecordedGeneration]:
    found = []
    generation_at: dict[tuple[int, int], RecordedGeneration] = {}
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
            made.gap_seconds = said["gap_lower_seconds"], said["gap_upper_seconds"]
        found.append(made)
        generation_at[made.number, made.time_ms] = made
    own: dict[tuple[int, int, str], list[TopicPartition]] = {}
    for row in rows["assignments"]:
        if row["role"] not in ("active", None):
            continue
        key = (row["generation"], row["timestamp"], row["member_id"])
        at = generation_at.get(key[:2])
        least = 0 if at is None else at.kind.lowest
        topic = row["topic"]
        own.setdefault(key, []).extend((topic, p) for p in row["partitions"] if p >= least)
    for row in rows["members"]:
        of = (row["generation"], row["timestamp"])
        if of not in generation_at:
            continue
        owned = own.get((*of, row["member_id"]), [])
        topics = sorted(row["subscribed_topics"] or {topic for topic, _ in owned})
        known = {name: row[name] for name in _MEMBER} | {"subscribed_topics": tuple(topics)}
        known |= {name: row[name] or "" for name in ("client_id", "client_host")}
        generation_at[of].members.append(RecordedMember(owned=owned, **known))
    return found


def _lags(rows: Sequence[Row]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        to_read = row["lag_by_reset"] if row["lag"] is None else row["lag"]
        found.setdefault(row["topic"], {})[row["partition"]] = to_read or 0
    return found


# Groups of workers


def workers_of(rows: GroupRows) -> GroupKind | None:
    """Return the kind of a group whose members own resources; None for any other group."""
    found = [g.kind for g in rows.generations if g.kind.resource_kind is not None]
    return found[-1] if found else None


def as_kinds(rows: GroupRows) -> None:
    """Replace the topics of a group of workers by kinds."""
    number_of = _numbered(rows.generations)
    kinds = tuple(sorted({kind for kind, _ in number_of.values()}))
    for row in rows.generations:
        for at, member in enumerate(row.members):
            owned = sorted(number_of[tp] for tp in member.owned)
            row.members[at] = replace(member, subscribed_topics=kinds, owned=owned)
    rows.gaps = [made for row in rows.gaps for made in _gaps_of_kinds(row, number_of)]


def _numbered(rows: list[RecordedGeneration]) -> dict[TopicPartition, TopicPartition]:
    """Return kind and number of each resource."""
    found: dict[TopicPartition, TopicPartition] = {}
    counts: dict[str, int] = {}
    for row in rows:
        for resource in sorted(
            {tp for member in row.members for tp in member.owned} - found.keys()
        ):
            of_row = row.kind.resource_kind
            kind = resource[0] if of_row is None else of_row(*resource)
            found[resource] = (kind, counts.get(kind, 0))
            counts[kind] = counts.get(kind, 0) + 1
    return found


def _gaps_of_kinds(row: Row, number_of: dict[TopicPartition, TopicPartition]) -> list[Row]:
    """Return a row of ``ownership_gaps`` by kinds."""
    found: dict[str, list[int]] = {}
    for partition in row["partitions"]:
        known = number_of.get((row["topic"], partition))
        if known is not None:
            found.setdefault(known[0], []).append(known[1])
    return [{**row, "topic": kind, "partitions": sorted(p)} for kind, p in found.items()]
