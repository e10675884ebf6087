"""What a leader's turn costs: memory and calls, counted; CPU time where a run asks for it.

**Rules.** The measure is an honest turn: the same members, with one that says what is true in the
place of the one that lies. A turn may cost ten times as much for as many bytes. Bytes are what
members send, so that a large lie may cost what a large group costs, and no more for each byte than
ten times what honest members cost.

**Strategy.** Memory is the peak by ``tracemalloc``, calls are those of Python and C functions by
``sys.setprofile``. Both are the same in every run. What is remembered from round to round is let go
before, since an honest group would find it there.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.hostile.group import ASSIGNORS, TOPICS

from holdfast.machine.actions import ComputeAssignment
from holdfast.machine.leader.designs import compute, read_round
from holdfast.machine.leader.subscriptions import subscribed_members

MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCost:
    """Costs of one turn."""

    n_bytes: int
    peak_bytes: int
    n_calls: int
    cpu_s: float

    def ratios(self, honest: TurnCost) -> dict[str, float]:
        """Of memory, calls and CPU time, to those of an honest turn of as many bytes."""
        scale = max(1.0, self.n_bytes / honest.n_bytes)
        return {
            "memory": self.peak_bytes / honest.peak_bytes / scale,
            "calls": self.n_calls / honest.n_calls / scale,
            "cpu": self.cpu_s / honest.cpu_s / scale,
        }


def cost_of(request: ComputeAssignment) -> TurnCost:
    """Lead the round three times, once for each measure."""
    assignor = ASSIGNORS[request.protocol_name]

    def turn() -> None:
        subscribed_members.cache_clear()
        read = read_round([assignor], request)
        asked = tuple((t, TOPICS[t]) for t in read.topics if t in TOPICS)
        compute([assignor], replace(request, partitions=asked), read=read.read)

    turn()
    begun = time.process_time()
    turn()
    cpu_s = time.process_time() - begun
    return TurnCost(
        n_bytes=sum(len(m.metadata) for m in request.members),
        peak_bytes=_peak_bytes(turn),
        n_calls=_n_calls(turn),
        cpu_s=cpu_s,
    )


def _peak_bytes(work: Callable[[], None]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _n_calls(work: Callable[[], None]) -> int:
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
