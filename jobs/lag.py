"""How far every group is behind.

``spark-submit --py-files holdfast.zip jobs/lag.py DUMP OUT [latest|earliest]`` writes every table
to OUT and prints the largest sums, one group a line.
"""

from __future__ import annotations

import argparse
import sys

import holdfast.spark as hs

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dump", metavar="DUMP", help="folder of `holdfast dump`, or its URL")
parser.add_argument("out", metavar="OUT", help="folder for the tables")
parser.add_argument(
    "reset",
    metavar="RESET",
    nargs="?",
    choices=("latest", "earliest"),
    default="latest",
    help="what the groups' auto.offset.reset is: latest (the default) or earliest",
)
wanted = parser.parse_args()
source = hs.dump(wanted.dump)
tables = hs.history(hs.get_session(), source, wanted.out, auto_offset_reset=wanted.reset)
behind = hs.lag(tables)
for row in behind.orderBy(behind["lag"].desc_nulls_last(), "group").limit(20).collect():
    sys.stdout.write(f"{row['lag']}\t{row['group']!r}\n")
