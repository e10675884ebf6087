"""Tasks of the members of classic Kafka Streams groups, out of their user data.

**Rules.** A warm-up task is inferred. While another rebalance is planned, the copies of a task
beyond those that every task of its subtopology has are warm-up tasks, first the ones whose state is
furthest behind. All other copies are standby tasks. The leader of a group lists one active task for
each partition, by topic and number (``StreamsPartitionAssignor.getActiveTasks``), so the topics
that a subtopology reads follow from the member's lists, unless the two differ in length.

**Strategy.** As :mod:`holdfast.pipeline.ingest.decode_tasks`. Subscriptions are read only where
warm-up tasks are to be told: in rounds with a planned rebalance and copies.

References: KIP-441 (warm-up tasks, probing rebalances).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.model.columns import I64, Mask, starts
from holdfast.pipeline.ingest.arrow_columns import ints as values_of
from holdfast.pipeline.ingest.arrow_columns import items
from holdfast.pipeline.ingest.decode_tasks import GivenTasks, blob, one_by_one, task_rows
from holdfast.pipeline.ingest.generations import ACTIVE, STANDBY, WARMUP, list_parts
from holdfast.pipeline.ingest.task_lists import dense, ranks
from holdfast.tables.values import ints
from holdfast.wire.layouts.streams_user_data import (
    NEVER_MS,
    Task,
    decode_streams_assignment,
    decode_streams_subscription,
)
from holdfast.wire.many.columns import Columns, Items, Slices
from holdfast.wire.many.offsets_tasks import (
    TaskMessages,
    read_streams_assignments,
    read_streams_subscriptions,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskColumns:
    """Tasks of members, in the order of each member's bytes.

    Parameters
    ----------
    member : int64[n]
        Whose task it is, ascending within what was read in one way.
    name : string[n]
        Subtopologies.
    number : int64[n]
        Partitions of the subtopology.
    offset : int64[n]
        How far its state is, in subscriptions; 0 in assignments.
    """

    member: I64
    name: pa.Array
    number: I64
    offset: I64

    def take(self, rows: I64 | Mask) -> TaskColumns:
        """Some of the tasks."""
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return TaskColumns(
            member=self.member[at],
            name=self.name.take(pa.array(at)),
            number=self.number[at],
            offset=self.offset[at],
        )


def streams_tasks(
    asked: Slices, given: Slices, rows: I64, row_of_member: I64, owned: pa.Table
) -> GivenTasks:
    """Tasks of the members of classic Streams groups.

    Parameters
    ----------
    asked, given : Slices
        User data of the subscriptions and assignments of all members.
    rows : int64[n]
        Members that are Streams members, ascending.
    row_of_member : int64
        Generation of each member.
    owned : Table
        ``member``, ``topic`` and ``partitions`` that the consumer protocol assigns.
    """
    active, standby, next_of = _assignments(given, rows)
    known = np.array(sorted(next_of), np.int64)
    next_ms = np.array([next_of[member] for member in known.tolist()], np.int64)
    copies = _ranked(active, standby)
    warm = _warm_ups(asked, row_of_member, copies, known[next_ms != NEVER_MS])
    member, rank, number, n_active = copies.member, copies.rank, copies.number, len(active.member)
    role = np.where(warm, WARMUP, STANDBY)
    role[:n_active] = ACTIVE
    planned = (next_ms != NEVER_MS) & (next_ms != 0)
    none = np.full(len(rows), -1, np.int64)
    return GivenTasks(
        member=rows,
        readable=np.isin(rows, known),
        n_claimed=none,
        n_revoked=none,
        owned=task_rows(member, role, rank, number, copies.names),
        told_by=known[planned],
        delay_ms=np.full(np.count_nonzero(planned), -1, np.int64),
        config_offset=np.full(np.count_nonzero(planned), -1, np.int64),
        next_ms=next_ms[planned],
        reader=_readers(owned, copies.head(n_active)),
    )


def _assignments(given: Slices, rows: I64) -> tuple[TaskColumns, TaskColumns, dict[int, int]]:
    """Active and standby tasks, and when each member's next rebalance is planned."""
    active, standby = [], []
    next_of: dict[int, int] = {}
    for read in read_streams_assignments(given, rows):
        active.append(_tasks(items(read.columns["activeTasks"]), read.rows))
        standby.append(_tasks(items(read.columns["standbyTasks"]), read.rows))
        planned = _next_ms(read)
        next_of |= dict(zip(read.rows.tolist(), planned.tolist(), strict=True))
    slow = np.setdiff1d(rows, list(next_of))
    found = one_by_one(slow, lambda m: decode_streams_assignment(blob(given, m) or b""))
    next_of |= {member: one.next_rebalance_ms for member, one in found.items()}
    active.append(_gathered((m, [(task, 0) for task in one.active]) for m, one in found.items()))
    standby.append(_gathered((m, [(t, 0) for t in one.standby]) for m, one in found.items()))
    return _once(_joined(active)), _joined(standby), next_of


