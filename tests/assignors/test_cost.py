"""Cost by counting: executed lines of our own code, never time.

Columns do the work, so twice the partitions may cost hardly more lines; the named kernels may take
twice as many. Both bounds are per assignor and fail if somebody loops over partitions.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.assignors.groups import run, settled, snapshot

from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.model.group import Group

COLUMNS = ("range", "roundrobin", "constrained-sticky", "constrained-cooperative-sticky")
TWICE = 2.3


def lines_of(name: str, group: dict[str, Any]) -> int:
    """Lines of holdfast that one run executes, from normalised claims to the plan."""
    first, claims = (normalise(Group.from_dict(group)) for _ in range(2))
    ASSIGNORS[name].function(first)  # imports the modules that it needs
    count = 0

    def on_line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, _: object) -> Any:
        return on_line if "holdfast" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        ASSIGNORS[name].function(claims)
    finally:
        sys.settrace(before)
    return count


def sized(n: int, *, equal: bool = True, racks: bool = False) -> dict[str, Any]:
    """8 topics of ``n`` partitions with lags, 6 members that own them by round robin; one left."""
    rng = np.random.default_rng(1)
    partitions = {f"t{i}": n for i in range(8)}
    names = list(partitions)
    members = {f"C{i}": names if equal else [*names[i : i + 4], names[0]] for i in range(6)}
    lags = {topic: rng.integers(0, 1000, n).tolist() for topic in partitions}
    group = snapshot(partitions, members, lags=lags)
    if racks:
        for i, member in enumerate(group["members"]):
            member["rack"] = "abc"[i % 3]
        group["racks"] = {topic: [["abc"[p % 3]] for p in range(n)] for topic in partitions}
    held = settled(group, run(group, "roundrobin").to_dict())
    return dict(held, members=held["members"][1:])


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_cost_no_more_lines_for_more_partitions(name: str) -> None:
    few, many = lines_of(name, sized(16)), lines_of(name, sized(128))
    assert few == many


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("name", [name for name in ASSIGNORS if not name.startswith("constrained")])
def test_twice_the_partitions_cost_at_most_about_twice_the_lines(name: str, equal: bool) -> None:
    small, large = (lines_of(name, sized(n, equal=equal)) for n in (128, 512))
    assert large <= TWICE**2 * small  # twice, twice


def test_the_rack_kernels_of_range_cost_a_line_a_replica() -> None:
    small, large = (lines_of("range", sized(n, racks=True)) for n in (64, 128))
    assert 1.5 * small < large <= TWICE * small


def test_lag_sticky_costs_lines_by_members() -> None:
    """4 times the members with rows of one length: about 4 times the lines."""

    def lines(n_members: int) -> int:
        group = snapshot({"t0": 8 * n_members}, [f"C{i:03}" for i in range(n_members)])
        rng = np.random.default_rng(2)
        group["lags"] = {"t0": rng.exponential(1000, 8 * n_members).astype(int).tolist()}
        return lines_of("lag-sticky", settled(group, run(group, "range").to_dict()))

    assert lines(200) <= 6 * lines(50)
