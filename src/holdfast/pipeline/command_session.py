"""The Spark session of a command: Ctrl-C stays what it was.

**Rules.** PySpark's own answer to SIGINT calls the JVM, mostly in the middle of another call to it,
and both fail with a stack trace. Here a ``KeyboardInterrupt`` ends the command and with it the JVM:
PySpark is not let install its handler. What py4j logs about a call that was interrupted is nobody's
concern.
"""

from __future__ import annotations

import logging
import signal
from typing import Any, Final

LOGGERS: Final = ("", "py4j.clientserver", "py4j.java_gateway")
"""Where py4j tells of calls that failed: a logger's filter does not see what its children say."""


def open_session(**options: Any) -> Any:
    """:func:`holdfast.pipeline.session.get_session`, without PySpark's SIGINT handler."""
    from holdfast.pipeline.session import get_session

    install = signal.signal

    def keep(signalnum: int | signal.Signals, handler: Any) -> Any:
        if signalnum == signal.SIGINT:
            return signal.getsignal(signalnum)
        return install(signalnum, handler)

    for name in LOGGERS:
        logging.getLogger(name).addFilter(not_interrupted)
    signal.signal = keep
    try:
        return get_session(**options)
    finally:
        signal.signal = install


def not_interrupted(record: logging.LogRecord) -> bool:
    """Whether a record tells of anything but a KeyboardInterrupt and what failed in its wake."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is None
