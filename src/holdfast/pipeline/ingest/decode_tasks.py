"""What members of Streams, Connect and our workers were given: tasks and resources, by role.

**Rules.** A task of Streams stands under its subtopology, a task of Connect under its connector;
partition -1 of a connector is the connector itself, as in Connect's own bytes. What a Connect
worker has after a round is what it had, less what it was asked back, plus what it was given; up to
version 0 its assignment is everything. The same holds for a worker of ours, whose resources stand
under their kind. Bytes that do not parse give no task, and the member is not
``readable``.

A warm-up task is inferred. While another rebalance is planned, the copies of a task beyond those
that every task of its subtopology has are warm-up tasks, first the ones whose state is furthest
behind. All other copies are standby tasks.

**Strategy.** Such members are few, so a loop reads them.

References: KIP-415 (Connect), KIP-441 (warm-up tasks).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from holdfast.errors import WireError
from holdfast.model.partitions import TopicPartitions
from holdfast.pipeline.history.generations import (
    ACTIVE,
    SOURCE,
    STANDBY,
    WARMUP,
    Generations,
    row_starts,
)
from holdfast.tables.values import ints, times_ms
from holdfast.wire.layouts.connect import (
    ConnectAssignment,
    decode_connect_assignment,
    decode_connect_metadata,
)
from holdfast.wire.layouts.container import decode_member_assignment, decode_member_subscription
from holdfast.wire.layouts.streams_user_data import (
    NEVER_MS,
    StreamsAssignment,
    StreamsSubscription,
    Task,
    decode_streams_assignment,
    decode_streams_subscription,
)

Given = list[tuple[int, str, list[int]]]
"""What a member is given: role, subtopology or connector, numbers of tasks."""


@dataclass(slots=True)
class MemberTasks:
    """What one member was given.

    Parameters
    ----------
    given : list of (role, name, numbers)
        Sorted.
    n_claimed : int or None
        Tasks that it said it kept; None where its message is the consumer protocol's.
    n_revoked : int or None
        Tasks that it was asked back in this round; None where the protocol does not say.
    readable : bool
        Its bytes parse.
    active : tuple of (subtopology, number)
        Active tasks of Streams in the order of its bytes: one for each topic-partition that the
        member was assigned, by topic and number.
    """

    given: Given = field(default_factory=list)
    active: tuple[Task, ...] = ()
    n_claimed: int | None = None
    n_revoked: int | None = None
    readable: bool = True


@dataclass(slots=True)
class RoundTasks:
    """What the members of one generation were given.

    Parameters
    ----------
    members : list of MemberTasks
        In their order.
    delay_ms : int or None
        Connect's delay of the round; None where there is none.
    next_ms : int or None
        When Streams plans its next rebalance, in ms since 1970; None where it plans none, or one at
        once.
    config_offset : int or None
        How far Connect's leader had read the topic of configurations.
    """

    members: list[MemberTasks]
    delay_ms: int | None = None
    next_ms: int | None = None
    config_offset: int | None = None


def connect_tasks(messages: Iterable[tuple[bytes, bytes]]) -> RoundTasks:
    """Connectors and tasks of the workers of one generation.

    Parameters
    ----------
    messages : iterable of (metadata, assignment)
        Of each worker.
    """
    found = RoundTasks(members=[])
    for metadata, assignment in messages:
        try:
            had, now = _had(metadata), decode_connect_assignment(assignment)
        except WireError:
            found.members.append(MemberTasks(readable=not assignment))
            continue
        found.members.append(_worker(had, now))
        found.delay_ms = max(found.delay_ms or 0, now.delay_ms) or None
        found.config_offset = max(found.config_offset or 0, now.config_offset)
    return found


def _had(metadata: bytes) -> ConnectAssignment | None:
    allocation = decode_connect_metadata(metadata).allocation
    return decode_connect_assignment(allocation) if allocation else None


def _worker(had: ConnectAssignment | None, now: ConnectAssignment) -> MemberTasks:
    before = _tasks(had.assignment if had is not None else None)
    revoked = _tasks(now.revoked)
    kept = before - revoked if now.version else set()
    return MemberTasks(
        given=_listed((ACTIVE, task) for task in kept | _tasks(now.assignment)),
        n_claimed=len(before),
        n_revoked=len(revoked) if now.version else None,
    )


def _tasks(listed: TopicPartitions | None) -> set[Task]:
    return {(name, number) for name, numbers in listed or () for number in numbers}


def worker_tasks(messages: Iterable[tuple[bytes, bytes]]) -> RoundTasks:
    """Resources of the workers of one generation of :class:`holdfast.Worker`, by kind.

    Parameters
    ----------
    messages : iterable of (subscription, assignment)
        Of each worker.
    """
    found = RoundTasks(members=[])
    for subscription, assignment in messages:
        try:
            had = decode_member_subscription(subscription).owned
            now = decode_member_assignment(assignment)
        except WireError:
            found.members.append(MemberTasks(readable=not assignment))
            continue
        before, revoked = _tasks(had), _tasks(now.revoked)
        given = _listed((ACTIVE, task) for task in (before - revoked) | _tasks(now.assigned))
        found.members.append(
            MemberTasks(given=given, n_claimed=len(before), n_revoked=len(revoked))
        )
        found.delay_ms = max(found.delay_ms or 0, now.delay_ms) or None
    return found


def streams_tasks(messages: Iterable[tuple[bytes | None, bytes | None]]) -> RoundTasks:
    """Tasks of the members of one generation of a classic Streams group.

    Parameters
    ----------
    messages : iterable of (subscription user data, assignment user data)
        Of each member.
    """
    read = [_read_streams(*pair) for pair in messages]
    planned = {now.next_rebalance_ms for _, now in read if now is not None} - {NEVER_MS}
    warm = _warm_ups(read) if planned else set()
    members = []
    for member, (_, now) in enumerate(read):
        if now is None:
            members.append(MemberTasks(readable=False))
            continue
        roles = [(ACTIVE, task) for task in now.active]
        roles += [(WARMUP if (member, t) in warm else STANDBY, t) for t in now.standby]
        members.append(MemberTasks(given=_listed(roles), active=tuple(now.active)))
    return RoundTasks(members=members, next_ms=min(planned - {0}, default=None))


_Read = tuple[StreamsSubscription | None, StreamsAssignment | None]


def _read_streams(subscription: bytes | None, assignment: bytes | None) -> _Read:
    try:
        asked = decode_streams_subscription(subscription) if subscription else None
    except WireError:
        asked = None  # only warm-up tasks need it
    try:
        return asked, decode_streams_assignment(assignment) if assignment else None
    except WireError:
        return asked, None


def _warm_ups(read: Sequence[_Read]) -> set[tuple[int, Task]]:
    """Member and task of each copy that is to take over."""
    holders: dict[Task, list[int]] = {}
    tasks: set[Task] = set()
    for member, (_, now) in enumerate(read):
        for task in () if now is None else now.standby:
            holders.setdefault(task, []).append(member)
        tasks |= set(() if now is None else now.active)
    copies = Counter({task: len(members) for task, members in holders.items()})
    least: dict[str, int] = {}
    for task in tasks | set(holders):
        least[task[0]] = min(copies[task], least.get(task[0], copies[task]))
    found = set()
    for task, members in holders.items():
        behind = sorted(members, key=lambda member: (_offset_sum(read[member][0], task), member))
        found |= {(member, task) for member in behind[: copies[task] - least[task[0]]]}
    return found


def _offset_sum(asked: StreamsSubscription | None, task: Task) -> int:
    return dict(asked.offset_sums).get(task, -1) if asked is not None else -1


def _listed(tasks: Iterable[tuple[int, Task]]) -> Given:
    """Tasks by role and name, sorted."""
    found: dict[tuple[int, str], list[int]] = {}
    for role, (name, number) in sorted(tasks):
        found.setdefault((role, name), []).append(number)
    return [(role, name, numbers) for (role, name), numbers in found.items()]


def with_tasks(gens: Generations, rounds: Mapping[int, RoundTasks]) -> Generations:
    """Generations with the tasks of some rows in place of the topic-partitions that they read.

    Parameters
    ----------
    gens : Generations
        As the consumer protocol says.
    rounds : mapping of int to RoundTasks
        By row of ``gens.head``. Where a member's tasks are known, its topic-partitions stay with
        the role SOURCE.
    """
    start = row_starts(ints(gens.members, "row"), gens.n_rows)
    tasks = {int(start[row]) + i: m for row, r in rounds.items() for i, m in enumerate(r.members)}
    return Generations(
        head=_with_rounds(gens.head, rounds),
        members=_with_claims(gens.members, tasks),
        owned=_with_given(gens.owned, tasks),
    )


def _with_rounds(head: pa.Table, rounds: Mapping[int, RoundTasks]) -> pa.Table:
    at_ms = times_ms(head, "timestamp")
    delay: list[int | None] = head["delay_ms"].to_pylist()
    offset: list[int | None] = [None] * head.num_rows
    for row, found in rounds.items():
        planned = None if found.next_ms is None else max(found.next_ms - int(at_ms[row]), 0)
        delay[row] = found.delay_ms if planned is None else planned
        offset[row] = found.config_offset
    return replaced(head, delay_ms=delay, config_offset=offset)


def _with_claims(members: pa.Table, tasks: Mapping[int, MemberTasks]) -> pa.Table:
    columns = {name: members[name].to_pylist() for name in ("n_claimed", "n_revoked", "readable")}
    for member, found in tasks.items():
        columns["n_revoked"][member] = found.n_revoked
        columns["readable"][member] &= found.readable
        if found.n_claimed is not None:
            columns["n_claimed"][member] = found.n_claimed
    return replaced(members, **columns)


def _with_given(owned: pa.Table, tasks: Mapping[int, MemberTasks]) -> pa.Table:
    known = [member for member, found in tasks.items() if found.readable]
    member = ints(owned, "member")
    role = np.where(np.isin(member, known), SOURCE, ACTIVE)
    rows = [
        {"member": member, "topic": name, "partitions": numbers, "role": role}
        for member, found in tasks.items()
        for role, name, numbers in found.given
    ]
    more = pa.Table.from_pylist(rows, schema=owned.schema)
    whole = pa.concat_tables([replaced(owned, role=role, reader=_readers(owned, tasks)), more])
    order = np.argsort(ints(whole, "member"), kind="stable")
    return whole.take(pa.array(order))


def _readers(owned: pa.Table, tasks: Mapping[int, MemberTasks]) -> list[str | None]:
    """The subtopology that reads the topic of each row; None where tasks and partitions differ.

    The leader of a classic Streams group lists one active task for each partition, by topic and
    number (``StreamsPartitionAssignor.getActiveTasks``).
    """
    found: list[str | None] = [None] * owned.num_rows
    start = row_starts(ints(owned, "member"), max(tasks, default=-1) + 1)
    for member, given in tasks.items():
        rows = range(int(start[member]), int(start[member + 1])) if given.active else range(0)
        read = sorted((owned["topic"][r].as_py(), owned["partitions"][r].as_py(), r) for r in rows)
        if [n for _, numbers, _ in read for n in numbers] != [n for _, n in given.active]:
            continue
        at = 0
        for _, numbers, row in read:
            places = {place for place, _ in given.active[at : at + len(numbers)]}
            found[row] = places.pop() if len(places) == 1 else None
            at += len(numbers)
    return found


def replaced(table: pa.Table, **columns: object) -> pa.Table:
    """The table with other values in some of its columns."""
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, pa.array(values, field.type))
    return table