def _next_ms(read: TaskMessages) -> I64:
    if "nextRebalanceMs" not in read.columns:
        return np.full(len(read.rows), NEVER_MS, np.int64)
    return values_of(read.columns["nextRebalanceMs"]).astype(np.int64)


def _tasks(lists: Items, member: I64) -> TaskColumns:
    return _columns(lists.columns, np.repeat(member, np.diff(lists.start)))


def _columns(columns: Columns, member: I64) -> TaskColumns:
    number = values_of(columns["partition"]).astype(np.int64)
    offset = columns.get("offsetSum")
    return TaskColumns(
        member=member,
        name=_as_text(values_of(columns["subtopology"])),
        number=number,
        offset=np.zeros(len(number), np.int64) if offset is None else values_of(offset),
    )


def _as_text(subtopology: I64) -> pa.Array:
    different, place = np.unique(subtopology, return_inverse=True)
    return pa.array(map(str, different.tolist()), pa.string()).take(pa.array(place))


def _gathered(read: Iterable[tuple[int, Sequence[tuple[Task, int]]]]) -> TaskColumns:
    tasks = [(member, *task, offset) for member, listed in read for task, offset in listed]
    member, name, number, offset = zip(*tasks, strict=True) if tasks else ((), (), (), ())
    return TaskColumns(
        member=np.array(member, np.int64),
        name=pa.array(name, pa.string()),
        number=np.array(number, np.int64),
        offset=np.array(offset, np.int64),
    )


def _joined(parts: Sequence[TaskColumns]) -> TaskColumns:
    """All tasks; members ascend, and each member's order stays."""
    member = np.concatenate([part.member for part in parts])
    order = np.argsort(member, kind="stable")
    whole = TaskColumns(
        member=member,
        name=pa.chunked_array([part.name for part in parts], pa.string()).combine_chunks(),
        number=np.concatenate([part.number for part in parts]),
        offset=np.concatenate([part.offset for part in parts]),
    )
    return whole.take(order)


def _once(tasks: TaskColumns) -> TaskColumns:
    """Each task of a member once, where it stands first."""
    rank, _ = ranks(tasks.name)
    _, first = np.unique(dense(tasks.member, rank, tasks.number), return_index=True)
    return tasks.take(np.sort(first))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankedTasks:
    """Active tasks, then copies, with the ranks of their names.

    Parameters
    ----------
    member, rank, number : int64[n]
        Of each task.
    n_active : int
        How many of them are active.
    names : list of str
        By rank.
    """

    member: I64
    rank: I64
    number: I64
    n_active: int
    names: list[str]

    def head(self, n: int) -> RankedTasks:
        """The first ``n``."""
        return RankedTasks(
            member=self.member[:n],
            rank=self.rank[:n],
            number=self.number[:n],
            n_active=min(n, self.n_active),
            names=self.names,
        )


def _ranked(active: TaskColumns, standby: TaskColumns) -> RankedTasks:
    rank, names = ranks(pa.chunked_array([active.name, standby.name], pa.string()))
    return RankedTasks(
        member=np.concatenate((active.member, standby.member)),
        rank=rank,
        number=np.concatenate((active.number, standby.number)),
        n_active=len(active.member),
        names=names,
    )


