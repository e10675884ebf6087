"""What a stream keeps of each group between its batches: the least past, as records.

**Rules.** State is a function of the records read so far, so a batch that runs again makes the same
state. A group's state is one row in the shape of a record: its key has a type of its own and the
group, so it travels to the task of its group like any record and is sorted before all of them.

**Strategy.** The value holds the context rows of :func:`holdfast.pipeline.history.movements.carry`
as an Arrow stream each, and the KIP-848 records that still count (the latest of each key), as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.pipeline.history.dense import group_codes
from holdfast.pipeline.history.generations import Generations, concat
from holdfast.tables.schemas import arrow_schema

STATE: Final = "_state"
STATE_TYPE: Final = -2
"""Record type of a state row; Kafka's are not negative."""
STATE_PARTITION: Final = -1

Event = Mapping[str, Any]


@dataclass(slots=True)
class CarriedState:
    """State of some groups.

    Parameters
    ----------
    past : list of Generations
        Context rows.
    events : list of mapping
        KIP-848 records, of which every generation was reported before.
    """

    past: list[Generations] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def key_of(group: str) -> bytes:
    """Key of a group's state row."""
    name = group.encode()
    return STATE_TYPE.to_bytes(2, "big", signed=True) + len(name).to_bytes(2, "big") + name


def state_rows(past: Generations, events: Iterable[Event]) -> pa.Table:
    """State of all groups as records, one row each.

    Parameters
    ----------
    past : Generations
        Context rows of :func:`holdfast.pipeline.history.movements.carry`, sorted.
    events : iterable of mapping
        KIP-848 records of any groups, in the order of the log; only what still counts is kept.
    """
    code, first = group_codes(past)
    rows: dict[str, list[Any]] = {"key": [], "value": []}
    kept: dict[str, dict[tuple[int, str | None], Event]] = {}
    for event in events:
        kept.setdefault(event["group"], {})[event["type"], event["member_id"]] = event
    end = np.append(first[1:], len(code))
    names = {past.head["group"][int(at)].as_py(): i for i, at in enumerate(first)}
    for group in sorted({*names, *kept}):
        i = names.get(group)
        gens = past.take(np.arange(first[i], end[i])) if i is not None else Generations.empty()
        alive = [dict(e) for e in kept.get(group, {}).values()]
        rows["key"].append(key_of(group))
        rows["value"].append(_pack(gens, alive))
    n = len(rows["key"])
    schema = arrow_schema("records")
    columns = {
        "partition": pa.array(np.full(n, STATE_PARTITION, np.int32)),
        "offset": pa.array(np.full(n, -1)),
        "timestamp": pa.array(np.zeros(n, np.int64)).cast(schema.field("timestamp").type),
        "key": pa.array(rows["key"], pa.binary()),
        "value": pa.array(rows["value"], pa.binary()),
    }
    return pa.table(columns, schema=schema)


def split_state(batch: pa.RecordBatch, out: CarriedState) -> pa.RecordBatch:
    """Take the state rows out of a batch; return the records that are left."""
    is_state = batch["partition"].to_numpy() == STATE_PARTITION
    if not is_state.any():
        return batch
    for value in batch["value"].filter(pa.array(is_state)).to_pylist():
        gens, events = _unpack(value)
        out.past.append(gens)
        out.events += events
    return batch.filter(pa.array(~is_state))


def _pack(gens: Generations, events: Sequence[Event]) -> bytes:
    parts = [_stream(table) for table in (gens.head, gens.members, gens.owned)]
    parts.append(json.dumps(events).encode())
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _unpack(value: bytes) -> tuple[Generations, list[Event]]:
    parts, at = [], 0
    while at < len(value):
        size = int.from_bytes(value[at : at + 8], "big")
        parts.append(value[at + 8 : at + 8 + size])
        at += 8 + size
    head, members, owned = (pa.ipc.open_stream(part).read_all() for part in parts[:3])
    events: list[Event] = [{**event, "old": True} for event in json.loads(parts[3])]
    return Generations(head=head, members=members, owned=owned), events


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def reported_until(past: Sequence[Generations]) -> dict[str, tuple[int, int]]:
    """Place in the log of the last row of each group that was reported before."""
    until: dict[str, tuple[int, int]] = {}
    for row in concat([Generations.empty(), *past]).head.to_pylist():
        place = int(row["log_partition"]), int(row["log_offset"])
        until[row["group"]] = max(place, until.get(row["group"], place))
    return until
