"""A leader's turn, bytes to bytes: the subscriptions of all members in, their assignments out.

**Rules.** Odd bytes of one member never stop the group: a subscription that cannot be read counts
as a member with no topics, unreadable user data as a member with no claims. Claims of an eager
member are in its user data, those of a cooperative member in the subscription itself, with the
generation beside them or else in the user data (KIP-429, KIP-341, KAFKA-12984).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from holdfast.assignors.registry import ASSIGNORS, assign
from holdfast.assignors.result import Result
from holdfast.model.group import Group
from holdfast.model.lag import MAX_LAG, lag_column, lag_column_of
from holdfast.model.topics import Topics
from holdfast.wire.many.assignment_columns import encode_assignments
from holdfast.wire.many.name_table import NameTable
from holdfast.wire.many.subscription_columns import decode_subscriptions

Member = tuple[str, str | None, bytes]


def perform_assignment(
    name: str,
    members: Sequence[Member],
    partitions: Mapping[str, int],
    *,
    lags: Mapping[str, Sequence[int]] | None = None,
    racks: Mapping[str, Sequence[Iterable[str]]] | None = None,
    **options: Any,
) -> dict[str, bytes]:
    """Decode every subscription, assign, encode every assignment.

    Parameters
    ----------
    name : str
        A name of the registry.
    members : sequence of (member id, instance id or None, subscription bytes)
        As in the JoinGroup response of the leader, in any order.
    partitions : mapping
        Partition count of each topic.
    lags : mapping, optional
        Messages behind, per topic one a partition; 0 for those left out.
    racks : mapping, optional
        Racks that hold a replica, per topic one collection a partition.
    **options
        Those of the assignor.

    Raises
    ------
    ModelError
        A lag is negative or not an integer; the text has its topic and index.

    Returns
    -------
    dict of str to bytes
        A ``ConsumerProtocolAssignment`` for every member, in the order of their ids.

    References
    ----------
    KIP-54; KIP-429, "Consumer leader".
    """
    group, table = _read(name, members, partitions, lags=lags, racks=racks)
    result = assign(group, name, **options)
    messages = encode_assignments(group.topics, result.owner, group.n_members, table)
    return dict(zip(group.member_ids, messages, strict=True))


def assign_members(
    name: str,
    members: Sequence[Member],
    partitions: Mapping[str, int],
    *,
    lags: Mapping[str, Sequence[int]] | None = None,
    racks: Mapping[str, Sequence[Iterable[str]]] | None = None,
    **options: Any,
) -> Result:
    """Decode every subscription and assign; parameters as for :func:`perform_assignment`."""
    group = read_group(name, members, partitions, lags=lags, racks=racks)
    return assign(group, name, **options)


def read_group(
    name: str,
    members: Sequence[Member],
    partitions: Mapping[str, int],
    *,
    lags: Mapping[str, Sequence[int]] | None = None,
    racks: Mapping[str, Sequence[Iterable[str]]] | None = None,
) -> Group:
    """Turn the members of a JoinGroup response into a group."""
    return _read(name, members, partitions, lags=lags, racks=racks)[0]


def _read(
    name: str,
    members: Sequence[Member],
    partitions: Mapping[str, int],
    *,
    lags: Mapping[str, Sequence[int]] | None,
    racks: Mapping[str, Sequence[Iterable[str]]] | None,
) -> tuple[Group, NameTable]:
    """The group, and the table of topic names for the way back."""
    ordered = sorted(members, key=itemgetter(0))
    ids, instance_ids, messages = zip(*ordered, strict=True) if ordered else ((), (), ())
    table = NameTable(sorted(partitions))
    cooperative = name in ASSIGNORS and ASSIGNORS[name].cooperative
    read = decode_subscriptions(messages, table, cooperative=cooperative)
    named = any(read.racks)
    topics = Topics.from_counts(
        partitions, racks=racks, more_racks=filter(None, read.racks) if named else ()
    )
    group = Group.build(
        topics=topics,
        member_ids=ids,
        instance_ids=instance_ids,
        subscriptions=read.subscriptions,
        claims=read.claims,
        generation=read.generation,
        rack=topics.rack_indices(read.racks) if named else None,
        lags=lag_column(_to_length(lags, topics), topics),
    )
    return group, table


def _to_length(
    lags: Mapping[str, Sequence[int]] | None, topics: Topics
) -> Mapping[str, Sequence[int]] | None:
    """Checked lags, one a partition: a topic may have grown or shrunk since they were read."""
    if lags is None:
        return None
    result = {}
    for name, count in zip(topics.names, topics.n_partitions.tolist(), strict=True):
        if name in lags:
            given = lag_column_of(lags[name], f"lags.{name}")[:count]
            result[name] = np.minimum(given, MAX_LAG).tolist() + [0] * (count - len(given))
    return result
