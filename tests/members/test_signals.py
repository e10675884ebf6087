"""SIGTERM and SIGINT in ``with`` blocks."""

from __future__ import annotations

import signal
import threading

import pytest

from holdfast.members.runtime.application_calls import EndSignals

TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.fixture(autouse=True)
def untouched(default_signals):
    """Every test leaves the handlers as they were."""
    yield
    after = signal.getsignal(TERM), signal.getsignal(INT)
    assert after == (signal.SIG_DFL, signal.default_int_handler)


@pytest.fixture
def watching():
    watch = EndSignals()
    watch.watch()
    yield watch
    watch.end()


@pytest.mark.parametrize(("number", "kind"), [(TERM, SystemExit), (INT, KeyboardInterrupt)])
def test_the_first_waits_for_the_next_poll_and_the_second_does_not(watching, number, kind):
    watching.raise_caught()
    signal.raise_signal(number)
    with pytest.raises(kind):
        watching.raise_caught()
    with pytest.raises(kind):
        signal.raise_signal(number)


def test_the_exit_code_is_the_shells(watching):
    signal.raise_signal(TERM)
    with pytest.raises(SystemExit) as ended:
        watching.raise_caught()
    assert ended.value.code == 128 + TERM


def test_a_worker_is_ended_at_once_and_all_hear_of_it(watching):
    worker = EndSignals(at_once=True)
    worker.watch()
    with pytest.raises(SystemExit):
        signal.raise_signal(TERM)
    worker.end()
    assert watching.caught is TERM


def test_the_last_one_puts_the_handlers_back(watching):
    other = EndSignals()
    other.watch()
    watching.end()
    signal.raise_signal(TERM)
    assert (watching.caught, other.caught) == (None, TERM)
    other.end()
    other.end()
    assert signal.getsignal(TERM) is signal.SIG_DFL


def test_a_handler_of_the_program_stays():
    heard = []
    old = signal.signal(TERM, lambda *_: heard.append(1))
    watch = EndSignals()
    watch.watch()
    signal.raise_signal(TERM)
    watch.end()
    assert (heard, watch.caught) == ([1], None)
    assert signal.getsignal(TERM) is not signal.SIG_DFL
    signal.signal(TERM, old)


def test_a_handler_that_the_program_sets_meanwhile_stays(watching):
    mine = signal.signal(TERM, signal.SIG_IGN)
    watching.end()
    assert signal.getsignal(TERM) is signal.SIG_IGN
    assert mine is not None
    signal.signal(TERM, signal.SIG_DFL)


def test_other_threads_hear_nothing():
    watch = EndSignals()
    thread = threading.Thread(target=watch.watch)
    thread.start()
    thread.join()
    assert signal.getsignal(TERM) is signal.SIG_DFL
    watch.end()
