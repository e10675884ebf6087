"""Application tasks, answered in every case, and their mailbox: many writers, signals between."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from holdfast.cluster.signal_safe import Mailbox
from holdfast.members.runtime.application_calls import (
    ApplicationTask,
    ApplicationTasks,
    run_to_end,
)


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


def test_items_come_in_order_and_an_empty_box_says_so():
    box = Mailbox()
    for number in range(5):
        box.put(number)
    assert [box.get(0) for _ in range(5)] == [0, 1, 2, 3, 4]
    for timeout in (0, 0.01):
        with pytest.raises(queue.Empty):
            box.get(timeout)
    box.put(5)
    assert box.get() == 5


def test_a_handler_that_outlasts_the_wait_does_not_make_it_endless(on_alarm):
    """``SimpleQueue.get`` of CPython 3.11 never comes back from this."""
    on_alarm(lambda: time.sleep(0.2), 0.02)
    with pytest.raises(queue.Empty):
        Mailbox().get(0.1)


def test_a_handler_may_put_whatever_it_interrupts(on_alarm):
    box, heard = Mailbox(), 0
    on_alarm(lambda: box.put("alarm"), 0.0005, every=0.0005)
    while heard < 200:
        box.put("ours")
        while box.get(30) != "ours":
            heard += 1


def test_nothing_is_lost_between_threads():
    box, n_writers, n_each = Mailbox(), 4, 2_000

    def write(writer):
        for number in range(n_each):
            box.put((writer, number))

    threads = [threading.Thread(target=write, args=(w,)) for w in range(n_writers)]
    for thread in threads:
        thread.start()
    got = [box.get(30) for _ in range(n_writers * n_each)]
    for thread in threads:
        thread.join()
    for writer in range(n_writers):
        assert [n for w, n in got if w == writer] == list(range(n_each))
    with pytest.raises(queue.Empty):
        box.get(0)
