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

from holdfast.core.assignors.registry import ASSIGNORS

EQUAL_ONLY = ("constrained-sticky", "constrained-cooperative-sticky")
COLUMNS = ("range", "roundrobin", *EQUAL_ONLY)
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


def with_racks(group: dict[str, Any]) -> dict[str, Any]:
    """The same group in three racks."""
    for i, member in enumerate(group["members"]):
        member["rack"] = "abc"[i % 3]
    racks = {t: [["abc"[p % 3]] for p in range(n)] for t, n in group["partitions"].items()}
    return dict(group, racks=racks)


def sized(n_partitions: int, *, equal: bool = True) -> dict[str, Any]:
    """8 topics of so many partitions, and 6 members of which one has left."""
    names = [f"t{i}" for i in range(8)]
    members = {f"C{i}": names if equal else [*names[i : i + 4], names[0]] for i in range(6)}
    return changed(dict.fromkeys(names, n_partitions), members)


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
        return with_racks(changed(dict.fromkeys(names, n_partitions), members))

    small, large = (steps_of(name, group(n)) for n in (300, 600))
    assert large.lines <= TWICE * small.lines
    assert large.elements <= TWICE * small.elements


# Lines alone


def lines_of(name: str, group: dict[str, Any]) -> int:
    return steps_of(name, group).lines


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_cost_no_more_lines_for_more_partitions(name: str) -> None:
    assert lines_of(name, sized(16)) == lines_of(name, sized(128))


@pytest.mark.parametrize("name", [name for name in ASSIGNORS if name not in EQUAL_ONLY])
def test_partitions_of_unequal_members_cost_no_more_than_so_many_lines(name: str) -> None:
    small, large = (lines_of(name, sized(n, equal=False)) for n in (128, 512))
    assert large <= 2.3**2 * small  # twice, twice


def test_the_rack_kernels_of_range_cost_a_line_a_replica() -> None:
    small, large = (lines_of("range", with_racks(sized(n))) for n in (64, 128))
    assert 1.5 * small < large <= 2.3 * small


def test_lag_sticky_costs_lines_by_members() -> None:
    """4 times the members with rows of one length: about 4 times the lines."""

    def lines(n_members: int) -> int:
        group = snapshot({"t0": 8 * n_members}, [f"C{i:03}" for i in range(n_members)])
        rng = np.random.default_rng(2)
        group["lags"] = {"t0": rng.exponential(1000, 8 * n_members).astype(int).tolist()}
        return lines_of("lag-sticky", settled(group, run(group, "range").to_dict()))

    assert lines(200) <= 6 * lines(50)


@pytest.mark.parametrize("leave", [False, True])
def test_twice_the_partitions_cost_sticky_no_more_lines_where_all_read_the_same(leave) -> None:
    def group(n: int) -> dict[str, Any]:
        topics = [f"t{i}" for i in range(10)]
        owned = {f"m{m:02}": {t: range(m, n, 30) for t in topics} for m in range(30)}
        made = snapshot(dict.fromkeys(topics, n), [*owned], owned=owned)
        return dict(made, members=made["members"][leave:])

    assert lines_of("sticky", group(120)) <= lines_of("sticky", group(60)) + 8


def test_twice_the_partitions_cost_sticky_about_as_many_lines_where_hubs_are_large() -> None:
    def halves(n_partitions: int) -> dict[str, Any]:
        members = {f"m{i:02}": (["a", "b"], ["b", "c"])[i % 2] for i in range(40)}
        return snapshot(dict.fromkeys("abc", n_partitions), members)

    assert lines_of("sticky", halves(2000)) / lines_of("sticky", halves(1000)) < 2.3


def test_partitions_that_take_one_way_are_moved_together() -> None:
    """A chain of members hands on; many full members read the same topics, and get nothing."""

    def handed_on(n: int) -> dict[str, Any]:
        full = {f"u{i:02}": 2 * n for i in range(60)}
        topics = [["t0"], ["t0", "t1"], ["t1", "t2"], ["t2", "t3"], ["t3"]]
        members = {f"m{i}": own for i, own in enumerate(topics)}
        members |= {own: ["t0", "t1", "t2", own] for own in full}
        owned = {m: {own[-1]: range(n)} for m, own in [*members.items()][:4]}
        owned |= {own: {own: range(2 * n)} for own in full}
        return snapshot({f"t{i}": n for i in range(4)} | full, members, owned=owned)

    assert lines_of("sticky", handed_on(40)) / lines_of("sticky", handed_on(20)) < 1.45
