"""Reading what members of Connect, Streams and our workers say in records of classic groups.

**Rules.** What a reader here accepts, it reads as the scalar form does. What it refuses says
nothing: the scalar form reads those messages, and it alone decides whether they parse. Refused are
bytes that do not parse, and what is rare: fields left out at the end, Connect's version 0, named
topologies of Streams, and partitions 128 or more apart in a frame's set.

**Strategy.** Messages of one version are read together, in lock step; bad ones are left out and the
others read once more, so no column is ever filtered.

References: KIP-415 (Connect), KIP-441 (Streams); :mod:`holdfast.wire.layouts.container` (ours).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.model.columns import I64, Mask, row_of
from holdfast.model.limits import INT32_MAX
from holdfast.wire.layouts import connect, streams_user_data
from holdfast.wire.layouts.container import (
    ASSIGNMENT_MAGIC,
    SUBSCRIPTION_MAGIC,
    ClaimFlag,
    VerdictFlag,
)
from holdfast.wire.layouts.offsets_schemas import Field, layout
from holdfast.wire.many.columns import Columns, Items, Numbers, Slices, Text, take
from holdfast.wire.many.cursor import Cursor
from holdfast.wire.many.lockstep import (
    FixedRun,
    ItemsTail,
    Program,
    SizedTail,
    Tail,
    packed,
    read,
    walk_uvarint,
)
from holdfast.wire.many.programs import program_of
from holdfast.wire.many.ragged import gather

_BYTE: Final = np.dtype(">u1")
_INT32: Final = np.dtype(">i4")
_LEAVING_BITS: Final = 3
_LAST_BYTE: Final = 0x7F
"""The largest varint of one byte."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskMessages:
    """Messages of one layout that were read together.

    Parameters
    ----------
    rows : int64[n]
        Which of the messages given these are, ascending.
    version : int
        Of the layout.
    columns : dict of name to Column
        One row each.
    """

    rows: I64
    version: int
    columns: Columns


def read_connect_metadata(messages: Slices, rows: I64) -> TaskMessages:
    """Metadata of Connect's workers: those of ``rows`` (int64) that can be read here.

    References: KIP-415, "Public Interfaces".
    """
    return _read_alike(connect.METADATA_FIELDS, 1, messages, rows, _connect_version)


def read_connect_assignments(messages: Slices, rows: I64) -> TaskMessages:
    """Assignments of Connect's workers, or allocations: those that can be read here.

    References: KIP-415, "Public Interfaces".
    """
    return _read_alike(connect.ASSIGNMENT_FIELDS, 1, messages, rows, _connect_assignment)


def _connect_version(columns: Columns) -> Mask:
    written: Mask = _numbers(columns, "version") < 1
    return written


def _connect_assignment(columns: Columns) -> Mask:
    return _connect_version(columns) | (_numbers(columns, "delay") < 0)


def read_streams_subscriptions(messages: Slices, rows: I64) -> Iterator[TaskMessages]:
    """User data of subscriptions of classic Streams members, version by version.

    References: KIP-441 (offset sums).
    """
    fields = streams_user_data.SUBSCRIPTION_FIELDS
    for version, here in _by_version(messages, rows):
        yield _read_alike(fields, version, messages, here, _named_sums)


def read_streams_assignments(messages: Slices, rows: I64) -> Iterator[TaskMessages]:
    """User data of assignments of classic Streams members, version by version.

    References: KIP-441 (``nextRebalanceMs``).
    """
    fields = streams_user_data.ASSIGNMENT_FIELDS
    for version, here in _by_version(messages, rows):
        yield _read_alike(fields, version, messages, here, _named_tasks)


def _by_version(messages: Slices, rows: I64) -> Iterator[tuple[int, I64]]:
    begin = messages.begin[rows]
    written = Cursor(messages.data, begin, begin + messages.size[rows]).take(_INT32)
    version = np.minimum(written.astype(np.int64), streams_user_data.HIGHEST_VERSION)
    for known in np.unique(version[version >= 1]).tolist():
        yield known, rows[version == known]


