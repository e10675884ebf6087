"""All assignments of a group at once: an owner column to one message a member.

**Rules.** The bytes are those of
:func:`holdfast.core.wire.layouts.consumer_protocol.encode_assignment` with topics and partitions
sorted, and the same user data for every member. Every member gets a message, an empty one if it
owns nothing.

**Strategy.** One sort of (member, topic-partition), then one buffer for all messages. Topic names
are written first, in words of eight bytes, which may go up to seven bytes beyond the end of a name.
The count and the partitions that follow each name are written later and overwrite those bytes.

References: KIP-429; ``ConsumerProtocolAssignment`` of Kafka 4.3.1.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np

from holdfast.core.model.columns import I32, I64, NO_OWNER, U8, within
from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.consumer_protocol import HIGHEST_VERSION
from holdfast.core.wire.many.name_table import NameTable, int16_at, int32_at, words_at

_HEADER = 6  # version int16, number of topics int32
_TRAILER = 4  # user data: length -1


def encode_assignments(
    topics: Topics,
    owner: I32,
    n_members: int,
    table: NameTable | None = None,
    *,
    user_data: bytes | None = None,
) -> list[bytes]:
    """Write the assignment of every member.

    Parameters
    ----------
    owner : int32[n_tps]
        Member index, or NO_OWNER.
    table : NameTable, optional
        Table of the same names, if it exists already.
    user_data : bytes, optional
        User data of every assignment.

    Returns
    -------
    list of bytes
        One ``ConsumerProtocolAssignment`` a member.

    Notes
    -----
    Cost: one sort of the owned partitions, and a few passes.
    """
    table = NameTable(topics.names) if table is None else table
    member, tp = _by_member(owner)
    topic = topics.topic_of[tp]
    new = np.ones(len(tp), np.bool_)
    new[1:] = (member[1:] != member[:-1]) | (topic[1:] != topic[:-1])
    first = np.flatnonzero(new)  # a run: one topic of one member
    count = np.diff(np.append(first, len(tp)))
    run_member, run_topic = member[first], topic[first]
    length = table.length[run_topic].astype(np.int64)
    n_runs = np.bincount(run_member, minlength=n_members)
    # A run is an int16, the name, an int32 and the partitions.
    size = 6 + length + 4 * count
    trailer = _TRAILER + len(user_data or b"")
    ends = np.cumsum(size) + (_HEADER + trailer) * run_member.astype(np.int64) + _HEADER
    total = (_HEADER + trailer) * n_members + int(size.sum())
    buffer = np.zeros(total + 8, np.uint8)
    at = ends - size  # where each run begins
    _write_runs(buffer, table, at, run_topic, count)
    numbers = topics.partition_of[tp]
    into = np.repeat(at + 6 + length, count) + 4 * within(count)
    int32_at(buffer)[into] = numbers
    runs_size = np.bincount(run_member, weights=size, minlength=n_members).astype(np.int64)
    sizes = _write_frames(buffer, n_runs, runs_size, user_data)
    return list(map(BytesIO(buffer.tobytes()).read, sizes))


def _by_member(owner: I32) -> tuple[I32, I32]:
    """Return owned topic-partitions sorted by member, then tp: both columns."""
    tp = np.flatnonzero(owner != NO_OWNER)
    key = owner[tp].astype(np.int64) << 32
    key |= tp
    key.sort()
    return (key >> 32).astype(np.int32), (key & 0xFFFFFFFF).astype(np.int32)


def _write_runs(buffer: U8, table: NameTable, at: I64, topic: I32, count: I64) -> None:
    """Write name length, name and partition count of each run; names spill into the counts."""
    length = table.length[topic]
    words = words_at(buffer)
    for word, known in enumerate(table.words):
        reaches = np.flatnonzero(length > 8 * word)
        words[at[reaches] + 2 + 8 * word] = known[topic[reaches]]
    int16_at(buffer)[at] = length
    int32_at(buffer)[at + 2 + length] = count


def _write_frames(buffer: U8, n_runs: I64, runs_size: I64, user_data: bytes | None) -> list[int]:
    """Write the bytes around the runs of each member; return the size of each message."""
    data = np.frombuffer(user_data or b"", np.uint8)
    sizes = runs_size + _HEADER + _TRAILER + len(data)
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    int16_at(buffer)[bounds[:-1]] = HIGHEST_VERSION
    int32_at(buffer)[bounds[:-1] + 2] = n_runs
    ends = bounds[1:] - len(data)
    int32_at(buffer)[ends - _TRAILER] = -1 if user_data is None else len(data)
    buffer[ends[:, None] + np.arange(len(data))] = data
    result: list[int] = sizes.tolist()
    return result
