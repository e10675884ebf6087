"""The last record of each key in a stream's state: what the stream looks up after missing offsets.

**Rules.** State has the position of the record behind everything that counts: of the position of a
group in a partition, of the last generation of a classic group, of each record of other groups. A
tombstone, and rows that are not from the offsets topic (share groups have their positions
elsewhere), are not looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds.kind import GroupType
from holdfast.core.kinds.rows import BY_RECORD
from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS, RecordType
from holdfast.fleet.columnar import ints
from holdfast.fleet.pipeline.batches.state import CarriedState
from holdfast.fleet.pipeline.ingest.deletions import KNOWN_KEYS
from holdfast.fleet.pipeline.ingest.generations import DEAD
from holdfast.fleet.tables.columns.schemas import filled_table

Before = Mapping[int, int]
"""Partition of the offsets topic -> an offset."""


def known_positions(latest: pa.Table, before: Before) -> pa.Table:
    """Return last records of positions, those before an offset of some partitions, as KNOWN_KEYS.

    Parameters
    ----------
    latest : Table of POSITION
        One row for each group and partition.
    """
    is_unread = pc.and_(latest["offset"].is_valid(), latest["delivered"].is_null())
    near = _near(ints(latest, "log_partition"), ints(latest, "log_offset"), before)
    found = latest.filter(pc.and_(is_unread, pa.array(near)))
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
