"""Batches of records to columns: commits, generations, KIP-848 events, bad records.

**Rules.** A record that does not parse becomes a row of ``bad_records`` with its bytes, and nothing
else. A record of an unknown type is counted. Only :mod:`holdfast.fleet.pipeline.ingest.decode`
reads bytes.

**Strategy.** Good records are decoded in one pass. If fewer rows come out than went in, the batch
is read once more for records that are bad or of an unknown type; clean data do not pay for that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds.rows import BY_RECORD
from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.fleet.pipeline.ingest import decode
from holdfast.fleet.pipeline.ingest.arrow_columns import binary_column
from holdfast.fleet.pipeline.ingest.generations import Generations
from holdfast.fleet.tables.columns.schemas import arrow_schema

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BYTES: Final = "classicMemberMetadata"


class ConsumerGroupEvent(TypedDict):
    """One record of a KIP-848, share or streams group, fit for JSON.

    A stream keeps those that still count.
    """

    type: int
    """A RecordType, or RELEASED of :mod:`holdfast.fleet.pipeline.history.reconciled`."""
    group: str
    member_id: str
    """Empty in a record about the whole group."""
    value: Any
    """Fields by Kafka's names; None in a tombstone."""
    timestamp: int
    """Microseconds since 1970."""
    log_partition: int
    log_offset: int
    old: NotRequired[bool]
    """An earlier batch has reported it."""


@dataclass(slots=True)
class Decoded:
    """What batches of records hold."""

    commits: list[pa.RecordBatch] = field(default_factory=list)
    generations: list[Generations] = field(default_factory=list)
    consumer: list[ConsumerGroupEvent] = field(default_factory=list)
    bad: list[pa.RecordBatch] = field(default_factory=list)
    unknown: Counter[int] = field(default_factory=Counter)
    """Records of types that are not known, by type."""


def read_commits(batch: pa.RecordBatch, out: Decoded) -> None:
    """Decode a batch that holds commits and what looked like them; anything else is bad."""
    decoded = list(decode.offset_commits([batch]))
    out.commits += decoded
    if sum(rows.num_rows for rows in decoded) < batch.num_rows:
        _read_rest(batch, out)


def read_groups(batch: pa.RecordBatch, out: Decoded) -> None:
    """Decode a batch without commits: classic generations and KIP-848 events."""
    types = np.unique(key_types(batch["key"])[1])
    n_good = 0
    if RecordType.GROUP_METADATA in types:
        for gens in decode.generations([batch]):
            out.generations.append(gens)
            n_good += gens.n_rows
    for one in BY_RECORD:
        if one in types:
            for rows in decode.typed_records([batch], RecordType(one)):
                out.consumer += [_event(RecordType(one), row) for row in rows.to_pylist()]
                n_good += rows.num_rows
    if n_good < batch.num_rows:
        _read_rest(batch, out)


def _read_rest(batch: pa.RecordBatch, out: Decoded) -> None:
    """Find records that are bad or of an unknown type."""
    out.bad += list(decode.bad_records([batch]))
    for rows in decode.count_records([batch]):
        unknown = rows.filter(pc.invert(rows["is_known"]))
        for row in unknown.to_pylist():
            out.unknown[row["record_type"]] += row["n_records"]


def key_types(keys: pa.Array) -> tuple[Mask, I64]:
    """Which keys are long enough to have a record type, bool[n], and the types of those."""
    column = binary_column(keys)
    start = column.start.astype(np.int64)
    has_type = np.diff(start) >= 2
    if column.valid is not None:
        has_type &= column.valid
    at = start[:-1][has_type]
    return has_type, column.data[at].astype(np.int64) << 8 | column.data[at + 1]


def _event(record_type: RecordType, row: dict[str, Any]) -> ConsumerGroupEvent:
    """One KIP-848 record as an event, without the bytes of a member's classic protocols."""
    value = row["value"] and {k: v for k, v in row["value"].items() if k != _BYTES}
    return {
        "type": record_type,
        "group": row["key"]["groupId"],
        "member_id": row["key"].get("memberId", ""),
        "value": value,
        "timestamp": (row["timestamp"] - _EPOCH) // timedelta(microseconds=1),
        "log_partition": row["log_partition"],
        "log_offset": row["log_offset"],
    }


def bad_table(out: Decoded) -> pa.Table:
    """The table ``bad_records``."""
    return pa.Table.from_batches(out.bad, arrow_schema("bad_records"))
