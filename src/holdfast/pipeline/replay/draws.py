"""One replay many times: costs and times drawn from what the history leaves open.

**Rules.** A cost that the user gives is that cost in every draw. All others lie within the bounds
of the group's estimates. The first draw has the middle of everything and moves no happening; rounds
and moves are its own, and seconds are the median over all draws. Draws are a function of the seed.

**Strategy.** The costs are drawn as a Latin hypercube: each bound is visited as evenly as so few
draws can. An interval holds nine of ten draws, taken as log-normal, and is widened by
:func:`model_spread`, by which the machines differ from living members (``docs/metrics.md``,
"Do what-ifs come true?").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from holdfast.machine.policies import find_policy
from holdfast.model.limits import INT32_MAX
from holdfast.pipeline.replay.estimates import APART, CLIENTS, NINE_IN_TEN, Estimate
from holdfast.pipeline.replay.happenings import Do, Happening, RecordedSession, Story
from holdfast.sim.baselines import BASELINES
from holdfast.sim.world.costs import Costs, Listener

DRAWS: Final = 12
FEW_DRAWS: Final = 4
LARGE: Final = 200_000
"""Happenings x partitions above which a story is drawn :data:`FEW_DRAWS` times only."""

MODEL_SPREAD: Final = 0.05
"""Standard deviation of the logarithm of measured over predicted seconds, where costs are known:
the likeliest value for the first repeat of the recordings, rounded up."""
BUSY_SPREAD: Final = 0.3
"""The same where members rebuild state or have slow batches: those take turns in ways that no
record shows."""

WITHIN: Final = 0.25
"""What a fidelity speaks of: predictions that lie within this part of the truth."""

STOPS: Final = frozenset({"joining_stops", "waiting_stops"})
"""Costs that members of holdfast do not have: they go on while they join."""

MAY_BE_NONE: Final = STOPS | {"revoke_ms", "rebuild_ms", "first_fetch_ms"}

COST_NAMES: Final = frozenset(name for name, _, _ in Costs().lines())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayInterval:
    """A number of the replay, and between which bounds nine of ten draws lie."""

    low: float
    mid: float
    high: float

    @property
    def width(self) -> float:
        """How far a bound is from the middle, as a part of it; 0 is exact.

        One second (or round, or move) is added to each, so that 0 against 1 is not without end.
        """
        return max((1 + self.high) / (1 + self.mid), (1 + self.mid) / (1 + self.low)) - 1

    @property
    def chance(self) -> float:
        """How likely the truth and the middle differ by :data:`WITHIN` at most, 0 to 1."""
        deviation = (math.log1p(self.high) - math.log1p(self.low)) / (2 * NINE_IN_TEN)
        if deviation <= 0:
            return 1.0
        return math.erf(math.log1p(WITHIN) / deviation / math.sqrt(2))


def model_spread(story: Story) -> float:
    """By how much the machines differ from living members of this group."""
    return BUSY_SPREAD if story.slow or story.rebuild_blocks else MODEL_SPREAD


def n_draws(story: Story) -> int:
    """How often a story is drawn."""
    work = story.n_events * max(1, story.n_partitions)
    return FEW_DRAWS if work > LARGE else DRAWS


def drawn(
    story: Story, costs: Costs, given: frozenset[str] | None, policy: str, seed: int
) -> list[tuple[Story, Costs]]:
    """The story and the costs of each draw.

    Parameters
    ----------
    costs : Costs
        What the user gives, and what is taken where the history says nothing.
    given : frozenset of str, optional
        Fields of ``costs`` that the user gives; None: all of them, and there is one draw.
    policy : str
        The policy to replay under: one that only holdfast has is run by holdfast's members.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    known = COST_NAMES if given is None else given
    open_names = sorted(set(story.costs) - known)
    count = 1 if given is None else n_draws(story)
    shares = {
        name: (rng.permutation(count - 1) + rng.random(count - 1)) / max(1, count - 1)
        for name in open_names
    }
    if STOPS.issubset(shares):  # both are traits of the same client
        shares["joining_stops"] = shares["waiting_stops"]
    found = []
    for index in range(count):
        at = {name: 0.5 if index == 0 else float(shares[name][index - 1]) for name in open_names}
        drawn_costs = _costs(story, costs, given, policy, at)
        found.append((story if index == 0 else _moved(story, rng), drawn_costs))
    return found


