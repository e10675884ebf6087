"""End the demo's processes on SIGTERM, or when the process that started them has ended.

**Rules.** The parent process holds the other end of standard input and never writes to it, so end
of file means that the parent has ended. A child then has :data:`LAST_SECONDS` to end in order: the
broker has probably ended as well, and a client might wait for it for ever. A child ignores Ctrl-C,
which the parent handles.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from holdfast.cluster.signal_safe import Flag

LAST_SECONDS = 15.0


def watch() -> Flag:
    """Return a flag that is set when this process should end in order."""
    stop = Flag()  # an Event may be locked by the code that its signal interrupts
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def await_parent() -> None:
        sys.stdin.read()
        stop.set()
        time.sleep(LAST_SECONDS)
        os._exit(1)

    threading.Thread(target=await_parent, name="lifeline", daemon=True).start()
    return stop
