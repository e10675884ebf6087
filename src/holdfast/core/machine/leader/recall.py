"""The memory of the group, put together from the shares that its members bring.

**Rules.**

1. A share of this round's generation or of a later one is a lie and counts as none.
2. A share speaks about the part of the ring that it covers
   (:mod:`holdfast.core.machine.leader.ring`). Of the shares that cover an identity those of the
   newest generation are its *witnesses*. The leader's own share decides if it is a witness. Else
   the identity counts if no fewer witnesses name it, with the same content, than do not name it.
   Example: one member names a ghost that owns everything. The three members after the ghost's place
   in the ring do not name it, so there is no ghost.
   No share speaks about more of the ring than an honest one may: of the members here that bring a
   share of its generation, about the three before its own member. So each member is spoken for by
   its neighbours alone, however many liars say that nobody else was there.
   What takes a claim from a member must be said by two shares alike: one share may be forged.
3. Which list of what waits is true is said by the leader's own share if it has the newest
   generation, else by most shares of that generation, each by its digest. Nobody else's list is
   read. Of different lists with that digest the one that most members carry is true. If no member
   carries the true list, the list of the generation before is looked for.
4. A share ages by the clock of its member. The age of the memory is the leader's if the leader's
   share has that generation, else the median of the shares of that generation.
5. What remains of a time in the memory is never more than this leader's configuration has for it.
6. The memory is *complete* if the shares together cover the whole ring.
7. A topic's hash stands for the topic that has it. Of several that have it, one came later, by a
   chance of two in a million: it stands for those of them that some member claims, else for all.
8. A share that says of a member something else than the leader's own share of that generation is
   not of the leader's round, and counts as none. Example: a coordinator that lost a record uses a
   number twice. Of the two rounds of that number the leader believes in its own.
9. Entries of the list without partitions are not waited for: they tell who came and who left
   (:mod:`holdfast.core.machine.leader.successors`). If nothing else is in it, the list has no
   digest in other shares, so that a settled group stays small. Then the leader's own list counts,
   else the one that most members of the newest generation carry, and no fewer than two: one alone
   may lie.

**Strategy.** One pass over the shares makes arcs of the ring; sorted ends of arcs count the
witnesses of all identities at once. Names of departed members that own nothing any more cost
nothing.

References: Incremental Cooperative Rebalancing, "Leader exits and new leader is elected".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from holdfast.core.machine.leader.ring import hash_of_topic, identity_before
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import TopicPartitions, merge_topics
from holdfast.core.wire.layouts.memory import (
    COPIES,
    HASH_BITS,
    RememberedMember,
    Share,
    read_share,
)

_ROUND = 1 << HASH_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the shares of a round say together, brought up to date; topics by name."""

    generation: int  # the newest generation of a share
    pace_ms: int = 0  # Design III: how long until the next batch
    # Members of the last round, by identity; ``owned`` None where it was left out.
    named: tuple[RememberedMember, ...] = ()
    newest: tuple[RememberedMember, ...] = ()  # the same, as shares of ``generation`` alone say it
    # Those of ``newest`` and ``waiting`` that two shares say alike, or more.
    agreed: tuple[RememberedMember, ...] = ()
    # Departed members whose partitions wait ``delay_ms`` more, at least 1.
    waiting: tuple[RememberedMember, ...] = ()
    sure: bool = False  # whether the leader's own share says what waits, or two shares do
    # Who came or left lately, and when the group grew, as shares name them (rule 9).
    arrived: tuple[RememberedMember, ...] = ()
    complete: bool = True  # whether a member that is not named was not in the last round
    # Ids of members that bring a share and of which no other share can tell: one of the newest
    # generation speaks of members of that generation, any share of the others.
    untold: frozenset[str] = frozenset()


class _Carried(NamedTuple):
    """A share, the member that brings it, and its place in the ring."""

    member: SubscribedMember
    share: Share
    at: int
    first: int  # of the arc that it covers, up to the place before ``at``; ``at`` if it covers none
    leads: bool

    def covers(self, place: int) -> bool:
        """Whether it speaks about a place in the ring."""
        if self.first == self.at:
            return False
        return (place - self.first) % _ROUND < (self.at - self.first) % _ROUND