def _costs(
    story: Story,
    costs: Costs,
    given: frozenset[str] | None,
    policy: str,
    at: dict[str, float],
) -> Costs:
    """The costs of one draw."""
    if given is None:
        return costs
    values: dict[str, Any] = {}
    for name, share in at.items():
        low, mid, high, n = story.costs[name]
        either = name in STOPS and not n  # members of a client do so, or they do not
        place = float(share > 0.5) if either else share
        value = Estimate(low_ms=low, mid_ms=mid, high_ms=high, n=n).at(place)
        least = 0 if name in MAY_BE_NONE else 1
        values[name] = min(INT32_MAX, max(least, round(value)))
    apart_ms = values.pop(APART, 0)
    made = replace(costs, rebuild_blocks=story.rebuild_blocks)
    made = replace(made, **{name: value for name, value in values.items() if hasattr(made, name)})
    if policy not in BASELINES and not find_policy(policy).cooperative and "poll_ms" not in given:
        made = replace(made, poll_ms=max(made.poll_ms, apart_ms))
    if "rebuild_ms" not in given:  # it was measured by what members gained
        made = replace(made, listener=Listener.NEW)
    if _is_ours(policy):
        if "follow_up_ms" not in given and not CLIENTS[story.client].sooner:
            made = replace(made, follow_up_ms=costs.follow_up_ms)
        return replace(
            made,
            joining_stops=made.joining_stops if "joining_stops" in given else 0,
            waiting_stops=made.waiting_stops if "waiting_stops" in given else 0,
        )
    seen = {"follow_up_ms"} & {*given, *story.costs}
    if not seen and not CLIENTS[story.client].sooner:
        made = replace(made, follow_up_ms=made.heartbeat_ms)
    return made


def _is_ours(policy: str) -> bool:
    return policy in BASELINES or find_policy(policy).design is not None


def _moved(story: Story, rng: np.random.Generator) -> Story:
    """The story with each happening somewhere in the time in which it may have happened."""
    sessions = tuple(
        replace(s, happenings=_moved_happenings(story, s, rng)) for s in story.sessions
    )
    return replace(story, sessions=sessions)


def _moved_happenings(
    story: Story, session: RecordedSession, rng: np.random.Generator
) -> tuple[Happening, ...]:
    found: list[Happening] = []
    left_ms: dict[int, int] = {}
    for one in session.happenings:
        moved = replace(one, at_ms=one.at_ms + round(one.vague_ms * (rng.random() - 0.5)))
        if one.slot >= 0:
            place = story.places[one.slot]
            if one.do is Do.START and place in left_ms:
                moved = replace(moved, at_ms=max(moved.at_ms, left_ms[place] + 1))
            elif one.do in {Do.STOP, Do.CRASH}:
                left_ms[place] = moved.at_ms
        found.append(moved)
    return tuple(sorted(found, key=lambda h: h.at_ms))


def interval(values: Sequence[float], spread: float) -> ReplayInterval:
    """The median of draws, and nine of ten: log-normal, widened by ``spread``."""
    column = np.asarray(values, np.float64)
    mid = float(np.median(column))
    if len(values) == 1 and not spread:
        return ReplayInterval(low=mid, mid=mid, high=mid)
    logs = np.log1p(column)
    deviation = float(np.std(logs, ddof=1)) if len(values) > 1 else 0.0
    deviation = NINE_IN_TEN * math.sqrt(deviation**2 + spread**2)
    low = max(0.0, math.expm1(math.log1p(mid) - deviation))
    return ReplayInterval(low=low, mid=mid, high=math.expm1(math.log1p(mid) + deviation))
