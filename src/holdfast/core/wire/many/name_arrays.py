"""Arrays of names in many messages at once; an array of int32 may follow each name.

**Rules.** Nothing is read outside the buffer. Every count is checked against the bytes left before
anything is allocated. A member whose array does not fit gets an empty row.

**Strategy.** Columnar steps: step ``j`` reads the position of the ``j``-th name of every member
that has so many names, as columns over members. A wrong length or count moves the position beyond
the end, where it stays. One check after the last step finds it. If all names of an array are as
long as its first name, their positions are computed without any step.

References: KIP-429: ``ConsumerProtocolSubscription``, ``Topics`` and ``OwnedPartitions``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.model.columns import I32, I64, U8, Mask, row_sizes, starts, within
from holdfast.core.wire.many.name_table import int16_at, int32_at

FEW = 4
PATIENCE = 64
"""Bound on the steps for at most FEW members with names left.

Beyond it, columnar steps cost more than they save: the arrays of these members are not read here.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NameArrays:
    """Positions of arrays of names in a buffer, one array a member, as CSR over members."""

    start: I64  # int64[n_members + 1]: rows of the columns below
    # int64[...], int32[...]: first byte of each name, and its bytes.
    name_at: I64
    name_length: I32
    count: I32  # int32[...]: partitions behind each name; 0 in arrays without
    end: I64  # int64[n_members]: first byte behind each array
    good: Mask  # bool[n_members]: members whose array lies inside its bounds, or was not wanted


def join(messages: Sequence[bytes], ends: I64, n_pad: int) -> tuple[U8, I64, I64]:
    """Return one buffer of what follows ``ends`` in each message; where each begins and ends.

    Messages are copied whole where that takes at most twice the bytes, else they are cut first.
    """
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    if 2 * ends.sum() > sizes.sum():
        messages = [data[end:] for data, end in zip(messages, ends.tolist(), strict=True)]
        sizes, ends = sizes - ends, np.zeros_like(ends)
    bounds = starts(sizes)
    buffer = np.frombuffer(b"".join((*messages, b"\0" * (n_pad + 16))), np.uint8)
    return buffer, bounds[:-1] + ends, bounds[1:]


def walk(buffer: U8, first: I64, last: I64, wanted: Mask, *, partitions: bool) -> NameArrays:
    """Walk one array for each member.

    Parameters
    ----------
    buffer : uint8[n_bytes]
        Ends in at least 16 bytes of 0 behind the largest of ``last``.
    first, last : int64[n]
        Where the array begins, and the end of the bytes it may use. The entries of members that are
        not wanted are not read.
    wanted : bool[n]
        Members to read; the others get an empty row and an ``end`` of ``first``.
    partitions : bool
        Whether an array of int32 follows each name.
    """
    n_names = np.zeros(len(first), np.int64)
    room = last - first - 4
    good = wanted & (room >= 0)
    n_names[good] = int32_at(buffer)[first[good]]
    good &= (n_names >= 0) & (n_names * (6 if partitions else 2) <= room)
    n_names[~good] = 0
    stop = int(last.max(initial=0, where=wanted)) + 1  # the others may end anywhere
    found = None if partitions else _alike(buffer, first + 4, n_names, stop)
    if found is None:
        at = _walked(buffer, first + 4, n_names, good, stop, partitions=partitions)
        found = at, int16_at(buffer)[at].astype(np.int32)
    end = np.where(wanted, first + 4, first)
    good |= ~wanted
    return _columns(
        buffer, *found, starts(n_names), end=end, last=last, good=good, partitions=partitions
    )


