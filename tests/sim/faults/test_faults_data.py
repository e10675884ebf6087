"""Fault scenarios 66 to 68: lags that cannot be known, by the real assignors on counts by hand."""

from __future__ import annotations

from holdfast.core.assignors.registry import assign
from holdfast.core.model.group import Group


def lags(*offsets: tuple[int, int, int | None], reset: str = "latest") -> list[int] | None:
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
    assert loads == [len(rows) // 2] * 2, "both members get equally many"
    return None if group.lags is None else [int(n) for n in group.lags]


def test_66_a_committed_offset_outside_the_log() -> None:
    found = lags((10, 50, 60), (10, 50, 3), (10, 50, 0), (10, 50, 20))
    assert found == [0, 40, 40, 30], "beyond the end no lag, before the beginning the whole log"


def test_67_no_commit_reset_latest_or_earliest() -> None:
    assert lags((10, 50, None), (0, 5, 5)) == [0, 0], "reset latest: no commit is no lag"
    found = lags((10, 50, None), (0, 5, None), reset="earliest")
    assert found == [40, 5], "reset earliest: no commit is the whole log"


def test_68_all_lags_equal() -> None:
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
            assert even, f"{assignor}, every lag {lag}: spread by count over all topics"
