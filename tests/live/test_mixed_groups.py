"""Java members and ours in one group; who owns what is checked from every member's own journal."""

from __future__ import annotations

import pytest
from tests.live.processes import crew

pytestmark = pytest.mark.broker

COOPERATIVE = "CooperativeStickyAssignor"
OURS = "CooperativeSticky()"


@pytest.mark.parametrize("leader", ["java", "python"])
def test_members_come_and_go(broker, tmp_path, leader):
    """The first member leads: Java's, or ours, whose plan Java's members follow."""
    with crew(broker.bootstrap, 6, tmp_path) as group:
        order = ["j1", "p1", "j2", "p2"] if leader == "java" else ["p1", "j1", "p2", "j2"]
        for name in order:
            group.java(name, COOPERATIVE) if name[0] == "j" else group.python(name, OURS)
            group.await_balance()
        rounds_led = len(group.led())
        for name in order[:0:-1]:  # the leader stays
            group.stop(name)
            group.await_balance()
        led = group.led()
        assert set(led) <= {"p1"}
        assert (rounds_led > 0) is (leader == "python")
        assert group.overlaps() == []
        group.stop(order[0])


def test_leader_dies_and_the_other_kind_takes_over(broker, tmp_path):
    with crew(broker.bootstrap, 6, tmp_path) as group:
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
        assert "p2" not in group.led()
        assert group.overlaps() == []


def test_two_bounces_from_range_to_cooperative(broker, tmp_path):
    """KIP-429 and KIP-726: [range], then [cooperative-sticky, range], then the first alone."""
    phases = [
        ("RangeAssignor", "Range()"),
        (f"{COOPERATIVE},RangeAssignor", "CooperativeSticky(upgrading=True), Range()"),
        (COOPERATIVE, OURS),
    ]
    with crew(broker.bootstrap, 6, tmp_path) as group:
        java, python = phases[0]
        group.java("j.0", java)
        group.await_balance()
        group.python("p.0", python)
        group.await_balance()
        for phase, (java, python) in enumerate(phases[1:], 1):
            group.stop(f"j.{phase - 1}")
            group.java(f"j.{phase}", java)
            group.await_balance()
            group.stop(f"p.{phase - 1}")
            group.python(f"p.{phase}", python)
            group.await_balance()
        # Now it is cooperative: a third member takes partitions, the others keep the rest.
        before = group.holdings()
        group.python("p2", OURS)
        after = group.await_balance()
        assert after["j.2"] < before["j.2"]
        assert after["p.2"] < before["p.2"]
        assert group.overlaps() == []
