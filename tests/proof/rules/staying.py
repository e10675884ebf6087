"""The policy ``damped``, by a record of the checker's own: members gain after they have stayed.

**Rules.** A member has joined with the first round of an unbroken row of rounds that has its
identity. D11 asks about rounds that the leader of the round before leads, because another leader
may not know who joined. There a round revokes no more than the members that have stayed lack of
their fair share. Nothing is checked where no member has stayed for long: the group starts, or the
leader state, whose ages do not count time inside a round, does not know better. A process that is
back between two rounds may count as one that stayed.

**Strategy.** Revocations are counted, because a round does not say who gets what it revokes.

References: Incremental Cooperative Rebalancing, "Scale up/down": "it would be desirable to control
the pace to which scaling takes effect".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.proof.rules.records import EARLY_MS
from tests.proof.rules.seen import Seen, SeenRound

from holdfast.core.machine.leader.subscriptions import identities_of
from holdfast.core.machine.leader.successors import MOST_TIMES
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import Resource
from holdfast.sim.clock import OwnershipLog

LATE_MS = 30_000
"""Age of a group beyond the window from which some members have stayed, in ms."""


@dataclass(slots=True)
class Staying:
    """Follows the rounds of one run."""

    ownership_log: OwnershipLog
    # Of the round before: by all identities of a member, and of memberships by member id.
    since_ms: dict[str | bytes, int] = field(default_factory=dict)
    memberships_ms: dict[str, int] = field(default_factory=dict)
    led: tuple[str, int] = ("", -1)  # the leader of the round before, and its generation

    def check(self, seen: SeenRound, policy: Policy, now_ms: int, *, levels: bool) -> None:
        """Take one round that has effect; ``levels`` says whether shares are equal."""
        since_ms = {s.name: self._since_ms(s, now_ms) for s in seen.members}
        self.since_ms = {key: since_ms[s.name] for s in seen.members for key in _keys(s)}
        self.memberships_ms = {
            s.name: now_ms
            if s.subscription.generation < 0
            else self.memberships_ms.get(s.name, now_ms)
            for s in seen.members
        }
        led, self.led = self.led, (seen.leader_id, seen.generation)
        if led != (seen.leader_id, seen.generation - 1) or not levels:
            return
        window_ms = policy.stabilization_ms * (MOST_TIMES - 1) // MOST_TIMES - EARLY_MS
        stay = [s for s in seen.members if s.stays]
        oldest_ms = max((now_ms - self.memberships_ms[s.name] for s in stay), default=0)
        if oldest_ms < policy.stabilization_ms + LATE_MS:
            return
        stayed = [s for s in stay if now_ms - since_ms[s.name] >= window_ms]
        total = sum(seen.partitions.get(topic, 0) for topic in seen.subscribed)
        share = -(-total // len(stay))
        lack = sum(max(0, share - sum(map(seen.exists, s.claims))) for s in stayed)
        if (moves := len(revoked_valid_claims(seen))) > lack:
            text = f"{moves} moves, and members that have stayed lack {lack}"
            self.ownership_log.fail("D11", now_ms, text)

    def _since_ms(self, s: Seen, now_ms: int) -> int:
        """Return when a member joined, or the one that it may be taken for, in ms."""
        return min(self.since_ms.get(key, now_ms) for key in _keys(s))


def _keys(s: Seen) -> tuple[str | bytes, ...]:
    location = s.subscription.location
    return (*identities_of(s.member), *([location] if location else []))


def revoked_valid_claims(seen: SeenRound) -> list[Resource]:
    """Return revocations of valid claims: newest, single, of existing, subscribed resources."""
    if not any(s.revoked for s in seen.members):
        return []
    newest: dict[Resource, int] = {}
    times: dict[tuple[Resource, int], int] = {}
    for s in seen.members:
        for r in s.claims:
            newest[r] = max(newest.get(r, -1), s.subscription.generation)
            key = (r, s.subscription.generation)
            times[key] = times.get(key, 0) + 1
    return [
        r
        for s in seen.members
        for r in s.revoked & s.claims
        if s.subscription.generation == newest[r]
        and times[r, newest[r]] == 1
        and r[0] in s.subscription.topics
        and seen.exists(r)
    ]
