"""Design II's decision: which partitions wait for a departed member, and which do not.

A partition that nobody claims is *unclaimed*. A member that the memory names and that is not in the
round is *departed*. All examples are a group of members A, B and C that own partitions 0, 1 and 2
of one topic, with a delay of 30 s.

**Rules.**

1. Of several memories the one with the highest generation counts. Each member carries a copy and
   says how old it is; the age of the oldest copy is subtracted from every delay in the memory. A
   deadline therefore goes on when the leader changes, and never starts again (L5, L6).
   Example: C departs, the memory says "partition 2 waits 30 s". The leader A departs 10 s later.
   B, whose copy is 10 s old, leads and waits 20 s more.
2. An unclaimed partition waits only if the memory names an owner of it and that owner has departed.
   It does not wait if its owner is here, if its owner gave it up because the leader asked, or if
   the memory does not know it (D3, D4, KAFKA-9848). A memory that was too large names no owners;
   then every unclaimed partition counts as one of the departed member that comes first by id.
   Example: the topic grows to four partitions; nobody ever owned partition 3, so it does not wait.
3. Each departed member has a deadline of its own; a later departure does not change it. A member
   that leaves for good counts as departed; under ``Policy.clean_leave`` immediate nothing waits
   for it.
   Example: C departs, 20 s later B. Partition 2 waits 10 s more, partition 1 waits 30 s.
4. Until the deadline, a member that is back by its identity (its instance id, or its member id if
   it is dynamic) gets exactly the partitions that wait for it. The partitions of a *static* member
   go to nobody else. Those of a *dynamic* member go to newcomers that claim nothing: each newcomer
   gets partitions of one departed member, at most its fair share and only of topics it subscribes
   to. What is left waits on (D1, D2).
   Example: C departs and D joins. If C was dynamic, D gets partition 2 at once.
5. Without any memory the leader guesses. If no member claims anything of a topic, the topic is new
   and does not wait. If some member claims nothing, it counts as a departed member that is back,
   and nothing waits. Else the unclaimed partitions wait for an unknown owner.
   Example: A and B join with claims of 0 and 1 and without memory: partition 2 waits 30 s.
6. Without memory and without any claim the group is new: ``Policy.first_member`` decides whether
   its partitions are assigned now or after one delay.

**Strategy.** Pure functions from claims and memories to masks over topic-partitions.

References: Incremental Cooperative Rebalancing, Design II, "Leader process" and "Events".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.assignors.claims import Claims
from holdfast.machine.leader.subscriptions import SubscribedMember
from holdfast.machine.policy import Policy, When
from holdfast.model.columns import I32, NO_OWNER, Mask
from holdfast.model.group import Group
from holdfast.model.partition_columns import partitions_of, tps_of
from holdfast.model.partitions import TopicPartitions
from holdfast.model.topics import Topics
from holdfast.wire.layouts.container import MemberSubscription
from holdfast.wire.layouts.memory import Memory, RememberedMember, read_memory

UNKNOWN_OWNER = ""
"""Member id that stands for an unknown owner (rule 5)."""

FIRST_MEMBERS = "(first members)"
"""Member id for which the partitions of a new group wait (rule 6)."""

OWNERS_NOT_NAMED = "(owners not named)"
"""Member id of the entry that marks a memory too large to name owners."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DepartedMember:
    """A departed member and its unclaimed partitions.

    Parameters
    ----------
    who : RememberedMember
        As the memory has it.
    remaining_ms : int
        How long ``tps`` still wait, from now.
    tps : int32[...]
        Sorted.
    """

    who: RememberedMember
    remaining_ms: int
    tps: I32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deferral:
    """What the leader decides about unclaimed topic-partitions.

    Parameters
    ----------
    waiting : tuple of DepartedMember
        Their partitions are assigned to nobody in this round.
    pinned : int32[n_tps]
        The one member that may get an unclaimed topic-partition, or NO_OWNER.
    exact : tuple of int
        Members that are back by their identity: they get exactly what is pinned to them.
    pace_ms : int
        Design III: how long until the next batch may move.
    """

    waiting: tuple[DepartedMember, ...]
    pinned: I32
    exact: tuple[int, ...]
    pace_ms: int

    @property
    def delay_ms(self) -> int:
        """Time until the first deadline, 0 if nothing waits."""
        return min((w.remaining_ms for w in self.waiting), default=0)


