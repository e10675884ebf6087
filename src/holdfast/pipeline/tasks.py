"""What a task of a job does: batches of records in, files of tables out.

**Rules.** A task sees all records of a group, in the order of the log, and no two tasks see the
same group. Nothing but the names of its files goes back to the driver. Memory is bound by
``ASSIGNED_AT_ONCE`` partitions and ``CELLS_AT_ONCE`` cells, whatever the size of a group.

**Strategy.** Groups are taken together until enough is there, then all of them are worked on at
once. The last one may go on in the next batch: its least past is carried over
(:func:`holdfast.pipeline.movements.carry`). A task is a plain function over an iterator, so
the same code runs in a Spark worker, in a stream, and in a test without a JVM.
"""

# mypy: disable-error-code="arg-type, assignment, call-overload, index, union-attr"
# (The stubs inside pyarrow 26 refuse calls that pyarrow takes.)

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model.columns import I64
from holdfast.pipeline.consumer_groups import fold
from holdfast.pipeline.dense import cells_needed, dense, group_codes
from holdfast.pipeline.generations import (
    DEAD,
    Generations,
    concat,
    generation_tables,
    list_parts,
)
from holdfast.pipeline.lag import OWNERS, owners_of
from holdfast.pipeline.movements import carry, compare, movement_table, pause_candidates
from holdfast.pipeline.rebalances import anomaly_table, rebalance_table
from holdfast.pipeline.records import Decoded, bad_table, read_commits, read_groups
from holdfast.pipeline.schemas import arrow_schema
from holdfast.pipeline.storage import BatchWriter

ASSIGNED_AT_ONCE: Final = 2_000_000
CELLS_AT_ONCE: Final = 16_000_000
ROWS_AT_ONCE: Final = 64
"""Generations at once of a group that alone needs more cells than that."""

UNKNOWN: Final = "_unknown"
"""In the names that go back: how many records had an unknown type."""

Batches = Iterator[pa.RecordBatch]


def commits_task(root: str, batch: int) -> Callable[[Batches], Batches]:
    """Commits to ``offset_commits``, and what is bad among them to ``bad_records``."""

    def run(batches: Batches) -> Batches:
        writer = BatchWriter(root, batch)
        n_unknown = 0
        for rows in batches:
            out = Decoded()
            read_commits(rows, out)
            commits = pa.Table.from_batches(out.commits, arrow_schema("offset_commits"))
            writer.write("offset_commits", commits)
            writer.write("bad_records", bad_table(out))
            n_unknown += out.n_unknown
        yield from _names(writer, n_unknown)

    return run


def groups_task(
    root: str, batch: int, topic_names: Mapping[str, str]
) -> Callable[[Batches], Batches]:
    """All other records to every table that comes from generations."""

    def run(batches: Batches) -> Batches:
        work = GroupWork(writer=BatchWriter(root, batch), topic_names=topic_names)
        for rows in batches:
            work.take(rows)
        work.finish()
        yield from _names(work.writer, work.n_unknown)

    return run


def _names(writer: BatchWriter, n_unknown: int) -> Batches:
    files = writer.close()
    if n_unknown:
        note = {"table": [UNKNOWN], "file": [""], "rows": [n_unknown]}
        files = pa.concat_tables([files, pa.Table.from_pydict(note, schema=files.schema)])
    yield from files.to_batches()


