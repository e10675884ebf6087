"""The job files one after the other in one application: run by ``spark-submit`` in a test.

``submitted.py DUMP OUT``. Says on its last line what the session has in the end.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

from holdfast.fleet.pipeline import steps
from holdfast.fleet.pipeline.session import get_session

folder, (dump, out) = Path(__file__).parents[2] / "jobs", sys.argv[1:3]
steps.HERE_ROWS = -1  # all that can be done on executors is done there
for name, arguments in (
    ("history", [dump, out]),
    ("plan", [dump, out, "sticky", f"{out}.plan.parquet"]),
    ("replay", [dump, out, f"{out}.replay.parquet", "eager:range", "simple:cooperative-sticky"]),
    ("lag", [dump, f"{out}.lag", "earliest"]),
):
    sys.argv[:] = [name, *arguments]
    runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
spark = get_session(app_name="another", conf={"spark.sql.shuffle.partitions": "7"})
keys = (
    "spark.app.name",
    "spark.master",
    "spark.sql.shuffle.partitions",
    "spark.sql.session.timeZone",
    "spark.sql.execution.arrow.maxBytesPerBatch",
)
sys.stdout.write(json.dumps({key: spark.conf.get(key) for key in keys}) + "\n")
spark.stop()