def recall(subscriptions: Iterable[MemberSubscription], generation: int) -> Memory | None:
    """The memory of the group, with its delays brought up to date (rule 1).

    Parameters
    ----------
    subscriptions : iterable of MemberSubscription
        Those of the round; a copy of the memory that cannot be read counts as none.
    generation : int
        Generation of this round; a copy of this or a later generation cannot be true.

    References: Incremental Cooperative Rebalancing, "Leader exits and new leader is elected".
    """
    ages: dict[bytes, list[int]] = {}
    for one in subscriptions:
        if one.memory is not None:
            ages.setdefault(one.memory, []).append(one.memory_age_ms)
    text = newest_text(ages, generation)
    newest = read_memory(text)
    if newest is None or text is None:
        return None
    age_ms = max(ages[text])
    members = tuple(
        replace(m, delay_ms=max(1, m.delay_ms - age_ms)) if m.delay_ms else m
        for m in newest.members
    )
    return replace(newest, delay_ms=max(0, newest.delay_ms - age_ms), members=members)


def newest_text(ages: Mapping[bytes, Sequence[int]], generation: int) -> bytes | None:
    """The memory that counts, of several with the ages of their copies.

    The highest generation wins. A coordinator that lost records uses a generation number twice; of
    two memories of one generation the one with the youngest copy wins.
    """
    best: tuple[int, int, bytes] | None = None
    for text, copies in ages.items():
        memory = read_memory(text)
        if memory is None or memory.generation >= generation:
            continue
        rank = (memory.generation, -min(copies), text)
        if best is None or rank > best:
            best = rank
    return None if best is None else best[2]


def defer(
    policy: Policy,
    claims: Claims,
    members: Sequence[SubscribedMember],
    memory: Memory | None,
    free: Mask,
) -> Deferral:
    """Decide which unclaimed topic-partitions wait, and which are pinned to a member.

    Parameters
    ----------
    claims : Claims
        Of this round, normalised.
    members : sequence of SubscribedMember
        Those of the group, in its order.
    memory : Memory or None
        From :func:`recall`.
    free : bool[n_tps]
        Topic-partitions with a subscriber and without a claim.

    References: Incremental Cooperative Rebalancing, Design II, "Leader process".
    """
    topics = claims.group.topics
    pinned = np.full(topics.n_tps, NO_OWNER, np.int32)
    pace_ms = 0 if memory is None else memory.delay_ms
    if not policy.defers:
        return Deferral(waiting=(), pinned=pinned, exact=(), pace_ms=pace_ms)
    lost = _departed(policy, claims, members, memory, free)
    exact, lost = _return_known([w for w in lost if len(w.tps)], members, pinned)
    lost = [w for w in lost if w.remaining_ms > policy.tolerance_ms]
    lost = _serve_newcomers(lost, members, memory, pinned, free=free, group=claims.group)
    return Deferral(waiting=tuple(lost), pinned=pinned, exact=exact, pace_ms=pace_ms)


def _departed(
    policy: Policy,
    claims: Claims,
    members: Sequence[SubscribedMember],
    memory: Memory | None,
    free: Mask,
) -> list[DepartedMember]:
    """Departed members by deadline, with their unclaimed partitions (rules 2 and 3)."""
    topics = claims.group.topics
    if memory is None:
        return _guess(policy, claims, members, free)
    leaves = {m.member_id for m in members if m.leaves_for_good}
    here = {m.member_id for m in members} - leaves
    unowned = free.copy()
    unowned[tps_of(topics, memory.given_up)] = False
    departed = []
    for who in memory.members:
        if who.member_id == OWNERS_NOT_NAMED:
            continue
        tps = tps_of(topics, who.owned)
        tps = tps[unowned[tps]]
        unowned[tps] = False
        if who.member_id in here and not who.delay_ms:
            continue  # its owner is here: a sync that failed
        if who.member_id in leaves and policy.clean_leave is When.IMMEDIATE:
            continue
        departed.append(
            DepartedMember(who=who, remaining_ms=who.delay_ms or policy.delay_ms, tps=tps)
        )
    fresh = [i for i, w in enumerate(departed) if not w.who.delay_ms]
    unnamed = any(who.member_id == OWNERS_NOT_NAMED for who in memory.members)
    if unnamed and fresh and unowned.any():
        # The memory was too large to name owners: what is missing belongs to the first departed.
        first = departed[fresh[0]]
        tps = np.union1d(first.tps, np.flatnonzero(unowned)).astype(np.int32)
        departed[fresh[0]] = replace(first, tps=tps)
    return sorted(departed, key=lambda w: (w.remaining_ms, w.who.member_id))


def _guess(
    policy: Policy, claims: Claims, members: Sequence[SubscribedMember], free: Mask
) -> list[DepartedMember]:
    """The waiting partitions if no member carries a memory (rules 5 and 6)."""
    topics = claims.group.topics
    claimed = claims.claim_tp
    if not len(claimed):
        if policy.first_member is When.IMMEDIATE:
            return []
        who, lost = FIRST_MEMBERS, free
    else:
        n_claims = np.diff(claims.group.claim_start).tolist()
        if any(n == 0 and m.stays for m, n in zip(members, n_claims, strict=True)):
            return []
        seen = np.zeros(topics.n_topics, bool)
        seen[topics.topic_of[claimed]] = True
        who, lost = UNKNOWN_OWNER, free & seen[topics.topic_of]
    remembered = RememberedMember(member_id=who, delay_ms=policy.delay_ms)
    tps = np.flatnonzero(lost).astype(np.int32)
    return [DepartedMember(who=remembered, remaining_ms=policy.delay_ms, tps=tps)]


