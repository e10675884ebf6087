"""The counters of a member, and a leader's reports of waits."""

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.members.fake_machine import bare
from tests.members.worker_group import WorkerGroup

from holdfast import Worker
from holdfast.core.machine import actions, events
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.leader import leader as plans
from holdfast.members.metrics import RebalanceTimes
from holdfast.members.runtime import leader_planner
from holdfast.metrics import PrometheusCollector, metrics_of, prometheus_text

CONFIG = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "etl",
    "holdfast.policy": "deferred",
    "scheduled.rebalance.max.delay.ms": 30_000,
}


def join(request):
    return bare(actions.SendJoin, request=request)


def sync(request):
    return bare(actions.SendSync, request=request)


def joined(request, error=0):
    return events.JoinAnswered(request=request, error=error)


DONE = bare(actions.JoinCompleted, gained=(("t", 0), ("t", 1)), revoked=(("t", 2),))


def test_a_rebalance_lasts_from_its_first_join_to_the_assignment():
    now = SimpleNamespace(s=100.0)
    times = RebalanceTimes(lambda: now.s)
    assert times.since_last_s == -1
    for at_s, note, what in (
        (100.0, times.record_request, join(1)),
        (101.0, times.record_event, joined(1, ErrorCode.MEMBER_ID_REQUIRED)),
        (101.0, times.record_request, join(2)),
        (101.5, times.record_event, joined(1)),  # stale
        (103.0, times.record_event, joined(2)),
        (103.0, times.record_request, sync(3)),
        (104.0, times.record_event, events.SyncAnswered(request=3, error=27)),
        (104.0, times.record_request, join(4)),
        (104.5, times.record_event, events.RequestFailed(4)),
        (105.0, times.record_request, join(5)),
        (106.0, times.record_event, joined(5)),
        (106.0, times.record_request, sync(6)),
        (106.25, times.record_event, events.SyncAnswered(request=6, error=0)),
        (107.0, times.record_completed, DONE),
    ):
        now.s = at_s
        note(what)
    now.s = 110.0
    assert (times.rebalances.n, times.rebalances.avg_ms, times.rebalances.max_ms) == (
        1,
        7_000,
        7_000,
    )
    assert (times.joins.n, times.joins.avg_ms, times.joins.max_ms) == (2, 1_500, 2_000)
    assert (times.syncs.n, times.syncs.max_ms) == (1, 250)
    assert (times.n_failed, times.since_last_s) == (2, 3)
    times.record_loss(actions.DropNow((("t", 0),), (("t", 0),)))
    assert (times.n_gained, times.n_revoked, times.n_lost) == (2, 1, 1)
    now.s = 120.0
    times.record_request(join(7))
    now.s = 121.0
    times.record_completed(DONE)
    assert (times.rebalances.n, times.rebalances.avg_ms, times.rebalances.max_ms) == (
        2,
        4_000,
        7_000,
    )


def group(**more):
    return WorkerGroup(
        {name: Worker({**CONFIG, "client.id": name, **more}, {"shard": 6}) for name in "ABCD"}
    )


@pytest.fixture
def waiting(caplog):
    """A group that waits for C."""
    caplog.set_level("INFO", "holdfast.member")
    workers = group()
    workers.play("A", "B", "C")
    workers.play("A", "B")
    return workers


def lines(caplog):
    """Of waits, without the group's name in front."""
    told = (r.getMessage().removeprefix("etl: ") for r in caplog.records)
    return [text for text in told if "wait" in text]


def test_a_wait_is_reported_when_it_begins_and_when_it_ends(caplog):
    caplog.set_level("INFO", "holdfast.member")
    workers = group()
    workers.play("A", "B", "C")
    lost = workers.owned("C")
    assert workers.waiting == () and len(lost) == 2
    for _ in range(3):  # rounds between say nothing
        workers.play("A", "B")
    (wait,) = workers.waiting
    assert (wait.departed, wait.partitions) == ("C", {"shard": lost})
    assert 25 < wait.seconds_left <= 30
    (begun,) = lines(caplog)
    assert begun.startswith("waiting for C until ")
    assert begun.endswith(f"UTC (30 s): shard-{lost[0]}, shard-{lost[1]}")
    workers.said.pop("C")
    workers.play("A", "B", "C")
    assert workers.waiting == ()
    assert lines(caplog)[1:] == ["the wait for C is over: it is back"]


