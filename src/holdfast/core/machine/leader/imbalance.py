"""The question of a rebalance policy, what to do about an imbalance, and the policies that answer.

**Rules.**

- A *resolver* is a function from an :class:`Imbalance` to a :class:`Resolution`. It decides what
  continues to wait and until when, which moves are made in this round, and when the group looks at
  the rest again. Designs I, II and III are resolvers
  (below).
- A resolver decides no owners: the assignor does.
  :mod:`holdfast.core.machine.leader.delayed_rebalance` decides, before and after the resolver, what
  a member that is back gets, and which partitions of a departed member new members take.
- What would move depends on what waits, because the assignor assigns what does not wait. So a
  resolver first says what waits, and :meth:`Imbalance.moves` returns what would move then.
- Times are relative: ms from now on, or until now. A resolver reads no clock.
- Bounds hold whatever the function returns: nothing waits longer than ``remaining_ms``, which an
  earlier round may have cut; a move that is held back has a time at which the group looks again.
  :func:`checked` refuses anything else, and the round is a failed plan.

Example: A and B own six partitions each, C joins, and D left with six. Design II lets D's six wait,
and moves two of A's and two of B's. A resolver that holds C's part back returns ``may_move`` all
False and a pause of 60 s.

References: Incremental Cooperative Rebalancing, "General Approach" ("provide its own policies"),
Designs II and III.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush

import numpy as np

from holdfast.core.machine.leader.successors import short_wait_ms
from holdfast.core.machine.policy import TOLERANCE_MS, Policy, PolicyInfo
from holdfast.core.model.columns import I32, I64, Mask
from holdfast.core.model.constants import INT32_MAX, Design
from holdfast.core.model.group import Group
from holdfast.core.wire.layouts.state_shard import MemberEntry
from holdfast.errors import PlanError

SETTLED_MS = INT32_MAX
"""Age of a member that has been in the group for longer than the leader state counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DepartedMember:
    """A departed member and its unclaimed partitions."""

    who: MemberEntry
    remaining_ms: int  # longest time that ``tps`` still wait, from now
    tps: I32  # int32[...]: sorted
    # Whether a new member joined before it left and succeeds it: Design II assigns ``tps`` at once.
    succeeded: bool = False
    # Whether a new member joined too early for that: Design II waits only as long as a restart
    # takes.
    succeeded_soon: bool = False

    @property
    def just_now(self) -> bool:
        """Whether this is the first round without the member; else it waited before."""
        return not self.who.delay_ms

    @property
    def static(self) -> bool:
        """Whether the member has an instance id; then no other member replaces it."""
        return self.who.static


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProposedMoves:
    """Moves from one member to another, sorted by topic-partition."""

    tp: I32  # int32[n_moves]
    giver: I32  # int32[n_moves], the present owner
    taker: I32  # int32[n_moves], the next owner
    load: I64  # int64[n_members], topic-partitions of each member before the round
    # Whether this round assigns partitions without an owner: then an earlier batch is still moving.
    assigns_unowned: bool

    def __len__(self) -> int:
        return len(self.tp)

    def of_all(self, value: bool) -> Mask:
        """Return ``may_move`` of a resolver that makes all moves, or none: bool[n_moves]."""
        return np.full(len(self.tp), value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Imbalance:
    """The imbalance that a rebalance policy decides about in one round.

    Parameters
    ----------
    policy : Policy
        Settings of the leader, such as ``delay_ms``.
    group : Group
        Members, subscriptions, claims and topics; columns as those of assignors.
    departed : tuple of DepartedMember
        Members that left with partitions that nobody claims, by deadline. Each has ``tps``,
        int32[...] of topic-partitions, ``remaining_ms``, ``just_now`` and ``static``. Members that
        are back are not among them.
    age_ms : int64[n_members]
        How long each member has been in the group, in ms; 2**31 - 1 for longer than the policy
        counts, and under policies that ask for no ages.
    pause_ms : int
        The rest of the pause that an earlier round requested, in ms.
    moves : callable
        ``(waits_ms) -> ProposedMoves``: what would move if the partitions of the departed members
        waited so long, with the columns ``tp``, ``giver`` and ``taker``, int32[n_moves].

    References: Incremental Cooperative Rebalancing, Designs II and III, "Leader process".
    """

    policy: Policy
    group: Group
    departed: tuple[DepartedMember, ...]
    age_ms: I64
    pause_ms: int
    moves: Callable[[Sequence[int]], ProposedMoves]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resolution:
    """A rebalance policy's decision about an imbalance.

    Parameters
    ----------
    waits_ms : sequence of int
        One for each of ``Imbalance.departed``: how long its partitions wait on, in ms, 0 to
        ``remaining_ms``. With 0 they are assigned in this round.
    may_move : bool[n_moves]
        Which of ``Imbalance.moves(waits_ms)`` are made in this round.
    pause_ms : int
        When the group looks again at the moves that are held back, in ms from now.

    References: Incremental Cooperative Rebalancing, "ScheduledRebalanceTimeout" of Designs II and
    III.
    """

    waits_ms: Sequence[int]
    may_move: Mask
    pause_ms: int = 0


Resolver = Callable[[Imbalance], Resolution]
"""A rule for handling imbalance."""


def checked(imbalance: Imbalance, found: object) -> Resolution:
    """Return the resolution if it keeps the bounds of every policy.

    Raises
    ------
    PlanError
        It is not a resolution; its sizes differ from the imbalance's; it waits longer than allowed;
        or it holds moves back, assigns nothing and names no time.
    """
    if not isinstance(found, Resolution):
        raise PlanError(f"returned {type(found).__name__}, expected a Resolution")
    waits_ms = [_whole(ms, "waits_ms") for ms in found.waits_ms]
    if len(waits_ms) != len(imbalance.departed):
        n = len(imbalance.departed)
        raise PlanError(f"returned {len(waits_ms)} waits_ms for {n} departed members")
    for ms, departed in zip(waits_ms, imbalance.departed, strict=True):
        if not 0 <= ms <= departed.remaining_ms:
            raise PlanError(f"waits {ms} ms, expected 0 to {departed.remaining_ms} ms")
    moves = imbalance.moves(waits_ms)
    may_move = np.asarray(found.may_move)
    if may_move.dtype != np.bool_ or may_move.shape != (len(moves),):
        what = f"{may_move.dtype} of shape {may_move.shape}"
        raise PlanError(f"returned may_move as {what}, expected bool of shape ({len(moves)},)")
    pause_ms = _whole(found.pause_ms, "pause_ms")
    most_ms = imbalance.policy.longest_pause_ms
    if not 0 <= pause_ms <= most_ms:
        raise PlanError(f"pauses {pause_ms} ms, expected 0 to {most_ms} ms")
    goes_on = pause_ms > TOLERANCE_MS or may_move.any() or moves.assigns_unowned
    if not (may_move.all() or goes_on):
        raise PlanError(f"holds {len(moves)} moves back and pauses {pause_ms} ms: they would wait")
    return Resolution(waits_ms=waits_ms, may_move=may_move, pause_ms=pause_ms)


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise PlanError(f"{name}: found {value!r}, expected ms as an integer")
    return int(value)


# Designs I, II and III as resolvers, and the resolver of a policy.
#
# - Design I: nothing waits, and everything moves at once.
# - Design II: what a departed member owned waits until its deadline. It does not wait for a member
#   that has a successor, and only as long as a restart takes for a member that may have had one
#   (``successors``). Everything moves at once.
# - Design III: as Design II, but ``Policy.batch`` moves for each member that gains, from the
#   fullest members to the emptiest, then a pause of ``Policy.interval_ms``. A batch begins when the
#   batch before is complete.
# - Under ``Policy.failback`` nothing waits for a departed member; temporary reassignments are in
#   the leader state, and this module does not change them.
# - Damped: nothing waits for a departed member. A member that joined recently gains by no move
#   before it has stayed for ``Policy.stabilization_ms``, as long as some member has; if no member
#   has, the group is starting, and everything moves at once. Partitions without an owner go to any
#   member. Example: A and B own six each, C joins and leaves 20 s later: nothing moves. D joins and
#   stays: after 60 s D gets two of each.
# - A user's own function replaces all other resolvers, and its result is checked.
# - A kind with a design of its own has the delay and the pace of that design.
#
# Plain functions over columns. All kinds share one resolver: a delay belongs to a departed member's
# entry, a pace to a topic.
#
# References: Incremental Cooperative Rebalancing, "Leader process" of Designs I, II and III.


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
    if not paced.any() or imbalance.pause_ms > TOLERANCE_MS:
        return Resolution(waits_ms=waits_ms, may_move=may_move, pause_ms=imbalance.pause_ms)
    if not moves.assigns_unowned:
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
    recent = left_ms > TOLERANCE_MS
    delayed = recent[moves.taker] & (not recent.all())
    if not delayed.any():
        return Resolution(waits_ms=waits_ms, may_move=~delayed, pause_ms=imbalance.pause_ms)
    pause_ms = int(left_ms[moves.taker[delayed]].min())
    return Resolution(waits_ms=waits_ms, may_move=~delayed, pause_ms=pause_ms)


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
