"""Groups to measure leader turns on: the same bytes for every peer, from one seed.

=========  ==========================================================================
family     what it is
=========  ==========================================================================
W1         2100 members, one topic of 2100 partitions (the 2.5 minutes of KAFKA-9987)
W2         100 topics of 100 partitions, 100 or 1000 members
W3         1000 topics of 10, 50 or 200 partitions, 2000 members
W4         2000 topics of 500 partitions, 10,000 members
W5a        500 topics of 10, 500 members in five buckets that share no topic
W5b        200 topics of uneven size, 300 members each subscribed to a random fifth
W5c        500 members in a chain: each shares three of its four topics with the next
W5*x4      the same four times as large
=========  ==========================================================================

Changes: ``fresh`` (no partition has an owner), ``join1``, ``leave1``, ``leave10`` (a tenth leaves),
``mix5`` (a fortieth leaves, as many join with an existing subscription). Before the change, in
generation 5, every member owns its partitions of a best assignment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.core.assignors.registry import assign
from holdfast.core.model.group import Group
from holdfast.core.wire.layouts.consumer_protocol import (
    StickyUserData,
    Subscription,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
)

GENERATION = 5
Owned = dict[int, list[int]]
"""Topic to partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One group about to rebalance.

    Parameters
    ----------
    name : str
        ``family.change``.
    partitions : dict of str to int
        Partition count of each topic.
    members : list of (member id, topic indices, owned, generation)
        Sorted by id.
    """

    name: str
    partitions: dict[str, int]
    members: list[tuple[str, tuple[int, ...], Owned, int]]


FAMILIES = {
    "W1": (1, 2100, 2100),
    "W2m100": (100, 100, 100),
    "W2m1000": (100, 100, 1000),
    "W3p10": (1000, 10, 2000),
    "W3p50": (1000, 50, 2000),
    "W3p200": (1000, 200, 2000),
    "W4": (2000, 500, 10_000),
}
"""Families of equal subscriptions: topics, partitions of each, members."""

MIXED = ("W5a", "W5b", "W5c", "W5ax4", "W5bx4", "W5cx4")
CHANGES = {"fresh", "join1", "leave1", "leave10", "mix5"}


def default_cases() -> list[str]:
    """The cases of the table that the project reports."""
    return [f"{name}.leave1" for name in FAMILIES] + [f"{name}.mix5" for name in MIXED]


def build(name: str) -> Case:
    """Build the case called ``family.change``."""
    family, _, change = name.partition(".")
    if change not in CHANGES or family not in {*FAMILIES, *MIXED}:
        raise SystemExit(f"no case {name!r}; known: {', '.join(default_cases())}")
    rng = np.random.default_rng(20_200_513)
    counts, subscriptions = _shape(family, rng)
    topics = [f"topic-{i:05}" for i in range(len(counts))]
    ids = [
        f"consumer-{i:05}-{int(rng.integers(1 << 62)):016x}"
        for i in range(len(subscriptions) + len(subscriptions) // 40 + 1)
    ]
    owned: list[Owned] = [{} for _ in subscriptions]
    if change != "fresh":
        owned = _before(topics, counts, subscriptions, ids, equal=family in FAMILIES)
    generation = -1 if change == "fresh" else GENERATION
    rows = [(ids[i], s, owned[i], generation) for i, s in enumerate(subscriptions)]
    return Case(
        name=name,
        partitions=dict(zip(topics, counts, strict=True)),
        members=_changed(rows, change, ids, rng),
    )


def _shape(family: str, rng: np.random.Generator) -> tuple[list[int], list[tuple[int, ...]]]:
    """Partition counts and the subscription of each member."""
    if family in FAMILIES:
        n_topics, n_partitions, n_members = FAMILIES[family]
        return [n_partitions] * n_topics, [tuple(range(n_topics))] * n_members
    scale = 4 if family.endswith("x4") else 1
    if family.startswith("W5a"):
        n = 500 * scale
        bucket = n // 5
        blocks = [tuple(range(b * bucket, (b + 1) * bucket)) for b in range(5)]
        return [10] * n, [blocks[m // bucket] for m in range(n)]
    if family.startswith("W5b"):
        n_topics, n_members = 200 * scale, 300 * scale
        rank = rng.permutation(n_topics) // scale
        counts = np.maximum(1, 100 // (rank + 1)).tolist()
        fifth = [rng.choice(n_topics, n_topics // 5, replace=False) for _ in range(n_members)]
        return counts, [tuple(sorted(row.tolist())) for row in fifth]
    n_members = 500 * scale
    return rng.integers(1, 13, n_members + 3).tolist(), [
        tuple(range(m, m + 4)) for m in range(n_members)
    ]


def _before(
    topics: list[str],
    counts: list[int],
    subscriptions: list[tuple[int, ...]],
    ids: list[str],
    *,
    equal: bool,
) -> list[Owned]:
    """What each member owns before the change."""
    owned: list[Owned] = [{} for _ in subscriptions]
    if equal:
        pairs = ((topic, p) for topic, count in enumerate(counts) for p in range(count))
        for k, (topic, partition) in enumerate(pairs):
            owned[k % len(owned)].setdefault(topic, []).append(partition)
        return owned
    members = [
        {"id": ids[i], "topics": [topics[t] for t in s]} for i, s in enumerate(subscriptions)
    ]
    group = Group.from_dict(
        {"partitions": dict(zip(topics, counts, strict=True)), "members": members}
    )
    for i, rows in enumerate(assign(group, "sticky").to_dict().values()):
        owned[i] = {group.topics.index[name]: numbers for name, numbers in rows.items()}
    return owned


Row = tuple[str, tuple[int, ...], Owned, int]


def _changed(rows: list[Row], change: str, ids: list[str], rng: np.random.Generator) -> list[Row]:
    n = len(rows)
    if change == "join1":
        return [*rows, (ids[n], rows[-1][1], {}, -1)]
    if change == "leave1":
        return rows[: n // 2] + rows[n // 2 + 1 :]
    share = {"leave10": n // 10, "mix5": n // 40}.get(change, 0)
    gone = set(rng.choice(n, share, replace=False).tolist())
    left = [row for i, row in enumerate(rows) if i not in gone]
    if change == "mix5":
        left += [(ids[n + j], rows[int(rng.integers(n))][1], {}, -1) for j in range(share)]
    return left


def messages(case: Case, *, eager: bool) -> Iterator[tuple[str, bytes]]:
    """Member ids and their subscriptions, version 3.

    Parameters
    ----------
    eager : bool
        True: claims in the user data, as ``sticky`` has them. False: in the subscription.
    """
    topics = list(case.partitions)
    blocks: dict[tuple[int, ...], bytes] = {}  # version and topics, encoded once
    for member_id, subscribed, owned, generation in case.members:
        if subscribed not in blocks:
            alone = encode_subscription(Subscription(topics=tuple(topics[t] for t in subscribed)))
            blocks[subscribed] = alone[:-14]  # without user data, owned, generation and rack
        claims = tuple((topics[t], tuple(numbers)) for t, numbers in sorted(owned.items()))
        user_data = None
        if not eager:
            user_data = encode_cooperative_user_data(generation)
        elif generation >= 0:
            user_data = encode_sticky_user_data(
                StickyUserData(partitions=claims, generation=generation)
            )
        subscription = Subscription(
            topics=(),
            user_data=user_data,
            owned=() if eager else claims,
            generation=generation,
        )
        yield member_id, blocks[subscribed] + encode_subscription(subscription)[6:]


def write(case: Case, path: Path, *, eager: bool) -> None:
    """Write a case for the peers, big endian.

    Topics: int32 count, then int16 length, name, int32 partitions; members: int32 count, then int16
    length, id, int32 length, subscription.
    """
    with path.open("wb") as file:
        file.write(struct.pack(">i", len(case.partitions)))
        for name, count in case.partitions.items():
            file.write(struct.pack(f">h{len(name)}si", len(name), name.encode(), count))
        file.write(struct.pack(">i", len(case.members)))
        for member_id, data in messages(case, eager=eager):
            head = struct.pack(
                f">h{len(member_id)}si", len(member_id), member_id.encode(), len(data)
            )
            file.write(head + data)


def read(path: Path) -> tuple[dict[str, int], list[tuple[str, None, bytes]]]:
    """Read a case as ``perform_assignment`` takes it."""
    data = path.read_bytes()
    at = 0

    def number(layout: str, size: int) -> int:
        nonlocal at
        at += size
        return int(struct.unpack_from(layout, data, at - size)[0])

    def raw(size: int) -> bytes:
        nonlocal at
        at += size
        return data[at - size : at]

    partitions = {}
    for _ in range(number(">i", 4)):
        name = raw(number(">h", 2)).decode()
        partitions[name] = number(">i", 4)
    members: list[tuple[str, None, bytes]] = []
    for _ in range(number(">i", 4)):
        member_id = raw(number(">h", 2)).decode()
        members.append((member_id, None, raw(number(">i", 4))))
    return partitions, members
