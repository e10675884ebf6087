"""Temporary reassignments under ``failback``, by a record of the checker's own: D10.

**Rules.** A resource is temporarily reassigned from the first round without its owner until it is
with its owner again, or until the delay is over by the checker's clock (without one, by the group's
leader state). The checker asks nothing that the members of a round cannot know
(:mod:`tests.proof.rules.records`).

**Strategy.** One entry a temporarily reassigned resource, kept where Design II's record has what
waits.

References: Incremental Cooperative Rebalancing, Design II, whose leader state names the previous
owner.
"""

from __future__ import annotations

from dataclasses import replace

from tests.proof.rules.records import EARLY_MS, Awaited, Moment, brought_shards
from tests.proof.rules.seen import Seen

from holdfast.core.machine.leader.subscriptions import identities_of
from holdfast.core.model.partitions import Resource


def reassigned_after(at: Moment) -> dict[Resource, Awaited]:
    """Return each temporarily reassigned resource after a round, and its returning member."""
    past, seen = at.past, at.seen
    if past is None:
        return {}
    reassigned = {}
    for r in seen.all_resources() - at.unknown:
        who = at.owed.get(r)
        if who is None or not who.identity or _left_ms(r, who, at) <= 0:
            who = past.owner.get(r)
            if who is None or who.member_id in seen.present:
                continue
            who = replace(who, deadline_ms=at.now_ms + at.policy.delay_of(r[0]))
        home = _here(who, at)
        if home is None or r not in home.after:
            reassigned[r] = who
    return reassigned


def kept_from_home(at: Moment) -> list[str]:
    """Return what others keep of a member that is back and gets something else."""
    if not _sure(at):
        return []
    revoked = {r for s in at.seen.members for r in s.revoked}
    broken = []
    for r, who in sorted(at.owed.items()):
        home = _here(who, at)
        if home is None or not home.stays or r in at.unknown or _left_ms(r, who, at) <= EARLY_MS:
            continue
        if not at.seen.exists(r) or r[0] not in home.subscription.topics:
            continue
        own = {r for r, other in at.owed.items() if other.identity == who.identity}
        if r not in home.after | revoked and home.gained - own:
            broken.append(
                f"{r} is temporarily reassigned, and {home.name} is back and gets something else"
            )
    return broken


def _left_ms(r: Resource, who: Awaited, at: Moment) -> int:
    """Return how long a temporary reassignment lasts, by clock or the last leader state."""
    return at.left_ms(who) if at.remains_ms is None else at.remains_ms.get(r, 0)


def _sure(at: Moment) -> bool:
    """Return whether the leader or two members bring a shard of the last round."""
    if at.past is None:
        return False
    told = brought_shards(at.past, at.seen)
    return at.seen.leader_id in told or len(told) > 1


def _here(who: Awaited, at: Moment) -> Seen | None:
    """Return the member that is back by an identity; None if none is, or several report it."""
    found = [s for s in at.seen.members if who.identity in identities_of(s.member)]
    return found[0] if len(found) == 1 else None
