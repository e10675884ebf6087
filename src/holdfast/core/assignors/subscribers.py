"""The subscribers of each topic: the subscriptions of a group, by topic.

**Rules.** The caller gives the order in which every row lists members.

**Strategy.** A group stores each distinct subscription once. Assignors that go topic by topic need
the transpose. If all members have one subscription, by far the most frequent case, the transpose
repeats one row; else it is a sort of the (topic, member) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.model.columns import I32, I64, row_of, starts
from holdfast.core.model.group import Group


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subscribers:
    """Members that subscribe to each topic."""

    start: I64  # int64[n_topics + 1]: rows of ``member``
    member: I32  # int32[n_subscriptions]: member indices, each row in the requested order

    def of(self, topic: int) -> I32:
        """Return the subscribers of one topic, in order."""
        return self.member[self.start[topic] : self.start[topic + 1]]


def subscribers_by_topic(group: Group, order: I32) -> Subscribers:
    """Transpose the subscriptions.

    Parameters
    ----------
    group : Group
        With the subscriptions.
    order : int32[n_members]
        Member indices in the order in which each row shall list them.

    Notes
    -----
    Cost: linear in the subscriptions; a sort of them where they differ.

    References: KIP-54, "potential consumers of each topic partition".
    """
    counts = np.bincount(group.sub_topic, minlength=group.topics.n_topics)
    if group.n_sets == 1:
        return Subscribers(start=starts(counts), member=np.tile(order, len(group.set_topic)))
    rank = np.empty(group.n_members, dtype=np.int64)
    rank[order] = np.arange(group.n_members)
    member = row_of(group.sub_start)
    by_topic = np.argsort(group.sub_topic.astype(np.int64) * group.n_members + rank[member])
    return Subscribers(start=starts(counts), member=member[by_topic])
