"""Records of ``__consumer_offsets`` in Arrow, decoded to Arrow: no Spark, no loop per record.

A record batch has the columns ``key`` and ``value`` (binary). It may have ``partition`` (int32),
``offset`` (int64) and ``timestamp``, as Spark's Kafka source and a dump do. These three come out as
``log_partition``, ``log_offset`` and ``timestamp``.

=========================  =====================================================================
``read_commits(b, out)``   a batch of commits, whole: commits, and what does not parse
``read_groups(b, out)``    a batch of other records, whole: generations, events, and the rest
``offset_commits(b)``      types 0 and 1: the table ``offset_commits``, schema COMMITS
``generations(b)``         type 2: :class:`~holdfast.fleet.pipeline.ingest.generations.Generations`
``typed_records(b, n)``    type n, any: ``key`` and ``value`` as structs, schema typed_schema(n)
``unread(b)``              records that do not parse, schema BAD, and numbers of unknown types
=========================  =====================================================================

**Rules.** A record that does not parse becomes a row of ``bad_records`` with its bytes, and nothing
else. A record of an unknown type is counted. Rows come out in no particular order within a batch;
``log_partition`` and ``log_offset`` say where each stood.

**Strategy.** Good records are decoded in one pass. If fewer rows come out than went in, the batch
is read once more for records that are bad or of an unknown type; clean data do not pay for that.

References: KIP-429, KIP-848, KIP-915.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds.rows import BY_RECORD
from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS, RecordType, schema_layout
from holdfast.core.wire.layouts.record_size import batch_bytes
from holdfast.core.wire.many.columns import Columns, Ids, Items, Numbers, take
from holdfast.core.wire.many.offsets_batch import BadRows, Chunk, Family, decode_batch
from holdfast.core.wire.one.reasons import REASONS, Reason
from holdfast.fleet.pipeline.arrow_types import Arrays
from holdfast.fleet.pipeline.ingest.arrow_columns import (
    binary_column,
    constant,
    filled_batch,
    id_text,
    ints,
    layout_type,
    millis,
    numbers,
    struct_array,
    text,
)
from holdfast.fleet.pipeline.ingest.decode_classic import group_generations
from holdfast.fleet.pipeline.ingest.generations import Generations
from holdfast.fleet.tables.columns.holdable import holdable_times
from holdfast.fleet.tables.columns.schemas import TIMESTAMP, arrow_schema

LOG: Final = (
    pa.field("timestamp", TIMESTAMP),
    pa.field("log_partition", pa.int32()),
    pa.field("log_offset", pa.int64()),
)
COMMITS: Final[pa.Schema] = arrow_schema("offset_commits")
COMMIT_TYPES: Final = (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT)
BAD: Final[pa.Schema] = arrow_schema("bad_records")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BYTES: Final = "classicMemberMetadata"
_COUNTED: Final = ("partition", "partitions", "generation", "epoch", "assignmentEpoch")


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
    decoded = list(offset_commits(batch))
    out.commits += decoded
    if sum(rows.num_rows for rows in decoded) < batch.num_rows:
        _read_rest(batch, out)


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
            for rows in typed_records(batch, RecordType(one)):
                out.consumer += [_event(RecordType(one), row) for row in rows.to_pylist()]
                n_good += rows.num_rows
    if n_good < batch.num_rows:
        _read_rest(batch, out)


def _read_rest(batch: pa.RecordBatch, out: Decoded) -> None:
    """Find records that are bad or of an unknown type."""
    bad, unknown = unread(batch)
    out.bad += bad
    out.unknown += unknown


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
    return pa.Table.from_batches(out.bad, BAD)


def offset_commits(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Offset commits and their tombstones.

    Yields
    ------
    RecordBatch of COMMITS
        ``offset`` and all that comes with it is null in a tombstone; so is a leader epoch of
        -1, a topic id of zero and a time below 0.

    References: KAFKA-19141 (version 4).
    """
    for family in _families(batch, COMMIT_TYPES):
        key, value, n_rows = family.key, family.value, len(family)
        columns: Arrays = {
            "group": text(key["group"]),
            "topic": text(key["topic"]),
            "partition": numbers(ints(key["partition"])),
            "is_tombstone": constant(family.value_version is None, pa.bool_(), n_rows),
            "value_version": constant(family.value_version, pa.int32(), n_rows),
            **_log(batch, family.rows),
        }
        if value:
            columns |= _commit_values(value)
        yield filled_batch(columns, COMMITS, n_rows)


