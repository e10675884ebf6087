"""Fault scenarios 66 to 68 as fault cases: lags that cannot be known.

**Rules.** A name is its number; its docstring is its title.

**Strategy.** The real assignors on counts by hand.
"""

from __future__ import annotations

from tests.sim.faults.fault_case import FaultCase

from holdfast.core.assignors.registry import assign
from holdfast.core.model.group import Group


def lags(
    s: FaultCase, *offsets: tuple[int, int, int | None], reset: str = "latest"
) -> list[int] | None:
    """Lags of one topic from (begin, end, committed), as the lag assignor is given them."""
    rows = [{"begin": b, "end": e, "committed": c} for b, e, c in offsets]
    group = Group.from_dict(
        {
            "partitions": {"t": len(rows)},
            "offsets": {"t": rows},
            "auto_offset_reset": reset,
            "members": [{"id": "a", "topics": ["t"]}, {"id": "b", "topics": ["t"]}],
        }
    )
    own = assign(group, "lag").to_dict()
    loads = sorted(sum(map(len, own[m].values())) for m in own)
    s.expect(loads == [len(rows) // 2] * 2, "both members get equally many")
    return None if group.lags is None else [int(n) for n in group.lags]


def case_66(s: FaultCase) -> None:
    """A committed offset outside the log."""
    found = lags(s, (10, 50, 60), (10, 50, 3), (10, 50, 0), (10, 50, 20))
    s.expect(found == [0, 40, 40, 30], "beyond the end no lag, before the beginning the whole log")


def case_67(s: FaultCase) -> None:
    """No commit, reset latest or earliest."""
    s.expect(lags(s, (10, 50, None), (0, 5, 5)) == [0, 0], "reset latest: no commit is no lag")
    found = lags(s, (10, 50, None), (0, 5, None), reset="earliest")
    s.expect(found == [40, 5], "reset earliest: no commit is the whole log")


def case_68(s: FaultCase) -> None:
    """All lags equal."""
    topics = {f"t{n}": 4 for n in range(6)}  # three members: one extra partition in each topic
    for assignor in ("lag", "lag-sticky"):
        for lag in (0, 7):
            group = Group.from_dict(
                {
                    "partitions": topics,
                    "lags": {topic: [lag] * 4 for topic in topics},
                    "members": [{"id": m, "topics": list(topics)} for m in "abc"],
                }
            )
            own = assign(group, assignor).to_dict()
            even = [sum(len(ps) for ps in own[m].values()) for m in "abc"] == [8, 8, 8]
            s.expect(even, f"{assignor}, every lag {lag}: spread by count over all topics")
