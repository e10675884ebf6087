"""Exhaustive search of small worlds: no interleaving breaks a rule, and planted bugs are found."""

from __future__ import annotations

import pytest

from holdfast.machine.designs import assignors_for
from holdfast.machine.policy import Policy
from holdfast.sim.search import KINDS, Bound, Search

POLICY = Policy(delay_ms=20_000, interval_ms=10_000)
POLICIES = ("eager", "simple", "deferred", "incremental")


@pytest.mark.parametrize("lost", ["", *KINDS])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_interleaving_with_one_message_lost_or_late(policy, lost):
    bound = Bound(members=2, joins=0, partitions=3, crashes=1, leaves=1, lost=lost)
    found = Search(tuple(assignors_for(policy, POLICY)), bound).run()
    print(policy, lost or "nothing lost", found.line())
    assert found.violations == []
    assert found.complete
    assert found.settled > 0
