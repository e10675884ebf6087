"""A group played by hand: members as claims, rounds planned by the real leader, no network.

**Rules.** Every member receives each round, unless it is ``unreached``. A member carries its shard
of the leader state; the member whose id comes first leads.

**Strategy.** :func:`holdfast.core.machine.leader.leader.plan_round`, and members that apply its
shards.

References: Incremental Cooperative Rebalancing, examples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.machine.subscribed import reports, subscribed

from holdfast.core.machine.leader.leader import plan_round
from holdfast.core.machine.leader.planner import PlannedRound
from holdfast.core.machine.leader.ring import shards
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import TopicPartitions, grouped, resources_of


@dataclass
class HandPlayedGroup:
    """Members, their claims and shards of the leader state; ``now_ms`` is everybody's clock."""

    policy: Policy
    partitions: dict[str, int]
    members: dict[str, SubscribedMember] = field(default_factory=dict)
    received_ms: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    now_ms: int = 0
    last: PlannedRound | None = None
    unbroken: bool = False  # whether the leader says that it was in the round before

    @classmethod
    def of(cls, policy: Policy, partitions: dict[str, int], **owned: str) -> HandPlayedGroup:
        """``A="T1,T4"`` owns partitions 1 and 4 of topic T; the leader state of that round
        included."""
        play = cls(policy, partitions)
        for name in sorted(owned):
            play.join(name)
        for name, what in owned.items():
            numbers = tuple(int(x[1:]) for x in what.split(",") if x)
            play.members[name] = reports(
                play.members[name], owned=(("T", numbers),) if numbers else (), generation=1
            )
        play.generation = 1
        if owned:
            play.round()  # stable: nothing moves, everybody has the leader state
        return play

    def join(self, name: str, *topics: str, instance: str | None = None, **fields: Any) -> None:
        """A member comes, with topic T unless others are named."""
        self.members[name] = subscribed(
            name, instance_id=instance, topics=topics or ("T",), **fields
        )
        self.received_ms[name] = self.now_ms

    def leave(self, *names: str) -> None:
        """Members are gone."""
        for name in names:
            del self.members[name]

    def claims(self) -> list[SubscribedMember]:
        """What the leader gets from the members."""
        return [
            reports(m, state_age_ms=self.now_ms - self.received_ms[m.member_id])
            for m in self.members.values()
        ]

    def round(self, *, unreached: tuple[str, ...] = ()) -> PlannedRound:
        """One round; ``unreached`` members never get their assignment."""
        self.generation += 1
        done = plan_round(
            self.policy,
            self.claims(),
            self.partitions,
            generation=self.generation,
            leader_id=min(self.members),
            unbroken=self.unbroken,
        )
        self.last = done
        carried = {} if done.leader_state is None else shards(done.leader_state)
        for name, planned in done.assignments.items():
            if name in unreached:
                continue
            owned = resources_of(self.members[name].subscription.owned) - resources_of(
                planned.revoked
            )
            owned |= resources_of(planned.gained)
            self.members[name] = reports(
                self.members[name],
                owned=grouped(sorted(owned)),
                generation=self.generation,
                already_revoked=planned.revoked,
                leader_state=carried.get(name),
            )
            self.received_ms[name] = self.now_ms
        return done

    def settle(self, limit: int = 20) -> int:
        """Rounds until none is asked for at once."""
        for n in range(1, limit + 1):
            if not self.round().again:
                return n
        raise AssertionError(f"not settled in {limit} rounds")

    def arrive(self, name: str, *topics: str, **fields: Any) -> None:
        """A member joins, and the group settles with it."""
        self.join(name, *topics, **fields)
        self.settle()

    def depart(self, *names: str) -> None:
        """Members are gone, and the group settles without them."""
        self.leave(*names)
        self.settle()

    def said(self, name: str) -> str:
        """What the last round gave a member, in the document's notation."""
        planned = self.last.assignments[name]
        return f"assigned:{_short(planned.gained)},revoked:{_short(planned.revoked)}"

    def owned(self, name: str) -> str:
        """What a member has."""
        return _short(self.members[name].subscription.owned)

    def all_owned(self) -> dict[str, str]:
        """What each member has."""
        return {name: self.owned(name) for name in sorted(self.members)}


def _short(partitions: TopicPartitions) -> str:
    return ",".join(f"{topic}{p}" for topic, numbers in partitions for p in numbers)
