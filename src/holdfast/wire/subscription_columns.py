"""All subscriptions of a group at once: bytes of every member to the columns of a group.

**Rules.** What comes out is what :func:`holdfast.wire.consumer_protocol.decode_subscription` and
:func:`holdfast.wire.sticky_user_data.read_claims` give member by member. A subscription that cannot
be read is one with no topics, for a leader must not fail on the bytes of one member. No count on
the wire makes anything large: each is checked against the bytes that are left.

**Strategy.** Members of a group mostly send the same block of topics, so a block once read is
recognised by comparing bytes. What follows it is joined into one buffer and read in lock step: step
``j`` reads the ``j``-th topic of every member that has one, as columns over members. Where a check
fails, or a message is of a rare shape, that member alone is read the slow way.

References
----------
KIP-429, KIP-341, KIP-881.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct, error
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import WireError
from holdfast.model.columns import I32, I64, U8, Mask, distinct, starts, within
from holdfast.wire.consumer_protocol import Subscription, decode_subscription
from holdfast.wire.name_table import NameTable, int16_at, int32_at
from holdfast.wire.sticky_user_data import StickyUserData, read_claims

NO_TOPICS = Subscription(version=0, topics=())
NO_BLOCK = b"\xff\xff\xff\xff"
"""A block that no readable message has: its number of topics is -1."""
PREFIX = 48
"""Bytes of a message by which a block of topics met before is looked up."""
SLOW = 4
"""Blocks read one by one before the rest is read in lock step."""
FEW = 4
"""Members at which lock step stops to pay, if more than PATIENCE steps are left: they are read one
by one."""
PATIENCE = 64

_INT32 = Struct(">i").unpack_from
_INT16 = Struct(">h").unpack_from


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SubscriptionColumns:
    """What the members of a group subscribe to and claim.

    Parameters
    ----------
    set_start, set_topic : int64[n_sets + 1], int32[...]
        Distinct subscriptions as sorted rows of known topics, numbered as members meet them.
    subscription : int32[n_members]
        Row of each member.
    claim_member, claim_topic, claim_partition : int32[n_claims]
        Claims as written, in member order; topic -1 is unknown.
    generation : int32[n_members]
        Of the claims, -1 none.
    racks : list of str or None
        Rack of each member.
    claim_names : sequence of str
        Topic name of each claim.
    """

    set_start: I64
    set_topic: I32
    subscription: I32
    claim_member: I32
    claim_topic: I32
    claim_partition: I32
    generation: I32
    racks: list[str | None]
    claim_names: Sequence[str]


def decode_subscriptions(
    messages: Sequence[bytes], table: NameTable, *, cooperative: bool
) -> SubscriptionColumns:
    """Read the subscription of every member.

    Parameters
    ----------
    messages : sequence of bytes
        One ``ConsumerProtocolSubscription`` a member.
    table : NameTable
        The known topics.
    cooperative : bool
        Whether claims stand in the subscription (True) or in sticky user data; where the one has
        none the other is tried, as a group in the middle of an upgrade has both.

    References
    ----------
    KIP-429, "Consumer protocol".
    """
    blocks = _Blocks(table)
    ends = blocks.read(messages)
    tails = _read_tails(messages, blocks, ends, cooperative=cooperative)
    return _merge(messages, blocks, tails, cooperative=cooperative)


class _Blocks:
    """Blocks of topics, each read once. ``row`` of a member is -1 where its block is unreadable."""

    def __init__(self, table: NameTable):
        self.table = table
        self.rows: dict[bytes, int] = {}  # sorted topics, as int32 bytes: row of the set table
        self.row: list[int] = []

    def read(self, messages: Sequence[bytes]) -> list[int]:
        """Find the end of every member's topics, and fill ``row``."""
        known: dict[bytes, list[tuple[bytes, int]]] = {}
        block, row = NO_BLOCK, -1
        ends, self.row = [0] * len(messages), [-1] * len(messages)
        late = []
        n_slow = 0
        for member, data in enumerate(messages):
            if not data.startswith(block, 2):
                for pair in known.get(data[2:PREFIX], ()):
                    if data.startswith(pair[0], 2):
                        block, row = pair
                        break
                else:
                    if n_slow >= SLOW:
                        late.append(member)
                        continue
                    n_slow += 1
                    end, row = self._read_one(data)
                    block = data[2:end] if end else NO_BLOCK
                    if not end:
                        continue
                    known.setdefault(data[2:PREFIX], []).append((block, row))
            ends[member], self.row[member] = 2 + len(block), row
        if late:
            self._read_late([messages[member] for member in late], late, ends)
        return ends

    def add(self, topics: I32) -> int:
        """Row of these topics (sorted, unique) in the table of distinct subscriptions."""
        return self.rows.setdefault(topics.tobytes(), len(self.rows))

    def _read_one(self, data: bytes) -> tuple[int, int]:
        """End of the block and its row, or (0, -1) if it cannot be read."""
        index, found = self.table.index, set()
        try:
            (n_topics,) = _INT32(data, 2)
            end = 6
            if not 0 <= n_topics <= (len(data) - end) // 2 or data[0] > 127:
                return 0, -1
            for _ in range(n_topics):
                first = end + 2
                size = _INT16(data, end)[0]
                end = first + size
                if size < 0 or end > len(data):
                    return 0, -1
                topic = index.get(data[first:end])
                if topic is None:
                    data[first:end].decode()
                else:
                    found.add(topic)
        except (error, IndexError, UnicodeDecodeError):
            return 0, -1
        return end, self.add(np.array(sorted(found), np.int32))

    def _read_late(self, messages: list[bytes], late: list[int], ends: list[int]) -> None:
        """Read many different blocks in lock step."""
        buffer, first, last = _join(messages, [0] * len(messages), self.table.n_pad)
        walk = _walk_names(buffer, first, last)
        topic = self.table.find(buffer, walk.name_at, walk.name_length)
        bounds = walk.start.tolist()
        key = np.repeat(np.arange(len(late), dtype=np.int64) << 32, np.diff(walk.start))
        key = distinct((key | topic)[topic >= 0])
        row_start = np.searchsorted(key >> 32, np.arange(len(late) + 1)).tolist()
        topics = (key & 0x7FFFFFFF).astype(np.int32)
        readable, end = walk.good.tolist(), (walk.end - first).tolist()
        unknown = np.flatnonzero(topic < 0)
        odd = set((np.searchsorted(walk.start, unknown, side="right") - 1).tolist())
        for i, member in enumerate(late):
            if i in odd or not readable[i]:  # check the names that are not ours, too
                ends[member], self.row[member] = self._read_one(messages[i])
            else:
                assert bounds[i] <= bounds[i + 1]
                ends[member] = end[i]
                self.row[member] = self.add(topics[row_start[i] : row_start[i + 1]])

    def table_columns(self, row: I32) -> tuple[I32, I64, I32]:
        """Rows in use as members meet them: row of each member, and the rows as a CSR pair."""
        used, first, inverse = np.unique(row, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        every = list(self.rows)
        rows = [every[old] for old in used[order].tolist()]
        start = starts(np.array([len(one) // 4 for one in rows], np.int64))
        return place[inverse], start, np.frombuffer(b"".join(rows), np.int32).copy()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Walk:
    """Where arrays of names lie in a buffer, one array a member, as CSR over members."""

    start: I64
    name_at: I64
    name_length: I32
    count: I32  # partitions behind each name
    end: I64  # first byte behind each array
    good: Mask  # members whose array lies inside its bounds; the rows of others are empty


def _join(messages: Sequence[bytes], ends: list[int], n_pad: int) -> tuple[U8, I64, I64]:
    """One buffer of what follows ``ends`` in each message; where each begins and ends."""
    tails = (
        [data[end:] for data, end in zip(messages, ends, strict=True)] if any(ends) else messages
    )
    bounds = np.fromiter(accumulate(map(len, tails), initial=0), np.int64, len(tails) + 1)
    buffer = np.frombuffer(b"".join((*tails, b"\0" * (n_pad + 16))), np.uint8)
    return buffer, bounds[:-1], bounds[1:]


def _walk_names(buffer: U8, first: I64, last: I64) -> _Walk:
    """Walk the topics at the front of whole messages."""
    return _walk(buffer, first + 2, last, np.ones(len(first), np.bool_), partitions=False)


def _walk(buffer: U8, first: I64, last: I64, wanted: Mask, *, partitions: bool) -> _Walk:
    """Walk an array of names, each with an array of int32 behind it or not, for each member.

    Parameters
    ----------
    first, last : int64[n]
        Where the array begins, and the end of the bytes it may use.
    wanted : bool[n]
        Members to read; the others get an empty row and an ``end`` of ``first``.
    """
    int32, int16 = int32_at(buffer), int16_at(buffer)
    per_name = 6 if partitions else 2
    n_left = np.zeros(len(first), np.int64)
    room = last - first - 4
    good = wanted & (room >= 0)
    n_left[good] = int32[first[good]]
    good &= (n_left >= 0) & (n_left * per_name <= room)
    n_left[~good] = 0
    start = starts(n_left)
    name_at = np.zeros(int(start[-1]), np.int64)
    name_length = np.zeros(len(name_at), np.int32)
    count = np.zeros(len(name_at), np.int32)
    order = np.argsort(-n_left, kind="stable")
    cursor, limit, slot = first[order] + 4, last[order], start[:-1][order]
    n_names = n_left[order]
    n_active = np.searchsorted(-n_names, -np.arange(1, n_names.max(initial=0) + 1), side="right")
    failed = np.zeros(len(first), np.bool_)
    for step, active in enumerate(n_active.tolist()):
        if active <= FEW and len(n_active) - step > PATIENCE:
            failed[:active] = True
            break
        at = cursor[:active]
        length = int16[at].astype(np.int32)
        behind = at + 2 + length
        out = (length < 0) | (behind + (per_name - 2) > limit[:active])
        size = np.zeros(active, np.int32)
        if partitions:
            size = int32[np.where(out, 0, behind)].astype(np.int32)
            behind += 4
            out |= (size < 0) | (behind + 4 * size.astype(np.int64) > limit[:active])
        here = slot[:active] + step
        name_at[here] = at + 2
        name_length[here] = length
        count[here] = size
        cursor[:active] = behind + 4 * size.astype(np.int64)
        if out.any():  # stay where reading does no harm until the row ends
            failed[:active] |= out
            cursor[:active][out] = limit[:active][out] = 0
    end = np.empty_like(first)
    end[order] = cursor
    bad = np.zeros(len(first), np.bool_)
    bad[order] = failed
    walk = _Walk(
        start=start,
        name_at=name_at,
        name_length=name_length,
        count=count,
        end=np.where(wanted, end, first),
        good=(good | ~wanted) & ~bad,
    )
    return _keep_good(walk, bad)


def _keep_good(walk: _Walk, bad: Mask) -> _Walk:
    """Empty the rows of members whose array left its bounds."""
    if not bad.any():
        return walk
    counts = np.diff(walk.start)
    stays = np.repeat(~bad, counts)
    return _Walk(
        start=starts(np.where(bad, 0, counts)),
        name_at=walk.name_at[stays],
        name_length=walk.name_length[stays],
        count=walk.count[stays],
        end=walk.end,
        good=walk.good,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tails:
    """What stands behind the topics of each member."""

    buffer: U8
    walk: _Walk
    generation: I32
    rack_at: I64
    rack_length: I32
    odd: Mask  # members to be read the slow way


def _read_tails(
    messages: Sequence[bytes], blocks: _Blocks, ends: list[int], *, cooperative: bool
) -> _Tails:
    """Read user data, claims, generation and rack of every member whose topics were readable."""
    buffer, first, last = _join(messages, ends, blocks.table.n_pad)
    int32, int16 = int32_at(buffer), int16_at(buffer)
    readable = np.array(blocks.row, np.int64) >= 0
    version = _versions(messages)
    good = readable & (version >= 0) & (first + 4 <= last)
    n_user = np.where(good, int32[np.minimum(first, last)], -1)
    after = first + 4 + np.maximum(n_user, 0)
    has_owned = version >= 1
    good &= (n_user >= -1) & (after + 4 * has_owned <= last)
    n_owned = np.where(good & has_owned, int32[np.where(good, after, 0)], 0)
    if cooperative:
        walk = _walk(buffer, after, last, good & has_owned, partitions=True)
        behind = walk.end
    else:
        walk = _walk(buffer, first + 4, after, good & (n_user >= 4), partitions=True)
        good &= n_owned == 0
        behind = after + 4 * has_owned
    good &= walk.good
    good &= behind + 4 * (version >= 2) + 2 * (version >= 3) <= last
    behind = np.where(good, behind, 0)
    generation = np.where(good & (version >= 2), int32[behind], -1)
    rack_length = np.where(good & (version >= 3), int16[behind + 4], -1).astype(np.int32)
    good &= (rack_length >= -1) & (behind + 6 + rack_length <= last + 6 * (version < 3))
    if cooperative:
        in_user = good & (generation < 0) & (n_user >= 4)
        generation = np.where(in_user, int32[np.where(in_user, first + 4, 0)], generation)
        good &= (n_owned != 0) | (n_user <= 4)  # else it may be sticky user data
    else:
        has = good & (after - walk.end >= 4) & (n_user >= 4)
        generation = np.where(has, int32[np.where(has, walk.end, 0)], -1)
    return _Tails(
        buffer=buffer,
        walk=walk,
        generation=np.maximum(generation, -1).astype(np.int32),
        rack_at=behind + 6,
        rack_length=rack_length,
        odd=readable & ~good,
    )


def _versions(messages: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Version of each message, 3 for every higher one; -1 where there is none."""
    heads = b"".join([data[:2] if len(data) >= 2 else b"\xff\xff" for data in messages])
    return np.minimum(np.frombuffer(heads, ">i2").astype(np.int64), 3)


def _merge(
    messages: Sequence[bytes], blocks: _Blocks, tails: _Tails, *, cooperative: bool
) -> SubscriptionColumns:
    """Put together what was read fast, and read the rest slowly."""
    walk, n_members = tails.walk, len(messages)
    topic = blocks.table.find(tails.buffer, walk.name_at, walk.name_length)
    run_member = np.repeat(np.arange(n_members, dtype=np.int32), np.diff(walk.start))
    racks = _racks(tails)
    _check_names(tails, run_member, np.flatnonzero(topic < 0))
    fine = ~tails.odd & (np.array(blocks.row, np.int64) >= 0)
    counts = np.where(np.repeat(fine, np.diff(walk.start)), walk.count, 0)
    run = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    numbers_at = walk.name_at + walk.name_length + 4
    at = (
        numbers_at
        if len(run) == len(counts) and (counts == 1).all()
        else (numbers_at[run] + 4 * within(counts))
    )
    partition = int32_at(tails.buffer)[at].astype(np.int32)
    columns = (run_member[run], topic[run], partition)
    names: Sequence[str] = _ClaimNames(tails.buffer, walk, run)
    generation = tails.generation
    if tails.odd.any():
        generation = generation.copy()
        slow = _Slow(blocks, columns, names)
        for member in np.flatnonzero(tails.odd).tolist():
            claim, racks[member] = slow.read(member, messages[member], cooperative)
            generation[member] = claim.generation
        columns, names = slow.merged()
    row = np.array(blocks.row, np.int32)
    if (row < 0).any():
        generation = np.where(row < 0, -1, generation)
        row[row < 0] = blocks.add(np.empty(0, np.int32))
    row, set_start, set_topic = blocks.table_columns(row)
    return SubscriptionColumns(
        set_start=set_start,
        set_topic=set_topic,
        subscription=row,
        claim_member=columns[0],
        claim_topic=columns[1],
        claim_partition=columns[2],
        generation=generation,
        racks=racks,
        claim_names=names,
    )


def _check_names(tails: _Tails, run_member: I32, unknown: I64) -> None:
    """Mark members as odd that claim a topic whose name is no UTF-8; a known name is."""
    raw = tails.buffer.tobytes() if len(unknown) else b""
    names_at, lengths = tails.walk.name_at[unknown].tolist(), tails.walk.name_length[unknown]
    members = run_member[unknown].tolist()
    for member, first, length in zip(members, names_at, lengths.tolist(), strict=True):
        try:
            raw[first : first + length].decode()
        except UnicodeDecodeError:
            tails.odd[member] = True


def _racks(tails: _Tails) -> list[str | None]:
    """Rack of each member; an empty name is none."""
    racks: list[str | None] = [None] * len(tails.rack_at)
    named = np.flatnonzero((tails.rack_length > 0) & ~tails.odd)
    raw = tails.buffer.tobytes() if len(named) else b""
    for member in named.tolist():
        first = int(tails.rack_at[member])
        try:
            racks[member] = raw[first : first + int(tails.rack_length[member])].decode()
        except UnicodeDecodeError:
            tails.odd[member] = True
    return racks


class _ClaimNames(Sequence[str]):
    """Topic name of each claim, decoded only when asked for."""

    def __init__(self, buffer: U8, walk: _Walk, run: I64):
        self.buffer, self.walk, self.run = buffer, walk, run

    def __len__(self) -> int:
        return len(self.run)

    def __getitem__(self, claim: Any) -> Any:
        run = self.run[claim]
        first = int(self.walk.name_at[run])
        raw = self.buffer[first : first + int(self.walk.name_length[run])]
        return raw.tobytes().decode(errors="replace")


class _Slow:
    """Members read one by one, and their claims put in place among the others."""

    def __init__(self, blocks: _Blocks, columns: tuple[I32, I32, I32], names: Sequence[str]):
        self.blocks, self.columns, self.names = blocks, columns, names
        self.index = {name.decode(): topic for name, topic in blocks.table.index.items()}
        self.claims: list[tuple[int, int, int, str]] = []

    def read(
        self, member: int, data: bytes, cooperative: bool
    ) -> tuple[StickyUserData, str | None]:
        """Read one member; its claims wait for :meth:`merged`."""
        try:
            subscription = decode_subscription(data)
        except WireError:
            subscription = NO_TOPICS
        known = {self.index[name] for name in subscription.topics if name in self.index}
        self.blocks.row[member] = self.blocks.add(np.array(sorted(known), np.int32))
        claim = claims_of(subscription, cooperative=cooperative)
        self.claims += [
            (member, self.index.get(name, -1), partition, name)
            for name, numbers in claim.partitions
            for partition in numbers
        ]
        return claim, subscription.rack or None

    def merged(self) -> tuple[tuple[I32, I32, I32], Sequence[str]]:
        """All claims in member order, and their names."""
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
    """Claims where the assignor's kind of member has them, else where the other kind has them."""
    first = read_claims(subscription, cooperative=cooperative)
    if first.partitions:
        return first
    second = read_claims(subscription, cooperative=not cooperative)
    return second if second.partitions else first
