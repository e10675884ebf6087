"""The Spark session of a command: Ctrl-C stays what it was.

**Rules.** PySpark's own answer to SIGINT calls the JVM, mostly in the middle of another call to it,
and both fail with a stack trace. Here a ``KeyboardInterrupt`` ends the command and with it the JVM:
the handler of before is put back, and a Ctrl-C while the session starts comes when it stands. What
py4j logs about a call that was interrupted is nobody's concern.
"""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any


def open_session(**options: Any) -> Any:
    """:func:`holdfast.pipeline.session.get_session`, with the SIGINT handler of before."""
    from holdfast.pipeline.session import get_session

    if threading.current_thread() is not threading.main_thread():
        return get_session(**options)
    logging.getLogger().addFilter(not_interrupted)
    before = signal.getsignal(signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return get_session(**options)
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def not_interrupted(record: logging.LogRecord) -> bool:
    """Whether a record tells of anything but a KeyboardInterrupt."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, KeyboardInterrupt)
