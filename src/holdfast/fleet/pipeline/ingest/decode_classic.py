"""Records of classic groups as generations: members, subscriptions and assigned partitions.

**Rules.** No Spark; no loop per record. A field that was not read is null or empty; ``readable`` is
False if an assignment does not parse, or names an impossible partition.

Of members with more than topic-partitions, the row of a kind names the reader of a member's two
messages (:mod:`holdfast.core.kinds`). Its result replaces the partitions that the consumer protocol
names, and those stay with the role SOURCE: an active task reads them. A failed resource of a worker
has the role FAILED. Bytes that do not parse give nothing, and the member is not ``readable``. Such
members are few, so their messages are read one by one; the results become columns at once.

References: KIP-429, KIP-345.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds import (
    ACTIVE,
    CONSUMER_PROTOCOL,
    FAILED,
    SOURCE,
    Given,
    GroupKind,
    GroupType,
    kind_of,
)
from holdfast.core.model.columns import I64, Mask, row_of
from holdfast.core.model.constants import DESIGN_NAMES, Design
from holdfast.core.wire.layouts.container import (
    LEAVING_BITS,
    LOCATION_BYTES,
    LOCATION_FLAG,
    SUBSCRIPTION_MAGIC,
    Leaving,
    decode_member_assignment,
    decode_member_subscription,
)
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.core.wire.layouts.other_protocols import NEVER_MS
from holdfast.core.wire.many.columns import Column, Columns, Items, Slices
from holdfast.core.wire.many.offsets_batch import (
    Family,
    Messages,
    read_assignments,
    read_subscriptions,
)
from holdfast.errors import WireError
from holdfast.fleet.columnar import (
    Arrays,
    list_parts,
    make_lists,
    replaced,
    row_starts,
    times_ms,
)
from holdfast.fleet.columnar import ints as ints_of
from holdfast.fleet.pipeline.ingest.decode import (
    constant,
    families,
    ints,
    items,
    log_positions,
    numbers,
    record_sizes,
    text,
)
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
from holdfast.fleet.tables.columns.schemas import CONNECTOR, filled_table

DEFERRING = (DESIGN_NAMES[Design.DEFERRED], DESIGN_NAMES[Design.INCREMENTAL])
"""Protocols whose assignments contain the time of the next round."""


def generations(batch: pa.RecordBatch) -> Iterator[Generations]:
    """Yield records of classic groups, in the order of the log if the batch is.

    ``state`` is Stable, Empty, or Dead for a tombstone (generation -1, no members). Subscription
    fields (``rack``, ``subscribed_topics``, ``n_claimed``) are null if it was not read: another
    protocol type, empty, or unreadable. A member owns nothing if its assignment was not read;
    ``readable`` is False if the assignment does not parse. ``partitions`` ascend.
    """
    for family in families(batch, (RecordType.GROUP_METADATA,)):
        position = {"group": text(family.key["group"]), **log_positions(batch, family.rows)}
        if family.value:
            position["record_bytes"] = numbers(record_sizes(batch, family.rows))
        yield _generations(family, position)


def _generations(family: Family, position: Arrays) -> Generations:
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
        ints_of(gens.owned, "member"),
        list_parts(gens.owned["partitions"]),
    )
    row = ints_of(gens.members, "row")[member]
    lowest = np.where(marked(gens.head, lambda kind, _: kind.lowest < 0), CONNECTOR, 0)[row]
    size = np.diff(starts)
    strange = np.repeat(member, size)[partitions < np.repeat(lowest, size)]
    if not len(strange):
        return gens
    readable = gens.members["readable"].to_numpy()
    readable[strange] = False
    owned = gens.owned.filter(pa.array(~np.isin(member, strange)))
    return replace(gens, members=replaced(gens.members, readable=readable), owned=owned)


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
        rows, flags, _ = _frames(messages)
        members = rows[flags & LEAVING_BITS != Leaving.STAYS]
        for member, blob in zip(members.tolist(), blobs(subscription, members), strict=True):
            found[member] = _announced_by_one(blob)
    return numbers(found, np.isin(found, _LEAVES))


_LEAVES = (Leaving.RETURNS, Leaving.FOR_GOOD)


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


# Members with more than topic-partitions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GivenTasks:
    """Assignments of members.

    ``given`` has None for messages that do not parse. ``readable``, bool[n]: they parse, or no
    message is to be read.
    """

    member: I64
    given: list[Given | None]
    readable: Mask

    def each(self, name: str, unread: int) -> I64:
        """Return one number of each member, int64[n]."""
        return np.array(
            [unread if one is None else getattr(one, name) for one in self.given], np.int64
        )


def blobs(column: Slices, rows: I64) -> list[bytes]:
    """Return some values of a column of bytes; empty for null."""
    data, some = column.data.data, column.take(rows)
    size = some.size if some.valid is None else np.where(some.valid, some.size, 0)
    ends = (some.begin + size).tolist()
    return [bytes(data[at:end]) for at, end in zip(some.begin.tolist(), ends, strict=True)]


def with_tasks(gens: Generations, subscription: Slices, assignment: Slices) -> Generations:
    """Return generations with tasks instead of the topic-partitions that are read for them.

    ``gens`` were decoded by the consumer protocol, of the messages of all members.
    """
    row = ints_of(gens.members, "row")
    mine = marked(gens.head, lambda kind, _: kind.read is not None)[row]
    if not mine.any():
        return gens
    member = np.flatnonzero(mine)
    assigned = blobs(assignment, member)
    given = _read_rounds(gens.head, row[member], blobs(subscription, member), assigned)
    readable = [one is not None or not blob for one, blob in zip(given, assigned, strict=True)]
    found = GivenTasks(member=member, given=given, readable=np.array(readable, np.bool_))
    return Generations(
        head=_with_rounds(gens, found),
        members=_with_claims(gens.members, found),
        owned=_with_given(gens.owned, found),
    )


def _read_rounds(
    head: pa.Table, row: I64, subscribed: Sequence[bytes], assigned: Sequence[bytes]
) -> list[Given | None]:
    """Read the members' messages, round by round; ``row`` is the round of each."""
    rounds, first = np.unique(row, return_index=True)
    names = ("group_type", "protocol_type", "protocol")
    kinds = zip(*(head[name].take(pa.array(rounds)).to_pylist() for name in names), strict=True)
    bounds = [*first.tolist(), len(row)]
    found: list[Given | None] = []
    for kind, low, high in zip(kinds, bounds[:-1], bounds[1:], strict=True):
        found += _read_round(kind_of(*kind), subscribed[low:high], assigned[low:high])
    return found


