"""Records of classic groups as generations: members, subscriptions and assigned partitions.

**Rules.** No Spark, no loop per record, but for groups of Streams and Connect
(:mod:`holdfast.pipeline.ingest.decode_tasks`). A field that was not read is null or empty;
``readable`` is False where an assignment does not parse.

References: KIP-429, KIP-345.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import WireError
from holdfast.machine.leader.designs import NAMES
from holdfast.model.columns import Mask, row_of
from holdfast.pipeline.arrow_types import Arrays, ArrowColumn
from holdfast.pipeline.history.generations import (
    CLASSIC,
    CONNECT,
    DEAD,
    EMPTY,
    HEAD,
    MEMBER_ROWS,
    OWNED_ROWS,
    STABLE,
    STREAMS_PROTOCOL,
    WORKER,
    Generations,
)
from holdfast.pipeline.ingest.arrow_columns import (
    constant,
    filled_table,
    ints,
    items,
    lists,
    numbers,
    text,
)
from holdfast.pipeline.ingest.decode_tasks import (
    RoundTasks,
    connect_tasks,
    streams_tasks,
    with_tasks,
    worker_tasks,
)
from holdfast.wire.layouts.container import (
    SUBSCRIPTION_MAGIC,
    decode_member_assignment,
    decode_member_subscription,
)
from holdfast.wire.layouts.frames import Leaving
from holdfast.wire.layouts.incremental import Design
from holdfast.wire.many.columns import Column, Columns, Items, Slices
from holdfast.wire.many.offsets_batch import Family
from holdfast.wire.many.offsets_embedded import read_assignments, read_subscriptions

CONSUMER_PROTOCOL = "consumer"
"""Protocol type of groups whose members speak Kafka's consumer protocol."""

DEFERRING = (NAMES[Design.DEFERRED], NAMES[Design.INCREMENTAL])
"""Protocols whose assignments say when the next round is due."""


def group_generations(family: Family, place: Arrays, *, subscriptions: bool = True) -> Generations:
    """Records of one version as generations.

    Parameters
    ----------
    family : Family
        Records of type 2.
    place : dict of name to Array
        The group of each record, and where it stood in the log.
    subscriptions : bool
        Read the members' subscriptions too.
    """
    n_rows = len(family)
    head = {
        **place,
        "group_type": constant(CLASSIC, pa.string(), n_rows),
        "context": constant(False, pa.bool_(), n_rows),
    }
    if not family.value:
        head["generation"] = numbers(np.full(n_rows, -1, np.int32))
        head["state"] = constant(DEAD, pa.string(), n_rows)
        none = Generations.empty()
        return replace(none, head=filled_table(head, HEAD, n_rows))
    members = items(family.value["members"])
    head |= _generation_fields(family.value, members)
    is_consumer = _is(CONSUMER_PROTOCOL, family.value, members)
    given = read_assignments(_bytes(members.columns["assignment"]), is_consumer)
    owned = items(given.columns["assignedPartitions"])
    of_members = {
        "row": numbers(row_of(members.start)),
        **_member_fields(members.columns),
        "readable": pa.array(~given.unreadable),
    }
    if subscriptions:
        asked = _bytes(members.columns["subscription"])
        of_members |= _subscription_fields(asked, is_consumer)
        of_members["leaving"] = _announced(asked, is_consumer | _is(WORKER, family.value, members))
    of_owned = {
        "member": numbers(row_of(owned.start)),
        "topic": text(owned.columns["topic"]),
        "partitions": _partition_lists(owned),
    }
    head["delay_ms"] = _planned_delays(head["protocol"], members)
    found = Generations(
        head=filled_table(head, HEAD, n_rows),
        members=filled_table(of_members, MEMBER_ROWS, len(given.unreadable)),
        owned=filled_table(of_owned, OWNED_ROWS, len(of_owned["topic"])),
    )
    rounds = _task_rounds(found.head, members, _bytes(given.columns["userData"]))
    return with_tasks(found, rounds) if rounds else found


def _planned_delays(protocol: ArrowColumn, members: Items) -> pa.Array:
    """What remained of the delay in each round of Design II or III, in ms; null where none runs.

    A leader tells all members the same, so the first one whose assignment parses is asked.
    """
    chosen = pc.fill_null(pc.is_in(protocol, pa.array(DEFERRING)), False)
    chosen = chosen.to_numpy(zero_copy_only=False)
    assignment = _bytes(members.columns["assignment"])
    found: list[int | None] = [None] * len(chosen)
    for row in np.flatnonzero(chosen).tolist():
        span = range(int(members.start[row]), int(members.start[row + 1]))
        told = (_told_delay(_blob(assignment, member)) for member in span)
        found[row] = next((delay_ms for delay_ms in told if delay_ms is not None), None) or None
    return pa.array(found, pa.int64())


