"""Members of several clients in one group; every member's event log shows who owned what."""

from __future__ import annotations

import pytest
from tests.live.offsets_log import leaders
from tests.live.processes import Crew
from tests.suites import further

pytestmark = pytest.mark.broker

COOPERATIVE = "CooperativeStickyAssignor"
OURS = "CooperativeSticky()"


def start(group: Crew, name: str) -> None:
    """The first letter says which kind: Java's, kafka-python's with our assignor, our own."""
    match name[0]:
        case "j":
            group.java(name, COOPERATIVE)
        case "p":
            group.python(name, OURS)
        case _:
            group.own(name)


@pytest.mark.parametrize(
    "order",
    further([["j1", "p1", "o1"], ["p1", "j1", "o1", "j2", "o2"], ["o1", "j1", "p1", "j2"]]),
    ids=["java leads", "kafka-python leads", "own member leads"],
)
def test_members_of_three_kinds_come_and_go(broker, tmp_path, order):
    """The first member leads, the others follow its plans and keep the rest of what they had.

    Then they leave, the last first.
    """
    with Crew(broker.bootstrap, 6, tmp_path) as group:
        for name in order:
            before = group.holdings()
            start(group, name)
            after = group.await_balance()
            assert all(after[old] <= had for old, had in before.items())
        for name in order[:0:-1]:  # the leader stays
            group.stop(name)
            group.await_balance()
        assert leaders(broker.bootstrap, group.group, group.topic) == {order[0]}
        assert group.overlaps() == []
        group.stop(order[0])


@pytest.mark.every
def test_leader_dies_and_the_other_kind_takes_over(broker, tmp_path):
    with Crew(broker.bootstrap, 6, tmp_path) as group:
        group.java("j1", COOPERATIVE)
        group.await_balance()
        group.python("p1", OURS)
        group.await_balance()
        assert group.led() == []
        group.stop("j1")
        group.await_balance()
        assert set(group.led()) == {"p1"}
        group.java("j2", COOPERATIVE)
        group.await_balance()
        group.stop("p1")
        group.await_balance()
        group.python("p2", OURS)
        group.await_balance()
        assert leaders(broker.bootstrap, group.group, group.topic) == {"j1", "p1", "j2"}
        assert group.overlaps() == []


POLICY = "own_policy:cooperative"


def test_members_of_two_kinds_follow_a_policy_of_the_user(broker, tmp_path):
    """kafka-python leads, then a member of ours does; a spare owns nothing before it is alone."""
    with Crew(broker.bootstrap, 6, tmp_path) as group:

        def wait_for(**sizes: int) -> None:
            group.await_holdings(
                lambda held: {name: len(own) for name, own in held.items()} == sizes, str(sizes)
            )

        group.python("p1", f'assignor("{POLICY}")')
        wait_for(p1=6)
        group.own("o1", POLICY)
        wait_for(p1=3, o1=3)
        group.own("s1", POLICY, group_instance_id="spare-1")
        wait_for(p1=3, o1=3, s1=0)
        assert set(group.led()) == {"p1"}
        group.stop("p1")
        wait_for(o1=6, s1=0)
        group.stop("o1")
        wait_for(s1=6)
        assert group.overlaps() == []
