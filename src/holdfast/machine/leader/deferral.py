"""Who has gone, what waits for it, and who is served from what waits: Design II's judgement.

**Rules.**

1. The memory of the newest generation counts; its copies differ only in age, and the smallest
   remaining time is the freshest. It is never shorter than the truth, because a copy can only be
   late; so deadlines are kept, not restarted, whoever leads (L5, L6).
2. An unclaimed resource is *lost* only if the memory names an owner that is gone. If its owner is
   here (a sync that failed), if it was given up on request, or if it is new, it is free at once
   (D3, D4, KAFKA-9848).
3. Each departed member has its own deadline. A second loss gets its own and changes no other.
4. During a deadline the resources of a static member go to nobody but the member with its instance
   id, and to that one exactly. Those of a dynamic member go to an empty-handed newcomer: one
   departed member's set to one newcomer, up to the newcomer's fair share (D1, D2).
5. Without any memory the document's heuristic decides: a topic that nobody claims at all is new; an
   empty-handed member is a returning one; else what is missing was lost.
6. No claims and no memory is a new group: the policy's ``first_member`` decides.

**Strategy.** Pure functions from claims and memories to masks over topic-partitions.

References: Incremental Cooperative Rebalancing, Design II, "Leader process" and "Events".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.assignors.claims import Claims
from holdfast.machine.policy import Policy, When
from holdfast.model.columns import I32, NO_OWNER, Mask
from holdfast.model.group import Group
from holdfast.model.partitions import TopicPartitions, partitions_of, tps_of
from holdfast.model.topics import Topics
from holdfast.wire.layouts.container import Leaving, Memory, RememberedMember, read_memory

UNKNOWN_OWNER = ""
"""Member id of a loss whose owner nobody remembers."""

FIRST_MEMBERS = "(first members)"
"""Member id under which a new group waits for more members."""


OWNERS_NOT_NAMED = "(owners not named)"
"""Member id that says: the memory was too large to name who owned what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCopy:
    """A member's copy of the leader's memory."""

    memory: bytes
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentMember:
    """A member of the round, as deferral sees it, in the order of the group's columns."""

    member_id: str
    instance_id: str | None
    claims: int  # how many
    leaving: Leaving


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DepartedMember:
    """A departed member whose resources wait.

    ``remaining_ms`` counts from now; ``tps`` are still lost, sorted.
    """

    who: RememberedMember
    remaining_ms: int
    tps: I32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deferral:
    """What deferral decides about unclaimed topic-partitions.

    Parameters
    ----------
    waiting : tuple of DepartedMember
        Not to be handed out in this round.
    pinned : int32[n_tps]
        Member that gets a lost topic-partition back, or NO_OWNER.
    exact : tuple of int
        Members that return by identity: they get exactly what is pinned to them.
    pace_ms : int
        Design III: what remains until the next batch may move.
    """

    waiting: tuple[DepartedMember, ...]
    pinned: I32
    exact: tuple[int, ...]
    pace_ms: int

    @property
    def delay_ms(self) -> int:
        """Until the first deadline, 0 if nothing waits."""
        return min((w.remaining_ms for w in self.waiting), default=0)


def recall(echoes: Sequence[MemoryCopy], generation: int) -> Memory | None:
    """The group's memory, with times brought up to date.

    Parameters
    ----------
    echoes : sequence of MemoryCopy
        What members carry; unreadable copies count as none.
    generation : int
        Of this round: a copy that claims to be of it or a later one cannot be true.

    References
    ----------
    Incremental Cooperative Rebalancing, "Leader exits and new leader is elected".
    """
    ages: dict[bytes, list[int]] = {}
    for echo in echoes:
        ages.setdefault(echo.memory, []).append(echo.age_ms)
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

    The newest generation wins. A coordinator that lost records counts a generation twice; of two
    memories of one generation the one that came last is the group's.
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
    present: Sequence[PresentMember],
    memory: Memory | None,
    free: Mask,
) -> Deferral:
    """Decide what waits and what goes back to whom.

    Parameters
    ----------
    claims : Claims
        Of this round, normalised.
    present : sequence of PresentMember
        One per member, in the group's order.
    memory : Memory or None
        From :func:`recall`.
    free : bool[n_tps]
        Subscribed by somebody and claimed by nobody.

    References
    ----------
    Incremental Cooperative Rebalancing, Design II, "Leader process".
    """
    topics = claims.group.topics
    pinned = np.full(topics.n_tps, NO_OWNER, np.int32)
    pace_ms = 0 if memory is None else memory.delay_ms
    if not policy.defers:
        return Deferral(waiting=(), pinned=pinned, exact=(), pace_ms=pace_ms)
    lost = _losses(policy, claims, present, memory, free)
    exact, lost = _return_known([w for w in lost if len(w.tps)], present, pinned)
    lost = [w for w in lost if w.remaining_ms > policy.tolerance_ms]
    lost = _serve_newcomers(lost, present, memory, pinned, free=free, group=claims.group)
    return Deferral(waiting=tuple(lost), pinned=pinned, exact=exact, pace_ms=pace_ms)


