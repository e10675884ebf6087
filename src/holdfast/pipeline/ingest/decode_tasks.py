"""What members of Streams, Connect and our workers were given: tasks and resources, by role.

**Rules.** A task of Streams stands under its subtopology, a task of Connect under its connector;
partition -1 of a connector is the connector itself, as in Connect's own bytes. What a Connect
worker has after a round is what it had, less what it was asked back, plus what it was given; up to
version 0 its assignment is everything. The same holds for a worker of ours, whose resources stand
under their kind. Bytes that do not parse give no task, and the member is not
``readable``.

**Strategy.** Messages are read in columns (:mod:`holdfast.wire.many.offsets_tasks`). What those
readers refuse is read one by one, by the scalar readers, which decide whether it parses.

References: KIP-415 (Connect); for Streams see :mod:`holdfast.pipeline.ingest.decode_streams`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from holdfast.errors import WireError
from holdfast.model.columns import I64, Mask
from holdfast.model.partitions import TopicPartitions
from holdfast.pipeline.arrow_types import ArrowColumn
from holdfast.pipeline.ingest.arrow_columns import ints as values_of
from holdfast.pipeline.ingest.generations import (
    ACTIVE,
    SOURCE,
    Generations,
    make_lists,
    new_runs,
)
from holdfast.pipeline.ingest.task_lists import Keys, TaskLists, gathered, joined, keyed, listed
from holdfast.tables.values import ints, times_ms
from holdfast.wire.layouts.connect import (
    ConnectAssignment,
    decode_connect_assignment,
    decode_connect_metadata,
)
from holdfast.wire.layouts.container import (
    MemberAssignment,
    decode_member_assignment,
    decode_member_subscription,
)
from holdfast.wire.layouts.streams_user_data import NEVER_MS
from holdfast.wire.many.columns import Column, Slices
from holdfast.wire.many.offsets_embedded import Messages
from holdfast.wire.many.offsets_tasks import (
    TaskMessages,
    read_claims,
    read_connect_assignments,
    read_connect_metadata,
    read_verdicts,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GivenTasks:
    """What the members of some generations were given.

    Parameters
    ----------
    member : int64[n]
        Members whose messages were looked at, ascending.
    readable : bool[n]
        Whether the bytes of each parse.
    n_claimed : int64[n]
        Tasks that each said it kept; -1 where its message is the consumer protocol's.
    n_revoked : int64[n]
        Tasks that each was asked back; -1 where the protocol does not say.
    owned : Table
        ``member``, ``topic``, ``partitions`` and ``role``: by member, then role and name.
    told_by : int64[k]
        Members that tell something of their round.
    delay_ms, config_offset : int64[k]
        What each says: the delay, 0 for none; how far Connect's leader had read the topic of
        configurations, -1 for nothing.
    next_ms : int64[k]
        When Streams plans its next rebalance, in ms since 1970; the largest int64 for never.
    reader : dict of int to str
        By row of the generations' ``owned``: the subtopology that reads the topic.
    """

    member: I64
    readable: Mask
    n_claimed: I64
    n_revoked: I64
    owned: pa.Table
    told_by: I64
    delay_ms: I64
    config_offset: I64
    next_ms: I64
    reader: dict[int, str] = field(default_factory=dict)


def blob(column: Slices, row: int) -> bytes | None:
    """One value of a column of bytes."""
    if column.valid is not None and not column.valid[row]:
        return None
    begin = int(column.begin[row])
    return column.data[begin : begin + int(column.size[row])].tobytes()


def one_by_one(rows: I64, decode: Callable[[int], T]) -> dict[int, T]:
    """What the scalar readers make of some members; those that do not parse are left out."""
    found = {}
    for member in rows.tolist():
        try:
            found[member] = decode(member)
        except WireError:
            continue
    return found


# Connect


def connect_tasks(metadata: Slices, assignment: Slices, rows: I64) -> GivenTasks:
    """Connectors and tasks of Connect's workers.

    Parameters
    ----------
    metadata, assignment : Slices
        Of all members.
    rows : int64[n]
        Members that are workers, ascending.
    """
    said = read_connect_metadata(metadata, rows)
    allocation = said.columns["allocation"]
    assert isinstance(allocation, Slices)
    had_any = allocation.size > 0
    had = _moved(read_connect_assignments(allocation, np.flatnonzero(had_any)), said.rows)
    now = read_connect_assignments(assignment, rows)
    whole = np.setdiff1d(said.rows, np.setdiff1d(said.rows[had_any], had.rows))
    quick = np.intersect1d(whole, now.rows)
    slow = np.setdiff1d(rows, quick)
    read = one_by_one(slow, lambda m: _connect_worker(blob(metadata, m), blob(assignment, m)))
    sets = (
        (_listed(had, "assignment", quick, _TASKS), {m: pair[0] for m, pair in read.items()}),
        (_listed(now, "revoked", quick, _TASKS), {m: pair[1].revoked for m, pair in read.items()}),
        (
            _listed(now, "assignment", quick, _TASKS),
            {m: pair[1].assignment for m, pair in read.items()},
        ),
    )
    told = np.isin(now.rows, quick)
    return _worker_tasks(
        rows,
        keyed(*(joined([one, gathered(more.items())]) for one, more in sets)),
        unread=np.setdiff1d(slow, list(read)),
        empty=assignment.size == 0,
        absolute=[member for member, (_, one) in read.items() if not one.version],
        told_by=np.append(now.rows[told], list(read)).astype(np.int64),
        delay_ms=np.append(
            values_of(now.columns["delay"])[told], [one.delay_ms for _, one in read.values()]
        ),
        config_offset=np.maximum(
            np.append(
                values_of(now.columns["configOffset"])[told],
                np.array([one.config_offset for _, one in read.values()], np.int64),
            ),
            0,
        ),
    )


def _moved(messages: TaskMessages, rows: I64) -> TaskMessages:
    """The same messages, under the members that ``rows`` names for them."""
    return TaskMessages(
        rows=rows[messages.rows], version=messages.version, columns=messages.columns
    )


def _connect_worker(
    metadata: bytes | None, assignment: bytes | None
) -> tuple[TopicPartitions | None, ConnectAssignment]:
    allocation = decode_connect_metadata(metadata or b"").allocation
    had = decode_connect_assignment(allocation).assignment if allocation else None
    return had, decode_connect_assignment(assignment or b"")


_TASKS, _PARTITIONS = ("connector", "tasks"), ("topic", "partitions")


def _listed(messages: TaskMessages, field: str, wanted: I64, names: tuple[str, str]) -> TaskLists:
    """The lists of some members, out of those that were read."""
    rows = np.flatnonzero(np.isin(messages.rows, wanted))
    return listed(messages.columns[field].take(rows), messages.rows[rows], *names)


# Workers of ours


def worker_tasks(
    subscription: tuple[Slices, Messages], assignment: tuple[Slices, Messages], rows: I64
) -> GivenTasks:
    """Resources of the workers of :class:`holdfast.Worker`, by kind.

    Parameters
    ----------
    subscription, assignment : (Slices, Messages)
        Of all members, and what the consumer protocol says in those of workers.
    rows : int64[n]
        Members that are workers, ascending.
    """
    claims, verdicts = (
        read_claims(user_data(subscription[1])),
        read_verdicts(user_data(assignment[1])),
    )
    good = (subscription[1].version >= 0) & (assignment[1].version >= 0)
    good &= claims.read & verdicts.read
    quick, slow = rows[good[rows]], rows[~good[rows]]
    read = one_by_one(slow, lambda m: _worker(blob(subscription[0], m), blob(assignment[0], m)))
    had = {member: owned for member, (owned, _) in read.items()}
    given = {member: now.assigned for member, (_, now) in read.items()}
    revoked = {member: now.revoked for member, (_, now) in read.items()}
    keys = keyed(
        joined(
            [_partitions(subscription[1].columns["ownedPartitions"], quick), gathered(had.items())]
        ),
        joined(
            [
                gathered(revoked.items()),
                *(
                    _listed(one, "sets", quick, _PARTITIONS)
                    for one in verdicts.lists
                    if one.columns
                ),
            ]
        ),
        joined(
            [
                _partitions(assignment[1].columns["assignedPartitions"], quick),
                gathered(given.items()),
            ]
        ),
    )
    told_by = np.append(quick, list(read)).astype(np.int64)
    return _worker_tasks(
        rows,
        keys,
        unread=np.setdiff1d(slow, list(read)),
        empty=assignment[0].size == 0,
        absolute=[],
        told_by=told_by,
        delay_ms=np.append(verdicts.delay_ms[quick], [now.delay_ms for _, now in read.values()]),
        config_offset=np.full(len(told_by), -1, np.int64),
    )


def user_data(messages: Messages) -> Slices:
    """The assignor's own bytes of each message."""
    column = messages.columns["userData"]
    assert isinstance(column, Slices)
    return column


