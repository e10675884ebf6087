"""A lag source with a time-out: whatever it does, the leader gets valid lags."""

import threading

import pytest

from holdfast.members.runtime.leader_planner import timed_lag_source

COUNTS = {"a": 2, "b": 1}
NOTHING = {"a": [0, 0], "b": [0]}


def test_what_the_source_knows_is_taken_and_the_rest_is_zero():
    assert timed_lag_source(lambda counts: {"a": [7, 8]})(COUNTS) == {"a": [7, 8], "b": [0]}
    assert timed_lag_source(lambda counts: {t: [5] * n for t, n in counts.items()})(COUNTS) == {
        "a": [5, 5],
        "b": [5],
    }


def away(counts):
    raise ConnectionError("the broker is away")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        pytest.param(lambda _: {"a": [1]}, "planned by counts", id="too few"),
        pytest.param(lambda _: {"a": [1, -1]}, "planned by counts", id="negative"),
        pytest.param(lambda _: {"a": ["many", 1]}, "planned by counts", id="not a number"),
        pytest.param(lambda _: {"a": None}, "planned by counts", id="nothing for a topic"),
        pytest.param(lambda _: None, "planned by counts", id="nothing"),
        pytest.param(lambda _: 7, "planned by counts", id="no mapping"),
        pytest.param(away, "the broker is away", id="an error"),
        pytest.param(None, "holdfast.lag.source", id="no source"),
    ],
)
def test_a_source_that_gives_nothing_that_fits_costs_the_round_its_lags(source, told, caplog):
    assert timed_lag_source(source)(COUNTS) == NOTHING
    assert told in caplog.text


def test_a_late_source_is_not_waited_for_and_not_asked_again_before_it_answers(caplog):
    asked, go_on, answered = [], threading.Event(), threading.Event()

    def source(counts):
        asked.append(counts)
        go_on.wait(60)
        answered.set()
        return {"a": [1, 2]}

    ask = timed_lag_source(source, timeout_ms=10)
    assert ask(COUNTS) == NOTHING
    assert "within 10 ms" in caplog.text
    assert ask(COUNTS) == NOTHING
    assert len(asked) == 1
    go_on.set()
    assert answered.wait(60)
    patient = timed_lag_source(source, timeout_ms=60_000)
    assert patient(COUNTS) == {"a": [1, 2], "b": [0]}
