"""The cost of a leader turn grows with the group as written down: counted in lines, not in time."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.sticky import sticky
from holdfast.core.model.group import Group


def lines_of(snapshot: dict[str, Any]) -> int:
    """Lines of holdfast that one assignment executes."""
    claims = normalise(Group.from_dict(snapshot))
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if "holdfast" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        sticky(claims)
    finally:
        sys.settrace(old)
    return count


def equal(n_partitions: int, *, leave: bool) -> dict[str, Any]:
    topics = [f"t{i}" for i in range(10)]
    members = []
    for m in range(30):
        owned = [[t, p] for i, t in enumerate(topics) for p in range(m, n_partitions, 30)]
        members.append({"id": f"m{m:02}", "topics": topics, "owned": owned, "generation": 1})
    return {"partitions": dict.fromkeys(topics, n_partitions), "members": members[leave:]}


def chain(n_members: int) -> dict[str, Any]:
    topics = [f"t{i:04}" for i in range(n_members + 3)]
    counts = {t: 1 + 7 * i % 12 for i, t in enumerate(topics)}
    members = [{"id": f"m{i:04}", "topics": topics[i : i + 4]} for i in range(n_members)]
    before = sticky(normalise(Group.from_dict({"partitions": counts, "members": members}))).target
    group = Group.from_dict({"partitions": counts, "members": members})
    for m, member in enumerate(members):
        member["owned"] = [list(group.topics.name_of(int(tp))) for tp in (before == m).nonzero()[0]]
    return {"partitions": counts, "members": [m for i, m in enumerate(members) if i % 20]}


@pytest.mark.parametrize("leave", [False, True])
def test_twice_the_partitions_cost_no_more_lines_where_all_read_the_same(leave: bool) -> None:
    small, large = (lines_of(equal(n, leave=leave)) for n in (60, 120))
    assert large <= small + 8


def test_twice_the_members_in_a_chain_cost_about_twice_the_lines() -> None:
    small, large = lines_of(chain(100)), lines_of(chain(200))
    assert 1.5 < large / small < 2.6


def test_twice_the_partitions_cost_about_as_many_lines_where_hubs_are_large() -> None:
    def halves(n_partitions: int) -> dict[str, Any]:
        kinds = (["a", "b"], ["b", "c"])
        members = [{"id": f"m{i:02}", "topics": kinds[i % 2]} for i in range(40)]
        return {"partitions": dict.fromkeys("abc", n_partitions), "members": members}

    small, large = lines_of(halves(1000)), lines_of(halves(2000))
    assert large / small < 2.3


def test_partitions_that_take_one_way_are_moved_together() -> None:
    """A chain of members hands on; many full members read the same topics, and get nothing."""

    def handed_on(n_partitions: int) -> dict[str, Any]:
        counts = {f"t{i}": n_partitions for i in range(4)}
        full = {f"u{i:02}": 2 * n_partitions for i in range(60)}
        topics = [["t0"], ["t0", "t1"], ["t1", "t2"], ["t2", "t3"], ["t3"]]
        members = [
            {"topics": own, "owned": [[own[-1], p] for p in range(n_partitions)], "id": f"m{i}"}
            for i, own in enumerate(topics[:4])
        ]
        members.append({"topics": topics[4], "id": "m4"})
        members += [
            {"topics": ["t0", "t1", "t2", own], "owned": [[own, p] for p in range(n)], "id": own}
            for own, n in full.items()
        ]
        return {"partitions": counts | full, "members": members}

    small, large = lines_of(handed_on(20)), lines_of(handed_on(40))
    assert large / small < 1.45