def _losses(
    policy: Policy,
    claims: Claims,
    present: Sequence[PresentMember],
    memory: Memory | None,
    free: Mask,
) -> list[DepartedMember]:
    topics = claims.group.topics
    if memory is None:
        return _guess(policy, claims, present, free)
    leaves = {p.member_id for p in present if p.leaving is Leaving.FOR_GOOD}
    here = {p.member_id for p in present} - leaves
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
    policy: Policy, claims: Claims, present: Sequence[PresentMember], free: Mask
) -> list[DepartedMember]:
    """No memory at all: the document's heuristic."""
    topics = claims.group.topics
    claimed = claims.claim_tp
    if not len(claimed):
        if policy.first_member is When.IMMEDIATE:
            return []
        who, lost = FIRST_MEMBERS, free
    else:
        if any(p.claims == 0 and p.leaving is Leaving.STAYS for p in present):
            return []
        seen = np.zeros(topics.n_topics, bool)
        seen[topics.topic_of[claimed]] = True
        who, lost = UNKNOWN_OWNER, free & seen[topics.topic_of]
    remembered = RememberedMember(member_id=who, delay_ms=policy.delay_ms)
    tps = np.flatnonzero(lost).astype(np.int32)
    return [DepartedMember(who=remembered, remaining_ms=policy.delay_ms, tps=tps)]


def _return_known(
    lost: list[DepartedMember], present: Sequence[PresentMember], pinned: I32
) -> tuple[tuple[int, ...], list[DepartedMember]]:
    """A member that is back by its identity gets exactly what waited for it."""
    back: dict[str, int] = {}
    for i, p in enumerate(present):
        if p.leaving is not Leaving.FOR_GOOD:
            back["member " + p.member_id] = i
            if p.instance_id is not None:
                back["instance " + p.instance_id] = i
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
    present: Sequence[PresentMember],
    memory: Memory | None,
    pinned: I32,
    *,
    free: Mask,
    group: Group,
) -> list[DepartedMember]:
    """One departed member's set to one empty-handed newcomer, up to its fair share.

    What the newcomer does not subscribe to goes on waiting (D1).
    """
    old = set() if memory is None else {m.member_id for m in memory.members}
    served = set(pinned.tolist())
    newcomers = [
        i
        for i, p in enumerate(present)
        if p.claims == 0
        and p.member_id not in old
        and p.leaving is Leaving.STAYS
        and i not in served
    ]
    takers = sum(p.leaving is Leaving.STAYS for p in present)
    total = int(np.count_nonzero(free)) + sum(p.claims for p in present)
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
    present: Sequence[PresentMember],
    topics: Topics,
    verdicts: Deferral,
    given_up: I32,
    pace_ms: int,
) -> Memory:
    """What the next leader must know: who is here with what, who is gone, what was given up.

    ``owned`` None: name nobody's, because that would be too large.
    """
    here = [
        RememberedMember(
            member_id=p.member_id,
            instance_id=p.instance_id,
            leaving=p.leaving,
            owned=() if owned is None else owned.get(i, ()),
        )
        for i, p in enumerate(present)
    ]
    gone = [
        replace(w.who, delay_ms=w.remaining_ms, owned=partitions_of(topics, w.tps))
        for w in verdicts.waiting
    ]
    mark = [RememberedMember(member_id=OWNERS_NOT_NAMED)] if owned is None else []
    return Memory(
        generation=generation,
        delay_ms=pace_ms,
        members=(*here, *gone, *mark),
        given_up=partitions_of(topics, given_up),
    )


def handed_out(memory: bytes | None) -> tuple[tuple[str, int], ...]:
    """Topics and how many partitions of each the leader that wrote a memory knew.

    Parameters
    ----------
    memory : bytes or None
        As it came in an assignment.

    Returns
    -------
    tuple of (str, int)
        By topic; empty when the memory does not tell. A topic of which something has no owner and
        waits for none may count less than it had.

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
