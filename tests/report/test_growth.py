"""What a group of many rebalances costs the doctor and the page: steps, counted and never timed."""

from collections.abc import Callable

import pytest
from tests.assignors.steps import Counter, count
from tests.report.fleet import Script, deal, tables

from holdfast.fleet.analysis.findings.examination import examine
from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.report.drawing.payload import group_payload
from holdfast.fleet.tables.reading import read_tables

TOPICS = {"orders": 8, "clicks": 4}


def moving(n: int) -> Script:
    """A group whose partitions go round, n times: no member leaves."""
    script, members = Script("g", TOPICS), ["a-1", "b-1", "c-1"]
    for i in range(n):
        script.settle(40.0 * i, members, deal(TOPICS, members, i), cause="join", gap=(0, 1))
    return script


def restarting(n: int) -> Script:
    """A group one of whose members restarts, n times; its partitions visit the others."""
    script, owners = Script("g", TOPICS), {}
    for i in range(n):
        away = ["b-1", "c-1"]
        ids = [f"a-{i}", *away]
        for at, members, cause in ((0, ids, "restart"), (700, away, "leave")):
            owners = deal(TOPICS, members)
            script.settle(1_000.0 * i + at, members, owners, cause=cause, gap=(0, 1))
    return script


def steps(script: Script) -> Counter:
    """Steps from the tables of one group to its findings and its figure."""
    held = read_tables(tables(script))

    def work() -> None:
        history = read_group(held, "g")
        examine(history)
        group_payload(history)

    return count(work, packages=("holdfast.fleet.report.",))


@pytest.mark.parametrize(
    ("history", "most_lines"), [(moving, 1.3), (restarting, 2.2)], ids=["moving", "restarting"]
)
def test_twice_the_rebalances_are_at_most_twice_the_steps(
    history: Callable[[int], Script], most_lines: float
) -> None:
    """Rebalances are columns: lines grow with restarts only, which are looked at one by one."""
    small, large = (steps(history(n)) for n in (150, 300))
    assert large.lines < most_lines * small.lines
    assert large.elements < 2.3 * small.elements
