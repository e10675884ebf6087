"""``sitecustomize`` of a worker: the first file that it writes is the last thing its executor does.

The Python that a task runs in kills the executor's JVM, once a cluster, after a file was closed and
before its name was handed back: the file is an orphan, and the task runs again elsewhere.
"""

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

MODULE = "holdfast.fleet.tables.folder.files"
MARK = os.environ.get("KILL_EXECUTOR_ONCE")
EXECUTOR = os.getppid()  # of the daemon that Spark starts, whose children run the tasks


def dying(close):
    """A writer's ``close`` after which the executor is killed, the first time on this cluster."""

    def closed(writer):
        names = close(writer)
        if sys.prefix.endswith("w2") and Path(MARK).with_name("slow").exists():
            time.sleep(5)  # long enough to be speculated on
        try:
            os.close(os.open(MARK, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return names
        os.kill(EXECUTOR, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        return names

    return closed


class Hook:
    """Waits for holdfast's writer, which comes with the application's wheel."""

    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def executed(module):
            load(module)
            if module.__name__ == MODULE:
                module.BatchWriter.close = dying(module.BatchWriter.close)

        spec.loader.exec_module = executed
        return spec


if MARK:
    sys.meta_path.insert(0, Hook())
