"""State of each group that a stream keeps between its batches: the least past that still counts.

**Rules.** State is a function of the records read so far, so a repeated batch makes the same
state. A group's state is one row of :data:`STATE_ROWS`. It goes to the task of its group as a row
of its own kind (:class:`~holdfast.fleet.pipeline.ingest.split.RowKind`), which is sorted before
the group's records.

**Strategy.** The value contains the context rows of
:func:`holdfast.fleet.pipeline.history.movements.carry` as an Arrow stream each, and the KIP-848
records that still count (the latest of each key), as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.fleet.columnar import Batches, BatchTask
from holdfast.fleet.pipeline.history.dense import group_codes
from holdfast.fleet.pipeline.ingest.decode_groups import ConsumerGroupEvent
from holdfast.fleet.pipeline.ingest.generations import Generations, concat
from holdfast.fleet.pipeline.ingest.selection import Selection
from holdfast.fleet.pipeline.ingest.split import RowKind, split_rows
from holdfast.fleet.tables.columns.schemas import arrow_schema

STATE: Final = "_state"
"""Table of rows of :data:`STATE_ROWS` that a batch leaves for the next one."""

STATE_ROWS: Final = arrow_schema("state")
GENERATION_TABLES: Final = ("generation_heads", "generation_members", "generation_owned")
"""Tables of :class:`Generations`, in their order in the state."""


@dataclass(slots=True)
class CarriedState:
    """State of some groups.

    Parameters
    ----------
    events : list of ConsumerGroupEvent
        KIP-848 records, of which every generation was reported before.
    """

    past: list[Generations] = field(default_factory=list)
    events: list[ConsumerGroupEvent] = field(default_factory=list)


def state_task(selection: Selection) -> BatchTask:
    """Turn rows of :data:`STATE_ROWS` of the chosen groups into rows of the split step."""

    def run(batches: Batches) -> Batches:
        for rows in batches:
            keep = selection.keep_groups(rows["group"])
            chosen = rows if keep is None else rows.filter(pa.array(keep))
            columns = {"group": chosen["group"], "message": chosen["value"]}
            yield split_rows(RowKind.STATE, columns, chosen.num_rows)

    return run


def state_rows(past: Generations, events: Iterable[ConsumerGroupEvent]) -> pa.Table:
    """Return the state of all groups, one row each, as :data:`STATE_ROWS`.

    Parameters
    ----------
    past : Generations
        Context rows of :func:`holdfast.fleet.pipeline.history.movements.carry`, sorted.
    events : iterable of ConsumerGroupEvent
        KIP-848 records of any groups, in the order of the log; only those that still count are
        kept.
    """
    code, first = group_codes(past)
    rows: list[dict[str, bytes]] = []
    kept: dict[str, dict[tuple[int, str], ConsumerGroupEvent]] = {}
    for event in events:
        kept.setdefault(event["group"], {})[event["type"], event["member_id"]] = event
    end = np.append(first[1:], len(code))
    names = {past.head["group"][int(at)].as_py(): i for i, at in enumerate(first)}
    for group in sorted({*names, *kept}):
        i = names.get(group)
        gens = past.take(np.arange(first[i], end[i])) if i is not None else Generations.empty()
        alive = list(kept.get(group, {}).values())
        rows.append({"group": group.encode(), "value": _pack(gens, alive)})
    return pa.Table.from_pylist(rows, schema=STATE_ROWS)


def read_state(batch: pa.RecordBatch, out: CarriedState) -> None:
    """Add the state in rows of kind STATE to the carried state, if a batch has written it."""
    for value in batch["message"].to_pylist():
        try:
            gens, events = _unpacked(value)
        except (pa.ArrowException, ValueError, IndexError, KeyError, TypeError) as error:
            raise SourceError(
                f"the state that an earlier batch left cannot be read ({error}): start with an "
                "empty folder"
            ) from error
        out.past.append(gens)
        out.events += events


def _pack(gens: Generations, events: Sequence[ConsumerGroupEvent]) -> bytes:
    parts = [_stream(table) for table in (gens.head, gens.members, gens.owned)]
    parts.append(json.dumps(events).encode())
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _unpacked(value: bytes) -> tuple[Generations, list[ConsumerGroupEvent]]:
    parts, at = [], 0
    while at < len(value):
        size = int.from_bytes(value[at : at + 8], "big")
        parts.append(value[at + 8 : at + 8 + size])
        at += 8 + size
    head, members, owned = (
        _table(part, name) for part, name in zip(parts[:3], GENERATION_TABLES, strict=True)
    )
    for rows, name, n in ((members, "row", head.num_rows), (owned, "member", members.num_rows)):
        position = rows[name].to_numpy()
        if len(position) and not 0 <= position.min() <= position.max() < n:
            raise ValueError(f"a missing {name}")
    events: list[ConsumerGroupEvent] = json.loads(parts[3])
    for event in events:
        event["old"] = True
    return Generations(head=head, members=members, owned=owned), events


def _table(stream: bytes, name: str) -> pa.Table:
    """Read a table of an Arrow stream and validate each of its offsets and strings.

    Arrow itself trusts the offsets of a stream, and would read outside of the buffers.
    """
    table = pa.ipc.open_stream(stream).read_all()
    table.validate(full=True)
    if not table.schema.equals(arrow_schema(name)):
        raise ValueError(f"found other columns than those of {name}")
    return table


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def reported_until(past: Sequence[Generations]) -> dict[str, tuple[int, int]]:
    """Return the log position of the last row of each group that was reported before."""
    until: dict[str, tuple[int, int]] = {}
    for row in concat([Generations.empty(), *past]).head.to_pylist():
        position = int(row["log_partition"]), int(row["log_offset"])
        until[row["group"]] = max(position, until.get(row["group"], position))
    return until
