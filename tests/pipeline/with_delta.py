"""Tables as Delta tables, written whole and batch by batch: run by a test in a process of its own.

``with_delta.py DUMP OUT``. Says on its last line which tables a Delta reader finds different.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.pipeline.stream_that_dies import Said

from holdfast.pipeline.batches import delta
from holdfast.pipeline.batches.delta import DELTA_FOLDER, write_delta
from holdfast.pipeline.batches.watch import Stream
from holdfast.pipeline.history.history import run
from holdfast.pipeline.ingest.selection import Selection
from holdfast.pipeline.ingest.source import Dump
from holdfast.pipeline.session import get_session
from holdfast.tables.reading import Tables
from holdfast.tables.stored import TABLES

# A plain table, nested ones, and those that are written over; a Delta write takes its time.
NAMES = ("offset_commits", "assignments", "rebalances", "lag")
delta.TABLES = {name: TABLES[name] for name in NAMES}


def differing(spark, tables, folder):
    """Names of tables whose Delta copy has other rows."""
    found = []
    for name in NAMES:
        copy = spark.read.format("delta").load(str(folder / name)).toArrow()
        stored = tables.table(name, flat=False)
        same = copy.select(stored.column_names).cast(stored.schema).to_pylist()
        if sorted(map(repr, same)) != sorted(map(repr, stored.to_pylist())):
            found.append(name)
    return found


dump, out = Dump.open(sys.argv[1]), Path(sys.argv[2])
spark = get_session(master="local[1]", delta=True, quick=True)
made = run(spark, dump, out / "whole")
whole = differing(spark, made.tables, write_delta(spark, made.tables))

tables = Tables(out / "stream")
stream = Stream(
    tables=tables, query="q", snapshot=lambda: Said(dump), selection=Selection(), delta=True
)
records = dump.records(spark)
middle = records.agg({"offset": "max"}).first()[0] // 2
for batch, frame in enumerate(
    (records.where(f"offset <= {middle}"), records.where(f"offset > {middle}"))
):
    stream.process(frame, batch)
    stream.process(frame, batch)  # as Spark does when it was killed before it said done
said = {
    "whole": whole,
    "stream": differing(spark, tables, tables.root / DELTA_FOLDER),
    "rows": {name: tables.rows(name) for name in NAMES},
}
sys.stdout.write(json.dumps(said) + "\n")
spark.stop()