def recall(
    policy: Policy, members: Sequence[SubscribedMember], generation: int, leader_id: str
) -> Memory | None:
    """The memory of the group, or None if no member brings a share.

    Parameters
    ----------
    members : sequence of SubscribedMember
        Those of the round; a share that cannot be read counts as none.
    """
    carried = []
    for member in members:
        share = read_share(member.subscription.memory)
        if share is not None and share.generation < generation:
            carried.append(_carry(member, share, member.member_id == leader_id))
    if not carried:
        return None
    carried = _of_one_round(_cut_short(carried))
    newest = max(c.share.generation for c in carried)
    waiting, found, alike = _waiting(policy, carried)
    names = _Names(members)
    last = [c for c in carried if c.share.generation == newest]
    own = [c for c in last if c.leads]
    # A share of an older round cannot tell who came in the newest one.
    others = [*zip(last, _count_witnesses(last, [c.at for c in last]), strict=True)]
    older = [c for c in carried if c.share.generation != newest]
    others += zip(older, _count_witnesses(carried, [c.at for c in older]), strict=True)
    pace_ms = _median([c.share.pace_ms for c in own or last])
    said = {names.named(entry): n for entry, n in _named(carried).items()}
    newly = {names.named(entry): n for entry, n in _named(last).items()} if older else said
    waits = tuple(names.named(entry) for entry in waiting if not is_arrival(entry))
    return Memory(
        generation=newest,
        pace_ms=max(0, min(pace_ms, policy.longest_pause_ms) - _age_ms(last)),
        named=tuple(said),
        newest=tuple(newly),
        agreed=(*(e for e, n in newly.items() if n > 1), *(waits if alike > 1 else ())),
        waiting=waits,
        sure=alike > 1 or bool(own),
        arrived=tuple(filter(is_arrival, waiting or _arrived(policy, last))),
        complete=found and _cover_all(carried),
        untold=frozenset(c.member.member_id for c, n in others if not n),
    )


def _carry(member: SubscribedMember, share: Share, leads: bool) -> _Carried:
    at = _place(identity_before(member, share)[: share.identity_bits])
    first = at
    if share.whole:
        first = (at + 1) % _ROUND
    elif share.after:
        first = (_place(share.after) + 1) % _ROUND
    return _Carried(member, share, at, first, leads)


def _cut_short(carried: list[_Carried]) -> list[_Carried]:
    """The shares, each from behind the fourth member before its own at most (rule 2)."""
    of_generation: dict[int, list[int]] = {}
    for c in carried:
        of_generation.setdefault(c.share.generation, []).append(c.at)
    every = {generation: sorted(set(at)) for generation, at in of_generation.items()}

    def cut(c: _Carried) -> _Carried:
        places = every[c.share.generation]
        if c.first == c.at or len(places) <= COPIES + 1:
            return c
        fourth = places[bisect_left(places, c.at) - COPIES - 1]
        first = (fourth + 1) % _ROUND
        longer = (c.at - c.first) % _ROUND > (c.at - first) % _ROUND
        return c._replace(first=first) if longer else c

    return [cut(c) for c in carried]


def _of_one_round(carried: list[_Carried]) -> list[_Carried]:
    """The shares without those that contradict the leader's own of that generation (rule 8)."""
    own = next((c for c in carried if c.leads), None)
    if own is None:
        return carried
    said = {entry.identity: entry for entry in own.share.neighbours}

    def contradicts(c: _Carried) -> bool:
        if c.share.generation != own.share.generation:
            return False
        entries = {entry.identity: entry for entry in c.share.neighbours}
        for identity in entries.keys() & said.keys():
            here, there = entries[identity].owned, said[identity].owned
            if here is not None and there is not None and here != there:
                return True
        return False

    return [c for c in carried if not contradicts(c)]


def _place(identity: str) -> int:
    """Where an identity stands in the ring: a number of 64 bits."""
    return int(identity.ljust(HASH_BITS, "0"), 2)


# Times


def _age_ms(of_generation: Sequence[_Carried]) -> int:
    own = [c for c in of_generation if c.leads]
    return _median([c.member.subscription.memory_age_ms for c in own or of_generation])


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]


# What waits


def _waiting(
    policy: Policy, carried: Sequence[_Carried]
) -> tuple[tuple[RememberedMember, ...], bool, int]:
    """The true list of what waits, with the time that remains.

    Whether it was found, and how many shares have its digest.
    """
    by_generation: dict[int, list[_Carried]] = {}
    for c in carried:
        by_generation.setdefault(c.share.generation, []).append(c)
    for _, of_generation in sorted(by_generation.items(), reverse=True):
        own = [c for c in of_generation if c.leads]
        counts = Counter(c.share.digest for c in own or of_generation)
        digest = max(counts, key=lambda d: (counts[d], d))
        if not digest:
            return (), True, 0
        carriers = [c for c in of_generation if c.share.digest == digest and c.share.waiting]
        if (found := _most_carried(carriers)) is not None:
            alike = sum(c.share.digest == digest for c in of_generation)
            return _aged(policy, found, _age_ms(of_generation)), True, alike
    return (), False, 0


def _arrived(policy: Policy, last: Sequence[_Carried]) -> tuple[RememberedMember, ...]:
    """A list that holds arrivals alone, by the members that carry one (rule 9)."""
    carriers = [c for c in last if c.share.waiting and all(map(is_arrival, c.share.waiting))]
    found = _most_carried(carriers)
    agree = [c for c in carriers if c.share.waiting == found]
    if found is None or (len(agree) < 2 and not any(c.leads for c in agree)):
        return ()
    return _aged(policy, found, _age_ms(agree))