def _worker(
    subscription: bytes | None, assignment: bytes | None
) -> tuple[TopicPartitions, MemberAssignment]:
    had = decode_member_subscription(subscription or b"").owned
    return had, decode_member_assignment(assignment or b"")


def _partitions(column: Column, rows: I64) -> TaskLists:
    return listed(column.take(rows), rows, *_PARTITIONS)


# Both


def _worker_tasks(
    rows: I64,
    keys: Keys,
    *,
    unread: I64,
    empty: Mask,
    absolute: Sequence[int],
    told_by: I64,
    delay_ms: I64,
    config_offset: I64,
) -> GivenTasks:
    """What workers have: what they had, less what they were asked back, plus what they got."""
    before, revoked, assigned = keys.sets
    n_members = int(rows.max(initial=-1)) + 1

    def count(set_: I64) -> I64:
        return np.bincount(keys.members(set_), minlength=n_members)[rows]

    kept = np.setdiff1d(before, revoked, assume_unique=True)
    kept = kept[~np.isin(keys.members(kept), absolute)]
    member, rank, number = keys.lists(np.union1d(kept, assigned))
    unknown = np.isin(rows, unread)
    return GivenTasks(
        member=rows,
        readable=~unknown | empty[rows],
        n_claimed=np.where(unknown, -1, count(before)),
        n_revoked=np.where(unknown | np.isin(rows, absolute), -1, count(revoked)),
        owned=task_rows(member, np.full(len(member), ACTIVE, np.int64), rank, number, keys.names),
        told_by=told_by,
        delay_ms=delay_ms.astype(np.int64),
        config_offset=config_offset,
        next_ms=np.full(len(told_by), NEVER_MS, np.int64),
    )


