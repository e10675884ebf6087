"""holdfast.Worker without a broker: what it refuses, and how it calls its listener."""

from __future__ import annotations

import sys
import threading

import pytest
from tests.adapters.worker_group import round_of

from holdfast import Worker
from holdfast.core.machine import actions
from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.wire.layouts.container import (
    MemberSubscription,
    decode_member_assignment,
    encode_member_subscription,
)
from holdfast.errors import (
    AdapterError,
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
    SourceError,
)
from holdfast.members.worker import Resource, _WorkerDuties

KINDS, DELAY = "holdfast.kinds", "scheduled.rebalance.max.delay.ms"
CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "request.timeout.ms": 300}


@pytest.mark.parametrize(
    ("resources", "extra", "words"),
    [
        ({}, {}, "at least one kind"),
        ({"": 1}, {}, "a kind is a name"),
        ({3: 1}, {}, "a kind is a name, found 3"),
        ({"a": -1}, {}, r"resources\['a'\]: a count is expected, found -1"),
        ({"a": True}, {}, "a count is expected, found True"),
        ({"a": 1.5}, {}, "a count is expected"),
        ({"a": 1}, {KINDS: {"b": {"weight": 2}}}, "b: not one of the resources a"),
        ({"a": 1}, {KINDS: {"a": {"weight": 0}}}, "a: weight: "),
        ({"a": 1}, {KINDS: {"a": {"weigth": 2}}}, "a: found 'weigth', expected"),
        ({"a": 1}, {KINDS: {"a": 2}}, "a mapping of options is expected"),
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
    policy = worker._leadership._assignors[0].policy
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
    answer = worker._leadership.compute(round_of("holdfast-deferred", sent, (("k", 2),)))
    told = {name: decode_member_assignment(data) for name, data in answer.assignments}
    assert answer.failure is None
    assert {name: (v.assigned, v.revoked) for name, v in told.items()} == {
        "A": ((), None),
        "B": ((), None),
    }


def test_an_update_is_checked_as_well():
    worker = Worker(CONFIG, {"a": 1})
    with pytest.raises(ConfigError, match="a count is expected"):
        worker.update({"a": "many"})


def test_before_its_start_and_after_its_end():
    worker = Worker(CONFIG, {"a": 1})
    assert worker.owned == frozenset()
    assert worker.generation == -1
    with pytest.raises(LocalProtocolError, match="start"):
        worker.run(0)
    worker.close()
    worker.close()
    with pytest.raises(AdapterError, match="closed"):
        worker.start()


def test_a_start_that_fails_may_be_tried_again():
    worker = Worker(CONFIG, {"a": 1})
    for _ in range(2):
        with pytest.raises(SourceError, match="nothing listens at 127"):
            worker.start()
    worker.close()


class Desk:
    """Notes its calls; ``on_lost`` is missing on purpose."""

    def __init__(self):
        self.calls = []
        self.may_return = threading.Event()
        self.may_return.set()

    def on_assigned(self, resources):
        self.may_return.wait(30)
        self.calls.append(("assigned", resources))

    def on_revoked(self, resources):
        raise OSError("disk full")


def call(duties, kind, resources=(("a", 0),)):
    """Make one call; what it says when it is done, in time."""
    said = []
    done = threading.Event()
    duties.call(kind, resources, lambda error: [said.append(error), done.set()])
    assert done.wait(30)
    return said


def test_callbacks_get_resources_and_their_errors_are_told():
    desk = Desk()
    duties = _WorkerDuties(desk)
    assert call(duties, ListenerCall.ASSIGNED) == [None]
    assert desk.calls == [("assigned", [Resource("a", 0)])]
    assert call(duties, ListenerCall.REVOKED) == ["OSError: disk full"]
    assert call(duties, ListenerCall.LOST) == [None]
    assert call(duties, ListenerCall.ASSIGNED, ()) == [None]
    assert len(desk.calls) == 1
    duties.close(wait=True)


def test_a_callback_that_ends_its_thread_is_told_as_well():
    desk = Desk()
    desk.on_lost = lambda resources: sys.exit("no more")
    duties = _WorkerDuties(desk)
    assert call(duties, ListenerCall.LOST) == ["SystemExit: no more"]
    assert call(duties, ListenerCall.ASSIGNED) == [None]
    duties.close(wait=True)


def test_closing_need_not_wait_for_a_callback_that_hangs():
    desk = Desk()
    desk.may_return.clear()
    duties = _WorkerDuties(desk)
    duties.call(ListenerCall.ASSIGNED, (("a", 0),), lambda _: None)
    duties.close(wait=False)
    assert desk.calls == []
    desk.may_return.set()


def test_a_worker_has_nothing_to_commit_or_drain():
    said = []
    duties = _WorkerDuties(None)
    duties.hold_back((("a", 0),), lambda: said.append("drained"))
    commit = actions.Commit(
        token=1, resources=(("a", 0),), generation=1, member_id="m", instance_id=None
    )
    duties.commit(commit, said.append)
    assert said == ["drained", 0]
    duties.close(wait=True)


def ended(duties):
    """What a worker's close would raise."""
    duties.close(wait=True)
    return "" if duties.failure is None else str(duties.failure)


@pytest.mark.parametrize("loss", [False, True])
def test_state_that_was_saved_after_a_loss_is_told(caplog, loss):
    """on_revoked began in order, and another worker may have begun before it returned."""
    duties = _WorkerDuties(desk := Desk())

    def save(resources):
        if loss:
            duties.drop((("a", 0), ("a", 1)), (("a", 1),))

    desk.on_revoked = save
    assert call(duties, ListenerCall.REVOKED) == [None]
    assert ("a-0 were lost before on_revoked had returned" in ended(duties)) == loss
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == loss


def test_a_loss_that_no_callback_tells_of_is_told():
    class Deaf:
        def on_assigned(self, resources):
            """Begin."""

    class Hears(Deaf):
        def on_lost(self, resources):
            """End."""

    for listener, told in ((Hears(), ""), (None, ""), (Deaf(), "the listener has no on_lost")):
        duties = _WorkerDuties(listener)
        duties.drop((("a", 0),), (("a", 0),))
        assert call(duties, ListenerCall.LOST) == [None]
        assert told in ended(duties)
        assert (duties.failure is None) == (told == "")


@pytest.mark.parametrize("fails", [False, True])
def test_closing_a_worker_raises_what_nobody_was_told(monkeypatch, connections, fails):
    worker = Worker(CONFIG, {"a": 1})
    monkeypatch.setattr(worker, "start", lambda: None)
    monkeypatch.setattr(worker, "_connections", connections)
    worker._host.over.set()
    worker._duties._tell_of([("a", 0)], "too early")

    def use():
        with worker:
            if fails:
                raise KeyError("x")

    with pytest.raises(KeyError if fails else RemoteProtocolError):
        use()
    worker.close()


@pytest.mark.parametrize("call_name", ListenerCall)
def test_a_callback_that_raises_is_the_applications_error(monkeypatch, connections, call_name):
    """Work that could not begin is given up: another worker takes it."""
    worker = Worker(CONFIG, {"a": 1}, desk := Desk())
    monkeypatch.setattr(worker, "_connections", connections)
    posted = []
    monkeypatch.setattr(worker._host, "post", posted.append)

    def fail(resources):
        raise KeyError("no shard")

    setattr(desk, f"on_{call_name.value}", fail)
    call(worker._duties, call_name)
    worker._duties._callbacks.submit(int).result(30)  # what comes after the answer is over, too
    assert [type(event).__name__ for event in posted] == (
        ["LeaveRequested"] if call_name is ListenerCall.ASSIGNED else []
    )
    with pytest.raises(KeyError, match="no shard"):
        worker.run()
    assert worker.owned == frozenset()  # once
    call(worker._duties, call_name)
    worker._host.over.set()
    with pytest.raises(KeyError, match="no shard"):
        worker.close()
    worker.close()


def test_a_worker_is_not_closed_by_its_own_callback():
    worker = Worker(CONFIG, {"a": 1}, desk := Desk())
    desk.on_lost = lambda resources: worker.close()
    said = call(worker._duties, ListenerCall.LOST)
    assert said == ["LocalProtocolError: close() would wait for its own callback: call stop()"]


def test_stop_ends_the_run(monkeypatch):
    worker = Worker(CONFIG, {"a": 1})
    monkeypatch.setattr(worker, "_connections", object())
    worker.run(timeout=0.01)
    waits = threading.Thread(target=worker.run)
    waits.start()
    worker.stop()
    waits.join(30)
    assert not waits.is_alive()
