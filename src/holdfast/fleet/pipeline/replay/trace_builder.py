"""Build a group's trace for a replay: members that joined, left and subscribed.

**Rules.** A trace is made from the tables alone, and every guess in it is listed here. An
*identity* is a member that stays the same over restarts: by its instance id, or else by client id
and host if it returns within ``RESTART_WINDOW_SECONDS``. A *slot* is one member id. Slots are
numbered in the order of the ids, so an assignor that assigns by id assigns as it did.

A *session* is a run of generations with members. While a group is empty no policy can do anything,
so that time is omitted. A session begins with its first generation, which is not an event.

**Strategy.** Two successive generations differ by joined and departed members. Each of them
becomes an event at a guessed time. Changes in one record happen at once, since they were one
round:

==========================  =====================================================================
event                       time
==========================  =====================================================================
start, subscribe, resize    :data:`ROUND_MS` before the record
stop (it left by request)   the same; a static member that comes back, which makes no round: its
                            last evidence
crash (it became silent)    a session before the record, and not before its last evidence. A member
                            crashed if a broker's log says that its session ended, or if no log has
                            its departure and its last commit is ``GOODBYE`` of a session before
                            the record
start of a member that      in an eager group the last evidence of the others: they stopped when
crashed in the same record  it joined, and waited for the dead one. Else after the usual absence of
                            the group's members, or :data:`RESTART_MS`
restart of a static member  it expired, or there would be no new generation: a crash a session
in a new generation         before the record, and a start as it expires
==========================  =====================================================================

A KIP-848 coordinator writes its record when a member joins or leaves, so its events are at their
records.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median, mode
from typing import Any, Final

from holdfast.core.kinds import GroupKind, GroupType
from holdfast.core.model.constants import believed_size
from holdfast.fleet.analysis.group.client_library import clients_of
from holdfast.fleet.pipeline.history.movements import RESTART_WINDOW_SECONDS, works_on
from holdfast.fleet.pipeline.ingest.generations import STABLE
from holdfast.fleet.pipeline.replay.trace import (
    RESTART_MS,
    SESSION_MS,
    EventType,
    GroupRows,
    GroupTrace,
    RecordedGeneration,
    RecordedMember,
    RecordedSession,
    TraceEvent,
    as_kinds,
    group_rows,
    workers_of,
)
from holdfast.fleet.tables.reading import Tables

MAX_GENERATIONS: Final = 1_000
"""Newest generations in a trace; a note gives the number of omitted ones."""

ROUND_MS: Final = 500
"""Duration of a round of members that all notice it at once."""

GOODBYE: Final = 2 / 3
"""A member that was silent for this fraction of its session, or more, sent no leave request: its
last heartbeat came a session before it was removed, and its last commit up to a heartbeat
earlier."""

JOINED_MS: Final = 5_000
"""Time until a KIP-848 member has its partitions; later evidence of it is a commit."""

WENT: Final[Mapping[str, EventType]] = {
    "leave": EventType.STOP,
    "session_timeout": EventType.CRASH,
}
"""Stated causes of a rebalance that determine how its members left."""

GROWTH: Final = ("partition_count_change", "configuration_change")
"""Causes of a rebalance that may bring partitions, or connectors and tasks."""


def traces(
    tables: Tables,
    topics: Mapping[str, int] | None = None,
    *,
    groups: Sequence[str] | None = None,
    lags: bool = False,
) -> Iterator[GroupTrace]:
    """Yield the trace of every group that ever had members.

    ``topics`` has numbers of partitions; that of other topics is inferred from the assignments.
    """
    for rows in group_rows(tables, groups=groups, lags=lags):
        trace = trace_of(rows, topics or {})
        if trace is not None:
            yield trace


def trace_of(rows: GroupRows, topics: Mapping[str, int]) -> GroupTrace | None:
    """Return one group's trace; None if it never had readable members."""
    if not any(row.state == STABLE and row.members for row in rows.generations):
        return None
    workers = workers_of(rows)
    if workers:
        as_kinds(rows)
    return _TraceBuilder(rows, {} if workers else topics, workers).trace()


def _refused(rows: Sequence[RecordedGeneration]) -> str:
    """Return why a group has no replay: its last generation that takes no assignor of ours."""
    none = [row.kind.no_replay.get(row.protocol or "") for row in rows]
    other = [row.kind.own_assignment for row in reversed(rows) if row.kind.resource_kind is None]
    return next(filter(None, [*none, *other]), "")


