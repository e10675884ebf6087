"""What another assignment would be for every group; nothing is applied.

``spark-submit --py-files holdfast.zip jobs/plan.py DUMP TABLES ASSIGNOR OUT.parquet``: TABLES is
the output of ``jobs/history.py`` for DUMP.
"""

from __future__ import annotations

import argparse
import sys

import pyarrow.parquet as pq

from holdfast.pipeline.ingest.source import Dump
from holdfast.pipeline.plan.run import plan
from holdfast.pipeline.session import get_session
from holdfast.tables.reading import open_tables
from holdfast.tables.storage.places import writable

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dump", metavar="DUMP", help="folder of `holdfast dump`, or its URL")
parser.add_argument("tables", metavar="TABLES", help="folder of jobs/history.py for DUMP")
parser.add_argument("assignor", metavar="ASSIGNOR", help="such as sticky; docs/assignors.md")
parser.add_argument("out", metavar="OUT.parquet", help="file for the plans")
wanted = parser.parse_args()
topics = Dump.open(wanted.dump).partition_counts()
found = plan(get_session(), open_tables(wanted.tables), topics, wanted.assignor)
with writable(wanted.out) as sink:
    pq.write_table(found, sink)
sys.stdout.write(
    f"{found.num_rows} groups, {sum(found['n_moved'].drop_null().to_pylist())} moves\n"
)
