"""``roundrobin``: partitions dealt to members in turn, as Kafka's RoundRobinAssignor does.

**Rules.** Row for row what ``org.apache.kafka.clients.consumer.RoundRobinAssignor`` of 4.3.1 gives:
topics by name, partitions by number, members in ``Group.dealing_order``; a member that does not
subscribe is skipped and keeps its place in the circle.

**Strategy.** Inside one topic the circle visits the subscribers in order, again and again, so the
k-th partition goes to subscriber ``(first + k) mod n``: one row of a column. Only ``first`` depends
on the topic before, so the Python loop is over topics.
"""

from __future__ import annotations

import numpy as np

from holdfast.assignors.claims import Claims
from holdfast.assignors.result import Solution
from holdfast.assignors.subscribers import subscribers_by_topic
from holdfast.model.columns import I32, NO_OWNER
from holdfast.model.group import Group


def roundrobin(claims: Claims) -> Solution:
    """``roundrobin`` as the registry calls it; claims do not matter.

    References
    ----------
    KIP-49; KIP-54, "Notes" on KAFKA-2019; Kafka 4.3.1.
    """
    return Solution(target=roundrobin_owner(claims.group))


def roundrobin_owner(group: Group) -> I32:
    """Deal every subscribed partition in turn.

    Returns
    -------
    int32[n_tps]
        Owner of each topic-partition, NO_OWNER where nobody subscribes.

    Notes
    -----
    Cost: O(n_tps + n_subscriptions + n_topics log n_members).

    References
    ----------
    KIP-49; KIP-54, "Notes" on KAFKA-2019; Kafka 4.3.1.
    """
    topics, order = group.topics, group.dealing_order
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    readers = subscribers_by_topic(group, order)
    owner = np.full(topics.n_tps, NO_OWNER, dtype=np.int32)
    next_place = 0
    for topic in range(topics.n_topics):
        members, n = readers.of(topic), int(topics.n_partitions[topic])
        if members.size == 0 or n == 0:
            continue
        first = int(np.searchsorted(place[members], next_place)) % members.size
        dealt = members[(first + np.arange(n)) % members.size]
        owner[topics.start[topic] : topics.start[topic] + n] = dealt
        next_place = (int(place[dealt[-1]]) + 1) % order.size
    return owner
