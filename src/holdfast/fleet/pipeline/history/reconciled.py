"""Pauses of KIP-848 and streams groups, by the records of the members' current assignments.

**Rules.** A target assignment says which member shall have a partition. The record of a member's
current assignment (type 8, or 22 with active tasks) says which partitions the member has. A member
gives a partition up with its first such record that does not name the partition, not even as
pending revocation. A partition is served again with the first record in which a member has it
assigned. The pause is at least the time between these two records, and at most the time since the
last record in which the old owner had the partition, or since the old owner's last commit of it.
After the first such record of a group, no pause of the group is inferred from its targets. The
partitions of a share group have no owner of their own, so they have no pauses.

**Strategy.** There are few such records, so a loop folds them. Partitions that were given up and
that no member has taken yet are kept between the batches of a stream, as an event of type RELEASED.

References: KIP-848, "Records" (ConsumerGroupCurrentMemberAssignment).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds.kind import EpochRecords
from holdfast.core.kinds.rows import BY_RECORD
from holdfast.core.model.columns import Mask
from holdfast.fleet.pipeline.history.consumer_groups import topics_read
from holdfast.fleet.pipeline.history.pauses import OPEN, STAGED
from holdfast.fleet.pipeline.ingest.decode_groups import ConsumerGroupEvent
from holdfast.fleet.pipeline.ingest.generations import Generations, marked
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.values import ints

RELEASED: Final = -8
"""Type of the event that a stream keeps: partitions given up that no member has taken yet."""
RECONCILED: Final = "reconciled"

Tp = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Release:
    """A partition that was given up: when its owner was last known to have it, when and where."""

    seen_us: int
    at_us: int
    log_offset: int


@dataclass(slots=True)
class _ReconciledGroup:
    held: dict[str, tuple[int, set[Tp], set[Tp]]] = field(default_factory=dict)
    released: dict[Tp, _Release] = field(default_factory=dict)
    last: ConsumerGroupEvent | None = None
    reads: dict[str, list[str]] = field(default_factory=dict)
    """Topics that each subtopology reads."""


@dataclass(slots=True)
class Reconciled:
    """What the records of current assignments say.

    Parameters
    ----------
    pauses : list of dict
        Rows of :data:`~holdfast.fleet.pipeline.history.pauses.STAGED`.
    since : dict of group to (log partition, log offset)
        Where the first such record of each group stands; before all there is where it was read
        in an earlier batch.
    released : list of ConsumerGroupEvent
        Events of type :data:`RELEASED` for the next batch.
    reads : dict of group to dict
        Topics that each subtopology of a streams group reads.
    """

    pauses: list[dict[str, Any]] = field(default_factory=list)
    since: dict[str, tuple[int, int]] = field(default_factory=dict)
    released: list[ConsumerGroupEvent] = field(default_factory=list)
    reads: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def table(self, topic_names: Mapping[str, str], *, with_open: bool) -> pa.Table:
        """The pauses as STAGED; ``with_open`` adds partitions given up that no member took."""
        rows = [
            {**row, "topic": topic_names.get(row["topic"], row["topic"])} for row in self.pauses
        ]
        if with_open:
            for event in self.released:
                for topic_id, partition, *_, log_offset in event["value"]:
                    topic = topic_names.get(topic_id, topic_id)
                    open_row = {"group": event["group"], "topic": topic, "basis": OPEN}
                    place = {"partitions": [partition], "log_offset": log_offset}
                    reads = self.reads.get(event["group"], {}).get(topic_id)
                    rows.append(open_row | place | {"reads": reads})
        return pa.Table.from_pylist(rows, schema=STAGED)

    def covered(self, gens: Generations) -> Mask:
        """Mark the rows after the group's first record of a current assignment, bool[n_rows]."""
        covered = np.zeros(gens.n_rows, bool)
        if not self.since:
            return covered
        consumer = marked(gens.head, lambda kind, _: bool(kind.records and kind.records.assigned))
        place = ints(gens.head, "log_partition"), ints(gens.head, "log_offset")
        for row in np.flatnonzero(consumer):
            first = self.since.get(gens.head["group"][int(row)].as_py())
            covered[row] = first is not None and (int(place[0][row]), int(place[1][row])) > first
        return covered


