"""A leader's turn, bytes to bytes: the subscriptions of all members in, their assignments out.

**Rules.** Odd bytes of one member never stop the group: a subscription that cannot be read counts
as a member with no topics, unreadable user data as a member with no claims. Claims of an eager
member are in its user data, those of a cooperative member in the subscription itself, with the
generation beside them or else in the user data (KIP-429, KIP-341, KAFKA-12984).
Where the generation of the round is known, a claim of that or a later generation counts as none.
A claim that a cooperative group reads from user data counts for nothing against a member that owns
the partition: an eager member gave everything up before it joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np

from holdfast.core.assignors.registry import Named, assign_in_round, known
from holdfast.core.model.columns import distinct
from holdfast.core.model.group import Group
from holdfast.core.model.lag import MAX_LAG, lag_column, lag_column_of
from holdfast.core.model.topics import Topics
from holdfast.core.wire.many.assignment_columns import encode_assignments
from holdfast.core.wire.many.name_table import NameTable
from holdfast.core.wire.many.subscription_columns import SubscriptionColumns, decode_subscriptions
from holdfast.core.wire.many.topic_blocks import named_topics

Member = tuple[str, str | None, bytes]


def perform_assignment(
    name: Named,
    members: Sequence[Member] | ReadMembers,
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
    name : str or AssignorInfo
        A name of the registry, or an assignor of the user.
    members : sequence of (member id, instance id or None, subscription bytes)
        As in the JoinGroup response of the leader, in any order; or the answer of
        :func:`read_members`.
    partitions : mapping
        Partition count of each topic.
    lags : mapping, optional
        Messages behind, per topic one a partition; 0 for those left out.
    racks : mapping, optional
        Racks that hold a replica, per topic one collection a partition.
    generation : int, optional
        Of the round, from JoinGroup; the answer of :func:`read_members` may know it as well.
        Without it the leader cannot tell that a claimed generation does not exist yet.
    notes : list of str, optional
        Takes what a person should know of the plan, as that another assignor made it.
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

    References: KIP-54; KIP-429, "Consumer leader".
    """
    read = _read(name, members, partitions, generation)
    group = _group_of(read, partitions, lags=lags, racks=racks)
    result = assign_in_round(group, name, [] if notes is None else notes, **options)
    topics, n_members = result.group.topics, result.group.n_members
    messages = encode_assignments(topics, result.owner, n_members, read.table)
    return dict(zip(read.member_ids, messages, strict=True))


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
    read = _read(name, members, partitions, generation)
    return _group_of(read, partitions, lags=lags, racks=racks)


def _read(
    name: Named,
    members: Sequence[Member] | ReadMembers,
    partitions: Mapping[str, int],
    generation: int | None,
) -> ReadMembers:
    """The subscriptions with exactly these topics known, in the round of this generation."""
    if not isinstance(members, ReadMembers):
        return read_members(name, members, partitions, generation=generation)
    read = _with_topics(members, partitions)
    return read if generation is None else replace(read, generation=generation)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadMembers:
    """The members of a JoinGroup response, by id, with their subscriptions as columns."""

    member_ids: tuple[str, ...]
    instance_ids: tuple[str | None, ...]
    messages: tuple[bytes, ...]
    names: tuple[str, ...]  # sorted names of the topics that the columns know
    table: NameTable  # the same names, ready to be found and written
    cooperative: bool  # whether claims were read as those of cooperative members
    columns: SubscriptionColumns
    generation: int | None = None  # of the round, where it is known

    @property
    def topics(self) -> tuple[str, ...]:
        """The known topics with a subscriber, sorted."""
        return tuple(
            self.names[i] for i in distinct(self.columns.subscriptions.topic.copy()).tolist()
        )

    @property
    def has_racks(self) -> bool:
        """Whether some member names a rack."""
        return any(self.columns.racks)


def read_members(
    name: Named,
    members: Sequence[Member],
    topics: Iterable[str] | None = None,
    *,
    generation: int | None = None,
) -> ReadMembers:
    """Read the subscriptions of a round once.

    Parameters
    ----------
    name : str or AssignorInfo
        The assignor, which says where its members write their claims.
    members : sequence of (member id, instance id or None, subscription bytes)
        In any order.
    topics : iterable of str, optional
        Topics that exist. Without them all topics are known that some subscription names, so that a
        leader can look up their partitions afterwards.
    generation : int, optional
        Of the round, from JoinGroup.
    """
    ordered = sorted(members, key=itemgetter(0))
    ids, instance_ids, messages = (tuple(map(itemgetter(i), ordered)) for i in range(3))
    names = tuple(sorted(named_topics(messages) if topics is None else topics))
    table = NameTable(names)
    row = known(name)
    cooperative = row is not None and row.cooperative
    return ReadMembers(
        member_ids=ids,
        instance_ids=instance_ids,
        messages=messages,
        names=names,
        table=table,
        cooperative=cooperative,
        columns=decode_subscriptions(messages, table, cooperative=cooperative),
        generation=generation,
    )


def _with_topics(read: ReadMembers, topics: Iterable[str]) -> ReadMembers:
    """The same members with exactly these topics known; they are read again only if they differ."""
    names = tuple(sorted(topics))
    if names == read.names:
        return read
    table = NameTable(names)
    columns = decode_subscriptions(read.messages, table, cooperative=read.cooperative)
    return replace(read, names=names, table=table, columns=columns)


def _group_of(
    read: ReadMembers,
    partitions: Mapping[str, int],
    *,
    lags: Mapping[str, Sequence[int]] | None,
    racks: Mapping[str, Sequence[Iterable[str]]] | None,
) -> Group:
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
        round_generation=read.generation,
    )
    return _owners_first(group, columns.given_up) if columns.given_up else group


def _owners_first(group: Group, given_up: Sequence[int]) -> Group:
    """The group without what these members claim and another member owns.

    An eager member's claim is a wish: it gave its partitions up before it joined.
    """
    member = group.claim_members()
    wish, foreign_wish = (np.isin(m, given_up) for m in (member, group.foreign_member))
    owned = np.zeros(group.topics.n_tps, bool)
    owned[group.claim_tp[~wish]] = True
    owned[group.foreign_tp[~foreign_wish]] = True
    keeps = ~(wish & owned[group.claim_tp])
    foreign = ~(foreign_wish & owned[group.foreign_tp])
    return group.with_claims(
        member[keeps],
        group.claim_tp[keeps],
        foreign_member=group.foreign_member[foreign],
        foreign_tp=group.foreign_tp[foreign],
    )


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
