"""Assignments of classic groups' members with more than topic-partitions.

**Rules.** The row of a kind names the reader of a member's two messages
(:mod:`holdfast.core.kinds`). Its result replaces the partitions that the consumer protocol
names, and those stay with the role SOURCE: an active task reads them. A failed resource of a
worker has the role FAILED. Bytes that do not parse give nothing, and the member is not
``readable``.

**Strategy.** Such members are few, so their messages are read one by one; the results become
columns at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.core.kinds import ACTIVE, FAILED, SOURCE, Given, GroupKind, kind_of
from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.streams_user_data import NEVER_MS
from holdfast.core.wire.many.columns import Slices
from holdfast.errors import WireError
from holdfast.fleet.columnar import ints, replaced, row_starts, times_ms
from holdfast.fleet.pipeline.ingest.generations import Generations, marked


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
    row = ints(gens.members, "row")
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
    row = ints(gens.members, "row")[found.member]
    at_ms = times_ms(gens.head, "timestamp")
    delay, next_ms = ints(gens.head, "delay_ms").copy(), np.full(gens.n_rows, NEVER_MS)
    delay[row] = -1  # set below, or unknown
    runs, planned = found.each("delay_ms", 0), found.each("next_ms", NEVER_MS)
    np.maximum.at(delay, row, np.where(runs > 0, runs, -1))
    np.minimum.at(next_ms, row, np.where(planned == 0, NEVER_MS, planned))  # at once: not planned
    delay = np.where(next_ms < NEVER_MS, np.maximum(next_ms, at_ms) - at_ms, delay)
    offset = ints(gens.head, "config_offset").copy()
    np.maximum.at(offset, row, found.each("config_offset", -1))
    return replaced(
        gens.head,
        delay_ms=_or_null(delay, delay >= 0),
        config_offset=_or_null(offset, offset >= 0),
    )


def _or_null(values: I64, known: Mask) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~known)


def _with_claims(members: pa.Table, found: GivenTasks) -> pa.Table:
    columns = {name: ints(members, name).copy() for name in ("n_claimed", "n_revoked")}
    claimed = found.each("n_claimed", -1)
    known = claimed >= 0
    columns["n_claimed"][found.member[known]] = claimed[known]
    columns["n_revoked"][found.member] = found.each("n_revoked", -1)
    readable = np.asarray(members["readable"]).copy()
    readable[found.member] &= found.readable
    return replaced(
        members,
        readable=pa.array(readable),
        **{name: _or_null(column, column >= 0) for name, column in columns.items()},
    )


def _with_given(owned: pa.Table, found: GivenTasks) -> pa.Table:
    """Return rows of ``owned``, and behind them the assignments of the members."""
    member = ints(owned, "member")
    known = np.array([one is not None for one in found.given], np.bool_)
    read = np.isin(member, found.member[known])
    role = np.where(read, SOURCE, np.maximum(ints(owned, "role"), ACTIVE))
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
    order = np.argsort(ints(whole, "member"), kind="stable")
    return whole.take(pa.array(order))
