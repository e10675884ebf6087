"""A lag source behind its time-out: whatever it does, the leader gets lags that fit."""

import threading

import pytest

from holdfast.members.member.lag_source import AskedInTime

COUNTS = {"a": 2, "b": 1}
NOTHING = {"a": [0, 0], "b": [0]}


def test_what_the_source_knows_is_taken_and_the_rest_is_zero():
    assert AskedInTime(lambda counts: {"a": [7, 8]})(COUNTS) == {"a": [7, 8], "b": [0]}
    assert AskedInTime(lambda counts: {t: [5] * n for t, n in counts.items()})(COUNTS) == {
        "a": [5, 5],
        "b": [5],
    }


@pytest.mark.parametrize(
    "answer",
    [{"a": [1]}, {"a": [1, -1]}, {"a": ["many", 1]}, {"a": None}, None, 7],
    ids=["too few", "negative", "not a number", "nothing for a topic", "nothing", "no mapping"],
)
def test_an_answer_that_does_not_fit_costs_the_round_its_lags(answer, caplog):
    assert AskedInTime(lambda _: answer)(COUNTS) == NOTHING
    assert "planned by counts" in caplog.text


def test_a_source_that_fails_is_named_and_the_round_goes_on(caplog):
    def source(counts):
        raise ConnectionError("the broker is away")

    assert AskedInTime(source)(COUNTS) == NOTHING
    assert "the broker is away" in caplog.text


def test_no_source_means_counts(caplog):
    assert AskedInTime(None)(COUNTS) == NOTHING
    assert "holdfast.lag.source" in caplog.text


def test_a_late_source_is_not_waited_for_and_not_asked_again_before_it_answers(caplog):
    asked, go_on, answered = [], threading.Event(), threading.Event()

    def source(counts):
        asked.append(counts)
        go_on.wait(60)
        answered.set()
        return {"a": [1, 2]}

    ask = AskedInTime(source, timeout_ms=10)
    assert ask(COUNTS) == NOTHING
    assert "within 10 ms" in caplog.text
    assert ask(COUNTS) == NOTHING
    assert len(asked) == 1
    go_on.set()
    assert answered.wait(60)
    patient = AskedInTime(source, timeout_ms=60_000)
    assert patient(COUNTS) == {"a": [1, 2], "b": [0]}
