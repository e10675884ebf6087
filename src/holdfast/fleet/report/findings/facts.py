"""Facts about one group for the doctor's rules: its tables as columns, read once.

**Rules.** Pure: tables in, columns out. Times are UTC milliseconds, durations seconds. A rule never
reads a table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.cluster.snapshot import GONE
from holdfast.core.command_lines import NOT_KNOWN, GivenSource
from holdfast.core.kinds.kind import GroupKind, GroupType
from holdfast.core.kinds.rows import CLASSIC, kind_of
from holdfast.core.machine.clients import clients_of
from holdfast.core.machine.upgrade import Client
from holdfast.core.model.columns import F64, I32, I64
from holdfast.fleet.columnar import ArrowTable, codes, floats, ints, times_ms, words
from holdfast.fleet.report.columns.history import Rebalances, read_rebalances
from holdfast.fleet.report.columns.live import LiveGroup
from holdfast.fleet.report.columns.rebuilding import CommitTimes, Rebuilding, rebuilding_of
from holdfast.fleet.report.columns.timeline import (
    Settlements,
    Timeline,
    build_timeline,
    count_roles,
)
from holdfast.fleet.tables.columns.holdable import to_us
from holdfast.fleet.tables.reading import Tables

BOOL = npt.NDArray[np.bool_]
NEVER = -1
_OF_A_FEW = ["group_instance_id", "client_id", "rack", "subscribed_topics"]
"""Columns of members that are read for a few of them only."""
_OF_RECORDS = ("record", "at_least")
"""What ``lag_seconds`` is where it is of a record."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Presence:
    """Which process was in the group when: one row per generation and member id, by generation.

    Parameters
    ----------
    generation : int64[n]
        Index into the generations.
    member, identity : int32[n]
        Member id and process (:class:`holdfast.fleet.report.columns.identity.Identities`).
    n_copies : int64[n]
        Tasks whose state it replicates for others.
    session_timeout_ms, rebalance_timeout_ms : int64[n]
        -1 where unknown.
    rows : Table
        The stored rows, for columns that are read for a few of them only.
    """

    generation: I64
    member: I32
    identity: I32
    n_partitions: I64
    n_copies: I64
    session_timeout_ms: I64
    rebalance_timeout_ms: I64
    rows: ArrowTable

    def members_of(self, generation: int) -> I32:
        """Return the member of each row of a generation."""
        low, high = np.searchsorted(self.generation, [generation, generation + 1])
        return self.member[low:high]

    def static_name(self, row: int) -> str | None:
        """Return ``group.instance.id`` of a row."""
        name: str | None = self.rows["group_instance_id"][row].as_py()
        return name

    def topics(self, row: int) -> tuple[str, ...]:
        """Return the subscribed topics of a row, sorted."""
        return tuple(sorted(self.rows["subscribed_topics"][row].as_py() or ()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LagRows:
    """Lag of each partition at the end of the window.

    Parameters
    ----------
    partition, lag, committed, commit_ms, position_ms : int64[n]
        -1 if unknown or missing. ``position_ms`` is when the group reached ``committed``.
    age_s : float64[n]
        Age of the first unread record by its own time, or a lower bound; NaN if unknown.
    unread : int8[n]
        1 if a record is unread, 0 if at most control records of transactions follow the commit; -1
        if unknown.
    end, begin : int64[n]
        Log end and start offset; -1 where unknown.
    member : tuple of (str or None)
        Owner in the last generation.
    clamped : tuple of str
        As in the table.
    not_subscribed : bool[n]
        A commit of a topic that no member subscribes to.
    """

    topic: tuple[str, ...]
    partition: I64
    lag: I64
    committed: I64
    commit_ms: I64
    position_ms: I64
    age_s: F64
    unread: npt.NDArray[np.int8]
    end: I64
    begin: I64
    member: tuple[str | None, ...]
    clamped: tuple[str, ...]
    not_subscribed: BOOL

    @property
    def work(self) -> I64:
        """Return the lag of each partition that may be records: 0 if no record is unread."""
        return np.where(self.unread == 0, np.minimum(self.lag, 0), self.lag)

    def waiting_since(self, end_ms: int) -> I64:
        """Return when each partition was last committed, or when its records came if later; ms."""
        came_ms = end_ms - 1000 * np.nan_to_num(self.age_s, nan=end_ms / 1000)
        return np.maximum(self.commit_ms, came_ms.astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Absence:
    """A process that left and came back: generations by index.

    Parameters
    ----------
    identity : int
        Index of the process.
    last_with, first_without, back : int
        Last generation with it, first one without it, first one with it again. The last two are
        equal if it came back so fast that no generation was without it.
    away_s : float
        Seconds from the first record without it (or the last with it) to the one with it again.
    """

    identity: int
    last_with: int
    first_without: int
    back: int
    away_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """Age of tables.

    Parameters
    ----------
    seconds : float
        Seconds since log ends were read, for tables that ``watch`` updates; 0 for others.
    look_every_s : float
        Poll interval of ``watch``; 0 if it runs once.
    started_with : tuple of str
        Options with which ``watch`` was started, without its folder and interval; empty if
        unknown.
    is_updated : bool
        Whether ``watch`` updates the tables; all others are fixed.
    """

    seconds: float = 0.0
    look_every_s: float = 0.0
    started_with: tuple[str, ...] = ()
    is_updated: bool = False


NOT_UPDATED = Age()


def read_age(tables: Tables, now_ms: int) -> Age:
    """Return the age of tables by the caller's clock, in UTC milliseconds."""
    notes = tables.newest_notes()
    taken_us = to_us(str(notes.get("taken_at"))) if "query" in notes else None
    if taken_us is None:
        return NOT_UPDATED
    seconds = max(now_ms - taken_us / 1000, 0.0) / 1000
    words = notes.get("started_with") or ()
    return Age(
        seconds=seconds,
        look_every_s=float(notes.get("every_seconds") or 0.0),
        started_with=tuple(str(word) for word in words),
        is_updated=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Facts:
    """All facts about one group.

    ``kind`` is the present kind of its members. ``record_bytes`` has one entry per generation:
    bytes of its record, -1 without a record. ``n_shared`` counts the partitions that members of a
    share group read at most in one generation. ``roles`` counts the present roles of members
    (:func:`~holdfast.fleet.report.columns.timeline.count_roles`). ``source`` is the origin of the
    tables, for suggested commands. ``rebuilding`` reads commits, so a rule uses it only if needed.

    ``rebalances``, ``absences`` and ``anomalies`` begin at ``since_ms``, which is before every
    record without such a limit; ``recorded`` are the rebalances of all time. Facts of the last
    generation are never too old. ``n_owned`` is the largest number of partitions with an owner at
    once. ``live`` is the coordinators' answer; None without a query. ``leader`` is the member id
    of the last generation's leader.
    """

    group: str
    timeline: Timeline
    rebalances: Rebalances
    recorded: Rebalances
    presence: Presence
    absences: tuple[Absence, ...]
    lag: LagRows
    anomalies: ArrowTable
    record_bytes: I64
    group_type: tuple[str, ...]
    rebalance_index: I64
    since_ms: int = 0
    n_owned: int = 0
    live: LiveGroup | None = None
    leader: str | None = None
    kind: GroupKind = CLASSIC
    n_shared: int = 0
    roles: Mapping[str, int] = field(default_factory=dict)
    source: GivenSource = NOT_KNOWN
    age: Age = NOT_UPDATED
    rebuilding: Callable[[], Rebuilding] = Rebuilding

    @property
    def n_partitions(self) -> int:
        """Count partitions, or tasks and connectors, that ever had an owner or a reader."""
        return max(len(self.timeline.row_partition), self.n_shared)

    @property
    def generations(self) -> Settlements:
        """Settlements of the group."""
        return self.timeline.generations

    @property
    def end_ms(self) -> int:
        """End of the window."""
        return self.timeline.last_ms

    @property
    def gone_ms(self) -> int | None:
        """When the group was deleted, in UTC milliseconds; None for a group that exists.

        If no record of the deletion is left, it is the time of the query to its coordinator.
        """
        if self.live is not None and self.live.seen is not None and not self.live.is_gone:
            return None
        if self.recorded_state == GONE:
            return int(self.generations.at_ms[self.last])
        return self.live.queried_ms if self.live is not None and self.live.is_gone else None

    def generation_end_ms(self, at_ms: int) -> int:
        """Return when the generation at a moment ended, in UTC ms; or the window's end."""
        after = int(np.searchsorted(self.generations.at_ms, at_ms, side="right"))
        return int(np.append(self.generations.at_ms, self.end_ms)[after])

    @property
    def begin_ms(self) -> int:
        """Begin of the window: its limit, or the first generation of the group."""
        return max(self.timeline.first_ms, self.since_ms)

    @property
    def last(self) -> int:
        """Index of the last generation; -1 without one."""
        return len(self.generations.number) - 1

    @property
    def recorded_state(self) -> str:
        """State as of the last generation."""
        return self.generations.state[self.last] if self.last >= 0 else "unknown"

    @property
    def state_now(self) -> str:
        """State from its coordinator; from the last generation if it was not queried."""
        if self.live is None or self.last < 0:
            return self.recorded_state
        if self.live.is_gone:
            return GONE
        return self.recorded_state if self.live.seen is None else self.live.seen.state

    @property
    def state(self) -> str:
        """State for rules, which take members and owners from the last generation.

        A coordinator that reports Stable while the records say Empty has a generation that was not
        read yet: its members and owners are unknown.
        """
        is_read = self.state_now != "Stable" or self.recorded_state == "Stable"
        return self.state_now if is_read else "unknown"

    @property
    def settled_ms(self) -> int | None:
        """Time of the last generation's record, in UTC milliseconds; None without one."""
        return int(self.generations.at_ms[self.last]) if self.last >= 0 else None

    @property
    def n_members(self) -> int:
        """Number of members from the coordinator; of the last generation if it was not queried."""
        seen = None if self.live is None else self.live.seen
        if seen is not None and seen.members is not None:
            return len(seen.members)
        return int(self.generations.n_members[self.last]) if self.last >= 0 else 0

    @property
    def clients(self) -> frozenset[Client | str | None]:
        """Client libraries of the last members, as far as the records show them."""
        p = self.presence
        if not len(p.generation):
            return frozenset()
        last = int(p.generation[-1])
        rows = p.rows.filter(pa.array(p.generation == last))
        members = zip(rows["client_id"].to_pylist(), rows["rack"].to_pylist(), strict=True)
        return clients_of(self.group, self.generations.protocol[last], members)

    @property
    def n_rebalances(self) -> int:
        """Number of rebalances; the first recorded generation is not counted."""
        return int((~self.rebalances.caused_by("first_seen")).sum())

    @property
    def downtime_s(self) -> float:
        """Return the best single estimate of the group's downtime, in seconds a partition.

        The estimate is the upper bound of the downtime, divided by the partitions: Kafka records
        when a rebalance ended and not when it began, so the lower bound of an eager group, in which
        everything stops, is 0.
        """
        return self.downtimes_s[1]

    @property
    def downtimes_s(self) -> tuple[float, float]:
        """Lower and upper bound of the group's downtime, in seconds a partition."""
        lower, upper = self.rebalances.total_downtime_s
        return self.per_partition_s(lower), self.per_partition_s(upper)

    def per_partition_s(self, partition_seconds: float) -> float:
        """Return partition-seconds as seconds of each of the group's partitions, on average."""
        return partition_seconds / max(self.n_owned, 1)

    @property
    def members_now(self) -> BOOL:
        """Rows of presence that belong to the last generation."""
        now: BOOL = self.presence.generation == self.last
        return now

    def anomalies_of(self, kind: str) -> ArrowTable:
        """Return anomalies whose kind begins with ``kind``, in the order of their table."""
        return self.anomalies.filter(pc.starts_with(self.anomalies["kind"], kind))

    def partition_name(self, row: int) -> str:
        """Return ``topic-partition`` of a timeline row; tasks and connectors as their tools do."""
        t = self.timeline
        topic, partition = t.topics[t.row_topic[row]], int(t.row_partition[row])
        return f"{topic}{self.kind.words.joint}{partition}" if partition >= 0 else str(topic)

    def had_work(self, rows: I64, at_ms: int) -> bool:
        """Return whether some timeline rows had work at a moment: later progress, or lag."""
        t, lag = self.timeline, self.lag
        busy = {
            (topic, int(lag.partition[i]))
            for i, topic in enumerate(lag.topic)
            if lag.position_ms[i] > at_ms or lag.work[i] > 0
        }
        return any((t.topics[t.row_topic[row]], int(t.row_partition[row])) in busy for row in rows)

    def owner_at(self, generation: int) -> I32:
        """Return the owner of each timeline row after a generation: member index or negative."""
        t = self.timeline
        return t.owner_at(int(t.generations.at_ms[generation]))


def read_facts(
    tables: Tables,
    group: str,
    last_ms: int | None = None,
    *,
    since_ms: int | None = None,
    live: LiveGroup | None = None,
    source: GivenSource = NOT_KNOWN,
    age: Age = NOT_UPDATED,
    commits: CommitTimes | None = None,
) -> Facts:
    """Read the facts of one group; the window ends at ``last_ms``, in UTC milliseconds.

    ``tables`` may be any of the pipeline's. Without a table, rules that need it find nothing.
    Without ``since_ms``, the window has no begin. Without ``commits``, the cost of a move is
    unknown.
    """
    timeline = build_timeline(tables, group, last_ms)
    recorded = read_rebalances(tables, group)
    begin_ms = NEVER if since_ms is None else since_ms
    rebalances = recorded.since(begin_ms)
    presence = _presence(tables, timeline)
    generations = tables.of_group(group, "generations")
    kinds, names = codes(generations, "group_type")
    shared = generations.filter(pc.equal(generations["group_type"], GroupType.SHARE))
    return Facts(
        group=group,
        timeline=timeline,
        rebalances=rebalances,
        recorded=recorded,
        since_ms=begin_ms,
        n_owned=int(ints(generations, "n_partitions", 0).max(initial=0)),
        live=live,
        leader=_leader(generations, timeline.generations),
        presence=presence,
        absences=_absences(presence, timeline.generations, begin_ms),
        lag=_lag(tables, group),
        anomalies=_anomalies(tables.of_group(group, "anomalies"), timeline.generations, begin_ms),
        record_bytes=_record_bytes(generations, timeline.generations),
        group_type=tuple(names[k] for k in np.unique(kinds) if k >= 0),
        kind=_kind(generations),
        n_shared=int(ints(shared, "n_partitions").max(initial=0)),
        roles=count_roles(tables.of_group(group, "assignments"), timeline.generations),
        source=source,
        age=age,
        rebuilding=Rebuilding
        if commits is None
        else lambda: rebuilding_of(commits.of_group(group), timeline),
        rebalance_index=timeline.generations.index_of(rebalances.generation, rebalances.at_ms),
    )


def _kind(generations: ArrowTable) -> GroupKind:
    """Return the kind of the group by its last generation with members."""
    peopled = np.flatnonzero(ints(generations, "n_members", 0))
    if not len(peopled):
        return CLASSIC
    row = generations.slice(int(peopled[-1]), 1).to_pylist()[0]
    return kind_of(row["group_type"], row["protocol_type"], row["protocol"])


def _leader(generations: ArrowTable, settled: Settlements) -> str | None:
    """Return the member id of the leader of the last generation."""
    index = settled.index_of(ints(generations, "generation"), times_ms(generations, "timestamp"))
    rows = np.flatnonzero((index == len(settled.number) - 1) & (index >= 0))
    leader: str | None = generations["leader"][int(rows[0])].as_py() if len(rows) else None
    return leader


def _record_bytes(table: ArrowTable, generations: Settlements) -> I64:
    """Return the bytes of each settlement's record."""
    found = np.full(len(generations.number), NEVER, dtype=np.int64)
    index = generations.index_of(ints(table, "generation"), times_ms(table, "timestamp"))
    np.maximum.at(found, index[index >= 0], ints(table, "record_bytes")[index >= 0])
    return found


def _presence(tables: Tables, timeline: Timeline) -> Presence:
    table = tables.of_group(timeline.group, "members")
    index = timeline.generations.index_of(ints(table, "generation"), times_ms(table, "timestamp"))
    rank, names = codes(table, "member_id")
    place = {name: i for i, name in enumerate(timeline.members)}
    member = np.asarray([place[name] for name in names], dtype=np.int32)
    order = np.lexsort((rank, index))
    order = order[index[order] >= 0]
    members = member[rank[order]] if len(names) else np.zeros(0, dtype=np.int32)
    return Presence(
        generation=index[order],
        member=members,
        identity=timeline.identities.identity[members],
        n_partitions=ints(table, "n_partitions")[order],
        n_copies=(ints(table, "n_standby", 0) + ints(table, "n_warmup", 0))[order],
        session_timeout_ms=ints(table, "session_timeout_ms")[order],
        rebalance_timeout_ms=ints(table, "rebalance_timeout_ms")[order],
        rows=table.select(_OF_A_FEW).take(pa.array(order)),
    )


def _anomalies(table: ArrowTable, generations: Settlements, since_ms: int) -> ArrowTable:
    """Return anomalies since a moment, and those of the last generation, whenever it began."""
    at_ms = times_ms(table, "timestamp")
    last = len(generations.number) - 1
    stands = generations.index_of(ints(table, "generation"), at_ms) == last
    return table.filter(pa.array((at_ms >= since_ms) | stands))


def _absences(presence: Presence, generations: Settlements, since_ms: int) -> tuple[Absence, ...]:
    """Return absences and restarts that ended since a moment, ordered by their end."""
    found = []
    order = np.lexsort((presence.generation, presence.identity))
    identity, generation = presence.identity[order], presence.generation[order]
    member = presence.member[order]
    n_empty = np.append(0, np.cumsum(generations.n_members == 0))  # before each generation
    same = identity[1:] == identity[:-1]
    step = np.diff(generation)
    other = member[1:] != member[:-1]
    for i in np.flatnonzero(same & ((step > 1) | ((step == 1) & other))) + 1:
        before, back = int(generation[i - 1]), int(generation[i])
        gap = back > before + 1
        first = before + 1
        if generations.at_ms[back] < since_ms:
            continue
        if n_empty[back] > n_empty[first]:
            continue  # the whole group was stopped: no member waited for this one
        since = generations.at_ms[first] if gap else generations.at_ms[before]
        found.append(
            Absence(
                identity=int(identity[i]),
                last_with=before,
                first_without=first,
                back=back,
                away_s=float(generations.at_ms[back] - since) / 1000 if gap else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda a: (a.back, a.identity)))


def _lag(tables: Tables, group: str) -> LagRows:
    table = tables.of_group(group, "lag")
    return LagRows(
        topic=words(table, "topic"),
        partition=ints(table, "partition"),
        lag=ints(table, "lag"),
        committed=ints(table, "current_offset"),
        commit_ms=times_ms(table, "commit_timestamp", NEVER),
        position_ms=times_ms(table, "position_timestamp", NEVER),
        age_s=np.where(
            np.asarray(
                [how in _OF_RECORDS for how in table["lag_seconds_basis"].to_pylist()], bool
            ),
            floats(table, "lag_seconds"),
            np.nan,
        ),
        unread=np.asarray(table["has_unread"].cast("int8").fill_null(-1)),
        end=ints(table, "log_end_offset"),
        begin=ints(table, "log_start_offset"),
        member=tuple(table["member_id"].to_pylist()),
        clamped=words(table, "clamped"),
        not_subscribed=np.asarray(table["not_subscribed"].fill_null(False), bool),
    )
