"""holdfast.Worker without a broker: what it refuses, and what ends it."""

from __future__ import annotations

import re
import sys
import threading
import time

import pytest
from tests.live.waiting import until
from tests.members.worker_group import round_of

from holdfast import Consumer, Resource, Worker
from holdfast.core.machine.leader.assignor_protocol import MemberView
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.wire.layouts.container import (
    MemberSubscription,
    decode_member_assignment,
    decode_member_subscription,
    encode_member_subscription,
)
from holdfast.errors import (
    ClientError,
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
    SourceError,
)
from holdfast.members.config.settings import OF_WORKERS
from holdfast.members.session import membership
from holdfast.metrics import prometheus_text

KINDS, DELAY = "holdfast.kinds", "scheduled.rebalance.max.delay.ms"
CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "request.timeout.ms": 300}


@pytest.mark.parametrize(
    ("resources", "extra", "words"),
    [
        ({}, {}, "at least one kind"),
        ({"": 1}, {}, "a kind is a name"),
        ({3: 1}, {}, "a kind is a name, found 3"),
        ({"a": -1}, {}, r"resources\['a'\]: expected a count, found -1"),
        ({"a": True}, {}, "expected a count, found True"),
        ({"a": 1.5}, {}, "expected a count"),
        ({"a": 1}, {KINDS: {"b": {"weight": 2}}}, "b: not one of the resources a"),
        ({"a": 1}, {KINDS: {"a": {"weight": 0}}}, "a: weight: "),
        ({"a": 1}, {KINDS: {"a": {"weigth": 2}}}, "a: found 'weigth', expected"),
        ({"a": 1}, {KINDS: {"a": 2}}, "expected a mapping of options"),
        ({"a": 1}, {KINDS: {"a": {DELAY: -1}}}, f"a: {DELAY}: "),
        ({"a": 1}, {KINDS: {"a": {"holdfast.policy": "eager"}}}, "a: a kind takes simple"),
        (
            {"a": 1},
            {"holdfast.policy": "eager"},
            "a worker takes simple, holdfast-simple, deferred",
        ),
        ({"a": 1}, {"holdfast.polices": "x"}, "did you mean 'holdfast.policy'"),
    ],
)
def test_what_is_refused(resources, extra, words):
    with pytest.raises(ConfigError, match=words):
        Worker({**CONFIG, **extra}, resources)


def test_kinds_have_a_policy_and_a_delay_of_their_own():
    kinds = {"connector": {"holdfast.policy": "simple"}, "task": {DELAY: "7000"}}
    worker = Worker(
        {**CONFIG, "holdfast.policy": "deferred", "holdfast.isolate": "false", KINDS: kinds},
        {"connector": 2, "task": 9},
    )
    policy = worker.assignors[0].policy
    assert policy.isolate is False
    assert (policy.delay_of("connector"), policy.delay_of("task")) == (0, 7_000)
    assert policy.longest_delay_ms == 300_000


def test_an_unchanged_assignment_is_not_sent_again():
    worker = Worker({**CONFIG, "holdfast.policy": "deferred"}, {"k": 2})
    claims = {"A": (0,), "B": (1,)}
    sent = {
        name: encode_member_subscription(
            MemberSubscription(topics=("k",), owned=(("k", own),), generation=1)
        )
        for name, own in claims.items()
    }
    answer = worker._planner.compute(round_of("holdfast-deferred", sent, (("k", 2),)))
    told = {name: decode_member_assignment(data) for name, data in answer.assignments}
    assert answer.failure is None
    assert {name: (v.assigned, v.revoked) for name, v in told.items()} == {
        "A": ((), None),
        "B": ((), None),
    }


def test_an_update_is_checked_as_well():
    worker = Worker(CONFIG, {"a": 1})
    with pytest.raises(ConfigError, match="expected a count"):
        worker.update({"a": "many"})


def test_before_its_start_and_after_its_end():
    worker = Worker(CONFIG, {"a": 1})
    assert worker.owned == frozenset()
    assert worker.generation == -1
    with pytest.raises(LocalProtocolError, match="start"):
        worker.run(0)
    worker.close()
    worker.close()
    with pytest.raises(ClientError, match="closed"):
        worker.start()


def test_a_start_that_fails_may_be_tried_again():
    worker = Worker(CONFIG, {"a": 1})
    for _ in range(2):
        with pytest.raises(SourceError, match="nothing listens at 127"):
            worker.start()
    worker.close()


@pytest.fixture
def joined(monkeypatch, connections):
    """Start a worker that no broker answers."""
    monkeypatch.setattr(connections, "open", lambda: None)
    monkeypatch.setattr(membership, "Connections", lambda _: connections)

    def start(**form):
        worker = Worker(CONFIG, {"a": 1}, **form)
        worker.start()
        return worker

    return start


