"""How far every group is behind.

``spark-submit --py-files holdfast.zip jobs/lag.py DUMP OUT [latest|earliest]`` writes every table
to OUT and prints the largest sums, one group a line.
"""

from __future__ import annotations

import argparse
import sys

from holdfast.pipeline.history.history import run
from holdfast.pipeline.session import get_session

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
made = run(get_session(), wanted.dump, wanted.out, auto_offset_reset=wanted.reset)
sums = made.table("lag").group_by("group").aggregate([("lag", "sum")])
for row in (
    sums.sort_by([("lag_sum", "descending"), ("group", "ascending")]).slice(0, 20).to_pylist()
):
    sys.stdout.write(f"{row['lag_sum']}\t{row['group']!r}\n")
