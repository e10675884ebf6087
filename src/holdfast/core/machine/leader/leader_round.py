"""A leader's round, bytes to bytes: the subscriptions of all members in, their assignments out.

**Rules.** Malformed bytes of one member never stop the group: a subscription that cannot be read
counts as a member with no topics, unreadable user data as a member with no claims. Claims of an
eager member are in its user data, those of a cooperative member in the subscription itself, with
the generation beside them or else in the user data (KIP-429, KIP-341, KAFKA-12984). Where the
generation of the round is known, a claim of that or a later generation is ignored. A claim that a
cooperative group reads from user data yields to a member that owns the partition: an eager member
revoked everything before it joined.

What a leader builds from a subscription is bounded by the topics and partitions that exist:

1. Before a leader has looked up which topics exist, it reads the topics of messages and nothing
   else. A message of more than :data:`MODEST_BYTES`, and of more than four times the median of the
   round, that names :data:`MOST_MORE` topics more than the leader's own is ignored.
2. Then a message is larger than an honest one if it is longer than all that can be true: each topic
   that exists, and each partition once, as owned by the member, by its neighbours in the ring or as
   waiting. Of such a message the leader reads the topics and the claims of partitions that exist;
   user data only if they are no longer than that either.
3. Such a message that names :data:`MOST_MORE` topics more than exist counts as unreadable.

Example: a topic has 4 partitions, and a member claims 0 to 99,999 of it. Its leader reads 0 to 3.
A message that is not too large stays as it is: an honest round costs one comparison a member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from holdfast.core.assignors.registry import Named, assign_in_round, known
from holdfast.core.machine.actions import ComputeAssignment, LedRound
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.assignor_protocol import LeaderRound
from holdfast.core.model.group import Group
from holdfast.core.model.lag import MAX_LAG, lag_column, lag_column_of
from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.container import rejoin_data
from holdfast.core.wire.many.member_messages import (
    ReadMembers,
    decode_subscriptions,
    encode_assignments,
)
from holdfast.core.wire.many.name_table import NameTable
from holdfast.core.wire.many.subscription_bytes import named_topics, trim_subscription

Member = tuple[str, str | None, bytes]


def perform_assignment(
    name: Named,
    members: Sequence[Member],
    partitions: Mapping[str, int],
    *,
    lags: Mapping[str, Sequence[int]] | None = None,
    racks: Mapping[str, Sequence[Iterable[str]]] | None = None,
    generation: int | None = None,
    notes: list[str] | None = None,
    **options: Any,
) -> dict[str, bytes]:
    """Decode every subscription, assign, encode every assignment.

    Parameters
    ----------
    name : str or assignor
        A name of docs/assignors.md, or what :func:`holdfast.assignor` returned.
    members : sequence of (member id, instance id or None, subscription bytes)
        As in the JoinGroup response of the leader, in any order.
    partitions : mapping
        Partition count of each topic.
    lags : mapping, optional
        Messages behind, per topic one a partition; 0 for those left out.
    racks : mapping, optional
        Racks that hold a replica, per topic one collection a partition.
    generation : int, optional
        Generation of the round, from JoinGroup. Without it the leader cannot see that a claimed
        generation does not exist yet.
    notes : list of str, optional
        Receives remarks on the plan for people, as that another assignor made it.
    **options
        Options of the assignor.

    Returns
    -------
    dict of str to bytes
        A ``ConsumerProtocolAssignment`` for every member, in the order of their ids.

    Raises
    ------
    ModelError
        A lag is negative or not an integer (the text has its topic and index), a partition count is
        negative, racks do not fit the partitions, or a member id repeats.
    ConfigError, PlanError
        As of :func:`holdfast.assign`.

    References: KIP-54; KIP-429, "Consumer leader".
    """
    read = read_members(name, members, partitions)
    group = read_group(name, read, partitions, lags=lags, racks=racks, generation=generation)
    return assign_group(group, name, [] if notes is None else notes, table=read.table, **options)


def assign_group(
    group: Group,
    name: Named,
    notes: list[str],
    *,
    table: NameTable,
    rejoin: bool = False,
    **options: Any,
) -> dict[str, bytes]:
    """Assign a group that was read from bytes, and encode every assignment.

    With ``rejoin`` all members rejoin as soon as they have the assignment if partitions have to be
    revoked first: none waits for a heartbeat.
    """
    result = assign_in_round(group, name, notes, **options)
    members = result.group.member_ids
    user_data = rejoin_data() if rejoin and result.withheld else None
    messages = encode_assignments(
        result.group.topics, result.owner, len(members), table, user_data=user_data
    )
    return dict(zip(members, messages, strict=True))


def read_group(
    name: Named,
    members: Sequence[Member] | ReadMembers,
    partitions: Mapping[str, int],
    *,
    lags: Mapping[str, Sequence[int]] | None = None,
    racks: Mapping[str, Sequence[Iterable[str]]] | None = None,
    generation: int | None = None,
) -> Group:
    """Turn the members of a JoinGroup response into a group."""
    read = members if isinstance(members, ReadMembers) else read_members(name, members, partitions)
    columns, named = read.columns, read.has_racks
    topics = Topics.from_counts(
        partitions, racks=racks, more_racks=filter(None, columns.racks) if named else ()
    )
    group = Group.build(
        topics=topics,
        member_ids=read.member_ids,
        instance_ids=read.instance_ids,
        subscriptions=columns.subscriptions,
        claims=columns.claims,
        generation=columns.generation,
        rack=topics.rack_indices(columns.racks) if named else None,
        lags=lag_column(_to_length(lags, topics), topics),
        round_generation=generation,
    )
    return (
        _owners_first(group, columns.user_data_claimants) if columns.user_data_claimants else group
    )


def read_members(name: Named, members: Sequence[Member], topics: Iterable[str]) -> ReadMembers:
    """Read the subscriptions of a round once.

    Parameters
    ----------
    name : str or AssignorInfo
        The assignor, which says where its members write their claims.
    members : sequence of (member id, instance id or None, subscription bytes)
        In any order.
    topics : iterable of str
        Topics that exist.
    """
    ordered = sorted(members, key=itemgetter(0))
    ids, instance_ids, messages = (tuple(map(itemgetter(i), ordered)) for i in range(3))
    table = NameTable(sorted(topics))
    row = known(name)
    cooperative = row is not None and row.cooperative
    return ReadMembers(
        member_ids=ids,
        instance_ids=instance_ids,
        table=table,
        columns=decode_subscriptions(messages, table, cooperative=cooperative),
    )


def _owners_first(group: Group, user_data_claimants: Sequence[int]) -> Group:
    """Return the group without claims from user data of partitions that another member owns.

    An eager member's claim is a preference: the member revoked its partitions before it joined.
    """
    member = group.claim_members()
    unconfirmed, foreign_unconfirmed = (
        np.isin(m, user_data_claimants) for m in (member, group.foreign_member)
    )
    owned = np.zeros(group.topics.n_tps, bool)
    owned[group.claim_tp[~unconfirmed]] = True
    owned[group.foreign_tp[~foreign_unconfirmed]] = True
    keeps = ~(unconfirmed & owned[group.claim_tp])
    foreign = ~(foreign_unconfirmed & owned[group.foreign_tp])
    return group.with_claims(
        member[keeps],
        group.claim_tp[keeps],
        foreign_member=group.foreign_member[foreign],
        foreign_tp=group.foreign_tp[foreign],
    )


def _to_length(
    lags: Mapping[str, Sequence[int]] | None, topics: Topics
) -> Mapping[str, Sequence[int]] | None:
    """Return checked lags, one a partition: a topic may have changed since they were read."""
    if lags is None:
        return None
    result = {}
    for name, count in zip(topics.names, topics.n_partitions.tolist(), strict=True):
        if name in lags:
            given = lag_column_of(lags[name], f"lags.{name}")[:count]
            result[name] = np.minimum(given, MAX_LAG).tolist() + [0] * (count - len(given))
    return result


MODEST_BYTES = 4_096
"""Bytes of a message up to which it is read as it is."""

MOST_MORE = 10_000
"""Topics that a member may name beyond those that the leader names, or that exist."""

HEAD_BYTES = 2_048
"""Upper bound in bytes of the parts of a message that name no topic and no partition."""

PARTITION_BYTES = 28
"""Upper bound in bytes of a partition: of a departed member that owned it alone."""


def named_in_round(request: ComputeAssignment) -> tuple[str, ...]:
    """Return the topics that a leader looks up before a round, sorted (rule 1).

    Not all need exist.
    """
    members = request.members
    sizes = sorted(len(m.metadata) for m in members)
    # Four times the median: honest members of one group subscribe to similar lists of topics.
    most = max(MODEST_BYTES, 4 * sizes[(len(sizes) - 1) // 2]) if sizes else 0
    own = next((_n_topics(m.metadata) for m in members if m.member_id == request.member_id), 0)
    messages = [
        m.metadata
        for m in members
        if len(m.metadata) <= most or _n_topics(m.metadata) <= MOST_MORE + own
    ]
    return tuple(sorted(named_topics(messages)))


def begin_round(request: ComputeAssignment) -> LeaderRound:
    """Return the round of a request, not read yet, with oversized messages trimmed (rule 2)."""
    members, partitions = request.members, dict(request.partitions)
    most = most_bytes(partitions)
    if partitions and any(len(m.metadata) > most for m in members):
        most_topics = MOST_MORE + len(partitions)
        members = tuple(_trimmed(m, partitions, most, most_topics) for m in members)
    return LeaderRound(
        members=members,
        partitions=partitions,
        generation=request.generation,
        leader_id=request.member_id,
        waited_ms=request.waited_ms,
        unbroken=request.unbroken,
        led=just_before(request),
    )


def just_before(request: ComputeAssignment) -> LedRound | None:
    """Return the round that the leader led just before, in the same protocol, else None."""
    led = request.led
    if led is None or not request.unbroken or led.protocol_name != request.protocol_name:
        return None
    return led if led.generation == request.generation - 1 else None


def most_bytes(partitions: Mapping[str, int]) -> int:
    """Return the bytes of the longest honest subscription if ``partitions`` are all that exist."""
    names = sum(8 + len(topic.encode()) for topic in partitions)
    return HEAD_BYTES + 3 * names + PARTITION_BYTES * sum(partitions.values())


def _trimmed(
    member: JoinedMember, partitions: Mapping[str, int], most: int, most_topics: int
) -> JoinedMember:
    if len(member.metadata) <= most:
        return member
    trimmed = trim_subscription(
        member.metadata, partitions, most_topics=most_topics, most_user_data=most
    )
    return replace(member, metadata=trimmed, sent_bytes=len(member.metadata))


def _n_topics(message: bytes) -> int:
    """Return the number of topics that a message declares: four bytes behind its version."""
    return int.from_bytes(message[2:6], "big")