def task_rows(member: I64, role: I64, rank: I64, number: I64, names: Sequence[str]) -> pa.Table:
    """Tasks as rows of a list each: by member, role and name, numbers ascending."""
    order = np.lexsort((number, rank, role, member))
    member, role, rank, number = (column[order] for column in (member, role, rank, number))
    first = np.flatnonzero(new_runs(member, role, rank)) if len(order) else order
    return pa.table(
        {
            "member": member[first],
            "topic": pa.array(names, pa.string()).take(pa.array(rank[first])),
            "partitions": make_lists(number, first),
            "role": role[first],
        }
    )


def with_tasks(gens: Generations, found: GivenTasks) -> Generations:
    """Generations with tasks in place of the topic-partitions that their members read.

    Parameters
    ----------
    gens : Generations
        As the consumer protocol says.
    found : GivenTasks
        Where a member's tasks are known, its topic-partitions stay with the role SOURCE.
    """
    return Generations(
        head=_with_rounds(gens, found),
        members=_with_claims(gens.members, found),
        owned=_with_given(gens.owned, found),
    )


def _with_rounds(gens: Generations, found: GivenTasks) -> pa.Table:
    row = ints(gens.members, "row")
    at_ms = times_ms(gens.head, "timestamp")
    delay, next_ms = ints(gens.head, "delay_ms").copy(), np.full(gens.n_rows, NEVER_MS)
    delay[row[found.member]] = -1  # what is said below, or nothing
    by = row[found.told_by]
    np.maximum.at(delay, by, np.where(found.delay_ms > 0, found.delay_ms, -1))
    np.minimum.at(next_ms, by, found.next_ms)
    delay = np.where(next_ms < NEVER_MS, np.maximum(next_ms, at_ms) - at_ms, delay)
    offset = ints(gens.head, "config_offset").copy()
    np.maximum.at(offset, by, found.config_offset)
    return replaced(
        gens.head,
        delay_ms=_or_null(delay, delay >= 0),
        config_offset=_or_null(offset, offset >= 0),
    )


def _or_null(values: I64, known: Mask) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~known)


def _with_claims(members: pa.Table, found: GivenTasks) -> pa.Table:
    columns = {name: ints(members, name).copy() for name in ("n_claimed", "n_revoked")}
    known = found.n_claimed >= 0
    columns["n_claimed"][found.member[known]] = found.n_claimed[known]
    columns["n_revoked"][found.member] = found.n_revoked
    readable = np.asarray(members["readable"]).copy()
    readable[found.member] &= found.readable
    return replaced(
        members,
        readable=pa.array(readable),
        **{name: _or_null(column, column >= 0) for name, column in columns.items()},
    )


def _with_given(owned: pa.Table, found: GivenTasks) -> pa.Table:
    member = ints(owned, "member")
    role = np.where(
        np.isin(member, found.member[found.readable]),
        SOURCE,
        np.maximum(ints(owned, "role"), ACTIVE),
    )
    reader: list[str | None] = owned["reader"].to_pylist()
    for row, name in found.reader.items():
        reader[row] = name
    more = pa.table({name: found.owned[name] for name in found.owned.column_names})
    more = more.append_column("reader", pa.nulls(more.num_rows, pa.string()))
    more = more.select(owned.column_names).cast(owned.schema)
    whole = pa.concat_tables([replaced(owned, role=role, reader=reader), more])
    order = np.argsort(ints(whole, "member"), kind="stable")
    return whole.take(pa.array(order))


def replaced(table: pa.Table, **columns: object) -> pa.Table:
    """The table with other values in some of its columns."""
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        column: ArrowColumn = values if isinstance(values, pa.Array) else pa.array(values)
        table = table.set_column(at, field, column.cast(field.type))
    return table
