"""Errands: answered at all events, and done again after an interruption."""

from __future__ import annotations

import queue

import pytest

from holdfast.members.member.errands import Errand, Errands, to_the_end


def failing(times, notes):
    """Work that is interrupted so often."""

    def work():
        notes.append("work")
        if notes.count("work") <= times:
            raise KeyboardInterrupt

    return work


def test_an_interrupted_errand_is_back_in_its_place_and_is_done_by_the_next_call():
    errands, notes = Errands(), []
    errands.put(Errand(failing(1, notes), lambda _: notes.append("answer")))
    errands.put(Errand(lambda: notes.append("later")))
    with pytest.raises(KeyboardInterrupt):
        errands.do_next(0)
    assert errands.do_all(0) == (2, None)
    assert notes == ["work", "work", "answer", "later"]


def test_what_is_interrupted_twice_is_answered():
    errands, answers = Errands(), []
    errands.put(Errand(failing(9, []), answers.append))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            errands.do_next(0)
    assert [type(error) for error in answers] == [KeyboardInterrupt]
    with pytest.raises(queue.Empty):
        errands.do_next(0)


def test_an_interruption_in_the_answer_does_it_again():
    errands, notes = Errands(), []
    errands.put(Errand(lambda: notes.append("done"), lambda _: failing(1, notes)()))
    with pytest.raises(KeyboardInterrupt):
        errands.do_next(0)
    errands.do_next(0)
    assert notes == ["done", "work", "done", "work"]


def test_an_errand_may_do_the_next_one():
    errands, notes = Errands(), []
    errands.put(Errand(lambda: (errands.do_next(0), notes.append("first"))[1]))
    errands.put(Errand(lambda: notes.append("second")))
    errands.do_next(0)
    assert notes == ["second", "first"]
    assert not errands.items


def test_an_interrupted_end_goes_on_and_raises_then():
    notes = []
    with pytest.raises(KeyboardInterrupt):
        to_the_end(failing(1, notes))
    assert notes == ["work", "work"]
