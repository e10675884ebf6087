"""The laws of rebalance policies, each checked on rounds that the real leader plans.

**Rules.** Every policy of a design is held to all of them, the user's own too.

=================  ===============================================================================
``bounded``        the answer has the sizes of the imbalance, waits no longer than allowed,
                   and says when the group looks again at what it holds back
``deterministic``  the same round gives the same assignments
``independent``    so do members in another order
``settles``        where nothing happens any more, the group ends with every partition owned and
                   nothing left to move, after no more rounds than it has partitions and members
=================  ===============================================================================

**Strategy.** :func:`check_policy_laws` draws small groups from a seed, plays joins, departures and
time that passes, a round after each, and then lets the group rest. Members are their claims and
their shards of the leader state; messages are the real ones.

References: Incremental Cooperative Rebalancing, Designs II and III.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.assignor_protocol import (
    LeaderRound,
    MemberView,
    ReceivedAssignment,
)
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.policy import Policy, PolicyInfo, find_policy
from holdfast.core.machine.policy import policy as own_policy
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.model.partitions import Resource
from holdfast.errors import ConfigError, LawError, PlanError

_JOINS, _LEAVES, _RESTS = range(3)


def check_policy_laws(
    policy: str | PolicyInfo | Callable[..., object],
    *,
    n_groups: int = 50,
    seed: int = 0,
    **settings: Any,
) -> None:
    """Check that a rebalance policy keeps its laws.

    Parameters
    ----------
    policy : str, PolicyInfo or callable
        The name of a design's policy, what :func:`holdfast.policy` returned, or its function.
    n_groups : int
        Groups to be drawn, each with up to six members and twelve partitions.
    seed : int
        All chance comes from it.
    **settings
        Settings of the design, such as ``delay_ms=30_000``.

    Raises
    ------
    LawError
        With the law, what is wrong, and the events that led to it.
    ConfigError
        An unknown policy, or one without a design.

    Notes
    -----
    A law that holds on every drawn group is not proven.

    References: Incremental Cooperative Rebalancing, "Leader process".
    """
    if not isinstance(policy, str | PolicyInfo):
        policy = own_policy("own", policy)
    row = find_policy(policy)
    (assignor,) = assignors_for(row, replace(Policy(delay_ms=30_000), **settings))
    if not isinstance(assignor, DesignAssignor):
        raise ConfigError(f"policy {row.name}: it has no design, and resolves everything at once")
    rng = np.random.default_rng(seed)
    for at in range(n_groups):
        group = _PlayedGroup(assignor, {"t": int(rng.integers(1, 13))})
        try:
            _play(group, rng, n_events=min(at, 8))
        except PlanError as error:
            raise LawError("bounded", f"{error}; the events: {group.trace}") from error
        except LawError as error:
            text = f"{row.name}: {error.message}; the events: {group.trace}"
            raise LawError(error.law, text) from error


def _play(group: _PlayedGroup, rng: np.random.Generator, n_events: int) -> None:
    """Play some events with a round after each, then let the group rest."""
    group.join()
    group.round()
    for _ in range(n_events):
        event = int(rng.integers(3))
        if event == _JOINS and len(group.members) < 6:
            group.join()
        elif event == _LEAVES and len(group.members) > 1:
            group.leave(sorted(group.members)[int(rng.integers(len(group.members)))])
        else:
            group.rest(int(rng.choice([1_000, 10_000, 100_000])))
        group.round()
    _settles(group)


def _settles(group: _PlayedGroup) -> None:
    """Let the group do what its assignments ask for, until they ask for nothing."""
    most = 3 * (sum(group.partitions.values()) + len(group.members)) + 6
    for _ in range(most):
        again, delay_ms = group.round()
        if not again and not delay_ms:
            break
        group.rest(0 if again else delay_ms)
    else:
        raise LawError("settles", f"after {most} rounds in which nothing happens there is another")
    owned = [len(m.owned) for m in group.members.values()]
    if sum(owned) != sum(group.partitions.values()):
        raise LawError("settles", f"{owned} partitions are owned of {group.partitions}, at rest")
    if max(owned) - min(owned) > 1:
        raise LawError("settles", f"members own {owned} partitions, at rest")


@dataclass(slots=True)
class _PlayedMember:
    """A member as its leader sees it."""

    owned: frozenset[Resource] = frozenset()
    already_revoked: frozenset[Resource] = frozenset()
    generation: int = -1
    leader_state: bytes | None = None
    received_ms: int = 0


@dataclass(slots=True)
class _PlayedGroup:
    """A group on which its leader's rounds are played."""

    assignor: DesignAssignor
    partitions: Mapping[str, int]
    members: dict[str, _PlayedMember] = field(default_factory=dict)
    now_ms: int = 0
    generation: int = 0
    joined: int = 0
    trace: list[str] = field(default_factory=list)

    def join(self) -> None:
        """Add a member under a new id."""
        name = f"m{self.joined}"
        self.joined += 1
        self.members[name] = _PlayedMember(received_ms=self.now_ms)
        self.trace.append(f"{name} joins")

    def leave(self, name: str) -> None:
        """Remove a member with what it owned."""
        del self.members[name]
        self.trace.append(f"{name} leaves")

    def rest(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.trace.append(f"{ms} ms pass")

    def round(self) -> tuple[bool, int]:
        """Plan a round and apply it; return whether all rejoin at once, and the delay in ms."""
        self.generation += 1
        joined = tuple(self._joined(name) for name in sorted(self.members))
        plan = self._lead(joined)
        if self._lead(joined) != plan:
            raise LawError("deterministic", "the same round gives other assignments")
        if self._lead(joined[::-1]) != plan:
            raise LawError("independent", "members in another order get other assignments")
        read = {name: self.assignor.read(data) for name, data in plan.items()}
        for name, received in read.items():
            self._apply(self.members[name], received)
        return (
            any(each.again for each in read.values()),
            max(each.delay_ms for each in read.values()),
        )

    def _lead(self, joined: tuple[JoinedMember, ...]) -> dict[str, bytes]:
        leader_round = LeaderRound(
            members=joined,
            partitions=self.partitions,
            generation=self.generation,
            leader_id=min(self.members),
        )
        return self.assignor.lead(leader_round)

    def _joined(self, name: str) -> JoinedMember:
        m = self.members[name]
        view = MemberView(
            topics=tuple(sorted(self.partitions)),
            owned=tuple(sorted(m.owned)),
            previous=tuple(sorted(m.owned)),
            generation=m.generation,
            already_revoked=tuple(sorted(m.already_revoked)),
            leader_state=m.leader_state,
            state_age_ms=self.now_ms - m.received_ms,
        )
        return JoinedMember(member_id=name, metadata=self.assignor.subscribe(view))

    def _apply(self, member: _PlayedMember, read: ReceivedAssignment) -> None:
        member.owned = (member.owned - read.revoked) | read.assigned
        member.already_revoked = read.revoked
        member.generation = self.generation
        member.leader_state = read.leader_state
        member.received_ms = self.now_ms
