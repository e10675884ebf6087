"""The leader state of a group, reconstructed from the shards that its members bring.

**Rules.**

1. A shard of this round's generation or of a later one is ignored: its generation belongs to a
   history that the coordinator has lost.
2. A shard speaks about the part of the ring that it covers
   (:mod:`holdfast.core.machine.leader.ring`). Of the shards that cover an identity, those of the
   newest generation say whether that member was in the round, and what it owned. Members are
   trusted, as in Kafka: shards of one round agree. Example: a shard of generation 6 names D. A
   shard of generation 7 covers D's position in the ring and does not name D, so D left between the
   two rounds.
3. Where shards of one generation differ, the leader's own shard counts, else that of the first
   member by id. Example: a coordinator that lost a record uses a generation twice.
4. The leader's shard of the newest generation says what waits, else the shard of the first member
   by id: its list, or the list with its digest. If no member carries that list, the leader looks
   for the list of the generation before.
5. A shard ages by the clock of its member. The age of the leader state is the leader's if the
   leader's shard has that generation, else the median of the shards of that generation.
6. No remaining time in the leader state exceeds this leader's configuration.
7. The leader state is *complete* if the shards together cover the whole ring.
8. A topic's hash names the topic that has it. If several topics have it, one of them was created
   later, by a chance of two in a million: the hash names those of them that some member claims,
   else all.
9. Nothing waits for entries of the list without partitions: they name members that joined or left
   recently (:mod:`holdfast.core.machine.leader.successors`). If the list has no other entries,
   other shards have no digest of it, so that the shards of a settled group stay small. Then the
   first shard that carries a list counts.

**Strategy.** One pass over the shards, the leader's first, makes arcs of the ring; sorted ends of
arcs count how many shards cover each identity at once. Names of departed members that own nothing
cost nothing.

References: Incremental Cooperative Rebalancing, "Leader exits and new leader is elected".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from holdfast.core.machine.leader.subscriptions import (
    SubscribedMember,
    alike,
    hash_of_topic,
    identities_of,
    identity_before,
    identity_of_id,
    identity_of_location,
)
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import TopicPartitions, merge_topics
from holdfast.core.wire.layouts.state_shard import (
    HASH_BITS,
    MemberEntry,
    StateShard,
    read_shard,
)

_ROUND = 1 << HASH_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """The leader state that the shards of a round describe, brought up to date; topics by name."""

    generation: int  # the newest generation of a shard
    pace_ms: int = 0  # Design III: how long until the next batch
    # Members of the last round, by identity; ``owned`` is None where it was left out.
    named: tuple[MemberEntry, ...] = ()
    # Departed members whose partitions wait ``delay_ms`` more, at least 1.
    waiting: tuple[MemberEntry, ...] = ()
    # Members that joined or left recently, and when the group grew, as shards say it (rule 9).
    recent_changes: tuple[MemberEntry, ...] = ()
    complete: bool = True  # whether a member that is not named was not in the last round
    # Ids of members that bring a shard and that no other shard can name: a shard of the newest
    # generation can name members of that generation, any shard the others.
    unreported: frozenset[str] = frozenset()


class _Carried(NamedTuple):
    """A shard, the member that brings it, and the member's position in the ring."""

    member: SubscribedMember
    shard: StateShard
    at: int
    # of the arc that it covers, up to the position before ``at``; ``at`` if it covers none
    first: int
    leads: bool


def reconstruct(
    policy: Policy, members: Sequence[SubscribedMember], generation: int, leader_id: str
) -> LeaderState | None:
    """Reconstruct the leader state of the group; None if no member brings a shard.

    Parameters
    ----------
    members : sequence of SubscribedMember
        The members of the round; a shard that cannot be read is ignored.
    """
    carried, forgotten = [], []
    # The leader's shard comes first: it decides where shards of one generation differ (rule 3).
    for member in sorted(members, key=lambda m: (m.member_id != leader_id, m.member_id)):
        shard = read_shard(member.subscription.leader_state)
        if shard is not None and shard.generation < generation:
            carried.append(_carry(member, shard, member.member_id == leader_id))
        elif shard is not None:
            forgotten.append(member)
    if not carried:
        return None
    newest = max(c.shard.generation for c in carried)
    last = _of_generation(carried, newest)
    waiting, found = _waiting(policy, carried)
    names = _Names(members)
    # A shard of an older round cannot name members that joined in the newest one.
    others = [*zip(last, _count_covering(last, [c.at for c in last]), strict=True)]
    older = [c for c in carried if c.shard.generation != newest]
    others += zip(older, _count_covering(carried, [c.at for c in older]), strict=True)
    pace_ms = min(last[0].shard.pace_ms, policy.longest_pause_ms) - _age_ms(last)
    return LeaderState(
        generation=newest,
        pace_ms=max(0, pace_ms),
        named=tuple(map(names.named, _named(carried))),
        waiting=tuple(names.named(entry) for entry in waiting if not is_recent_change(entry)),
        recent_changes=tuple(filter(is_recent_change, waiting or _recent_changes(policy, last))),
        complete=found and _cover_all(carried),
        unreported=frozenset(c.member.member_id for c, n in others if not n)
        | _uncovered(carried, forgotten),
    )


