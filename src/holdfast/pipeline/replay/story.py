"""A group's story, ready to be replayed: members that came, went and subscribed.

**Rules.** A story is made from the tables alone, and every guess in it is listed here. A *place* is
a member that keeps its identity over restarts: by its instance id, or else by client id and host if
it returns within ``RESTART_WINDOW_SECONDS``. A *slot* is one member id. Slots are numbered in the
order of the ids, so an assignor that deals by id deals as it did.

A *session* is a run of generations with members. While a group is empty no policy can do anything,
so that time is left out. A session begins with its first generation, which is no happening.

**Strategy.** Two successive generations differ by the members that came and the members that went.
Each of them becomes a happening at a guessed time:

==========================  =====================================================================
happening                   when
==========================  =====================================================================
start                       one heartbeat before the record: the others need that to notice
stop (it said goodbye)      its last commit after the record before, else as a start
crash (it went silent)      where its last commit is a session timeout or more before the record:
                            a session timeout and half a heartbeat before it
start of a restart that     after the crash or stop, by the restart time of the costs
one record shows whole
restart of a static member  it expired, or there would be no new generation: a crash a session
in a new generation         timeout and a heartbeat before the record, and a start as it expires
subscribe, resize           as a start
==========================  =====================================================================

A heartbeat is that of the group's estimates (:mod:`holdfast.pipeline.replay.estimates`).
With commits at hand a rebalance began half a heartbeat and a round before its record; where members
that stayed committed on purpose when they noticed it, half a heartbeat before the first of these
commits. Where all that stayed fell silent for want of a dead member, it began half a heartbeat
before their next commits were due. Any other member that crashed and came back in one record came
back after the usual absence of the group's members, or, if there is none, at any time in between
(``vague_ms``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from holdfast.model.limits import believed_size
from holdfast.pipeline.history.generations import (
    CONNECT,
    CONSUMER,
    STABLE,
    STREAMS_PROTOCOL,
    own_assignment,
)
from holdfast.pipeline.history.movements import COOPERATIVE_PROTOCOLS, RESTART_WINDOW_SECONDS
from holdfast.pipeline.replay.estimates import GOODBYE, HOPS, estimate
from holdfast.pipeline.replay.happenings import (
    Do,
    Happening,
    RecordedSession,
    Story,
)
from holdfast.pipeline.replay.resources import (
    EAGER_CONNECT,
    WORKERS,
    as_kinds,
    workers_of,
)
from holdfast.pipeline.replay.rows import (
    GroupRows,
    RecordedGeneration,
    RecordedMember,
    group_rows,
    unread_commits,
)
from holdfast.sim.world.costs import Costs
from holdfast.tables.reading import Tables

MAX_GENERATIONS: Final = 1_000
"""A story has only so many generations, the newest; a note says how many are left out."""


GROWTH: Final = ("partition_count_change", "configuration_change")
"""Causes of a rebalance that may bring partitions, or connectors and tasks."""


def stories(
    tables: Tables,
    topics: Mapping[str, int] | None = None,
    *,
    groups: Sequence[str] | None = None,
    costs: Costs | None = None,
    lags: bool = False,
) -> Iterator[Story]:
    """The story of every group that ever had members.

    Parameters
    ----------
    tables : holdfast.tables.reading.Tables
        Tables of a history.
    topics : mapping, optional
        Topic to number of partitions; for other topics it is inferred from the assignments.
    groups : sequence of str, optional
        Only these.
    costs : Costs, optional
        Heartbeat and restart times that guesses of time rest on.
    lags : bool
        Bring the lag of every partition too.
    """
    for rows in group_rows(tables, groups=groups, lags=lags):
        story = story_of(rows, topics or {}, costs or Costs())
        if story is not None:
            yield story


def story_of(rows: GroupRows, topics: Mapping[str, int], costs: Costs) -> Story | None:
    """One group's story; None if it never had members that can be read."""
    if not any(row.state == STABLE and row.members for row in rows.generations):
        return None
    workers = workers_of(rows)
    return _StoryBuilder(as_kinds(rows), {} if workers else topics, costs, workers).story()