def _warm_ups(asked: Slices, row_of_member: I64, tasks: RankedTasks, planners: I64) -> Mask:
    """Which of the tasks are copies that are to take over, bool[n]."""
    row = row_of_member[tasks.member]
    is_copy = np.arange(len(row)) >= tasks.n_active
    is_copy &= np.isin(row, row_of_member[planners])
    warm = np.zeros(len(row), np.bool_)
    if not is_copy.any():
        return warm
    here = np.flatnonzero(np.isin(row, row[is_copy]))
    row, copy = row[here], is_copy[here]
    member, rank, number = (column[here] for column in (tasks.member, tasks.rank, tasks.number))
    task, place = dense(row, rank, number), dense(row, rank)
    n_copies = np.bincount(task[copy], minlength=int(task.max()) + 1)
    least = np.full(int(place.max()) + 1, len(row), np.int64)
    np.minimum.at(least, place, n_copies[task])
    behind = _offset_sums(asked, tasks.names, member[copy], rank[copy], number[copy])
    order = np.lexsort((member[copy], behind, task[copy]))
    sorted_task = task[copy][order]
    nth = np.arange(len(order)) - starts(np.bincount(sorted_task))[sorted_task]
    first = order[nth < (n_copies[task] - least[place])[copy][order]]
    of_member = dense(task[copy], member[copy])  # a copy that is listed twice counts twice
    warm[here[copy]] = np.isin(of_member, of_member[first])
    return warm


def _offset_sums(asked: Slices, names: Sequence[str], member: I64, rank: I64, number: I64) -> I64:
    """How far the state of each copy is; -1 where its member does not say."""
    rows = np.unique(member)
    said = _subscriptions(asked, rows)
    place = {name: i for i, name in enumerate(names)}
    their_rank, theirs = ranks(said.name)
    known = np.array([place.get(name, -1) for name in theirs] or [-1], np.int64)
    whole = dense(
        np.concatenate((member, said.member)),
        np.concatenate((rank, known[their_rank] if len(theirs) else their_rank)),
        np.concatenate((number, said.number)),
    )
    found = np.full(len(whole), -1, np.int64)
    found[whole[len(member) :]] = said.offset  # the last one of a task counts
    return found[whole[: len(member)]]


def _subscriptions(asked: Slices, rows: I64) -> TaskColumns:
    """Offset sums of some members."""
    parts, seen = [], [np.zeros(0, np.int64)]
    for read in read_streams_subscriptions(asked, rows):
        seen.append(read.rows)
        if "taskOffsetSums" in read.columns:
            parts.append(_tasks(items(read.columns["taskOffsetSums"]), read.rows))
        elif "nestedOffsetSums" in read.columns:
            parts.append(_nested(items(read.columns["nestedOffsetSums"]), read.rows))
    slow = np.setdiff1d(rows, np.concatenate(seen))
    found = one_by_one(slow, lambda m: decode_streams_subscription(blob(asked, m) or b""))
    parts.append(_gathered((member, one.offset_sums) for member, one in found.items()))
    return _joined(parts)


def _nested(outer: Items, member: I64) -> TaskColumns:
    inner = items(outer.columns["sums"])
    of_inner = np.repeat(np.repeat(member, np.diff(outer.start)), np.diff(inner.start))
    columns = dict(inner.columns)
    subtopology = np.repeat(values_of(outer.columns["subtopology"]), np.diff(inner.start))
    number = values_of(columns["partition"]).astype(np.int64)
    return TaskColumns(
        member=of_inner,
        name=_as_text(subtopology),
        number=number,
        offset=values_of(columns["offsetSum"]).astype(np.int64),
    )


def _readers(owned: pa.Table, active: RankedTasks) -> dict[int, str]:
    """The subtopology that reads the topic of each row of ``owned``, where that can be told."""
    member = ints(owned, "member")
    rows = np.flatnonzero(np.isin(member, active.member))
    lists = owned.take(pa.array(rows))
    start, number = list_parts(lists["partitions"])
    first = np.append(number, -1)[start[:-1]]  # a topic twice: by its partitions
    order = np.lexsort((first, ranks(lists["topic"])[0], member[rows]))
    size = np.diff(start)[order]
    number = number[np.repeat(start[:-1][order] - starts(size)[:-1], size) + np.arange(size.sum())]
    whose = np.repeat(member[rows][order], size)
    n_members = int(active.member.max(initial=-1)) + 1
    alike = np.bincount(whose, minlength=n_members) == np.bincount(
        active.member, minlength=n_members
    )
    mine, theirs = alike[whose], alike[active.member]
    differ = number[mine] != active.number[theirs]
    alike[whose[mine][differ]] = False
    rank = np.zeros(len(whose), np.int64)
    rank[mine] = active.rank[theirs]
    full = size > 0
    begin = starts(size)[:-1][full]
    if not len(begin):
        return {}
    lowest = np.minimum.reduceat(rank, begin)
    told = alike[whose[begin]] & (lowest == np.maximum.reduceat(rank, begin))
    told_rows = rows[order][full][told].tolist()
    return {
        row: active.names[name] for row, name in zip(told_rows, lowest[told].tolist(), strict=True)
    }
