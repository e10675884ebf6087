"""History of every group on a cluster.

``spark-submit --py-files holdfast.zip jobs/history.py DUMP OUT``: the dump may be
on a store, and OUT too; the driver and every executor must reach a local OUT under this path
(docs/cluster.md).
"""

from __future__ import annotations

import argparse
import sys

from holdfast.pipeline.history.history import run
from holdfast.pipeline.session import get_session

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dump", metavar="DUMP", help="folder of `holdfast dump`, or its URL")
parser.add_argument("out", metavar="OUT", help="folder for the tables")
wanted = parser.parse_args()
made = run(get_session(), wanted.dump, wanted.out)
sys.stdout.write(f"{made.n_records} records, {made.tables.rows('rebalances')} rebalances\n")
