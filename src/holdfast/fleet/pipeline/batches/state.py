"""State of each group that a stream keeps between its batches: the least past that still counts.

**Rules.** State is a function of the records read so far, so a repeated batch makes the same
state. A group's state is one row of :data:`STATE_ROWS`. It goes to the task of its group as a row
of its own kind (:class:`~holdfast.fleet.pipeline.ingest.split.RowKind`), which is sorted before
the group's records.

**Strategy.** The value contains the context rows of :func:`carry` as a record batch of Arrow each,
and the KIP-848 records that still count (the latest of each key), as JSON. The batches have no
schema of their own, which would take longer to read than they do: the value begins with
:data:`LAYOUT`. States that a task gets together are joined before anything else looks at them.

The state has the position of the last record of each key, which a stream looks up after missing
offsets. Tombstones, and share groups, whose positions are in another topic, are not looked up.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import compress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds import ACTIVE, BY_RECORD, SOURCE, GroupType
from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS, RecordType
from holdfast.errors import SourceError
from holdfast.fleet.columnar import Batches, BatchTask, ints, make_lists, new_runs, take
from holdfast.fleet.pipeline.history.consumer_groups import ConsumerGroupEvent
from holdfast.fleet.pipeline.history.movements import (
    RESTART_WINDOW_SECONDS,
    Events,
    group_codes,
    without_owner,
)
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.deletions import KNOWN_KEYS
from holdfast.fleet.pipeline.ingest.generations import DEAD, OWNED_ROWS, Generations, concat, joined
from holdfast.fleet.pipeline.ingest.split import RowKind, split_rows
from holdfast.fleet.tables.columns.schemas import arrow_schema, filled_table

STATE: Final = "_state"
"""Table of rows of :data:`STATE_ROWS` that a batch leaves for the next one."""

STATE_ROWS: Final = arrow_schema("state")
_SCHEMAS: Final = tuple(
    map(arrow_schema, ("generation_heads", "generation_members", "generation_owned"))
)
"""Schemas of the tables of :class:`Generations`, in their order in the state."""
LAYOUT: Final = blake2b("".join(map(str, _SCHEMAS)).encode(), digest_size=8).digest()
"""Digest of the schemas: other columns, of another version of the program, are not misread."""


@dataclass(slots=True)
class CarriedState:
    """State of some groups; ``values`` has the state of each as it was read.

    Of the KIP-848 records in ``events`` every generation was reported before.
    """

    past: list[Generations] = field(default_factory=list)
    events: list[ConsumerGroupEvent] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)


def carry(events: Events, groups: I64) -> Generations:
    """Return the past of some groups that the next generations must be compared with.

    It is marked as context. The last generation is whole. For every partition without an owner
    there is the last generation in which it had one, and the one after it. Of all generations in
    the restart window, and of the one before it, there are the members without their partitions.
    """
    if len(groups) == 0:
        return Generations.empty()
    gens, layout = events.whole, events.layout
    end = np.append(layout.first_row[1:], len(layout.group_of))
    last_row = end[groups] - 1
    is_gap = without_owner(events, groups)
    owned_row = layout.row(is_gap, events.last_ordinal[is_gap])
    recent = _recent_rows(events, groups, last_row)
    rows = np.unique(np.concatenate([last_row, owned_row, owned_row + 1, recent]))
    past = _owning_only(events, is_gap, owned_row)
    final = np.isin(rows, last_row)
    parts = concat([past.take(rows[~final], context=True), gens.take(rows[final], context=True)])
    return parts.sorted()


def _recent_rows(events: Events, groups: I64, last_row: I64) -> I64:
    """Return rows from which a member could count as restarted, and the row before them."""
    layout, time = events.layout, ints(events.gens.head, "timestamp")
    since = np.full(len(layout.first_row), np.iinfo(np.int64).max)
    since[groups] = time[last_row] - RESTART_WINDOW_SECONDS * 1_000_000
    recent = np.flatnonzero(time >= since[layout.group_of])
    before = recent[layout.ordinal[recent] > 0] - 1
    return np.concatenate([recent, before])


def _owning_only(events: Events, is_gap: I64, owned_row: I64) -> Generations:
    """Return the same rows and members, owning only the given partitions."""
    gens, layout = events.whole, events.layout
    member = layout.member(owned_row, events.last[is_gap].astype(np.int64))
    topic, partition = layout.tp_topic[is_gap], layout.tp_partition[is_gap]
    order = np.lexsort((partition, topic, member))
    member, topic, partition = member[order], topic[order], partition[order]
    first = np.flatnonzero(new_runs(member, topic))
    owned = pa.table(
        {
            "member": pa.array(member[first].astype(np.int32)),
            "topic": take(layout.topics, topic[first]),
            "partitions": make_lists(np.append(first, len(partition)), partition.astype(np.int32)),
            "role": pa.array(np.full(len(first), ACTIVE, np.int32)),
            "reader": pa.nulls(len(first), pa.string()),
        }
    )
    sources = gens.owned.filter(pa.array(gens.roles == SOURCE))
    row = ints(gens.members, "row")[ints(sources, "member")]
    sources = sources.filter(pa.array(np.isin(row, owned_row)))
    if sources.num_rows:  # commits of what the tasks read narrow a gap that ends later
        owned = pa.concat_tables([owned.select(OWNED_ROWS.names).cast(OWNED_ROWS), sources])
        owned = owned.take(pa.array(np.argsort(ints(owned, "member"), kind="stable")))
    return Generations(head=gens.head, members=gens.members, owned=owned)


def state_task(selection: Selection) -> BatchTask:
    """Turn rows of :data:`STATE_ROWS` of the chosen groups into rows of the split step."""

    def run(batches: Batches) -> Batches:
        for rows in batches:
            keep = selection.keep_groups(rows["group"])
            chosen = rows if keep is None else rows.filter(pa.array(keep))
            columns = {"group": chosen["group"], "message": chosen["value"]}
            yield split_rows(RowKind.STATE, columns, chosen.num_rows)

    return run


def state_rows(
    past: Generations,
    events: Iterable[ConsumerGroupEvent],
    unchanged: Mapping[str, bytes] | None = None,
) -> pa.Table:
    """Return the state of all groups, one row each, as :data:`STATE_ROWS`.

    ``past`` has sorted context rows of :func:`carry`.
    ``events`` are in the order of the log; only those that still count are kept. ``unchanged`` is
    the state of groups without new records, as an earlier batch wrote it.
    """
    code, first = group_codes(past)
    written = unchanged or {}
    kept: dict[str, dict[tuple[int, str], ConsumerGroupEvent]] = {}
    for event in events:
        kept.setdefault(event["group"], {})[event["type"], event["member_id"]] = event
    names = past.head["group"].take(pa.array(first)).to_pylist()
    is_new = np.asarray([name not in written for name in names], np.bool_)
    changed = past.take(np.flatnonzero(is_new[code])) if len(names) else past
    parts = zip(compress(names, is_new), changed.cut(group_codes(changed)[1]), strict=True)
    new = dict(parts)
    groups = sorted({*names, *kept})
    values = [
        written[group]
        if group in written
        else _pack(new.get(group, Generations.empty()), [*kept.get(group, {}).values()])
        for group in groups
    ]
    return pa.table(
        [pa.array([g.encode() for g in groups]), pa.array(values, pa.binary())], schema=STATE_ROWS
    )


def read_state(batch: pa.RecordBatch, out: CarriedState) -> None:
    """Add the state in rows of kind STATE to the carried state, if a batch has written it."""
    values = batch["message"].to_pylist()
    try:
        parts = [_parts(value) for value in values]
        past = joined([tables for tables, _ in parts])
        past = Generations(  # one piece of memory: rows are looked up in it
            head=past.head.combine_chunks(),
            members=past.members.combine_chunks(),
            owned=past.owned.combine_chunks(),
        )
    except (pa.ArrowException, OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise SourceError(
            f"the state that an earlier batch left cannot be read ({error}): start with an "
            "empty folder"
        ) from error
    out.past.append(past)
    sizes = np.asarray([heads.num_rows for (heads, *_), _ in parts], np.int64)
    first = np.cumsum(sizes) - sizes
    names = past.head["group"].take(pa.array(first, mask=sizes == 0)).to_pylist()
    for value, name, (_, events) in zip(values, names, parts, strict=True):
        out.events += events
        groups = [name, *(event["group"] for event in events[:1])]
        out.values.update((group, value) for group in groups if group is not None)


def _pack(gens: Generations, events: Sequence[ConsumerGroupEvent]) -> bytes:
    parts = [_message(table) for table in (gens.head, gens.members, gens.owned)]
    parts.append(json.dumps(events).encode())
    return LAYOUT + b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _message(table: pa.Table) -> bytes:
    """Return the rows of a table as one record batch."""
    columns = [column.combine_chunks() for column in table.columns]
    return bytes(pa.RecordBatch.from_arrays(columns, schema=table.schema).serialize())


def _parts(value: bytes) -> tuple[list[pa.Table], list[ConsumerGroupEvent]]:
    """Return the tables and the records of a group's state, each of its values validated.

    Arrow itself trusts the offsets of a message, and would read outside of the buffers.
    """
    if not value.startswith(LAYOUT):
        raise ValueError("found other columns than those of this version")
    parts, at = [], len(LAYOUT)
    while at < len(value):
        size = int.from_bytes(value[at : at + 8], "big")
        parts.append(value[at + 8 : at + 8 + size])
        at += 8 + size
    *messages, records = parts
    tables = []
    for message, schema in zip(messages, _SCHEMAS, strict=True):
        rows = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        rows.validate(full=True)
        tables.append(pa.Table.from_batches([rows]))
    events: list[ConsumerGroupEvent] = json.loads(records)
    for event in events:
        event["old"] = True
    return tables, events


def reported_until(
    past: Sequence[Generations], groups: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Return the log position of the last row of each of some groups, reported before."""
    until: dict[str, tuple[int, int]] = {}
    if not groups:
        return until
    rows = concat([Generations.empty(), *past]).head
    rows = rows.filter(pc.is_in(rows["group"], pa.array(sorted(groups), pa.string())))
    columns = (rows[name].to_pylist() for name in ("group", "log_partition", "log_offset"))
    for group, *position in zip(*columns, strict=True):
        found = int(position[0]), int(position[1])
        until[group] = max(found, until.get(group, found))
    return until


