"""Twice the group costs about twice the steps: of every assignor, counted and never timed.

Members, topics and partitions all double, members hold as many partitions as before. What is
counted says :mod:`tests.assignors.steps`; a sort of all members once an exchange, or a pass over
the whole group for each of its parts, would show as four times the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.assignors.groups import run, settled, snapshot
from tests.assignors.steps import steps_of

EQUAL_ONLY = ("constrained-sticky", "constrained-cooperative-sticky")
ANY = ("sticky", "cooperative-sticky", "fair", "fairest-sticky", "lag")
TWICE = 2.5
"""Above 2 for what a sort or an uneven draw adds, far below the 4 of a square."""


def equal(n_members: int) -> dict[str, Any]:
    """4 topics that all read, 8 partitions a member."""
    return changed(
        {f"t{i}": 2 * n_members for i in range(4)}, [f"C{i:04}" for i in range(n_members)]
    )


def buckets(n_members: int) -> dict[str, Any]:
    """Ten topics of ten partitions for each ten members, who read no others."""
    partitions = {f"t{i:04}": 10 for i in range(n_members)}
    names = list(partitions)
    return changed(
        partitions,
        {f"C{i:04}": names[i // 10 * 10 : i // 10 * 10 + 10] for i in range(n_members)},
    )


def chain(n_members: int) -> dict[str, Any]:
    """Each member shares three of its four topics with the next."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 13, n_members + 3).tolist()
    partitions = {f"t{i:04}": size for i, size in enumerate(sizes)}
    names = list(partitions)
    return changed(partitions, {f"C{i:04}": names[i : i + 4] for i in range(n_members)})


def changed(partitions: dict[str, int], members: Any) -> dict[str, Any]:
    """With lags, claims by round robin, and every twentieth member gone."""
    rng = np.random.default_rng(2)
    lags = {t: rng.exponential(1000, n).astype(int).tolist() for t, n in partitions.items()}
    group = snapshot(partitions, members, lags=lags)
    held = settled(group, run(group, "roundrobin").to_dict())
    left = [member for i, member in enumerate(held["members"]) if i % 20]
    return dict(held, members=left)


Shape = Callable[[int], dict[str, Any]]


CASES = [(name, shape) for name in ANY for shape in (equal, buckets, chain)]
CASES += [(name, equal) for name in EQUAL_ONLY]  # they refuse the others


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_twice_the_group_costs_about_twice_the_steps(name: str, shape: Shape) -> None:
    small, large = (steps_of(name, shape(n)) for n in (100, 200))
    assert large.lines <= TWICE * small.lines
    assert 1.4 * small.elements < large.elements <= TWICE * small.elements


@pytest.mark.parametrize("shape", [equal, chain])
def test_twice_the_group_costs_lag_sticky_about_twice_the_steps(shape: Shape) -> None:
    """In columns alone: every exchange looks at tables of all that two members could swap."""
    small, large = (steps_of("lag-sticky", shape(n), lines=False) for n in (150, 300))
    assert 1.4 * small.elements < large.elements <= TWICE * small.elements


@pytest.mark.parametrize("name", [*ANY, *EQUAL_ONLY, "lag-sticky"])
def test_twice_the_partitions_of_as_many_members_cost_about_twice_the_steps(name: str) -> None:
    """Members hold more than the 96 partitions that ``lag-sticky`` looks at of each."""

    def group(n_partitions: int) -> dict[str, Any]:
        partitions = {f"t{i}": n_partitions for i in range(4)}
        return changed(partitions, [f"C{i:02}" for i in range(10)])

    small, large = (steps_of(name, group(n)) for n in (300, 600))
    assert large.elements <= TWICE * small.elements
    assert large.lines <= TWICE * small.lines


@pytest.mark.parametrize("name", ["sticky", "fair"])
def test_racks_cost_hardly_more_lines_for_more_partitions(name: str) -> None:
    """No loop over partitions with racks, whether members read the same or not."""

    def group(n_partitions: int) -> dict[str, Any]:
        names = [f"t{i}" for i in range(4)]
        members = {f"C{i:02}": names[i % 2 : i % 2 + 3] for i in range(12)}
        made = changed(dict.fromkeys(names, n_partitions), members)
        made["racks"] = {t: [["abc"[p % 3]] for p in range(n_partitions)] for t in names}
        for i, member in enumerate(made["members"]):
            member["rack"] = "abc"[i % 3]
        return made

    small, large = (steps_of(name, group(n)) for n in (300, 600))
    assert large.lines <= TWICE * small.lines
    assert large.elements <= TWICE * small.elements
