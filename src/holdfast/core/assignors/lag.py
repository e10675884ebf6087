"""``lag``: KAFKA-5337, lag spread over the members, topic by topic.

**Rules.** Topics go by name. The partitions of a topic go by decreasing lag, and equal lags by
number. Each partition goes to the subscriber with the fewest partitions of this topic, then with
the least lag of this topic. The document leaves further ties open; here they go to the member with
the fewest partitions of all topics so far, then with the least lag of all topics so far, then by a
hash of group id, topic and the member's position among the subscribers. So ties do not always go to
the same member. Where no lag is known, every lag counts as 0, and the counts are spread evenly.

**Strategy.** "Fewest partitions first" gives every subscriber one partition before any subscriber
gets a second one. During such a round the totals of the members that wait do not change. So one
sort of the subscribers per round is exact: the k-th largest lag of the round goes to the k-th
subscriber of the sort. The Python loop is over topics and rounds.

References: KAFKA-5337.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.result import Solution
from holdfast.core.assignors.subscribers import subscribers_by_topic
from holdfast.core.model.columns import I64, NO_OWNER
from holdfast.core.model.lag import summable

U64 = npt.NDArray[np.uint64]


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
    readers = subscribers_by_topic(group, np.arange(group.n_members, dtype=np.int32))
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
