"""Records of classic groups as generations: members, subscriptions and assigned partitions.

**Rules.** No Spark; no loop per record, except for messages with more than topic-partitions
(:mod:`holdfast.fleet.pipeline.ingest.decode_tasks`). A field that was not read is null or empty;
``readable`` is False if an assignment does not parse, or names an impossible partition.

References: KIP-429, KIP-345.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds import CONSUMER_PROTOCOL, GroupType
from holdfast.core.model.columns import I64, Mask, row_of
from holdfast.core.model.designs import NAMES, Design
from holdfast.core.wire.layouts.container import (
    LOCATION_BYTES,
    LOCATION_FLAG,
    SUBSCRIPTION_MAGIC,
    decode_member_assignment,
    decode_member_subscription,
)
from holdfast.core.wire.layouts.frames import LEAVING_BITS, Leaving
from holdfast.core.wire.many.columns import Column, Columns, Items, Slices
from holdfast.core.wire.many.offsets_batch import Family
from holdfast.core.wire.many.offsets_embedded import Messages, read_assignments, read_subscriptions
from holdfast.errors import WireError
from holdfast.fleet import columnar
from holdfast.fleet.columnar import Arrays, list_parts, make_lists
from holdfast.fleet.pipeline.ingest.decode import constant, ints, items, numbers, text
from holdfast.fleet.pipeline.ingest.decode_tasks import blobs, with_tasks
from holdfast.fleet.pipeline.ingest.generations import (
    DEAD,
    EMPTY,
    HEAD,
    MEMBER_ROWS,
    OWNED_ROWS,
    STABLE,
    Generations,
    marked,
)
from holdfast.fleet.tables.columns.holdable import CONNECTOR
from holdfast.fleet.tables.columns.schemas import filled_table

DEFERRING = (NAMES[Design.DEFERRED], NAMES[Design.INCREMENTAL])
"""Protocols whose assignments contain the time of the next round."""


def group_generations(
    family: Family, position: Arrays, *, subscriptions: bool = True
) -> Generations:
    """Decode records of one version; ``position`` has the group and the log position of each."""
    n_rows = len(family)
    head = {
        **position,
        "group_type": constant(GroupType.CLASSIC, pa.string(), n_rows),
        "context": constant(False, pa.bool_(), n_rows),
    }
    if not family.value:
        head["generation"] = numbers(np.full(n_rows, -1, np.int32))
        head["state"] = constant(DEAD, pa.string(), n_rows)
        none = Generations.empty()
        return replace(none, head=filled_table(head, HEAD, n_rows))
    members = items(family.value["members"])
    head |= _generation_fields(family.value, members)
    found = filled_table(head, HEAD, n_rows)
    row = row_of(members.start).astype(np.int64)
    subscription, assignment = (
        _bytes(members.columns[name]) for name in ("subscription", "assignment")
    )
    is_consumer = _rows_where(found["protocol_type"], CONSUMER_PROTOCOL)[row]
    given = read_assignments(assignment, is_consumer)
    owned = items(given.columns["assignedPartitions"])
    of_members = {
        "row": numbers(row_of(members.start)),
        **_member_fields(members.columns),
        "readable": pa.array(~given.unreadable),
    }
    if subscriptions:
        subscribed = read_subscriptions(subscription, is_consumer)
        others = marked(found, lambda kind, _: kind.announces)[row] & ~is_consumer
        of_members |= _subscription_fields(subscribed)
        reported = (
            [subscribed, read_subscriptions(subscription, others)] if others.any() else [subscribed]
        )
        of_members["leaving"] = _announced(subscription, reported, len(others))
        of_members["location"] = _locations(reported, len(others))
    of_owned = {
        "member": numbers(row_of(owned.start)),
        "topic": text(owned.columns["topic"]),
        "partitions": _partition_lists(owned),
    }
    head["delay_ms"] = _planned_delays(found, members.start, assignment)
    gens = Generations(
        head=filled_table(head, HEAD, n_rows),
        members=filled_table(of_members, MEMBER_ROWS, len(given.unreadable)),
        owned=filled_table(of_owned, OWNED_ROWS, len(of_owned["topic"])),
    )
    return _with_partitions_alone(with_tasks(gens, subscription, assignment))


def _with_partitions_alone(gens: Generations) -> Generations:
    """Mark a member as unreadable if it was assigned a number below the lowest."""
    member, (starts, partitions) = (
        columnar.ints(gens.owned, "member"),
        list_parts(gens.owned["partitions"]),
    )
    row = columnar.ints(gens.members, "row")[member]
    lowest = np.where(marked(gens.head, lambda kind, _: kind.lowest < 0), CONNECTOR, 0)[row]
    size = np.diff(starts)
    strange = np.repeat(member, size)[partitions < np.repeat(lowest, size)]
    if not len(strange):
        return gens
    readable = gens.members["readable"].to_numpy()
    readable[strange] = False
    owned = gens.owned.filter(pa.array(~np.isin(member, strange)))
    return replace(gens, members=columnar.replaced(gens.members, readable=readable), owned=owned)


def _planned_delays(head: pa.Table, start: I64, assignment: Slices) -> pa.Array:
    """Return the rest of the delay in each round of Design II or III, in ms; null without one.

    A leader sends all members the same delay, so the first assignment that parses decides.
    """
    chosen = np.asarray(pc.fill_null(pc.is_in(head["protocol"], pa.array(DEFERRING)), False))
    chosen = chosen & _rows_where(head["protocol_type"], CONSUMER_PROTOCOL)
    found = np.zeros(len(chosen), np.int64)
    for row in np.flatnonzero(chosen).tolist():
        reported = (
            _announced_delay(*blobs(assignment, np.array([member])))
            for member in range(int(start[row]), int(start[row + 1]))
        )
        found[row] = next((delay_ms for delay_ms in reported if delay_ms is not None), 0)
    return numbers(found, found > 0)


def _announced_delay(assignment: bytes) -> int | None:
    """Return the delay in one member's assignment, 0 for none; None if the bytes do not parse."""
    try:
        return decode_member_assignment(assignment).delay_ms if assignment else None
    except WireError:
        return None