def _named_sums(columns: Columns) -> Mask:
    if "taskOffsetSums" not in columns:
        return np.zeros(len(columns["version"]), np.bool_)
    sums = columns["taskOffsetSums"]
    assert isinstance(sums, Items)
    name = sums.columns["namedTopology"]
    assert isinstance(name, Text)
    return _any(sums, np.diff(name.start) > 0)


def _named_tasks(columns: Columns) -> Mask:
    found = np.zeros(len(columns["version"]), np.bool_)
    for field in ("activeTasks", "standbyTasks"):
        tasks = columns[field]
        assert isinstance(tasks, Items)
        if "namedTopology" in tasks.columns:
            name = tasks.columns["namedTopology"]
            assert isinstance(name, Items)
            found |= _any(tasks, np.diff(name.start) > 0)
    return found


def _any(lists: Items, marked: Mask) -> Mask:
    """Whether some element of each list is marked."""
    before = np.concatenate(([0], np.cumsum(marked)))
    found: Mask = before[lists.start[1:]] > before[lists.start[:-1]]
    return found


def _numbers(columns: Columns, name: str) -> I64:
    column = columns[name]
    assert isinstance(column, Numbers)
    return column.values.astype(np.int64)


def _read_alike(
    fields: tuple[Field, ...],
    version: int,
    messages: Slices,
    rows: I64,
    refuses: Callable[[Columns], Mask],
) -> TaskMessages:
    """Read messages of one version; leave out what is bad, and what ``refuses`` names."""
    program = program_of(layout(fields, version, False), version)
    while True:
        begin = messages.begin[rows]
        cursor = Cursor(messages.data, begin, begin + messages.size[rows])
        columns = read(program, cursor)
        bad: Mask = cursor.overrun()
        bad = bad | refuses(columns)
        if not bad.any():
            return TaskMessages(rows=rows, version=version, columns=columns)
        rows = rows[~bad]


# Frames of ours


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frames:
    """What frames say, [n]; a message without user data has no frame, and says nothing.

    Parameters
    ----------
    read : bool[n]
        Whether the frame could be read here.
    leaving : int64[n]
        Of a claim: 0 to 2; 0 in a verdict.
    delay_ms : int64[n]
        Of a verdict: 0 none; 0 in a claim.
    lists : list of TaskMessages
        Column ``sets``: what was given up (claims) or is revoked (verdicts), of frames read here.
    """

    read: Mask
    leaving: I64
    delay_ms: I64
    lists: list[TaskMessages]


def read_claims(frames: Slices) -> Frames:
    """Claim frames in the user data of subscriptions.

    References: :mod:`holdfast.wire.layouts.container`.
    """
    return _read_frames(frames, SUBSCRIPTION_MAGIC, _Claim)


def read_verdicts(frames: Slices) -> Frames:
    """Verdict frames in the user data of assignments.

    References: :mod:`holdfast.wire.layouts.container`.
    """
    return _read_frames(frames, ASSIGNMENT_MAGIC, _Verdict)


def _read_frames(frames: Slices, magic: bytes, reader: type[_Frame]) -> Frames:
    size = frames.size if frames.valid is None else np.where(frames.valid, frames.size, 0)
    starts = size > len(magic)
    for place, byte in enumerate(magic):
        starts &= frames.data[frames.begin + np.where(starts, place, 0)] == byte
    rows = np.flatnonzero(starts)
    begin = frames.begin[rows]
    frame = reader(Cursor(frames.data, begin + len(magic), begin + size[rows]))
    good = ~frame.cursor.overrun()
    found = Frames(
        read=size == 0,
        leaving=np.zeros(len(size), np.int64),
        delay_ms=np.zeros(len(size), np.int64),
        lists=[frame.lists(rows, good)],
    )
    found.read[rows] = good
    found.leaving[rows], found.delay_ms[rows] = frame.leaving * good, frame.delay_ms * good
    return found


