"""The second step of a batch: turns all rows of a group into files of tables.

**Rules.** A task sees all records of a group, in the order of the log, and no other task sees the
group. Only the names of its files are returned to the driver. ``ASSIGNED_AT_ONCE`` partitions and
``CELLS_AT_ONCE`` cells bound its memory, whatever the size of a group.

**Strategy.** Groups are collected until they have enough partitions, then processed together. The
last group may continue in the next batch, so the least past that it needs is carried over
(:func:`holdfast.fleet.pipeline.batches.state.carry`). A task is a plain function over an
iterator: the same code runs in a Spark worker, in a stream, and in a test without a JVM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds import BY_RECORD
from holdfast.core.model.columns import I64
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.fleet.columnar import Batches, BatchTask, list_parts
from holdfast.fleet.pipeline.batches.state import (
    STATE,
    CarriedState,
    carry,
    read_state,
    reported_until,
    state_rows,
)
from holdfast.fleet.pipeline.history.consumer_groups import (
    ConsumerGroupEvent,
    Reconciled,
    fold,
    group_events,
)
from holdfast.fleet.pipeline.history.departures import departure_rows
from holdfast.fleet.pipeline.history.lag import OWNERS, owners_of
from holdfast.fleet.pipeline.history.movements import (
    cells_needed,
    compare,
    group_codes,
    movement_table,
)
from holdfast.fleet.pipeline.history.ownership_gaps import STAGED_GAPS, gap_candidates, open_gaps
from holdfast.fleet.pipeline.history.rebalances import anomaly_table, rebalance_table
from holdfast.fleet.pipeline.ingest.decode import BAD, key_types, unread
from holdfast.fleet.pipeline.ingest.decode_classic import generations
from holdfast.fleet.pipeline.ingest.generations import DEAD, Generations, concat, generation_tables
from holdfast.fleet.pipeline.ingest.split import RowKind, by_kind, file_names
from holdfast.fleet.tables.folder.files import FILES_SCHEMA, BatchWriter

ASSIGNED_AT_ONCE: Final = 2_000_000
CELLS_AT_ONCE: Final = 16_000_000
ROWS_AT_ONCE: Final = 64
"""Generations at once of a group that alone needs more cells than that."""


def groups_task(
    root: str, batch: int, topic_names: Mapping[str, str], *, keep_state: bool = False
) -> BatchTask:
    """Turn rows of :data:`~holdfast.fleet.pipeline.ingest.split.SPLIT`, without group, to tables.

    Names of files that the split step wrote return to the driver with the names of the files
    written here. With ``keep_state`` the state of every group is written too.
    """

    def run(batches: Batches) -> Batches:
        work = GroupWork(
            writer=BatchWriter(root, batch), topic_names=topic_names, keep_state=keep_state
        )
        files: list[dict[str, Any]] = []
        for rows in batches:
            for kind, part in by_kind(rows):
                match kind:
                    case RowKind.FILES:
                        files += file_names(part)
                    case RowKind.STATE:
                        read_state(part, work.remembered)
                    case RowKind.RECORD:
                        work.take(part)
        work.finish()
        files += work.writer.close().to_pylist()
        yield from pa.Table.from_pylist(files, schema=FILES_SCHEMA).to_batches()

    return run


@dataclass(slots=True)
class Decoded:
    """Decoded batches of records of groups."""

    generations: list[Generations] = field(default_factory=list)
    consumer: list[ConsumerGroupEvent] = field(default_factory=list)
    bad: list[pa.RecordBatch] = field(default_factory=list)
    unknown: Counter[int] = field(default_factory=Counter)
    """Records of types that are not known, by type."""


@dataclass(slots=True)
class GroupWork:
    """The state of a group task between batches."""

    writer: BatchWriter
    topic_names: Mapping[str, str]
    keep_state: bool = False
    remembered: CarriedState = field(default_factory=CarriedState)
    past: Generations = field(default_factory=Generations.empty)
    waiting: Decoded = field(default_factory=Decoded)
    n_waiting: int = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Decode records; process them once they have ``ASSIGNED_AT_ONCE`` partitions."""
        before = len(self.waiting.generations)
        read_groups(batch, self.waiting)
        for gens in self.waiting.generations[before:]:
            self.n_waiting += len(list_parts(gens.owned["partitions"])[1]) + gens.n_rows
        if self.n_waiting >= ASSIGNED_AT_ONCE:
            self._work(last_goes_on=True)

    def finish(self) -> None:
        """Process the remaining groups."""
        self._work(last_goes_on=False)

    def _work(self, *, last_goes_on: bool) -> None:
        waiting, self.waiting, self.n_waiting = self.waiting, Decoded(), 0
        remembered, self.remembered = self.remembered, CarriedState()
        self.writer.write("bad_records", pa.Table.from_batches(waiting.bad, BAD))
        self.writer.unknown += waiting.unknown
        events = [*remembered.events, *waiting.consumer]
        reported = reported_until(remembered.past, {event["group"] for event in events})
        gens = concat([self.past, *remembered.past, *waiting.generations])
        if last_goes_on:
            gens, events = self._hold_back(gens, events, waiting, remembered)
        folded, reconciled = fold(events, self.topic_names, reported)
        gens = concat([gens, folded]).sorted()
        self.writer.write(STAGED_GAPS, reconciled.table(with_open=self.keep_state))
        last = [len(group_codes(gens)[1]) - 1] if last_goes_on and gens.n_rows else []
        keep = np.array(last, np.int64)
        past = work(gens, self.writer, keep, reconciled, every_past=self.keep_state)
        if self.keep_state:
            done, past = _split_last(past, goes_on=last_goes_on and len(keep) > 0)
            changed = {name for part in waiting.generations for name in _names(part)}
            changed.update(event["group"] for event in waiting.consumer)
            unchanged = {g: v for g, v in remembered.values.items() if g not in changed}
            events = [*events, *reconciled.released]
            self.writer.write(STATE, state_rows(done, events, unchanged))
        self.past = past

    def _hold_back(
        self,
        gens: Generations,
        events: list[ConsumerGroupEvent],
        waiting: Decoded,
        remembered: CarriedState,
    ) -> tuple[Generations, list[ConsumerGroupEvent]]:
        """Let the last group wait until it is whole, if it has KIP-848 records or state.

        Such records are folded together with all earlier ones; a cut would lose the earlier ones.
        """
        names = [*_names(gens), *(e["group"] for e in events)]
        if not names:
            return gens, events
        last = max(names, key=str.encode)
        held = [e for e in events if e["group"] == last]
        if not held:
            return gens, events
        self.waiting.consumer = [e for e in waiting.consumer if e["group"] == last]
        self.remembered.events = [e for e in remembered.events if e["group"] == last]
        is_last = pc.equal(gens.head["group"], last).to_numpy()
        rest = gens.take(np.flatnonzero(~is_last))
        context = gens.head["context"].to_numpy()
        self.waiting.generations = [gens.take(np.flatnonzero(is_last & ~context))]
        self.remembered.past = [gens.take(np.flatnonzero(is_last & context))]
        return rest, [e for e in events if e["group"] != last]


