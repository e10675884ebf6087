"""Records of classic groups as generations: members, subscriptions and assigned partitions.

**Rules.** No Spark; no loop per record, but for messages that only the scalar readers read
(:mod:`holdfast.pipeline.ingest.decode_tasks`). A field that was not read is null or empty;
``readable`` is False where an assignment does not parse.

References: KIP-429, KIP-345.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import WireError
from holdfast.model.columns import I64, Mask, row_of
from holdfast.model.designs import NAMES, Design
from holdfast.pipeline.arrow_types import Arrays, ArrowColumn
from holdfast.pipeline.ingest.arrow_columns import (
    constant,
    filled_table,
    ints,
    items,
    lists,
    numbers,
    text,
)
from holdfast.pipeline.ingest.decode_streams import streams_tasks
from holdfast.pipeline.ingest.decode_tasks import (
    GivenTasks,
    blob,
    connect_tasks,
    user_data,
    with_tasks,
    worker_tasks,
)
from holdfast.pipeline.ingest.generations import (
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
from holdfast.wire.layouts.container import (
    SUBSCRIPTION_MAGIC,
    decode_member_assignment,
    decode_member_subscription,
)
from holdfast.wire.layouts.frames import Leaving
from holdfast.wire.many.columns import Column, Columns, Items, Slices
from holdfast.wire.many.offsets_batch import Family
from holdfast.wire.many.offsets_embedded import (
    Messages,
    read_assignments,
    read_subscriptions,
)
from holdfast.wire.many.offsets_tasks import read_claims, read_verdicts

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
    head["delay_ms"] = _planned_delays(head, members, given)
    found = Generations(
        head=filled_table(head, HEAD, n_rows),
        members=filled_table(of_members, MEMBER_ROWS, len(given.unreadable)),
        owned=filled_table(of_owned, OWNED_ROWS, len(of_owned["topic"])),
    )
    row = row_of(members.start).astype(np.int64)
    for tasks in list(_given_tasks(found, members, given, row)):
        found = with_tasks(found, tasks)
    return found


def _planned_delays(head: Arrays, members: Items, given: Messages) -> pa.Array:
    """What remained of the delay in each round of Design II or III, in ms; null where none runs.

    A leader tells all members the same, so the first one whose assignment parses is asked.
    """
    chosen = np.asarray(pc.fill_null(pc.is_in(head["protocol"], pa.array(DEFERRING)), False))
    chosen &= _rows_where(head["protocol_type"], CONSUMER_PROTOCOL) & (np.diff(members.start) > 0)
    found = np.zeros(len(chosen), np.int64)
    rows = np.flatnonzero(chosen)
    if len(rows):
        first, verdicts = members.start[rows], read_verdicts(user_data(given))
        quick = verdicts.read[first] & (given.version[first] >= 0)
        found[rows[quick]] = verdicts.delay_ms[first[quick]]
        rows = rows[~quick]
    assignment = _bytes(members.columns["assignment"])
    for row in rows.tolist():
        span = range(int(members.start[row]), int(members.start[row + 1]))
        told = (_told_delay(blob(assignment, member)) for member in span)
        found[row] = next((delay_ms for delay_ms in told if delay_ms is not None), 0)
    return numbers(found, found > 0)


def _told_delay(assignment: bytes | None) -> int | None:
    """The delay in one member's assignment, 0 for none; None if the bytes do not parse."""
    try:
        return decode_member_assignment(assignment).delay_ms if assignment else None
    except WireError:
        return None


def _given_tasks(
    found: Generations, members: Items, given: Messages, row: I64
) -> Iterator[GivenTasks]:
    """What members of Streams, Connect and our workers were given; ``row`` is each member's."""
    head = found.head
    is_stream = _rows_where(head["protocol_type"], CONSUMER_PROTOCOL)
    is_stream &= _rows_where(head["protocol"], STREAMS_PROTOCOL)
    subscription = _bytes(members.columns["subscription"])
    assignment = _bytes(members.columns["assignment"])
    if len(rows := np.flatnonzero(is_stream[row])):
        asked = read_subscriptions(subscription, is_stream[row])
        yield streams_tasks(user_data(asked), user_data(given), rows, row, found.owned)
    if len(rows := np.flatnonzero(_rows_where(head["protocol_type"], CONNECT)[row])):
        yield connect_tasks(subscription, assignment, rows)
    is_worker = _rows_where(head["protocol_type"], WORKER)[row]
    if len(rows := np.flatnonzero(is_worker)):
        asked = read_subscriptions(subscription, is_worker)
        told = read_assignments(assignment, is_worker)
        yield worker_tasks((subscription, asked), (assignment, told), rows)


def _rows_where(column: ArrowColumn, value: str) -> Mask:
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
    frames = user_data(read_subscriptions(subscriptions, ours))
    claims = read_claims(frames)
    found = claims.leaving.astype(np.int32)
    begin = np.where(frames.size > 0, frames.begin, 0)
    maybe = ours & ~claims.read & (frames.data[begin] == SUBSCRIPTION_MAGIC[0])
    for member in np.flatnonzero(maybe).tolist():
        found[member] = _announced_by_one(blob(subscriptions, member) or b"")
    return numbers(found, np.isin(found, _LEAVES))


_LEAVES = (Leaving.RETURNS, Leaving.FOR_GOOD)


def _announced_by_one(subscription: bytes) -> int:
    """The same of one message; what is no frame of ours announces nothing."""
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