@dataclass(slots=True)
class GroupWork:
    """The state of a group task between batches."""

    writer: BatchWriter
    topic_names: Mapping[str, str]
    past: Generations = field(default_factory=Generations.empty)
    waiting: Decoded = field(default_factory=Decoded)
    n_waiting: int = 0
    n_unknown: int = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Decode a batch; work on what is there when it is enough."""
        before = len(self.waiting.generations)
        read_groups(batch, self.waiting)
        for gens in self.waiting.generations[before:]:
            self.n_waiting += len(list_parts(gens.owned["partitions"])[1]) + gens.n_rows
        if self.n_waiting >= ASSIGNED_AT_ONCE:
            self._work(last_goes_on=True)

    def finish(self) -> None:
        """Work on the rest."""
        self._work(last_goes_on=False)

    def _work(self, *, last_goes_on: bool) -> None:
        waiting, self.waiting, self.n_waiting = self.waiting, Decoded(), 0
        self.writer.write("bad_records", bad_table(waiting))
        self.n_unknown += waiting.n_unknown
        events = waiting.consumer
        if last_goes_on and events:
            # KIP-848 records are folded with all that came before: their group waits until whole.
            open_group = max(event["group"].encode() for event in events)
            self.waiting.consumer = [e for e in events if e["group"].encode() >= open_group]
            events = [e for e in events if e["group"].encode() < open_group]
        gens = concat([self.past, *waiting.generations, fold(events, self.topic_names)]).sorted()
        keep = np.arange(0)
        if last_goes_on and gens.n_rows:
            code, first = group_codes(gens)
            keep = np.array([len(first) - 1])
            if self.waiting.consumer:
                name = gens.head["group"][int(first[-1])].as_py()
                if any(e["group"] == name for e in self.waiting.consumer):
                    rows = np.flatnonzero(code == len(first) - 1)
                    self.waiting.generations = [gens.take(rows)]
                    gens, keep = gens.take(np.arange(first[-1])), np.arange(0)
        self.past = work(gens, self.writer, keep)


def work(gens: Generations, writer: BatchWriter, keep: I64) -> Generations:
    """Write every table of these generations.

    Parameters
    ----------
    gens : Generations
        Sorted; whole groups, or with their past as context.
    keep : int64
        Numbers of the groups that go on.

    Returns
    -------
    Generations
        The past of those groups.
    """
    gens = without_conversions(gens)
    if gens.n_rows == 0:
        return gens
    code, first = group_codes(gens)
    cells = cells_needed(gens)
    if int(cells.sum()) <= CELLS_AT_ONCE:
        return _write(gens, writer, keep)
    kept = [Generations.empty()]
    is_big = cells > CELLS_AT_ONCE // 4
    small = np.flatnonzero(~is_big)
    for part in np.array_split(small, 1 + int(cells[small].sum()) // CELLS_AT_ONCE):
        rows = np.flatnonzero(np.isin(code, part))
        kept.append(_write(gens.take(rows), writer, np.flatnonzero(np.isin(part, keep))))
    end = np.append(first[1:], gens.n_rows)
    for group in np.flatnonzero(is_big):
        past = Generations.empty()
        for start in range(int(first[group]), int(end[group]), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, int(end[group]))
            goes_on = np.arange(int(group in keep or stop < int(end[group])))
            piece = concat([past, gens.take(np.arange(start, stop))])
            past = _write(piece, writer, goes_on)
        kept.append(past)
    return concat(kept).sorted()


def _write(gens: Generations, writer: BatchWriter, keep: I64) -> Generations:
    if gens.n_rows == 0:
        return gens
    layout = dense(gens)
    events = compare(gens, layout)
    tables = generation_tables(gens)
    tables["movements"] = movement_table(gens, layout, events)
    tables["rebalances"] = rebalance_table(gens, layout, events)
    tables["pauses"] = pause_candidates(gens, layout, events)
    tables["anomalies"] = anomaly_table(gens, layout, events)
    for name, rows in tables.items():
        writer.write(name, rows)
    last = np.append(layout.first_row[1:], gens.n_rows) - 1
    writer.write(OWNERS, owners_of(gens, np.delete(last, keep)))
    return carry(gens, layout, events, keep)


def without_conversions(gens: Generations) -> Generations:
    """Leave out tombstones of a group that goes on under the other protocol.

    A group that migrates online is deleted under one record type and written under the other in
    one breath; its members and what they own stay.
    """
    if gens.n_rows < 2:
        return gens
    code, _ = group_codes(gens)
    dead = pc.equal(gens.head["state"], DEAD).to_numpy()
    kind = gens.head["group_type"].to_numpy()
    drop = np.zeros(gens.n_rows, bool)
    drop[:-1] = dead[:-1] & ~dead[1:] & (code[:-1] == code[1:]) & (kind[:-1] != kind[1:])
    return gens.take(np.flatnonzero(~drop)) if drop.any() else gens
