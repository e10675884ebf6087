"""How the demo's processes end: on SIGTERM, or when the process that started them is gone.

**Rules.** The parent holds the other end of standard input and never writes to it. Ctrl-C is the
parent's business. Whose parent is gone has :data:`LAST_SECONDS` to end in order: the broker is
likely gone as well, and a client may wait for it for ever.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

LAST_SECONDS = 15.0


def watch() -> threading.Event:
    """Return an event that is set when this process should end in order."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def await_parent() -> None:
        sys.stdin.read()
        stop.set()
        time.sleep(LAST_SECONDS)
        os._exit(1)

    threading.Thread(target=await_parent, name="lifeline", daemon=True).start()
    return stop
