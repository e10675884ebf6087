"""What a leader's turn costs: memory and calls, counted; CPU time where a run asks for it.

**Rules.** The measure is an honest turn of the same group: in the place of the member that lies
stands one that says what is true and subscribes to as many topics, all of which exist. A turn may
cost ten times as much, however many bytes the lie has.

**Strategy.** Memory is the peak by ``tracemalloc``, calls are those of Python and C functions by
``sys.setprofile``. Both are the same in every run. What is remembered from round to round is let go
before, since an honest group would find it there.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tests.hostile.group import ASSIGNORS, TOPICS

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.leader.designs import compute, named_in_round
from holdfast.core.wire.layouts.consumer_protocol import decode_subscription, encode_subscription

MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCost:
    """Costs of one turn."""

    peak_bytes: int
    n_calls: int
    cpu_s: float

    def ratios(self, honest: TurnCost) -> dict[str, float]:
        """Of memory, calls and CPU time, to those of an honest turn."""
        return {
            "memory": self.peak_bytes / honest.peak_bytes,
            "calls": self.n_calls / honest.n_calls,
            "cpu": self.cpu_s / honest.cpu_s,
        }


def ratios_of(name: str, request: ComputeAssignment, truth: ComputeAssignment) -> dict[str, float]:
    """Of a round with a lie to one with the truth; the member that may lie stands last."""
    more = {t: 1 for t in named_in_round(request) if t not in TOPICS}
    *others, last = truth.members
    said = decode_subscription(last.metadata)
    last = replace(last, metadata=encode_subscription(replace(said, topics=(*said.topics, *more))))
    honest = replace(truth, members=(*others, last))
    return cost_of(name, request).ratios(cost_of(name, honest, {**TOPICS, **more}))


def cost_of(
    name: str, request: ComputeAssignment, partitions: Mapping[str, int] = TOPICS
) -> TurnCost:
    """Lead the round three times, once for each measure; these partitions exist."""
    assignor = ASSIGNORS[name]

    def turn() -> None:
        asked = tuple((t, partitions[t]) for t in named_in_round(request) if t in partitions)
        compute([assignor], replace(request, partitions=asked))

    return cost_of_work(turn)


def cost_of_work(work: Callable[[], object]) -> TurnCost:
    """Do the work once, and then once for each measure."""
    work()
    begun = time.process_time()
    work()
    cpu_s = time.process_time() - begun
    return TurnCost(peak_bytes=_peak_bytes(work), n_calls=_n_calls(work), cpu_s=cpu_s)


def _peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _n_calls(work: Callable[[], object]) -> int:
    n = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return n