def _rows_where(column: pa.ChunkedArray, value: str) -> Mask:
    found: Mask = np.asarray(pc.fill_null(pc.equal(column, value), False), np.bool_)
    return found


def _generation_fields(value: Columns, members: Items) -> Arrays:
    return {
        "generation": numbers(ints(value["generation"])),
        "state": pa.array(np.where(np.diff(members.start) > 0, STABLE, EMPTY), pa.string()),
        "protocol_type": text(value["protocolType"]),
        "protocol": text(value["protocol"]),
        "leader": text(value["leader"]),
    }


def _member_fields(columns: Columns) -> Arrays:
    fields = {
        "member_id": text(columns["memberId"]),
        "client_id": text(columns["clientId"]),
        "client_host": text(columns["clientHost"]),
        "session_timeout_ms": _above_zero(columns["sessionTimeout"]),
    }
    if "groupInstanceId" in columns:
        fields["group_instance_id"] = text(columns["groupInstanceId"])
    if "rebalanceTimeout" in columns:
        fields["rebalance_timeout_ms"] = _above_zero(columns["rebalanceTimeout"])
    return fields


def _above_zero(column: Column) -> pa.Array:
    """Return timeouts; null for 0 or less: brokers refuse it, and printed texts mean unknown."""
    found = ints(column)
    return numbers(found, found > 0)


def _subscription_fields(subscribed: Messages) -> Arrays:
    topics, was_read = items(subscribed.columns["topics"]), subscribed.version >= 0
    claimed = items(subscribed.columns["ownedPartitions"])
    n_claimed = np.diff(items(claimed.columns["partitions"]).start[claimed.start])
    return {
        "rack": text(subscribed.columns["rackId"]),
        "subscribed_topics": make_lists(topics.start, text(topics.columns[""]), was_read),
        "n_claimed": numbers(n_claimed, was_read),
    }