def reconcile(events: Iterable[ConsumerGroupEvent]) -> Reconciled:
    """Follow the partitions of each member.

    Parameters
    ----------
    events : iterable of ConsumerGroupEvent
        Records of :mod:`holdfast.fleet.pipeline.ingest.decode`, of any groups and types, in any
        order; events marked ``old`` were reported in an earlier batch.
    """
    out = Reconciled()
    groups: dict[str, _ReconciledGroup] = {}
    ordered = sorted(
        events,
        key=lambda e: (e["group"], not e.get("old"), e["log_partition"], e["log_offset"]),
    )
    for event in ordered:
        _, records = BY_RECORD.get(event["type"], (None, None))
        if records is not None and event["type"] == records.topology:
            groups.setdefault(event["group"], _ReconciledGroup()).reads = topics_read(
                event["value"]
            )
            continue
        known = (
            records is not None
            and records.assigned
            and event["type"] in (records.epoch, records.current)
        )
        if not (known or event["type"] == RELEASED):
            continue
        group = groups.setdefault(event["group"], _ReconciledGroup())
        group.last = event
        if records is None:
            group.released = {
                (topic, partition): _Release(*rest) for topic, partition, *rest in event["value"]
            }
        elif event["type"] == records.epoch:
            if event["value"] is None:
                group.held, group.released = {}, {}
        else:
            place = (-1, -1) if event.get("old") else _place(event)
            out.since.setdefault(event["group"], place)
            _current(group, records, event, out)
    followed = {name: group for name, group in sorted(groups.items()) if group.last is not None}
    out.released = [_kept(name, group) for name, group in followed.items()]
    out.reads = {name: group.reads for name, group in followed.items()}
    return out


def _place(event: ConsumerGroupEvent) -> tuple[int, int]:
    return int(event["log_partition"]), int(event["log_offset"])


def _current(
    group: _ReconciledGroup, records: EpochRecords, event: ConsumerGroupEvent, out: Reconciled
) -> None:
    """Take in one record of a member's current assignment."""
    member, value, at = event["member_id"], event["value"], int(event["timestamp"])
    seen, assigned, pending = group.held.pop(member, (at, set(), set()))
    now = _tps(value, records, records.assigned)
    still = now | _tps(value, records, records.pending)
    if event.get("old"):
        group.held[member] = (at, now, still - now)
        return
    for tp in sorted((assigned | pending) - still):
        if not any(tp in a for _, a, _ in group.held.values()):
            group.released[tp] = _Release(seen, at, int(event["log_offset"]))
    for tp in sorted(now - assigned):
        release = group.released.pop(tp, None)
        if release is not None:
            out.pauses.append(_pause(event, tp, release) | {"reads": group.reads.get(tp[0])})
    if value is not None:
        group.held[member] = (at, now, still - now)


def _pause(event: ConsumerGroupEvent, tp: Tp, release: _Release) -> dict[str, Any]:
    at = int(event["timestamp"])
    return {
        "group": event["group"],
        "generation": event["value"]["memberEpoch"],
        "topic": tp[0],
        "partitions": [tp[1]],
        "pause_lower_seconds": max(at - release.at_us, 0) / 1e6,
        "unowned_since": release.at_us,
        "last_seen": release.seen_us,
        "timestamp": at,
        "basis": RECONCILED,
        "log_offset": release.log_offset,
    }


def _tps(value: Any, records: EpochRecords, name: str) -> set[Tp]:
    if value is None:
        return set()
    return {(part[records.place], p) for part in value[name] for p in part["partitions"]}


def _kept(name: str, group: _ReconciledGroup) -> ConsumerGroupEvent:
    last = group.last
    assert last is not None
    rows = [
        [topic, partition, release.seen_us, release.at_us, release.log_offset]
        for (topic, partition), release in sorted(group.released.items())
    ]
    return {**last, "type": RELEASED, "group": name, "member_id": "", "value": rows}


def unknown_topics(gens: Generations, topic_names: Mapping[str, str]) -> pa.Table:
    """Topics that records name by an id that the cluster does not know: ``unknown_topic_id``.

    Parameters
    ----------
    gens : Generations
        A topic whose id is not known has the id in place of its name.
    """
    known = pa.array(sorted(set(topic_names.values())), pa.string())
    strange = pc.invert(pc.is_in(gens.owned["topic"], known)).to_numpy()
    member = ints(gens.owned, "member")
    row = ints(gens.members, "row")[member]
    new = ~gens.head["context"].to_numpy()[row]
    consumer = marked(gens.head, lambda kind, _: bool(kind.records and kind.topics))[row]
    found: dict[tuple[int, str], set[str]] = {}
    for at in np.flatnonzero(strange & new & consumer):
        key = int(row[at]), gens.owned["topic"][int(at)].as_py()
        member_id = gens.members["member_id"][int(member[at])].as_py()
        found.setdefault(key, set()).add(member_id)
    names = ("group", "generation", "timestamp")
    rows = [
        {name: gens.head[name][at].as_py() for name in names}
        | {
            "kind": "unknown_topic_id",
            "topic": topic,
            "partition": None,
            "member_ids": sorted(members),
            "detail": "no topic of the cluster has this id: deleted, or not in the dump",
        }
        for (at, topic), members in found.items()
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema("anomalies"))
