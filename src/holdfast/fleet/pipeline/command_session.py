"""The Spark session of a command: Ctrl-C ends the command as without Spark.

**Rules.** A ``KeyboardInterrupt`` ends the command, and the JVM ends after it, as its standard
input is closed. A terminal sends Ctrl-C to the JVM as well. The JVM ignores it: the cleanup here
still needs the JVM. PySpark's own handler of SIGINT must not run: it calls the JVM, mostly during
another call, and then both calls fail with a stack trace. Log messages of py4j about a call that
Ctrl-C interrupted are not printed.

**Strategy.** PySpark installs its handler while it starts a session in the main thread, and has no
option against that. Restoring Python's handler afterwards would leave a gap: PySpark talks to the
JVM for about a second after it has installed its handler. So ``open_session`` replaces
``signal.signal``, while the session starts, by a function that installs no handler of SIGINT.
PySpark calls it in the JVM's process too, between fork and exec, to ignore SIGINT there; that call
passes.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from holdfast.errors import is_interrupt

LOGGERS: Final = ("", "py4j.clientserver", "py4j.java_gateway")
"""Loggers of py4j that report failed calls; a filter on a logger does not reach its children."""


def open_session(**options: Any) -> Any:
    """Start :func:`holdfast.fleet.pipeline.session.get_session` without PySpark's own handler."""
    from holdfast.fleet.pipeline.session import get_session

    install = signal.signal

    def keep(signalnum: int | signal.Signals, handler: Any) -> Any:
        if signalnum == signal.SIGINT and handler is not signal.SIG_IGN:
            return signal.getsignal(signalnum)
        return install(signalnum, handler)

    for name in LOGGERS:
        logging.getLogger(name).addFilter(not_interrupted)
    signal.signal = keep
    try:
        return get_session(**options)
    finally:
        signal.signal = install


def running_session() -> Callable[[], Any] | None:
    """Return a function that returns the running session; None without one. Imports no Spark."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    return None if active is None else lambda: active


def not_interrupted(record: logging.LogRecord) -> bool:
    """Return whether a record concerns no KeyboardInterrupt and no error that follows one."""
    return not is_interrupt(record.exc_info[1] if record.exc_info else None)
