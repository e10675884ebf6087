"""Closes from a handler, from another thread, inside a call, and twice; interrupted tasks."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from holdfast.members.runtime.application_calls import (
    ApplicationCalls,
    ApplicationTask,
    ApplicationTasks,
    run_to_end,
)


class Ends:
    """Notes each end; waits for ``may_end`` inside."""

    def __init__(self):
        self.ends = []
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, timeout_s, returns):
        self.begun.set()
        assert self.may_end.wait(30)
        self.ends.append((timeout_s, returns, threading.get_ident()))


def test_the_first_close_ends_and_the_second_does_nothing():
    closing = ApplicationCalls(ends := Ends())
    assert not closing.is_closing()
    closing.close(10.0, returns=False)
    closing.close(10.0, returns=True)
    [(left_s, returns, _)] = ends.ends
    assert 9 < left_s <= 10
    assert returns is False
    assert closing.is_closing()
    assert closing.is_done


def test_a_close_inside_a_call_happens_when_the_outermost_call_comes_out():
    closing = ApplicationCalls(ends := Ends())

    def close():
        closing.close(10.0, returns=True)
        closing.close(10.0, returns=True)

    def outermost():
        closing.run(close)
        assert closing.is_closing()
        assert not ends.ends

    closing.run(outermost)
    assert len(ends.ends) == 1


def test_a_call_that_raises_is_closed_as_well():
    closing = ApplicationCalls(ends := Ends())

    def call():
        closing.close(10.0, returns=True)
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        closing.run(call)
    assert len(ends.ends) == 1


def test_a_close_from_another_thread_waits_for_the_call():
    closing = ApplicationCalls(ends := Ends())
    other = threading.Thread(target=closing.close, args=(30.0,), kwargs={"returns": True})

    def call():
        other.start()
        while not closing.is_closing():
            time.sleep(0.001)
        assert not ends.ends

    closing.run(call)
    other.join(30)
    assert [by for *_, by in ends.ends] == [other.ident]


def test_a_close_does_not_wait_longer_than_it_was_told():
    """A call that hangs costs the close its time-out, and no more."""
    closing = ApplicationCalls(ends := Ends())
    other = threading.Thread(target=closing.close, args=(0.05,), kwargs={"returns": True})

    def call():
        other.start()
        other.join(30)
        assert [left_s for left_s, *_ in ends.ends] == [0.0]

    closing.run(call)


def test_a_second_closer_waits_until_it_is_done():
    closing = ApplicationCalls(ends := Ends())
    ends.may_end.clear()
    first = threading.Thread(target=closing.close, args=(30.0,), kwargs={"returns": True})
    first.start()
    assert ends.begun.wait(30)
    closing.close(0.02, returns=True)  # its own time-out
    assert not closing.is_done
    ends.may_end.set()
    closing.close(30.0, returns=True)
    assert closing.is_done
    first.join(30)


def test_a_close_in_a_callback_of_the_close_returns_at_once():
    closings = []

    def end(timeout_s, returns):
        closings[0].close(30.0, returns=True)

    closings.append(ApplicationCalls(end))
    closings[0].close(30.0, returns=True)
    assert closings[0].is_done


def test_an_end_that_raises_is_over():
    def end(timeout_s, returns):
        raise KeyError("x")

    closing = ApplicationCalls(end)
    with pytest.raises(KeyError):
        closing.close(1.0, returns=True)
    assert closing.is_done


def test_an_interrupted_end_is_called_once_more_before_the_interruption_is_raised():
    ends = []

    def end(timeout_s, returns):
        ends.append(returns)
        if len(ends) == 1:
            raise KeyboardInterrupt

    closing = ApplicationCalls(end)
    with pytest.raises(KeyboardInterrupt):
        closing.close(1.0, returns=True)
    assert ends == [True, True]


# Tasks


def failing(times, notes):
    """Work that is interrupted so often."""

    def work():
        notes.append("work")
        if notes.count("work") <= times:
            raise KeyboardInterrupt

    return work


def test_an_interrupted_task_is_back_in_its_place_and_is_done_by_the_next_call():
    tasks, notes = ApplicationTasks(), []
    tasks.put(ApplicationTask(failing(1, notes), lambda _: notes.append("answer")))
    tasks.put(ApplicationTask(lambda: notes.append("later")))
    with pytest.raises(KeyboardInterrupt):
        tasks.do_next(0)
    assert tasks.do_all(0) == (2, None)
    assert notes == ["work", "work", "answer", "later"]


def test_what_is_interrupted_twice_is_answered():
    tasks, answers = ApplicationTasks(), []
    tasks.put(ApplicationTask(failing(9, []), answers.append))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            tasks.do_next(0)
    assert [type(error) for error in answers] == [KeyboardInterrupt]
    with pytest.raises(queue.Empty):
        tasks.do_next(0)


def test_an_interruption_in_the_answer_does_it_again():
    tasks, notes = ApplicationTasks(), []
    tasks.put(ApplicationTask(lambda: notes.append("done"), lambda _: failing(1, notes)()))
    with pytest.raises(KeyboardInterrupt):
        tasks.do_next(0)
    tasks.do_next(0)
    assert notes == ["done", "work", "done", "work"]


def test_a_task_may_do_the_next_one():
    tasks, notes = ApplicationTasks(), []
    tasks.put(ApplicationTask(lambda: (tasks.do_next(0), notes.append("first"))[1]))
    tasks.put(ApplicationTask(lambda: notes.append("second")))
    tasks.do_next(0)
    assert notes == ["second", "first"]
    assert not tasks.items


def test_an_interrupted_end_goes_on_and_raises_then():
    notes = []
    with pytest.raises(KeyboardInterrupt):
        run_to_end(failing(1, notes))
    assert notes == ["work", "work"]
