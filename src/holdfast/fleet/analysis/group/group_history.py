"""The history of one group: its rows in every table, decoded once for rules, page and metrics.

**Rules.** Pure: rows in, columns out. Times are UTC milliseconds, durations seconds. Only this
package reads the columns of a group's rows.

**Strategy.** A part is made at its first use and kept: the timeline of a group without moves is
rarely needed. The rows are decoded together with those of other groups
(:meth:`holdfast.fleet.tables.reading.Tables.each_group`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.cluster.snapshot import GONE
from holdfast.core.command_lines import NOT_KNOWN, GivenSource
from holdfast.core.kinds import CLASSIC, GroupKind, GroupType, kind_of
from holdfast.core.machine.upgrade import Client
from holdfast.core.model.columns import I32, I64, Mask, distinct
from holdfast.fleet.analysis.group.client_library import clients_of
from holdfast.fleet.analysis.group.lag import NEVER, LagRows
from holdfast.fleet.analysis.group.live import LiveGroup
from holdfast.fleet.analysis.group.presence import (
    Absence,
    Identities,
    Presence,
    Settlements,
    absences_of,
    read_generations,
    read_identities,
    read_presence,
)
from holdfast.fleet.analysis.group.rebalances import (
    CommitTimes,
    Rebalances,
    Rebuilding,
    read_rebalances,
    rebuilding_of,
)
from holdfast.fleet.analysis.group.timeline import (
    FlatAssignments,
    Timeline,
    build_timeline,
    flat_assignments,
)
from holdfast.fleet.analysis.times import NOT_UPDATED, Age
from holdfast.fleet.columnar import ArrowTable
from holdfast.fleet.tables.reading import GroupTables, Tables

_IN_ORDER = ("timestamp", "generation", "kind", "topic", "partition")
"""Order of the anomalies of a group."""


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: parts are cached
class GroupHistory:
    """The history of one group."""

    # Rows of the group in any of the pipeline's tables. Without a table, rules that need it find
    # nothing.
    stored: GroupTables
    # End of the window in UTC milliseconds; never before the last generation.
    last_ms: int | None = None
    # Begin of the window: ``rebalances``, ``absences`` and ``anomalies`` begin there. The last
    # generation is never too old.
    since_ms: int = NEVER
    live: LiveGroup | None = None  # the coordinators' answer; None without a query
    source: GivenSource = NOT_KNOWN  # origin of the tables, for suggested commands
    age: Age = NOT_UPDATED
    commits: CommitTimes | None = None  # without it, the cost of a move is unknown

    @property
    def name(self) -> str:
        """Name of the group."""
        return self.stored.group

    @cached_property
    def generations(self) -> Settlements:
        """Settlements of the group."""
        return read_generations(self.stored["generations"])

    @cached_property
    def generation_index(self) -> I64:
        """Index of the generation of each row of ``generations``."""
        return self.generations.of_rows(self.stored["generations"])

    @cached_property
    def assignment_index(self) -> I64:
        """Index of the generation of each row of ``assignments``."""
        return self.generations.of_rows(self.stored["assignments"])

    @cached_property
    def identities(self) -> Identities:
        """Member ids, sorted, and the process of each."""
        found = read_identities(self.stored["members"])
        _, owners = self.stored["assignments"].codes("member_id")
        return found.over(sorted({*found.members, *owners}))

    @property
    def members(self) -> tuple[str, ...]:
        """Member ids, sorted."""
        return self.identities.members

    @cached_property
    def flat_assignments(self) -> FlatAssignments:
        """Owned partitions of each generation, one by one."""
        return flat_assignments(self.stored["assignments"], self.assignment_index)

    @cached_property
    def is_always_owned(self) -> bool:
        """Whether every partition that ever had an owner has one in each generation."""
        flat, n_generations = self.flat_assignments, max(len(self.generations.number), 1)
        n_pairs = len(distinct(flat.row * n_generations + flat.generation))
        return n_pairs == len(flat.row_partition) * n_generations

    @cached_property
    def timeline(self) -> Timeline:
        """The owner of each partition over time."""
        return build_timeline(
            self.name,
            self.generations,
            self.identities,
            self.flat_assignments,
            gaps=self.stored["ownership_gaps"],
            last=self.end_ms,
        )

    @cached_property
    def recorded(self) -> Rebalances:
        """Rebalances of all time."""
        return read_rebalances(self.stored["rebalances"])

    @cached_property
    def rebalances(self) -> Rebalances:
        """Rebalances of the window."""
        return self.recorded.since(self.since_ms)

    @cached_property
    def rebalance_index(self) -> I64:
        """Index of the generation of each rebalance of the window."""
        return self.generations.index_of(self.rebalances.generation, self.rebalances.at_ms)

    @cached_property
    def presence(self) -> Presence:
        """Which process was in the group when."""
        rows = self.stored["members"]
        return read_presence(rows, self.generations.of_rows(rows), self.identities)

    @cached_property
    def absences(self) -> tuple[Absence, ...]:
        """Processes that left and came back in the window."""
        return absences_of(self.presence, self.generations, self.since_ms)

    @cached_property
    def lag(self) -> LagRows:
        """Lag of each partition."""
        return LagRows(self.stored["lag"])

    @cached_property
    def anomalies(self) -> ArrowTable:
        """Anomalies of the window, and those of the last generation, whenever it began."""
        rows = self.stored["anomalies"]
        if not len(rows):
            return rows.arrow
        kept = (rows.times_ms("timestamp") >= self.since_ms) | (
            self.generations.of_rows(rows) == self.last
        )
        # Rows of several batches come in the order of their files.
        return rows.arrow.filter(pa.array(kept)).sort_by([(key, "ascending") for key in _IN_ORDER])

    @cached_property
    def record_bytes(self) -> I64:
        """Bytes of the record of each generation; -1 without a record."""
        found = np.full(len(self.generations.number), NEVER, dtype=np.int64)
        index, sizes = self.generation_index, self.stored["generations"].ints("record_bytes")
        np.maximum.at(found, index[index >= 0], sizes[index >= 0])
        return found

    @cached_property
    def group_type(self) -> tuple[str, ...]:
        """Types of the group over time, sorted."""
        return self.stored["generations"].codes("group_type")[1]

    @cached_property
    def kind(self) -> GroupKind:
        """Kind of the group by its last generation with members."""
        rows = self.stored["generations"]
        order = np.lexsort((rows.ints("log_offset"), rows.times_ms("timestamp")))
        peopled = order[rows.ints("n_members", 0)[order] != 0]
        if not len(peopled):
            return CLASSIC
        last = int(peopled[-1])
        group_type = rows.text("group_type", last) or ""
        return kind_of(group_type, rows.text("protocol_type", last), rows.text("protocol", last))

    @cached_property
    def n_owned(self) -> int:
        """The largest number of partitions with an owner at once."""
        return int(self.stored["generations"].ints("n_partitions", 0).max(initial=0))

    @cached_property
    def n_shared(self) -> int:
        """The partitions that members of a share group read at most in one generation."""
        rows = self.stored["generations"]
        shared = rows.equal("group_type", GroupType.SHARE)
        return int(rows.ints("n_partitions")[shared].max(initial=0))

    @cached_property
    def leader(self) -> str | None:
        """Member id of the leader of the last generation."""
        rows = np.flatnonzero((self.generation_index == self.last) & (self.last >= 0))
        return self.stored["generations"].text("leader", int(rows[0])) if len(rows) else None

    @property
    def last_assignments(self) -> ArrowTable:
        """Assignments of the last generation; none without one."""
        kept = (self.assignment_index == self.last) & (self.last >= 0)
        return self.stored["assignments"].arrow.filter(pa.array(kept))

    @cached_property
    def roles(self) -> Mapping[str, int]:
        """Partitions or tasks of the members of the last generation, counted by role.

        A role is ``active`` (its one owner), ``standby`` or ``warmup`` (a copy of a task), or
        ``shared`` (one of many that read a partition of a share group: KIP-932, KIP-1071). An
        assignment without a role is active.
        """
        rows = self.stored["assignments"]
        parent, _ = rows.lists("partitions")
        now = parent[(self.assignment_index[parent] == self.last) & (self.last >= 0)]
        role, names = rows.codes("role")
        active = int((role[now] < 0).sum())
        found = {names[r]: int((role[now] == r).sum()) for r in np.unique(role[now]) if r >= 0}
        return found | ({"active": active + found.get("active", 0)} if active else {})

    @cached_property
    def rebuilding(self) -> Rebuilding:
        """The cost of a move; reads commits."""
        if self.commits is None:
            return Rebuilding()
        return rebuilding_of(self.commits.of_group(self.name), self.timeline)

    @property
    def n_partitions(self) -> int:
        """Count partitions, or tasks and connectors, that ever had an owner or a reader."""
        return max(len(self.flat_assignments.row_partition), self.n_shared)

    @property
    def first_ms(self) -> int:
        """Time of the first generation; 0 without one."""
        at_ms = self.generations.at_ms
        return int(at_ms[0]) if len(at_ms) else 0

    @property
    def end_ms(self) -> int:
        """End of the window."""
        at_ms = self.generations.at_ms
        return max(int(at_ms[-1]) + 1 if len(at_ms) else 1, self.last_ms or 0)

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
        return max(self.first_ms, self.since_ms)

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
        return self.live.state_after(self.recorded_state)

    @property
    def is_as_recorded(self) -> bool:
        """Whether its coordinator says of the group what the last generation says, or nothing.

        Rules then have the same findings with and without the coordinator's answer.
        """
        if self.live is None or (self.live.seen is None and not self.live.is_gone):
            return True
        seen, recorded = self.live.seen, self.recorded_state
        if seen is None or self.live.is_gone or seen.is_rebalancing or recorded == GONE:
            return False
        n_recorded = int(self.generations.n_members[self.last]) if self.last >= 0 else 0
        return seen.state == recorded and self.n_members == n_recorded

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
        rows = np.flatnonzero(p.generation == last).tolist()
        members = [(p.text("client_id", row) or "", p.text("rack", row)) for row in rows]
        return clients_of(self.name, self.generations.protocol[last], members)

    @cached_property
    def n_seen(self) -> int:
        """Number of member ids in the window, those of its first moment included."""
        first = int(np.searchsorted(self.generations.at_ms, self.begin_ms, side="right")) - 1
        return len(np.unique(self.presence.member[self.presence.generation >= first]))

    @property
    def n_rebalances(self) -> int:
        """Number of rebalances; the first recorded generation is not counted."""
        return int((~self.rebalances.caused_by("first_seen")).sum())

    @property
    def downtime_s(self) -> float:
        """Return the best single estimate of the group's downtime, in seconds a partition.

        The estimate is the upper bound of the downtime, divided by the partitions: Kafka records
        when a rebalance ended and not when it began, so the lower bound of an eager group,
        in which everything stops, is 0.
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

    @cached_property
    def members_now(self) -> Mask:
        """Rows of presence that belong to the last generation."""
        now: Mask = self.presence.generation == self.last
        return now

    def anomalies_of(self, kind: str) -> ArrowTable:
        """Return anomalies whose kind begins with ``kind``, in the order of their table."""
        if not self.anomalies.num_rows:
            return self.anomalies
        return self.anomalies.filter(pc.starts_with(self.anomalies["kind"], kind))

    def partition_name(self, row: int) -> str:
        """Return ``topic-partition`` of a timeline row; tasks and connectors as their tools do."""
        t = self.timeline
        topic, partition = t.topics[t.row_topic[row]], int(t.row_partition[row])
        return f"{topic}{self.kind.words.joint}{partition}" if partition >= 0 else str(topic)

    @cached_property
    def _busy_until_ms(self) -> Mapping[tuple[str, int], float]:
        """The last progress of each partition; without end where records wait."""
        lag = self.lag
        until = np.where(lag.work > 0, np.inf, lag.position_ms).tolist()
        return dict(zip(zip(lag.topic, lag.partition.tolist(), strict=True), until, strict=True))

    def had_work(self, rows: I64, at_ms: int) -> bool:
        """Return whether some timeline rows had work at a moment: later progress, or lag."""
        t, until = self.timeline, self._busy_until_ms
        named = ((t.topics[t.row_topic[row]], int(t.row_partition[row])) for row in rows)
        return any(until.get(one, NEVER) > at_ms for one in named)

    @property
    def uses_commits(self) -> bool:
        """Whether a rule has judged a past event by lag or commits, which change without events."""
        return not self.__dict__.keys().isdisjoint(("_busy_until_ms", "rebuilding"))

    def owner_at(self, generation: int) -> I32:
        """Return the owner of each timeline row after a generation: member index or negative."""
        t = self.timeline
        return t.owner_at(int(t.generations.at_ms[generation]))


def read_group(
    tables: Tables, group: str, last_ms: int | None = None, **options: Any
) -> GroupHistory:
    """Return the history of one group; options are those of :class:`GroupHistory`."""
    (found,) = read_groups(tables, [group], last_ms=last_ms, **options)
    return found


def read_groups(
    tables: Tables,
    groups: Sequence[str],
    *,
    columns: Mapping[str, Sequence[str]] | None = None,
    **options: Any,
) -> Iterator[GroupHistory]:
    """Yield the histories of groups; options are those of :class:`GroupHistory`.

    ``columns`` are those to read of a table in a folder, by default all.
    """
    for stored in tables.each_group(groups, columns):
        yield GroupHistory(stored=stored, **options)