Before = Mapping[int, int]
"""Partition of the offsets topic -> an offset."""


def known_positions(latest: pa.Table, before: Before) -> pa.Table:
    """Return last records of positions before an offset of some partitions, as KNOWN_KEYS."""
    is_valid_row = pc.and_(latest["offset"].is_valid(), latest["delivered"].is_null())
    near = _near(ints(latest, "log_partition"), ints(latest, "log_offset"), before)
    found = latest.filter(pc.and_(is_valid_row, pa.array(near)))
    columns = {
        "partition": found["log_partition"],
        "offset": found["log_offset"],
        "key": commit_keys(found),
    }
    return filled_table(columns, KNOWN_KEYS, found.num_rows)


def known_groups(state: CarriedState, before: Before) -> pa.Table:
    """Return last records about groups, before an offset of some partitions, as KNOWN_KEYS."""
    rows = pa.Table.from_pylist([*_generations(state), *_events(state)], schema=KNOWN_KEYS)
    near = _near(ints(rows, "partition"), ints(rows, "offset"), before)
    return rows.filter(pa.array(near))


def _near(partition: I64, offset: I64, before: Before) -> Mask:
    """Return which positions are before the offset of their partition; none without an offset."""
    limit = np.zeros(max(before, default=-1) + 2, np.int64)
    for one, end in before.items():
        limit[one] = end
    known = (partition >= 0) & (partition < len(limit) - 1)
    found: Mask = offset < limit[np.where(known, partition, len(limit) - 1)]
    return found