def _commit_values(value: Columns) -> Arrays:
    columns = {
        "offset": numbers(ints(value["offset"])),
        "metadata": text(value["metadata"]),
        "commit_timestamp": millis(ints(value["commitTimestamp"])),
    }
    if "leaderEpoch" in value:
        epoch = ints(value["leaderEpoch"])
        columns["leader_epoch"] = numbers(epoch, epoch >= 0)
    if "expireTimestamp" in value:
        columns["expire_timestamp"] = millis(ints(value["expireTimestamp"]))
    if "topicId" in value:
        ids = value["topicId"]
        assert isinstance(ids, Ids)
        columns["topic_id"] = id_text(ids.values, zero_is_null=True)
    return columns


def generations(batch: pa.RecordBatch, *, subscriptions: bool = True) -> Iterator[Generations]:
    """Records of classic groups: generations, their members, and each member's partitions.

    Parameters
    ----------
    subscriptions : bool
        Read the members' subscriptions too.

    Yields
    ------
    Generations
        In the order of the log as far as the batch is. ``state`` is Stable, Empty, or Dead for a
        tombstone (generation -1, no members). What a subscription says (``rack``,
        ``subscribed_topics``, ``n_claimed``) is null where it was not read: another protocol
        type, empty, or unreadable. A member owns nothing where its assignment was not read;
        ``readable`` is False where the assignment does not parse. ``partitions`` ascend.

    References: KIP-429, KIP-345.
    """
    for family in _families(batch, (RecordType.GROUP_METADATA,)):
        place = {"group": text(family.key["group"]), **_log(batch, family.rows)}
        if family.value:
            place["record_bytes"] = numbers(_sizes(batch, family.rows))
        yield group_generations(family, place, subscriptions=subscriptions)


def typed_schema(record_type: RecordType) -> pa.Schema:
    """Schema of :func:`typed_records`; for types whose value has one version only."""
    schemas = RECORD_SCHEMAS[record_type]
    if schemas.value.max_version:
        raise ValueError(f"{schemas.name} has several versions: use its own function")
    return pa.schema(
        [
            pa.field("is_tombstone", pa.bool_()),
            pa.field("key", layout_type(schema_layout(schemas.key, 0), 0)),
            pa.field("value", layout_type(schema_layout(schemas.value, 0), 0)),
            *LOG,
        ]
    )


def typed_records(batch: pa.RecordBatch, record_type: RecordType) -> Iterator[pa.RecordBatch]:
    """Records of one type, fields by Kafka's names.

    Parameters
    ----------
    batch : RecordBatch
        With ``key`` and ``value``.
    record_type : RecordType
        Of KIP-848 (3 to 8, 16), share groups (10 to 15) or streams groups (17 to 23).

    Yields
    ------
    RecordBatch of typed_schema(record_type)
        ``value`` is null in a tombstone. Ids are text. An absent tagged struct is null.

    References: KIP-848, KIP-932, KIP-1071.
    """
    schema = typed_schema(record_type)
    for family in _families(batch, (record_type,)):
        columns: Arrays = {
            "is_tombstone": constant(not family.value, pa.bool_(), len(family)),
            "key": struct_array(family.key),
            **_log(batch, family.rows),
        }
        if family.value:
            columns["value"] = struct_array(family.value)
        yield filled_batch(columns, schema, len(family))


def unread(batch: pa.RecordBatch) -> tuple[list[pa.RecordBatch], Counter[int]]:
    """Records that do not parse, whole, with the reason and the place; and those of unknown types.

    Returns
    -------
    list of RecordBatch of BAD
        ``position`` counts in the key or in the value, whichever does not parse; a record without
        a key has neither ``record_type`` nor ``key_hex``.
    Counter
        Records of each type that is not known.

    References: KIP-915 (an unknown version of a known type does not parse).
    """
    found: list[BadRows] = []
    unknown: Counter[int] = Counter()
    for chunk in _chunks(batch, None):
        found.append(chunk.bad)
        found += [_out_of_range(one.rows[_out_of_count(one)]) for one in chunk.families]
        keys = _pick(batch.column("key"), chunk.unknown).to_pylist()
        unknown.update(int.from_bytes(key[:2], "big", signed=True) for key in keys)
    bad = [filled_batch(_bad_columns(batch, rows), BAD, len(rows)) for rows in found if len(rows)]
    return bad, unknown


