"""Records of groups in Arrow: generations of classic groups, events of all others.

=========================  =====================================================================
``read_groups(b, out)``    a batch without commits, whole: generations, events, and the rest
``generations(b)``         type 2: :class:`~holdfast.fleet.pipeline.ingest.generations.Generations`
``events(b, n)``           type n, of KIP-848, share and Streams groups: what Python has for it
=========================  =====================================================================

**Rules.** As :mod:`holdfast.fleet.pipeline.ingest.decode`.

References: KIP-429, KIP-848.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
import pyarrow as pa

from holdfast.core.kinds import BY_RECORD
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.core.wire.many.columns import Column, Columns, Ids, Items, Numbers, Optional
from holdfast.fleet.pipeline.ingest.decode import (
    families,
    id_text,
    key_types,
    log_positions,
    numbers,
    record_sizes,
    text,
    unread,
)
from holdfast.fleet.pipeline.ingest.decode_classic import group_generations
from holdfast.fleet.pipeline.ingest.generations import Generations

_OLD_PROTOCOL: Final = "classicMemberMetadata"
"""Member data of the classic protocol: unused, and a stream would keep its bytes."""


class ConsumerGroupEvent(TypedDict):
    """One record of a KIP-848, share or streams group, fit for JSON.

    A stream keeps the events that still count.
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
    """Decoded batches of records of groups."""

    generations: list[Generations] = field(default_factory=list)
    consumer: list[ConsumerGroupEvent] = field(default_factory=list)
    bad: list[pa.RecordBatch] = field(default_factory=list)
    unknown: Counter[int] = field(default_factory=Counter)
    """Records of types that are not known, by type."""


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
            found = list(events(batch, RecordType(one)))
            out.consumer += found
            n_good += len(found)
    if n_good < batch.num_rows:
        bad, unknown = unread(batch)
        out.bad += bad
        out.unknown += unknown


def generations(batch: pa.RecordBatch, *, subscriptions: bool = True) -> Iterator[Generations]:
    """Yield records of classic groups, in the order of the log if the batch is.

    ``state`` is Stable, Empty, or Dead for a tombstone (generation -1, no members). Subscription
    fields (``rack``, ``subscribed_topics``, ``n_claimed``) are null if it was not read: another
    protocol type, empty, or unreadable. A member owns nothing if its assignment was not read;
    ``readable`` is False if the assignment does not parse. ``partitions`` ascend. References:
    KIP-429, KIP-345.
    """
    for family in families(batch, (RecordType.GROUP_METADATA,)):
        position = {"group": text(family.key["group"]), **log_positions(batch, family.rows)}
        if family.value:
            position["record_bytes"] = numbers(record_sizes(batch, family.rows))
        yield group_generations(family, position, subscriptions=subscriptions)


def events(batch: pa.RecordBatch, record_type: RecordType) -> Iterator[ConsumerGroupEvent]:
    """Yield records of one type of KIP-848, share groups or Streams groups.

    Ids are text. An absent tagged struct is None.

    References: KIP-848, KIP-932, KIP-1071.
    """
    for family in families(batch, (record_type,)):
        position = log_positions(batch, family.rows)
        position["timestamp"] = position["timestamp"].cast(pa.int64())
        said = {name: one for name, one in family.value.items() if name != _OLD_PROTOCOL}
        values: Sequence[Any] = _structs(said) if said else [None] * len(family)
        positions = pa.table(position).to_pylist()
        for key, value, where in zip(_structs(family.key), values, positions, strict=True):
            yield ConsumerGroupEvent(
                type=record_type,
                group=key["groupId"],
                member_id=key.get("memberId", ""),
                value=value,
                timestamp=where["timestamp"],
                log_partition=where["log_partition"],
                log_offset=where["log_offset"],
            )


def _structs(columns: Columns) -> list[dict[str, Any]]:
    rows = zip(*map(_values, columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _values(column: Column) -> Any:
    """Return a decoder's column as a list of Python values; no such record has bytes."""
    match column:
        case Numbers():
            return column.values.tolist()
        case Ids():
            return id_text(column.values).to_pylist()
        case Items():
            inner = column.columns
            flat = _values(inner[""]) if "" in inner else _structs(inner)
            rows = [flat[begin:end] for begin, end in pairwise(column.start.tolist())]
            there = [True] * len(rows) if column.valid is None else column.valid.tolist()
            return [row if is_there else None for row, is_there in zip(rows, there, strict=True)]
        case Optional():
            structs = _structs(column.columns)
            return [structs[i] if i >= 0 else None for i in column.index.tolist()]
        case _:
            return text(column).to_pylist()
