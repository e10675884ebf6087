"""What another assignment would be for every group; nothing is applied.

``spark-submit --py-files holdfast.zip jobs/plan.py DUMP TABLES ASSIGNOR OUT.parquet``: TABLES is
the output of ``jobs/history.py`` for DUMP.
"""

from __future__ import annotations

import argparse
import sys

import holdfast.spark as hs

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dump", metavar="DUMP", help="folder of `holdfast dump`, or its URL")
parser.add_argument("tables", metavar="TABLES", help="folder of jobs/history.py for DUMP")
parser.add_argument("assignor", metavar="ASSIGNOR", help="such as sticky; docs/assignors.md")
parser.add_argument("out", metavar="OUT.parquet", help="file for the plans")
wanted = parser.parse_args()
tables = hs.open_tables(hs.get_session(), wanted.tables)
planned = hs.plan(tables, wanted.assignor, hs.dump(wanted.dump))
hs.save(planned, wanted.out)
moves = planned.groupBy().sum("n_moved").collect()[0][0]
sys.stdout.write(f"{planned.count()} groups, {moves or 0} moves\n")