@dataclass(slots=True)
class _KnownMembers:
    """Slots and places of members: a slot per member id (or instance id), a place per identity."""

    static: bool
    slot_of: dict[str, int]
    place: list[int]
    asked: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: GroupRows) -> _KnownMembers:
        members = [m for row in rows.generations for m in row.members]
        static = all(m.instance_id for m in members)
        names = sorted({_name(m, static=static) for m in members})
        place = list(range(len(names))) if static else [-1] * len(names)
        return cls(static=static, slot_of={n: i for i, n in enumerate(names)}, place=place)

    def slot(self, member: RecordedMember) -> int:
        return self.slot_of[_name(member, static=self.static)]


def _name(member: RecordedMember, *, static: bool) -> str:
    return str(member.instance_id) if static else member.member_id


def _refused(rows: Sequence[RecordedGeneration]) -> str:
    """Why a group has no replay: the last of its generations that takes no assignor of ours."""
    if any(row.protocol_type == CONNECT and row.protocol == EAGER_CONNECT for row in rows):
        return "Kafka Connect's eager protocol has no replay"
    said = [
        own_assignment(row.group_type, row.protocol_type, row.protocol)
        for row in rows
        if row.protocol_type not in WORKERS
    ]
    return next((text for text in reversed(said) if text), "")


