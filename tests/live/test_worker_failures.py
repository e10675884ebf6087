"""Work that fails, work that does not end, and workers that end, in real groups."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from tests.cli.running import run as command
from tests.live.crew import fresh
from tests.live.processes import Processes
from tests.live.waiting import until
from tests.suites import further

from holdfast import Resource, Worker
from holdfast.core.machine.leader.targets import MOST_TRIED
from holdfast.members.resources import attempts

pytestmark = pytest.mark.broker

BEATS = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300}
SOON = {"holdfast.restart.backoff.max.ms": 4_000}
N = 12


@pytest.fixture(autouse=True)
def earlier_rebalances(monkeypatch):
    """A worker asks for its next rebalance after 1.5 s, not 10."""
    monkeypatch.setattr(attempts, "REBALANCE_MS", 1_500)


class Post:
    """One worker of a group, and what its work has done; a test says what fails."""

    def __init__(self, broker, group, name, n=N, form="run", **config):
        self.begun: Counter[int] = Counter()
        self.running: set[int] = set()
        self.ended: list[tuple[int, bool]] = []
        self.poison: set[int] = set()
        self.breaks = threading.Event()  # what runs and is poison raises now
        self.stubborn: set[int] = set()
        self.may_end = threading.Event()
        self.raises_at_end: set[int] = set()
        self.group = group
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": name}
        work = {"listener": self} if form == "listener" else {"run": getattr(self, form)}
        self.worker = Worker({**settings, **BEATS, **config}, {"job": n}, **work)
        self.worker.start()

    def begin(self, number):
        self.begun[number] += 1
        if number in self.poison:
            raise OSError(f"no job {number}")
        self.running.add(number)

    def end(self, number, is_lost=False):
        self.running.discard(number)
        self.ended.append((number, is_lost))
        if number in self.raises_at_end:
            raise ValueError(f"job {number} not saved")

    def run(self, resource, stop):
        self.begin(resource.number)
        while not stop.wait(0.05):
            if self.breaks.is_set() and resource.number in self.poison:
                self.running.discard(resource.number)
                raise OSError(f"job {resource.number} broke")
        if resource.number in self.stubborn:
            self.may_end.wait(60)
        self.end(resource.number, stop.is_lost)

    async def run_async(self, resource, stop):
        self.begin(resource.number)
        while not await stop.wait(0.05):
            if self.breaks.is_set() and resource.number in self.poison:
                self.running.discard(resource.number)
                raise OSError(f"job {resource.number} broke")
        self.end(resource.number, stop.is_lost)

    def many(self, resource, stop):
        self.begin(resource.number)
        stop.wait()
        self.running.discard(resource.number)

    async def many_async(self, resource, stop):
        self.begin(resource.number)
        await stop.wait()
        self.running.discard(resource.number)

    def on_assigned(self, resources):
        for resource in resources:
            self.begin(resource.number)

    def on_revoked(self, resources):
        for resource in resources:
            self.end(resource.number)

    def failed(self):
        return {
            resource.number: state
            for resource, state in self.worker.states.items()
            if state.status.value == "FAILED"
        }


@contextmanager
def posts(broker, names="abc", **more) -> Iterator[list[Post]]:
    """A group of workers that shares its resources evenly."""
    group = fresh("workers")
    with ExitStack() as stack:
        made: list[Post] = []
        for name in names:
            made.append(Post(broker, group, name, **more))
            stack.enter_context(closing(made[-1].worker))
            until(lambda: shared(made, more.get("n", N)), f"{len(made)} workers share")
        yield made


def running(made):
    return sorted(number for post in made for number in {*post.running})


def loads(made):
    return [len(post.worker.owned) for post in made]


def shared(made, n=N):
    even = loads(made)
    return running(made) == [*range(n)] and sum(even) == n and max(even) - min(even) <= 1


def settled(made):
    """All workers are in one generation, and no worker is still to ask for a round."""
    at = {post.worker.generation for post in made}
    time.sleep((attempts.REBALANCE_MS + attempts.COLLECT_MS) / 1000)
    return len(at) == 1 and {post.worker.generation for post in made} == at


FORMS = further(["run", "run_async", "listener"], stays=["listener"])


@pytest.mark.parametrize("form", FORMS)
def test_one_resource_that_starts_nowhere_takes_nothing_else_down(broker, form):
    """``on_assigned`` for job 3 raised on one worker after the other until all were gone."""
    group, made = fresh("workers"), []
    with ExitStack() as stack:
        for name in "abc":
            made.append(post := Post(broker, group, name, form=form, **SOON))
            post.poison = {3}
            stack.enter_context(closing(post.worker))
        others = [n for n in range(N) if n != 3]
        until(lambda: running(made) == others, "eleven jobs run")
        until(lambda: all(post.begun[3] >= 2 for post in made), "all three have tried it")
        until(lambda: settled(made), "the group rests")
        before, begun = made[0].worker.generation, [Counter(post.begun) for post in made]
        assert before < 12, "rounds have a bound"
        (owner,) = [post for post in made if post.failed()]
        (state,) = owner.failed().values()
        assert state.error == "OSError: no job 3" and state.failures >= 2
        counted = owner.worker.metrics()
        assert (counted.failed_resources, counted.running_resources) == (1, loads([owner])[0] - 1)
        tries = owner.begun[3]
        until(lambda: owner.begun[3] > tries, "it is tried on")
        assert {post.worker.generation for post in made} == {before}, "without a round"
        for post in made:
            post.poison = set()
        until(lambda: running(made) == [*range(N)], "it runs as soon as it can")
        for post, count in zip(made, begun, strict=True):
            assert post.begun - count <= Counter({3: 100}), "no other job was begun again"


@pytest.mark.parametrize("form", further(["run", "run_async"]))
def test_what_fails_on_one_worker_alone_runs_on_another(broker, form):
    with posts(broker, form=form) as made:
        first = made[0]
        mine = set(first.running)
        bad = min(mine)
        before = [set(post.running) for post in made]
        first.poison = {bad}
        first.breaks.set()  # it fails while it runs
        until(lambda: any(bad in post.running for post in made[1:]), "another worker runs it")
        until(lambda: settled(made), "the group rests")
        assert first.running == mine - {bad} and not first.failed()
        for post, had in zip(made[1:], before[1:], strict=True):
            assert had <= post.running, "nothing else has moved"
        assert sorted(loads(made)) == [3, 4, 5]


@pytest.mark.spark
@pytest.mark.every
def test_the_doctor_names_work_that_nobody_does_and_work_that_has_moved(broker, spark):
    with posts(broker, "ab") as made:
        first, second = made
        moves = min(first.running)
        nowhere = max(second.running)
        first.poison, second.poison = {moves, nowhere}, {nowhere}
        for post in made:
            post.breaks.set()
        until(lambda: all(post.begun[nowhere] >= 2 for post in made), "both have tried it")
        until(lambda: moves in second.running, "the other one runs")
        until(lambda: settled(made), "the group rests")
        at = ("-b", broker.bootstrap, "--group", first.group)
        done = command("doctor", *at, "--format", "json")
        (group,) = json.loads(done.out)["groups"]
        error, warning = (f for f in group["findings"] if f["code"] == "HF131")
        ids = [post.worker.metrics().member_id for post in made]
        assert (error["severity"], warning["severity"]) == ("error", "warn")
        assert error["text"] == "the work on 1 resource has failed (OSError): no worker does it"
        assert error["evidence"]["partitions"] == [f"job-{nowhere}"]
        assert sorted(error["evidence"]["members"]) == sorted(ids)
        assert warning["evidence"]["partitions"] == [f"job-{moves}"]
        assert warning["evidence"]["members"] == ids[:1]


@pytest.mark.every
def test_what_all_work_needs_may_be_gone_and_come_back(broker):
    """Everything fails everywhere, few rounds are made of it, and everything runs again."""
    with posts(broker) as made:
        before = made[0].worker.generation
        for post in made:
            post.poison = set(range(N))
            post.breaks.set()
        until(lambda: sum(len(post.failed()) for post in made) == N, "all have failed")
        until(lambda: min(post.worker.metrics().resource_failures_total for post in made) > 8, "on")
        until(lambda: settled(made), "the group rests")
        assert made[0].worker.generation - before <= 3 * MOST_TRIED
        assert sum(loads(made)) == N
        for post in made:
            post.poison = set()
            post.breaks.clear()
        until(lambda: running(made) == [*range(N)], "all run again")


def test_an_end_that_raises_holds_up_nothing(broker, caplog):
    with posts(broker, "a") as made:
        made[0].raises_at_end = set(range(N))
        made.append(Post(broker, made[0].group, "b"))
        with closing(made[1].worker):
            until(lambda: shared(made), "two workers share")
    assert "the end of the work on job-" in caplog.text
    assert "not saved" in caplog.text


def test_an_end_that_never_comes_is_waited_for_so_long_and_no_longer(broker, caplog):
    """Two owners for a while: the work, the log, the metrics and the worker say so."""
    limit = {"task.shutdown.graceful.timeout.ms": 1_500}
    with posts(broker, "a", **limit) as made:
        first = made[0]
        first.stubborn = set(range(N))
        made.append(second := Post(broker, first.group, "b", **limit))
        began = time.monotonic()
        with closing(second.worker):
            until(lambda: len(second.running) == N // 2, "the second has its share")
            assert time.monotonic() - began > 1.5
            late = {Resource("job", n) for n in second.running}
            assert first.worker.overdue == late
            assert first.worker.metrics().overdue_resources == len(late)
            assert "has not ended in time (task.shutdown.graceful.timeout.ms)" in caplog.text
            first.may_end.set()
            until(lambda: not first.worker.overdue, "the first has ended")
            assert sorted(first.ended) == sorted((r.number, True) for r in late)


@pytest.mark.parametrize("form", further(["many_async", "many"]))
def test_two_thousand_resources(broker, form):
    """Begun by one worker, divided by two, in few threads where they are coroutines."""
    n = 2_000
    config = {"holdfast.run.threads": n}  # of a process that may have so many
    before = threading.active_count()
    with posts(broker, "a", n=n, form=form, **config) as made:
        if form == "many_async":
            assert threading.active_count() < before + 25
        made.append(Post(broker, made[0].group, "b", n=n, form=form, **config))
        with closing(made[1].worker):
            until(lambda: shared(made, n), lambda: f"two workers share: {loads(made)}")
    assert running(made) == []


# Processes

MEMBER = Path(__file__).parent / "working_member.py"


class Programs(Processes):
    """Programs of one group, by name."""

    def __init__(self, broker, folder):
        super().__init__(folder)
        self.bootstrap, self.group = broker.bootstrap, fresh("works")

    def start(self, name, form, n=N, **config):
        arguments = (self.bootstrap, self.group, form, str(n), json.dumps(config))
        self.launch(name, [sys.executable, str(MEMBER), *arguments])

    def count(self, name, word):
        return sum(line[1:2] == [word] for line in self.lines(name))

    def end(self, name, number):
        """Signal it; its exit code, and how many seconds it took."""
        began = time.monotonic()
        self.running[name].send_signal(number)
        return self.gone(name), time.monotonic() - began


@pytest.mark.parametrize(
    ("form", "number", "within_s"),
    further(
        [
            ("looks", signal.SIGTERM, 3),
            ("blind", signal.SIGTERM, 9),
            ("task", signal.SIGTERM, 9),
            ("listener", signal.SIGTERM, 9),
            ("looks", signal.SIGINT, 3),
            ("blind", signal.SIGINT, 9),
        ],
        stays=[("listener", signal.SIGTERM, 9)],
    ),
)
def test_a_signal_ends_a_process_whose_work_is_starting(broker, tmp_path, form, number, within_s):
    """It took as long as all starts of the round together: 16 s of 20."""
    with Programs(broker, tmp_path) as programs:
        programs.start("a", form, n=20)
        until(lambda: programs.count("a", "begins") >= 3, "work is starting")
        code, took_s = programs.end("a", number)
        assert code == (143 if number == signal.SIGTERM else -signal.SIGINT)
        assert took_s < within_s
        assert programs.count("a", "runs") == 0
        if form == "looks":
            assert programs.count("a", "ended") == 20, "all have seen it"
        if form == "task":
            assert programs.count("a", "cancelled") == 20


@pytest.mark.every
def test_a_slow_end_does_not_hold_the_resources_of_a_dead_worker(broker, tmp_path):
    """The jobs of a killed worker waited 42 s for the end of another job of another worker."""
    with Programs(broker, tmp_path) as programs:
        programs.start("a", "quick")
        until(lambda: programs.count("a", "runs") == N, "one worker has all")
        programs.start("b", "slow")
        until(lambda: programs.count("b", "runs") == N // 2, "two workers share")
        programs.start("c", "quick")
        until(lambda: programs.count("b", "ending") > 0, "a slow job is to end")
        programs.kill("a")
        killed = time.time()

        def begun_since():
            rows = [row for name in "bc" for row in programs.lines(name)]
            return {row[2] for row in rows if row[1] == "runs" and float(row[0]) > killed - 1}

        until(lambda: len(begun_since()) >= N // 2 - 2, "the jobs of the dead worker run", 25)
        assert programs.count("b", "ended") == 0, "before the slow job has ended"
