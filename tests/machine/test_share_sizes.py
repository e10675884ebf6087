"""What the memory costs: a group's record beside that of the same group of Kafka's assignor."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from holdfast.machine.events import JoinedMember
from holdfast.machine.leader.designs import (
    Assignor,
    CooperativeAssignor,
    DesignAssignor,
    LeaderRound,
)
from holdfast.machine.leader.embedded import MemberView, RebalanceMode
from holdfast.machine.policy import Policy
from holdfast.wire.layouts.incremental import Design

RATIO = 2.2
MANY = 1 << 40
DESIGN = Policy(design=Design.DEFERRED, memory_limit_bytes=MANY, record_limit_bytes=MANY)
GENERATION = 300


def member_id(number: int) -> str:
    return f"app-{number:08d}-{'0' * 32}"


@lru_cache(maxsize=4)
def owners(members: int, each: int, topics: int, name: str) -> tuple[dict[str, int], list]:
    """Partition counts, and what each member owns: a random even share."""
    n = members * each
    names = [f"{name}{t or ''}" for t in range(min(topics, n))]
    counts = {topic: len(range(i, n, len(names))) for i, topic in enumerate(names)}
    every = [(topic, p) for topic, count in counts.items() for p in range(count)]
    order = np.random.default_rng(members * each + topics).permutation(n)
    own = [
        sorted(every[i] for i in order[m * each : (m + 1) * each].tolist()) for m in range(members)
    ]
    return counts, own


def record_bytes(assignor: Assignor, members: int, each: int, topics: int, name: str) -> int:
    """Subscriptions and assignments of the second round, in which nothing happens."""
    counts, own = owners(members, each, topics, name)
    memories: dict[str, bytes | None] = {}
    for generation in (GENERATION, GENERATION + 1):
        joined = tuple(
            JoinedMember(
                member_id=member_id(m),
                metadata=assignor.subscribe(
                    MemberView(
                        topics=tuple(sorted(counts)),
                        owned=tuple(own[m]),
                        previous=tuple(own[m]),
                        generation=generation - 1,
                        mode=RebalanceMode.COOPERATIVE,
                        nonce=200,
                        memory=memories.get(member_id(m)),
                        memory_age_ms=3_600_000,
                    )
                ),
            )
            for m in range(members)
        )
        turn = LeaderRound(
            members=joined, partitions=counts, generation=generation, leader_id=member_id(0)
        )
        given = assignor.lead(turn)
        memories = {m: assignor.read(data).memory for m, data in given.items()}
    return sum(len(m.metadata) for m in joined) + sum(map(len, given.values()))


SIZES = [
    (members, each, topics)
    for members in (1, 2, 3, 4, 5, 10, 100, 400, 2_000)
    for each in (1, 2, 10, 50)
    for topics in (1, 10, 100)
    if topics <= each * members and members * each <= 20_000
]


@pytest.mark.parametrize(("members", "each", "topics"), SIZES)
def test_a_record_is_at_most_2_2_times_that_of_cooperative_sticky(members, each, topics):
    size = (members, each, topics, "orders")
    kafka = record_bytes(CooperativeAssignor(), *size)
    assert record_bytes(DesignAssignor(DESIGN), *size) <= RATIO * kafka
