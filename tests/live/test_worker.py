"""holdfast.Worker in real groups: resources that are not topics."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from tests.live.crew import QUICK, ThreadGroup, fresh
from tests.live.processes import Crew
from tests.live.waiting import until
from tests.suites import further

from holdfast import Worker
from holdfast.cli.demo.event_log import intervals, overlaps
from holdfast.errors import RemoteProtocolError
from holdfast.members.worker import Resource

pytestmark = pytest.mark.broker

BEATS = {key: QUICK[key] for key in ("session.timeout.ms", "heartbeat.interval.ms")}


class Desk:
    """One worker, and a diary of its callbacks."""

    def __init__(self, broker, group, resources, *, version=None, **config):
        settings = {k.replace("_", "."): v for k, v in config.items()}
        self.recorder: list[tuple[str, list[Resource]]] = []
        self.held: set[Resource] = set()
        self.may_revoke = threading.Event()
        self.may_revoke.set()
        self.is_asked = threading.Event()
        self.worker = Worker(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, **BEATS, **settings},
            resources,
            self,
            version=version,
        )

    def start(self):
        self.worker.start()
        return self

    def on_assigned(self, resources):
        self.held |= set(resources)
        self.recorder.append(("assigned", resources))

    def on_revoked(self, resources):
        self.is_asked.set()
        assert self.may_revoke.wait(60)
        self.held -= set(resources)
        self.recorder.append(("revoked", resources))

    def on_lost(self, resources):
        self.held -= set(resources)
        self.recorder.append(("lost", resources))

    def loads(self):
        return Counter(resource.kind for resource in self.held)

    def touched(self, kind):
        """Callbacks that named this kind."""
        return sum(any(r.kind == kind for r in resources) for _, resources in self.recorder)


def shared(desks, counts):
    """Every resource held once, and every kind evenly."""
    held = sorted(resource for desk in desks for resource in desk.held)
    if held != sorted(Resource(k, n) for k, count in counts.items() for n in range(count)):
        return False
    loads = [[desk.loads()[kind] for desk in desks] for kind in counts]
    return all(max(load) - min(load) <= 1 for load in loads)


def close_all(desks):
    for desk in desks:
        desk.worker.close(returns=False)
        assert desk.held == set()


@pytest.mark.parametrize("policy", further(["simple", "deferred", "incremental"]))
def test_workers_come_and_go(broker, policy):
    counts, group = {"connector": 4, "shard": 9}, fresh("workers")
    config = {
        "holdfast_policy": policy,
        "holdfast_clean_leave": "immediate",
        "holdfast_incremental_interval_ms": 100,
        "scheduled_rebalance_max_delay_ms": 1_000,
    }
    desks = [Desk(broker, group, counts, **config).start()]
    until(lambda: shared(desks, counts), "one worker has all")
    desks += [Desk(broker, group, counts, **config).start() for _ in range(2)]
    until(lambda: shared(desks, counts), "three workers share evenly")
    assert all(desk.worker.owned == desk.held for desk in desks)
    gone = desks.pop()
    gone.worker.close(returns=False)
    assert gone.held == set()
    until(lambda: shared(desks, counts), "two workers share evenly")
    close_all(desks)


def test_one_rolling_bounce_changes_the_design_of_a_group_and_another_one_changes_it_back(broker):
    """As the document on Connect says; what ``upgrade-check --client holdfast-worker`` prints."""
    counts, group = {"shard": 6}, fresh("workers")
    desks = [Desk(broker, group, counts, holdfast_policy="simple").start() for _ in range(3)]
    until(lambda: shared(desks, counts), "three workers share")
    for policy, protocol in (("deferred", "holdfast-deferred"), ("simple", "holdfast-simple")):
        for place in range(3):
            desks[place].worker.close(returns=True)
            assert not desks[place].held
            desks[place] = Desk(broker, group, counts, holdfast_policy=policy).start()
            until(lambda: shared(desks, counts), f"three workers share, {place} runs {policy}")
        chosen = {
            desk.worker._membership.member_thread._member.data.protocol_name for desk in desks
        }
        assert chosen == {protocol}
    close_all(desks)


def test_nobody_begins_before_the_old_owner_has_ended(broker):
    """Work on a resource has ended when ``on_revoked`` returns, within its time."""
    counts, group = {"shard": 4}, fresh("workers")
    first = Desk(broker, group, counts, task_shutdown_graceful_timeout_ms=120_000).start()
    until(lambda: len(first.held) == 4, "one worker has all")
    first.may_revoke.clear()
    second = Desk(broker, group, counts).start()
    until(first.is_asked.is_set, "the first is asked to end some work")
    until(lambda: second.worker.generation == first.worker.generation, "the round is over")
    third = Desk(broker, group, counts).start()
    assert second.held == third.held == set()
    first.may_revoke.set()
    until(lambda: shared([first, second, third], counts), "three workers share")
    close_all([first, second, third])


def test_a_change_in_one_kind_leaves_the_others_alone(broker):
    group = fresh("workers")
    desks = [Desk(broker, group, {"connector": 4, "shard": 6}).start() for _ in range(2)]
    until(lambda: shared(desks, {"connector": 4, "shard": 6}), "two workers share")
    before = [desk.touched("connector") for desk in desks]
    counts = {"connector": 4, "shard": 11}
    for desk in desks:
        desk.worker.update(counts)
    until(lambda: shared(desks, counts), "two workers share more shards")
    assert [desk.touched("connector") for desk in desks] == before
    close_all(desks)


@pytest.mark.every
def test_what_a_leader_that_is_behind_does_not_know_runs_on_those_that_know_it(broker, caplog):
    group = fresh("workers")
    old = Desk(broker, group, {"shard": 4}, version=1).start()
    until(lambda: len(old.held) == 4, "one worker has all that it knows")
    new = Desk(broker, group, {"shard": 6}, version=2).start()
    until(lambda: old.loads()["shard"] == 2 and new.loads()["shard"] == 4, "all run")
    assert {4, 5} < {resource.number for resource in new.held}
    assert not old.held & new.held
    assert "another worker version 2" in caplog.text
    now = old.worker.metrics()
    assert (now.is_leader, now.resource_version, now.newest_resource_version) == (True, 1, 2)
    old.worker.update({"shard": 6}, version=2)
    until(lambda: len(old.held) == len(new.held) == 3, "two workers that know all share all")
    assert shared([old, new], {"shard": 6})
    now = old.worker.metrics()
    assert (now.resource_version, now.newest_resource_version) == (2, 2)
    close_all([old, new])


def test_weights_balance_kinds_against_each_other(broker):
    counts, weights, group = {"big": 2, "small": 6}, {"big": 6}, fresh("workers")
    kinds = {kind: {"weight": weight} for kind, weight in weights.items()}
    desks = [Desk(broker, group, counts, holdfast_kinds=kinds).start() for _ in range(2)]

    def loads():
        return [sum(weights.get(r.kind, 1) for r in desk.held) for desk in desks]

    until(lambda: sum(len(desk.held) for desk in desks) == 8, "everything is held")
    until(lambda: loads() == [9, 9], "the same weight each")
    close_all(desks)


def test_a_group_for_leadership_alone(broker):
    """One resource: one worker has it, the others stand by."""
    group, counts = fresh("leader"), {"leader": 1}
    desks = [Desk(broker, group, counts).start() for _ in range(3)]
    until(lambda: sum(len(desk.held) for desk in desks) == 1, "one leads")
    until(lambda: len({desk.worker.generation for desk in desks}) == 1, "all are in the group")
    while len(desks) > 1:
        leader = next(desk for desk in desks if desk.held)
        desks.remove(leader)
        leader.worker.close(returns=False)
        until(lambda: sum(len(desk.held) for desk in desks) == 1, "another one leads")
    close_all(desks)


def test_a_static_worker_returns_to_its_resources_without_a_round(broker):
    group, counts = fresh("workers"), {"shard": 6}
    a, b = (Desk(broker, group, counts, group_instance_id=i).start() for i in "ab")
    until(lambda: shared([a, b], counts), "two workers share")
    until(lambda: a.worker.generation == b.worker.generation, "the group is settled")
    generation, had = a.worker.generation, set(b.held)
    b.worker.close(returns=True)
    again = Desk(broker, group, counts, group_instance_id="b").start()
    until(lambda: again.held == had, "it has its resources back")
    assert a.worker.generation == again.worker.generation == generation
    close_all([a, again])


def test_a_worker_that_was_fenced_says_why(broker):
    group, counts = fresh("workers"), {"shard": 2}
    older = Desk(broker, group, counts, group_instance_id="same").start()
    until(lambda: len(older.held) == 2, "the first has all")
    newer = Desk(broker, group, counts, group_instance_id="same").start()
    with pytest.raises(RemoteProtocolError, match=r"group\.instance\.id") as caught:
        older.worker.run(60)
    assert caught.value.error_code == 82
    until(lambda: older.held == set(), "the first has lost them")
    assert older.recorder[-1][0] == "lost"
    until(lambda: len(newer.held) == 2, "the second has all")
    older.worker.close()
    close_all([newer])


def test_a_worker_in_a_group_of_consumers_is_refused_plainly(broker):
    with ThreadGroup(broker.bootstrap, 1) as group:
        group.join()
        group.await_spread()
        desk = Desk(broker, group.name, {"shard": 1}).start()
        with pytest.raises(RemoteProtocolError, match="protocol type") as caught:
            desk.worker.run(60)
        assert caught.value.error_code == 23
        with pytest.raises(RemoteProtocolError):
            desk.worker.owned  # noqa: B018
        desk.worker.close()


QUICK_END = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 300}


def start_three(group, **config):
    """Three workers as processes; what each holds."""
    for name in "abc":
        group.worker(name, **QUICK_END, **config)
    return group.await_balance()


def test_a_killed_worker_is_replaced(broker, tmp_path):
    with Crew(broker.bootstrap, 6, tmp_path) as group:
        before = start_three(group)
        killed = group.kill("b")
        after = group.await_balance()
        assert all(before[name] <= after[name] for name in group.running)
        ends = [i for i in intervals(group.event_log.read(), time.time()) if i.member != "b"]
        assert overlaps(ends) == []
        assert {i.partition for i in ends if i.start > killed} == before["b"]
        assert [group.stop(name) for name in "ac"] == [0, 0]


def test_a_killed_worker_that_comes_back_has_its_resources_again(broker, tmp_path):
    """Design II: nobody else has touched them meanwhile."""
    with Crew(broker.bootstrap, 6, tmp_path) as group:
        design = {"holdfast_policy": "deferred", "scheduled_rebalance_max_delay_ms": 600_000}
        before = start_three(group, **design)
        killed = group.kill("b")
        group.worker("b2", **QUICK_END, **design)
        group.await_holdings(lambda held: held["b2"] == before["b"], "what was lost is given back")
        entries = [e for e in group.event_log.read() if e.time_seconds > killed]
        assert not any(e.partitions for e in entries if e.member in ("a", "c"))
        assert [group.stop(name) for name in ("a", "c", "b2")] == [0, 0, 0]
