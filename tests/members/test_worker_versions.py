"""A leader of workers that does not know the newest version of their resources."""

import pytest
from tests.members.configured import NEEDED
from tests.members.worker_group import KIND, WorkerGroup

from holdfast import Worker
from holdfast.core.machine.leader.leader import MOST_NEW_RESOURCES
from holdfast.errors import ConfigError

OLD, NEW = 1, 2


def worker(count, version, **more):
    return Worker({**NEEDED, **more}, {KIND: count}, version=version)


def group(policy, old, new):
    """A and B have the old count, C and D the new one."""
    more = {"holdfast.policy": policy, "scheduled.rebalance.max.delay.ms": 0}
    return WorkerGroup(
        {name: worker(old, OLD, **more) for name in "AB"}
        | {name: worker(new, NEW, **more) for name in "CD"}
    )


every_design = pytest.mark.parametrize("policy", ["simple", "deferred", "incremental"])


@every_design
def test_new_resources_stay_with_whoever_knows_them(policy, caplog):
    played = group(policy, 4, 6)
    played.settle("C", "D")  # all six are theirs
    before = {name: set(played.owned(name)) & {4, 5} for name in "CD"}
    for _ in range(4):
        played.settle("A", "C", "D")  # the leader knows four
    assert {name: set(played.owned(name)) & {4, 5} for name in "CD"} == before
    assert sorted(played.owned("A") + played.owned("C") + played.owned("D")) == [*range(6)]
    assert not {4, 5} & set(played.owned("A"))
    told = [r.getMessage() for r in caplog.records if "another worker version 2" in r.getMessage()]
    assert len(told) == 1
    leader = played.workers["A"].metrics()
    assert (leader.resource_version, leader.newest_resource_version) == (1, 2)


@every_design
def test_new_resources_that_nobody_has_run_where_they_are_known(policy):
    played = group(policy, 4, 6)
    played.settle("A", "B", "C")
    assert sorted(n for name in "ABC" for n in played.owned(name)) == [*range(6)]
    assert {4, 5} <= set(played.owned("C"))
    played.settle("A", "B", "C", "D")  # a claim stays
    assert {4, 5} <= set(played.owned("C"))
    played.stop("C")
    for _ in range(3):
        played.settle("A", "B", "D")
    assert {4, 5} <= set(played.owned("D"))
    played.workers["A"].update({KIND: 6}, version=NEW)
    for _ in range(4):
        played.settle("A", "B", "D")
    assert sorted(n for name in "ABD" for n in played.owned(name)) == [*range(6)]
    if policy != "incremental":  # which evens out in batches
        assert {len(played.owned(name)) for name in "ABD"} == {2}


@every_design
def test_new_resources_are_divided_and_the_older_version_of_two_gets_none(policy):
    played = group(policy, 2, 8)
    more = {"holdfast.policy": policy, "scheduled.rebalance.max.delay.ms": 0}
    played.workers["E"] = worker(4, 1, **more)
    played.settle("A", "C", "D", "E")
    new = {name: set(played.owned(name)) - {0, 1} for name in "ACDE"}
    assert new["C"] | new["D"] == {*range(2, 8)}
    assert (len(new["C"]), len(new["D"]), new["A"], new["E"]) == (3, 3, set(), set())


def test_a_report_of_too_many_is_no_end():
    played = WorkerGroup({"A": worker(4, 0), "C": worker(2**31 - 1, 1)})
    assert not played.play("A", "C")
    assert len(played.owned("C")) <= MOST_NEW_RESOURCES + 4


@every_design
def test_resources_that_are_gone_are_given_to_nobody(policy):
    played = group(policy, 6, 4)
    played.settle("A", "B")
    gone = {name: set(played.owned(name)) & {4, 5} for name in "AB"}
    played.settle("A", "B", "C")
    assert {name: set(played.owned(name)) & {4, 5} for name in "AB"} == gone
    played.stop("B")
    for _ in range(3):
        played.settle("A", "C")
    assert not {4, 5} & set(played.owned("C"))
    assert set(played.owned("A")) & {4, 5} == gone["A"]
    assert {0, 1, 2, 3} == set(played.owned("A") + played.owned("C")) - {4, 5}
    played.settle("C", "A")  # one that knows leads
    assert sorted(played.owned("A") + played.owned("C")) == [*range(4)]


@every_design
def test_without_versions_the_leaders_count_is_the_count(policy):
    more = {"holdfast.policy": policy, "scheduled.rebalance.max.delay.ms": 0}
    played = WorkerGroup({"A": worker(4, None, **more), "C": worker(6, None, **more)})
    played.settle("C")
    played.settle("A", "C")
    assert sorted(played.owned("A") + played.owned("C")) == [*range(4)]


def test_a_leader_without_a_version_is_behind_whoever_has_one():
    played = WorkerGroup({"A": worker(4, None), "C": worker(6, 0)})
    played.settle("C")
    played.settle("A", "C")
    assert {4, 5} <= set(played.owned("C"))


@pytest.mark.parametrize("version", [-1, True, 1.5, "7", 2**63])
def test_a_version_is_a_number(version):
    with pytest.raises(ConfigError, match="version: expected a number from 0"):
        worker(1, version)
    with pytest.raises(ConfigError, match="version: expected a number from 0"):
        worker(1, 1).update({KIND: 1}, version=version)
