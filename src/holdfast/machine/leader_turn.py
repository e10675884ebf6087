"""One leader turn, bytes to bytes: every subscription in, every assignment out.

**Rules.** Odd bytes of one member never stop the group: a subscription that cannot be read counts
as a member with no topics, unreadable user data as a member with no claims. Claims of an eager
member are in its user data, those of a cooperative member in the subscription itself, with the
generation beside them or else in the user data (PROTOCOL: KIP-429, KIP-341, KAFKA-12984).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.assign.registry import ASSIGNORS, assign
from holdfast.assign.result import Result
from holdfast.errors import WireError
from holdfast.model.columns import starts
from holdfast.model.group import Group
from holdfast.model.snapshot import MAX_LAG, lag_column
from holdfast.model.topics import Topics
from holdfast.wire.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    SubscriptionDecoder,
    encode_assignment,
)
from holdfast.wire.sticky_user_data import StickyUserData, read_claims

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
        Messages behind, per topic one a partition.
    racks : mapping, optional
        Racks that hold a replica, per topic one collection a partition.
    **options
        Those of the assignor.

    Returns
    -------
    dict of str to bytes
        A ``ConsumerProtocolAssignment`` for every member, in the order of their ids.

    References
    ----------
    KIP-54; KIP-429, "Consumer leader".
    """
    result = turn(name, members, partitions, lags=lags, racks=racks, **options)
    return {
        member_id: encode_assignment(AssignmentMessage(version=0, partitions=own))
        for member_id, own in _rows(result)
    }


def turn(
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
    ordered = sorted(members, key=lambda member: member[0])
    decoder = SubscriptionDecoder()
    read = [_read(decoder, data) for _, _, data in ordered]
    topics = Topics.from_counts(
        partitions, racks=racks, more_racks=(s.rack for s in read if s.rack is not None)
    )
    rows: dict[tuple[int, ...], int] = {}
    subscription = []
    for one in read:
        known = {topics.index[topic] for topic in one.topics if topic in topics.index}
        subscription.append(rows.setdefault(tuple(sorted(known)), len(rows)))
    claims = [_claims_of(name, one) for one in read]
    flat = [
        (member, topics.index.get(topic, -1), partition, topic)
        for member, claim in enumerate(claims)
        for topic, numbers in claim.partitions
        for partition in numbers
    ]
    rack_index = {rack: i for i, rack in enumerate(topics.rack_names)}
    return Group.from_columns(
        topics=topics,
        member_ids=tuple(member_id for member_id, _, _ in ordered),
        instance_ids=tuple(instance_id for _, instance_id, _ in ordered),
        set_start=starts(np.array([len(row) for row in rows], np.int64)),
        set_topic=np.array([topic for row in rows for topic in row], np.int32),
        subscription=np.array(subscription, np.int32),
        claim_member=np.array([row[0] for row in flat], np.int32),
        claim_topic=np.array([row[1] for row in flat], np.int32),
        claim_partition=np.array([row[2] for row in flat], np.int32),
        claim_names=[row[3] for row in flat],
        generation=np.array([claim.generation for claim in claims], np.int32),
        rack=np.array([rack_index.get(one.rack or "", -1) for one in read], np.int32),
        lags=lag_column(_clamped(lags, topics), topics.names, topics.start),
    )


def _read(decoder: SubscriptionDecoder, data: bytes) -> Subscription:
    try:
        return decoder.decode(data)
    except WireError:
        return Subscription(version=0, topics=())


def _claims_of(name: str, subscription: Subscription) -> StickyUserData:
    """Claims by the rule of the assignor, or by the other one where that finds none.

    An eager member reports nothing as owned and a cooperative one nothing in its user data, so at
    most one of the two is there; in the second bounce of an upgrade a group has both kinds.
    """
    cooperative = name in ASSIGNORS and ASSIGNORS[name].cooperative
    first = read_claims(subscription, cooperative=cooperative)
    if first.partitions:
        return first
    return read_claims(subscription, cooperative=not cooperative)


def _clamped(
    lags: Mapping[str, Sequence[int]] | None, topics: Topics
) -> Mapping[str, Sequence[int]] | None:
    """Lags cut into range and to length: a leader does not fail on odd offsets."""
    if lags is None:
        return None
    result = {}
    for name in topics.names:
        given = list(lags.get(name, ()))[: topics.n_partitions[topics.index[name]]]
        short = int(topics.n_partitions[topics.index[name]]) - len(given)
        result[name] = [min(max(int(lag), 0), MAX_LAG) for lag in given] + [0] * short
    return result


def _rows(result: Result) -> Iterable[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]]:
    for member_id, own in result.to_dict().items():
        yield member_id, tuple((topic, tuple(numbers)) for topic, numbers in own.items())