@pytest.mark.parametrize(
    ("comes", "passed_s", "why"),
    [((), 30, "its time is up"), (("D",), 0, "others have taken what waited")],
)
def test_the_end_of_a_wait_says_why(comes, passed_s, why, waiting, caplog, monkeypatch):
    if passed_s:
        late = leader_planner.time.monotonic() + passed_s
        monkeypatch.setattr(leader_planner, "time", SimpleNamespace(monotonic=lambda: late))
        for name in ("A", "B"):  # what they carry is as old
            object.__setattr__(waiting.said[name], "state_age_ms", passed_s * 1000)
    waiting.play("A", "B", *comes)
    assert lines(caplog) == [f"the wait for C is over: {why}"]
    assert waiting.waiting == ()


def test_a_plan_that_failed_ends_no_wait(waiting, caplog, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(plans, "plan_round", lambda *_, **__: 1 / 0)
        waiting.play("A", "B")
    assert len(waiting.waiting) == 1
    waiting.play("A", "B")
    assert lines(caplog) == []


def test_what_is_reassigned_is_counted_until_it_is_back():
    workers = group(**{"holdfast.policy": "failback"})
    reassigned = []
    for names in ("ABC", "AB", "AB", "ABC", "ABC"):
        workers.play(*names)
        if names == "AB":
            workers.said.pop("C", None)
        reassigned.append(workers.workers["A"]._planner.delays.n_reassigned)
    assert reassigned == [0, 2, 2, 2, 0]
    assert workers.waiting == ()


def test_a_leader_that_takes_over_names_whom_it_never_saw_by_a_hash(caplog):
    caplog.set_level("INFO", "holdfast.member")
    first, second = group(), group()
    first.play("A", "B", "C")
    second.said, second.generation = first.said, 1
    second.play("A", "B")
    (wait,) = second.waiting
    assert wait.departed.startswith("member ") and wait.departed != "member C"
    assert len(lines(caplog)) == 1


def test_numbers_of_several_members_are_one_text():
    workers = [group().workers[name] for name in "AB"]
    for worker in workers:
        assert metrics_of(worker) == worker.metrics()
        assert worker.metrics().last_rebalance_seconds_ago == -1
    text = prometheus_text(*workers)
    for name in "AB":
        labels = f'client_id="{name}",group="etl"'
        assert f"kafka_consumer_coordinator_rebalance_latency_avg{{{labels}}} 0.0" in text
        assert f"kafka_consumer_coordinator_failed_rebalance_total{{{labels}}} 0.0" in text
    assert text.count("# TYPE kafka_consumer_coordinator_rebalance_total counter") == 1


def test_what_waits_is_in_the_text_with_its_member(waiting):
    now = waiting.workers["A"].metrics()
    assert now.waiting == ()  # it does not lead by its own standing
    object.__setattr__(now, "waiting", waiting.waiting)
    member = SimpleNamespace(__holdfast_metrics__=lambda: now)
    away = SimpleNamespace(__holdfast_metrics__=lambda: None)
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(member, away))
    text = generate_latest(registry).decode()
    labels = 'client_id="A",departed="C",group="etl"'
    assert f"holdfast_member_waiting_partitions{{{labels}}} 2.0" in text
    assert f"holdfast_member_wait_seconds_left{{{labels}}} " in text
    kafkas = now.to_kafka()
    assert {"rebalance-latency-avg", "failed-rebalance-total", "join-time-max"} <= kafkas.keys()
    assert "generation" not in kafkas
