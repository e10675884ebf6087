"""Claims of the last round that a leader knows to be false.

**Rules.**

- A leader that led the last round as well knows what each member owned after it: what it said
  itself. Where two members claim a partition under that generation, it believes only the one to
  which it gave the partition. The other claim counts as none.
- Any leader believes itself: where it was in the last round and claims a partition under that
  generation, another member's claim of it under the same generation counts as none.
- Where the memory (:mod:`holdfast.core.machine.leader.recall`) says of exactly one of the claimants
  that it owned the partition after that round, the others' claims count as none. A member's share
  never speaks about the member itself, so one member that lies cannot settle a dispute for itself.
- Nothing else is doubted: a claim that nobody disputes, or one of an older generation, counts as in
  :mod:`holdfast.core.assignors.claims`. What two members claim alike, and neither of the three
  rules settles, belongs to nobody for that round, as in Kafka.

Example: a owns 0 and 1 since generation 7, and b claims 0, 1 and 2 under generation 7. A leader c
that did not lead generation 7 and has no memory takes 0 and 1 from both: the same bytes would come
if b owned them and a lied. The leader of generation 7 lets a go on with them, so does a itself if
it leads, and so does any leader to which a share of a's successors says what a owned.

**Strategy.** What was said is kept as the bytes of that round
(:class:`~holdfast.core.machine.actions.LedRound`) and read only for members whose claims are
disputed. A round without disputes costs one count over the claims.

References: KAFKA-12984 (two claims), whose remedy a member that repeats its claim can use to stop
every other member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from holdfast.core.machine.actions import LedRound
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.embedded import Instruction
from holdfast.core.machine.leader.oversized import with_what_exists
from holdfast.core.machine.leader.recall import Memory
from holdfast.core.machine.leader.ring import identities_of
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.model.columns import I32, Mask
from holdfast.core.model.group import Group
from holdfast.core.model.partition_columns import tps_of
from holdfast.core.model.partitions import grouped, resources_of
from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.container import decode_member_subscription
from holdfast.errors import WireError


def without_false_claims(
    group: Group,
    last: LedRound | None,
    read: Callable[[bytes], Instruction],
    *,
    leader_id: str = "",
    last_generation: int | None = None,
) -> Group:
    """The group without the claims that its leader knows to be false.

    Parameters
    ----------
    group : Group
        As the members report it.
    last : LedRound or None
        The round just before, if the leader of this round led it.
    read : callable
        Reads an assignment of that round
        (:meth:`~holdfast.core.machine.leader.embedded.Embedded.read`).
    leader_id : str
        The leader.
    last_generation : int, optional
        The generation before this round, if the leader was in it.
    """
    if last is None:
        return _leader_first(group, leader_id, last_generation)
    tp, member = _claims(group)
    doubted = np.bincount(tp, minlength=group.topics.n_tps)[tp] > 1
    doubted &= group.generation[member] == last.generation
    if not doubted.any():
        return group
    keeps: Mask = ~doubted
    given = {_identity(m): m for m in last.members}
    for m in np.unique(member[doubted]).tolist():
        was = given.get(group.instance_ids[m] or group.member_ids[m])
        if was is not None:
            mine = np.flatnonzero(doubted & (member == m))
            keeps[mine] = np.isin(tp[mine], _owned_after(group.topics, was, last, read))
    return _keeping(group, keeps)


def settled_by_memory(
    group: Group, members: Sequence[SubscribedMember], memory: Memory | None
) -> Group:
    """The group without disputed claims of which the memory names another claimant as the owner.

    Parameters
    ----------
    group : Group
        As the members report it.
    members : sequence of SubscribedMember
        In the order of the group.
    memory : Memory or None
        What the members' shares say together.
    """
    if memory is None:
        return group
    tp, member = _claims(group)
    doubted = _disputed(group, tp, member, memory.generation)
    if not doubted.any():
        return group
    named = np.zeros(len(tp), bool)
    owned = {who.identity: who.owned or () for who in memory.newest}
    sizes = {len(identity) for identity in owned}
    for m in np.unique(member[doubted]).tolist():
        own = next(
            (owned[w[:n]] for w in identities_of(members[m]) for n in sizes if w[:n] in owned), ()
        )
        mine = np.flatnonzero(doubted & (member == m))
        named[mine] = np.isin(tp[mine], tps_of(group.topics, own))
    alone = np.bincount(tp[named], minlength=group.topics.n_tps) == 1
    return _keeping(group, ~(doubted & alone[tp] & ~named))


def _leader_first(group: Group, leader_id: str, generation: int | None) -> Group:
    """The group without claims of what the leader itself owns since the last generation."""
    if generation is None or leader_id not in group.member_ids:
        return group
    leader = group.member_ids.index(leader_id)
    tp, member = _claims(group)
    doubted = _disputed(group, tp, member, generation)
    mine = tp[doubted & (member == leader)]
    return _keeping(group, ~(doubted & np.isin(tp, mine) & (member != leader)))


def _claims(group: Group) -> tuple[I32, I32]:
    """Topic-partition and member of every claim, foreign ones last."""
    tp = np.concatenate((group.claim_tp, group.foreign_tp))
    return tp, np.concatenate((group.claim_members(), group.foreign_member))


def _disputed(group: Group, tp: I32, member: I32, generation: int) -> Mask:
    """Claims that another member makes as well, both under this generation."""
    newest: Mask = group.generation[member] == generation
    newest &= np.bincount(tp[newest], minlength=group.topics.n_tps)[tp] > 1
    return newest


def _keeping(group: Group, keeps: Mask) -> Group:
    """The group with these of its claims."""
    if keeps.all():
        return group
    tp, member = _claims(group)
    n = len(group.claim_tp)
    own, foreign = np.flatnonzero(keeps[:n]), n + np.flatnonzero(keeps[n:])
    return group.with_claims(
        member[own], tp[own], foreign_member=member[foreign], foreign_tp=tp[foreign]
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