class _TraceBuilder:
    """Walks through one group's generations."""

    def __init__(
        self,
        rows: GroupRows,
        topics: Mapping[str, int],
        workers: GroupKind | None,
    ):
        self.rows, self.note, self.workers = rows, "", workers
        n_rows = len(rows.generations)
        if n_rows > MAX_GENERATIONS:
            self.note = f"the newest {MAX_GENERATIONS} of {n_rows} generations"
            del rows.generations[:-MAX_GENERATIONS]
        members = [m for row in rows.generations for m in row.members]
        self.static = all(m.group_instance_id for m in members)
        names = sorted({self._name(m) for m in members})
        slot_of = {name: slot for slot, name in enumerate(names)}
        for member in members:
            member.slot = slot_of[self._name(member)]
        self.identity = list(range(len(names))) if self.static else [-1] * len(names)
        self.subscribed: dict[int, tuple[str, ...]] = {}
        self.kip848 = rows.generations[-1].group_type == GroupType.CONSUMER
        self.lead_ms = 0 if self.kip848 else ROUND_MS
        restarts = _restarts(rows)
        self.restart_ms = int(median(restarts)) if restarts else -1
        self.n_identities = len(self.identity) if self.static else 0
        self.gone: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.identity_by_instance: dict[str, int] = {}
        self.sizes = _sizes(rows, topics)
        self.partitions = _first_counts(rows, self.sizes)
        self.sessions: list[RecordedSession] = []
        self.moved = 0
        self.gap = [0.0, 0.0]
        self.n_configured = 0

    def trace(self) -> GroupTrace:
        rows = self.rows.generations
        for run in _runs(rows):
            self._add_session(run)
        if self.n_configured:
            left = f"{self.n_configured} rounds of other configurations, which every policy has"
            self.note = "; ".join(filter(None, (self.note, f"without {left}")))
        members = [m for row in rows for m in row.members]
        protocol = _most(row.protocol for row in rows)
        imitated_by = "" if self.workers is None else self.workers.imitated_by
        cooperative = bool(imitated_by) or any(works_on(row.kind, protocol) for row in rows)
        return GroupTrace(
            group=self.rows.group,
            protocol=protocol,
            cooperative=cooperative,
            static=self.static,
            identities=tuple(self.identity),
            subscribed=self.subscribed,
            session_ms=_most(m.session_timeout_ms for m in members) or -1,
            rebalance_ms=_most(m.rebalance_timeout_ms for m in members) or -1,
            delay_ms=_announced_delay(self.rows),
            n_partitions=max(row.n_owned for row in rows),
            moved=self.moved,
            gap_lower_seconds=self.gap[0],
            gap_upper_seconds=self.gap[1],
            sessions=tuple(self.sessions),
            lags=_lag_columns(self.rows.lags, self.sizes),
            note=self.note,
            client=client_of(self.rows),
            kip848=self.kip848,
            refused=_refused(rows),
            workers=self.workers is not None,
            imitated_by=imitated_by,
        )

    def _add_session(self, run: Sequence[int]) -> None:
        """Add the generations at the indices ``run`` as one session."""
        first = self.rows.generations[run[0]]
        begin_ms = first.time_ms
        for member in first.members:
            self._meet(member, first.time_ms)
        slots = tuple(sorted({m.slot for m in first.members}))
        partitions = dict(self.partitions)
        events: list[TraceEvent] = []
        generations = []
        last = self._owners(first)
        for before, index in itertools.pairwise(run):
            row = self.rows.generations[index]
            found = self._between(before, index, begin_ms)
            events += found
            if row.number == self.rows.generations[before].number:
                continue
            if not found and row.cause == "configuration_change":
                self.n_configured += 1  # same members, and no new partition to assign
            else:
                generations.append(tuple(sorted(self.identity[m.slot] for m in row.members)))
            now = self._owners(row)
            self.moved += sum(last.get(tp, identity) != identity for tp, identity in now.items())
            last |= now
            for i, value in enumerate(row.gap_seconds):
                self.gap[i] += value
        events.sort(key=lambda h: h.at_ms)
        self.sessions.append(
            RecordedSession(
                partitions=partitions,
                slots=slots,
                events=tuple(events),
                generations=tuple(generations),
            )
        )

    def _owners(self, row: RecordedGeneration) -> dict[tuple[str, int], int]:
        """Return the owner's identity of each partition; of two owners the smallest id."""
        found: dict[tuple[str, int], int] = {}
        for member in sorted(row.members, key=lambda m: m.member_id, reverse=True):
            found |= dict.fromkeys(member.owned, self.identity[member.slot])
        return found

    def _name(self, member: RecordedMember) -> str:
        return str(member.group_instance_id) if self.static else member.member_id

    def _meet(self, member: RecordedMember, time_ms: int) -> None:
        """Note the subscription and the identity of a new member."""
        slot = member.slot
        self.subscribed.setdefault(slot, member.subscribed_topics)
        if self.identity[slot] >= 0:
            return
        waiting = self.gone.get((member.client_id, member.client_host), [])
        identity = self.identity_by_instance.get(member.group_instance_id or "", -1)
        if identity < 0 and waiting and not member.group_instance_id:
            since_ms, gone = waiting.pop()
            if time_ms - since_ms <= RESTART_WINDOW_SECONDS * 1_000:
                identity = gone
        if identity < 0:
            identity, self.n_identities = self.n_identities, self.n_identities + 1
        self.identity[slot] = identity
        if member.group_instance_id:
            self.identity_by_instance[member.group_instance_id] = identity

    def _between(self, before: int, after: int, begin_ms: int) -> list[TraceEvent]:
        """Return the events between two successive generations."""
        old, new = self.rows.generations[before], self.rows.generations[after]
        floor_ms = old.time_ms + 1
        at_ms = max(floor_ms, new.time_ms - self.lead_ms)
        were, are = ({(m.member_id, m.slot): m for m in row.members} for row in (old, new))
        found = []
        again = self.static and new.number == old.number
        for member in [m for name, m in were.items() if name not in are]:
            event_type, when = self._departure(member, before, after)
            slot, when = member.slot, max(floor_ms, when)
            key = (member.client_id, member.client_host)
            self.gone.setdefault(key, []).append((new.time_ms, self.identity[slot]))
            found.append(TraceEvent(at_ms=when, event_type=event_type, slot=slot, returns=again))
        left = {self.identity[h.slot]: h for h in found}
        came = [m for name, m in are.items() if name not in were]
        found += [self._arrival(m, old, new, left) for m in came]
        found += self._changes(were, are, new.counts, at_ms)
        return [replace(h, at_ms=h.at_ms - begin_ms) for h in found]

    def _arrival(
        self,
        member: RecordedMember,
        old: RecordedGeneration,
        new: RecordedGeneration,
        left: Mapping[int, TraceEvent],
    ) -> TraceEvent:
        """Return when a member joined; ``left``: identities that left meanwhile, and how."""
        self._meet(member, new.time_ms)
        slot = member.slot
        gone = left.get(self.identity[slot])
        expired = self.static and new.number != old.number
        at_ms = max(old.time_ms + 1, new.time_ms - self.lead_ms)
        if gone is not None and gone.event_type is EventType.CRASH and not expired:
            at_ms = min(at_ms, self._return(gone.at_ms, old, new))
        if gone is not None:
            at_ms = max(gone.at_ms + 1, at_ms)
        return TraceEvent(
            at_ms=at_ms,
            event_type=EventType.START,
            slot=slot,
            topics=member.subscribed_topics,
            expired=expired and gone is not None,
        )

    def _return(self, left_ms: int, old: RecordedGeneration, new: RecordedGeneration) -> int:
        """Return when a member came back whose crash and return one record shows."""
        stayed = {m.member_id for m in old.members} & {m.member_id for m in new.members}
        own = [tp for member in old.members if member.member_id in stayed for tp in member.owned]
        waited_ms = -1 if self.kip848 else self.rows.last_seen_ms(new, own)
        if waited_ms > old.time_ms:
            return waited_ms
        return left_ms + (self.restart_ms if self.restart_ms >= 0 else RESTART_MS)

    def _departure(self, member: RecordedMember, before: int, after: int) -> tuple[EventType, int]:
        """Return how and when a member left: by the cause, by its last evidence, or by default."""
        old, new = self.rows.generations[before], self.rows.generations[after]
        at_ms = new.time_ms - self.lead_ms
        session_ms = member.session_timeout_ms or SESSION_MS
        returns = self.static and new.number == old.number
        if (
            self.static
            and not returns
            and member.group_instance_id in {m.group_instance_id for m in new.members}
        ):
            return EventType.CRASH, new.time_ms - session_ms
        seen_ms = self.rows.last_seen_ms(new, member.owned)
        reported_ms = self._joined(member, before) + JOINED_MS if self.kip848 else old.time_ms
        silent = reported_ms < seen_ms <= new.time_ms - GOODBYE * session_ms
        guessed = EventType.CRASH if silent else EventType.STOP
        event_type = WENT.get(new.cause, guessed) if new.is_stated else guessed
        if event_type is EventType.CRASH:
            return event_type, max(seen_ms, new.time_ms - session_ms)
        return event_type, seen_ms if returns and seen_ms > old.time_ms else at_ms

    def _joined(self, member: RecordedMember, before: int) -> int:
        """Return when a member joined that is in the generation at this index."""
        at_ms = self.rows.generations[before].time_ms
        for row in reversed(self.rows.generations[:before]):
            if all(m.member_id != member.member_id for m in row.members):
                break
            at_ms = row.time_ms
        return at_ms

    def _changes(
        self,
        were: Mapping[tuple[str, int], RecordedMember],
        are: Mapping[tuple[str, int], RecordedMember],
        counts: Mapping[str, int],
        at_ms: int,
    ) -> list[TraceEvent]:
        """Return changes of subscriptions and partition counts."""
        found = [
            TraceEvent(
                at_ms=at_ms,
                event_type=EventType.SUBSCRIBE,
                slot=name[1],
                topics=m.subscribed_topics,
            )
            for name, m in are.items()
            if were.get(name, m).subscribed_topics != m.subscribed_topics
        ]
        for topic, seen in sorted(counts.items()):
            count = min(seen, self.sizes[topic])
            if count > self.partitions.get(topic, 0):
                self.partitions[topic] = count
                found.append(
                    TraceEvent(
                        at_ms=at_ms, event_type=EventType.RESIZE, topics=(topic,), count=count
                    )
                )
        return found