def _read_round(
    kind: GroupKind, subscribed: Sequence[bytes], assigned: Sequence[bytes]
) -> list[Given | None]:
    found = [_read_one(kind, *pair) for pair in zip(subscribed, assigned, strict=True)]
    if kind.among is not None:
        good = [(at, one) for at, one in enumerate(found) if one is not None]
        whole = kind.among([subscribed[at] for at, _ in good], [one for _, one in good])
        for (at, _), one in zip(good, whole, strict=True):
            found[at] = one
    return found


def _read_one(kind: GroupKind, subscription: bytes, assignment: bytes) -> Given | None:
    if kind.read is None or not assignment:
        return None
    try:
        return kind.read(subscription, assignment)
    except WireError:
        return None


def _with_rounds(gens: Generations, found: GivenTasks) -> pa.Table:
    row = ints_of(gens.members, "row")[found.member]
    at_ms = times_ms(gens.head, "timestamp")
    delay, next_ms = ints_of(gens.head, "delay_ms").copy(), np.full(gens.n_rows, NEVER_MS)
    delay[row] = -1  # set below, or unknown
    runs, planned = found.each("delay_ms", 0), found.each("next_ms", NEVER_MS)
    np.maximum.at(delay, row, np.where(runs > 0, runs, -1))
    np.minimum.at(next_ms, row, np.where(planned == 0, NEVER_MS, planned))  # at once: not planned
    delay = np.where(next_ms < NEVER_MS, np.maximum(next_ms, at_ms) - at_ms, delay)
    offset = ints_of(gens.head, "config_offset").copy()
    np.maximum.at(offset, row, found.each("config_offset", -1))
    return replaced(gens.head, delay_ms=_or_null(delay), config_offset=_or_null(offset))


def _or_null(values: I64) -> pa.Array:
    """Return numbers; null below 0."""
    return pa.array(values, pa.int64(), mask=values < 0)


def _with_claims(members: pa.Table, found: GivenTasks) -> pa.Table:
    columns = {name: ints_of(members, name).copy() for name in ("n_claimed", "n_revoked")}
    claimed = found.each("n_claimed", -1)
    known = claimed >= 0
    columns["n_claimed"][found.member[known]] = claimed[known]
    columns["n_revoked"][found.member] = found.each("n_revoked", -1)
    readable = np.asarray(members["readable"]).copy()
    readable[found.member] &= found.readable
    return replaced(
        members,
        readable=pa.array(readable),
        **{name: _or_null(column) for name, column in columns.items()},
    )


def _with_given(owned: pa.Table, found: GivenTasks) -> pa.Table:
    """Return rows of ``owned``, and behind them the assignments of the members."""
    member = ints_of(owned, "member")
    known = np.array([one is not None for one in found.given], np.bool_)
    read = np.isin(member, found.member[known])
    role = np.where(read, SOURCE, np.maximum(ints_of(owned, "role"), ACTIVE))
    reader: list[str | None] = owned["reader"].to_pylist()
    start = row_starts(member, int(found.member[-1]) + 1)
    more: list[dict[str, object]] = []
    for at, one in zip(found.member.tolist(), found.given, strict=True):
        if one is None:
            continue
        if one.readers:
            reader[start[at] : start[at + 1]] = one.readers
        names = ("role", "topic", "partitions")
        more += [{"member": at, **dict(zip(names, own, strict=True))} for own in one.owned]
        more += [
            {"member": at, "role": FAILED, "topic": kind, "partitions": own, "reader": error}
            for kind, error, own in one.failed
        ]
    added = pa.Table.from_pylist(more, schema=owned.schema)
    whole = pa.concat_tables([replaced(owned, role=role, reader=reader), added])
    order = np.argsort(ints_of(whole, "member"), kind="stable")
    return whole.take(pa.array(order))
