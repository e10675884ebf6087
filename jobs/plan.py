"""What another assignment would be for every group; nothing is applied.

``spark-submit --py-files holdfast.whl jobs/plan.py DUMP TABLES ASSIGNOR OUT.parquet``: TABLES is
the output of ``jobs/history.py`` for DUMP.
"""

from __future__ import annotations

import sys

import pyarrow.parquet as pq

from holdfast.pipeline.ingest.source import Dump
from holdfast.pipeline.plan.plan import plan
from holdfast.pipeline.session import get_session
from holdfast.tables.reading import open_tables

dump, tables, assignor, out = sys.argv[1:5]
topics = Dump.open(dump).partition_counts()
found = plan(get_session(), open_tables(tables), topics, assignor)
pq.write_table(found, out)
sys.stdout.write(
    f"{found.num_rows} groups, {sum(found['n_moved'].drop_null().to_pylist())} moves\n"
)
