"""History of every group on a cluster.

``spark-submit --py-files holdfast.zip jobs/history.py DUMP OUT``: the dump may be
on a store, and OUT too; the driver and every executor must reach a local OUT under this path
(docs/cluster.md).
"""

from __future__ import annotations

import argparse
import sys

import holdfast.spark as hs

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dump", metavar="DUMP", help="folder of `holdfast dump`, or its URL")
parser.add_argument("out", metavar="OUT", help="folder for the tables")
wanted = parser.parse_args()
tables = hs.history(hs.get_session(), hs.dump(wanted.dump), wanted.out)
sys.stdout.write(
    f"{tables.rows('generations')} generations, {tables.rows('rebalances')} rebalances\n"
)
