"""``roundrobin``: partitions go to members in a circle, as in Kafka's RoundRobinAssignor.

**Rules.** The result is that of ``org.apache.kafka.clients.consumer.RoundRobinAssignor`` of 4.3.1,
partition by partition. Topics go by name, partitions by number, members by
``Group.assignment_order``. Each partition goes to the next member of the circle that subscribes to
its topic. A member that is skipped keeps its position in the circle.

**Strategy.** Within one topic the circle visits the topic's subscribers in order, again and again:
the k-th partition goes to subscriber ``(first + k) mod n``, which is one expression over a column.
Only ``first`` depends on the topic before, so the Python loop is over topics.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.result import Solution
from holdfast.core.assignors.subscribers import subscribers_by_topic
from holdfast.core.model.columns import NO_OWNER


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
    readers = subscribers_by_topic(group, order)
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
