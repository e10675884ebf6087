"""Claims of the last round that its own leader knows to be false.

**Rules.**

- A leader that led the last round as well knows what each member owned after it: what it said
  itself. Where two members claim a partition under that generation, it believes only the one to
  which it gave the partition. The other claim counts as none.
- Nothing else is doubted: a claim that nobody disputes, or one of an older generation, counts as in
  :mod:`holdfast.assignors.claims`. A leader that did not lead the last round believes all, and what
  two members claim alike then belongs to nobody for that round, as in Kafka.

Example: a owns 0 and 1 since generation 7, and b claims 0, 1 and 2 under generation 7. A leader
that was not there takes 0 and 1 from both. The leader of generation 7 lets a go on with them.

**Strategy.** What was said is kept as the bytes of that round
(:class:`~holdfast.machine.actions.LedRound`) and read only for members whose claims are disputed.
A round without disputes costs one count over the claims.

References: KAFKA-12984 (two claims), whose remedy a member that repeats its claim can use to stop
every other member.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from holdfast.errors import WireError
from holdfast.machine.actions import LedRound
from holdfast.machine.events import JoinedMember
from holdfast.machine.leader.embedded import Instruction
from holdfast.machine.leader.oversized import with_what_exists
from holdfast.model.columns import I32
from holdfast.model.group import Group
from holdfast.model.partition_columns import tps_of
from holdfast.model.partitions import grouped, resources_of
from holdfast.model.topics import Topics
from holdfast.wire.layouts.container import decode_member_subscription


def without_false_claims(
    group: Group, last: LedRound | None, read: Callable[[bytes], Instruction]
) -> Group:
    """The group without the claims that its leader knows to be false.

    Parameters
    ----------
    group : Group
        As the members report it.
    last : LedRound or None
        The round just before, if the leader of this round led it.
    read : callable
        Reads an assignment of that round (:meth:`~holdfast.machine.leader.embedded.Embedded.read`).
    """
    if last is None:
        return group
    tp = np.concatenate((group.claim_tp, group.foreign_tp))
    member = np.concatenate((group.claim_members(), group.foreign_member))
    doubted = np.bincount(tp, minlength=group.topics.n_tps)[tp] > 1
    doubted &= group.generation[member] == last.generation
    if not doubted.any():
        return group
    keeps = ~doubted
    given = {_identity(m): m for m in last.members}
    for m in np.unique(member[doubted]).tolist():
        was = given.get(group.instance_ids[m] or group.member_ids[m])
        if was is not None:
            mine = np.flatnonzero(doubted & (member == m))
            keeps[mine] = np.isin(tp[mine], _owned_after(group.topics, was, last, read))
    own, foreign = keeps[: len(group.claim_tp)], keeps[len(group.claim_tp) :]
    return group.with_claims(
        member[: len(own)][own],
        group.claim_tp[own],
        foreign_member=group.foreign_member[foreign],
        foreign_tp=group.foreign_tp[foreign],
    )


def _identity(member: JoinedMember) -> str:
    """A static member has a new id after a restart (KIP-345)."""
    return member.instance_id or member.member_id


def _owned_after(
    topics: Topics, member: JoinedMember, last: LedRound, read: Callable[[bytes], Instruction]
) -> I32:
    """Topic-partitions that a member owned after a round; none where its bytes cannot be read."""
    counts = dict(zip(topics.names, topics.n_partitions.tolist(), strict=True))
    (member,) = with_what_exists((member,), counts)
    try:
        told = read(last.assignments[member.member_id])
        before = resources_of(decode_member_subscription(member.metadata, lenient=True).owned)
    except (KeyError, WireError):
        return np.empty(0, np.int32)
    owned = told.assigned
    if not told.absence_revokes:
        owned |= before - told.revoked
    return tps_of(topics, grouped(sorted(owned)))
