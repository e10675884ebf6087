"""Ctrl-C around Spark: Python's own handler stays, also while the session starts."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys

import pytest

from holdfast.fleet.pipeline import session
from holdfast.fleet.pipeline.session import LOGGERS, not_interrupted, open_session


@pytest.fixture
def before():
    kept = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, kept)
    for name in LOGGERS:
        logging.getLogger(name).removeFilter(not_interrupted)


def get_session(*, interrupted=False):
    signal.signal(signal.SIGINT, lambda *_: pytest.fail("a call into the JVM within another"))
    if interrupted:
        signal.raise_signal(signal.SIGINT)
    return "session"


def test_the_handler_stays(before, monkeypatch):
    monkeypatch.setattr(session, "get_session", get_session)
    assert open_session() == "session"
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_ctrl_c_while_the_session_starts(before, monkeypatch):
    monkeypatch.setattr(session, "get_session", get_session)
    with pytest.raises(KeyboardInterrupt):
        open_session(interrupted=True)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_jvm_ignores_a_ctrl_c_of_the_terminal(before, monkeypatch):
    """PySpark has it ignored between fork and exec; what is cleaned up here talks to the JVM."""
    show = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"

    def started() -> str:
        def of_pyspark() -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

        return subprocess.run(
            [sys.executable, "-c", show],
            preexec_fn=of_pyspark,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    monkeypatch.setattr(session, "get_session", started)
    assert open_session() == "True\n"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("error", "told"), [(KeyboardInterrupt, False), (ValueError, True)])
def test_what_is_logged_of_an_interrupted_call(error, told):
    try:
        raise error
    except (KeyboardInterrupt, ValueError):
        record = logging.LogRecord("root", logging.ERROR, "", 0, "said", None, sys.exc_info())
    assert not_interrupted(record) is told


def test_what_breaks_while_an_interrupted_call_is_cleaned_up_is_not_reported(
    before, monkeypatch, caplog
):
    monkeypatch.setattr(session, "get_session", get_session)
    open_session()
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        try:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise BrokenPipeError  # noqa: B904 - as py4j does
        except BrokenPipeError:
            logging.getLogger(name).exception("while shutting down")
        logging.getLogger(name).error("another failure")
    assert caplog.messages == ["another failure"] * 2


def test_without_delta_s_jars_a_session_starts_all_the_same(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HOLDFAST_JARS", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    settings = session._defaults("local[1]", (), kafka=False, delta=True)
    assert "spark.sql.extensions" not in settings and settings["spark.jars"] == ""
    assert "no Delta Lake" in caplog.text and str(tmp_path) in caplog.text
