"""The tables as Spark's own reader of Delta sees them: run by a test in a process of its own.

``with_delta.py DUMP OUT``. Says on its last line which tables it finds different.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.pipeline.session import get_session
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.maintenance import merge

dump, out = Dump.open(sys.argv[1]), Path(sys.argv[2])
spark = get_session(master="local[1]")
tables = run(lambda: spark, dump, out / "tables").tables
tables = run(lambda: spark, dump, out / "tables").tables  # so that something was removed
with tables.writing():
    merge(tables.folder, everything=True)
differing = []
for name in TABLES:
    found = spark.read.format("delta").load(str(tables.root / name)).toArrow()
    stored = tables.table(name, flat=False)
    same = found.select(stored.column_names).cast(stored.schema).to_pylist()
    if sorted(map(repr, same)) != sorted(map(repr, stored.to_pylist())):
        differing.append(name)
said = {"differing": differing, "rows": {name: tables.rows(name) for name in TABLES}}
sys.stdout.write(json.dumps(said) + "\n")
spark.stop()