def placed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Records that have a place in a log and a time, and the others as rows of BAD, or None.

    A partition or an offset below 0, or none at all, is not one that a broker has written, nor is a
    time outside of what a table can hold, or none; such a time is null in its row.
    """
    place = [pc.fill_null(batch.column(name), -1) for name in ("partition", "offset")]
    in_time = holdable_times(batch.column("timestamp"))
    good: Mask = np.logical_and(*((column.to_numpy() >= 0) for column in place)) & in_time
    if good.all():
        return batch, None
    rows = np.flatnonzero(~good)
    n_rows = len(rows)
    columns = _bad_columns(batch, _out_of_range(rows))
    unknown = pa.scalar(None, TIMESTAMP)
    columns["timestamp"] = pc.if_else(pa.array(in_time[rows]), columns["timestamp"], unknown)
    return batch.filter(pa.array(good)), filled_batch(columns, BAD, n_rows)


def _out_of_range(rows: I64) -> BadRows:
    """Rows with a value that no table holds, or that no broker has written."""
    n_rows = len(rows)
    return BadRows(
        rows=rows,
        reason=np.full(n_rows, REASONS.index(Reason.OUT_OF_RANGE), np.uint8),
        position=np.full(n_rows, -1, np.int64),
        in_key=np.zeros(n_rows, np.bool_),
    )


def _bad_columns(batch: pa.RecordBatch, bad: BadRows) -> Arrays:
    keys = _pick(batch.column("key"), bad.rows).to_pylist()
    values = _pick(batch.column("value"), bad.rows).to_pylist()
    types = [
        None if not k or len(k) < 2 else int.from_bytes(k[:2], "big", signed=True) for k in keys
    ]
    return {
        **_log(batch, bad.rows),
        "record_type": pa.array(types, pa.int32()),
        "reason": pa.array([str(REASONS[code]) for code in bad.reason.tolist()], pa.string()),
        "position": numbers(bad.position),
        "key_hex": pa.array([None if k is None else k.hex() for k in keys], pa.string()),
        "value_hex": pa.array([None if v is None else v.hex() for v in values], pa.string()),
    }


def _chunks(batch: pa.RecordBatch, types: Collection[int] | None) -> Iterator[Chunk]:
    keys, values = binary_column(batch.column("key")), binary_column(batch.column("value"))
    return decode_batch(keys, values, types)


def _families(batch: pa.RecordBatch, types: Collection[int]) -> Iterator[Family]:
    for chunk in _chunks(batch, types):
        for family in chunk.families:
            good = ~_out_of_count(family)
            if good.any():
                yield family if good.all() else _taken(family, np.flatnonzero(good))


def _out_of_count(family: Family) -> Mask:
    """Which records have a partition, generation or epoch below 0, bool[n]: no broker's has one."""
    return _below_zero(family.key, len(family)) | _below_zero(family.value, len(family))


def _below_zero(columns: Columns, n_rows: int) -> Mask:
    """Which structs have such a number, or a list that has one, bool[n_rows]."""
    found = np.zeros(n_rows, np.bool_)
    for name, column in columns.items():
        if isinstance(column, Numbers) and name in _COUNTED:
            found |= column.values < 0
        elif isinstance(column, Items):
            inner = {name: column.columns[""]} if "" in column.columns else column.columns
            below = _below_zero(inner, len(next(iter(inner.values()))))
            found |= np.diff(np.append(0, np.cumsum(below))[column.start]) > 0
    return found


def _taken(family: Family, rows: I64) -> Family:
    """Some rows of a family."""
    key, value = take(family.key, rows), take(family.value, rows)
    return replace(family, rows=family.rows[rows], key=key, value=value, n_unknown_tags=None)


def _log(batch: pa.RecordBatch, rows: I64) -> Arrays:
    """Where the rows stood in the log, as far as the batch says."""
    names = {"timestamp": "timestamp", "log_partition": "partition", "log_offset": "offset"}
    here = batch.schema.names
    return {
        name: _pick(batch.column(source), rows) for name, source in names.items() if source in here
    }


def _sizes(batch: pa.RecordBatch, rows: I64) -> I64:
    """Bytes of each record, as its broker compares them with its limit."""
    key, value = (binary_column(_pick(batch.column(name), rows)) for name in ("key", "value"))
    return batch_bytes(*(np.diff(column.start).astype(np.int64) for column in (key, value)))


def _pick(array: pa.Array, rows: I64) -> pa.Array:
    n_rows = len(rows)
    if n_rows and rows[-1] - rows[0] == n_rows - 1 and (np.diff(rows) == 1).all():
        array = array.slice(int(rows[0]), n_rows)
    else:
        array = array.take(pa.array(rows, pa.int64()))
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
