"""The decisions of a worker's resource machine, and the times of retries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.wire.layouts.container import MOST_FAILED, FailedPartitions
from holdfast.members.resources.attempts import (
    COLLECT_MS,
    REBALANCE_MS,
    REPORTED_AFTER,
    Effect,
    EffectKind,
    Failures,
    Resource,
    ResourceStatus,
)
from holdfast.members.resources.machine import ResourceMachine

A, B, C = (Resource("job", n) for n in range(3))
STOP_MS, BACKOFF_MS, MOST_MS = 5_000, 1_000, 60_000
BROKEN = OSError("no disk")
STOPS = (EffectKind.STOP, EffectKind.STOP_LOST)


class Play:
    """A machine, its clock, and the attempts that it has begun."""

    def __init__(self, **options):
        self.failures = Failures(BACKOFF_MS, MOST_MS, "w")
        self.machine = ResourceMachine(self.failures, stop_ms=STOP_MS, **options)
        self.now_ms = 1_000_000
        self.begun = {}
        self.seen = []

    def note(self, effects):
        """Keep the effects; returns those that are new."""
        found = [*effects, *self.machine.tick(self.now_ms)]
        for effect in found:
            if effect.kind is EffectKind.BEGIN:
                self.begun |= {attempt.resource: attempt for attempt in effect.attempts}
        self.seen += found
        return found

    def do(self, name, *arguments):
        return self.note(getattr(self.machine, name)(self.now_ms, *arguments))

    def fail(self, resource, error=BROKEN):
        return self.do("ended", self.begun.pop(resource), error)

    def wait(self, ms):
        """Let time pass, deadline by deadline."""
        end_ms = self.now_ms + ms
        found = []
        while (due := self.machine.deadline_ms) is not None and due <= end_ms:
            self.now_ms = max(due, self.now_ms)
            found += self.note([])
        self.now_ms = end_ms
        return found

    def until_begun(self, resource):
        """Ms until the next attempt."""
        began_ms = self.now_ms
        while resource not in self.begun:
            self.now_ms = self.machine.deadline_ms
            self.note([])
        return self.now_ms - began_ms

    def status(self, resource):
        found = self.machine.states(self.now_ms).get(resource)
        return None if found is None else found.status.value


def kinds(effects):
    return [effect.kind for effect in effects]


def test_delays_grow_to_their_bound_and_are_not_alike():
    play = Play()
    play.do("assigned", (A, B))
    delays = {A: [], B: []}
    for _ in range(9):
        for resource in (A, B):
            play.fail(resource)
        for resource in (A, B):
            delays[resource].append(play.failures.by_resource[resource].retry_ms - play.now_ms)
        play.until_begun(A)
        play.until_begun(B)
    for own in delays.values():
        for n, delay in enumerate(own):
            whole = min(BACKOFF_MS << n, MOST_MS)
            assert 0.8 * whole <= delay <= 1.2 * whole


def test_what_failed_together_is_not_tried_together():
    """Neither on one worker nor on several."""
    for others in ([("w", n) for n in range(40)], [(f"w{n}", 7) for n in range(40)]):
        due_ms = []
        for who, number in others:
            failures = Failures(BACKOFF_MS, MOST_MS, who)
            due_ms.append(failures.record(Resource("job", number), BROKEN, 0, 0).retry_ms)
        assert max(due_ms) - min(due_ms) > 0.3 * BACKOFF_MS
        assert len(set(due_ms)) > 30


def test_whoever_has_run_for_long_begins_to_count_anew():
    play = Play()
    play.do("assigned", (A,))
    for n in range(1, 4):
        play.fail(A)
        assert play.failures.by_resource[A].count == n
        play.until_begun(A)
    play.wait(MOST_MS)
    assert play.machine.states(play.now_ms)[A].failures == 0
    play.fail(A)
    assert play.failures.by_resource[A].count == 1


def test_an_attempt_waits_for_an_earlier_one_in_this_process():
    play = Play()
    play.do("assigned", (A,))
    first = play.begun.pop(A)
    play.do("revoked", (A,), 1)
    play.wait(STOP_MS)
    assert play.do("assigned", (A,)) == []  # it came back
    assert (play.status(A), play.machine.overdue) == ("STARTING", (A,))
    ended, begin = play.do("ended", first, None)
    assert ended.kind is EffectKind.ENDED
    assert begin.attempts == (play.begun[A],)
    assert play.status(A) == "RUNNING"


def test_an_attempt_that_is_overdue_takes_nothing_from_the_next_one():
    """The first one ends while the second one waits to end: it is not taken for it."""
    play = Play()
    play.do("assigned", (A,))
    first = play.begun.pop(A)
    play.do("lost", (A,))
    play.do("assigned", (A,))
    play.wait(STOP_MS)  # nobody waits for the first one any more
    assert play.status(A) == "STARTING"
    play.do("ended", first, None)
    assert play.status(A) == "RUNNING"
    play.do("revoked", (A,), 4)
    assert play.do("ended", play.begun[A], None) == [Effect(kind=EffectKind.REVOKED, token=4)]


def test_a_bound_of_attempts_is_kept():
    play = Play(most=2)
    (begin,) = play.do("assigned", (A, B, C))
    assert [a.resource for a in begin.attempts] == [A, B]
    assert play.status(C) == "STARTING"
    _, begin = play.fail(A)
    assert [a.resource for a in begin.attempts] == [C]
    assert play.wait(2 * BACKOFF_MS) == []  # A waits now
    assert play.status(A) == "STARTING"
    play.do("revoked", (B,), 1)
    play.do("ended", play.begun.pop(B), None)
    assert play.status(A) == "RUNNING"


def test_a_revocation_behind_the_end_waits_for_the_same_work_and_no_longer():
    play = Play()
    play.do("assigned", (A, B))
    play.do("stop_all")
    play.wait(STOP_MS // 2)
    assert play.do("revoked", (A, B), 1) == []  # told already
    play.do("ended", play.begun.pop(A), None)
    assert play.wait(STOP_MS // 2) == [
        Effect(kind=EffectKind.OVERDUE, attempts=(play.begun[B],)),
        Effect(kind=EffectKind.REVOKED, token=1),
    ]


def test_a_listener_ends_its_resources_in_one_call_and_has_time_for_each():
    play = Play(one_call=True)
    play.do("assigned", (A, B, C))
    assert play.status(A) == "STARTING"
    for resource in (A, B):
        play.machine.started(play.begun[resource])
    assert (play.status(A), play.status(C)) == ("RUNNING", "STARTING")
    (stop,) = play.do("revoked", (A, B), 1)
    assert stop.attempts[0].deadline_ms == play.now_ms + 2 * STOP_MS
    (stop,) = play.do("revoked", (C,), 2)
    assert stop.attempts[0].deadline_ms == play.now_ms + STOP_MS


@pytest.mark.parametrize(("n_started", "times"), [(0, 1), (1, 2), (3, 3)])
def test_a_worker_that_ends_waits_once_for_all_that_a_listener_still_begins(n_started, times):
    play = Play(one_call=True)
    play.do("assigned", (A, B, C))
    for attempt in list(play.begun.values())[:n_started]:
        play.machine.started(attempt)
    (stop,) = play.do("stop_all")
    assert stop.attempts[0].deadline_ms == play.now_ms + times * STOP_MS


# What the group hears


def asked(effects):
    return kinds(effects).count(EffectKind.REQUEST_REBALANCE)


def test_a_group_hears_of_what_fails_again_and_again():
    play = Play()
    play.do("assigned", (A, B))
    for n in range(1, REPORTED_AFTER + 1):
        assert asked(play.seen) == 0 and play.machine.report(play.now_ms) == ()
        play.fail(A)
        if n < REPORTED_AFTER:
            play.until_begun(A)
    assert asked(play.wait(COLLECT_MS)) == 1
    found = (FailedPartitions("job", "OSError", (0,)),)
    assert play.machine.report(play.now_ms) == found
    for _ in range(12):  # it fails on and on, and the group has heard of it
        play.until_begun(A)
        play.fail(A)
    assert asked(play.seen) == 1
    assert play.machine.report(play.now_ms) == found


def test_a_round_that_comes_anyway_is_enough():
    play = Play()
    play.do("assigned", (A,))
    play.fail(A)
    play.until_begun(A)
    play.fail(A)
    assert play.machine.report(play.now_ms) != ()  # written into a subscription
    assert asked(play.wait(2 * REBALANCE_MS)) == 0


def test_a_group_hears_that_work_runs_again_and_not_at_once():
    play = Play()
    play.do("assigned", (A,))
    for _ in range(REPORTED_AFTER):
        play.fail(A)
        play.until_begun(A)
    play.machine.report(play.now_ms)
    assert asked(play.wait(MOST_MS - 1)) == 0
    assert asked(play.wait(1 + COLLECT_MS)) == 1
    assert play.machine.report(play.now_ms) == ()


def test_many_failures_ask_for_few_rounds():
    play = Play()
    every = [Resource("job", n) for n in range(300)]
    play.do("assigned", every)
    for _ in range(4):
        for resource in every:
            if resource in play.begun:
                play.fail(resource)
        asks = asked(play.wait(REBALANCE_MS))
        assert asks <= 1
        if asks:
            play.machine.report(play.now_ms)
    (found,) = play.machine.report(play.now_ms)
    assert len(found.partitions) == MOST_FAILED


def test_failures_one_after_the_other_ask_for_a_round_now_and_then():
    play = Play()
    every = [Resource("job", n) for n in range(30)]
    play.do("assigned", every)
    began_ms, asks = play.now_ms, 0
    for resource in every:
        for _ in range(REPORTED_AFTER):
            play.until_begun(resource)
            play.fail(resource)
        if asked(play.seen) > asks:
            asks = asked(play.seen)
            play.machine.report(play.now_ms)  # the round has begun
    assert 2 < asks <= 1 + (play.now_ms - began_ms) / REBALANCE_MS < 12


def test_what_another_worker_has_is_forgotten_later():
    play = Play()
    play.do("assigned", (A,))
    for _ in range(REPORTED_AFTER):
        play.until_begun(A)
        play.fail(A)
    play.do("revoked", (A,), 1)
    play.wait(MOST_MS)
    assert play.machine.report(play.now_ms) != ()
    play.wait(2 * MOST_MS)
    assert play.machine.report(play.now_ms) == ()


def test_what_comes_back_before_its_time_waits_for_it():
    play = Play()
    play.do("assigned", (A,))
    play.fail(A)
    play.do("revoked", (A,), 1)
    assert play.do("assigned", (A,)) == []
    assert play.status(A) == "FAILED"
    assert 0.7 * BACKOFF_MS < play.until_begun(A) < 1.3 * BACKOFF_MS
    assert play.begun[A].is_retry


def test_a_text_is_cut_and_a_report_has_no_text():
    failures = Failures(BACKOFF_MS, MOST_MS)
    for n in range(2):
        failures.record(A, ValueError("secret" * 1000), n, n)
    failures.record(B, KeyError(), 0, 0)
    assert len(failures.by_resource[A].text) == 500
    assert failures.report(0, ()) == (FailedPartitions("job", "ValueError", (0,)),)


@given(st.data())
def test_whatever_happens_every_revocation_is_done_and_no_resource_has_two_attempts(data):
    """Random events against a model of what runs; in the end all hand-overs are done."""
    play = Play(most=data.draw(st.sampled_from([None, 1, 2])))
    owned, alive, tokens = set(), {}, 0
    resources = (A, B, C)

    def follow():
        for effect in play.seen:
            if effect.kind is EffectKind.BEGIN:
                for attempt in effect.attempts:
                    assert attempt.resource not in alive, "two attempts"
                    alive[attempt.resource] = attempt
        play.seen = [e for e in play.seen if e.kind is not EffectKind.BEGIN]
        for resource, state in play.machine.states(play.now_ms).items():
            if state.status is ResourceStatus.RUNNING:
                assert resource in alive

    for _ in range(data.draw(st.integers(1, 25))):
        event = data.draw(st.sampled_from(["gain", "give", "lose", "end", "fail", "wait"]))
        resource = data.draw(st.sampled_from(resources))
        if event == "gain" and resource not in owned:
            owned.add(resource)
            play.do("assigned", (resource,))
        elif event == "give" and resource in owned:
            owned.remove(resource)
            play.do("revoked", (resource,), tokens)
            tokens += 1
        elif event == "lose" and resource in owned:
            owned.remove(resource)
            play.do("lost", (resource,))
        elif event in ("end", "fail") and resource in alive:
            play.do("ended", alive.pop(resource), BROKEN if event == "fail" else None)
        elif event == "wait":
            play.wait(data.draw(st.integers(1, 2 * STOP_MS)))
        follow()
        assert set(play.machine.states(play.now_ms)) - owned == {
            r
            for r, state in play.machine.states(play.now_ms).items()
            if state.status is ResourceStatus.STOPPING
        }
        assert set(play.machine.overdue) <= set(alive)
    play.do("stop_all")
    play.wait(STOP_MS + 1)
    follow()
    done = [e.token for e in play.seen if e.kind is EffectKind.REVOKED]
    assert sorted(done) == list(range(tokens))
    assert play.machine.is_idle
    stops = [a for e in play.seen if e.kind in STOPS for a in e.attempts]
    assert len(stops) == len(set(stops)), "told twice"