def _carry(member: SubscribedMember, shard: StateShard, leads: bool) -> _Carried:
    at = _position(identity_before(member, shard)[: shard.sizes.identity_bits])
    first = at
    if shard.whole:
        first = (at + 1) % _ROUND
    elif shard.after:
        first = (_position(shard.after) + 1) % _ROUND
    return _Carried(member, shard, at, first, leads)


def _of_generation(carried: Sequence[_Carried], generation: int) -> list[_Carried]:
    return [c for c in carried if c.shard.generation == generation]


def _newest_first(carried: Sequence[_Carried]) -> list[int]:
    """Return the generations of the shards, newest first."""
    return sorted({c.shard.generation for c in carried}, reverse=True)


def _position(identity: str) -> int:
    """Return the position of an identity in the ring, a number of 64 bits."""
    return int(identity.ljust(HASH_BITS, "0"), 2)


# Times


def _age_ms(of_generation: Sequence[_Carried]) -> int:
    # The leader measured its own age. Of ages that others report the median counts, which no single
    # member can move.
    own = [c for c in of_generation if c.leads]
    return _median([c.member.subscription.state_age_ms for c in own or of_generation])


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]


# What waits


def _waiting(policy: Policy, carried: Sequence[_Carried]) -> tuple[tuple[MemberEntry, ...], bool]:
    """Return the list of what waits, with remaining times, and whether it was found (rule 4)."""
    for generation in _newest_first(carried):
        shards = _of_generation(carried, generation)
        digest = shards[0].shard.digest
        if not digest:
            return (), True
        lists = (c.shard.waiting for c in shards if c.shard.digest == digest)
        if found := next(filter(None, lists), None):
            return _aged(policy, found, _age_ms(shards)), True
    return (), False


def _recent_changes(policy: Policy, last: Sequence[_Carried]) -> tuple[MemberEntry, ...]:
    """Return the first list that holds recent joiners alone (rule 9)."""
    carriers = [c for c in last if c.shard.waiting and all(map(is_recent_change, c.shard.waiting))]
    if not carriers:
        return ()
    return _aged(policy, carriers[0].shard.waiting or (), _age_ms(carriers))


def _aged(policy: Policy, entries: Sequence[MemberEntry], age_ms: int) -> tuple[MemberEntry, ...]:
    return tuple(
        replace(w, delay_ms=max(1, min(w.delay_ms, longest_wait_ms(policy, w)) - age_ms))
        for w in entries
    )


def is_recent_change(entry: MemberEntry) -> bool:
    """Return whether an entry names a member that joined or left, and nothing waits (rule 9)."""
    return not entry.owned


def is_first_wait(entry: MemberEntry) -> bool:
    """Return whether an entry of what waits is that of the first members of a new group."""
    return entry.static and not entry.identity


def longest_wait_ms(policy: Policy, entry: MemberEntry) -> int:
    """Return the longest time that an entry of what waits may wait, in ms (rule 6)."""
    if is_recent_change(entry):
        return policy.recent_ms
    return policy.first_member_delay_ms if is_first_wait(entry) else policy.longest_delay_ms


# Members of the last round


def _named(carried: Sequence[_Carried]) -> list[MemberEntry]:
    """Return the members of the last round by identity, as the newest shards name them (rule 2)."""
    named: list[MemberEntry] = []
    newer: list[_Carried] = []
    for generation in _newest_first(carried):
        shards = _of_generation(carried, generation)
        said: dict[str, MemberEntry] = {}
        for entry in (entry for c in shards for entry in c.shard.neighbours):
            said.setdefault(entry.identity, entry)  # the leader's shard comes first (rule 3)
        counts = _count_covering(newer, [_position(identity) for identity in said])
        named += [entry for entry, n in zip(said.values(), counts, strict=True) if not n]
        newer += shards
    return sorted(named, key=lambda entry: entry.identity)


def _count_covering(carried: Sequence[_Carried], positions: Sequence[int]) -> list[int]:
    """Count the shards that cover each position."""
    firsts, lasts = _arcs(carried)
    at = np.array(positions, np.uint64)
    begun = np.searchsorted(np.sort(firsts), at, side="right")
    ended = np.searchsorted(np.sort(lasts), at, side="left")
    counts: list[int] = (begun - ended).tolist()
    return counts


def _uncovered(
    carried: Sequence[_Carried], forgotten: Sequence[SubscribedMember]
) -> frozenset[str]:
    """Members out of a history that the coordinator has lost, which no shard can name (rule 1).

    The round of a shard may have known a member by any of its identities.
    """
    if not forgotten:
        return frozenset()
    positions = [(m.member_id, identity) for m in forgotten for identity in identities_of(m)]
    covering = np.zeros(len(positions), np.int64)
    for size in {c.shard.sizes.identity_bits for c in carried}:
        shards = [c for c in carried if c.shard.sizes.identity_bits == size]
        covering += _count_covering(shards, [_position(whole[:size]) for _, whole in positions])
    return frozenset(
        name for (name, _), n in zip(positions, covering.tolist(), strict=True) if not n
    )


