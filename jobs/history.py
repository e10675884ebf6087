"""History of every group on a cluster.

``spark-submit --py-files holdfast.whl jobs/history.py DUMP OUT``: both folders must be reachable
under these paths by the driver and by every executor.
"""

from __future__ import annotations

import argparse
import sys

from holdfast.pipeline.history.history import run
from holdfast.pipeline.session import get_session

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dump", metavar="DUMP", help="folder of `holdfast dump`")
parser.add_argument("out", metavar="OUT", help="folder for the tables")
wanted = parser.parse_args()
made = run(get_session(), wanted.dump, wanted.out)
sys.stdout.write(f"{made.n_records} records, {made.tables.rows('rebalances')} rebalances\n")