def _told_delay(assignment: bytes | None) -> int | None:
    """The delay in one member's assignment, 0 for none; None if the bytes do not parse."""
    try:
        return decode_member_assignment(assignment).delay_ms if assignment else None
    except WireError:
        return None


def _task_rounds(head: pa.Table, members: Items, given: Slices) -> dict[int, RoundTasks]:
    """Rows whose members were given tasks, and what; ``given`` is user data of assignments."""
    is_connect = _rows_where(head["protocol_type"], CONNECT)
    is_worker = _rows_where(head["protocol_type"], WORKER)
    is_stream = _rows_where(head["protocol_type"], CONSUMER_PROTOCOL)
    is_stream &= _rows_where(head["protocol"], STREAMS_PROTOCOL)
    chosen = np.flatnonzero(is_connect | is_stream | is_worker).tolist()
    if not chosen:
        return {}
    subscription = _bytes(members.columns["subscription"])
    assignment = _bytes(members.columns["assignment"])
    asked = read_subscriptions(subscription, is_stream[row_of(members.start)])
    user_data = _bytes(asked.columns["userData"])
    found = {}
    for row in chosen:
        span = range(int(members.start[row]), int(members.start[row + 1]))
        if is_stream[row]:
            found[row] = streams_tasks((_blob(user_data, m), _blob(given, m)) for m in span)
            continue
        pairs = [(_blob(subscription, m) or b"", _blob(assignment, m) or b"") for m in span]
        found[row] = connect_tasks(pairs) if is_connect[row] else worker_tasks(pairs)
    return found


def _rows_where(column: ArrowColumn, value: str) -> Mask:
    found: Mask = np.asarray(pc.fill_null(pc.equal(column, value), False), np.bool_)
    return found


def _blob(column: Slices, row: int) -> bytes | None:
    """One value of a column of bytes."""
    if column.valid is not None and not column.valid[row]:
        return None
    begin = int(column.begin[row])
    return column.data[begin : begin + int(column.size[row])].tobytes()


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
        "session_timeout_ms": numbers(ints(columns["sessionTimeout"])),
    }
    if "groupInstanceId" in columns:
        fields["group_instance_id"] = text(columns["groupInstanceId"])
    if "rebalanceTimeout" in columns:
        fields["rebalance_timeout_ms"] = numbers(ints(columns["rebalanceTimeout"]))
    return fields


def _subscription_fields(subscriptions: Slices, is_consumer: Mask) -> Arrays:
    asked = read_subscriptions(subscriptions, is_consumer)
    topics, was_read = items(asked.columns["topics"]), asked.version >= 0
    claimed = items(asked.columns["ownedPartitions"])
    n_claimed = np.diff(items(claimed.columns["partitions"]).start[claimed.start])
    return {
        "rack": text(asked.columns["rackId"]),
        "subscribed_topics": lists(topics.start, text(topics.columns[""]), was_read),
        "n_claimed": numbers(n_claimed, was_read),
    }


def _bytes(column: Column) -> Slices:
    assert isinstance(column, Slices)
    return column


def _is(protocol_type: str, value: Columns, members: Items) -> Mask:
    """Whether each member belongs to a group of a protocol type."""
    here = _rows_where(text(value["protocolType"]), protocol_type)
    return np.repeat(here, np.diff(members.start))


def _announced(subscriptions: Slices, ours: Mask) -> pa.Array:
    """What each member of some groups announces, int32; null where it stays, or says nothing."""
    data = _bytes(read_subscriptions(subscriptions, ours).columns["userData"])
    known = ours & (data.size > len(SUBSCRIPTION_MAGIC))
    if data.valid is not None:
        known &= data.valid
    begin = np.where(known, data.begin, 0)
    for place, byte in enumerate(SUBSCRIPTION_MAGIC):
        known &= data.data[begin + place] == byte
    found = np.where(known, data.data[begin + len(SUBSCRIPTION_MAGIC)] & 3, 0).astype(np.int32)
    first = data.data[begin] == SUBSCRIPTION_MAGIC[0]
    for member in np.flatnonzero(ours & ~known & first & (data.size > 0)).tolist():
        found[member] = _announced_of_old(_blob(subscriptions, member) or b"")
    return numbers(found, np.isin(found, _LEAVES))


_LEAVES = (Leaving.RETURNS, Leaving.FOR_GOOD)


def _announced_of_old(subscription: bytes) -> int:
    """The same of a frame of version 1 or 2; no frame of ours announces nothing."""
    try:
        return decode_member_subscription(subscription).leaving
    except WireError:
        return Leaving.STAYS


def _partition_lists(owned: Items) -> pa.Array:
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
