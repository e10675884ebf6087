"""The job files one after the other in one application, all that executors can do done by them.

``all_jobs.py JOBS DUMP OUT [die]``: with ``die`` the driver kills itself when it is to commit.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

from holdfast.fleet.pipeline import steps
from holdfast.fleet.pipeline.batches import examined
from holdfast.fleet.pipeline.session import get_session
from holdfast.fleet.tables.folder.commits import Folder

folder, dump, out = sys.argv[1:4]
steps.HERE_ROWS = -1  # all that can be done on executors is done there
names = examined.InMemoryRows
examined.InMemoryRows = lambda **given: names(**{**given, "task_rows": 1})  # a task for each group
if sys.argv[4:] == ["die"]:
    Folder.commit = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
for name, arguments in (
    ("history", [dump, out]),
    ("plan", [dump, out, "sticky", f"{out}.plan.parquet"]),
    ("replay", [dump, out, f"{out}.replay.parquet", "eager:range", "simple:cooperative-sticky"]),
    ("lag", [dump, f"{out}.lag", "earliest"]),
):
    sys.argv[:] = [name, *arguments]
    runpy.run_path(str(Path(folder) / f"{name}.py"), run_name="__main__")
get_session().stop()
