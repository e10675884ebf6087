"""The policy of docs/assignors.md in a live group: holdfast's member, kafka-python's consumer."""

from __future__ import annotations

import pytest
from tests.live.processes import Crew

pytestmark = pytest.mark.broker

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
