"""The assignment of a member of a classic Kafka Streams group: tasks, under their subtopologies.

**Rules.** A warm-up task is inferred. While another rebalance is planned, the copies of a task
beyond those that every task of its subtopology has are warm-up tasks, first the ones whose state is
furthest behind. All other copies are standby tasks. The leader of a group lists one active task for
each partition, by topic and number (``StreamsPartitionAssignor.getActiveTasks``), so the topics
that a subtopology reads follow from the member's lists, unless the two differ in length.

**Strategy.** Subscriptions are read only in rounds that may have warm-up tasks: rounds with a
planned rebalance and copies.

References: KIP-441 (warm-up tasks, probing rebalances).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from holdfast.core.kinds.increments import lists_of
from holdfast.core.kinds.kind import ACTIVE, STANDBY, WARMUP, Given
from holdfast.core.model.memoized import memoized
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment, decode_subscription
from holdfast.core.wire.layouts.streams_user_data import (
    NEVER_MS,
    Task,
    decode_streams_assignment,
    decode_streams_subscription,
)
from holdfast.errors import WireError

Copy = tuple[int, Task]
"""A member, by its position in the round, and a task that it does not run itself."""


def read_streams(subscription: bytes, assignment: bytes) -> Given:
    """Return active tasks and copies of a member."""
    return _read_assignment(assignment)


@memoized(1024, largest=4096)
def _read_assignment(assignment: bytes) -> Given:
    """Read as :func:`read_streams`, memoized: most rounds give most members what they had."""
    message = decode_assignment(assignment)
    tasks = decode_streams_assignment(message.user_data or b"")
    return Given(
        owned=[*lists_of(ACTIVE, tasks.active), *lists_of(STANDBY, tasks.standby)],
        next_ms=tasks.next_rebalance_ms,
        readers=_readers(message.partitions, tasks.active),
    )


def _readers(partitions: TopicPartitions, active: Sequence[Task]) -> list[str | None]:
    """Return the subtopology that reads each list of partitions; None where it is not shown."""
    by_topic = sorted(
        ((topic, sorted(numbers), at) for at, (topic, numbers) in enumerate(partitions)),
    )
    read = [(number, at) for _, numbers, at in by_topic for number in numbers]
    found: list[str | None] = [None] * len(partitions)
    if [number for number, _ in read] != [number for _, number in active]:
        return found
    readers: dict[int, set[str]] = {}
    for (_, at), (name, _) in zip(read, active, strict=True):
        readers.setdefault(at, set()).add(name)
    for at, names in readers.items():
        if len(names) == 1:
            (found[at],) = names
    return found


def mark_warm_ups(subscriptions: Sequence[bytes], given: Sequence[Given]) -> Sequence[Given]:
    """Return ``given``, in which the copies that are to take over are named warm-up tasks."""
    if all(one.next_ms == NEVER_MS for one in given):
        return given
    copies = [
        (member, (name, number))
        for member, one in enumerate(given)
        for role, name, numbers in one.owned
        if role == STANDBY
        for number in numbers
    ]
    if not copies:
        return given
    warm = _warm(copies, given, subscriptions)
    return [_with_warm(member, one, warm) for member, one in enumerate(given)]


def _warm(
    copies: Sequence[Copy], given: Sequence[Given], subscriptions: Sequence[bytes]
) -> set[Copy]:
    """Return copies beyond those that every task of the subtopology has, furthest behind first."""
    n_copies = Counter(task for _, task in copies)
    least: dict[str, int] = {}
    for one in given:
        for _, name, numbers in one.owned:
            fewest = min(n_copies[name, number] for number in numbers)
            least[name] = min(fewest, least.get(name, fewest))
    holders = dict.fromkeys(member for member, _ in copies)
    behind = {member: _offset_sums(subscriptions[member]) for member in holders}
    found: set[Copy] = set()
    seen: Counter[Task] = Counter()
    # A task without a reported sum is furthest behind; a copy that is listed twice counts twice.
    for member, task in sorted(copies, key=lambda c: (behind[c[0]].get(c[1], -1), c[0])):
        seen[task] += 1
        if seen[task] <= n_copies[task] - least[task[0]]:
            found.add((member, task))
    return found


def _offset_sums(subscription: bytes) -> dict[Task, int]:
    """Return how far the state of each task of a member is; nothing on malformed bytes."""
    try:
        user_data = decode_subscription(subscription).user_data
        return dict(decode_streams_subscription(user_data or b"").offset_sums)
    except WireError:
        return {}


def _with_warm(member: int, given: Given, warm: set[Copy]) -> Given:
    """Return the member's lists with its copies split into standby and warm-up tasks."""
    copies = [
        (name, number)
        for role, name, numbers in given.owned
        if role == STANDBY
        for number in numbers
    ]
    owned = [one for one in given.owned if one[0] == ACTIVE]
    owned += lists_of(STANDBY, [task for task in copies if (member, task) not in warm])
    owned += lists_of(WARMUP, [task for task in copies if (member, task) in warm])
    return replace(given, owned=owned)
