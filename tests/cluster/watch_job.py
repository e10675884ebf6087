"""The job file of ``watch``, with all that executors can do done by them.

``watch_job.py JOBS HOST:PORT OUT [SECONDS die BATCH]``: with ``die`` the driver kills itself when
it is to commit that batch; its executors have written the files by then.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

from holdfast.fleet.pipeline import steps
from holdfast.fleet.tables.folder.commits import Folder

folder, bootstrap, out, *more = sys.argv[1:]
steps.HERE_ROWS = -1
if more:
    signal.alarm(400)  # it would follow the topic for ever if its last batch never came
    commit = Folder.commit

    def committed(folder, batch, **how):
        """Commit, unless this is the batch to die in."""
        if batch.id == int(more[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return commit(folder, batch, **how)

    Folder.commit = committed
sys.argv[:] = ["watch", bootstrap, out, *more[:1]]
runpy.run_path(str(Path(folder) / "watch.py"), run_name="__main__")