class _Frame:
    """A cursor that reads one layout of frames; what it finds stands in its fields."""

    def __init__(self, cursor: Cursor):
        self.cursor = cursor
        self.all: Mask = np.ones(len(cursor.bad), np.bool_)
        self.leaving = self.delay_ms = np.zeros(len(cursor.bad), np.int64)
        self._rows = np.zeros(0, np.int64)
        self._columns: Columns = {}
        self.read()

    def read(self) -> None:
        """Read the frame."""
        raise NotImplementedError

    def lists(self, rows: I64, good: Mask) -> TaskMessages:
        """The lists of the good frames; ``rows`` says which frames these are."""
        kept = np.flatnonzero(good[self._rows])
        columns = take(self._columns, kept)
        return TaskMessages(rows=rows[self._rows[kept]], version=0, columns=columns)

    def flags(self, allowed: int) -> I64:
        """One byte of flags; others than ``allowed`` are refused."""
        flags = self.cursor.take(_BYTE).astype(np.int64)
        self.cursor.bad |= flags & ~allowed != 0
        return flags

    def number(self, there: Mask) -> I64:
        """A varint of some messages; 0 for the others."""
        rows, found = np.flatnonzero(there), np.zeros(len(there), np.int64)
        child = self._some(rows)
        found[rows] = child.uvarint(child.take(_BYTE))
        self._go_on(child, rows)
        return found

    def time(self, there: Mask) -> I64:
        """As :meth:`number`, ms that fit an int32."""
        found = self.number(there)
        self.cursor.bad |= found > INT32_MAX
        return found

    def sets(self, there: Mask) -> None:
        """A list of sets of partitions."""
        self._rows = np.flatnonzero(there)
        child = self._some(self._rows)
        self._columns = read(_SETS, child)
        self._go_on(child, self._rows)

    def _some(self, rows: I64) -> Cursor:
        return Cursor(self.cursor.data, self.cursor.pos[rows], self.cursor.end[rows])

    def _go_on(self, child: Cursor, rows: I64) -> None:
        self.cursor.pos[rows] = child.pos
        self.cursor.absorb(child, rows)


class _Claim(_Frame):
    def read(self) -> None:
        known = ClaimFlag.DELAY | ClaimFlag.AGE | ClaimFlag.GIVEN_UP
        flags = self.flags(known | _LEAVING_BITS)
        self.leaving = flags & _LEAVING_BITS
        self.cursor.bad |= self.leaving == _LEAVING_BITS
        self.number(self.all)  # nonce
        self.time(flags & ClaimFlag.DELAY > 0)
        self.time(flags & ClaimFlag.AGE > 0)
        self.sets(flags & ClaimFlag.GIVEN_UP > 0)


class _Verdict(_Frame):
    def read(self) -> None:
        flags = self.flags(VerdictFlag.NONCE | VerdictFlag.REVOKED | VerdictFlag.DELAY)
        self.number(flags & VerdictFlag.NONCE > 0)
        self.sets(flags & VerdictFlag.REVOKED > 0)
        self.delay_ms = self.time(flags & VerdictFlag.DELAY > 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _GapsTail:
    """A set of partitions whose gaps all have one byte; any other one is refused."""

    name: str

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """See :class:`holdfast.wire.many.lockstep.Tail`."""
        n_gaps = cursor.uvarint(prefix) - 1
        if columns is None:
            cursor.hop(n_gaps)
            return
        cursor.bad |= n_gaps < 0
        begin = cursor.here()
        gaps, start = gather(cursor.data, begin, cursor.skip(np.maximum(n_gaps, 0)))
        row = row_of(start)
        cursor.bad |= np.bincount(row[gaps > _LAST_BYTE], minlength=len(n_gaps)) > 0
        steps = np.cumsum(gaps.astype(np.int64) + 1)
        before = np.concatenate(([0], steps))[start[:-1]]
        partitions = Numbers(values=steps - before[row] - 1)
        columns[self.name] = Items(start=start, columns={"": partitions}, valid=None)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """See :class:`holdfast.wire.many.lockstep.Tail`."""
        n_gaps, pos = walk_uvarint(data, prefix, pos, end)
        return min(pos + max(n_gaps - 1, 0), end)


def _run(tail: Tail) -> FixedRun:
    return FixedRun(dtype=packed([">u1"]), names=(), prefix=">u1", tail=tail)


def _sets_program() -> Program:
    topic = SizedTail(name="topic", flexible=True, nullable=False, is_text=True)
    one = (_run(topic), _run(_GapsTail(name="partitions")))
    return (_run(ItemsTail(name="sets", flexible=True, nullable=False, program=one, min_size=2)),)


_SETS: Final = _sets_program()
