"""The decision which claim of a partition counts, made before any assignor runs.

**Rules.**

1. :mod:`holdfast.core.model.reported` has dropped the impossible claims.
2. Of the claims of one partition only those of the highest generation count. Generation -1 (none)
   is the lowest.
3. If one member claims the partition in that generation, it owns the partition before the round. If
   several do, no member owns it.
4. Members that claim the partition in a lower generation are *previous owners*. Where several
   members claim it in the highest generation, they are previous owners too. A previous owner is
   preferred where balance, racks and claims kept are equal; it has no right to the partition.
5. In a cooperative round a partition is withheld if and only if the target gives it to one member
   and another member claims it, under any generation, whether that member subscribes or not. One
   member is exempt: the one that alone claims the partition in its newest generation keeps it,
   whatever older claims say.
6. A claim of a generation that cannot exist yet is ignored. Only a caller that knows the generation
   of the round can recognise such claims: it clears them while it reads them.

Example of rule 5: a claims 0 at generation 7, b claims 0 at generation 5. If the target is a, a
keeps it. If the target is b or c, 0 has no owner in this round.

No rule depends on the order of members or of claims.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from holdfast.core.model.columns import I32, I64, NO_OWNER, frozen
from holdfast.core.model.group import Group
from holdfast.core.model.reported import MAX_EXAMPLES, DroppedClaims

STALE = "stale-generation"
DOUBLE = "double-claim"


def _none() -> I32:
    return np.empty(0, np.int32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Claims:
    """The claims of a group after the rules were applied.

    References: KIP-54, KIP-341 (generations), KAFKA-12984 (two claims), KAFKA-14639 (older claims),
    ``adjustAssignment`` of Kafka's CooperativeStickyAssignor.
    """

    group: Group
    owner: I32  # int32[n_tps]: owner before the round, or NO_OWNER
    # int32[n_previous]: claims of a lower generation than the newest, by tp, then newest first,
    # then member.
    previous_tp: I32 = field(default_factory=_none)
    previous_member: I32 = field(default_factory=_none)
    # int32[n_double]: newest claims of partitions that several members claim alike.
    double_tp: I32 = field(default_factory=_none)
    double_member: I32 = field(default_factory=_none)

    @cached_property
    def claim_tp(self) -> I32:
        """Every claim that a cooperative round must wait for, int32[...]."""
        return np.concatenate((self.group.claim_tp, self.group.foreign_tp))

    @cached_property
    def claim_member(self) -> I32:
        """Member of each of :attr:`claim_tp`, int32[...]."""
        return np.concatenate((self.group.claim_members(), self.group.foreign_member))

    @cached_property
    def all_previous(self) -> tuple[I32, I32]:
        """Claims of members that may still have a partition's state, without a right to it.

        Claims of a lower generation and double claims, as topic-partitions and members, int32[...].
        """
        tp = np.concatenate((self.previous_tp, self.double_tp)).astype(np.int32)
        return tp, np.concatenate((self.previous_member, self.double_member)).astype(np.int32)

    def withheld(self, target: I32) -> tuple[I32, I32]:
        """Return partitions that ``target`` gives to a member while another still claims them.

        The newest claimant keeps a partition that the target gives it again, whatever older claims
        say (rule 5).

        Returns
        -------
        tp, claim_member : int32[...]
            Sorted by tp, each once. The claimant is the owner before the round if there is one,
            else the claimant with the lowest member index.
        """
        if not (len(self.group.foreign_tp) + len(self.double_tp) + len(self.previous_tp)):
            # Every claim is a claim of the owner.
            goes = (self.owner != target) & (self.owner != NO_OWNER) & (target != NO_OWNER)
            moving = np.asarray(np.flatnonzero(goes), dtype=np.int32)
            return moving, self.owner[moving]
        goes_to = target[self.claim_tp]
        generation = self.group.generation
        keeps = self.owner[self.claim_tp] == goes_to
        # A claim outside the subscription may be as new as the owner's, which then is not alone.
        keeps &= generation[self.claim_member] < generation[goes_to]
        other = (goes_to != self.claim_member) & (goes_to != NO_OWNER)
        waits = np.flatnonzero(other & ~keeps)
        order = waits[np.lexsort((self.claim_member[waits], self.claim_tp[waits]))]
        tp, first = np.unique(self.claim_tp[order], return_index=True)
        claim_member = self.claim_member[order][first]
        mine = (self.owner[tp] != NO_OWNER) & (self.owner[tp] != target[tp])
        return tp, np.where(mine, self.owner[tp], claim_member).astype(np.int32)

    def without_owners_among(self, members: I64) -> Claims:
        """Return the same claims, with owners among ``members`` as previous owners."""
        tp = np.flatnonzero(np.isin(self.owner, members)).astype(np.int32)
        if not len(tp):
            return self
        owner = self.owner.copy()
        owner[tp] = NO_OWNER
        previous_tp = np.concatenate((self.previous_tp, tp))
        previous = np.concatenate((self.previous_member, self.owner[tp]))
        age = -self.group.generation[previous].astype(np.int64)
        order = np.lexsort((previous, age, previous_tp))
        return replace(
            self,
            owner=frozen(owner),
            previous_tp=previous_tp[order],
            previous_member=previous[order],
        )

    def without_owners(self) -> Claims:
        """Return the same group without claims."""
        return Claims(group=self.group, owner=frozen(np.full_like(self.owner, NO_OWNER)))

    def dropped(self) -> DroppedClaims:
        """Return every claim that does not count, including the claims that the group dropped."""
        counts, examples = {}, []
        for reason, tps, members in (
            (STALE, self.previous_tp, self.previous_member),
            (DOUBLE, self.double_tp, self.double_member),
        ):
            if len(tps):
                counts[reason] = len(tps)
            for tp, member in zip(tps[:MAX_EXAMPLES], members[:MAX_EXAMPLES], strict=True):
                topic, partition = self.group.topics.name_of(int(tp))
                examples.append((reason, self.group.member_ids[member], topic, partition))
        more = DroppedClaims(counts=counts, examples=tuple(examples))
        return self.group.dropped + more


def normalise(group: Group) -> Claims:
    """Decide for each partition which member's claim counts.

    Notes
    -----
    Cost: O(claims) where no partition is claimed twice, else one sort of the claims.

    References: KIP-54, KIP-341 (generations), KAFKA-12984 (two claims).
    """
    owner = np.full(group.topics.n_tps, NO_OWNER, np.int32)
    member = group.claim_members()
    owner[group.claim_tp] = member
    # As many owners as claims: no partition is claimed twice, and nothing has to be sorted.
    if int(np.count_nonzero(owner != NO_OWNER)) == len(member):
        return Claims(group=group, owner=frozen(owner))
    generation = group.generation[member]
    # By partition, the newest generation first: the first claim of each partition is the newest.
    order = np.lexsort((member, -generation.astype(np.int64), group.claim_tp))
    tp, member, generation = group.claim_tp[order], member[order], generation[order]
    first = np.flatnonzero(np.append(True, tp[1:] != tp[:-1]))
    row = np.cumsum(np.append(True, tp[1:] != tp[:-1])) - 1
    newest = generation == generation[first][row]
    # Two claims of the newest generation cancel: at most one is true, and nobody knows which.
    alone = np.bincount(row, weights=newest) == 1
    owner[tp[first]] = np.where(alone, member[first], NO_OWNER)
    double = newest & ~alone[row]
    return Claims(
        group=group,
        owner=frozen(owner),
        previous_tp=tp[~newest],
        previous_member=member[~newest],
        double_tp=tp[double],
        double_member=member[double],
    )
