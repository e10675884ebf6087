"""The work on resources on real threads: its three forms, and the thread that supervises them."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from contextlib import closing

import pytest
from tests.live.waiting import until
from tests.members.configured import NEEDED

from holdfast import AsyncStopEvent, Resource, StopEvent, Worker
from holdfast.core.machine import actions
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.members.resources import runners

ASSIGNED, REVOKED, LOST = ListenerCall.ASSIGNED, ListenerCall.REVOKED, ListenerCall.LOST
A, B = ("a", 0), ("a", 1)
QUICK = {
    "task.shutdown.graceful.timeout.ms": 200,
    "holdfast.restart.backoff.ms": 20,
    "holdfast.restart.backoff.max.ms": 1_000,
}


class Bench:
    """The supervisor of a worker, whose member is played."""

    def __init__(self, run=None, listener=None, **more):
        worker = Worker({**NEEDED, **QUICK, **more}, {"a": 1}, listener, run=run)
        self.supervisor = worker._supervisor
        self.rebalances = []
        self.supervisor.request_rebalance = self.rebalances.append

    def close(self):
        self.supervisor.close_by = time.monotonic() + 10
        self.supervisor.end()

    def begin(self, *resources):
        """The member owns these; the call is done at once, whatever the work does."""
        said = []
        self.supervisor.call(ASSIGNED, resources or (A,), said.append)
        assert said == [None]

    def end(self, *resources, call=REVOKED):
        """The member waits for the end; a flag that is set when it may go on."""
        done = threading.Event()
        self.supervisor.call(call, resources or (A,), lambda error: done.set())
        return done

    def status(self, resource=A):
        found = self.supervisor.states().get(Resource(*resource))
        return None if found is None else found.status.value


class EventRecorder:
    """Work that notes what it does, as a function and as a coroutine function."""

    def __init__(self):
        self.began, self.ended, self.stops = [], [], []

    def run(self, resource, stop):
        self.began.append(resource)
        self.stops.append(stop)
        stop.wait()
        self.ended.append((resource, stop.is_lost))

    async def run_async(self, resource, stop):
        self.began.append(resource)
        self.stops.append(stop)
        await stop.wait()
        self.ended.append((resource, stop.is_lost))


@pytest.fixture(params=["run", "run_async"])
def form(request):
    return request.param


@pytest.fixture
def recorder():
    return EventRecorder()


def test_work_runs_side_by_side_until_its_stop(recorder, form):
    with closing(Bench(getattr(recorder, form))) as bench:
        bench.begin(A, B)
        until(lambda: len(recorder.began) == 2, "both have begun")
        assert {bench.status(A), bench.status(B)} == {"RUNNING"}
        assert all(isinstance(stop, StopEvent | AsyncStopEvent) for stop in recorder.stops)
        assert [stop.seconds_left for stop in recorder.stops] == [None, None]
        assert bench.end(A).wait(10)
        assert recorder.ended == [(Resource("a", 0), False)]
        assert (bench.status(A), bench.status(B)) == (None, "RUNNING")
    assert sorted(recorder.ended) == [(Resource("a", 0), False), (Resource("a", 1), False)]


def test_a_loss_is_seen_by_the_work(recorder, form):
    with closing(Bench(getattr(recorder, form))) as bench:
        bench.begin(A)
        until(lambda: recorder.began, "it has begun")
        bench.supervisor.drop((A,), (A,))
        assert bench.end(call=LOST).wait(10)
        until(lambda: recorder.ended == [(Resource("a", 0), True)], "it has seen the loss")
    assert bench.supervisor.failure is None


def test_a_loss_is_seen_before_the_call_that_tells_of_it(recorder, form):
    """That call waits for the hand-over that is under way."""
    with closing(Bench(getattr(recorder, form))) as bench:
        bench.begin(A)
        until(lambda: recorder.began, "it has begun")
        bench.supervisor.drop((A,), (A,))
        until(lambda: recorder.ended == [(Resource("a", 0), True)], "it has seen the loss")


def test_a_wait_of_an_event_has_a_time(form):
    seen = []

    def run(resource, stop):
        seen.append((stop.wait(0.01), stop.is_set()))
        stop.wait()
        seen.append((stop.wait(0.01), stop.is_set(), 0 < stop.seconds_left <= 0.2))

    async def run_async(resource, stop):
        seen.append((await stop.wait(0.01), stop.is_set()))
        await stop.wait()
        seen.append((await stop.wait(0.01), stop.is_set(), 0 < stop.seconds_left <= 0.2))

    with closing(Bench({"run": run, "run_async": run_async}[form])) as bench:
        bench.begin(A)
        until(lambda: seen, "it has waited")
        assert bench.end().wait(10)
    assert seen == [(False, False), (True, True, True)]


def failing(form, error, times=1_000):
    """Work that raises so often, and then runs; how often it was called."""
    calls = []

    def run(resource, stop):
        calls.append(resource)
        if len(calls) <= times:
            raise error
        stop.wait()

    async def run_async(resource, stop):
        calls.append(resource)
        if len(calls) <= times:
            raise error
        await stop.wait()

    return {"run": run, "run_async": run_async}[form], calls


def test_what_fails_is_tried_again_until_it_runs(form, caplog):
    run, calls = failing(form, OSError("no disk"), times=3)
    with closing(Bench(run)) as bench:
        bench.begin(A)
        until(lambda: len(calls) == 4 and bench.status() == "RUNNING", "the fourth attempt runs")
        state = bench.supervisor.states()[Resource("a", 0)]
        assert (state.failures, state.error) == (3, "OSError: no disk")
        assert bench.end().wait(10)
    told = [r for r in caplog.records if "has failed" in r.getMessage()]
    assert [r.getMessage().split(":")[-2].split(",")[-1] for r in told] == [
        " 1 in a row",
        " 2 in a row",
        " 3 in a row",
    ]
    assert all(r.exc_info[1].args == ("no disk",) for r in told)
    assert "a-0 has failed" in told[0].getMessage()


def test_what_fails_while_it_runs_is_failed_and_others_run_on(recorder):
    may_fail = threading.Event()

    def run(resource, stop):
        if resource.number == 0 and may_fail.wait(30):
            raise OSError("gone")
        recorder.run(resource, stop)

    with closing(Bench(run, **{"holdfast.restart.backoff.ms": 600})) as bench:
        bench.begin(A, B)
        until(lambda: bench.status(A) == bench.status(B) == "RUNNING", "both run")
        may_fail.set()
        until(lambda: bench.status(A) == "FAILED", "one has failed")
        assert bench.status(B) == "RUNNING"


def test_a_group_is_asked_for_a_round_when_something_fails_again(form):
    run, _ = failing(form, OSError("no disk"))
    with closing(Bench(run)) as bench:
        bench.begin(A)
        until(lambda: bench.rebalances, "a round is asked for")
        (said,) = bench.supervisor.report()
        assert said == ("a", "OSError", (0,))


def test_the_end_of_work_that_raises_is_an_end(recorder, form, caplog):
    def run(resource, stop):
        stop.wait()
        raise ValueError("not saved")

    async def run_async(resource, stop):
        await stop.wait()
        raise ValueError("not saved")

    with closing(Bench({"run": run, "run_async": run_async}[form])) as bench:
        bench.begin(A, B)
        until(lambda: bench.status(A) == "RUNNING", "it runs")
        assert bench.end(A).wait(10)
        assert bench.status(B) == "RUNNING"
    assert "the end of the work on a-0 raised" in caplog.text
    assert "not saved" in caplog.text


def test_work_that_ignores_its_stop_is_overdue(caplog):
    may_end, lost = threading.Event(), []

    def run(resource, stop):
        may_end.wait(30)
        lost.append(stop.is_lost)

    with closing(Bench(run)) as bench:
        bench.begin(A)
        began = time.monotonic()
        assert bench.end().wait(10)
        assert time.monotonic() - began >= 0.2
        assert bench.supervisor.overdue() == {Resource("a", 0)}
        assert "the work on a-0 has not ended in time" in caplog.text
        bench.begin(A)  # it comes back, and waits for the earlier attempt
        until(lambda: bench.status() == "STARTING", "it waits")
        may_end.set()
        until(lambda: len(lost) == 2, "the next attempt has run")
        until(lambda: not bench.supervisor.overdue(), "nothing is overdue")
    assert lost[0] is True
    assert "the work on a-0 has ended, 0." in caplog.text


def test_a_coroutine_that_ignores_its_stop_is_cancelled():
    ends = []

    async def run(resource, stop):
        try:
            await asyncio.sleep(3_600)
        finally:
            ends.append(stop.is_lost)

    with closing(Bench(run)) as bench:
        bench.begin(A)
        until(lambda: bench.status() == "RUNNING", "it runs")
        assert bench.end().wait(10)
        until(lambda: ends == [True], "it is cancelled")
        until(lambda: not bench.supervisor.overdue(), "and has ended")


def test_a_coroutine_that_cancels_itself_has_failed():
    async def run(resource, stop):
        raise asyncio.CancelledError

    with closing(Bench(run)) as bench:
        bench.begin(A)
        until(lambda: any(s.failures for s in bench.supervisor.states().values()), "a failure")


def test_what_returns_by_itself_has_ended(form):
    async def run_async(resource, stop):
        """Return at once."""

    run = {"run": lambda resource, stop: None, "run_async": run_async}[form]
    with closing(Bench(run)) as bench:
        bench.begin(A)
        until(lambda: bench.status() == "ENDED", "it has ended")
        assert bench.end().wait(10)


@pytest.mark.parametrize("shape", ["partial", "method", "object"])
def test_a_coroutine_function_has_many_shapes(recorder, shape):
    class Callable:
        async def __call__(self, resource, stop):
            await recorder.run_async(resource, stop)

    async def more(recorder, resource, stop):
        await recorder.run_async(resource, stop)

    run = {"partial": functools.partial(more, recorder), "method": recorder.run_async}
    with closing(Bench(run.get(shape, Callable()))) as bench:
        bench.begin(A)
        until(lambda: recorder.began, "it has begun")
        assert isinstance(recorder.stops[0], AsyncStopEvent)


def test_a_function_that_returns_a_coroutine_has_failed(recorder):
    def run(resource, stop):
        return recorder.run_async(resource, stop)

    with closing(Bench(run)) as bench:
        bench.begin(A)
        until(lambda: bench.status() == "FAILED", "it has failed")
        assert "give an async function" in bench.supervisor.states()[Resource("a", 0)].error


# Bounds

MANY = tuple(("many", n) for n in range(2_000))


def holdfast_threads():
    return [t for t in threading.enumerate() if t.name.startswith("holdfast-many-")]


def test_functions_have_a_bound_of_threads_and_all_get_their_turn():
    began, most = [], []

    def run(resource, stop):
        began.append(resource)
        most.append(len(holdfast_threads()))

    with closing(Bench(run, **{"holdfast.run.threads": 20})) as bench:
        bench.begin(*MANY)
        until(lambda: len(began) == len(MANY), lambda: f"{len(began)} have begun")
    assert max(most) <= 20


def test_two_thousand_functions_run_in_five_hundred_threads(recorder):
    with closing(Bench(recorder.run)) as bench:
        bench.begin(*MANY)
        until(lambda: len(recorder.began) >= 500, lambda: f"{len(recorder.began)} have begun")
        statuses = [state.status.value for state in bench.supervisor.states().values()]
        assert statuses.count("RUNNING") == len(holdfast_threads()) == 500
        assert statuses.count("STARTING") == 1_500
        assert bench.end(*MANY).wait(30)
        assert len(recorder.began) == 500  # the others have not begun to end at once
    until(lambda: not holdfast_threads(), "no thread is left")


def test_two_thousand_coroutines_run_in_one_thread(recorder):
    before = threading.active_count()
    patient = {"task.shutdown.graceful.timeout.ms": 30_000}
    with closing(Bench(recorder.run_async, **patient)) as bench:
        bench.begin(*MANY)
        until(lambda: len(recorder.began) == len(MANY), lambda: f"{len(recorder.began)} have begun")
        assert threading.active_count() <= before + 2
        assert bench.end(*MANY).wait(30)
    assert len(recorder.ended) == len(MANY)


def test_a_thread_that_cannot_be_started_fails_its_resource(recorder, monkeypatch):
    real = threading.Thread

    def make(*, name, **more):
        thread = real(name=name, **more)
        if name == "holdfast-a-0":

            def start():
                raise RuntimeError("can't start new thread")

            thread.start = start
        return thread

    monkeypatch.setattr(runners.threading, "Thread", make)
    with closing(Bench(recorder.run)) as bench:
        bench.begin(A, B)
        until(lambda: bench.status(A) == "FAILED", "it has failed")
        until(lambda: bench.status(B) == "RUNNING", "the other one runs")


# The end of a worker


def test_what_has_not_begun_never_begins_once_the_worker_ends():
    began = []

    def run(resource, stop):
        began.append(resource)
        stop.wait()

    with closing(Bench(run, **{"holdfast.run.threads": 3})) as bench:
        bench.begin(*MANY)
        until(lambda: len(began) == 3, "three have begun")
        bench.supervisor.stop_all()
        assert bench.end(*MANY).wait(10)
    assert len(began) == 3


def test_an_end_that_is_never_reached_is_not_waited_for():
    may_end = threading.Event()
    bench = Bench(lambda resource, stop: may_end.wait(30))
    bench.begin(A)
    until(lambda: bench.status() == "RUNNING", "it runs")
    began = time.monotonic()
    bench.close()
    assert time.monotonic() - began < 5
    may_end.set()


def test_work_is_inside_of_itself(form):
    inside = []
    holder = []

    def run(resource, stop):
        inside.append(holder[0].supervisor.is_inside())
        stop.wait()

    async def run_async(resource, stop):
        inside.append(holder[0].supervisor.is_inside())
        await stop.wait()

    with closing(Bench({"run": run, "run_async": run_async}[form])) as bench:
        holder.append(bench)
        bench.begin(A)
        until(lambda: inside == [True], "it knows")
        assert not bench.supervisor.is_inside()


def test_a_supervisor_has_nothing_to_commit_or_drain():
    said = []
    with closing(Bench()) as bench:
        bench.supervisor.mark_pending_revocation((A,), lambda: said.append("drained"))
        commit = actions.Commit(
            token=1, resources=(A,), generation=1, member_id="m", instance_id=None
        )
        bench.supervisor.commit(commit, said.append)
    assert said == ["drained", 0]


# A listener


class Desk:
    """Notes its calls; ``on_lost`` is missing unless a test gives it."""

    def __init__(self):
        self.calls = []
        self.poison = set()
        self.may_return = threading.Event()
        self.may_return.set()

    def on_assigned(self, resources):
        self.calls.append(("assigned", [r.number for r in resources]))
        self.may_return.wait(30)
        if bad := {r.number for r in resources} & self.poison:
            raise OSError(f"no {bad}")

    def on_revoked(self, resources):
        self.calls.append(("revoked", [r.number for r in resources]))
        self.may_return.wait(30)


@pytest.fixture
def desk():
    return Desk()


def test_a_listener_gets_the_resources_of_a_round_in_one_call(desk):
    with closing(Bench(listener=desk)) as bench:
        bench.begin(A, B)
        until(lambda: bench.status(A) == bench.status(B) == "RUNNING", "it has them")
        assert bench.end(A, B).wait(10)
    assert desk.calls == [("assigned", [0, 1]), ("revoked", [0, 1])]


def test_a_listener_that_cannot_begin_one_resource_has_the_others(desk):
    """``on_revoked`` for all of the call, and then each by itself."""
    desk.poison = {1}
    many = tuple(("a", n) for n in range(3))
    with closing(Bench(listener=desk)) as bench:
        bench.begin(*many)
        until(lambda: desk.calls.count(("assigned", [1])) >= 2, "it is tried again")
        until(lambda: bench.status(A) == bench.status(("a", 2)) == "RUNNING", "others run")
        assert desk.calls[:2] == [("assigned", [0, 1, 2]), ("revoked", [0, 1, 2])]
        after = desk.calls[2:]
        assert [call for call in after if call[1] == [0]] == [("assigned", [0])]
        assert {tuple(numbers) for _, numbers in after} == {(0,), (1,), (2,)}
        desk.poison = set()
        until(lambda: bench.status(B) == "RUNNING", "it runs in the end")
        assert bench.end(*many).wait(10)
    ends = [call for call in desk.calls if call[0] == "revoked"]
    assert ends[-1] == ("revoked", [0, 1, 2])


def test_callbacks_that_raise_are_reported_and_no_more(desk, caplog):
    def broken(resources):
        raise OSError("disk full")

    desk.on_revoked = desk.on_lost = broken
    with closing(Bench(listener=desk)) as bench:
        bench.begin(A, B)
        assert bench.end(A).wait(10)
        assert bench.end(B, call=LOST).wait(10)
        until(lambda: len([r for r in caplog.records if r.exc_info]) == 2, "both have ended")
        assert not bench.supervisor.overdue()
        assert bench.supervisor.error is bench.supervisor.failure is None
    told = [r.getMessage() for r in caplog.records if r.exc_info]
    assert told == [f"g: the end of the work on a-{n} raised" for n in range(2)]


def test_a_callback_that_does_not_return_holds_nothing_else(desk):
    with closing(Bench(listener=desk)) as bench:
        bench.begin(A)
        until(lambda: bench.status() == "RUNNING", "it runs")
        desk.may_return.clear()
        assert bench.end(A).wait(10)  # its time is over
        assert bench.supervisor.overdue() == {Resource("a", 0)}
        desk.on_assigned = lambda resources: desk.calls.append("beside")
        bench.begin(B)
        until(lambda: "beside" in desk.calls, "the next callback comes")
        assert "a-0 were lost before on_revoked had returned" in str(bench.supervisor.failure)
        desk.may_return.set()
        until(lambda: not bench.supervisor.overdue(), "it has ended")


def test_what_is_still_beginning_when_the_worker_ends_is_ended_behind_it(desk):
    desk.may_return.clear()
    bench = Bench(listener=desk)
    bench.begin(A, B)
    until(lambda: desk.calls, "it begins")
    began = time.monotonic()
    bench.close()
    assert time.monotonic() - began < 5
    desk.may_return.set()
    until(lambda: ("revoked", [0, 1]) in desk.calls, "what has begun late ends, too")


def test_what_has_not_begun_has_no_callback(desk):
    with closing(Bench(listener=desk)) as bench:
        bench.begin(A)
        until(lambda: bench.status() == "RUNNING", "it runs")
        desk.may_return.clear()
        bench.begin(B)
        bench.begin(("a", 2))  # waits for the call before
        until(lambda: ("assigned", [1]) in desk.calls, "it begins")
        assert bench.end(("a", 2)).wait(10)
        desk.may_return.set()
        until(lambda: bench.status(B) == "RUNNING", "it runs")
    assert not any(2 in numbers for _, numbers in desk.calls)


def test_a_loss_without_a_callback_is_told(desk):
    class Hears(Desk):
        def on_lost(self, resources):
            self.calls.append(("lost", [r.number for r in resources]))

    for listener, told in ((Hears(), ""), (None, ""), (desk, "the listener has no on_lost")):
        with closing(Bench(listener=listener)) as bench:
            bench.begin(A)
            bench.supervisor.drop((A,), (A,))
            until(lambda bench=bench: bench.status() == "RUNNING", "it runs")
            bench.end(call=LOST)
            until(lambda bench=bench: bench.status() is None, "it is lost")
            until(lambda bench=bench: not bench.supervisor.overdue(), "it has ended")
            failure = bench.supervisor.failure
            assert (failure is None) == (told == "")
            assert told in str(failure)


@pytest.mark.parametrize("loss", [False, True])
def test_state_that_was_saved_after_a_loss_is_told(desk, caplog, loss):
    """on_revoked began in order, and another worker may have begun before it returned."""
    with closing(Bench(listener=desk)) as bench:

        def save(resources):
            if loss:
                bench.supervisor.drop((A, B), (B,))
                until(lambda: bench.supervisor.failure, "it is told")

        desk.on_revoked = save
        bench.begin(A)
        assert bench.end(A).wait(10)
        failure = bench.supervisor.failure
        assert ("a-0 were lost before on_revoked had returned" in str(failure)) == loss
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == loss


def test_a_loss_of_what_has_failed_is_no_loss(desk):
    desk.poison = {0}
    with closing(Bench(listener=desk, **{"holdfast.restart.backoff.ms": 900})) as bench:
        bench.begin(A)
        until(lambda: bench.status() == "FAILED", "it has failed")
        bench.end(call=LOST)
        until(lambda: bench.status() is None, "it is lost")
        assert bench.supervisor.failure is None


def test_any_callback_may_be_missing():
    with closing(Bench(listener=object())) as bench:
        bench.begin(A)
        until(lambda: bench.status() == "RUNNING", "it counts as running")
        assert bench.end().wait(10)