def commit_keys(positions: pa.Table) -> pa.Array:
    """Return keys of commits of ``group``, ``topic`` and ``partition``, as brokers write."""
    group, topic = (
        positions[name].combine_chunks().cast(pa.binary()) for name in ("group", "topic")
    )
    head = pa.scalar(int(RecordType.OFFSET_COMMIT).to_bytes(2, "big"))
    sizes = [_big_endian(pc.binary_length(names), ">u2") for names in (group, topic)]
    partition = _big_endian(positions["partition"], ">i4")
    parts = (head, sizes[0], group, sizes[1], topic, partition)
    return pc.binary_join_element_wise(*parts, pa.scalar(b""))


def _big_endian(numbers: Any, dtype: str) -> pa.Array:
    values = np.asarray(numbers).astype(dtype)
    fixed = pa.binary(values.dtype.itemsize)
    return pa.Array.from_buffers(fixed, len(values), [None, pa.py_buffer(values)]).cast(pa.binary())


def _generations(state: CarriedState) -> Iterator[dict[str, Any]]:
    """Yield the last generation of each group, if it is that of a living classic group."""
    for past in state.past:
        last: dict[str, dict[str, Any]] = {}
        for row in past.head.to_pylist():  # the rows of a group are in the order of the log
            last[row["group"]] = row
        for group, row in last.items():
            if row["group_type"] == GroupType.CLASSIC and row["state"] != DEAD:
                key = _key(RecordType.GROUP_METADATA, {"group": group})
                yield {"partition": row["log_partition"], "offset": row["log_offset"], "key": key}


def _events(state: CarriedState) -> Iterator[dict[str, Any]]:
    for event in state.events:
        if event["value"] is None or event["type"] not in BY_RECORD:
            continue
        record_type = RecordType(event["type"])
        names = [one.name for one in RECORD_SCHEMAS[record_type].key.fields]
        said = {"groupId": event["group"], "memberId": event["member_id"]}
        key = _key(record_type, {name: said[name] for name in names})
        yield {"partition": event["log_partition"], "offset": event["log_offset"], "key": key}


def _key(record_type: RecordType, fields: dict[str, Any]) -> bytes:
    name = RECORD_SCHEMAS[record_type].name
    return encode_record(Record(record_type=record_type, name=name, key=fields))[0]