def _cover_all(carried: Sequence[_Carried]) -> bool:
    """Return whether the shards and the members themselves cover the whole ring."""
    firsts, lasts = _arcs(carried)
    positions = np.array([c.at for c in carried], np.uint64)
    firsts, lasts = np.concatenate((firsts, positions)), np.concatenate((lasts, positions))
    order = np.argsort(firsts, kind="stable")
    firsts, lasts = firsts[order], np.maximum.accumulate(lasts[order])
    top = np.uint64(_ROUND - 1)
    gaps = (lasts[:-1] != top) & (firsts[1:] > lasts[:-1] + np.uint64(1))
    return bool(firsts[0] == 0 and lasts[-1] == top and not gaps.any())


def _arcs(carried: Sequence[_Carried]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last position of each arc; one that passes the ring's top is two."""
    firsts, lasts = [], []
    for c in carried:
        if c.first == c.at:
            continue
        last = (c.at - 1) % _ROUND
        if c.first <= last:
            firsts.append(c.first)
            lasts.append(last)
        else:
            firsts += [c.first, 0]
            lasts += [_ROUND - 1, last]
    return np.array(firsts, np.uint64), np.array(lasts, np.uint64)


class _Names:
    """Names of the topics to which members subscribe, by their hashes (rule 8)."""

    def __init__(self, members: Sequence[SubscribedMember]):
        self.topics = sorted({t for m in members for t in m.subscription.topics})
        self.claimed = {t for m in members for t, numbers in m.subscription.owned if numbers}
        self.by_hash: dict[int, dict[str, list[str]]] = {}

    def named(self, entry: MemberEntry) -> MemberEntry:
        """Return the same member with topics by name."""
        if not entry.owned:
            return entry
        return replace(entry, owned=self._partitions(entry.owned))

    def _partitions(self, owned: TopicPartitions) -> TopicPartitions:
        names = self._of_size(len(owned[0][0]))
        return merge_topics(
            (name, numbers) for topic, numbers in owned for name in names.get(topic, ())
        )

    def _of_size(self, size: int) -> dict[str, list[str]]:
        if size not in self.by_hash:
            found: dict[str, list[str]] = {}
            for topic in self.topics:
                found.setdefault(hash_of_topic(topic)[:size], []).append(topic)
            # Topics with equal hashes: one that a member claims existed in the last round, so it is
            # meant.
            for alike in found.values():
                alike[:] = [topic for topic in alike if topic in self.claimed] or alike
            self.by_hash[size] = found
        return self.by_hash[size]


class PresentMembers:
    """The members of a round by identity, cut to any size; a shared identity is no member's.

    A member with a generation was in the last round, because a coordinator that removes a member
    ends its generation. So an identity that the last round named belongs to such a member, even if
    a member that joins now has the same one. If such a member missed the assignment of the last
    round, it cannot say that this round named it by its location.

    Example: C misses the assignment of a round that named it by its location. D joins with the same
    location, so neither has it now. C is the member that the leader state names, and what C claims
    waits for nobody.
    """

    def __init__(self, members: Sequence[SubscribedMember], leader_state: LeaderState | None):
        newest = -1 if leader_state is None else leader_state.generation
        every = [(whole, i) for i, m in enumerate(members) for whole in identities_of(m)]
        there = [(whole, i) for whole, i in every if members[i].subscription.generation >= 0]
        there += [
            (identity_of_location(m.subscription.location), i)
            for i, m in enumerate(members)
            if 0 <= m.subscription.generation < newest
            and m.subscription.location
            and m.instance_id is None
        ]
        self._index_of = _index_by_identity(every)
        self._index_there = _index_by_identity(list(dict.fromkeys(there)))

    def find(self, who: MemberEntry) -> int | None:
        """Return the index of the member that an entry names, None if it is not in the round."""
        member = self.find_there(who)
        return self._index_of(who.identity) if member is None else member

    def find_there(self, who: MemberEntry) -> int | None:
        """Return the same only if the member was in the last round as well."""
        # A member for which something waits was not in the last round.
        return None if who.delay_ms else self._index_there(who.identity)


def _index_by_identity(every: Sequence[tuple[str, int]]) -> Callable[[str], int | None]:
    """Return a function from an identity, cut to any size, to the index of its member, or None.

    An identity that two members share is no member's.
    """
    said = Counter(whole for whole, _ in every)
    identities = [(whole, i) for whole, i in every if said[whole] == 1]
    by_size: dict[int, dict[str, int]] = {}

    def find(identity: str) -> int | None:
        size = len(identity)
        if not size:
            return None
        if size not in by_size:
            by_size[size] = {whole[:size]: i for whole, i in identities}
        return by_size[size].get(identity)

    return find


def is_new(member: SubscribedMember) -> bool:
    """Return whether a member stays and has been in no generation."""
    return member.stays and member.subscription.generation < 0


def is_back(who: MemberEntry, member: SubscribedMember) -> bool:
    """Return whether another process has a member's instance id or location, in no generation."""
    same = alike(who.identity, identity_of_id(member))
    return not same and member.subscription.generation < 0