def _bytes(column: Column) -> Slices:
    assert isinstance(column, Slices)
    return column


def _announced(subscription: Slices, reported: list[Messages], n_members: int) -> pa.Array:
    """Return what each member announces, int32; null if it stays, or announces nothing.

    ``reported`` is of plain consumers, and of others whose subscriptions may contain a frame of
    ours.
    """
    found = np.zeros(n_members, np.int32)
    for messages in reported:
        members = _may_leave(messages)
        for member, blob in zip(members.tolist(), blobs(subscription, members), strict=True):
            found[member] = _announced_by_one(blob)
    return numbers(found, np.isin(found, _LEAVES))


_LEAVES = (Leaving.RETURNS, Leaving.FOR_GOOD)


def _may_leave(subscribed: Messages) -> I64:
    """Return members whose user data begins as a frame of ours and may announce a leave."""
    rows, flags, _ = _frames(subscribed)
    found: I64 = rows[flags & LEAVING_BITS != Leaving.STAYS]
    return found


def _frames(subscribed: Messages) -> tuple[I64, I64, Slices]:
    """Return members whose user data begins as a frame of ours, its flags, and all user data."""
    frames = subscribed.columns["userData"]
    assert isinstance(frames, Slices)
    rows = np.flatnonzero(frames.size > len(SUBSCRIPTION_MAGIC))
    begin = frames.begin[rows]
    ours = np.ones(len(rows), bool)
    for at, byte in enumerate(SUBSCRIPTION_MAGIC):
        ours &= frames.data[begin + at] == byte
    flags = frames.data[begin + len(SUBSCRIPTION_MAGIC)]
    return rows[ours], flags[ours].astype(np.int64), frames


def _locations(reported: list[Messages], n_members: int) -> pa.Array:
    """Return the digest of each member's location, int32; null without one.

    It is behind the flags and a number of one to five bytes, of which all but the last one have
    their first bit set (:mod:`holdfast.core.wire.layouts.container`).
    """
    found, known = np.zeros(n_members, np.int32), np.zeros(n_members, bool)
    for messages in reported:
        rows, flags, frames = _frames(messages)
        rows = rows[flags & LOCATION_FLAG != 0]
        at = frames.begin[rows] + len(SUBSCRIPTION_MAGIC) + 1
        end = frames.begin[rows] + frames.size[rows]
        going = np.ones(len(rows), bool)
        for _ in range(5):
            going &= at < end
            going[going] = frames.data[at[going]] >= 128
            at += going
        at += 1
        fits = at + LOCATION_BYTES <= end
        rows, at = rows[fits], at[fits]
        digits = [
            frames.data[at + i].astype(np.uint32) << 8 * (3 - i) for i in range(LOCATION_BYTES)
        ]
        found[rows] = np.bitwise_or.reduce(digits, axis=0).astype(np.uint32).view(np.int32)
        known[rows] = True
    return numbers(found, known)


def _announced_by_one(subscription: bytes) -> int:
    """Return what one message announces; a message without a frame of ours announces nothing."""
    try:
        return decode_member_subscription(subscription).leaving
    except WireError:
        return Leaving.STAYS


def _partition_lists(owned: Items) -> pa.Array:
    """Return the lists of partitions, each ascending."""
    partitions = items(owned.columns["partitions"])
    values, start = ints(partitions.columns[""]), partitions.start
    falls = values[1:] < values[:-1]
    inner = start[1:-1]
    falls[inner[(inner > 0) & (inner < len(values))] - 1] = False
    if falls.any():
        row = np.repeat(np.arange(len(start) - 1), np.diff(start))
        values = values[np.lexsort((values, row))]
    return make_lists(start, numbers(values))
