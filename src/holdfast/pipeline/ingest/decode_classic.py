"""Columns of classic groups' records: members, what they asked for, and what each was given.

**Rules.** No Spark, no loop per record. What was not read is null or empty, and ``readable`` says
where an assignment does not parse.

References
----------
KIP-429, KIP-345.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.pipeline.ingest.arrow_columns import (
    Arrays,
    constant,
    ints,
    items,
    lists,
    millis,
    numbers,
    or_null,
    structs,
    text,
)
from holdfast.wire.many.columns import Columns, Items, Slices
from holdfast.wire.many.offsets_embedded import Messages, read_assignments, read_subscriptions

OWNED: Final = pa.struct([("topic", pa.string()), ("partitions", pa.list_(pa.int32()))])
MEMBER: Final = pa.struct(
    [
        ("member_id", pa.string()),
        ("group_instance_id", pa.string()),
        ("client_id", pa.string()),
        ("client_host", pa.string()),
        ("rack", pa.string()),
        ("rebalance_timeout_ms", pa.int32()),
        ("session_timeout_ms", pa.int32()),
        ("subscribed_topics", pa.list_(pa.string())),
        ("subscription_version", pa.int32()),
        ("claimed_generation", pa.int32()),
        ("n_claimed", pa.int64()),
        ("n_partitions", pa.int64()),
        ("readable", pa.bool_()),
        ("owned", pa.list_(OWNED)),
    ]
)


def dead_values(n_rows: int) -> Arrays:
    """Columns of tombstones: no generation and no members."""
    start = np.zeros(n_rows + 1, np.int64)
    return {
        "generation": numbers(np.full(n_rows, -1, np.int32)),
        "state": constant("Dead", pa.string(), n_rows),
        "n_members": numbers(np.zeros(n_rows, np.int32)),
        "n_partitions": numbers(np.zeros(n_rows, np.int64)),
        "members": lists(start, pa.array([], MEMBER)),
    }


def group_values(value: Columns) -> Arrays:
    """Columns of records with a value: the generation, and its members nested."""
    members = items(value["members"])
    n_members = np.diff(members.start)
    told = given(value, members)
    owned = items(told.columns["assignedPartitions"])
    n_owned = _n_partitions(owned)
    total = np.concatenate(([0], np.cumsum(n_owned)))[members.start]
    columns = {
        "generation": numbers(ints(value["generation"])),
        "state": pa.array(np.where(n_members > 0, "Stable", "Empty"), pa.string()),
        "protocol_type": text(value["protocolType"]),
        "protocol": text(value["protocol"]),
        "leader": text(value["leader"]),
        "n_members": numbers(n_members.astype(np.int32)),
        "n_partitions": numbers(np.diff(total)),
    }
    if "currentStateTimestamp" in value:
        columns["state_timestamp"] = millis(ints(value["currentStateTimestamp"]))
    fields = _member_fields(members) | _subscription_fields(value, members)
    fields["n_partitions"] = numbers(n_owned)
    fields["readable"] = pa.array(~told.unreadable)
    opened = {"topic": text(owned.columns["topic"]), "partitions": partition_lists(owned)}
    fields["owned"] = lists(owned.start, structs(opened, len(opened["topic"])))
    n_rows = int(members.start[-1])
    child = structs({f.name: or_null(fields, f, n_rows) for f in MEMBER}, n_rows)
    return columns | {"members": lists(members.start, child)}


def _member_fields(members: Items) -> Arrays:
    columns = members.columns
    fields = {
        "member_id": text(columns["memberId"]),
        "client_id": text(columns["clientId"]),
        "client_host": text(columns["clientHost"]),
        "session_timeout_ms": numbers(ints(columns["sessionTimeout"])),
    }
    if "groupInstanceId" in columns:
        fields["group_instance_id"] = text(columns["groupInstanceId"])
    if "rebalanceTimeout" in columns:
        fields["rebalance_timeout_ms"] = numbers(ints(columns["rebalanceTimeout"]))
    return fields


def _subscription_fields(value: Columns, members: Items) -> Arrays:
    said = members.columns["subscription"]
    assert isinstance(said, Slices)
    asked = read_subscriptions(said, _is_consumer(value, members))
    topics, was_read = items(asked.columns["topics"]), asked.version >= 0
    return {
        "rack": text(asked.columns["rackId"]),
        "subscribed_topics": lists(topics.start, text(topics.columns[""]), was_read),
        "subscription_version": numbers(asked.version.astype(np.int32), was_read),
        "claimed_generation": numbers(ints(asked.columns["generationId"]), asked.version >= 2),
        "n_claimed": numbers(_n_partitions(items(asked.columns["ownedPartitions"])), was_read),
    }


def given(value: Columns, members: Items) -> Messages:
    """What each member was given."""
    said = members.columns["assignment"]
    assert isinstance(said, Slices)
    return read_assignments(said, _is_consumer(value, members))


def _is_consumer(value: Columns, members: Items) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each member belongs to a group of protocol type ``consumer``."""
    here = pc.equal(text(value["protocolType"]), "consumer").to_numpy(zero_copy_only=False)
    return np.repeat(here, np.diff(members.start))


def _n_partitions(owned: Items) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Partitions of each member, from its (topic, partitions)."""
    return np.diff(items(owned.columns["partitions"]).start[owned.start])


def partition_lists(owned: Items) -> pa.Array:
    """The lists of partitions, each ascending."""
    partitions = items(owned.columns["partitions"])
    values, start = ints(partitions.columns[""]), partitions.start
    falls = values[1:] < values[:-1]
    inner = start[1:-1]
    falls[inner[(inner > 0) & (inner < len(values))] - 1] = False
    if falls.any():
        row = np.repeat(np.arange(len(start) - 1), np.diff(start))
        values = values[np.lexsort((values, row))]
    return lists(start, numbers(values))