def _alike(buffer: U8, begin: I64, n_names: I64, stop: int) -> tuple[I64, I32] | None:
    """Return where names begin and their lengths, if each array has one length; else None."""
    lengths = int16_at(buffer).view(">u2")
    stride = lengths[np.minimum(begin, stop)].astype(np.int64) + 2
    second = np.where(n_names > 1, begin + stride, begin)
    if (lengths[np.minimum(second, stop)] + 2 != stride).any():
        return None
    strides = np.repeat(stride, n_names)
    at = np.repeat(begin, n_names) + within(n_names) * strides
    np.minimum(at, stop, out=at)
    length = int16_at(buffer)[at].astype(np.int32)  # a negative length never counts as equal
    return (at, length) if (length + 2 == strides).all() else None


def _walked(
    buffer: U8, begin: I64, n_names: I64, good: Mask, stop: int, *, partitions: bool
) -> I64:
    """Return where each name begins, step by step; too long arrays become empty and not good."""
    order = np.argsort(-n_names, kind="stable")
    n_active = np.searchsorted(-n_names[order], -np.arange(1, n_names.max(initial=0) + 1), "right")
    steps = _steps(buffer, begin[order], n_active, stop, partitions=partitions)
    if len(steps) < len(n_active):  # the longest are left: they come first
        long = int(n_active[len(steps)])
        good[order[:long]], n_names[order[:long]] = False, 0
        steps, order, n_active = [at[long:] for at in steps], order[long:], n_active - long
    start = starts(n_names)
    at = np.empty(int(start[-1]), np.int64)
    if steps:
        active = n_active[: len(steps)]
        row = start[:-1][order][within(active)]
        at[row + np.repeat(np.arange(len(steps)), active)] = np.concatenate(steps)
    return at


def _columns(
    buffer: U8,
    at: I64,
    length: I32,
    start: I64,
    *,
    end: I64,
    last: I64,
    good: Mask,
    partitions: bool,
) -> NameArrays:
    """Return counts at the names found; rows with a wrong count or length are emptied."""
    n_names = row_sizes(start)
    limit = np.repeat(last, n_names)
    behind = at + 2 + length
    wrong, count = length < 0, np.zeros(len(at), np.int32)
    if partitions:
        count = int32_at(buffer)[np.minimum(np.maximum(behind, 0), limit)].astype(np.int32)
        wrong |= count < 0
        behind += 4 + 4 * count.astype(np.int64)
    wrong |= behind > limit
    full = np.flatnonzero(n_names)
    end[full] = behind[start[full + 1] - 1]
    columns = (at + 2, length, count)
    if wrong.any():
        bad = np.zeros(len(n_names), np.bool_)
        bad[np.repeat(np.arange(len(n_names)), n_names)[wrong]] = True
        stays = np.repeat(~bad, n_names)
        columns = (columns[0][stays], columns[1][stays], columns[2][stays])
        start, good = starts(np.where(bad, 0, n_names)), good & ~bad
    return NameArrays(
        start=start,
        name_at=columns[0],
        name_length=columns[1],
        count=columns[2],
        end=end,
        good=good,
    )


def _steps(buffer: U8, cursor: I64, n_active: I64, stop: int, *, partitions: bool) -> list[I64]:
    """Return where the names of each step begin, up to the step with only a few long arrays left.

    Parameters
    ----------
    cursor : int64[n]
        First name of each member, those with the most names first.
    n_active : int64[n_steps]
        Members that have a name in each step.
    stop : int
        Where a cursor stays that ran over the end.
    """
    # Read as unsigned, a negative length or count only ever leads forward, behind the end.
    int32, int16 = int32_at(buffer).view(">u4"), int16_at(buffer).view(">u2")
    steps = []
    for step, active in enumerate(n_active.tolist()):
        if active <= FEW and len(n_active) - step > PATIENCE:
            break
        at = cursor[:active]
        steps.append(at)
        cursor = at + int16[at]
        cursor += 2
        if partitions:
            np.minimum(cursor, stop, out=cursor)
            cursor += 4 * int32[cursor].astype(np.int64)
            cursor += 4
        np.minimum(cursor, stop, out=cursor)
    return steps