@pytest.mark.parametrize("fails", [False, True])
def test_closing_a_worker_raises_what_nobody_was_told(joined, fails):
    class Listener:
        def on_assigned(self, resources):
            """Begin."""

    worker = joined(listener=Listener())
    worker._supervisor.call(ListenerCall.ASSIGNED, (("a", 0),), lambda _: None)
    until(lambda: worker.states, "it works")
    worker._supervisor.call(ListenerCall.LOST, (("a", 0),), lambda _: None)
    until(lambda: not worker.states, "it is lost")
    worker._membership.member_thread.finished.set()

    def use():
        with worker:
            if fails:
                raise KeyError("x")

    with pytest.raises(KeyError if fails else RemoteProtocolError):
        use()
    worker.close()


def exits(*_):
    sys.exit("no more")


class Exits:
    on_assigned = exits


@pytest.mark.parametrize("form", [{"listener": Exits()}, {"run": exits}], ids=["listener", "run"])
def test_an_exit_of_the_work_is_the_workers_error(joined, form):
    """It leaves the group, and the application's next call raises it, once."""
    worker = joined(**form)

    def begin():
        worker._supervisor.call(ListenerCall.ASSIGNED, (("a", 0),), lambda _: None)
        until(lambda: worker._supervisor.error, "the work exits")

    begin()
    until(lambda: worker._membership.is_leaving, "it leaves")
    with pytest.raises(SystemExit, match="no more"):
        worker.run()
    assert worker.owned == frozenset()  # once
    begin()
    worker._membership.member_thread.finished.set()
    with pytest.raises(SystemExit, match="no more"):
        worker.close()
    worker.close()


def test_a_worker_has_one_form_of_work():
    with pytest.raises(ConfigError, match="run and listener"):
        Worker(CONFIG, {"a": 1}, Exits(), run=exits)

    def generator(resource, stop):
        yield

    for wrong in (generator, 3, "run"):
        with pytest.raises(ConfigError, match="run: expected a function or an async function"):
            Worker(CONFIG, {"a": 1}, run=wrong)


@pytest.mark.parametrize("key", OF_WORKERS)
def test_a_consumer_refuses_what_only_a_worker_does(key):
    Worker({**CONFIG, key: 1000}, {"a": 1})
    with pytest.raises(ConfigError, match=f"{re.escape(key)}: only a Worker"):
        Consumer({**CONFIG, key: 1000})


def test_a_subscription_says_what_has_failed_again_and_again():
    config = {**CONFIG, "holdfast.restart.backoff.ms": 10}
    worker = Worker(config, {"a": 2}, run=lambda resource, stop: 1 / resource.number)
    view = MemberView(topics=("a",), owned=(), previous=(), generation=-1)

    def said():
        subscriptions = [assignor.subscribe(view) for assignor in worker.assignors]
        return {decode_member_subscription(each).failed for each in subscriptions}

    assert said() == {()}
    worker._supervisor.call(ListenerCall.ASSIGNED, (("a", 0), ("a", 1)), lambda _: None)
    until(lambda: said() == {(("a", "ZeroDivisionError", (0,)),)}, "the subscription says it")
    worker._supervisor.close_by = time.monotonic() + 5
    worker._supervisor.end()


def test_the_numbers_and_the_states_of_a_worker():
    worker = Worker(CONFIG, {"a": 2}, run=lambda resource, stop: 1 / resource.number or stop.wait())
    worker._supervisor.call(ListenerCall.ASSIGNED, (("a", 0), ("a", 1)), lambda _: None)
    until(lambda: worker.metrics().failed_resources == 1, "one has failed")
    counted = worker.metrics()
    assert (counted.resource_failures_total, counted.overdue_resources) == (1, 0)
    state = worker.states[Resource("a", 0)]
    assert (state.status, state.failures) == ("FAILED", 1)
    assert state.error == "ZeroDivisionError: division by zero"
    assert 0 < state.retry_seconds < 1.3
    assert "holdfast_member_failed_resources" in prometheus_text(worker)
    assert "holdfast_member_resource_failures_total" in prometheus_text(worker)
    worker._supervisor.close_by = time.monotonic() + 5
    worker._supervisor.end()


def test_stop_ends_the_run(joined):
    worker = joined()
    worker.run(timeout=0.01)
    waits = threading.Thread(target=worker.run)
    waits.start()
    worker.stop()
    waits.join(30)
    assert not waits.is_alive()
    worker._membership.member_thread.finished.set()
    worker.close()