def _names(gens: Generations) -> list[str]:
    """Return the names of the groups of some generations."""
    found: list[str] = gens.head["group"].unique().to_pylist()
    return found


def _split_last(past: Generations, *, goes_on: bool) -> tuple[Generations, Generations]:
    """Return the past of finished groups, and of the last one if it continues."""
    if not goes_on:
        return past, Generations.empty()
    _, first = group_codes(past)
    cut = int(first[-1])
    return past.take(np.arange(cut)), past.take(np.arange(cut, past.n_rows))


def work(
    gens: Generations,
    writer: BatchWriter,
    keep: I64,
    reconciled: Reconciled,
    *,
    every_past: bool = False,
) -> Generations:
    """Write every table of some generations; return the past of the groups, sorted.

    ``gens`` are sorted; whole groups, or with their past as context. ``keep`` numbers the groups
    that continue: only their past is returned, unless ``every_past``. ``reconciled`` has recorded
    ownership gaps, so that none is inferred instead, and names of topics.
    """
    gens = without_conversions(gens)
    if gens.n_rows == 0:
        return gens
    code, first = group_codes(gens)
    cells = cells_needed(gens)
    if int(cells.sum()) <= CELLS_AT_ONCE:
        return _write(gens, writer, keep, reconciled, every_past=every_past)
    kept = [Generations.empty()]
    is_big = cells > CELLS_AT_ONCE // 4
    small = np.flatnonzero(~is_big)
    for part in np.array_split(small, 1 + int(cells[small].sum()) // CELLS_AT_ONCE):
        rows = np.flatnonzero(np.isin(code, part))
        goes_on = np.flatnonzero(np.isin(part, keep))
        kept.append(_write(gens.take(rows), writer, goes_on, reconciled, every_past=every_past))
    end = np.append(first[1:], gens.n_rows)
    for group in np.flatnonzero(is_big):
        past = Generations.empty()
        for start in range(int(first[group]), int(end[group]), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, int(end[group]))
            goes_on = np.arange(int(group in keep or stop < int(end[group])))
            piece = concat([past, gens.take(np.arange(start, stop))])
            past = _write(piece, writer, goes_on, reconciled, every_past=every_past)
        kept.append(past)
    return concat(kept).sorted()


def _write(
    gens: Generations, writer: BatchWriter, keep: I64, reconciled: Reconciled, *, every_past: bool
) -> Generations:
    if gens.n_rows == 0:
        return gens
    events, covered = compare(gens), reconciled.covered(gens)
    tables = generation_tables(gens)
    tables["movements"] = movement_table(events)
    tables["rebalances"] = rebalance_table(events)
    tables[STAGED_GAPS] = gap_candidates(events, covered)
    tables["anomalies"] = anomaly_table(events, reconciled.topic_names)
    for name, rows in tables.items():
        writer.write(name, rows)
    writer.write(STAGED_GAPS, departure_rows(events))
    first_row = events.layout.first_row
    last = np.append(first_row[1:], gens.n_rows) - 1
    writer.write(OWNERS, owners_of(gens, np.delete(last, keep)))
    every = np.arange(len(first_row))
    if every_past:
        inferred = every[~covered[last]]
        inferred = inferred[~np.isin(inferred, keep)]
        writer.write(STAGED_GAPS, open_gaps(events, inferred))
    return carry(events, every if every_past else keep)


def read_groups(batch: pa.RecordBatch, out: Decoded) -> None:
    """Decode a batch without commits: classic generations and KIP-848 events."""
    types = np.unique(key_types(batch["key"])[1])
    n_good = 0
    if RecordType.GROUP_METADATA in types:
        for gens in generations(batch):
            out.generations.append(gens)
            n_good += gens.n_rows
    for one in BY_RECORD:
        if one in types:
            found = list(group_events(batch, RecordType(one)))
            out.consumer += found
            n_good += len(found)
    if n_good < batch.num_rows:
        bad, unknown = unread(batch)
        out.bad += bad
        out.unknown += unknown


def without_conversions(gens: Generations) -> Generations:
    """Omit tombstones of a group that continues under the other protocol.

    When a group migrates online, a tombstone of one record type is followed at once by a record of
    the other type; its members and the partitions that they own stay.
    """
    if gens.n_rows < 2:
        return gens
    code, _ = group_codes(gens)
    dead = pc.equal(gens.head["state"], DEAD).to_numpy()
    kind = gens.head["group_type"].to_numpy()
    drop = np.zeros(gens.n_rows, bool)
    drop[:-1] = dead[:-1] & ~dead[1:] & (code[:-1] == code[1:]) & (kind[:-1] != kind[1:])
    return gens.take(np.flatnonzero(~drop)) if drop.any() else gens
