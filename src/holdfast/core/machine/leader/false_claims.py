"""Claims of the last round that a leader knows to be false.

**Rules.**

- A leader that led the last round as well knows what each member owned after it: what it said
  itself. Where two members claim a partition under that generation, it believes only the one to
  which it gave the partition. The other claim counts as none.
- The same leader believes itself about what a departed member owned after that round, or what
  waits since: a claim of it under that generation counts as none, even if nobody disputes it.
- Any leader believes itself: where it was in the last round and claims a partition under that
  generation, another member's claim of it under the same generation counts as none.
- Where the memory (:mod:`holdfast.core.machine.leader.recall`) says of exactly one of the claimants
  that it owned the partition after that round, the others' claims count as none. A member's share
  never speaks about the member itself, so one member that lies cannot settle a dispute for itself.
- A claim that nobody disputes counts as none where two shares alike say that the partition waits,
  or that a member owned it that has left since or is back without it, and where the memory says
  that the claimant owned something else. One share, however it is spoiled, takes nothing from
  anybody.
- Nothing else is doubted: another claim that nobody disputes, or one of an older generation, counts
  as in :mod:`holdfast.core.assignors.claims`. What two members claim alike, and none of these rules
  settles, belongs to nobody for that round, as in Kafka.

Example: c owned 2 and is away. b claims 2 under generation 7. A leader that did not lead generation
7 reads in two shares that 2 was c's, and in those of b's successors that b owned 3 alone. So 2
waits for c, however often b repeats its claim.

Example: a owns 0 and 1 since generation 7, and b claims 0, 1 and 2 under generation 7. A leader c
that did not lead generation 7 and has no memory takes 0 and 1 from both: the same bytes would come
if b owned them and a lied. The leader of generation 7 lets a go on with them, so does a itself if
it leads, and so does any leader to which a share of a's successors says what a owned.

**Strategy.** What was said is kept as the bytes of that round
(:class:`~holdfast.core.machine.actions.LedRound`) and read only for members that have left
and for those whose claims are doubted. A round without either costs one count over the claims.

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
from holdfast.core.machine.leader.ring import identities_of, identity_of_id
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.model.columns import I32, Mask
from holdfast.core.model.group import Group
from holdfast.core.model.partition_columns import tps_of
from holdfast.core.model.partitions import grouped, resources_of
from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.container import decode_member_subscription
from holdfast.core.wire.layouts.memory import RememberedMember
from holdfast.errors import WireError


def without_false_claims(
    group: Group,
    last: LedRound | None,
    read: Callable[[bytes], Instruction],
    *,
    leader_id: str = "",
    last_generation: int | None = None,
    awaited: Mask | None = None,
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
    last_generation : int, optional
        The generation before this round, if the leader was in it.
    awaited : bool[n_tps], optional
        Topic-partitions that wait for departed members, by the memory.
    """
    if last is None:
        return _leader_first(group, leader_id, last_generation)
    tp, member = _claims(group)
    given = {m.instance_id or m.member_id: m for m in last.members}  # a new id after a restart
    names = [who or m for who, m in zip(group.instance_ids, group.member_ids, strict=True)]
    here = {names[m] for m in np.flatnonzero(group.generation == last.generation).tolist()}
    lost = np.bincount(tp, minlength=group.topics.n_tps) > 1
    if awaited is not None:
        lost |= awaited
    for name, was in given.items():
        if name not in here:
            lost[_owned_after(group.topics, was, last, read)] = True
    doubted = lost[tp]
    doubted &= group.generation[member] == last.generation
    if not doubted.any():
        return group
    keeps: Mask = ~doubted
    for m in np.unique(member[doubted]).tolist():
        if names[m] in given:
            mine = np.flatnonzero(doubted & (member == m))
            own = _owned_after(group.topics, given[names[m]], last, read)
            keeps[mine] = np.isin(tp[mine], own)
    return _keeping(group, keeps)


def settled_by_memory(
    group: Group, members: Sequence[SubscribedMember], memory: Memory | None
) -> Group:
    """The group without claims of which the memory names another owner."""
    if memory is None:
        return group
    tp, member = _claims(group)
    lost = _lost(group, members, memory)[tp] & (group.generation[member] == memory.generation)
    doubted = lost | _disputed(group, tp, member, memory.generation)
    if not doubted.any():
        return group
    named = np.zeros(len(tp), bool)
    owned = {who.identity: who.owned for who in memory.newest}
    sizes = {len(identity) for identity in owned}
    for m in np.unique(member[doubted]).tolist():
        known = [w[:n] for w in _identities(members[m]) for n in sizes if w[:n] in owned]
        own = owned[known[0]] if known else ()
        mine = np.flatnonzero(doubted & (member == m))
        named[mine] = np.isin(tp[mine], tps_of(group.topics, own or ()))
        untold = not memory.complete or members[m].member_id in memory.untold
        if own is None or (not known and untold):
            lost[mine] = False
    alone = np.bincount(tp[named], minlength=group.topics.n_tps) == 1
    return _keeping(group, ~(doubted & (alone[tp] | lost) & ~named))


def _lost(group: Group, members: Sequence[SubscribedMember], memory: Memory) -> Mask:
    """What two shares alike say that no member of the last round owns now, bool[n_tps]."""
    was_there = [m for m in members if m.subscription.generation >= memory.generation]
    sizes = {len(who.identity) for who in memory.agreed}
    here = {whole[:n] for m in was_there for whole in _identities(m) for n in sizes}
    gone = [who for who in memory.agreed if who.delay_ms or who.identity not in here]
    return _mask_of(group, gone)


def _identities(member: SubscribedMember) -> tuple[str, ...]:
    """Those of the member, and the one by its id if it has become a static member since."""
    return (*identities_of(member), identity_of_id(member))


def awaited_by(group: Group, memory: Memory | None) -> Mask:
    """Topic-partitions that wait by the memory, bool[n_tps]."""
    return _mask_of(group, () if memory is None else memory.waiting)


def _mask_of(group: Group, remembered: Sequence[RememberedMember]) -> Mask:
    mask = np.zeros(group.topics.n_tps, bool)
    owned = tuple(entry for who in remembered for entry in who.owned or ())
    mask[tps_of(group.topics, owned)] = True
    return mask


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
