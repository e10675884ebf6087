"""The question that a rebalance policy answers: what to do about an imbalance in this round.

**Rules.**

- A *resolver* is a function from an :class:`Imbalance` to a :class:`Resolution`. It decides what
  continues to wait and until when, which moves are made in this round, and when the group looks at
  the rest again. Designs I, II and III are resolvers
  (:mod:`holdfast.core.machine.leader.resolvers`).
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
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.model.columns import I32, I64, Mask
from holdfast.core.model.group import Group
from holdfast.core.model.limits import INT32_MAX
from holdfast.core.wire.layouts.state_shard import MemberEntry
from holdfast.errors import PlanError

if TYPE_CHECKING:
    from holdfast.core.machine.policy import Policy

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

    @property
    def is_first_wait(self) -> bool:
        """Whether the entry is that of a new group's first members."""
        return self.static and not self.who.identity


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProposedMoves:
    """Moves from one member to another, sorted by topic-partition."""

    tp: I32  # int32[n_moves]
    giver: I32  # int32[n_moves], the present owner
    taker: I32  # int32[n_moves], the next owner
    load: I64  # int64[n_members], topic-partitions of each member before the round
    # Whether this round assigns partitions without an owner: then an earlier batch is still moving.
    hands_out: bool

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
        The rest of the pause that an earlier round asked for, in ms.
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
    goes_on = pause_ms > imbalance.policy.tolerance_ms or may_move.any() or moves.hands_out
    if not (may_move.all() or goes_on):
        raise PlanError(f"holds {len(moves)} moves back and pauses {pause_ms} ms: they would wait")
    return Resolution(waits_ms=waits_ms, may_move=may_move, pause_ms=pause_ms)


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise PlanError(f"{name}: found {value!r}, expected ms as an integer")
    return int(value)
