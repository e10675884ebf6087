"""Designs I, II and III as resolvers, and the resolver of a policy.

**Rules.**

- Design I: nothing waits, and everything moves at once.
- Design II: what a departed member owned waits until its deadline. It does not wait for a member
  that has a successor, and only as long as a restart takes for a member that may have had one
  (:mod:`holdfast.core.machine.leader.successors`). Everything moves at once.
- Design III: as Design II, but ``Policy.batch`` moves for each member that gains, from the fullest
  members to the emptiest, then a pause of ``Policy.interval_ms``. A batch begins when the batch
  before is complete.
- Under ``Policy.failback`` nothing waits for a departed member; temporary reassignments are in the
  leader state, and this module does not change them.
- Damped: nothing waits for a departed member. A member that joined recently gains by no move before
  it has stayed for ``Policy.stabilization_ms``, as long as some member has; if no member has, the
  group is starting, and everything moves at once. Partitions without an owner go to any member.
  Example: A and B own six each, C joins and leaves 20 s later: nothing moves. D joins and stays:
  after 60 s D gets two of each.
- A user's own function replaces all other resolvers, and its result is checked.
- A kind with a design of its own has the delay and the pace of that design.

**Strategy.** Plain functions over columns. All kinds share one resolver: a delay belongs to a
departed member's entry, a pace to a topic.

References: Incremental Cooperative Rebalancing, "Leader process" of Designs I, II and III.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush

import numpy as np

from holdfast.core.machine.leader.imbalance import (
    DepartedMember,
    Imbalance,
    ProposedMoves,
    Resolution,
    Resolver,
    checked,
)
from holdfast.core.machine.leader.successors import short_wait_ms
from holdfast.core.machine.policy import Policy, PolicyInfo
from holdfast.core.model.columns import I64, Mask
from holdfast.core.model.designs import Design
from holdfast.errors import PlanError


def resolver_of(policy: Policy) -> Resolver:
    """Return the resolver of a policy: the user's, or that of its design, or of a kind's latest."""
    if policy.own is not None:
        return partial(own, policy.own)
    if policy.damps:
        return damped
    designs = {policy.design, *map(policy.design_of, policy.kinds)}
    if Design.INCREMENTAL in designs:
        return incremental
    if policy.carries_state:
        return deferred
    return simple


def simple(imbalance: Imbalance) -> Resolution:
    """Design I: resolve everything in this round."""
    waits_ms = (0,) * len(imbalance.departed)
    every = imbalance.moves(waits_ms).of_all(True)
    return Resolution(waits_ms=waits_ms, may_move=every, pause_ms=imbalance.pause_ms)


def deferred(imbalance: Imbalance) -> Resolution:
    """Design II: what was lost waits for the return of its member."""
    waits_ms = _until_deadlines(imbalance)
    every = imbalance.moves(waits_ms).of_all(True)
    return Resolution(waits_ms=waits_ms, may_move=every, pause_ms=imbalance.pause_ms)


def incremental(imbalance: Imbalance) -> Resolution:
    """Design III: Design II, and moves in batches with pauses between them."""
    policy, waits_ms = imbalance.policy, _until_deadlines(imbalance)
    moves = imbalance.moves(waits_ms)
    paced = _is_paced(imbalance)[imbalance.group.topics.topic_of[moves.tp]]
    may_move = ~paced
    if not paced.any():
        return Resolution(waits_ms=waits_ms, may_move=may_move, pause_ms=imbalance.pause_ms)
    if imbalance.pause_ms > policy.tolerance_ms:
        return Resolution(waits_ms=waits_ms, may_move=may_move, pause_ms=imbalance.pause_ms)
    if not moves.hands_out:
        # The pause counts from here too: a member that claims the batch before it is assigned does
        # not speed it up.
        may_move[_fullest_to_emptiest(policy, moves, np.flatnonzero(paced))] = True
    return Resolution(waits_ms=waits_ms, may_move=may_move, pause_ms=policy.interval_ms)


def damped(imbalance: Imbalance) -> Resolution:
    """Let nothing wait, and let a recent joiner gain by no move before it has stayed."""
    policy = imbalance.policy
    waits_ms = tuple(each.remaining_ms for each in imbalance.departed)  # for the first members
    moves = imbalance.moves(waits_ms)
    left_ms = policy.stabilization_ms - imbalance.age_ms
    recent = left_ms > policy.tolerance_ms
    held = recent[moves.taker] & (not recent.all())
    if not held.any():
        return Resolution(waits_ms=waits_ms, may_move=~held, pause_ms=imbalance.pause_ms)
    pause_ms = int(left_ms[moves.taker[held]].min())
    return Resolution(waits_ms=waits_ms, may_move=~held, pause_ms=pause_ms)


def own(row: PolicyInfo, imbalance: Imbalance) -> Resolution:
    """Return the result of a user's function, checked.

    Raises
    ------
    PlanError
        The function raises, or its answer breaks a bound of :func:`checked`.
    """
    assert row.resolver is not None
    try:
        return checked(imbalance, row.resolver(imbalance))
    except PlanError as error:
        raise PlanError(f"policy {row.name}: {error}") from error.__cause__
    except (Exception, SystemExit) as error:  # whatever the user's function does
        text = f"policy {row.name}: its function raised {type(error).__name__}: {error}"
        raise PlanError(text) from error


def _until_deadlines(imbalance: Imbalance) -> tuple[int, ...]:
    """Return Design II's waits in ms, one for each departed member."""
    return tuple(_until_deadline(imbalance.policy, each) for each in imbalance.departed)


def _until_deadline(policy: Policy, departed: DepartedMember) -> int:
    if departed.just_now and departed.succeeded:
        return 0
    if departed.just_now and departed.succeeded_soon:
        return min(departed.remaining_ms, short_wait_ms(policy))
    return departed.remaining_ms


def _is_paced(imbalance: Imbalance) -> Mask:
    """Return whether Design III moves a topic's partitions, bool[n_topics]."""
    policy, topics = imbalance.policy, imbalance.group.topics
    paced = np.full(len(topics.names), policy.design is Design.INCREMENTAL)
    for kind in policy.kinds.keys() & topics.index.keys():
        paced[topics.index[kind]] = policy.design_of(kind) is Design.INCREMENTAL
    return paced


def _fullest_to_emptiest(policy: Policy, moves: ProposedMoves, among: I64) -> I64:
    """Return the batch that evens out most: positions in ``moves`` from ``among``, sorted.

    A move evens out less the more moves of its two members were chosen before it. So the first
    entry of the heap whose worth has not changed since it was pushed is the best.
    """
    load = moves.load.tolist()
    gives, takes = moves.giver[among].tolist(), moves.taker[among].tolist()
    left = dict.fromkeys(takes, policy.batch)
    heap = [(load[t] - load[g], i) for i, (g, t) in enumerate(zip(gives, takes, strict=True))]
    heapify(heap)  # of equal ones the first, which has the lowest tp
    chosen: list[int] = []
    most = policy.group_batch or len(among)
    while heap and len(chosen) < most:
        worth, i = heappop(heap)
        giver, taker = gives[i], takes[i]
        if not left[taker]:
            continue
        if (now := load[taker] - load[giver]) != worth:
            heappush(heap, (now, i))
            continue
        chosen.append(i)
        left[taker] -= 1
        load[giver] -= 1
        load[taker] += 1
    return among[sorted(chosen)]