def _return_known(
    lost: list[DepartedMember], members: Sequence[SubscribedMember], pinned: I32
) -> tuple[tuple[int, ...], list[DepartedMember]]:
    """Pin to each member that is back by its identity the partitions that waited (rule 4)."""
    back: dict[str, int] = {}
    for i, m in enumerate(members):
        if not m.leaves_for_good:
            back["member " + m.member_id] = i
            if m.instance_id is not None:
                back["instance " + m.instance_id] = i
    exact, rest = set(), []
    for waiting in lost:
        who = waiting.who
        name = "member " + who.member_id
        if who.instance_id is not None:
            name = "instance " + who.instance_id
        member = back.get(name)
        if member is None:
            rest.append(waiting)
            continue
        pinned[waiting.tps] = member
        exact.add(member)
    return tuple(sorted(exact)), rest


def _serve_newcomers(
    lost: list[DepartedMember],
    members: Sequence[SubscribedMember],
    memory: Memory | None,
    pinned: I32,
    *,
    free: Mask,
    group: Group,
) -> list[DepartedMember]:
    """Pin what one departed member owned to one newcomer without claims (rule 4)."""
    old = set() if memory is None else {m.member_id for m in memory.members}
    served = set(pinned.tolist())
    n_claims = np.diff(group.claim_start).tolist()
    newcomers = [
        i
        for i, (m, n) in enumerate(zip(members, n_claims, strict=True))
        if n == 0 and m.member_id not in old and m.stays and i not in served
    ]
    takers = sum(m.stays for m in members)
    total = int(np.count_nonzero(free)) + sum(n_claims)
    share = -(-total // max(1, takers))
    rest = []
    for waiting in lost:
        who = waiting.who
        if who.instance_id is not None or who.member_id == FIRST_MEMBERS:
            rest.append(waiting)
            continue
        tps = waiting.tps
        for member in tuple(newcomers):
            topics = group.sub_topic[group.sub_start[member] : group.sub_start[member + 1]]
            given = tps[np.isin(group.topics.topic_of[tps], topics)][:share]
            if len(given):
                newcomers.remove(member)
                pinned[given] = member
                tps = np.setdiff1d(tps, given).astype(np.int32)
        if len(tps):
            rest.append(replace(waiting, tps=tps))
    return rest


def remember(
    *,
    generation: int,
    owned: Mapping[int, TopicPartitions] | None,
    members: Sequence[SubscribedMember],
    topics: Topics,
    deferral: Deferral,
    given_up: I32,
    pace_ms: int,
) -> Memory:
    """The memory for the next leader: members with their partitions, departed ones, revocations.

    Parameters
    ----------
    owned : mapping of int to (topic, partitions), or None
        What each member owns after this round. None: too large to be written, so the memory names
        no owners.
    members : sequence of SubscribedMember
        Those of the round, in the order of the group.
    given_up : int32[...]
        Topic-partitions that are revoked in this round.
    """
    here = [
        RememberedMember(
            member_id=m.member_id,
            instance_id=m.instance_id,
            leaving=m.subscription.leaving,
            owned=() if owned is None else owned.get(i, ()),
        )
        for i, m in enumerate(members)
    ]
    departed = [
        replace(w.who, delay_ms=w.remaining_ms, owned=partitions_of(topics, w.tps))
        for w in deferral.waiting
    ]
    mark = [RememberedMember(member_id=OWNERS_NOT_NAMED)] if owned is None else []
    return Memory(
        generation=generation,
        delay_ms=pace_ms,
        members=(*here, *departed, *mark),
        given_up=partitions_of(topics, given_up),
    )


def handed_out(memory: bytes | None) -> tuple[tuple[str, int], ...]:
    """The topics in a memory, and how many partitions of each its leader knew.

    Parameters
    ----------
    memory : bytes or None
        As it came in an assignment.

    Returns
    -------
    tuple of (str, int)
        By topic; empty if the memory cannot be read. The count may be too low for a topic whose
        last partitions had no owner and waited for none.

    References
    ----------
    KIP-814: a static leader that comes back keeps the assignment, but must watch the topics.
    """
    read = read_memory(memory)
    if read is None:
        return ()
    counts: dict[str, int] = {}
    for topic, numbers in (*read.given_up, *(e for m in read.members for e in m.owned)):
        counts[topic] = max(counts.get(topic, 0), *(n + 1 for n in numbers))
    return tuple(sorted(counts.items()))
