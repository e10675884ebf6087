"""Ctrl-C around Spark: the handler of before, also for one that comes as the session starts."""

from __future__ import annotations

import logging
import os
import signal
import sys

import pytest

from holdfast.cli.spark_session import not_interrupted, open_session
from holdfast.pipeline import session


@pytest.fixture
def before():
    kept = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, kept)
    logging.getLogger().removeFilter(not_interrupted)


def pyspark_like(*, interrupted):
    def get_session(**options):
        signal.signal(signal.SIGINT, lambda *_: pytest.fail("a call into the JVM within another"))
        if interrupted:
            os.kill(os.getpid(), signal.SIGINT)
        return options

    return get_session


def test_the_handler_of_before_is_back(before, monkeypatch):
    monkeypatch.setattr(session, "get_session", pyspark_like(interrupted=False))
    assert open_session(kafka=True) == {"kafka": True}
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_while_the_session_starts_comes_when_it_stands(before, monkeypatch):
    monkeypatch.setattr(session, "get_session", pyspark_like(interrupted=True))
    with pytest.raises(KeyboardInterrupt):
        open_session()
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


@pytest.mark.parametrize(("error", "told"), [(KeyboardInterrupt, False), (ValueError, True)])
def test_what_is_logged_of_an_interrupted_call(error, told):
    try:
        raise error
    except (KeyboardInterrupt, ValueError):
        record = logging.LogRecord("root", logging.ERROR, "", 0, "said", None, sys.exc_info())
    assert not_interrupted(record) is told
