"""Application tasks: answered in every case, and repeated after an interruption."""

from __future__ import annotations

import queue

import pytest

from holdfast.members.runtime.application_tasks import ApplicationTask, ApplicationTasks, run_to_end


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
