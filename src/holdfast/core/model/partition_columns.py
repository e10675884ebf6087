"""Conversions between columns of flat indices and partitions by topic.

**Rules.** :mod:`holdfast.core.model.partitions` lists the shapes of a set of partitions. A function
is named after the shape that it returns: :func:`tps_of`, :func:`partitions_of`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from holdfast.core.model.columns import I32, NO_OWNER
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.model.topics import Topics


def tps_of(topics: Topics, partitions: TopicPartitions) -> I32:
    """Return flat indices of the partitions that exist, int32[...], sorted; others are left out."""
    parts = [np.empty(0, np.int64)]
    for name, numbers in partitions:
        topic = topics.index.get(name)
        if topic is None:
            continue
        column = np.asarray(numbers, np.int64)
        column = column[(column >= 0) & (column < int(topics.n_partitions[topic]))]
        parts.append(column + topics.start[topic])
    return np.unique(np.concatenate(parts)).astype(np.int32)


def partitions_of(topics: Topics, tps: I32) -> TopicPartitions:
    """Return flat indices as (topic, partitions), sorted by topic and partition."""
    return partitions_by_member(topics, np.zeros(len(tps), np.int32), tps).get(0, ())


def partitions_by_owner(topics: Topics, owner: I32) -> dict[int, TopicPartitions]:
    """Return an assignment as one entry a member.

    Parameters
    ----------
    owner : int32[n_tps]
        A member index, or NO_OWNER.

    Returns
    -------
    dict of int to (topic, partitions)
        By member index, ascending; members that own nothing are left out.
    """
    tps = np.flatnonzero(owner != NO_OWNER).astype(np.int32)
    return partitions_by_member(topics, owner[tps], tps)


def partitions_by_member(topics: Topics, member: I32, tps: I32) -> dict[int, TopicPartitions]:
    """Return pairs of a member and a topic-partition as one entry a member.

    Parameters
    ----------
    member, tps : int32[n_pairs]
        ``member[i]`` has ``tps[i]``; one topic-partition may belong to several members.

    Returns
    -------
    dict of int to (topic, partitions)
        As of :func:`partitions_by_owner`.
    """
    order = np.lexsort((tps, member))
    member, tps = member[order], tps[order]
    of = topics.topic_of[tps]
    numbers = (tps - topics.start[of]).tolist()
    new = np.flatnonzero((np.diff(member, prepend=-1) != 0) | (np.diff(of, prepend=-1) != 0))
    edges = pairwise((*new.tolist(), len(tps)))
    rows: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for m, topic, (a, b) in zip(member[new].tolist(), of[new].tolist(), edges, strict=True):
        rows.setdefault(m, []).append((topics.names[topic], tuple(numbers[a:b])))
    return {m: tuple(row) for m, row in rows.items()}
