"""Records of groups in Arrow: generations of classic groups, events of all others.

=========================  =====================================================================
``read_groups(b, out)``    a batch without commits, whole: generations, events, and the rest
``generations(b)``         type 2: :class:`~holdfast.fleet.pipeline.ingest.generations.Generations`
``typed_records(b, n)``    type n, any: ``key`` and ``value`` as structs, schema typed_schema(n)
=========================  =====================================================================

**Rules.** As :mod:`holdfast.fleet.pipeline.ingest.decode`.

References: KIP-429, KIP-848.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
import pyarrow as pa

from holdfast.core.kinds.rows import BY_RECORD
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS, RecordType, schema_layout
from holdfast.fleet.pipeline.arrow_types import Arrays
from holdfast.fleet.pipeline.ingest.decode import (
    BAD,
    constant,
    families,
    key_types,
    layout_type,
    log_places,
    numbers,
    record_sizes,
    struct_array,
    text,
    unread,
)
from holdfast.fleet.pipeline.ingest.decode_classic import group_generations
from holdfast.fleet.pipeline.ingest.generations import Generations
from holdfast.fleet.tables.columns.schemas import TIMESTAMP, filled_batch

LOG: Final = (
    pa.field("timestamp", TIMESTAMP),
    pa.field("log_partition", pa.int32()),
    pa.field("log_offset", pa.int64()),
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BYTES: Final = "classicMemberMetadata"


class ConsumerGroupEvent(TypedDict):
    """One record of a KIP-848, share or streams group, fit for JSON.

    A stream keeps those that still count.
    """

    type: int
    """A RecordType, or RELEASED of :mod:`holdfast.fleet.pipeline.history.consumer_groups`."""
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
    """What batches of records of groups hold."""

    generations: list[Generations] = field(default_factory=list)
    consumer: list[ConsumerGroupEvent] = field(default_factory=list)
    bad: list[pa.RecordBatch] = field(default_factory=list)
    unknown: Counter[int] = field(default_factory=Counter)
    """Records of types that are not known, by type."""

    @property
    def bad_table(self) -> pa.Table:
        """The table ``bad_records``."""
        return pa.Table.from_batches(self.bad, BAD)


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
        bad, unknown = unread(batch)
        out.bad += bad
        out.unknown += unknown


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


def generations(batch: pa.RecordBatch, *, subscriptions: bool = True) -> Iterator[Generations]:
    """Records of classic groups: generations, their members, and each member's partitions.

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
    for family in families(batch, (RecordType.GROUP_METADATA,)):
        place = {"group": text(family.key["group"]), **log_places(batch, family.rows)}
        if family.value:
            place["record_bytes"] = numbers(record_sizes(batch, family.rows))
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
    record_type : RecordType
        Of KIP-848 (3 to 8, 16), share groups (10 to 15) or streams groups (17 to 23).

    Yields
    ------
    RecordBatch of typed_schema(record_type)
        ``value`` is null in a tombstone. Ids are text. An absent tagged struct is null.

    References: KIP-848, KIP-932, KIP-1071.
    """
    schema = typed_schema(record_type)
    for family in families(batch, (record_type,)):
        columns: Arrays = {
            "is_tombstone": constant(not family.value, pa.bool_(), len(family)),
            "key": struct_array(family.key),
            **log_places(batch, family.rows),
        }
        if family.value:
            columns["value"] = struct_array(family.value)
        yield filled_batch(columns, schema, len(family))