class _StoryBuilder:
    """Walks through one group's generations."""

    def __init__(self, rows: GroupRows, topics: Mapping[str, int], costs: Costs, workers: str):
        self.rows, self.note, self.workers = rows, "", workers
        n_rows = len(rows.generations)
        if n_rows > MAX_GENERATIONS:
            self.note = f"the newest {MAX_GENERATIONS} of {n_rows} generations"
            del rows.generations[:-MAX_GENERATIONS]
        if rows.n_unread_commits:
            unread = unread_commits(rows.n_unread_commits)
            self.note = "; ".join(filter(None, (self.note, unread)))
        self.known = _KnownMembers.of(rows)
        self.costs = costs
        self.seen = estimate(rows, rows.commits, costs)
        self.kip848 = rows.generations[-1].group_type == CONSUMER
        self.heartbeat_ms = int(self.seen.costs["heartbeat_ms"].mid_ms)
        if self.kip848:
            self.heartbeat_ms = costs.broker_heartbeat_ms
        self.lead_ms = self._lead()
        self.restart_ms = _restarts(rows, self.lead_ms)
        self.n_places = len(self.known.place) if self.known.static else 0
        self.gone: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.places_by_instance: dict[str, int] = {}
        self.sizes = _sizes(rows, topics)
        self.partitions = _first_counts(rows, self.sizes)
        self.sessions: list[RecordedSession] = []
        self.moved = 0
        self.pause = [0.0, 0.0]
        self.away = False
        self.n_configured = 0

    def story(self) -> Story:
        rows = self.rows.generations
        for run in _runs(rows):
            self._add_session(run)
        if self.n_configured:
            left = f"{self.n_configured} rounds of other configurations, which every policy has"
            self.note = "; ".join(filter(None, (self.note, f"without {left}")))
        members = [m for row in rows for m in row.members]
        protocol = _most([row.protocol for row in rows if row.protocol])
        modern = self.workers == CONNECT or any(row.group_type != "classic" for row in rows)
        cooperative = modern or protocol in (*COOPERATIVE_PROTOCOLS, STREAMS_PROTOCOL)
        return Story(
            group=self.rows.group,
            protocol=protocol,
            cooperative=cooperative,
            static=self.known.static,
            places=tuple(self.known.place),
            asked=self.known.asked,
            session_ms=_most([m.session_ms for m in members if m.session_ms]) or -1,
            rebalance_ms=_most([m.rebalance_ms for m in members if m.rebalance_ms]) or -1,
            delay_ms=_delay_told(self.rows),
            n_partitions=max(sum(len(o) for o in row.owned) for row in rows),
            moved=self.moved,
            pause_lower_seconds=self.pause[0],
            pause_upper_seconds=self.pause[1],
            sessions=tuple(self.sessions),
            lags=_lag_columns(self.rows.lags, self.sizes),
            note=self.note,
            n_unread_commits=self.rows.n_unread_commits,
            blind=cooperative and self.away,
            costs=self._costs(),
            slow=tuple(sorted(self.known.slot_of[i] for i in self._slow_names())),
            rebuild_blocks=self.seen.rebuild_blocks,
            client=self.seen.client,
            pause_least_seconds=self._least_pause(),
            kip848=self.kip848,
            refused=_refused(rows),
            workers=self.workers,
        )

    def _lead(self) -> int:
        """How long before its record a rebalance began: half a heartbeat, half a batch, the round.

        Without commits a whole heartbeat: no time is known then, and all are off by as much. A
        KIP-848 coordinator writes its record when a member comes or goes.
        """
        if self.kip848:
            return 0
        if not self.seen.rhythm_ms:
            return self.heartbeat_ms
        round_ms = HOPS * self.seen.costs["latency_ms"].mid_ms
        slow = self.seen.costs.get("slow_poll_ms")
        batch_ms = slow.mid_ms / 2 if slow is not None else 0.0
        flush_ms = self.seen.costs["revoke_ms"].mid_ms
        return int(self.heartbeat_ms / 2 + round_ms + flush_ms + batch_ms)

    def _costs(self) -> dict[str, tuple[float, float, float, int]]:
        found = {
            name: (one.low_ms, one.mid_ms, one.high_ms, one.n)
            for name, one in self.seen.costs.items()
        }
        if self.restart_ms:
            low, mid, high = np.quantile(self.restart_ms, (0.05, 0.5, 0.95)).tolist()
            found["restart_ms"] = (low, mid, high, len(self.restart_ms))
        return found

    def _slow_names(self) -> set[str]:
        """Names of the slots whose members, in any generation, have slow batches."""
        return {
            _name(m, static=self.known.static)
            for row in self.rows.generations
            for m in row.members
            if m.member_id in self.seen.slow_ids
        }

    def _least_pause(self) -> float:
        """Partition-seconds without an owner, at least: its last commit was no rhythm earlier."""
        slack_ms = 0.0 if self.seen.flushes else self.seen.rhythm_ms
        total_ms = 1000 * self.pause[0]
        for row in self.rows.pauses:
            if row["basis"] in {"eager", "handover"} and self.seen.rhythm_ms:
                gap_ms = row["timestamp"] - row["last_seen"] - slack_ms
                total_ms += max(0.0, gap_ms) * len(row["partitions"])
        return min(total_ms / 1000, self.pause[1])

    def _add_session(self, run: Sequence[int]) -> None:
        """The generations at these indices are one session."""
        first = self.rows.generations[run[0]]
        begin_ms = first.time_ms
        for member in first.members:
            self._place(member, first.time_ms)
            self._ask(member)
        slots = tuple(sorted({self.known.slot(m) for m in first.members}))
        partitions = dict(self.partitions)
        happenings: list[Happening] = []
        generations = []
        last = self._owners(first)
        for before, index in itertools.pairwise(run):
            row = self.rows.generations[index]
            found = self._between(before, index, begin_ms)
            happenings += found
            if row.number == self.rows.generations[before].number:
                continue
            if not found and self.rows.cause_of(row) == "configuration_change":
                self.n_configured += 1  # nobody came or went, and nothing is new to be divided
            else:
                generations.append(tuple(sorted(self._place_of(m) for m in row.members)))
            now = self._owners(row)
            self.moved += sum(last.get(tp, place) != place for tp, place in now.items())
            last |= now
            for i, value in enumerate(self.rows.pauses_of(row)):
                self.pause[i] += value
        happenings.sort(key=lambda h: h.at_ms)
        self.sessions.append(
            RecordedSession(
                partitions=partitions,
                slots=slots,
                happenings=tuple(happenings),
                generations=tuple(generations),
            )
        )

    def _owners(self, row: RecordedGeneration) -> dict[tuple[str, int], int]:
        """Place of the owner of each partition; of two owners the smallest id."""
        found: dict[tuple[str, int], int] = {}
        pairs = sorted(zip(row.members, row.owned, strict=True), key=lambda p: p[0].member_id)
        for member, owned in reversed(pairs):
            found |= dict.fromkeys(owned, self._place_of(member))
        return found

    def _place_of(self, member: RecordedMember) -> int:
        return self.known.place[self.known.slot(member)]

    def _ask(self, member: RecordedMember) -> None:
        self.known.asked.setdefault(self.known.slot(member), member.topics)

    def _place(self, member: RecordedMember, time_ms: int) -> None:
        """Find the place of a member that came."""
        slot = self.known.slot(member)
        if self.known.place[slot] >= 0:
            return
        waiting = self.gone.get((member.client_id, member.client_host), [])
        place = self.places_by_instance.get(member.instance_id or "", -1)
        if place < 0 and waiting and not member.instance_id:
            since_ms, gone = waiting.pop()
            if time_ms - since_ms <= RESTART_WINDOW_SECONDS * 1_000:
                place = gone
        if place < 0:
            place, self.n_places = self.n_places, self.n_places + 1
        self.known.place[slot] = place
        if member.instance_id:
            self.places_by_instance[member.instance_id] = place

    def _between(self, before: int, after: int, begin_ms: int) -> list[Happening]:
        """What happened between two successive generations."""
        old, new = self.rows.generations[before], self.rows.generations[after]
        floor_ms = old.time_ms + 1
        at_ms = max(floor_ms, new.time_ms - self.lead_ms)
        stays = {(m.member_id, self.known.slot(m)) for m in new.members}
        found = []
        for member in [m for m in old.members if (m.member_id, self.known.slot(m)) not in stays]:
            do, when = self._departure(member, before, after)
            slot = self.known.slot(member)
            key = (member.client_id, member.client_host)
            self.gone.setdefault(key, []).append((new.time_ms, self.known.place[slot]))
            again = self.known.static and new.number == old.number
            vague_ms = self.heartbeat_ms if do is Do.CRASH and self.seen.rhythm_ms else 0
            found.append(
                Happening(
                    at_ms=max(floor_ms, when), do=do, slot=slot, returns=again, vague_ms=vague_ms
                )
            )
        left_ms = {self.known.place[h.slot]: h.at_ms for h in found}
        was = {(m.member_id, self.known.slot(m)) for m in old.members}
        came = [m for m in new.members if (m.member_id, self.known.slot(m)) not in was]
        expired = self.known.static and new.number != old.number
        found += [self._arrival(m, new, at_ms, left_ms, expired=expired) for m in came]
        found += self._changes(old, new, at_ms)
        return [replace(h, at_ms=h.at_ms - begin_ms) for h in found]

    def _arrival(
        self,
        member: RecordedMember,
        row: RecordedGeneration,
        at_ms: int,
        left_ms: Mapping[int, int],
        *,
        expired: bool,
    ) -> Happening:
        """When a member came; ``left_ms``: places that were left since the record before."""
        self._place(member, row.time_ms)
        self._ask(member)
        slot = self.known.slot(member)
        left = left_ms.get(self.known.place[slot])
        self.away |= self.known.static and left is not None
        noticed = self.seen.noticed.get(row.time_ms)
        waited = None if self.kip848 else self.seen.waited.get(row.time_ms)
        vague_ms = self.heartbeat_ms if self.seen.rhythm_ms else 0
        if noticed is not None:
            at_ms = noticed - self.heartbeat_ms // 2
        elif waited is not None and left is not None and not expired:
            at_ms = (sum(waited) - self.heartbeat_ms) // 2
            vague_ms += waited[1] - waited[0]
        elif left is not None and not expired:
            at_ms, vague_ms = self._return(left, at_ms, vague_ms)
        if left is not None:
            at_ms = max(left + 1, at_ms)
        return Happening(
            at_ms=at_ms,
            do=Do.START,
            slot=slot,
            topics=member.topics,
            expired=expired and left is not None,
            vague_ms=vague_ms,
        )

    def _return(self, left_ms: int, latest_ms: int, vague_ms: int) -> tuple[int, int]:
        """When a member came back whose absence one record shows whole, and how vague that is."""
        if self.restart_ms:
            at_ms = left_ms + int(np.median(self.restart_ms))
            return min(at_ms, latest_ms), vague_ms
        if not self.seen.rhythm_ms:
            return min(left_ms + self.costs.restart_ms, latest_ms), 0
        return (left_ms + latest_ms) // 2, max(0, latest_ms - left_ms)

    def _departure(self, member: RecordedMember, before: int, after: int) -> tuple[Do, int]:
        """How and when a member went: by its last commit, or because it must have expired."""
        old, new = self.rows.generations[before], self.rows.generations[after]
        if self.known.static and new.number != old.number and _has(new, member.instance_id):
            session_ms = member.session_ms or self.costs.session_ms
            return Do.CRASH, new.time_ms - self.lead_ms - session_ms
        owned = dict(zip((m.member_id for m in old.members), old.owned, strict=True))
        seen_ms = self.rows.last_sign_ms(new, owned[member.member_id])
        if old.group_type == CONSUMER:  # its pauses end with other records than its epochs
            last_ms = self._last_commit(member, after)
            if 0 <= last_ms <= new.time_ms - GOODBYE * self.costs.broker_session_ms:
                return Do.CRASH, self._crash(last_ms, new.time_ms - self.costs.broker_session_ms)
        if seen_ms <= old.time_ms:
            return Do.STOP, new.time_ms - self.lead_ms
        silence_ms = new.time_ms - seen_ms
        usual_ms = self.costs.session_ms
        if old.group_type == CONSUMER:  # no record of a KIP-848 group has its session
            usual_ms = self.costs.broker_session_ms
        session_ms = member.session_ms or usual_ms
        if not self.seen.rhythm_ms and silence_ms >= session_ms:
            return Do.CRASH, new.time_ms - session_ms - self.lead_ms // 2
        if silence_ms >= GOODBYE * session_ms and self.seen.rhythm_ms:
            return Do.CRASH, self._crash(seen_ms, new.time_ms - session_ms)
        return Do.STOP, seen_ms

    def _last_commit(self, member: RecordedMember, after: int) -> int:
        """When a member last committed, while it was the owner by some generation; -1: unknown."""
        rows = self.rows.generations
        for index in range(after - 1, -1, -1):
            here = [m.member_id for m in rows[index].members]
            if member.member_id not in here:
                break
            own = rows[index].owned[here.index(member.member_id)]
            signs = self.rows.commits.between(own, rows[index].time_ms, rows[index + 1].time_ms)
            if signs:
                return signs[-1]
        return -1

    def _crash(self, seen_ms: int, expired_ms: int) -> int:
        """A crash within a heartbeat after a member's last one, and a rhythm after its last commit.

        ``expired_ms``: a session before the record.
        """
        beat_ms = expired_ms
        if not self.kip848:
            beat_ms -= self.lead_ms - self.heartbeat_ms // 2
        low_ms = max(seen_ms, beat_ms)
        high_ms = min(seen_ms + int(self.seen.rhythm_ms), beat_ms + self.heartbeat_ms)
        return (low_ms + max(low_ms, high_ms)) // 2

    def _changes(
        self, old: RecordedGeneration, new: RecordedGeneration, at_ms: int
    ) -> list[Happening]:
        """Subscriptions and partition counts that changed."""
        asked = {(m.member_id, self.known.slot(m)): m.topics for m in old.members}
        found = [
            Happening(at_ms=at_ms, do=Do.SUBSCRIBE, slot=slot, topics=m.topics)
            for m, slot in ((m, self.known.slot(m)) for m in new.members)
            if asked.get((m.member_id, slot), m.topics) != m.topics
        ]
        for topic, seen in sorted(new.counts.items()):
            count = min(seen, self.sizes[topic])
            if count > self.partitions.get(topic, 0):
                self.partitions[topic] = count
                found.append(Happening(at_ms=at_ms, do=Do.RESIZE, topics=(topic,), count=count))
        return found