def _most_carried(carriers: Sequence[_Carried]) -> tuple[RememberedMember, ...] | None:
    """The list of the leader if it carries one, else the list that most of them carry."""
    lists = Counter(c.share.waiting for c in [c for c in carriers if c.leads] or carriers)
    return max(lists, key=lambda each: (lists[each], repr(each))) if lists else None


def _aged(
    policy: Policy, entries: Sequence[RememberedMember], age_ms: int
) -> tuple[RememberedMember, ...]:
    return tuple(
        replace(w, delay_ms=max(1, min(w.delay_ms, longest_wait_ms(policy, w)) - age_ms))
        for w in entries
    )


def is_arrival(entry: RememberedMember) -> bool:
    """Whether an entry of what waits tells who came or left, and is not waited for (rule 9)."""
    return not entry.owned


def is_first_wait(entry: RememberedMember) -> bool:
    """Whether an entry of what waits stands for the first members of a new group."""
    return entry.static and not entry.identity


def longest_wait_ms(policy: Policy, entry: RememberedMember) -> int:
    """How long an entry of what waits may wait at most (rule 5)."""
    if is_arrival(entry):
        return policy.recent_ms
    return policy.first_member_delay_ms if is_first_wait(entry) else policy.longest_delay_ms


# Who was there


def _named(carried: Sequence[_Carried]) -> dict[RememberedMember, int]:
    """Those of the named that most witnesses name, by identity, and how many do (rule 2)."""
    votes: dict[str, dict[int, Counter[RememberedMember]]] = {}
    for c in carried:
        said = {entry.identity: entry for entry in c.share.neighbours}  # each has one voice
        for entry in said.values():
            if c.covers(_place(entry.identity)):
                by_generation = votes.setdefault(entry.identity, {})
                by_generation.setdefault(c.share.generation, Counter())[entry] += 1
    own = next((c for c in carried if c.leads), None)
    open_ones = sorted(votes)
    named = {}
    for generation in sorted({c.share.generation for c in carried}, reverse=True):
        if not open_ones:
            break
        witnesses = [c for c in carried if c.share.generation == generation]
        counts = _count_witnesses(witnesses, [_place(identity) for identity in open_ones])
        still_open = []
        for identity, count in zip(open_ones, counts, strict=True):
            if not count:
                still_open.append(identity)
                continue
            says = votes[identity].get(generation, Counter())
            speaks = own is not None and own.share.generation == generation
            found = _believed(identity, says, count, own if speaks else None)
            if found is not None:
                named[found] = says[found]
        open_ones = still_open
    return dict(sorted(named.items(), key=lambda item: item[0].identity))


def _believed(
    identity: str, says: Counter[RememberedMember], witnesses: int, own: _Carried | None
) -> RememberedMember | None:
    """What counts as true about an identity, None if it was not there."""
    if own is not None and own.covers(_place(identity)):
        return next((e for e in own.share.neighbours if e.identity == identity), None)
    if not says:
        return None
    most = max(says.values())
    best = min((e for e, n in says.items() if n == most), key=repr)
    return best if most >= witnesses - says.total() else None


def _count_witnesses(carried: Sequence[_Carried], places: Sequence[int]) -> list[int]:
    """How many of these shares cover each place."""
    firsts, lasts = _arcs(carried)
    at = np.array(places, np.uint64)
    begun = np.searchsorted(np.sort(firsts), at, side="right")
    ended = np.searchsorted(np.sort(lasts), at, side="left")
    counts: list[int] = (begun - ended).tolist()
    return counts


def _cover_all(carried: Sequence[_Carried]) -> bool:
    """Whether the shares and the members themselves cover the whole ring."""
    firsts, lasts = _arcs(carried)
    places = np.array([c.at for c in carried], np.uint64)
    firsts, lasts = np.concatenate((firsts, places)), np.concatenate((lasts, places))
    order = np.argsort(firsts, kind="stable")
    firsts, lasts = firsts[order], np.maximum.accumulate(lasts[order])
    top = np.uint64(_ROUND - 1)
    gaps = (lasts[:-1] != top) & (firsts[1:] > lasts[:-1] + np.uint64(1))
    return bool(firsts[0] == 0 and lasts[-1] == top and not gaps.any())


def _arcs(carried: Sequence[_Carried]) -> tuple[np.ndarray, np.ndarray]:
    """First and last place of each arc; one that passes the top of the ring is two."""
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
    """Names of the topics that somebody subscribes to, by their hashes (rule 7)."""

    def __init__(self, members: Sequence[SubscribedMember]):
        self.topics = sorted({t for m in members for t in m.subscription.topics})
        self.claimed = {t for m in members for t, numbers in m.subscription.owned if numbers}
        self.by_hash: dict[int, dict[str, list[str]]] = {}

    def named(self, entry: RememberedMember) -> RememberedMember:
        """The same member with topics by name."""
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
            for alike in found.values():
                alike[:] = [topic for topic in alike if topic in self.claimed] or alike
            self.by_hash[size] = found
        return self.by_hash[size]
