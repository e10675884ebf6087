"""Messages of all members at once: subscriptions to columns, an owner column to assignments.

**Rules.** The values are those that
:func:`holdfast.core.wire.layouts.consumer_protocol.decode_subscription` and
:func:`holdfast.core.wire.layouts.consumer_protocol.read_claims` give member by member. If a
subscription cannot be read, it has no topics, because a leader must not fail on the bytes of one
member. Every count is checked against the bytes left, so no count makes a column large.

**Strategy.** The blocks of topics in front are read by
:mod:`~holdfast.core.wire.many.subscription_bytes`. The rest is joined into one buffer and read as
columns over members (:mod:`~holdfast.core.wire.many.name_table`). Where a check fails, or a message
is of a rare shape, that member alone is read the slow way (:class:`OneByOne`).

The bytes of an assignment are those of
:func:`holdfast.core.wire.layouts.consumer_protocol.encode_assignment` with topics and partitions
sorted, and the same user data for every member. One sort of (member, topic-partition) orders them,
and one buffer holds all messages. Topic names are written first, in words of eight bytes, which may
go up to seven bytes beyond the end of a name; the count and the partitions that follow overwrite
those bytes.

References: KIP-429, KIP-341, KIP-881.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from holdfast.core.model.columns import I32, I64, NO_OWNER, U8, Mask, row_sizes, within
from holdfast.core.model.reported import ReportedClaims, Subscriptions
from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.consumer_protocol import (
    HIGHEST_VERSION,
    StickyUserData,
    Subscription,
    decode_subscription,
    read_claims,
)
from holdfast.core.wire.many.name_table import (
    NameArrays,
    NameTable,
    int16_at,
    int32_at,
    join,
    walk,
    words_at,
)
from holdfast.core.wire.many.ragged import keep_freed_memory
from holdfast.core.wire.many.subscription_bytes import TopicBlocks
from holdfast.errors import WireError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SubscriptionColumns:
    """The topics and claims of the members of a group."""

    subscriptions: Subscriptions  # of known topics
    claims: ReportedClaims  # as written, with the topic name of each
    generation: I32  # int32[n_members]: of the claims, -1 none
    racks: list[str | None]  # rack of each member
    # Members of a cooperative group whose claims are in sticky user data alone: eager members in
    # the middle of an upgrade, which revoked everything before they joined.
    user_data_claimants: tuple[int, ...] = ()


def decode_subscriptions(
    messages: Sequence[bytes], table: NameTable, *, cooperative: bool
) -> SubscriptionColumns:
    """Read the subscription of every member.

    Parameters
    ----------
    cooperative : bool
        Whether claims are in the subscription (True) or in sticky user data. If one has none, the
        other is tried, because a group in the middle of an upgrade has members of both kinds.
    """
    keep_freed_memory()
    blocks = TopicBlocks(table)
    ends = blocks.read(messages)
    suffixes = _read_suffixes(messages, blocks, ends, cooperative=cooperative)
    return _merge(messages, blocks, suffixes, cooperative=cooperative)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Suffixes:
    """The bytes behind the topics of each member."""

    buffer: U8
    names: NameArrays
    generation: I32
    rack_at: I64
    rack_length: I32
    readable: Mask  # members whose topics were read
    odd: Mask  # members to be read the slow way


def _read_suffixes(
    messages: Sequence[bytes], blocks: TopicBlocks, ends: I64, *, cooperative: bool
) -> _Suffixes:
    """Read user data, claims, generation and rack of every member whose topics were readable."""
    buffer, first, last = join(messages, ends, blocks.table.n_pad)
    int32, int16 = int32_at(buffer), int16_at(buffer)
    readable, version = blocks.row >= 0, blocks.version
    good = readable & (version >= 0) & (first + 4 <= last)
    # Positions are kept inside the buffer also for messages that are too short: their values are
    # read and not used, because ``good`` is False for them.
    n_user = np.where(good, int32[np.minimum(first, last)], -1)
    after = first + 4 + np.maximum(n_user, 0)
    has_owned = version >= 1
    good &= (n_user >= -1) & (after + 4 * has_owned <= last)
    n_owned = np.where(good & has_owned, int32[np.where(good, after, 0)], 0)
    if cooperative:
        names = walk(buffer, after, last, good & has_owned, partitions=True)
        behind = names.end
    else:
        names = walk(buffer, first + 4, after, good & (n_user >= 4), partitions=True)
        # An eager member revoked everything before it joined. One that lists owned partitions all
        # the same is odd, and is read one by one.
        good &= n_owned == 0
        behind = after + 4 * has_owned
    good &= names.good
    good &= behind + 4 * (version >= 2) + 2 * (version >= 3) <= last
    behind = np.where(good, behind, 0)
    generation = np.where(good & (version >= 2), int32[behind], -1)
    rack_length = np.where(good & (version >= 3), int16[behind + 4], -1).astype(np.int32)
    # Before version 3 there is no rack, and so no length to be checked.
    good &= (rack_length >= -1) & (behind + 6 + rack_length <= last + 6 * (version < 3))
    if cooperative:
        in_user = good & (generation < 0) & (n_user >= 4)
        generation = np.where(in_user, int32[np.where(in_user, first + 4, 0)], generation)
        good &= (n_owned != 0) | (n_user <= 4)  # else it may be sticky user data
    else:
        has = good & (after - names.end >= 4) & (n_user >= 4)
        generation = np.where(has, int32[np.where(has, names.end, 0)], -1)
    return _Suffixes(
        buffer=buffer,
        names=names,
        generation=np.maximum(generation, -1).astype(np.int32),
        rack_at=behind + 6,
        rack_length=rack_length,
        readable=readable,
        odd=readable & ~good,
    )


def _merge(
    messages: Sequence[bytes], blocks: TopicBlocks, suffixes: _Suffixes, *, cooperative: bool
) -> SubscriptionColumns:
    """Join the members that were read fast, and read the others one by one."""
    arrays, n_members = suffixes.names, len(messages)
    topic = blocks.table.find(suffixes.buffer, arrays.name_at, arrays.name_length)
    run_member = np.repeat(np.arange(n_members, dtype=np.int32), row_sizes(arrays.start))
    racks = _racks(suffixes)
    _check_names(suffixes, run_member, np.flatnonzero(topic < 0))
    fine = ~suffixes.odd & suffixes.readable
    counts = np.where(np.repeat(fine, row_sizes(arrays.start)), arrays.count, 0)
    run = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    numbers_at = arrays.name_at + arrays.name_length + 4
    at = (
        numbers_at
        if len(run) == len(counts) and (counts == 1).all()
        else (numbers_at[run] + 4 * within(counts))
    )
    partition = int32_at(suffixes.buffer)[at].astype(np.int32)
    columns = (run_member[run], topic[run], partition)
    names: Sequence[str] = ClaimNames(suffixes.buffer, arrays, run)
    generation, user_data_claimants = suffixes.generation, tuple[int, ...]()
    if suffixes.odd.any():
        generation = generation.copy()
        slow = OneByOne(blocks, columns, names)
        for member in np.flatnonzero(suffixes.odd).tolist():
            claim, racks[member] = slow.read(member, messages[member], cooperative)
            generation[member] = claim.generation
        columns, names = slow.merged()
        user_data_claimants = tuple(slow.user_data_claimants)
    row = blocks.row
    if (row < 0).any():
        generation = np.where(row < 0, -1, generation)
        row[row < 0] = blocks.add(b"")
    return SubscriptionColumns(
        subscriptions=blocks.subscriptions(row),
        claims=ReportedClaims(*columns, names),
        generation=generation,
        racks=racks,
        user_data_claimants=user_data_claimants,
    )


def _check_names(suffixes: _Suffixes, run_member: I32, unknown: I64) -> None:
    """Mark members that claim a topic whose name is not UTF-8; a known name is valid."""
    raw = suffixes.buffer.tobytes() if len(unknown) else b""
    names_at, lengths = (
        suffixes.names.name_at[unknown].tolist(),
        suffixes.names.name_length[unknown],
    )
    members = run_member[unknown].tolist()
    for member, first, length in zip(members, names_at, lengths.tolist(), strict=True):
        try:
            raw[first : first + length].decode()
        except UnicodeDecodeError:
            suffixes.odd[member] = True


def _racks(suffixes: _Suffixes) -> list[str | None]:
    """Return the rack of each member; an empty name is none."""
    racks: list[str | None] = [None] * len(suffixes.rack_at)
    named = np.flatnonzero((suffixes.rack_length > 0) & ~suffixes.odd)
    raw = suffixes.buffer.tobytes() if len(named) else b""
    for member in named.tolist():
        first = int(suffixes.rack_at[member])
        try:
            racks[member] = raw[first : first + int(suffixes.rack_length[member])].decode()
        except UnicodeDecodeError:
            suffixes.odd[member] = True
    return racks


# Members whose subscription has a rare shape: they are read one by one, with the same result.
#
# A member whose subscription cannot be read has no topics. Claims end up in member order, however
# they were read.
#
# References: KIP-429, KIP-341.


NO_TOPICS = Subscription(version=0, topics=())


class ClaimNames(Sequence[str]):
    """Topic name of each claim, decoded only on request."""

    def __init__(self, buffer: U8, arrays: NameArrays, run: I64):
        self.buffer, self.arrays, self.run = buffer, arrays, run

    def __len__(self) -> int:
        return len(self.run)

    def __getitem__(self, claim: Any) -> Any:
        run = self.run[claim]
        first = int(self.arrays.name_at[run])
        raw = self.buffer[first : first + int(self.arrays.name_length[run])]
        return raw.tobytes().decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadMembers:
    """The members of a JoinGroup response, by id, with their subscriptions as columns."""

    member_ids: tuple[str, ...]
    instance_ids: tuple[str | None, ...]
    table: NameTable  # the topics of the columns, ready to be found and written
    columns: SubscriptionColumns

    @property
    def has_racks(self) -> bool:
        """Whether some member names a rack."""
        return any(self.columns.racks)


class OneByOne:
    """Members read one by one, whose claims are merged with the others."""

    def __init__(self, blocks: TopicBlocks, columns: tuple[I32, I32, I32], names: Sequence[str]):
        self.blocks, self.columns, self.names = blocks, columns, names
        self.index = {name.decode(): topic for name, topic in blocks.table.index.items()}
        self.claims: list[tuple[int, int, int, str]] = []
        self.user_data_claimants: list[
            int
        ] = []  # cooperative members with claims in user data alone

    def read(
        self, member: int, data: bytes, cooperative: bool
    ) -> tuple[StickyUserData, str | None]:
        """Read one member; its claims are kept for :meth:`merged`."""
        try:
            subscription = decode_subscription(data)
        except WireError:
            subscription = NO_TOPICS
        known = {self.index[name] for name in subscription.topics if name in self.index}
        self.blocks.row[member] = self.blocks.add(np.array(sorted(known), np.int32).tobytes())
        claim = claims_of(subscription, cooperative=cooperative)
        if cooperative and claim.partitions and not subscription.owned:
            self.user_data_claimants.append(member)
        self.claims += [
            (member, self.index.get(name, -1), partition, name)
            for name, numbers in claim.partitions
            for partition in numbers
        ]
        return claim, subscription.rack or None

    def merged(self) -> tuple[tuple[I32, I32, I32], Sequence[str]]:
        """Return all claims in member order, and their names."""
        slow = np.array([row[:3] for row in self.claims], np.int64).reshape(-1, 3)
        both = [
            np.concatenate((fast, column.astype(np.int32)))
            for fast, column in zip(self.columns, slow.T, strict=True)
        ]
        order = np.argsort(both[0], kind="stable")
        names = _Merged(self.names, [row[3] for row in self.claims], order)
        return (both[0][order], both[1][order], both[2][order]), names


class _Merged(Sequence[str]):
    """Names of claims read fast, then slowly, in a new order."""

    def __init__(self, fast: Sequence[str], slow: list[str], order: I64):
        self.fast, self.slow, self.order = fast, slow, order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, claim: Any) -> Any:
        at = int(self.order[claim])
        return self.fast[at] if at < len(self.fast) else self.slow[at - len(self.fast)]


def claims_of(subscription: Subscription, *, cooperative: bool) -> StickyUserData:
    """Return claims from where the assignor's members have them, else from the other."""
    first = read_claims(subscription, cooperative=cooperative)
    if first.partitions:
        return first
    second = read_claims(subscription, cooperative=not cooperative)
    return second if second.partitions else first


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