def _runs(rows: Sequence[RecordedGeneration]) -> Iterator[list[int]]:
    """Yield indices of successive generations with members."""
    has_members = [row.state == STABLE and bool(row.members) for row in rows]
    for has, run in itertools.groupby(range(len(rows)), has_members.__getitem__):
        if has:
            yield [*run]


def _sizes(rows: GroupRows, topics: Mapping[str, int]) -> dict[str, int]:
    """Return the final partitions of each topic: from the cluster, or by the highest number seen.

    :func:`holdfast.core.model.constants.believed_size` bounds each number, which alone decides
    nothing.
    """
    seen: dict[str, set[int]] = {}
    for row in rows.generations:
        for member in row.members:
            for topic, partition in member.owned:
                seen.setdefault(topic, set()).add(partition)
    highest = {topic: max(numbers) + 1 for topic, numbers in seen.items()}
    subscribed = {t for row in rows.generations for m in row.members for t in m.subscribed_topics}
    found = {topic: topics.get(topic, 0) for topic in sorted(subscribed | set(seen))}
    for topic, numbers in seen.items():
        found[topic] = max(found[topic], believed_size(highest[topic], len(numbers)))
    return {topic: size for topic, size in found.items() if size}


def _lag_columns(
    lags: Mapping[str, Mapping[int, int]], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the lag of every partition of the trace's topics; 0 if unknown."""
    return {
        topic: tuple(lags[topic].get(partition, 0) for partition in range(size))
        for topic, size in sizes.items()
        if topic in lags
    }


def _first_counts(rows: GroupRows, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the initial partitions of each topic: those of the end, if they never grew.

    A topic has grown if a rebalance has such a cause and added numbers not seen before.
    """
    seen: dict[str, int] = {}
    grew: dict[str, int] = {}
    for row in rows.generations:
        for topic, count in row.counts.items():
            known = seen.get(topic, 0)
            if known and count > known and row.cause in GROWTH:
                grew.setdefault(topic, known)
            seen[topic] = max(known, count)
    return {topic: min(grew.get(topic, size), size) for topic, size in sizes.items()}


def _announced_delay(rows: GroupRows) -> int:
    """Return the delay of the group's own assignments, in ms; -1 if none of them has one.

    The round after a departure has the whole delay, later ones its rest, so the longest one
    counts. If every partition has an owner, Design III only paces its moves.
    """
    longest, most = -1, 0
    for row in rows.generations:
        if row.n_owned < most:
            longest = max(longest, row.delay_ms)
        most = max(most, row.n_owned)
    return longest


def _restarts(rows: GroupRows) -> list[int]:
    """Return absences, in ms, of members whose departure and return are in different records.

    A member is recognized by client id and host here. Above RESTART_WINDOW_SECONDS it is not an
    absence.
    """
    gone: dict[tuple[str, str], list[int]] = {}
    found = []
    for before, after in itertools.pairwise(g for g in rows.generations if g.members):
        was = {m.member_id for m in before.members}
        now = {m.member_id for m in after.members}
        left = [m for m in before.members if m.member_id not in now]
        came = [m for m in after.members if m.member_id not in was]
        for member in came:
            since = gone.get((member.client_id, member.client_host))
            if since:
                away_ms = after.time_ms - since.pop()
                if 0 <= away_ms <= RESTART_WINDOW_SECONDS * 1_000:
                    found.append(away_ms)
        for member in left:
            seen_ms = rows.last_seen_ms(after, member.owned)
            at_ms = seen_ms if seen_ms > before.time_ms else after.time_ms
            gone.setdefault((member.client_id, member.client_host), []).append(at_ms)
    return found


def client_of(rows: GroupRows) -> str:
    """Return the client library that all members of a group run; "" where it is not known."""
    last = rows.generations[-3:]
    members = ((m.client_id, m.rack) for generation in last for m in generation.members)
    found = [*clients_of(rows.group, last[-1].protocol if last else None, members)]
    return str(found[0] or "") if len(found) == 1 else ""


def _most(values: Iterable[Any]) -> Any:
    """Return the most frequent nonzero value, the smallest of several; None if there is none."""
    found = sorted(filter(None, values))
    return mode(found) if found else None
