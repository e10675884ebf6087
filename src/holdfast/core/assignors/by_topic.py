"""``range``, ``roundrobin`` and ``lag``: assignors that go topic by topic and look at no claim.

**Rules.** The results of ``range`` and ``roundrobin`` are those of ``RangeAssignor`` and
``RoundRobinAssignor`` in ``org.apache.kafka.clients.consumer`` of 4.3.1, partition by partition.

- ``range`` cuts each topic into runs of neighbouring partitions. The subscribers of a topic are in
  ``Group.assignment_order``. With ``n`` partitions and ``m`` subscribers each gets ``n // m``
  partitions, and the first ``n mod m`` of them get one more. Racks (KIP-881) change which
  partitions a member gets and which members get one more, and they do so only if the replicas of
  the topic's partitions are in different racks. Topics with the same subscribers and the same
  number of partitions stay co-partitioned.
- ``roundrobin`` gives partitions to members in a circle. Topics go by name, partitions by number,
  members by ``Group.assignment_order``. Each partition goes to the next member of the circle that
  subscribes to its topic. A member that is skipped keeps its position in the circle.
- ``lag`` takes topics by name, and the partitions of a topic by decreasing lag, equal lags by
  number. Each partition goes to the subscriber with the fewest partitions of this topic, then with
  the least lag of this topic. The document leaves further ties open; here they go to the member
  with the fewest partitions of all topics so far, then with the least lag of all topics so far,
  then by a hash of group id, topic and the member's position among the subscribers. So ties do not
  always go to the same member. Where no lag is known, every lag counts as 0, and the counts are
  spread evenly.

**Strategy.** Without racks the owner of a partition under ``range`` is arithmetic on its number:
one pass over columns. With racks two named kernels follow Java partition by partition, because each
choice depends on the ones before. They keep one queue per rack and stay linear, where Java scans a
list for each member.

Within one topic the circle of ``roundrobin`` visits the topic's subscribers in order, again and
again: the k-th partition goes to subscriber ``(first + k) mod n``, which is one expression over a
column. Only ``first`` depends on the topic before, so the Python loop is over topics.

In ``lag``, "fewest partitions first" gives every subscriber one partition before any subscriber
gets a second one. During such a round the totals of the members that wait do not change. So one
sort of the subscribers per round is exact: the k-th largest lag of the round goes to the k-th
subscriber of the sort. The Python loop is over topics and rounds.

References: KIP-49; KIP-54; KIP-881; KAFKA-5337.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.result import Solution
from holdfast.core.model.columns import I32, I64, NO_OWNER, row_sizes
from holdfast.core.model.group import Group
from holdfast.core.model.lag import summable
from holdfast.core.model.reported import Subscribers
from holdfast.core.model.topics import NO_RACK, Topics

U64 = npt.NDArray[np.uint64]


def range_by_topic(claims: Claims) -> Solution:
    """Cut every topic into runs; claims do not matter.

    Notes
    -----
    Cost: O(n_tps + n_subscriptions); with racks O(replicas) steps of Python more.

    References: KIP-54, Example 3; KIP-345; KIP-881; Kafka 4.3.1.
    """
    group = claims.group
    readers = group.subscriptions.by_topic(group.assignment_order, group.topics.n_topics)
    states = _rack_states(group, readers)
    if not any(state.needs_racks for state in states):
        return Solution(target=_plain_ranges(group.topics, readers))
    _match_racks(states)
    owner = np.full(group.topics.n_tps, NO_OWNER, dtype=np.int32)
    for state in states:
        state.take_ranges(by_rack=False)
        first = group.topics.start[state.topic]
        owner[first : first + len(state.owner)] = state.members[state.owner]
    return Solution(target=owner)


def roundrobin(claims: Claims) -> Solution:
    """Assign subscribed partitions to members in a circle; claims do not matter.

    Notes
    -----
    Cost: O(n_tps + n_subscriptions + n_topics log n_members).

    References: KIP-49; KIP-54, "Notes" on KAFKA-2019; Kafka 4.3.1.
    """
    group = claims.group
    topics, order = group.topics, group.assignment_order
    position = np.empty(order.size, dtype=np.int64)
    position[order] = np.arange(order.size)
    readers = group.subscriptions.by_topic(order, topics.n_topics)
    owner = np.full(topics.n_tps, NO_OWNER, dtype=np.int32)
    next_position = 0
    for topic in range(topics.n_topics):
        members, n = readers.of(topic), int(topics.n_partitions[topic])
        if members.size == 0 or n == 0:
            continue
        first = int(np.searchsorted(position[members], next_position)) % members.size
        dealt = members[(first + np.arange(n)) % members.size]
        owner[topics.start[topic] : topics.start[topic] + n] = dealt
        next_position = (int(position[dealt[-1]]) + 1) % order.size
    return Solution(target=owner)


def lag(claims: Claims, *, group_id: str = "") -> Solution:
    """Assign each topic by descending lag; claims do not matter.

    Parameters
    ----------
    claims : Claims
        Of a group with ``lags``, or without: then every lag counts as 0.
    group_id : str
        The group's name, for the last tie break.

    Notes
    -----
    Cost: O(n_tps log n_tps + n_subscriptions log n_members).
    """
    group = claims.group
    topics = group.topics
    lags = summable(group.lags, topics.n_tps)
    readers = group.subscriptions.by_topic(
        np.arange(group.n_members, dtype=np.int32), topics.n_topics
    )
    owner = np.full(topics.n_tps, NO_OWNER, dtype=np.int32)
    count = np.zeros(group.n_members, dtype=np.int64)
    total = np.zeros(group.n_members, dtype=np.int64)
    for topic in range(topics.n_topics):
        first, last = int(topics.start[topic]), int(topics.start[topic + 1])
        members = readers.of(topic)
        if members.size == 0 or first == last:
            continue
        tie = _tie_order(group_id, topics.names[topic], members.size)
        positions = _deal(lags[first:last], count[members], total[members], tie)
        owner[first:last] = members[positions]
        count[members] += np.bincount(positions, minlength=members.size)
        np.add.at(total, owner[first:last], lags[first:last])
    return Solution(target=owner)


def _plain_ranges(topics: Topics, readers: Subscribers) -> I32:
    """Return the owner of each topic-partition where racks do not matter, int32[n_tps]."""
    n_readers = row_sizes(readers.start)
    quota, extra = np.divmod(topics.n_partitions.astype(np.int64), np.maximum(n_readers, 1))
    topic, partition = topics.topic_of, topics.partition_of
    wide = (extra * (quota + 1))[topic]  # partitions of the members that hold one more
    position = np.where(
        partition < wide,
        partition // (quota + 1)[topic],
        extra[topic] + (partition - wide) // np.maximum(quota, 1)[topic],
    )
    read = (n_readers > 0)[topic]
    owner = np.full(topics.n_tps, NO_OWNER, dtype=np.int32)
    owner[read] = readers.member[(readers.start[topic] + position)[read]]
    return owner


class _TopicRanges:
    """Java's TopicAssignmentState: one topic being assigned to its subscribers.

    Members are positions among the subscribers of the topic.
    """

    def __init__(self, topic: int, members: I32, member_racks: I32, racks: list[frozenset[int]]):
        self.topic = topic
        self.members = members
        self.member_racks: list[int] = member_racks.tolist()
        self.racks = racks
        self.owner = [NO_OWNER] * len(racks)
        self.counts = [0] * len(members)
        self.quota, self.extra = divmod(len(racks), len(members))
        wanted = frozenset(self.member_racks) - {NO_RACK}
        there = frozenset[int]().union(*racks)
        self.has_racks = bool(wanted)
        self.needs_racks = bool(wanted & there) and any(each != there for each in racks)

    def room(self, position: int) -> int:
        """Return how many partitions the member may still take: Java's ``maxAssignable``."""
        return max(0, self.quota + (self.extra > 0) - self.counts[position])

    def give(self, position: int, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self.owner[partition] = position
        self.counts[position] += len(partitions)
        if partitions and self.counts[position] > self.quota:
            self.extra -= 1

    def take_ranges(self, *, by_rack: bool) -> None:
        """Let each member take its first free partitions (kernel: one step a replica)."""
        queues: dict[int, Iterator[int]] = {NO_RACK: iter(range(len(self.racks)))}
        if by_rack:
            with_rack: dict[int, list[int]] = defaultdict(list)
            for partition, racks in enumerate(self.racks):
                for rack in racks:
                    with_rack[rack].append(partition)
            queues |= {rack: iter(each) for rack, each in with_rack.items()}
        for position, rack in enumerate(self.member_racks):
            queue = queues.get(rack if by_rack else NO_RACK, iter(()))
            self.give(position, self._first_free(queue, self.room(position)))

    def _first_free(self, queue: Iterator[int], count: int) -> list[int]:
        free: list[int] = []
        while len(free) < count:
            partition = next((p for p in queue if self.owner[p] < 0), None)
            if partition is None:
                break
            free.append(partition)
        return free


def _rack_states(group: Group, readers: Subscribers) -> list[_TopicRanges]:
    """Return the state of every assignable topic; empty where no rack can matter."""
    topics = group.topics
    if topics.rack_start is None or topics.rack is None or (group.rack == NO_RACK).all():
        return []
    bounds, values = topics.rack_start.tolist(), topics.rack.tolist()
    racks = [frozenset(values[first:last]) for first, last in pairwise(bounds)]
    states = []
    for topic in range(topics.n_topics):
        members = readers.of(topic)
        own = racks[topics.start[topic] : topics.start[topic + 1]]
        if members.size and own:
            states.append(_TopicRanges(topic, members, group.rack[members], own))
    return states


def _match_racks(states: Sequence[_TopicRanges]) -> None:
    """Assign partitions inside their rack; topics with equal members and count go together."""
    alike: dict[tuple[bytes, int], list[_TopicRanges]] = defaultdict(list)
    for state in states:
        if state.has_racks:
            alike[state.members.tobytes(), len(state.racks)].append(state)
    for together in alike.values():
        if len(together) > 1:
            _match_co_partitioned(together)
        elif together[0].needs_racks:
            together[0].take_ranges(by_rack=True)


def _match_co_partitioned(states: Sequence[_TopicRanges]) -> None:
    """Give each partition number of all topics to one member (kernel: one step a replica).

    The member is the first with room that shares a rack with that partition of every topic.
    """
    lead = states[0]
    queues: dict[int, deque[int]] = defaultdict(deque)
    for position, rack in enumerate(lead.member_racks):
        queues[rack].append(position)
    for partition in range(len(lead.racks)):
        common = frozenset.intersection(*(state.racks[partition] for state in states))
        heads = []
        for queue in (queues[rack] for rack in (*common, NO_RACK) if rack in queues):
            while queue and lead.room(queue[0]) == 0:
                queue.popleft()  # room never grows back
            if queue:
                heads.append(queue[0])
        if heads:
            for state in states:
                state.give(min(heads), [partition])


def _tie_order(group_id: str, topic: str, n: int) -> U64:
    """Return keys that order ``n`` members for this group and topic alone, uint64[n].

    Notes
    -----
    BLAKE2b of the two names (each with its length in front), then one splitmix64 step a member: the
    same in every process and on every platform, unlike ``hash()``.
    """
    text = b"".join(
        len(part).to_bytes(4, "big") + part
        for part in (name.encode("utf-8", "surrogatepass") for name in (group_id, topic))
    )
    seed = np.frombuffer(hashlib.blake2b(text, digest_size=8).digest(), dtype=">u8").astype("<u8")
    z = seed + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: U64 = z ^ (z >> np.uint64(31))
    return keys


def _deal(lags: I64, count: I64, total: I64, tie: U64) -> I64:
    """Return the position of each partition's owner; totals are those before the topic."""
    n, m = lags.size, count.size
    by_lag = np.argsort(-lags, kind="stable")
    position = np.empty(n, dtype=np.int64)
    mine = np.zeros(m, dtype=np.int64)  # lag of this topic that each member has
    for done in range(0, n, m):
        of_round = by_lag[done : done + m]
        receivers = np.lexsort((tie, total, count, mine))[: of_round.size]
        position[of_round] = receivers
        mine[receivers] += lags[of_round]
    return position