def _has(row: RecordedGeneration, instance_id: str | None) -> bool:
    return any(m.instance_id == instance_id for m in row.members)


def _runs(rows: Sequence[RecordedGeneration]) -> Iterator[list[int]]:
    """Indices of successive generations with members."""
    run: list[int] = []
    for index, row in enumerate(rows):
        if row.state == STABLE and row.members:
            run.append(index)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _sizes(rows: GroupRows, topics: Mapping[str, int]) -> dict[str, int]:
    """Partitions of each topic at the end: as the cluster says, or by the highest number seen.

    See :func:`holdfast.model.limits.believed_size`: no number decides alone how large a world is.
    """
    seen: dict[str, set[int]] = {}
    for row in rows.generations:
        for own in row.owned:
            for topic, partition in own:
                seen.setdefault(topic, set()).add(partition)
    highest = {topic: max(numbers) + 1 for topic, numbers in seen.items()}
    asked = {t for row in rows.generations for m in row.members for t in m.topics}
    found = {topic: topics.get(topic, 0) for topic in sorted(asked | set(seen))}
    for topic, numbers in seen.items():
        found[topic] = max(found[topic], believed_size(highest[topic], len(numbers)))
    return {topic: size for topic, size in found.items() if size}


def _lag_columns(
    lags: Mapping[str, Mapping[int, int]], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """The lag of every partition of the story's topics; 0 where none is known."""
    return {
        topic: tuple(lags[topic].get(partition, 0) for partition in range(size))
        for topic, size in sizes.items()
        if topic in lags
    }


def _first_counts(rows: GroupRows, sizes: Mapping[str, int]) -> dict[str, int]:
    """Partitions of each topic at the start: those of the end, where they never grew.

    A topic has grown where a rebalance has such a cause and brought numbers not seen before.
    """
    seen: dict[str, int] = {}
    grew: dict[str, int] = {}
    for row in rows.generations:
        for topic, count in row.counts.items():
            known = seen.get(topic, 0)
            if known and count > known and rows.cause_of(row) in GROWTH:
                grew.setdefault(topic, known)
            seen[topic] = max(known, count)
    return {topic: min(grew.get(topic, size), size) for topic, size in sizes.items()}


def _delay_told(rows: GroupRows) -> int:
    """The delay that the group's own assignments name, in ms; -1 if none of them does.

    The round after a departure has the whole delay, later ones have what remains of it, so the
    longest one counts. Where everything has an owner, Design III only paces its moves.
    """
    longest, most = -1, 0
    for row in rows.generations:
        if row.n_owned < most:
            longest = max(longest, row.delay_ms)
        most = max(most, row.n_owned)
    return longest


def _restarts(rows: GroupRows, lead_ms: int) -> list[int]:
    """Absences, in ms, of members whose departure and return are in different records.

    A place is taken by client id and host here. Above RESTART_WINDOW_SECONDS it is no absence.
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
                away_ms = after.time_ms - lead_ms - since.pop()
                if 0 <= away_ms <= RESTART_WINDOW_SECONDS * 1_000:
                    found.append(away_ms)
        for member in left:
            own = dict(zip((m.member_id for m in before.members), before.owned, strict=True))
            seen_ms = rows.last_sign_ms(after, own[member.member_id])
            at_ms = seen_ms if seen_ms > before.time_ms else after.time_ms - lead_ms
            gone.setdefault((member.client_id, member.client_host), []).append(at_ms)
    return found


def _most(values: Sequence[Any]) -> Any:
    """The most frequent value, the smallest of several; None if there is no value."""
    if not values:
        return None
    found, counts = np.unique(np.array(values), return_counts=True)
    return found[int(counts.argmax())].item()
